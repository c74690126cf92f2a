import cmath
import math
from inspect import unwrap

import pytest
import torch

from lawful.groups.so2 import Circle, complex_to_matrix, matrix_to_complex


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.complex128)


def test_exp_and_log_equal_cmath():
    angles = [0.0, 1e-9, 1.0, -2.0, 3.0, math.pi]
    group, v = Circle(), torch.tensor(angles, dtype=torch.float64)[:, None]
    z = group.exp(v)
    torch.testing.assert_close(z, torch.tensor([cmath.exp(1j * a) for a in angles], dtype=torch.complex128))
    torch.testing.assert_close(group.log(z), torch.tensor([[cmath.phase(c)] for c in z.tolist()], dtype=v.dtype))
    torch.testing.assert_close(group.log(z), v, rtol=1e-15, atol=0)


def test_derivatives_of_log_of_exp_are_right_everywhere():
    for angle in (0.0, 1e-9, 1.0, 3.1):
        v = torch.tensor([angle], dtype=torch.float64)
        first = torch.autograd.functional.jacobian(lambda v: Circle().log(Circle().exp(v)), v)
        torch.testing.assert_close(first, torch.ones(1, 1, dtype=v.dtype))


def test_matrices_add_multiply_and_invert_as_the_numbers_do():
    z, w = numbers(5), numbers(5, seed=1)
    m, n = complex_to_matrix(z), complex_to_matrix(w)
    torch.testing.assert_close(complex_to_matrix(z + w), m + n)
    torch.testing.assert_close(complex_to_matrix(z * w), m @ n)
    torch.testing.assert_close(complex_to_matrix(1 / z), torch.linalg.inv(m))
    torch.testing.assert_close(complex_to_matrix(z.conj()), m.mT)
    torch.testing.assert_close(torch.linalg.det(m @ n), z.abs().square() * w.abs().square())
    assert torch.equal(matrix_to_complex(m), z)


def test_units_have_the_squares_they_should():
    one, i = complex_to_matrix(torch.tensor([1, 1j], dtype=torch.complex128))
    assert torch.equal(i @ i, -one)
    assert torch.equal(one @ i, i)


def test_samples_are_uniform():
    n = 20000
    z = Circle().sample(n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(z.abs(), torch.ones(n, dtype=torch.float64))
    for power in (1, 2, 3):
        assert z.pow(power).mean().abs() < 5 / math.sqrt(n)


def test_types_of_either_kind_are_taken():
    assert Circle().identity(2, dtype=torch.float64).dtype == torch.complex128
    assert Circle().identity(2, dtype=torch.complex64).dtype == torch.complex64
    assert Circle().sample(2).dtype == torch.complex64


def test_real_numbers_are_no_elements():
    with pytest.raises(Exception, match=r"(?i)type"):
        complex_to_matrix(torch.zeros(2))


@pytest.mark.parametrize("method", ["exp", "hat", "left_jacobian"])
def test_coordinates_are_one_number(method):
    with pytest.raises(ValueError, match=r"size 1: got shape \(2,\)"):
        unwrap(getattr(Circle, method))(Circle(), torch.zeros(2))
