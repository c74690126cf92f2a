"""Runs the reproduction scripts of verdicts."""

import io
import os
import runpy
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import torch

ROOT = Path(__file__).parents[1]
PYTHONPATH = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
"""Of a child process, which tests this folder even if another one is installed."""


def run_script(verdict, folder, in_subprocess=False):
    """Runs the script of a counterexample and returns the two numbers that it prints."""
    path = folder / "script.py"
    verdict.script(path)
    output = (_run_in_subprocess if in_subprocess else _run_here)(path)
    numbers = [float(word) for word in output.split() if _is_number(word)]
    return (numbers[0], 0.0) if len(numbers) == 1 else (numbers[0], numbers[1])


def _run_here(path):
    dtype, grad, state, paths = torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_rng_state(), sys.path[:]
    out = io.StringIO()
    try:
        sys.path[:0] = [str(path.parent), str(ROOT)]
        with redirect_stdout(out):
            runpy.run_path(str(path))
    finally:
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(grad)
        torch.set_rng_state(state)
        sys.path[:] = paths
    return out.getvalue()


def _run_in_subprocess(path):
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        cwd=path.parent,
        env={**os.environ, "PYTHONPATH": PYTHONPATH, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _is_number(word):
    try:
        float(word)
    except ValueError:
        return False
    return True
