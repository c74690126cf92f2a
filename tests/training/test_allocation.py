import ctypes
import subprocess
import sys

import pytest

from lawful.training import allocation
from lawful.training.allocation import keep_memory

FAULTS = """
import resource, sys, torch
from lawful.training.allocation import keep_memory
if sys.argv[1] == "kept":
    print(keep_memory())
def step():
    for _ in range(50):
        torch.ones(500_000)
step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def has_mallopt():
    try:
        return bool(ctypes.CDLL(None).mallopt)
    except (OSError, AttributeError, TypeError):
        return False


@pytest.mark.skipif(not has_mallopt(), reason="another C library")
def test_freed_memory_is_not_asked_for_again():
    kept = subprocess.run([sys.executable, "-c", FAULTS, "kept"], capture_output=True, text=True, check=True).stdout
    said, faults = kept.split()
    assert said == "True"
    assert int(faults) < 50 * 2_000_000 // 4096 / 10


def test_another_c_library_is_left_alone(monkeypatch):
    def without(name):
        raise OSError("no library")

    monkeypatch.setattr(allocation.ctypes, "CDLL", without)
    assert keep_memory() is False
