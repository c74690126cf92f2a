import json

import numpy as np
import pytest
import torch

from lawful.theory import ApproximationCertificate, approximate, parse_expression

ONE_VARIABLE = {
    "sin(x)": (-3, 3),
    "abs(x)": (-1, 1),
    "sqrt(x)": (0, 1),
    "clip(10*x, 0, 1)": (-1, 1),
    "exp(x) * cos(9*x) + abs(x - 1/3)": (-1, 1),
    "x * log(x + 1e-3)": (0, 2),
    "sqrt(1 - x^2)": (-1, 1),
    "7": (0, 1),
    "2 - x/3": (100, 101),
}


@torch.no_grad()
def largest_error(network, text, low, high, dtype, n=20_001):
    x = torch.linspace(low, high, n, dtype=dtype).clamp(low, high)
    return (network(x[:, None])[:, 0].double() - parse_expression(text)(x=x.double())).abs().max().item()


@pytest.mark.parametrize("text", ONE_VARIABLE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_bound_holds_and_is_tight(text, dtype):
    for error in (0.1, 0.003):
        network, certificate = approximate(text, ONE_VARIABLE[text], error, dtype=dtype)
        assert certificate.bound <= error
        worst = largest_error(network, text, *ONE_VARIABLE[text], dtype)
        assert worst <= certificate.bound
        assert certificate.bound < 1.2 * worst + 1e-3 * error + 1e-4 * (dtype == torch.float32)
        assert certificate.check(network) == certificate.bound
        assert certificate.hidden_dims == (network[0].out_features,)


def test_sizes_follow_the_theorem():
    """Oracle: |x| is a network with two units, and x^2 needs 1 / sqrt(8 error) pieces."""
    _, certificate = approximate("abs(x)", (-1, 1), 0.01)
    assert certificate.num_units == 2
    assert certificate.bound < 1e-5
    for error in (1e-2, 1e-3, 1e-4):
        _, certificate = approximate("x^2", (0, 1), error, levels=0, dtype=torch.float64)
        optimum = np.ceil(1 / np.sqrt(8 * error))
        assert optimum <= certificate.num_units <= 1.05 * optimum + 1


SEVERAL_VARIABLES = {
    "x*y": [(-1, 1), (-1, 1)],
    "x*y^2 - 3*x/(2 + y)": [(0, 1), (-1, 1)],
    "exp(-(x^2 + y^2 + z^2))": [(-1, 1)] * 3,
    "max(x, y, z) + min(x, 1)": [(-1, 1)] * 3,
    "sin(x + 2*y) * cos(y)": [(0, 1), (0, 2)],
    "100*x*y": [(99, 100), (0, 0.01)],
    "2*x - y/3 + pi": [(0, 1), (0, 1)],
    "3": [(0, 1), (0, 1)],
    "pi*x*y + pi": [(0, 1), (0, 1)],
}


@pytest.mark.parametrize(
    "text",
    [pytest.param(text, marks=pytest.mark.long) if "/(2 + y)" in text else text for text in SEVERAL_VARIABLES],
)
def test_several_variables(text):
    box = torch.tensor(SEVERAL_VARIABLES[text])
    network, certificate = approximate(text, SEVERAL_VARIABLES[text], 0.05, levels=1)
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(20_000, len(box), generator=generator) * (box[:, 1] - box[:, 0]) + box[:, 0]
    corners = torch.cartesian_prod(*box, *box[:0]).reshape(-1, len(box))
    x = torch.cat([x, corners]).clamp(box[:, 0], box[:, 1])
    expected = parse_expression(text)(**{name: x[:, i].double() for i, name in enumerate(certificate.box)})
    with torch.no_grad():
        error = (network(x)[:, 0].double() - expected).abs().max()
    assert error <= certificate.bound <= 0.05
    assert certificate.check(network) == certificate.bound


def test_a_pole_of_deep_squares_only_is_avoided():
    _, certificate = approximate("1/(2 + (y - x)^2)", [(-1, 1), (0, 2)], 0.05)
    assert certificate.bound <= 0.05


@pytest.mark.parametrize(
    "text", ["(x - x)*y", "y*(x - x + 1)", "exp(y*(x - x))", "(sin(x) - sin(x))*y", "y*(x*(1 + 1e-13) - x + 1)"]
)
def test_factors_that_hardly_vary(text):
    network, certificate = approximate(text, [(-1, 1), (-1, 1)], 0.01, levels=1)
    assert certificate.bound < 1e-5
    assert certificate.num_units <= 6
    assert certificate.check(network) == certificate.bound


def test_a_factor_far_from_zero_is_centered():
    """Oracle: 1000 x + y x with small y is no harder than y x."""
    box = [(-1, 1), (-1, 1)]
    far, near = (approximate(f"x*(y + {c})", box, 0.05, levels=0, dtype=torch.float64)[1].num_units for c in (1000, 0))
    assert far <= near + 2


@pytest.mark.long
def test_deep_squares_are_smaller():
    """Law: the number of units grows like log(1 / error) with deep squares, and like 1 / sqrt(error) without."""
    shallow, deep = (
        [approximate("x*y", [(-1, 1), (-1, 1)], e, levels=n, dtype=torch.float64)[1].num_units for e in (1e-2, 1e-4)]
        for n in (0, 3)
    )
    assert 8 < shallow[1] / shallow[0] < 12
    assert deep[1] < shallow[1] / 4


def test_callables_with_a_modulus():
    root = lambda x: x.abs().sqrt()  # noqa: E731
    network, certificate = approximate(root, (-1, 1), 0.05, modulus=lambda h: h**0.5)
    assert largest_error(network, "sqrt(abs(x))", -1, 1, torch.float32) <= certificate.bound <= 0.05
    network, certificate = approximate(torch.special.bessel_j0, (0, 5), 0.01, lipschitz=0.6)
    x = torch.linspace(0, 5, 10_001)
    assert (network(x[:, None])[:, 0] - torch.special.bessel_j0(x)).abs().max() <= certificate.bound <= 0.01
    assert "Lipschitz constant 0.6" in str(certificate)
    traced = approximate(lambda x: torch.exp(-x * x), (-2, 2), 0.01)[1]
    assert traced.expression == "exp(-x * x)"


def test_a_certificate_is_json(tmp_path):
    network, certificate = approximate("tanh(x)", (-2, 2), 0.01)
    certificate.save(tmp_path, network)
    read = ApproximationCertificate.from_json(json.loads((tmp_path / "certificate.json").read_text()))
    assert read == certificate
    assert "For all x from -2 to 2, the float32 network differs from tanh(x) by at most" in str(read)
    with torch.no_grad():
        network[2].weight[0, 3] += 1
    assert read.check(network) > 0.1
    with pytest.raises(ValueError, match="network must be the one of the certificate"):
        certificate.save(tmp_path, network)


@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "softplus", "silu", "gelu"])
def test_other_activations(activation):
    network, certificate = approximate("sin(x) + x", (-2, 2), 0.05, activation=activation)
    worst = largest_error(network, "sin(x) + x", -2, 2, torch.float32)
    assert worst <= certificate.bound <= 0.05
    assert certificate.check(network) == certificate.bound
    assert f"{activation} units in 1 hidden layer" in str(certificate)
    with torch.no_grad():
        network[2].bias += 0.1
    assert certificate.check(network) == float("inf")


def test_polynomial_activations_are_refused():
    for activation, degree in (("square", 2), ("x^3 - x", 3), ("identity", 1)):
        with pytest.raises(ValueError, match=rf"must not be a polynomial: got .* of degree at most {degree}"):
            approximate("sin(x)", (-1, 1), 0.1, activation=activation)
    with pytest.raises(ValueError, match=r"activation must be one of relu, .*: did you mean tanh"):
        approximate("sin(x)", (-1, 1), 0.1, activation="tahn")
    with pytest.raises(ValueError, match="needs an expression of one variable"):
        approximate("x*y", [(-1, 1), (-1, 1)], 0.1, activation="tanh")


def test_sums_of_exponentials_need_one_hidden_layer():
    network, certificate = approximate("x*y", [(-1, 1), (0, 2)], 0.1, method="exponentials")
    x = torch.rand(20_000, 2, generator=torch.Generator().manual_seed(0)) * 2 - torch.tensor([1.0, 0.0])
    with torch.no_grad():
        error = (network(x)[:, 0].double() - x[:, 0].double() * x[:, 1].double()).abs().max()
    assert error <= certificate.bound <= 0.1
    assert len(certificate.hidden_dims) == 1
    assert certificate.check(network) == pytest.approx(certificate.bound, rel=1e-6)
    with pytest.raises(ValueError, match="method must be squares or exponentials: got 'taylor'"):
        approximate("x*y", [(-1, 1), (0, 2)], 0.1, method="taylor")


@pytest.mark.parametrize(
    ("function", "box", "error", "message"),
    [
        ("1/x", (-1, 1), 0.1, "no finite bound near 0: it has a pole there"),
        ("tan(x)", (0, 2), 0.1, r"no finite bound near 1\.5708"),
        ("step(x)", (-1, 1), 0.1, "the function jumps by 1 near 0: a network is continuous"),
        ("sqrt(x)", (-1, 1), 0.1, "is not defined"),
        ("log(x)", (0, 1), 0.1, "no finite bound near 0"),
        ("x", (0, float("inf")), 0.1, "box must be bounded"),
        ("x", (0, float("nan")), 0.1, "box must be bounded"),
        ("x", (1, 1), 0.1, "box must have low < high"),
        ("x", (0, 1), 0, "error must be a positive number: got 0"),
        ("x", (0, 1), -1, "error must be a positive number"),
        ("x", (0, 1), float("nan"), "error must be a positive number"),
        ("exp(x)", (0, 1), 1e-6, "too close to the rounding of torch.float32: pass dtype=torch.float64"),
        ("t", (0, 1), 0.1, "unknown name 't'"),
    ],
)
def test_impossible_requests_say_why(function, box, error, message):
    with pytest.raises(ValueError, match=message):
        approximate(function, box, error)


def test_other_arguments():
    with pytest.raises(ValueError, match="needs more than max_units=10 hidden units"):
        approximate("sin(x)", (0, 10), 1e-3, max_units=10)
    with pytest.raises(ValueError, match=r"dtype must be torch.float32 or torch.float64"):
        approximate("x", (0, 1), 0.1, dtype=torch.float16)
    with pytest.raises(ValueError, match="expected lipschitz or modulus: got both"):
        approximate(torch.sin, (0, 1), 0.1, lipschitz=1.0, modulus=lambda h: h)
    with pytest.raises(ValueError, match="lipschitz must be positive and finite"):
        approximate(torch.sin, (0, 1), 0.1, lipschitz=float("inf"))
