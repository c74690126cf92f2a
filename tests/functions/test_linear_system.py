import pytest
import torch

from lawful.functions import DenseSystem, DiagonalSystem


def random(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype)


def diagonal_system(d=3, k=4):
    modes = torch.complex(-0.1 * torch.rand(d, k, dtype=torch.float64), random(d, k))
    return DiagonalSystem(
        modes.exp(), random(d, k, dtype=torch.complex128), random(d, k, dtype=torch.complex128), random(d)
    )


def dense_system(d=3, n=4):
    return DenseSystem(0.3 * random(d, n, n), random(d, n), random(d, n), random(d))


@pytest.mark.parametrize("make", [diagonal_system, dense_system])
@pytest.mark.parametrize("length", [1, 2, 3, 10, 17])
def test_kernel_is_the_response_to_an_impulse(make, length):
    system = make()
    state, expected = system.b, [system.d]
    for _ in range(length - 1):
        y = (system.c * state).sum(-1)
        expected.append(2 * y.real if state.is_complex() else y)
        is_diagonal = isinstance(system, DiagonalSystem)
        state = system.transition * state if is_diagonal else (system.transition @ state.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(system.kernel(length, torch.float64), torch.stack(expected, -1))


@pytest.mark.parametrize("make", [diagonal_system, dense_system])
def test_steps_are_the_matrices_of_a_chunk(make):
    system, x = make(), random(2, 5, 3)
    first = state = random(2, *system.shape)
    outputs = []
    for sample in x.unbind(1):
        y, state = system.step(sample, state)
        outputs.append(y)
    matrices = system.matrices(5, torch.float64)
    u, s = x.permute(2, 0, 1), first.transpose(0, 1)
    y = u @ matrices.toeplitz + s @ matrices.outputs.mT
    torch.testing.assert_close(torch.stack(outputs, 1), y.permute(1, 2, 0))
    if isinstance(system, DenseSystem):
        after = s @ matrices.transition.mT
    else:
        modes = torch.view_as_complex(s.unflatten(-1, (-1, 2))) * torch.view_as_complex(matrices.transition)[:, None]
        after = torch.view_as_real(modes).flatten(-2)
    torch.testing.assert_close(state, (after + u @ matrices.inputs).transpose(0, 1))


@pytest.mark.parametrize("make", [diagonal_system, dense_system])
def test_gradients_of_the_kernel(make):
    system = make(2, 2)
    weights = [v.detach().requires_grad_() for v in (system.transition, system.b, system.c, system.d)]
    for length in (1, 2, 8):
        assert torch.autograd.gradcheck(lambda *w: type(system)(*w).kernel(length, torch.float64), weights)


def test_long_kernels_keep_single_precision():
    modes = torch.complex(-torch.full((2, 8), 5e-4), 0.3 * torch.arange(8.0).expand(2, 8)).to(torch.complex128)
    system = DiagonalSystem(modes.exp(), torch.ones_like(modes), torch.ones_like(modes), torch.zeros(2).double())
    kernel, exact = (system.kernel(16384, dtype) for dtype in (torch.float32, torch.float64))
    assert (kernel - exact).norm() < 1e-6 * exact.norm()


@pytest.mark.long
@pytest.mark.parametrize("op", ["diagonal_matrices", "exponential_sum"])
def test_operators_are_registered_right(op):
    system = diagonal_system()
    weights = [v.detach().requires_grad_() for v in (system.transition, system.b, system.c, system.d)]
    arguments = (*weights, 4, torch.float32) if op == "diagonal_matrices" else (*weights[:2], 7, torch.float32)
    torch.library.opcheck(getattr(torch.ops.lawful, op).default, arguments)
