"""The layout of minGPT's and nanoGPT's weights."""

from __future__ import annotations

from functools import partial

from lawful.models.transformer.layouts.gpt2 import IGNORED, rows
from lawful.models.transformer.layouts.layout import Layout

_ROWS = partial(rows, transposed=False)
MINGPT = Layout(_ROWS, prefix="transformer.", outside=("lm_head.weight",), ignored=IGNORED)
"""The names of GPT-2 with the matrices of `nn.Linear`; minGPT's head is not tied, nanoGPT's is."""
