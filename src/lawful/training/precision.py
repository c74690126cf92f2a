"""Autocast, gradient scaling and torch.compile, with a fallback where the device does not support them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from lawful.training.setup import TrainerConfig


class _Precision:
    """Autocast of the forward pass, and gradient scaling in float16.

    Args:
        config: Trainer options.
        say: Prints a message.
    """

    def __init__(self, config: TrainerConfig, say: Callable[[str], None]) -> None:
        self.device, self.dtype = config.device, getattr(torch, config.precision)
        if self.dtype != torch.float32 and not self._is_supported():
            say(f"{config.precision} is not supported on {config.device}: using float32")
            self.dtype = torch.float32
        self.scaler = torch.amp.GradScaler(self.device) if self.dtype == torch.float16 else None

    def _is_supported(self) -> bool:
        try:
            with torch.autocast(self.device, dtype=self.dtype):
                x = torch.ones(2, 2, device=self.device)
                return (x @ x).dtype == self.dtype
        except (RuntimeError, ValueError, NotImplementedError):
            return False

    def autocast(self) -> AbstractContextManager[object]:
        """Returns the autocast context of the forward pass."""
        return nullcontext() if self.dtype == torch.float32 else torch.autocast(self.device, dtype=self.dtype)

    def backward(self, loss: Tensor) -> None:
        """Computes gradients of the (scaled) loss."""
        (self.scaler.scale(loss) if self.scaler else loss).backward()

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Divides the gradients by the loss scale."""
        if self.scaler is not None:
            self.scaler.unscale_(optimizer)

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Takes an optimizer step; in float16, skips it if a gradient is infinite."""
        if self.scaler is None:
            optimizer.step()
        else:
            self.scaler.step(optimizer)

    def update(self) -> None:
        """Updates the loss scale after all optimizer steps."""
        if self.scaler is not None:
            self.scaler.update()


def _compile(model: nn.Module, trial: Callable[[], object], say: Callable[[str], None]) -> None:
    """Compiles a model in place, and falls back to eager mode if a trial step fails.

    Args:
        model: The model; its parameter names stay the same.
        trial: Runs the model once without side effects.
        say: Prints a message.
    """
    try:
        model.compile()
        trial()
    except Exception as error:
        model._compiled_call_impl = None
        torch.compiler.reset()
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        say(f"torch.compile failed, training in eager mode: {reason[:200]}")
