import pytest
import torch
from scipy.integrate import quad_vec
from scipy.linalg import expm

from lawful.groups import group as matrices
from lawful.groups.orthogonal import Orthogonal


def test_mean_of_the_exponential_equals_its_integral():
    a = torch.randn(3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    integral = quad_vec(lambda s: expm(s * a.numpy()), 0, 1)[0]
    torch.testing.assert_close(matrices.exp_mean(a), torch.as_tensor(integral))


def test_bracket_is_the_commutator_and_adjoint_the_conjugation():
    group, generator = Orthogonal(4), torch.Generator().manual_seed(0)
    v, w = torch.randn(2, 6, generator=generator, dtype=torch.float64)
    a, b = group.hat(v), group.hat(w)
    bracket = matrices.bracket(v, hat=group.hat, vee=group.vee)
    torch.testing.assert_close(group.hat(bracket @ w), a @ b - b @ a)
    g = group.exp(v)
    adjoint = matrices.adjoint(g, inverse=g.mT, hat=group.hat, vee=group.vee, dim=6)
    torch.testing.assert_close(group.hat(adjoint @ w), g @ b @ g.mT)


def test_a_matrix_is_wanted():
    with pytest.raises(Exception, match=r"(?i)shape|type|dimension"):
        matrices.exp_mean(torch.zeros(3))
