import pytest
import torch

from lawful.functions import selective_scan
from lawful.functions.selective_scan import _block_sizes


def random(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype)


def selective_inputs(b=2, t=11, d=3, n=2):
    return random(b, t, d), torch.rand(b, t, d).double(), -torch.rand(d, n).double(), random(b, t, n), random(b, t, n)


def recurrence(x, delta, a, b, c, state):
    """The definition, one step after the other."""
    outputs = []
    for i in range(x.shape[1]):
        state = torch.exp(delta[:, i, :, None] * a) * state + (delta * x)[:, i, :, None] * b[:, i, None]
        outputs.append((state * c[:, i, None]).sum(-1))
    return torch.stack(outputs, 1), state


@pytest.mark.parametrize("t", [1, 5, 64, 65, 128, 200])
def test_selective_scan_is_the_recurrence(t):
    inputs, first = selective_inputs(t=t), random(2, 3, 2)
    y, last = selective_scan(*inputs, first)
    expected, state = recurrence(*inputs, first)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(last, state)


def test_gradients():
    inputs = [v.requires_grad_() for v in (*selective_inputs(t=5, d=2), random(2, 2, 2))]
    assert torch.autograd.gradcheck(selective_scan, inputs)


def test_blocks_of_the_batch_and_of_steps():
    sizes = {"b": 3, "t": 53, "d": 1100, "n": 5}
    inputs = [v.requires_grad_() for v in (*selective_inputs(**sizes), random(3, 1100, 5))]
    rows, steps = _block_sizes(inputs[0], inputs[2])
    assert 1 <= rows < sizes["b"]
    assert steps < sizes["t"]
    assert sizes["t"] % steps
    found, expected = selective_scan(*inputs), recurrence(*inputs)
    weights = [random(*y.shape) for y in found]
    for y, other in zip(found, expected, strict=True):
        torch.testing.assert_close(y, other)
    gradients = [torch.autograd.grad(outputs, inputs, weights) for outputs in (found, expected)]
    for found_gradient, expected_gradient in zip(*gradients, strict=True):
        torch.testing.assert_close(found_gradient, expected_gradient)


def test_single_precision():
    torch.manual_seed(0)
    inputs = selective_inputs(t=500, d=4, n=3)
    y, exact = selective_scan(*(v.float() for v in inputs))[0], selective_scan(*inputs)[0]
    assert (y - exact).norm() < 1e-6 * exact.norm()


def test_wrong_shapes_are_refused():
    with pytest.raises(ValueError, match=r"at least one time step, got \(2, 0, 3\)"):
        selective_scan(*selective_inputs(t=0))
    inputs = x, delta, a, b, c = selective_inputs()
    for wrong, message in (
        ((x, delta[:, 1:], a, b, c), "expected delta of shape"),
        ((x, delta, a[1:], b, c), "expected a of shape"),
        ((x, delta, a, b[1:], c), "expected b of shape"),
        ((x, delta, a, b, c[..., 1:]), "expected c of shape"),
        ((*inputs, random(1, *a.shape)), r"expected state of shape \(2, 3, 2\), got \(1, 3, 2\)"),
    ):
        with pytest.raises(ValueError, match=message):
            selective_scan(*wrong)


@pytest.mark.long
def test_operator_is_registered_right():
    arguments = (*selective_inputs(), random(2, 3, 2))
    arguments = tuple(v.float().detach().requires_grad_() for v in arguments)
    torch.library.opcheck(torch.ops.lawful.selective_scan.default, arguments)
