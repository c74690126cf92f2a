"""Brain-inspired modular training: networks with few and short connections, on formulas with known structure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lawful._json import MaxLength, Range, Requires
from lawful.data import Batch, SequentialBatches, fingerprint
from lawful.inference import Ensemble
from lawful.inference.ensemble import mean_values
from lawful.inference.metrics.intervals import bootstrap
from lawful.laws import Claim, batch_independence, shape
from lawful.losses.regularization import affine_layers, grid_positions, line_positions
from lawful.models import MLP, SpatialMLP
from lawful.probe import figures
from lawful.recipes.optimization import OptimizationConfig, _NonNegative, _PositiveInt, _Steps
from lawful.training import Recipe, Run, TrainingSetup
from lawful.training.registry import _check_parameter_count


@dataclass(frozen=True, kw_only=True)
class FormulaTask:
    """Formulas to learn, and the settings of the paper."""

    in_dim: int
    formulas: tuple[str, ...]
    values: Callable[[Tensor], tuple[Tensor, ...]]
    """Maps the input columns to the values of the formulas."""
    hidden_dims: tuple[int, ...] = (20, 20)
    increase: float = 10.0
    """Factor of the penalty after a quarter of the steps."""
    decrease: float = 10.0
    """Divisor of the penalty after three quarters of the steps."""
    published: float
    """Test loss of the paper, with one seed and 100 test examples."""


_TASKS: Mapping[str, FormulaTask] = {
    "independence": FormulaTask(
        in_dim=4,
        formulas=("(a + c)³", "b² + sin πd"),
        values=lambda x: ((x[0] + x[2]) ** 3, x[1] ** 2 + (torch.pi * x[3]).sin()),
        published=7.4e-3,
    ),
    "feature-sharing": FormulaTask(
        in_dim=3,
        formulas=("a²", "a² + b²", "a² + b² + c²"),
        values=lambda x: tuple(x.square().cumsum(0)),
        published=8.5e-5,
    ),
    "compositionality": FormulaTask(
        in_dim=4,
        formulas=("√((a - b)² + (c - d)²)",),
        values=lambda x: (torch.hypot(x[0] - x[1], x[2] - x[3]),),
        hidden_dims=(20, 20, 20, 20),
        increase=3.0,
        decrease=1.0,
        published=1.3e-3,
    ),
}
"""The three tasks of the paper."""

_NUM_TEST_EXAMPLES = 10_000
_CONNECTION_THRESHOLD = 0.01
"""Smallest size of a connection, relative to the largest weight of its layer."""


class _CountingSpatialMLP(SpatialMLP):
    """A `SpatialMLP` that counts training steps: swaps and the penalty depend on them."""

    steps: Tensor

    def __init__(self, model: nn.Module, *, place: Callable[[int], Tensor], gap: float, order: float) -> None:
        super().__init__(model, place=place, gap=gap, order=order)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))


@dataclass(frozen=True)
class ModularData:
    """The network before training, and the examples."""

    initial_model: _CountingSpatialMLP
    train: Batch
    test: Batch


@dataclass(frozen=True, kw_only=True)
class ModularRecipe(OptimizationConfig, Recipe[ModularData]):
    """Train a network on a formula by Brain-Inspired Modular Training, which favors few and short connections."""

    name: ClassVar[str] = "modular"

    task: Literal["independence", "feature-sharing", "compositionality"] = "independence"
    """Formula to learn. independence: (a + c)³ and b² + sin πd; feature-sharing: a², a² + b² and a² + b² + c²;
    compositionality: the distance of two points."""
    hidden_dims: Annotated[tuple[Annotated[int, Range(1, 10**4)], ...] | None, MaxLength(100)] = None
    """Width of each hidden layer. Defaults to 20 units in each of two or four layers, as in the paper."""
    num_examples: Annotated[int, Range(1, 10**7)] = 100
    """Number of training examples, uniform in [-1, 1]."""
    batch_size: _PositiveInt | None = None
    """Examples per step. Defaults to all of them."""
    locality_penalty: _NonNegative = 1e-3
    """Weight of the penalty on long connections in the first quarter of the steps; it rises afterwards."""
    swap_every: Annotated[int, Range(0, 10**8)] = 200
    """Steps between swaps of units; 0 disables."""
    swap_candidates: Annotated[int, Range(1, 10**4), Requires(swap_every=True)] = 5
    """Number of units per layer, those with the largest weights, that are candidates for a swap."""
    layout: Literal["line", "grid"] = "line"
    """Positions of the units of a layer."""
    layer_gap: Annotated[float, Range(0, 1e6)] = 0.1
    """Distance between layers; a layer has width 1."""
    distance_order: Annotated[float, Range(1, 1e6)] = 1.0
    """Order of the norm of distances: 2 is Euclidean, 1 is used in the paper's code."""
    num_members: Annotated[int, Range(1, 100)] = 1
    """Number of models in the ensemble, with consecutive seeds."""
    steps: _Steps = 20_000
    learning_rate: _NonNegative | None = 2e-3
    weight_decay: _NonNegative = 0.0
    schedule: Literal["one-cycle", "cosine", "linear", "constant", "warmup-stable-decay"] = "constant"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.swap_every and self.parallel == "sharded":
            raise ValueError("swaps need complete weights: use parallel=data or swap_every=0")

    def setup(self) -> TrainingSetup[ModularData]:
        """Draws the examples and builds the network."""
        _check_parameter_count([self._build_network])
        model = self._build_network()
        train, test = self._draw_examples()
        batches = SequentialBatches(*train, batch_size=min(self.batch_size or self.num_examples, self.num_examples))
        steps = self.num_steps(len(batches))
        step = self.optimizer_step(model, partial(self._loss, steps=steps), steps=steps, params=model.parameters())

        def swap(model: nn.Module) -> None:
            network = _spatial(model)
            network.steps += 1
            if self.swap_every and int(network.steps) % self.swap_every == 0:
                network.swap(max_swaps=self.swap_candidates, optimizer=step.optimizer)

        return TrainingSetup(
            model=model,
            optimizer_steps=[step],
            batches=batches,
            steps=steps,
            evaluate=partial(_evaluate, test=test),
            eval_every=max(1, min(200, steps // 10)),
            monitor=None,
            constrain=swap,
            ema_decay=self.ema_decay or None,
            grad_accumulation_steps=self.grad_accumulation_steps,
            claims=self._claims,
            data_fingerprint=fingerprint(*train, *test),
            data=ModularData(deepcopy(model), train, test),
        )

    def finish(self, run: Run, setup: TrainingSetup[ModularData]) -> Mapping[str, Any]:
        """Plots the network before and after training, and returns its losses and the published one."""
        before, after = setup.data.initial_model.cpu(), setup.model.cpu()
        losses = self._test_losses(after, setup.data.test)
        if not isinstance(after, _CountingSpatialMLP):  # an ensemble: its members have their own figures
            return losses
        networks = [self._network_figure(model, title) for model, title in ((before, "before"), (after, "after"))]
        figures.save(
            figures.network_diagram(*networks, positions=after.places), run.figures / "network.png", root=run.root
        )
        with torch.no_grad():
            x, y = setup.data.train
            connections = {"before": _count_connections(before), "after": _count_connections(after)}
            own, published = (
                losses[name] for name in ("test loss, first 100 examples", "published test loss, 100 examples")
            )
            return {
                "summary": f"{connections['after']} of {connections['before']} connections are left. The loss "
                f"on 100 test examples is {own:.4g}; the published one is {published:.4g}.",
                "train loss": float(F.mse_loss(after(x), y)),
                **losses,
                "penalty": {"before": float(before.locality()), "after": float(after.locality())},
                "connections": connections,
            }

    def build_model(self, model_config: Mapping[str, Any]) -> nn.Module:
        """Rebuilds the model of a run, without its weights."""
        _check_parameter_count([self._build_network], copies=self.num_members)
        return self.combine([self._build_network() for _ in range(self.num_members)])

    def ensemble_members(self) -> Sequence[ModularRecipe]:
        """Returns the recipes of the members of an ensemble, or nothing for one network."""
        return [] if self.num_members == 1 else replace(self, num_members=1).with_seeds(self.num_members)

    def combine(self, models: Sequence[nn.Module]) -> nn.Module:
        """Combines the members of an ensemble."""
        return models[0] if len(models) == 1 else Ensemble(models, average=mean_values)

    def _build_network(self) -> _CountingSpatialMLP:
        task = _TASKS[self.task]
        hidden_dims = task.hidden_dims if self.hidden_dims is None else self.hidden_dims
        mlp = MLP(task.in_dim, len(task.formulas), hidden_dims=hidden_dims, activation=F.silu)
        place = line_positions if self.layout == "line" else grid_positions
        return _CountingSpatialMLP(mlp, place=place, gap=self.layer_gap, order=self.distance_order)

    def _draw_examples(self) -> tuple[Batch, Batch]:
        """Training and test examples; for a seed they equal the examples of the paper's code."""
        task = _TASKS[self.task]
        random = np.random.RandomState(self.seed % 2**32)
        x = 2 * torch.from_numpy(random.rand(self.num_examples + _NUM_TEST_EXAMPLES, task.in_dim)) - 1
        y = torch.stack(task.values(x.T), dim=1)
        sizes = [self.num_examples, _NUM_TEST_EXAMPLES]
        (x, x_test), (y, y_test) = (part.float().split(sizes) for part in (x, y))
        return (x, y), (x_test, y_test)

    def _penalty_weight(self, step: int, steps: int) -> float:
        task = _TASKS[self.task]
        weight = self.locality_penalty * (task.increase if step >= steps // 4 else 1.0)
        return weight / (task.decrease if step >= 3 * steps // 4 else 1.0)

    def _loss(self, model: nn.Module, batch: Batch, steps: int) -> dict[str, Tensor]:
        """Mean squared error with the locality penalty, which includes biases in the last quarter of the steps."""
        (x, y), network = batch, _spatial(model)
        step = int(network.steps)
        error, penalty = F.mse_loss(model(x), y), network.locality(bias=step >= 3 * steps // 4)
        return {"loss": error + self._penalty_weight(step, steps) * penalty, "error": error, "penalty": penalty}

    @torch.no_grad()
    def _test_losses(self, model: nn.Module, test: Batch) -> dict[str, Any]:
        x, y = test
        errors = (model(x) - y).square().mean(1)
        return {
            "test loss": bootstrap(torch.mean, errors).json(),
            "test loss, first 100 examples": float(errors[:100].mean()),
            "published test loss, 100 examples": _TASKS[self.task].published,
        }

    def _network_figure(self, model: SpatialMLP, title: str) -> figures.Network:
        inputs, outputs = "abcd", _TASKS[self.task].formulas
        return figures.Network(
            weights=[layer.weight for layer in affine_layers(model)],
            inputs=[inputs[i] for i in model.inputs],
            outputs=[outputs[i] for i in model.outputs],
            title=title,
        )

    def _claims(self, model: nn.Module) -> Iterator[Claim]:
        """The network treats examples independently."""
        yield Claim(batch_independence(), model, shape(f"b {_TASKS[self.task].in_dim}"), name=self.task)


def _count_connections(model: SpatialMLP) -> int:
    """Counts the weights that are at least 1 % of the largest weight of their layer."""
    weights = [layer.weight.detach().abs() for layer in affine_layers(model)]
    return sum(int((w > _CONNECTION_THRESHOLD * w.max()).sum()) for w in weights)


@torch.no_grad()
def _evaluate(model: nn.Module, test: Batch) -> dict[str, float]:
    x, y = (tensor.to(model.get_buffer("steps").device) for tensor in test)
    return {"error": float(F.mse_loss(model(x), y))}


def _spatial(model: nn.Module) -> _CountingSpatialMLP:
    if not isinstance(model, _CountingSpatialMLP):
        raise TypeError(f"expected a CountingSpatialMLP, got {type(model).__name__}")
    return model
