"""Exported files: their outputs equal the model's, at several sizes, and a description tells how to use them."""

import importlib.util
import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import lawful
from lawful.cli import main
from lawful.data import Dequantizer
from lawful.inference import Ensemble
from lawful.models import (
    CNN,
    MLP,
    PCA,
    AutoencoderSampler,
    DiffusionModel,
    DiscretizedLogisticLikelihood,
    TimeMLP,
    discretized_flow,
    encoder_decoder,
    gpt,
    mlp_autoencoder,
    mlp_gan,
    mlp_vae,
    real_nvp,
    spline_flow,
)
from lawful.recipes import ClassifyRecipe, RegressRecipe, TextRecipe
from lawful.recipes.model_export import export

HAS_ONNX = all(importlib.util.find_spec(name) for name in ("onnx", "onnxscript", "onnxruntime"))
NEEDS_ONNX = pytest.mark.skipif(not HAS_ONNX, reason="onnx, onnxscript and onnxruntime are not installed")
QUICK = {"law_cases": 0, "threads": 1}


def randomize(model):
    """Without zero-initialized outputs, so that every part of the model matters."""
    for p in model.parameters():
        nn.init.normal_(p, std=0.3)
    return model.eval()


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with a text model with all its default parts, a classifier and a regression model."""
    folder = tmp_path_factory.mktemp("export")
    draw = torch.Generator().manual_seed(0)
    (folder / "book.txt").write_text("the cat sat on the mat.\n" * 20)
    rows = torch.randn(40, 2, generator=draw).tolist()
    table = "".join(f"{x:.3f},{'<red>' if x > y else 'blue'},{y:.3f},{'yes' if x > 0 else 'no'}\n" for x, y in rows)
    (folder / "table.csv").write_text("x,color,y,label\n" + table)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        sizes = {"dim": 16, "ngram_dim": 8, "num_layers": 1, "num_heads": 2, "context_length": 8}
        lawful.train(TextRecipe(data="book.txt", steps=1, batch_size=2, **sizes, **QUICK))
        lawful.train(ClassifyRecipe(data="table.csv", target="label", epochs=1, **QUICK))
        lawful.train(RegressRecipe(data="table.csv", target="y", epochs=1, **QUICK))
    return folder / "runs"


def test_text_model_at_dynamic_batch_and_length(runs, tmp_path):
    model = randomize(lawful.load(runs / "text-001"))
    exported = lawful.export(model, tmp_path / "model.pt2")
    assert exported.max_difference < 1e-5
    assert exported.metadata["inputs"] == [{"name": "tokens", "dtype": "int64", "shape": ["batch", "length"]}]
    size = model.vocab_size
    assert exported.metadata["outputs"] == [{"name": "logits", "dtype": "float32", "shape": ["batch", "length", size]}]
    assert exported.metadata["model"]["tokenizer"] == model.tokenizer.to_json()
    assert exported.metadata["context_length"] == 8
    program = torch.export.load(exported.path).module()
    for shape in ((2, 3), (1, 1), (3, 11)):
        tokens = torch.randint(size, shape)
        torch.testing.assert_close(program(tokens), model(tokens), msg=lambda text, shape=shape: f"{shape}: {text}")


def test_classifier_and_its_description(runs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["export", str(runs / "classify-001"), "--format", "torch-export"]) == 0
    shown = capsys.readouterr().err
    assert "exported: classify-001.pt2" in shown
    assert "input: x float32 (batch, 4)" in shown  # two numbers and a color of two levels
    assert "output: logits float32 (batch, 2)" in shown
    assert "largest difference to the model:" in shown
    about = json.loads((tmp_path / "classify-001.pt2.json").read_text())
    assert about["classes"] == ["no", "yes"]
    assert about["recipe"] == "classify"
    assert about["features"] == ["x", "color=<red>", "color=blue", "y"]
    model, program = lawful.load(runs / "classify-001"), torch.export.load("classify-001.pt2").module()
    for n in (1, 7):
        x = torch.randn(n, 4)
        torch.testing.assert_close(program(x), model(x))


def test_regression_has_the_units_of_the_targets(runs, tmp_path):
    exported = export(runs / "regress-001", tmp_path / "new" / "model.pt2")
    assert [part["name"] for part in exported.metadata["outputs"]] == ["prediction"]
    assert "classes" not in exported.metadata


def test_safetensors_has_all_weights(runs, tmp_path):
    model = gpt(vocab_size=5, dim=8, num_layers=1, num_heads=2, context_length=4)
    exported = export(model, tmp_path / "model.safetensors")
    weights = load_file(exported.path)
    assert weights.keys() == model.state_dict().keys()  # also the tied head
    assert all(torch.equal(x, weights[name]) for name, x in model.state_dict().items())
    assert exported.metadata["tensors"]["embedding.weight"] == {"dtype": "float32", "shape": [5, 8]}
    about = export(runs / "text-001", tmp_path / "text.safetensors").metadata
    assert about["model"]["tokenizer"]["kind"] == "characters"


def _pca():
    return PCA(n_components=2).fit(torch.randn(20, 5))


MODELS = {
    "vae": (lambda: mlp_vae(5, latent_dim=2, hidden_dims=(8,)), ("forward", "encode", "decode")),
    "vae of 8-bit values": (
        lambda: mlp_vae(
            5, latent_dim=2, hidden_dims=(8,), likelihood=DiscretizedLogisticLikelihood((5,), Dequantizer(levels=256))
        ),
        ("forward", "encode"),
    ),
    "conditional vae": (lambda: mlp_vae(5, latent_dim=2, hidden_dims=(8,), num_classes=3), ("encode", "decode")),
    "autoencoder": (lambda: AutoencoderSampler(_pca(), mlp_autoencoder(5, latent_dim=2)), ("forward", "encode")),
    "pca": (_pca, ("transform", "inverse_transform", "forward")),
    "flow": (lambda: real_nvp(2, num_layers=1, hidden_dims=[8]), ("log_prob", "encode", "decode")),
    "flow of 8-bit values": (
        lambda: discretized_flow(3, num_levels=256, low=0.0, high=255.0, hidden_dims=[8]),
        ("log_prob", "decode"),
    ),
    "conditional flow": (lambda: real_nvp(2, num_layers=1, hidden_dims=[8], num_classes=3), ("log_prob",)),
    "gan": (lambda: mlp_gan(dim=2, latent_dim=3, hidden_dims=(8,)), ("forward",)),
}


@pytest.mark.parametrize(
    ("name", "method"),
    [
        pytest.param(
            name,
            method,
            marks=() if method in ("transform", "forward") or name == "flow of 8-bit values" else pytest.mark.long,
        )
        for name, (_, methods) in MODELS.items()
        for method in methods
    ],
)
def test_generative_models(name, method, tmp_path):
    model = MODELS[name][0]()
    exported = export(model if name == "pca" else randomize(model), tmp_path / "model.pt2", method=method)
    assert exported.max_difference < 1e-4
    names = [part["name"] for part in exported.metadata["inputs"]]
    assert ("labels" in names) == name.startswith("conditional")
    assert all(part["shape"][0] == "batch" for kind in ("inputs", "outputs") for part in exported.metadata[kind])


@pytest.mark.long
@pytest.mark.parametrize("name", ["encoder-decoder", "spline flow"])
def test_larger_models(name, tmp_path):
    model = encoder_decoder(vocab_size=9, dim=8, num_layers=1, num_heads=2) if name[0] == "e" else spline_flow(2)
    assert export(randomize(model), tmp_path / "model.pt2").max_difference < 1e-4


def test_network_of_a_diffusion_model(tmp_path):
    model = DiffusionModel(TimeMLP((2,), dim=8, num_layers=1), shape=(2,))
    with pytest.raises(ValueError, match=r"model\.denoiser\.network, with inputs=\(x, noise_levels\)"):
        export(model, tmp_path / "model.pt2")
    inputs = torch.randn(2, 2), torch.rand(2)
    exported = export(randomize(model).denoiser.network, tmp_path / "network.pt2", inputs=inputs)
    assert exported.max_difference < 1e-5


def test_any_module_by_example_inputs(tmp_path):
    exported = export(Ensemble([MLP(3, 2), MLP(3, 2)]), tmp_path / "model.pt2", inputs=torch.randn(1, 3))
    assert exported.metadata["inputs"] == [{"name": "x", "dtype": "float32", "shape": ["batch", 3]}]
    program = torch.export.load(exported.path).module()
    assert program(torch.zeros(7, 3)).shape == (7, 2)
    sides = {"x": {2: torch.export.Dim("height", min=4)}}
    exported = export(
        CNN(1, 3, channels=4, num_blocks=0).train(), tmp_path / "cnn.pt2",
        inputs=[torch.randn(2, 1, 6, 6)], dynamic_shapes=sides,
    )  # fmt: skip
    assert exported.metadata["inputs"][0]["shape"] == [2, 1, "x_axis_2", 6]


def test_the_model_is_left_as_it_was(tmp_path):
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)).train()
    torch.manual_seed(3)
    before = torch.get_rng_state()
    export(model, tmp_path / "model.pt2", inputs=torch.randn(2, 3, generator=torch.Generator().manual_seed(0)))
    assert model.training
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"output": "model.bin"}, ValueError, r"output must end with \.onnx, \.pt2, \.safetensors, got model\.bin"),
        ({"output": "model.onnx", "format": "safetensors"}, ValueError, r"\.safetensors for format safetensors"),
        ({"format": "tflite"}, ValueError, "format must be one of onnx, torch-export, safetensors, got 'tflite'"),
        ({}, ValueError, "output or format is needed"),
        ({"output": "model.pt2"}, ValueError, r"inputs of Linear are not known: pass inputs=\(x, \.\.\.\)"),
        ({"output": "model.pt2", "inputs": torch.zeros(2, 4)}, RuntimeError, "shapes cannot be multiplied"),
        ({"output": "model.pt2", "inputs": torch.zeros(2, 3), "method": "encode"}, ValueError, "no method 'encode'"),
        ({"output": "m.pt2", "inputs": [torch.zeros(2, 3), torch.zeros(3)]}, ValueError, "the same first axis"),
        ({"output": "m.safetensors", "method": "forward"}, ValueError, "weights only"),
    ],
    ids=["suffix", "format and suffix", "format", "nothing", "no inputs", "wrong inputs", "method", "batch", "weights"],
)
def test_errors(arguments, error, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message):
        export(nn.Linear(3, 2), **arguments)


def test_errors_on_the_command_line(runs, tmp_path, monkeypatch, capsys):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if "onnx" in name else find_spec(name))
    assert main(["export", str(runs / "text-001"), "--output", str(tmp_path / "model.onnx")]) == 1
    assert "needs onnx and onnxscript: pip install 'lawful[export]'" in capsys.readouterr().err
    assert main(["export", str(runs / "text-009"), "--format", "onnx"]) == 4
    assert "there is no run at" in capsys.readouterr().err


@NEEDS_ONNX
@pytest.mark.parametrize("name", ["classify-001", pytest.param("text-001", marks=pytest.mark.long)])
def test_onnx(name, runs, tmp_path):
    import onnx
    import onnxruntime

    model = randomize(lawful.load(runs / name))
    example = None if name == "text-001" else torch.randn(2, 4)
    exported = export(model, tmp_path / "model.onnx", inputs=example)
    assert exported.max_difference < 1e-4
    file = onnx.load(exported.path)
    onnx.checker.check_model(file)
    axes = [d.dim_param for d in file.graph.input[0].type.tensor_type.shape.dim]
    assert axes == (["batch", "length"] if example is None else ["batch", ""])
    session = onnxruntime.InferenceSession(exported.path, providers=["CPUExecutionProvider"])
    (about,) = exported.metadata["inputs"]
    for shape in ((1, 1), (3, 9)):
        x = torch.randint(model.vocab_size, shape) if example is None else torch.randn(shape[0], 4)
        (y,) = session.run(None, {about["name"]: x.numpy()})
        torch.testing.assert_close(torch.from_numpy(y), model(x), atol=1e-4, rtol=1e-4)


@NEEDS_ONNX
@pytest.mark.long
def test_vae_of_8_bit_values_in_onnx(tmp_path):
    model = randomize(MODELS["vae of 8-bit values"][0]())
    assert export(model, tmp_path / "model.onnx").max_difference < 1e-4


@NEEDS_ONNX
def test_operators_that_onnx_lacks(tmp_path):
    class LastMaximum(nn.Module):
        def forward(self, x):
            return x.cummax(1).values

    with pytest.raises(ValueError, match=r"no operator for aten\.cummax\. Use the format torch-export"):
        export(LastMaximum(), tmp_path / "model.onnx", inputs=torch.randn(2, 3))


@NEEDS_ONNX
@pytest.mark.long
def test_the_program_of_the_documentation(runs, tmp_path, monkeypatch, capsys):
    """docs/export.md generates text with onnxruntime, without PyTorch and without lawful."""
    page = (Path(__file__).parents[2] / "docs/export.md").read_text(encoding="utf-8")
    program = next(body for body in re.findall(r"^```py\n(.*?)^```", page, re.S | re.M) if "onnxruntime" in body)
    monkeypatch.chdir(tmp_path)
    export(runs / "text-001", "model.onnx")
    exec(program, {})
    assert len(capsys.readouterr().out.rstrip("\n")) == 24
    assert "lawful" not in program
    assert "torch" not in program
