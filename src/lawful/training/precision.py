"""Lower precision and compiling: what a device can do, and one line where it cannot."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from lawful.training.setup import TrainerConfig


class Precision:
    """The numbers that a step computes with.

    In float16 small gradients vanish, so that the loss is multiplied by a factor before the backward pass, and a
    step with infinite gradients is left out and the factor lowered.

    Args:
        trainer: The options.
        say: Where to say what could not be had.
    """

    def __init__(self, trainer: TrainerConfig, say: Callable[[str], None]) -> None:
        self.device, self.kind = trainer.device, getattr(torch, trainer.precision)
        if self.kind != torch.float32 and not self._works():
            say(f"{trainer.precision} does not work on {trainer.device}: float32 is used")
            self.kind = torch.float32
        scaled = self.kind == torch.float16
        self.scaler = torch.amp.GradScaler(self.device) if scaled else None

    def _works(self) -> bool:
        try:
            with torch.autocast(self.device, dtype=self.kind):
                return (torch.ones(2, 2, device=self.device) @ torch.ones(2, 2, device=self.device)).dtype == self.kind
        except (RuntimeError, ValueError, NotImplementedError):
            return False

    def autocast(self) -> AbstractContextManager[object]:
        return nullcontext() if self.kind == torch.float32 else torch.autocast(self.device, dtype=self.kind)

    def backward(self, loss: Tensor) -> None:
        (self.scaler.scale(loss) if self.scaler else loss).backward()

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        if self.scaler is None:
            optimizer.step()
        else:
            self.scaler.step(optimizer)

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        if self.scaler is not None:
            self.scaler.unscale_(optimizer)

    def end_of_step(self) -> None:
        if self.scaler is not None:
            self.scaler.update()


def compiled(model: nn.Module, trial: Callable[[], object], say: Callable[[str], None]) -> None:
    """Compiles a model in place, if a trial with it runs.

    Args:
        model: The model, which stays the same object with the same names.
        trial: What calls it once, and leaves no trace.
        say: Where to say that it could not be compiled.
    """
    try:
        model.compile()
        trial()
    except Exception as error:
        model._compiled_call_impl = None
        torch.compiler.reset()
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        say(f"the model cannot be compiled and runs as it is: {reason[:200]}")
