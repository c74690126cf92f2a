import numpy as np
import pytest
import torch

from lawful.functions import project, project_onto_columns


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_onto_a_vector_equals_the_equation():
    x, a = drawn(5).numpy(), drawn(5, seed=1).numpy()
    found = project(torch.from_numpy(x), torch.from_numpy(a))
    np.testing.assert_allclose(found, np.outer(a, a) @ x / (a @ a), rtol=1e-12)


def test_onto_columns_is_least_squares():
    x, a = drawn(6), drawn(6, 3, seed=1)
    coefficients = np.linalg.lstsq(a.numpy(), x.numpy(), rcond=None)[0]
    np.testing.assert_allclose(project_onto_columns(x, a), a.numpy() @ coefficients, rtol=1e-10)


def test_dependent_columns_span_less():
    x, a = drawn(4), drawn(4, 2, seed=1)
    doubled = torch.cat([a, a @ drawn(2, 2, seed=2)], -1)
    torch.testing.assert_close(project_onto_columns(x, doubled), project_onto_columns(x, a))


def test_more_columns_than_axes_keep_everything():
    x = drawn(3)
    torch.testing.assert_close(project_onto_columns(x, drawn(3, 5, seed=1)), x)


def test_one_basis_serves_a_batch():
    x, a = drawn(7, 4), drawn(4, 2, seed=1)
    torch.testing.assert_close(project_onto_columns(x, a)[3], project_onto_columns(x[3], a))


def test_onto_nothing_is_zero():
    x, zero = drawn(3).requires_grad_(), torch.zeros(3, dtype=torch.float64, requires_grad=True)
    project(x, zero).sum().backward()
    assert zero.grad.isfinite().all()
    assert not project(x, zero).any()
    assert not project_onto_columns(x, torch.zeros(3, 2, dtype=torch.float64)).any()


def test_gradients():
    x, a = drawn(4).requires_grad_(), drawn(4, 2, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(project_onto_columns, (x, a))
    assert torch.autograd.gradcheck(project, (x, a[:, 0].detach().requires_grad_()))


def test_shapes_fit():
    with pytest.raises((TypeError, RuntimeError)):
        project_onto_columns(torch.ones(3), torch.ones(4, 2))


@pytest.mark.parametrize("size", [1e-30, 1e-20, 1e30])
def test_how_long_the_vector_is_makes_no_difference(size):
    x, onto = torch.tensor([1.0, 3.0]), torch.tensor([1.0, 1.0])
    torch.testing.assert_close(project(x, size * onto), torch.tensor([2.0, 2.0]))
    torch.testing.assert_close(project(1e30 * x, size * onto), torch.tensor([2e30, 2e30]))
