import contextlib
import io
import runpy
from collections.abc import Callable

import pytest
import torch

import lawful


@pytest.fixture
def judge() -> Callable[..., lawful.Verdict]:
    """Judges one law on one map."""

    def verdict(f, law, inputs=None, *, cases=50, **options):
        return lawful.check(f, law, inputs=inputs, cases=cases, **options).verdicts[0]

    return verdict


@pytest.fixture
def shows(tmp_path) -> Callable[[lawful.Verdict], bool]:
    """Runs the standalone script of a verdict: whether it prints two numbers that differ."""

    def differ(verdict):
        path, printed = tmp_path / "script.py", io.StringIO()
        verdict.script(path)
        dtype, grad, state = torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_rng_state()
        try:
            with contextlib.redirect_stdout(printed):
                runpy.run_path(str(path))
        finally:
            torch.set_default_dtype(dtype)
            torch.set_grad_enabled(grad)
            torch.set_rng_state(state)
        left, right = (float(line.split()[1]) for line in printed.getvalue().splitlines())
        return left != right

    return differ
