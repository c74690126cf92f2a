"""Formulas to learn: what a network that is laid out well shows the structure of.

Modular: networks that learn formulas with few and short connections, so that their parts can be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from lawful.data import Batch, SequentialBatches, fingerprint
from lawful.inference import Ensemble
from lawful.inference.ensemble import mean
from lawful.inference.metrics.intervals import bootstrap
from lawful.laws import Claim, batch_independence, shape
from lawful.losses.regression import squared_error
from lawful.losses.regularization import affine_layers, on_a_grid, on_a_line
from lawful.models import MLP, MLPConfig, SpatialMLP
from lawful.optim import adamw
from lawful.probe import figures
from lawful.recipes.model_size import check_parameter_count
from lawful.training import MaxLength, OptimizerStep, Range, Run, TrainerConfig, TrainingSetup, seeded, validate


@dataclass(frozen=True, kw_only=True)
class FormulaTask:
    """A formula to learn, and how its authors trained it."""

    inputs: int
    formulas: tuple[str, ...]
    values: Callable[[Tensor], tuple[Tensor, ...]]
    """From the columns to the values of the formulas."""
    hidden: tuple[int, ...] = (20, 20)
    rise: float = 10.0
    """By how much the penalty counts more from a quarter of the steps on."""
    fall: float = 10.0
    """By how much it counts less from three quarters on."""
    published: float
    """The test loss that the authors got, with one seed and 100 test examples."""


TASKS: Mapping[str, FormulaTask] = {
    "independence": FormulaTask(
        inputs=4,
        formulas=("(a + c)³", "b² + sin πd"),
        values=lambda x: ((x[0] + x[2]) ** 3, x[1] ** 2 + (torch.pi * x[3]).sin()),
        published=7.4e-3,
    ),
    "feature-sharing": FormulaTask(
        inputs=3,
        formulas=("a²", "a² + b²", "a² + b² + c²"),
        values=lambda x: tuple(x.square().cumsum(0)),
        published=8.5e-5,
    ),
    "compositionality": FormulaTask(
        inputs=4,
        formulas=("√((a - b)² + (c - d)²)",),
        values=lambda x: (torch.hypot(x[0] - x[1], x[2] - x[3]),),
        hidden=(20, 20, 20, 20),
        rise=3.0,
        fall=1.0,
        published=1.3e-3,
    ),
}
"""The three formulas of the paper."""


TESTS = 10_000
"""The number of test examples."""
SEEN = 0.01
"""How large a weight is, relative to the largest of its layer, to count as a connection."""

Width = Annotated[int, Range(1, 10**4)]
NotNegative = Annotated[float, Range(0, 1e30)]


class Counting(SpatialMLP):
    """A laid-out network that knows how many steps it has been trained for: swaps and the penalty depend on it."""

    steps: Tensor

    def __init__(self, model: nn.Module, *, place: Callable[[int], Tensor], gap: float, order: float) -> None:
        super().__init__(model, place=place, gap=gap, order=order)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))


@dataclass(frozen=True, kw_only=True)
class Watched(TrainingSetup):
    """A training that remembers the model before its first step, and its examples."""

    before: Counting
    train: Batch
    test: Batch


@dataclass(frozen=True, kw_only=True)
class ModularRecipe:
    """Train a network on a formula so that few and short connections are left: Brain-Inspired Modular Training."""

    name: ClassVar[str] = "modular"

    task: Literal["independence", "feature-sharing", "compositionality"] = "independence"
    """(a + c)³ and b² + sin πd, which share nothing; a², a² + b² and a² + b² + c²; or the distance of two points."""
    hidden: Annotated[tuple[Width, ...] | None, MaxLength(100)] = None
    """The width of each hidden layer; by default that of the paper, 20 in two layers or in four."""
    steps: Annotated[int, Range(1, 10**8)] = 20_000
    """The number of steps, each on all examples."""
    examples: Annotated[int, Range(1, 10**7)] = 100
    """The number of training examples, drawn evenly from -1 to 1."""
    learning_rate: NotNegative = 2e-3
    """The length of a step."""
    penalty: NotNegative = 1e-3
    """The factor of the penalty in the first quarter of the steps; it is raised for the half that follows."""
    swap: Annotated[int, Range(0, 10**8)] = 200
    """Steps from one round of swaps to the next; 0 for none."""
    most: Annotated[int, Range(1, 10**4)] = 5
    """How many units of a layer, those with the largest weights, look for another place in a round."""
    places: Literal["line", "grid"] = "line"
    """How the units of a layer are placed."""
    gap: Annotated[float, Range(0, 1e6)] = 0.1
    """How far a layer is above the one before; layers are 1 wide."""
    order: Annotated[float, Range(1, 1e6)] = 1.0
    """The exponent of the distance: 2 is the Euclidean one, 1 that of the paper's code."""
    seeds: Annotated[int, Range(1, 100)] = 1
    """How many networks, each with first weights and examples of its own; what they say is averaged."""
    engine: TrainerConfig = field(default_factory=TrainerConfig)

    def __post_init__(self) -> None:
        validate(self)
        if self.swap and self.engine.parallel == "sharded":
            raise ValueError("swaps want whole weights: parallel is data, or swap is 0: got sharded")

    def training(self) -> Watched:
        """Draws the examples and builds the network."""
        model = self.built()
        train, test = self.drawn()
        optimizer = adamw(model.parameters(), lr=self.learning_rate, weight_decay=0.0)

        def constrain(model: nn.Module) -> None:
            if not isinstance(model, Counting):
                raise TypeError(f"a laid-out network was wanted: got {type(model).__name__}")
            model.steps += 1
            if self.swap and int(model.steps) % self.swap == 0:
                model.swap(most=self.most, optimizer=optimizer)

        return Watched(
            model=model,
            turns=[OptimizerStep(objective=self.objective, optimizer=optimizer)],
            batches=SequentialBatches(*train, size=self.examples),
            steps=self.steps,
            evaluate=lambda model: self.evaluated(model, test),
            every=max(1, min(200, self.steps // 10)),
            watch=None,
            constrain=constrain,
            claims=self.claims,
            fingerprint=fingerprint(*train, *test),
            before=deepcopy(model),
            train=train,
            test=test,
        )

    def finish(self, run: Run, training: TrainingSetup) -> Mapping[str, Any]:
        """Draws the network before and after, and returns its losses beside the published one."""
        if not isinstance(training, Watched):
            return {}
        before, after = training.before.cpu(), training.model.cpu()
        losses = self.tested(after, training.test)
        if not isinstance(after, Counting):  # an ensemble, whose members have been drawn
            return losses
        drawn = [self.network(model, title) for model, title in ((before, "before"), (after, "after"))]
        figures.save(figures.laid_out(*drawn, places=after.places), run.figures / "network.png")
        with torch.no_grad():
            x, y = training.train
            return {
                "train loss": float(squared_error(after(x), y)),
                **losses,
                "penalty": {"before": float(before.locality()), "after": float(after.locality())},
                "connections": {"before": connections(before), "after": connections(after)},
            }

    def restored(self, facts: Mapping[str, Any]) -> nn.Module:
        """Builds the model of a run, before its weights are put in."""
        check_parameter_count([self.sized], copies=self.seeds)
        return self.combined([self.sized() for _ in range(self.seeds)])

    def members(self) -> list[ModularRecipe]:
        """The recipes of the members; none where there is one network only."""
        return [] if self.seeds == 1 else seeded(replace(self, seeds=1), self.seeds)

    def combined(self, models: Sequence[nn.Module]) -> nn.Module:
        """Makes one model of the members of an ensemble."""
        return models[0] if len(models) == 1 else Ensemble(models, average=mean)

    # ------------------------------------------------------------ the parts

    def built(self) -> Counting:
        """The network with its units at their first places."""
        check_parameter_count([self.sized])
        return self.sized()

    def sized(self) -> Counting:
        task = TASKS[self.task]
        hidden = task.hidden if self.hidden is None else self.hidden
        sizes = MLPConfig(d_in=task.inputs, d_out=len(task.formulas), hidden=hidden, activation=nn.functional.silu)
        place = on_a_line if self.places == "line" else on_a_grid
        return Counting(MLP(sizes), place=place, gap=self.gap, order=self.order)

    def drawn(self) -> tuple[Batch, Batch]:
        """Examples to train on and to test with; those of a seed are the ones that the authors' code draws."""
        task = TASKS[self.task]
        random = np.random.RandomState(self.engine.seed % 2**32)
        x = 2 * torch.from_numpy(random.rand(self.examples + TESTS, task.inputs)) - 1
        y = torch.stack(task.values(x.T), dim=1)
        (x, x_test), (y, y_test) = (part.float().split([self.examples, TESTS]) for part in (x, y))
        return (x, y), (x_test, y_test)

    def strength(self, step: int) -> float:
        """The factor of the penalty at a step."""
        task, quarter = TASKS[self.task], self.steps // 4
        risen = self.penalty * (task.rise if step >= quarter else 1.0)
        return risen / (task.fall if step >= 3 * self.steps // 4 else 1.0)

    def objective(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """The squared error and the penalty, which spares biases until three quarters of the steps are done."""
        if not isinstance(model, Counting):
            raise TypeError(f"a laid-out network was wanted: got {type(model).__name__}")
        (x, y), step = batch, int(model.steps)
        error, penalty = squared_error(model(x), y), model.locality(bias=step >= 3 * self.steps // 4)
        return {"loss": error + self.strength(step) * penalty, "error": error, "penalty": penalty}

    @torch.no_grad()
    def tested(self, model: nn.Module, test: Batch) -> dict[str, Any]:
        """The loss on the test, beside the published one."""
        x, y = test
        errors = (model(x) - y).square().mean(1)
        return {
            "test loss": bootstrap(torch.mean, errors).json(),
            "test loss, first 100": float(errors[:100].mean()),
            "published test loss, 100 examples": TASKS[self.task].published,
        }

    @torch.no_grad()
    def evaluated(self, model: nn.Module, test: Batch) -> dict[str, float]:
        """The error on the test."""
        x, y = (tensor.to(model.get_buffer("steps").device) for tensor in test)
        return {"error": float(squared_error(model(x), y))}

    def network(self, model: SpatialMLP, title: str) -> figures.Network:
        """The network as it is drawn, with its ends named as they are placed."""
        inputs, outputs = ("abcd", TASKS[self.task].formulas)
        return figures.Network(
            weights=[layer.weight for layer in affine_layers(model)],
            inputs=[inputs[i] for i in model.inputs],
            outputs=[outputs[i] for i in model.outputs],
            title=title,
        )

    def claims(self, model: nn.Module) -> Iterator[Claim]:
        """What the network is to keep: examples do not mix."""
        yield Claim(batch_independence(), model, shape(f"b {TASKS[self.task].inputs}"), name=self.task)


def connections(model: SpatialMLP) -> int:
    """How many weights are not small beside the largest of their layer."""
    weights = [layer.weight.detach().abs() for layer in affine_layers(model)]
    return sum(int((w > SEEN * w.max()).sum()) for w in weights)
