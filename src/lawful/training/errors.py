"""What went wrong, in a sentence."""

from __future__ import annotations

import errno

import torch

from lawful.training.loop import NonFiniteError
from lawful.training.run import Run

NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "alloc_failed")
"""How PyTorch says it, on one device and another, where it has no exception of its own."""


class TrainingFailed(RuntimeError):
    """A training that ended before its time: what went wrong, and how to go on.

    Args:
        message: The sentence.
        run: The run, where its folder was made.
    """

    def __init__(self, message: str, *, run: Run | None = None) -> None:
        super().__init__(message)
        self.run = run


def user_message(error: BaseException) -> str | None:
    """Says in a sentence what a user can mend; of a fault of the program it says nothing."""
    if isinstance(error, TrainingFailed | NonFiniteError):
        return str(error)
    if isinstance(error, KeyboardInterrupt):
        return "stopped at once"
    if isinstance(error, OSError) and error.errno != errno.ENOMEM:
        return _of_system(error)
    if isinstance(error, torch.OutOfMemoryError | MemoryError | OSError) or (
        isinstance(error, RuntimeError) and any(words in str(error).lower() for words in NO_MEMORY)
    ):
        return "there is not enough memory for a step: a smaller batch, or accumulate, needs less"
    return None


def _of_system(error: OSError) -> str:
    if error.errno is None:
        return str(error)
    sentences = {
        errno.ENOSPC: "the disk is full",
        errno.EDQUOT: "the disk quota is used up",
        errno.EFBIG: "a file grew larger than is allowed",
        errno.EROFS: "the folder can only be read",
        errno.EACCES: "the folder or file is not ours to use",
        errno.EPERM: "the folder or file is not ours to use",
        errno.ENOENT: "a file or folder is gone, or never was",
    }
    sentence = sentences.get(error.errno, f"the system reports: {error.strerror}")
    return f"{sentence}: {error.filename}" if error.filename else sentence
