"""Recurrent layers: a state that is carried along a sequence."""

from lawful.blocks.recurrent.elman import Elman
from lawful.blocks.recurrent.gru import GRU
from lawful.blocks.recurrent.lstm import LSTM

__all__ = ["GRU", "LSTM", "Elman"]
