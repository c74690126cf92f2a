"""Where batches come from: built-in data, tables, images, text, and what is done to them before a step."""

from lawful.data.arrays import Arrays
from lawful.data.augmentation import Augment, chained, cut_out, flipped, mixed, noisy, shifted
from lawful.data.batches import Batch, InOrder, Shuffled, Source
from lawful.data.builtin import BUILTIN, bundled, digits, mnist1d, moons, sine
from lawful.data.densities import Boxes, Density, Gaussian, Mixture, checkerboard, grid, ring, two_moons
from lawful.data.dequantizer import Dequantizer
from lawful.data.encode import Encoded, Encodings, encode, encoding_from_json
from lawful.data.examples import Examples, fingerprint
from lawful.data.generators import generator_of, seed_of
from lawful.data.images import Images, read_images
from lawful.data.leaks import Leak, leaks
from lawful.data.loaded import Loaded
from lawful.data.read import Data, read
from lawful.data.resampling import noisy_labels, resampled
from lawful.data.splits import split, split_indices
from lawful.data.tables import (
    Column,
    Encoding,
    Table,
    Task,
    fitted,
    read_arrays,
    read_delimited,
    read_parquet,
    table_of,
)
from lawful.data.text import (
    BPE,
    Bytes,
    Characters,
    PairBatches,
    Pairs,
    Text,
    TextWindows,
    Tokenizer,
    Tokens,
    WindowsInOrder,
    read_pairs,
    read_text,
    tokenised,
    tokenizer_from_json,
)

__all__ = [
    "BPE",
    "BUILTIN",
    "Arrays",
    "Augment",
    "Batch",
    "Boxes",
    "Bytes",
    "Characters",
    "Column",
    "Data",
    "Density",
    "Dequantizer",
    "Encoded",
    "Encoding",
    "Encodings",
    "Examples",
    "Gaussian",
    "Images",
    "InOrder",
    "Leak",
    "Loaded",
    "Mixture",
    "PairBatches",
    "Pairs",
    "Shuffled",
    "Source",
    "Table",
    "Task",
    "Text",
    "TextWindows",
    "Tokenizer",
    "Tokens",
    "WindowsInOrder",
    "bundled",
    "chained",
    "checkerboard",
    "cut_out",
    "digits",
    "encode",
    "encoding_from_json",
    "fingerprint",
    "fitted",
    "flipped",
    "generator_of",
    "grid",
    "leaks",
    "mixed",
    "mnist1d",
    "moons",
    "noisy",
    "noisy_labels",
    "read",
    "read_arrays",
    "read_delimited",
    "read_images",
    "read_pairs",
    "read_parquet",
    "read_text",
    "resampled",
    "ring",
    "seed_of",
    "shifted",
    "sine",
    "split",
    "split_indices",
    "table_of",
    "tokenised",
    "tokenizer_from_json",
    "two_moons",
]
