import pytest
import torch

from lawful.blocks import split


def flows(kind, s, f):
    maps = {
        "exact": lambda a: lambda x, h: torch.matrix_exp(h * a) @ x,
        "euler": lambda a: lambda x, h: x + h * (a @ x),
    }
    return {"s": maps[kind](s), "f": maps[kind](f)}


def measured(pattern, kind, target=None):
    """The power of the step that the error over one step falls with."""
    generator = torch.Generator().manual_seed(0)
    s, f = torch.randn(2, 4, 4, generator=generator, dtype=torch.float64)
    x = torch.randn(4, generator=generator, dtype=torch.float64)
    target = target or (lambda h, s, f: torch.matrix_exp(h * (s + f)))
    errors = [(split(pattern, flows(kind, s, f), x, step=h) - target(h, s, f) @ x).norm() for h in (2**-9, 2**-10)]
    return float(torch.log2(errors[0] / errors[1]))


@pytest.mark.parametrize(("pattern", "power"), [("sf", 2), ("fs", 2), ("hsh", 3)])
def test_with_exact_flows_the_macaron_order_is_one_order_better(pattern, power):
    assert measured(pattern, "exact") == pytest.approx(power, abs=0.05)


@pytest.mark.parametrize("pattern", ["sf", "hsh"])
def test_with_residual_sublayers_both_orders_are_off_by_the_square_of_the_step(pattern):
    assert measured(pattern, "euler") == pytest.approx(2, abs=0.05)


def test_of_residual_sublayers_the_macaron_order_leaves_no_commutator():
    def symmetric(h, s, f):
        one = torch.eye(4, dtype=s.dtype)
        return one + h * (s + f) + h**2 * (f @ f / 4 + (s @ f + f @ s) / 2)

    assert measured("hsh", "euler", symmetric) == pytest.approx(3, abs=0.05)
    assert measured("sf", "euler", symmetric) == pytest.approx(2, abs=0.05)


def test_an_unknown_letter_is_refused():
    with pytest.raises(KeyError, match="c"):
        split("scf", {"s": lambda x, h: x, "f": lambda x, h: x}, torch.zeros(2))
