"""Decoding: a model writes on where prompts end, or says how probable a text is."""

from lawful.inference.decoding.beams import Found, beam_search, beam_searches
from lawful.inference.decoding.bigrams import Bigrams
from lawful.inference.decoding.decodes import Cached, Decodes, Prompts, Reader
from lawful.inference.decoding.generate import generate, stream
from lawful.inference.decoding.likelihood import log_probabilities, perplexity
from lawful.inference.decoding.sampling import GREEDY, PURE, Draws, Sampling
from lawful.inference.decoding.text import Pieces, complete, write

__all__ = [
    "GREEDY",
    "PURE",
    "Bigrams",
    "Cached",
    "Decodes",
    "Draws",
    "Found",
    "Pieces",
    "Prompts",
    "Reader",
    "Sampling",
    "beam_search",
    "beam_searches",
    "complete",
    "generate",
    "log_probabilities",
    "perplexity",
    "stream",
    "write",
]
