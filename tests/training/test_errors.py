import errno
import os

import pytest
import torch

from lawful.training import NonFiniteError, TrainingFailed, user_message

MESSAGES = [
    (OSError(errno.ENOSPC, "x", "a.json"), "no space left on the disk: a.json"),
    (OSError(errno.ENOSPC, "x"), "no space left on the disk"),
    (PermissionError(errno.EACCES, "x", "a"), "permission denied: a"),
    (FileNotFoundError(errno.ENOENT, "x", "a.csv"), "no such file or folder: a.csv"),
    (FileNotFoundError("there is no run"), "there is no run"),
    (OSError(errno.EIO, os.strerror(errno.EIO), "a"), "Input/output error: a"),
    (NonFiniteError("the loss is nan"), "the loss is nan"),
    (TrainingFailed("so"), "so"),
    (KeyboardInterrupt(), "interrupted"),
]


@pytest.mark.parametrize(("error", "message"), MESSAGES)
def test_errors_that_a_user_can_fix(error, message):
    assert user_message(error) == message


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
def test_out_of_memory(error):
    assert user_message(error).startswith("out of memory")


@pytest.mark.parametrize("error", [ValueError("out of memory"), RuntimeError("shape"), KeyError("a")])
def test_bugs_have_no_message(error):
    assert user_message(error) is None
