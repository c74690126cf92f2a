"""Text: reading it, numbering it, and cutting it into windows and pairs."""

from lawful.data.text.bpe import BPE
from lawful.data.text.builtin import TASKS, TEXTS, dates, python_topics, sorting
from lawful.data.text.bytes import Bytes
from lawful.data.text.characters import Characters
from lawful.data.text.pairs import Marks, PairBatches, Pairs, padded, read_pairs
from lawful.data.text.reading import Text, read_text
from lawful.data.text.store import Tokens, tokenised
from lawful.data.text.tokenizer import Tokenizer, tokenizer_from_json
from lawful.data.text.windows import TextWindows, WindowsInOrder

__all__ = [
    "BPE",
    "TASKS",
    "TEXTS",
    "Bytes",
    "Characters",
    "Marks",
    "PairBatches",
    "Pairs",
    "Text",
    "TextWindows",
    "Tokenizer",
    "Tokens",
    "WindowsInOrder",
    "dates",
    "padded",
    "python_topics",
    "read_pairs",
    "read_text",
    "sorting",
    "tokenised",
    "tokenizer_from_json",
]
