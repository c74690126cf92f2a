"""Text: reading it, numbering it, and cutting it into windows and pairs."""

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
from lawful.data.text.pairs import PairBatches, Pairs, SpecialTokens, pad_sequences, read_pairs
from lawful.data.text.tokenizers import BPETokenizer, ByteTokenizer, CharTokenizer, Tokenizer, tokenizer_from_json
from lawful.data.text.windows import SequentialWindows, ShuffledWindows

__all__ = [
    "TASKS",
    "TEXTS",
    "BPETokenizer",
    "ByteTokenizer",
    "CharTokenizer",
    "Corpus",
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
    "read_pairs",
    "read_text",
    "sorting",
    "tokenize_corpus",
    "tokenizer_from_json",
]
