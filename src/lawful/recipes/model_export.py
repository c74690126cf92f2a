"""Export of a trained model to ONNX, `torch.export` or safetensors, with a JSON file that describes it."""

from __future__ import annotations

import copy
import importlib.util
import logging
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from lawful import _json
from lawful._files import write_file, written_files
from lawful.blocks.modes import eval_mode
from lawful.blocks.positions import LearnedPositions
from lawful.data import encoding_from_json
from lawful.models import (
    GAN,
    PCA,
    VAE,
    Autoencoder,
    AutoencoderSampler,
    BernoulliLikelihood,
    Decoder,
    DiffusionModel,
    DiscretizedLogisticLikelihood,
    Encoder,
    EncoderDecoder,
    Flow,
    TransformerBackbone,
)
from lawful.models.generative import UNIFORM
from lawful.training.registry import load
from lawful.training.run import Run

ExportFormat = Literal["onnx", "torch-export", "safetensors"]
"""File formats of exported models."""
_SUFFIXES: dict[ExportFormat, str] = {"onnx": ".onnx", "torch-export": ".pt2", "safetensors": ".safetensors"}
_SIZES = {"batch": 2, "source_length": 4}, {"batch": 3, "length": 6, "source_length": 5, "target_length": 7}
"""Sizes of the dynamic axes, 3 if not listed: of the inputs to export with, and of the inputs to test the file."""
_LOGGERS = "torch.onnx", "torch.export", "torch._subclasses.fake_tensor"
_TOLERANCE = 1e-3
"""Largest difference between the outputs of a file and of its model, relative to the largest output."""


@dataclass(frozen=True)
class ExportedModel:
    """The files of an exported model."""

    path: Path
    """File of the model."""
    metadata_path: Path
    """JSON file with the inputs and outputs, and for a run the tokenizer, the classes and the encoding of the data."""
    metadata: Mapping[str, Any] = field(repr=False)
    """Contents of the JSON file."""
    max_difference: float | None = None
    """Largest difference between the outputs of the file and of the model; None if they were not compared."""


@dataclass(frozen=True)
class _Input:
    """An input of an exported function; a name in its shape is a dynamic axis."""

    name: str
    shape: tuple[int | str, ...]
    num_values: int = 0
    """For integers, their upper bound (exclusive); 0 for real numbers."""
    max_length: int | None = None
    """Largest size of the second axis."""
    value_range: tuple[float, float] = (-math.inf, math.inf)
    """Lowest and highest real number."""

    def random(self, sizes: Mapping[str, int]) -> Tensor:
        shape = [sizes.get(size, 3) if isinstance(size, str) else size for size in self.shape]
        if self.max_length is not None:
            shape[1] = min(shape[1], self.max_length)
        if self.num_values:
            return torch.randint(self.num_values, shape)
        return torch.randn(shape) if math.isinf(self.value_range[0]) else torch.empty(shape).uniform_(*self.value_range)

    def dims(self) -> dict[int, Any]:
        """The dynamic axes, for `torch.export`."""
        names = {axis: size for axis, size in enumerate(self.shape) if isinstance(size, str)}
        return {axis: Dim(name, min=1, max=self.max_length if axis else None) for axis, name in names.items()}


_Signature = tuple[tuple[_Input, ...], tuple[str, ...]]
"""The inputs of a function and the names of its outputs."""


class _Method(nn.Module):
    """A method of a model as a module; labels are the last argument."""

    def __init__(self, model: nn.Module, method: str, *, labels: bool = False) -> None:
        super().__init__()
        self.model, self.method, self.labels = model, method, labels

    def forward(self, *args: Tensor) -> Any:
        """Calls the method."""
        function = getattr(self.model, self.method)
        return function(*args[:-1], labels=args[-1]) if self.labels else function(*args)


@dataclass(frozen=True)
class _Program:
    """An exported program with the names of its inputs, outputs and axes, and inputs to test it."""

    program: ExportedProgram
    function: nn.Module
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    axes: Mapping[str, str]
    """Names of the dynamic axes, by symbol."""
    tests: Sequence[tuple[Tensor, ...]]

    def interface(self) -> dict[str, list[dict[str, Any]]]:
        """Names, dtypes and shapes of inputs and outputs."""
        signature, values = self.program.graph_signature, {n.name: n.meta.get("val") for n in self.program.graph.nodes}
        return {
            kind: [
                {"name": name, **self._describe(values[node])}
                for name, node in zip(names, nodes, strict=True)
                if isinstance(values.get(node), Tensor)
            ]
            for kind, names, nodes in (
                ("inputs", self.inputs, signature.user_inputs),
                ("outputs", self.outputs, signature.user_outputs),
            )
        }

    def _describe(self, value: Tensor) -> dict[str, Any]:
        shape = [size if type(size) is int else self.axes.get(str(size), str(size)) for size in value.shape]
        return {"dtype": str(value.dtype).removeprefix("torch."), "shape": shape}

    def max_difference(self, call: Callable[..., Any]) -> float:
        """Returns the largest difference between the outputs of a function and of the model.

        Raises:
            ValueError: If they differ by more than rounding.
        """
        largest = 0.0
        for args in self.tests:
            for x, y in zip(_outputs(call(*args)), _outputs(self.function(*args)), strict=True):
                finite = y.isfinite()
                difference, size = ((x - y)[finite].abs(), y[finite].abs()) if len(y) else (y, y)
                worst = float(difference.max()) if difference.numel() else 0.0
                if not torch.equal(x.isfinite(), finite) or not worst <= _TOLERANCE * max(
                    1.0, *size.flatten().tolist()
                ):
                    shape = tuple(y.shape)
                    raise ValueError(
                        f"the exported file differs from the model by {worst:.3g} in outputs of shape {shape}"
                    )
                largest = max(largest, worst)
        return largest


@torch.no_grad()
def export(
    model: nn.Module | Run | Path | str,
    output: Path | str | None = None,
    *,
    format: ExportFormat | None = None,
    method: str | None = None,
    inputs: Tensor | Sequence[Tensor] | None = None,
    dynamic_shapes: Any = None,
) -> ExportedModel:
    """Exports a model to a file for other programs, and writes a JSON file beside it that describes it.

    Batch size and sequence length are dynamic. The outputs of the file are compared with those of the model at two
    sizes; for ONNX this needs `onnxruntime`. Transformers are exported without KV cache.

    Args:
        model: A model, a run, or the folder of a run. It is exported in eval mode.
        output: File to write: `.onnx`, `.pt2` (torch-export) or `.safetensors`. Defaults to the name of the run, in
            the current folder.
        format: File format. Defaults to the format of `output`.
        method: Method to export, such as `encode` or `decode` of a VAE. Defaults to `log_prob` for flows, `transform`
            for PCA and `forward` for other models. Safetensors files have no methods, only weights.
        inputs: Example inputs, for a model that is not part of this library.
        dynamic_shapes: Dynamic axes of `inputs`, as in `torch.export.export`. Defaults to the first axis of each.

    Raises:
        ValueError: If the model cannot be exported.
        ImportError: If a package for ONNX is missing.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     exported = export(nn.Linear(3, 2), f"{folder}/linear.safetensors")
        >>> exported.metadata["tensors"]
        {'weight': {'dtype': 'float32', 'shape': [2, 3]}, 'bias': {'dtype': 'float32', 'shape': [2]}}
    """
    run = None if isinstance(model, nn.Module) else model if isinstance(model, Run) else Run(model)
    path, format = _output_file(output, format, run)
    if format == "onnx":
        _require("onnx", "onnxscript")
    if format == "safetensors" and not (method is None and inputs is None and dynamic_shapes is None):
        raise ValueError("a safetensors file has weights only: omit method, inputs and dynamic_shapes")
    module = load(run) if run is not None else model
    if not isinstance(module, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, a run or its folder, got {type(module).__name__}")
    if any(x.device.type != "cpu" for x in (*module.parameters(), *module.buffers())):
        module = copy.deepcopy(module).cpu()
    metadata: dict[str, Any] = {"format": format, **_describe_run(module, run)}
    program = None
    with eval_mode(module), torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        if format != "safetensors":
            if inputs is None:
                program = _export_known(module, run, method)
            else:
                examples = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
                program = _export_examples(module, method or "forward", examples, dynamic_shapes)
        path.parent.mkdir(parents=True, exist_ok=True)
        difference = None
        if program is None:
            state = {name: x.detach().clone().contiguous() for name, x in module.state_dict().items()}
            metadata["tensors"] = {
                name: {"dtype": str(x.dtype).removeprefix("torch."), "shape": list(x.shape)}
                for name, x in state.items()
            }
            with written_files(path) as temporary:
                save_file(state, temporary, metadata={"format": "pt"})
        else:
            metadata |= program.interface()
            with written_files(path) as temporary:
                difference = (_save_onnx if format == "onnx" else _save_program)(program, temporary)
    metadata_path = path.with_name(f"{path.name}.json")
    write_file(metadata_path, _json.dump(metadata))
    return ExportedModel(path, metadata_path, metadata, difference)


def _output_file(output: Path | str | None, format: ExportFormat | None, run: Run | None) -> tuple[Path, ExportFormat]:
    """The file to write and its format."""
    if format is not None and format not in _SUFFIXES:
        raise ValueError(f"format must be one of {', '.join(_SUFFIXES)}, got {format!r}")
    if output is None:
        if run is None or format is None:
            raise ValueError("output or format is needed: pass a file .onnx, .pt2 or .safetensors")
        return Path(f"{run.path.resolve().name}{_SUFFIXES[format]}"), format
    path = Path(output)
    known = {suffix: name for name, suffix in _SUFFIXES.items()}
    found = known.get(path.suffix.lower())
    if found is None or (format is not None and found != format):
        expected = ", ".join(known) if format is None else f"{_SUFFIXES[format]} for format {format}"
        raise ValueError(f"output must end with {expected}, got {path.name}")
    return path, found


def _require(*packages: str) -> None:
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(f"export to ONNX needs {' and '.join(missing)}: pip install 'lawful[export]'")


def _describe_run(model: nn.Module, run: Run | None) -> dict[str, Any]:
    """Describes the model and its data: versions, tokenizer, classes, features."""
    about: dict[str, Any] = {"lawful": version("lawful"), "torch": torch.__version__}
    if context_length := getattr(model, "context_length", None):
        about["context_length"] = context_length
    tokenizer: Any = getattr(model, "tokenizer", None)
    if run is None:
        return about | ({} if tokenizer is None else {"model": {"tokenizer": tokenizer.to_json()}})
    config = _object(run.config, "model")
    about |= {"recipe": run.config.get("recipe"), "model": config}
    encoding, text = _object(config, "encoding"), _object(config, "text_spec")
    classes = _object(encoding, "target").get("levels") or encoding.get("classes") or text.get("classes")
    table = encoding or _object(_object(config, "data_spec"), "encoding")
    if table.get("kind") == "table":
        about["features"] = list(getattr(encoding_from_json(table), "names", ()))
    return about | ({"classes": classes} if classes else {})


def _object(value: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def _export_known(model: nn.Module, run: Run | None, method: str | None) -> _Program:
    """Exports a method of a model whose inputs are known."""
    if isinstance(model, AutoencoderSampler):
        model = model.autoencoder
    methods = _methods(model, run)
    if isinstance(model, DiffusionModel):
        raise ValueError(
            "a diffusion model samples in many steps: use the format safetensors, or from Python export its network, "
            "model.denoiser.network, with inputs=(x, noise_levels)"
        )
    if not methods:
        raise ValueError(
            f"the inputs of {type(model).__name__} are not known: pass inputs=(x, ...) with example tensors from "
            "Python, or use the format safetensors"
        )
    method = next(iter(methods)) if method is None else method
    if method not in methods:
        raise ValueError(f"method must be one of {', '.join(methods)} for {type(model).__name__}, got {method!r}")
    inputs, outputs = methods[method]
    labeled = inputs[-1].name == "labels"
    plain = method == "forward" and not labeled
    function = model if plain else _Method(model, method, labels=labeled)
    tests = [tuple(x.random(sizes) for x in inputs) for sizes in _SIZES]
    dims = tuple(x.dims() for x in inputs)
    program = _trace(function, tests[0], dims if plain else (dims,), f"{type(model).__name__}.{method}")
    axes = {
        str(size): name
        for value, x in zip(_input_values(program), inputs, strict=True)
        for size, name in zip(value.shape, x.shape, strict=True)
        if isinstance(name, str)
    }
    return _Program(program, function, tuple(x.name for x in inputs), outputs, axes, tests)


def _methods(model: nn.Module, run: Run | None) -> dict[str, _Signature]:
    """The methods of a model that can be exported; the first is the default. Empty for unknown models."""
    match model:
        case EncoderDecoder():
            source = _token_input(model.encoder, "source", "source_length")
            target = _token_input(model.decoder, "target", "target_length")
            return {"forward": ((source, target), ("logits",))}
        case Decoder() if "c" not in model.layer_pattern:
            return {"forward": ((_token_input(model, "tokens", "length"),), ("logits",))}
        case Encoder():
            return {"forward": ((_token_input(model, "tokens", "length"),), ("hidden_states",))}
        case VAE() | Autoencoder() | PCA() | Flow() | GAN():
            return _generative_methods(model)
    config = _object(run.config, "model") if run is not None else {}
    backbone = getattr(model, "encoder", None)
    if "text_spec" in config and isinstance(backbone, Encoder):
        return {"forward": ((_token_input(backbone, "tokens", "length"),), ("logits",))}
    if (shape := _object(config, "example_spec").get("shape")) is not None:
        output = "logits" if run is not None and run.config.get("recipe") != "regress" else "prediction"
        return {"forward": ((_Input("x", ("batch", *shape)),), (output,))}
    return {}


def _token_input(model: TransformerBackbone, name: str, axis: str) -> _Input:
    max_length = model.context_length if isinstance(model.positions, LearnedPositions) else None
    return _Input(name, ("batch", axis), num_values=model.vocab_size, max_length=max_length)


def _generative_methods(model: VAE | Autoencoder | PCA | Flow | GAN) -> dict[str, _Signature]:
    x = _Input("x", ("batch", *model.shape))
    if isinstance(model, VAE) and isinstance(model.likelihood, BernoulliLikelihood | DiscretizedLogisticLikelihood):
        x = replace(x, value_range=model.likelihood.support)
    num_classes = getattr(model, "num_classes", 0)
    labels = (_Input("labels", ("batch",), num_values=num_classes),) if num_classes else ()
    if isinstance(model, GAN):
        return {"forward": ((_Input("z", ("batch", model.latent_dim)), *labels), ("x",))}
    if isinstance(model, Flow):
        z = _Input("z", ("batch", len(model.normalizer.mean)))
        if model.base is UNIFORM:  # outside of its support, the density is 0
            mean, std = float(model.normalizer.mean[0]), float(model.normalizer.std[0])
            x, z = replace(x, value_range=(mean - std, mean + std)), replace(z, value_range=(-1.0, 1.0))
        return {
            "log_prob": ((x, *labels), ("log_prob",)),
            "encode": ((x, *labels), ("z", "log_det")),
            "decode": ((z, *labels), ("x",)),
        }
    if isinstance(model, PCA):
        z = _Input("z", ("batch", len(model.components)))
        return {
            "transform": ((x,), ("z",)),
            "inverse_transform": ((z,), ("x",)),
            "forward": ((x,), ("reconstruction",)),
        }
    example = [part.random({}) for part in (x, *labels)]
    latents = _Method(model, "encode", labels=bool(labels))(*example)
    z = _Input("z", ("batch", latents.shape[-1]))
    return {
        "forward": ((x, *labels), ("reconstruction",)),
        "encode": ((x, *labels), ("z",)),
        "decode": ((z, *labels), ("x",)),
    }


def _export_examples(model: nn.Module, method: str, inputs: tuple[Tensor, ...], dynamic_shapes: Any) -> _Program:
    """Exports a method of any model with example inputs."""
    if not inputs or not all(isinstance(x, Tensor) for x in inputs):
        raise TypeError("inputs must be a tensor or a sequence of tensors")
    if not callable(getattr(model, method, None)):
        raise ValueError(f"{type(model).__name__} has no method {method!r}")
    function, tests = (model if method == "forward" else _Method(model, method)), [inputs]
    names = [f"x{i}" for i in range(len(inputs))] if len(inputs) > 1 else ["x"]
    if dynamic_shapes is None:
        if len({len(x) if x.dim() else 0 for x in inputs}) != 1 or not inputs[0].dim():
            shapes = ", ".join(str(tuple(x.shape)) for x in inputs)
            raise ValueError(f"inputs must have the same first axis, or pass dynamic_shapes: got shapes {shapes}")
        tests = [tuple(torch.cat([x] * n) for x in inputs) for n in (2, 3)]  # a size of 1 would become constant
        batch = tuple({0: Dim("batch", min=1)} for _ in inputs)
        dynamic_shapes = batch if method == "forward" else (batch,)
    program = _trace(function, tests[0], dynamic_shapes, f"{type(model).__name__}.{method}")
    axes: dict[str, str] = {}
    for name, value in zip(names, _input_values(program), strict=True):
        for axis, size in enumerate(value.shape):
            if type(size) is not int:
                axes.setdefault(str(size), f"{name}_axis_{axis}" if axis else "batch")
    outputs = program.graph_signature.user_outputs
    output_names = tuple(f"y{i}" for i in range(len(outputs))) if len(outputs) > 1 else ("y",)
    return _Program(program, function, tuple(names), output_names, axes, tests)


def _trace(function: nn.Module, args: tuple[Tensor, ...], dynamic_shapes: Any, name: str) -> ExportedProgram:
    function(*args)  # inputs that do not fit raise the error of the model itself
    try:
        with _quiet():
            return torch.export.export(function, args, dynamic_shapes=dynamic_shapes)
    except Exception as error:
        lines = [line.strip(" -") for line in str(error).splitlines() if line.strip()]
        reason = " ".join(lines[:2]) or type(error).__name__
        raise ValueError(f"torch.export cannot export {name}: {reason}") from error


def _input_values(program: ExportedProgram) -> list[Tensor]:
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    return [values[name] for name in program.graph_signature.user_inputs]


def _outputs(y: Any) -> tuple[Tensor, ...]:
    return (y,) if isinstance(y, Tensor) else tuple(y)


def _save_program(program: _Program, path: Path) -> float:
    with _quiet():
        torch.export.save(program.program, path)
        return program.max_difference(torch.export.load(path).module())


def _save_onnx(program: _Program, path: Path) -> float | None:
    with _quiet():
        try:
            onnx_program: Any = torch.onnx.export(
                program.program, (), input_names=program.inputs, output_names=program.outputs, verbose=False
            )
        except torch.onnx.OnnxExporterError as error:
            missing = re.search(r"No ONNX function found for <OpOverload\(op='([\w.]+)'", str(error))
            summary = re.search(r"<class '[\w.]+'>: (.+)", str(error))
            reason = f"it has no operator for {missing[1]}" if missing else summary[1] if summary else str(error)
            raise ValueError(f"ONNX cannot represent the model: {reason}. Use the format torch-export") from error
        onnx_program.rename_axes(dict(program.axes))
        onnx_program.save(str(path))
    if importlib.util.find_spec("onnxruntime") is None:
        return None
    onnxruntime: Any = importlib.import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def call(*args: Tensor) -> list[Tensor]:
        arrays = {name: x.numpy() for name, x in zip(program.inputs, args, strict=True)}
        return [torch.from_numpy(y) for y in session.run(None, arrays)]

    return program.max_difference(call)


@contextmanager
def _quiet() -> Iterator[None]:
    """Hides warnings and log messages of PyTorch's exporters; errors are raised."""
    loggers = {logger: logger.level for logger in map(logging.getLogger, _LOGGERS)}
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in loggers.items():
            logger.setLevel(level)
