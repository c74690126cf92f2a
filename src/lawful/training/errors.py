"""Errors of training, and the messages that users see."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from lawful.training.run import Run

_OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "alloc_failed")
"""Messages of out-of-memory errors that PyTorch raises as a plain RuntimeError."""


class NonFiniteError(ArithmeticError):
    """The loss, a gradient or a weight is NaN or infinite."""


class TrainingFailed(RuntimeError):
    """Training stopped early. The message says why and how to resume.

    Args:
        message: The error message.
        run: The run, if its folder was created.
    """

    def __init__(self, message: str, *, run: Run | None = None) -> None:
        super().__init__(message)
        self.run = run


def user_message(error: BaseException) -> str | None:
    """Returns a message for errors that a user can fix, and None for bugs."""
    if isinstance(error, TrainingFailed | NonFiniteError):
        return str(error)
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, OSError) and error.errno != errno.ENOMEM:
        return _system_message(error)
    if isinstance(error, torch.OutOfMemoryError | MemoryError | OSError) or (
        isinstance(error, RuntimeError) and any(text in str(error).lower() for text in _OUT_OF_MEMORY)
    ):
        return "out of memory: lower --batch-size or raise --grad-accumulation-steps"
    return None


def _system_message(error: OSError) -> str:
    if error.errno is None:
        return str(error)
    messages = {
        errno.ENOSPC: "no space left on the disk",
        errno.EDQUOT: "disk quota exceeded",
        errno.EFBIG: "file too large",
        errno.EROFS: "read-only file system",
        errno.EACCES: "permission denied",
        errno.EPERM: "permission denied",
        errno.ENOENT: "no such file or folder",
    }
    message = messages.get(error.errno, str(error.strerror))
    return f"{message}: {error.filename}" if error.filename else message
