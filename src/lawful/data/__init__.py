"""Data: datasets, tables, images, text, splits, augmentation and batches."""

from lawful.data.augmentation import Augment, compose, cutout, gaussian_noise, mixup, random_flip, random_shift
from lawful.data.batches import (
    Batch,
    BatchSource,
    DataLoaderBatches,
    SequentialBatches,
    ShuffledBatches,
    make_generator,
    derive_seed,
)
from lawful.data.builtin import BUILTIN, digits, mnist1d, moons, sine, sklearn_table
from lawful.data.dataset import Arrays, SupervisedDataset, fingerprint
from lawful.data.densities import UniformBoxes, Density, gaussian_density, GaussianMixture, checkerboard, grid, ring, two_moons
from lawful.data.dequantizer import Dequantizer
from lawful.data.images import ImageEncoding, list_images, read_images, read_unlabeled_images
from lawful.data.loading import (
    Encoded,
    Encodings,
    LoadedDataset,
    encoding_from_json,
    load_dataset,
    load_like,
    read_table,
    resolve_path,
)
from lawful.data.splits import Leak, bootstrap_indices, leaks, noisy_labels, split, split_indices
from lawful.data.table_encoding import Column, TableEncoding, Task, fit_table_encoding
from lawful.data.tables import ColumnValues, Table, read_arrays, read_delimited, read_parquet, table_of
from lawful.data.text.corpus import Corpus, TokenizedCorpus, read_text, tokenize_corpus
from lawful.data.text.pairs import PairBatches, Pairs, read_pairs
from lawful.data.text.tokenizers import BPETokenizer, ByteTokenizer, CharTokenizer, Tokenizer, tokenizer_from_json
from lawful.data.text.windows import SequentialWindows, ShuffledWindows

__all__ = [
    "BUILTIN",
    "Arrays",
    "Augment",
    "BPETokenizer",
    "Batch",
    "BatchSource",
    "UniformBoxes",
    "ByteTokenizer",
    "CharTokenizer",
    "Column",
    "ColumnValues",
    "Corpus",
    "DataLoaderBatches",
    "Density",
    "Dequantizer",
    "Encoded",
    "Encodings",
    "gaussian_density",
    "ImageEncoding",
    "Leak",
    "LoadedDataset",
    "GaussianMixture",
    "PairBatches",
    "Pairs",
    "SequentialBatches",
    "SequentialWindows",
    "ShuffledBatches",
    "ShuffledWindows",
    "SupervisedDataset",
    "Table",
    "TableEncoding",
    "Task",
    "TokenizedCorpus",
    "Tokenizer",
    "bootstrap_indices",
    "checkerboard",
    "compose",
    "cutout",
    "digits",
    "encoding_from_json",
    "fingerprint",
    "fit_table_encoding",
    "gaussian_noise",
    "grid",
    "leaks",
    "list_images",
    "load_dataset",
    "load_like",
    "make_generator",
    "mixup",
    "mnist1d",
    "moons",
    "noisy_labels",
    "random_flip",
    "random_shift",
    "read_arrays",
    "read_delimited",
    "read_images",
    "read_pairs",
    "read_parquet",
    "read_table",
    "read_text",
    "read_unlabeled_images",
    "resolve_path",
    "ring",
    "derive_seed",
    "sine",
    "sklearn_table",
    "split",
    "split_indices",
    "table_of",
    "tokenize_corpus",
    "tokenizer_from_json",
    "two_moons",
]
