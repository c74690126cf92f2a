"""Double descent: models from too small to far too large, trained side by side on noisy labels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from lawful._json import Range
from lawful.data import Batch, ShuffledBatches, SupervisedDataset, fingerprint, mnist1d, noisy_labels
from lawful.inference.metrics.intervals import wilson
from lawful.laws import Claim, batch_independence, shape
from lawful.models import MLP, StridedCNN
from lawful.probe import figures
from lawful.recipes.optimization import OptimizationConfig, _Momentum, _NonNegative, _PositiveInt
from lawful.training import Recipe, Run, TrainingSetup
from lawful.training.registry import _check_parameter_count


class _ModelFamily(nn.Module):
    """Runs several models on the same inputs."""

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, x: Float[Tensor, "b *shape"]) -> Float[Tensor, "b m classes"]:
        """Returns the logits of every model."""
        return torch.stack([member(x) for member in self.members], dim=1)


@dataclass(frozen=True)
class NoisySplits:
    """Training examples with noisy labels and test examples with true labels."""

    train: SupervisedDataset
    test: SupervisedDataset


_LARGEST = {"mlp": 300, "cnn": 100}
_FIT_THRESHOLD = 0.005
"""Training error below which a model fits the training data."""


@dataclass(frozen=True, kw_only=True)
class DoubleDescentRecipe(OptimizationConfig, Recipe[NoisySplits]):
    """Train models of many sizes on MNIST-1D with noisy labels: the test error falls, rises and falls again."""

    name: ClassVar[str] = "double-descent"

    model: Literal["mlp", "cnn"] = "mlp"
    """MLP with two hidden layers, or CNN with three strided convolutions."""
    num_sizes: Annotated[int, Range(1, 200)] = 20
    """Number of model sizes, on a logarithmic grid."""
    smallest: Annotated[int, Range(1, 10**5)] = 2
    """Smallest number of hidden units or channels."""
    largest: Annotated[int, Range(1, 10**5)] | None = None
    """Largest number of hidden units or channels. Defaults to 300 units or 100 channels."""
    num_seeds: Annotated[int, Range(1, 100)] = 1
    """Number of models per size, with different initial weights; their errors are averaged."""
    label_noise: Annotated[float, Range(0, 1)] = 0.15
    """Fraction of the training labels that are wrong."""
    num_examples: Annotated[int, Range(20, 10**7)] = 16_000
    """Number of examples."""
    train_fraction: Annotated[float, Range(0.01, 0.99)] = 0.25
    """Fraction of the examples used for training; the rest is used for the test."""
    eval_every_epochs: Annotated[int, Range(1, 10**7)] = 2
    """Epochs between evaluations."""
    epochs: Annotated[int, Range(1, 10**7)] | None = 500
    batch_size: _PositiveInt | None = 100
    optimizer: Literal["adamw", "adam", "sgd", "muon", "lion"] = "sgd"
    learning_rate: _NonNegative | None = 0.01
    momentum: _Momentum = 0.9
    weight_decay: _NonNegative = 0.0
    schedule: Literal["one-cycle", "cosine", "linear", "constant", "warmup-stable-decay"] = "constant"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.smallest > self._largest:
            raise ValueError(f"smallest must be at most largest, got {self.smallest} and {self._largest}")

    @property
    def widths(self) -> list[int]:
        """Numbers of hidden units or channels, in increasing order."""
        return np.unique(np.geomspace(self.smallest, self._largest, self.num_sizes).round(9).astype(int)).tolist()

    def setup(self) -> TrainingSetup[NoisySplits]:
        """Loads the examples and builds all models."""
        examples = mnist1d(samples=self.num_examples)
        rows = torch.arange(len(examples)).tensor_split([int(self.train_fraction * len(examples))])
        clean, test = (examples.take(part) for part in rows)
        labels = noisy_labels(clean.targets, classes=10, fraction=self.label_noise, seed=self.seed)
        splits = NoisySplits(replace(clean, targets=labels), test)
        model = self._build_family()
        inputs = splits.train.inputs
        batches = ShuffledBatches(inputs, labels, batch_size=self.batch_size or 100, seed=self.seed)
        steps = self.num_steps(len(batches))
        return TrainingSetup(
            model=model,
            optimizer_steps=[self.optimizer_step(model, _family_loss, steps=steps, params=model.parameters())],
            batches=batches,
            steps=steps,
            evaluate=partial(self._evaluate, splits=splits),
            eval_every=self.eval_every_epochs * len(batches),
            monitor=None,
            ema_decay=self.ema_decay or None,
            grad_accumulation_steps=self.grad_accumulation_steps,
            claims=self._claims,
            data_fingerprint=fingerprint(inputs, labels, test.inputs, test.targets),
            data=splits,
        )

    def finish(self, run: Run, setup: TrainingSetup[NoisySplits]) -> Mapping[str, Any]:
        """Plots the errors over model size and epochs, and returns the final errors."""
        lines = [line for line in run.metrics if f"validation/{self._labels[0]}/test error" in line]
        if not lines:  # the file of metrics was lost or moved away
            last = self._evaluate(setup.model, setup.data)
            lines = [{"step": setup.steps, **{f"validation/{key}": error for key, error in last.items()}}]
        errors = {part: self._error_table(lines, part) for part in ("train error", "test error")}
        members = setup.model.get_submodule("members")
        sizes = [sum(p.numel() for p in member.parameters()) for member in members.children()][: len(self.widths)]
        final = {part: table[-1] for part, table in errors.items()}
        fits = np.flatnonzero(final["train error"].mean(0) < _FIT_THRESHOLD)
        threshold = None if not len(fits) else sizes[fits[0]]
        figures.save(
            figures.double_descent(sizes, final["train error"], final["test error"], threshold=threshold),
            run.figures / "error over model size.png",
            root=run.root,
        )
        over_time = errors["test error"].mean(1).T
        epochs = [line["step"] / len(setup.batches) for line in lines]
        figures.save(
            figures.epoch_double_descent(epochs, sizes, over_time), run.figures / "error over epochs.png", root=run.root
        )
        splits = setup.data
        margin = 2 * math.sqrt(0.5 / len(splits.test))
        counts = {"train error": len(splits.train), "test error": len(splits.test)}
        mean_errors = final["test error"].mean(0)
        over_size = _find_double_descent(mean_errors, self.widths, margin=margin)
        return {
            "summary": _describe_descent(over_size, mean_errors, self.widths),
            **{part: self._errors_by_width(table, counts[part]) for part, table in final.items()},
            "parameters": dict(zip(map(str, self.widths), sizes, strict=True)),
            "smallest model that fits": None if threshold is None else str(self.widths[fits[0]]),
            "double descent over model size": over_size,
            "double descent over epochs, largest model": _find_double_descent(
                *_smooth(over_time[-1], epochs), margin=margin
            ),
        }

    def build_model(self, model_config: Mapping[str, Any]) -> nn.Module:
        """Rebuilds the models of a run, without their weights."""
        return self._build_family()

    @property
    def _largest(self) -> int:
        return _LARGEST[self.model] if self.largest is None else self.largest

    def _build_family(self) -> _ModelFamily:
        """Builds every size with the first seed, then with the next."""
        _check_parameter_count([partial(self._build_member, width) for width in self.widths], copies=self.num_seeds)
        return _ModelFamily([self._build_member(width) for _ in range(self.num_seeds) for width in self.widths])

    def _build_member(self, width: int) -> nn.Module:
        if self.model == "cnn":
            return StridedCNN(width)
        return nn.Sequential(nn.Flatten(1), MLP(40, 10, hidden_dims=(width, width)))

    @property
    def _labels(self) -> list[str]:
        """Names of the models in the metrics."""
        unit = "units" if self.model == "mlp" else "channels"
        seeds = [f", seed {seed}" for seed in range(self.num_seeds)] if self.num_seeds > 1 else [""]
        return [f"{width} {unit}{seed}" for seed in seeds for width in self.widths]

    def _claims(self, model: nn.Module) -> Iterator[Claim]:
        """The largest model treats examples independently."""
        index = len(self.widths) - 1
        largest = model.get_submodule(f"members.{index}")
        yield Claim(batch_independence(), largest, shape("b 1 40"), name=self._labels[index])

    def _evaluate(self, model: nn.Module, splits: NoisySplits) -> dict[str, float]:
        metrics = {}
        for part, examples in (("train error", splits.train), ("test error", splits.test)):
            errors = _error_rates(model, examples.inputs, examples.targets)
            metrics |= {f"{label}/{part}": error for label, error in zip(self._labels, errors, strict=True)}
        return metrics

    def _error_table(self, lines: Sequence[Mapping[str, Any]], part: str) -> np.ndarray:
        """Errors by evaluation, seed and size."""
        rows = [[line[f"validation/{label}/{part}"] for label in self._labels] for line in lines]
        return np.array(rows).reshape(len(lines), self.num_seeds, len(self.widths))

    def _errors_by_width(self, errors: np.ndarray, num_examples: int) -> dict[str, Any]:
        """Mean errors over the seeds with confidence intervals, by width."""
        counts = (errors.mean(0) * num_examples).round().astype(int).tolist()
        return {str(width): wilson(n, num_examples).json() for width, n in zip(self.widths, counts, strict=True)}


def _family_loss(model: nn.Module, batch: Batch) -> Tensor:
    """Returns the sum of the cross-entropies of all models, so that each has its own gradient."""
    x, y = batch
    logits = model(x)
    members = logits.shape[1]
    return members * F.cross_entropy(logits.flatten(0, 1), y.repeat_interleave(members))


@torch.no_grad()
def _error_rates(model: nn.Module, x: Float[Tensor, "n *shape"], labels: Int[Tensor, " n"]) -> list[float]:
    """Returns the error rate of every model."""
    device = next(model.parameters()).device
    predictions = torch.cat([model(part.to(device)).argmax(-1) for part in x.split(2000)])
    return (predictions.cpu() != labels[:, None]).double().mean(0).tolist()


def _smooth(errors: np.ndarray, at: Sequence[float]) -> tuple[np.ndarray, Sequence[float]]:
    """Moving average over five evaluations."""
    return (np.convolve(errors, np.full(5, 0.2), mode="valid"), at[2:-2]) if len(errors) > 4 else (errors, at)


def _find_double_descent(errors: np.ndarray | Sequence[float], at: Sequence[float], *, margin: float) -> dict[str, Any]:
    """Finds the first descent, the peak and the second descent of a sequence of errors.

    Args:
        errors: Errors, from the smallest model or the first epoch on.
        at: Model sizes or epochs.
        margin: Smallest significant rise to the peak and fall from it.

    Examples:
        >>> found = _find_double_descent([0.6, 0.4, 0.5, 0.3], [2, 4, 8, 16], margin=0.05)
        >>> found["first"], found["peak"], found["second"], found["peak error"]
        (4, 8, 16, 0.5)
        >>> _find_double_descent([0.6, 0.4, 0.3], [2, 4, 8], margin=0.05)
        {'found': False}
    """
    y = np.asarray(errors)
    rise, fall = y - np.minimum.accumulate(y), y - np.minimum.accumulate(y[::-1])[::-1]
    peak = int(np.minimum(rise, fall).argmax())
    if min(rise[peak], fall[peak]) <= margin:
        return {"found": False}
    indices = {"first": int(y[:peak].argmin()), "peak": peak, "second": peak + int(y[peak:].argmin())}
    found = {"found": True} | {name: at[i] for name, i in indices.items()}
    return found | {f"{name} error": float(y[i]) for name, i in indices.items()}


def _describe_descent(found: Mapping[str, Any], errors: Sequence[float] | np.ndarray, widths: Sequence[int]) -> str:
    """Says in words how the test error depends on the width.

    Examples:
        >>> errors = [0.6, 0.4, 0.5, 0.3]
        >>> _describe_descent(_find_double_descent(errors, [2, 4, 8, 16], margin=0.05), errors, [2, 4, 8, 16])
        'Double descent: the test error falls to 0.4 at width 4, rises to 0.5 at width 8 and falls to 0.3 at width 16.'
        >>> _describe_descent({"found": False}, [0.6, 0.4, 0.3], [2, 4, 8])
        'No double descent over the width: the lowest test error is 0.3 at width 8.'
    """
    if not found["found"]:
        best = int(np.argmin(errors))
        return f"No double descent over the width: the lowest test error is {errors[best]:.4g} at width {widths[best]}."
    first, peak, second = (
        f"{found[f'{name} error']:.4g} at width {found[name]}" for name in ("first", "peak", "second")
    )
    return f"Double descent: the test error falls to {first}, rises to {peak} and falls to {second}."
