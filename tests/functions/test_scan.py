import pytest
import torch

from lawful.functions import (
    DenseSystem,
    DiagonalSystem,
    fft_convolution,
    linear_filter,
    linear_scan,
    scan,
)

LENGTHS = [1, 5, 64, 65, 128, 200]


def random(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype)


def diagonal_system(d=3, k=4):
    modes = torch.complex(-0.1 * torch.rand(d, k, dtype=torch.float64), random(d, k))
    return DiagonalSystem(
        modes.exp(), random(d, k, dtype=torch.complex128), random(d, k, dtype=torch.complex128), random(d)
    )


def dense_system(d=3, n=4):
    return DenseSystem(0.3 * random(d, n, n), random(d, n), random(d, n), random(d))


def recurrence(x, system, state):
    """The definition, one step after the other; states in the numbers of the system."""
    outputs = []
    for u in x.unbind(1):
        if isinstance(system, DiagonalSystem):
            outputs.append(2 * (system.c * state).sum(-1).real + system.d * u)
            state = system.transition * state + system.b * u.unsqueeze(-1)
        else:
            outputs.append((system.c * state).sum(-1) + system.d * u)
            state = torch.einsum("dnm,bdm->bdn", system.transition, state) + system.b * u.unsqueeze(-1)
    return torch.stack(outputs, 1), state


def as_pairs(state):
    return torch.view_as_real(state).flatten(-2) if state.is_complex() else state


def random_state(system, b):
    return random(b, *system.b.shape, dtype=system.b.dtype)


@pytest.mark.parametrize("make", [diagonal_system, dense_system])
@pytest.mark.parametrize("t", LENGTHS)
def test_scan_is_the_recurrence(make, t):
    system, x = make(), random(2, t, 3)
    state = random_state(system, 2)
    expected, last = recurrence(x, system, state)
    y, found = linear_scan(x, system, as_pairs(state))
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(found, as_pairs(last))
    torch.testing.assert_close(linear_filter(x, system), linear_scan(x, system)[0])


@pytest.mark.parametrize("make", [diagonal_system, dense_system])
def test_gradients(make, monkeypatch):
    monkeypatch.setattr(scan, "_CHUNK", 4)
    system = make(1, 2)
    weights = [v.detach().requires_grad_() for v in (system.transition, system.b, system.c, system.d)]
    x, state = random(2, 6, 1).requires_grad_(), as_pairs(random_state(system, 2).detach()).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, s, *w: linear_scan(x, type(system)(*w), s), (x, state, *weights))
    assert torch.autograd.gradcheck(lambda x, *w: linear_filter(x, type(system)(*w)), (x, *weights))


def test_long_signals_keep_single_precision():
    """Powers of the transition are computed in double precision."""
    torch.manual_seed(0)
    modes = torch.complex(-torch.full((2, 8), 5e-4, dtype=torch.float64), 0.3 * torch.arange(8.0).double().expand(2, 8))
    system = DiagonalSystem(modes.exp(), torch.ones_like(modes), torch.ones_like(modes), torch.zeros(2).double())
    x = torch.randn(1, 8192, 2)
    y, exact = linear_scan(x, system)[0], linear_scan(x.double(), system)[0]
    assert (y - exact).norm() < 2e-6 * exact.norm()


def test_fft_convolution():
    x, kernel = random(2, 30, 3), random(3, 40)
    y = fft_convolution(x, kernel)
    for i in range(30):
        expected = sum(kernel[:, j] * x[:, i - j] for j in range(i + 1))
        torch.testing.assert_close(y[:, i], expected)


def test_wrong_shapes_are_refused():
    system, x = diagonal_system(), random(2, 5, 3)
    for run in (linear_scan, linear_filter):
        for wrong in (x[:, :0], x[0]):
            with pytest.raises(ValueError, match="at least one time step, got "):
                run(wrong, system)
        with pytest.raises(ValueError, match=r"expected x with 3 channels, got shape \(2, 5, 2\)"):
            run(x[..., :2], system)
    for state in (random(1, 3, 8), random(2, 3, 2)):  # the first would be broadcast
        with pytest.raises(ValueError, match=r"expected a state of shape \(2, 3, 8\), got"):
            linear_scan(x, system, state)
    with pytest.raises(ValueError, match=r"at least one time step, got \(2, 0, 3\)"):
        fft_convolution(x[:, :0], random(3, 5))
    with pytest.raises(ValueError, match=r"expected x with 2 channels, got shape \(2, 5, 3\)"):
        fft_convolution(x, random(2, 5))


@pytest.mark.long
def test_operator_is_registered_right():
    arguments = random(2, 5, 3), *(random(3, *s) for s in ((4, 4), (4, 2), (4, 2), (2, 2))), random(2, 3, 2)
    arguments = tuple(v.requires_grad_() for v in arguments)
    torch.library.opcheck(torch.ops.lawful.scan_chunks.default, arguments)
