"""Layouts: the weights of other libraries, read and written."""

from lawful.models.transformer.layouts.gpt2 import GPT2, read_gpt2, write_gpt2
from lawful.models.transformer.layouts.layout import Layout, Row
from lawful.models.transformer.layouts.mingpt import MINGPT
from lawful.models.transformer.layouts.torch_transformer import TORCH_DECODER, TORCH_ENCODER, TORCH_TRANSFORMER

__all__ = [
    "GPT2",
    "MINGPT",
    "TORCH_DECODER",
    "TORCH_ENCODER",
    "TORCH_TRANSFORMER",
    "Layout",
    "Row",
    "read_gpt2",
    "write_gpt2",
]
