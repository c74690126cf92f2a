"""How a training is run, whatever it trains: where, how exact, how safe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from lawful.training.storage.config import Between, validate


@dataclass(frozen=True, kw_only=True)
class Engine:
    """How a training is run."""

    seed: Annotated[int, Between(0, 2**63 - 1)] = 0
    """Decides every random choice: the same seed gives the same run."""
    threads: Annotated[int, Between(0, 1024)] = 0
    """Processor threads; 0 measures a few steps with each number and takes the fastest."""
    device: Literal["cpu", "cuda", "mps"] = "cpu"
    """Where the model is."""
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    """The numbers that layers compute with; weights and their updates stay in float32."""
    compile: bool = False
    """Whether to compile the model."""
    parallel: Literal["data", "sharded"] = "data"
    """Under torchrun: whether every process holds the whole model, or a share of it."""
    save: Annotated[int, Between(1, 10**9)] = 1000
    """Steps from one checkpoint to the next; there is one of the best evaluation and at the end too."""
    keep: Annotated[int, Between(1, 10**6)] = 2
    """How many checkpoints to keep besides the best."""
    tensorboard: bool = False
    """Whether to write figures for TensorBoard too."""
    laws: Annotated[int, Between(0, 10**6)] = 30
    """Cases that each law of the trained model is tried on; 0 leaves the laws out."""

    def __post_init__(self) -> None:
        validate(self)
