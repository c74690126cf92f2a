"""Text: corpora, tokenizers, windows, pairs and labeled texts."""

from lawful.data.text.corpus import (
    TASKS,
    TEXTS,
    Corpus,
    TokenizedCorpus,
    dates,
    python_topics,
    read_text,
    sorting,
    tokenize_corpus,
)
from lawful.data.text.labeled import LabeledTexts, NewTexts, read_labeled_texts, read_texts, topics
from lawful.data.text.pairs import PairBatches, Pairs, SpecialTokens, pad_sequences, read_pairs, read_sources
from lawful.data.text.tokenizers import BPETokenizer, ByteTokenizer, CharTokenizer, Tokenizer, tokenizer_from_json
from lawful.data.text.windows import SequentialWindows, ShuffledWindows

__all__ = [
    "TASKS",
    "TEXTS",
    "BPETokenizer",
    "ByteTokenizer",
    "CharTokenizer",
    "Corpus",
    "LabeledTexts",
    "NewTexts",
    "PairBatches",
    "Pairs",
    "SequentialWindows",
    "ShuffledWindows",
    "SpecialTokens",
    "TokenizedCorpus",
    "Tokenizer",
    "dates",
    "pad_sequences",
    "python_topics",
    "read_labeled_texts",
    "read_pairs",
    "read_sources",
    "read_text",
    "read_texts",
    "sorting",
    "tokenize_corpus",
    "tokenizer_from_json",
    "topics",
]
