import json
from dataclasses import replace
from fractions import Fraction
from hashlib import sha256

import pytest
import torch
from safetensors.torch import load_file, save_file

from lawful.theory import approximate, parse_expression
from tests.examples.loading import load_example

checker = load_example("check_certificate")

FUNCTIONS = {
    "sin(x)": (-3, 3),
    "sqrt(x) + abs(x - 1/3)": (0, 1),
    "tan(x)*x^3 - x^-2 + log(x)^1.5": (1.1, 1.3),
    "softplus(x) + sigmoid(x) + erf(x) + tanh(x) + cos(x)": (-2, 2),
    "max(x, 0.25) * min(x, pi) * sin(x)": (-1, 1),
    "x*y": [(-1, 1), (-1, 1)],
    "exp(-(x^2 + y^2 + z^2))": [(-1, 1)] * 3,
    "max(x, y) / (2 + x)": [(-1, 1), (-1, 1)],
    "(sin(x) - sin(x)) * y": [(-1, 1), (-1, 1)],
    "y * (x * 1.0000000000001 - x + 1)": [(-1, 1), (-1, 1)],
}


OPTIONS = {
    "sin(x)*exp(x/3)": ((-2, 2), {"activation": "tanh"}),
    "cos(x)": ((-2, 2), {"activation": "gelu"}),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    found = {}
    for text, box in FUNCTIONS.items():
        network, certificate = approximate(text, box, 0.05, levels=1)
        found[text] = tmp_path_factory.mktemp("network")
        certificate.save(found[text], network)
    for text, (box, options) in OPTIONS.items():
        network, certificate = approximate(text, box, 0.05, **options)
        found[text] = tmp_path_factory.mktemp("network")
        certificate.save(found[text], network)
    return found


def fails(folder):
    """Whether the checker rejects a folder."""
    try:
        checker.check(folder)
    except (ValueError, IndexError, KeyError, OverflowError):
        return True
    return False


@pytest.mark.parametrize("text", [*FUNCTIONS, *OPTIONS])
def test_the_checker_finds_the_same_bound(folders, text):
    certificate, bound = checker.check(folders[text])
    assert bound <= 1.001 * certificate["bound"] + 1e-25
    assert bound <= certificate["error"]
    assert 0.98 * certificate["bound"] <= bound


@pytest.mark.parametrize(
    "text", ["sin(x)", *(pytest.param(text, marks=pytest.mark.long) for text in ("x*y", "cos(x)"))]
)
def test_the_checker_rejects_changed_weights(folders, text, tmp_path):
    """A changed network is rejected, unless its error is still within the bound."""
    weights = load_file(folders[text] / "network.safetensors")
    certificate = json.loads((folders[text] / "certificate.json").read_text())
    box = torch.tensor(list(certificate["box"].values()))
    x = torch.rand(5000, len(box), generator=torch.Generator().manual_seed(0)) * (box[:, 1] - box[:, 0]) + box[:, 0]
    expected = parse_expression(text)(**{name: x[:, i] for i, name in enumerate(certificate["box"])})
    rejected = []
    for name, tensor in weights.items():
        for index in range(tensor.numel()):
            changed = {key: value.clone() for key, value in weights.items()}
            changed[name].view(-1)[index] += 0.1
            save_file(changed, tmp_path / "network.safetensors")
            (tmp_path / "certificate.json").write_text(json.dumps(certificate))
            with pytest.raises(ValueError, match="not the certified one"):
                checker.check(tmp_path)
            digest = sha256((tmp_path / "network.safetensors").read_bytes()).hexdigest()
            (tmp_path / "certificate.json").write_text(json.dumps({**certificate, "network_sha256": digest}))
            rejected.append(fails(tmp_path))
            y, count = x, len(changed) // 2
            activation = torch.nn.functional.gelu if text == "cos(x)" else torch.relu
            for i in range(count):
                y = y @ changed[f"{2 * i}.weight"].T + changed[f"{2 * i}.bias"]
                y = activation(y) if i < count - 1 else y
            assert rejected[-1] or (y[:, 0] - expected).abs().max() <= certificate["bound"], f"{name}[{index}]"
    assert sum(rejected) > 0.9 * len(rejected)


CHANGES = {
    "bound": lambda c: c.update(bound=0.98 * c["bound"]),
    "error": lambda c: c.update(error=0.98 * c["bound"]),
    "expression": lambda c: c.update(expression=c["expression"] + " + 0.001"),
    "box": lambda c: c["box"].update(x=[c["box"]["x"][0], c["box"]["x"][1] + 0.5]),
    "function": lambda c: c["layers"][-1][0]["terms"][0].update(function="u"),
    "constant": lambda c: c["layers"][-1][0]["terms"][0].update(
        constant=c["layers"][-1][0]["terms"][0]["constant"] + 0.01
    ),
    "code": lambda c: c["layers"][-1][0]["terms"][0].update(function="__import__('os').getcwd()"),
    "units": lambda c: c["layers"][0][0].update(
        units=c["layers"][0][0]["units"][1:], signs=c["layers"][0][0]["signs"][1:]
    ),
    "signs": lambda c: c["layers"][0][0].update(signs=[-sign for sign in c["layers"][0][0]["signs"]]),
    "dtype": lambda c: c.update(dtype="float64"),
    "layers": lambda c: c.update(layers=c["layers"][1:]),
}


@pytest.mark.parametrize("text", ["sin(x)", "x*y"])
@pytest.mark.parametrize("change", CHANGES)
def test_the_checker_rejects_changed_certificates(folders, text, change, tmp_path):
    certificate = json.loads((folders[text] / "certificate.json").read_text())
    (tmp_path / "network.safetensors").write_bytes((folders[text] / "network.safetensors").read_bytes())
    CHANGES[change](certificate)
    (tmp_path / "certificate.json").write_text(json.dumps(certificate))
    assert fails(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("text", OPTIONS)
def test_other_certificates_are_checked(folders, text, tmp_path):
    certificate = json.loads((folders[text] / "certificate.json").read_text())
    (tmp_path / "network.safetensors").write_bytes((folders[text] / "network.safetensors").read_bytes())
    changes = [{"expression": f"{text} + 0.05*x"}, {"bound": 0.9 * certificate["bound"]}, {"activation": "sigmoid"}]
    for change in changes:
        (tmp_path / "certificate.json").write_text(json.dumps({**certificate, **change}))
        assert fails(tmp_path), change


def test_points_only_save_time(folders, tmp_path):
    """The checker splits cells itself where the certificate has too few points."""
    certificate = json.loads((folders["sin(x)"] / "certificate.json").read_text())
    (tmp_path / "network.safetensors").write_bytes((folders["sin(x)"] / "network.safetensors").read_bytes())
    certificate["layers"][-1][0]["terms"][0]["points"] = []
    (tmp_path / "certificate.json").write_text(json.dumps(certificate))
    certificate, bound = checker.check(tmp_path)
    assert bound <= 1.001 * certificate["bound"] + 1e-25


def test_it_says_what_it_does_not_check(tmp_path):
    network, certificate = approximate(torch.special.bessel_j0, (0, 1), 0.1, lipschitz=0.6)
    certificate.save(tmp_path, network)
    with pytest.raises(ValueError, match="is about a callable"):
        checker.check(tmp_path)
    data = json.loads((tmp_path / "certificate.json").read_text())
    (tmp_path / "certificate.json").write_text(json.dumps({**data, "expression": "x", "surrogate": {}}))
    with pytest.raises(ValueError, match=r"check a sum of exponentials with ApproximationCertificate\.check"):
        checker.check(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"expression": "sign(x)"}, "cannot check sign"),
        ({"expression": "sin(x) + __import__('os').getcwd()"}, "cannot check"),
        ({"expression": "sin(x)[0]"}, r"cannot check 'sin\(x\)\[0\]'"),
        ({"expression": "x.real"}, "cannot check real"),
        ({"expression": "pi.x + sin(x)"}, "cannot check 'pi.x"),
        ({"expression": "sin(\N{FULLWIDTH LATIN SMALL LETTER X})"}, "cannot check"),
        ({"box": {"x": [-3, 3], "__class__": [0, 1]}}, "a name is not a word"),
        ({"box": {"x": [-3, 3], "\x1b[2J": [0, 1]}}, "a name is not a word"),
        ({"box": ["x"]}, "no attribute"),
        ({"box": {"x": ["1/0", 1]}}, r"Fraction\(1, 0\)"),
        ({"dtype": "float64"}, "another dtype"),
        ({"hidden_dims": [3, 3]}, "another depth"),
        ({"layers": []}, "describes another depth"),
        ({"error": 1e-3}, "the error is bounded by .* only"),
        ({"bound": 1e-3}, "the bound is not 0.001"),
        ({"expression": "sin(x) + 1"}, "another expression"),
    ],
)
def test_it_says_why_it_rejects(folders, change, message, tmp_path):
    certificate = json.loads((folders["sin(x)"] / "certificate.json").read_text())
    (tmp_path / "network.safetensors").write_bytes((folders["sin(x)"] / "network.safetensors").read_bytes())
    (tmp_path / "certificate.json").write_text(json.dumps({**certificate, **change}))
    with pytest.raises((ValueError, AttributeError, ZeroDivisionError), match=message):
        checker.check(tmp_path)
    assert checker.main(str(tmp_path)).startswith("The certificate does not hold: ")


def test_a_network_of_the_negative_function_is_rejected(folders, tmp_path):
    weights, certificate = copied(folders["sin(x)"])
    for part in ("weight", "bias"):
        name = f"{2 * len(certificate['hidden_dims'])}.{part}"
        weights[name] = -weights[name]
    certificate["layers"][-1][0]["signs"] = [-1]
    write(tmp_path, weights, certificate)
    with pytest.raises(ValueError, match="the output must be the signal, not its negative"):
        checker.check(tmp_path)


def test_a_signal_is_not_counted_twice(folders, tmp_path):
    """The weights compute sin(x), each of the two terms is sin(x), and the certificate is about their sum."""
    weights, certificate = copied(folders["sin(x)"])
    certificate["layers"][-1][0]["terms"] *= 2
    write(tmp_path, weights, {**certificate, "expression": "2*sin(x)", "error": 9.0, "bound": 9.0})
    with pytest.raises(ValueError, match="two terms read the same signal"):
        checker.check(tmp_path)
    network, found = approximate("sin(x)", FUNCTIONS["sin(x)"], 0.05, levels=1)
    (*layers, ((signal,))) = found.layers
    twice = {**signal, "terms": [*signal["terms"], *signal["terms"]]}
    with pytest.raises(ValueError, match="two terms must not read the same signal"):
        replace(found, layers=(*layers, (twice,))).check(network)


@pytest.mark.parametrize("text", ["sqrt(u^2)", "sqrt(u^2)/u", "(u^2)^1.5/u^2", "abs(u)"])
def test_a_kink_that_the_derivative_does_not_show_is_found(text):
    """SymPy simplifies the second derivative of sqrt(u^2) to 0."""
    function = checker.parse(text, [checker.U])
    ends = [sum(checker.enclose(function, x, x)) / 2 for x in (Fraction(-1), Fraction(1))]
    distance, _, _ = checker.compare(function, [Fraction(-1), Fraction(1)], ends, Fraction(0))
    assert distance > 0.99


def test_names_of_variables_run_no_code(folders, tmp_path, monkeypatch):
    weights, certificate = copied(folders["sin(x)"])
    monkeypatch.setattr(checker.sympy.Symbol, "attack", property(lambda x: pytest.fail("ran code")), raising=False)
    for text in ("x.attack", "x .attack", "(x).attack", "x\n.attack", "1*x.attack"):
        box = {**certificate["box"], "attack": [0, 1]}
        write(tmp_path, weights, {**certificate, "box": box, "expression": text})
        with pytest.raises(ValueError, match="cannot check"):
            checker.check(tmp_path)


def copied(folder):
    return load_file(folder / "network.safetensors"), json.loads((folder / "certificate.json").read_text())


def write(folder, weights, certificate):
    save_file(weights, folder / "network.safetensors")
    digest = sha256((folder / "network.safetensors").read_bytes()).hexdigest()
    (folder / "certificate.json").write_text(json.dumps({**certificate, "network_sha256": digest}))


def test_numbers_are_exact(tmp_path):
    """A decimal number is not the float next to it, and a constant that a float loses changes the expression."""
    network, certificate = approximate("x * y + 0.1", [(-1, 1), (-1, 1)], 0.1, levels=0)
    certificate.save(tmp_path, network)
    checker.check(tmp_path)
    data = json.loads((tmp_path / "certificate.json").read_text())
    for text in ("x * y + 0.1000000000000000055511151231257827", "x * y + 0.1 + 1e-300"):
        (tmp_path / "certificate.json").write_text(json.dumps({**data, "expression": text}))
        with pytest.raises(ValueError, match="another expression"):
            checker.check(tmp_path)


def test_the_command(folders, capsys, monkeypatch):
    assert checker.main(str(folders["sin(x)"])) == 0
    assert "sin(x)" in capsys.readouterr().out
