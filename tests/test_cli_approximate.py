import json

import onnxruntime
import pytest
import torch
from safetensors.torch import load_file

from lawful.cli import main
from lawful.theory import ApproximationCertificate, parse_expression
from tests.examples.loading import load_example

USAGE = 4


def test_files_that_it_writes(tmp_path, capsys):
    folder = tmp_path / "net"
    command = ["approximate", "-x*y + sin(x)", "--box", "-1", "1", "-2e-1", "2", "--error", "0.05"]
    assert main([*command, "--output", str(folder)]) == 0
    assert "For all x from -1 to 1, y from -0.2 to 2, the float32 network differs" in capsys.readouterr().out
    data = json.loads((folder / "certificate.json").read_text())
    certificate = ApproximationCertificate.from_json(data)
    weights = load_file(folder / "network.safetensors")
    x = torch.rand(500, 2) * torch.tensor([2, 2.2]) - torch.tensor([1, 0.2])
    x = x.clamp(torch.tensor([-1, -0.2]), torch.tensor([1.0, 2]))
    (found,) = onnxruntime.InferenceSession(folder / "network.onnx").run(None, {"x": x.numpy()})
    exact = parse_expression("-x*y + sin(x)")(x=x[:, 0].double(), y=x[:, 1].double())
    assert (torch.from_numpy(found)[:, 0] - exact).abs().max() <= certificate.bound <= 0.05
    assert tuple(len(bias) for name, bias in weights.items() if "bias" in name)[:-1] == certificate.hidden_dims
    assert (folder / "picture.png").stat().st_size > 5000
    checker = load_example("check_certificate")
    assert checker.check(folder)[1] <= 0.05


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["1/x", "--box", "-1", "1"], "no finite bound near 0: it has a pole"),
        (["step(x)", "--box", "-1", "1"], "jumps by 1 near 0"),
        (["x", "--box", "-1", "1", "2"], "--box must have a low and a high value for each variable: got 3 numbers"),
        (["x", "--box", "0", "inf"], "box must be bounded"),
        (["x", "--box", "1", "0"], "box must have low < high"),
        (["x + t", "--box", "0", "1"], "unknown name 't'"),
        (["__import__('os')", "--box", "0", "1"], "cannot read"),
        (["x", "--box", "0", "1", "--error", "0"], "error must be a positive number: got 0"),
        (["exp(x)", "--box", "0", "1", "--error", "1e-6", "--max-units", "50"], "max_units=50"),
        (["x*x", "--box", "0", "1", "--levels", "100000000000"], "levels must be from 0 to 100: got 100000000000"),
        (["x*x", "--box", "0", "1", "--max-units", "100000000000"], "max_units must be from 1 to 1,000,000: got 1"),
    ],
)
def test_bad_input_says_why(words, message, tmp_path, capsys):
    error = [] if "--error" in words else ["--error", "0.1"]
    assert main(["approximate", *words, *error, "--output", str(tmp_path / "net")]) == USAGE
    assert message in capsys.readouterr().err
    assert not (tmp_path / "net").exists()
