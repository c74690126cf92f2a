import errno
import os

import pytest
import torch

from lawful.training.errors import TrainingFailed, user_message
from lawful.training.loop import NonFiniteError

SAID = [
    (OSError(errno.ENOSPC, "x", "a.json"), "the disk is full: a.json"),
    (OSError(errno.ENOSPC, "x"), "the disk is full"),
    (PermissionError(errno.EACCES, "x", "a"), "the folder or file is not ours to use: a"),
    (FileNotFoundError(errno.ENOENT, "x", "a.csv"), "a file or folder is gone, or never was: a.csv"),
    (FileNotFoundError("there is no run"), "there is no run"),
    (OSError(errno.EIO, os.strerror(errno.EIO), "a"), "the system reports: Input/output error: a"),
    (NonFiniteError("the loss is nan"), "the loss is nan"),
    (TrainingFailed("so"), "so"),
    (KeyboardInterrupt(), "stopped at once"),
]


@pytest.mark.parametrize(("error", "sentence"), SAID)
def test_what_a_user_can_mend_is_said(error, sentence):
    assert user_message(error) == sentence


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA"),
        MemoryError(),
        RuntimeError("MPS backend out of memory"),
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried"),
        RuntimeError("CUBLAS_STATUS_ALLOC_FAILED"),
        OSError(errno.ENOMEM, "x"),
    ],
)
def test_memory(error):
    assert user_message(error).startswith("there is not enough memory")


@pytest.mark.parametrize("error", [ValueError("out of memory"), RuntimeError("shape"), KeyError("a")])
def test_a_fault_of_the_program_is_not_explained(error):
    assert user_message(error) is None
