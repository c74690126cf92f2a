"""N-body: particles from one state to a later one, by equivariant and other graph networks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful._json import Config, MaxLength, Range, Requires, Tagged, is_default, require_int
from lawful.checking.formatting import format_number
from lawful.data import (
    Batch,
    ShuffledBatches,
    Trajectories,
    fingerprint,
    make_generator,
    read_trajectories,
    simulate_charged_particles,
)
from lawful.groups import Orthogonal, Translation
from lawful.inference.metrics.intervals import bootstrap
from lawful.laws import Claim, equivariance, permutation_equivariance, transformed
from lawful.models import (
    EGNNDynamics,
    GNNDynamics,
    GramDynamics,
    LinearDynamics,
    ParticleModel,
    RadialFieldDynamics,
)
from lawful.probe import figures
from lawful.recipes.optimization import OptimizationConfig, _Decay, _NonNegative, _PositiveInt, _Steps, _WarmupRatio
from lawful.training import Recipe, Run, TrainingSetup, compare_with_baselines
from lawful.training.registry import _check_parameter_count

_SIMULATED = "charged-particles"
"""Name of the built-in simulation."""
_SIMULATED_FRAME, _SAVE_EVERY, _DT = 30, 100, 1e-3
"""Input frame, steps between frames and time step of the simulation, as in the paper."""
_FEW = 5
"""With fewer trajectories, the splits are parts of the time."""
_MAX_EVALUATED, _NUM_PATHS, _NUM_ELEMENTS, _EVALUATED_AT_ONCE = 2000, 6, 4, 500
"""Largest number of examples of an evaluation; trajectories of the figure; group elements for an error; batch size."""
_REACH = 3.0
"""Largest length and speed of a law's inputs, in units of the training data."""

_Width = Annotated[int, Range(1, 10**5)]
_Layers = Annotated[int, Range(1, 1000)]


@dataclass(frozen=True, kw_only=True)
class EGNNDynamicsSpec(Config, Tagged):
    """E(n)-equivariant graph network, also equivariant under permutations of the particles."""

    name: ClassVar[str] = "egnn"
    learning_rate: ClassVar[float] = 2e-3

    dim: _Width = 64
    """Width of the features."""
    num_layers: _Layers = 4
    """Number of layers."""

    def build(self, space_dim: int, edge_dim: int) -> nn.Module:
        """Builds the network."""
        return EGNNDynamics(dim=self.dim, num_layers=self.num_layers, edge_dim=edge_dim)


@dataclass(frozen=True, kw_only=True)
class GramDynamicsSpec(Config, Tagged):
    """Messages from all inner products of differences and velocities, equivariant like EGNN."""

    name: ClassVar[str] = "gram"
    learning_rate: ClassVar[float] = 2e-3

    dim: _Width = 64
    """Width of the features."""
    num_layers: _Layers = 4
    """Number of layers."""
    num_vectors: Annotated[int, Range(1, 100)] = 2
    """Number of vectors per particle inside."""

    def build(self, space_dim: int, edge_dim: int) -> nn.Module:
        """Builds the network."""
        return GramDynamics(dim=self.dim, num_layers=self.num_layers, num_vectors=self.num_vectors, edge_dim=edge_dim)


@dataclass(frozen=True, kw_only=True)
class RadialFieldSpec(Config, Tagged):
    """Forces between pairs of particles, along their difference, that depend on their distance only."""

    name: ClassVar[str] = "radial-field"
    learning_rate: ClassVar[float] = 2e-3

    hidden_dim: _Width = 64
    """Width of the hidden layers."""
    num_layers: _Layers = 4
    """Number of layers."""

    def build(self, space_dim: int, edge_dim: int) -> nn.Module:
        """Builds the network."""
        return RadialFieldDynamics(hidden_dim=self.hidden_dim, num_layers=self.num_layers, edge_dim=edge_dim)


@dataclass(frozen=True, kw_only=True)
class GNNDynamicsSpec(Config, Tagged):
    """Message passing on the coordinates: equivariant under permutations only."""

    name: ClassVar[str] = "gnn"
    learning_rate: ClassVar[float] = 1e-3

    dim: _Width = 64
    """Width of the features."""
    num_layers: _Layers = 4
    """Number of layers."""

    def build(self, space_dim: int, edge_dim: int) -> nn.Module:
        """Builds the network."""
        return GNNDynamics(space_dim=space_dim, dim=self.dim, num_layers=self.num_layers, edge_dim=edge_dim)


@dataclass(frozen=True, kw_only=True)
class LinearDynamicsSpec(Config, Tagged):
    """Equivariant linear model, by least squares."""

    name: ClassVar[str] = "linear"
    closed_form: ClassVar[bool] = True

    def build(self, space_dim: int, edge_dim: int) -> nn.Module:
        """Builds the model."""
        return LinearDynamics()


_DynamicsSpec = EGNNDynamicsSpec | GramDynamicsSpec | RadialFieldSpec | GNNDynamicsSpec | LinearDynamicsSpec
_NAMES = {"egnn": "the EGNN", "gram": "the Gram network", "radial-field": "the radial field", "gnn": "the GNN"}
"""Names of models in sentences."""


@dataclass(frozen=True)
class ParticleStates:
    """States of particles, and their positions `horizon` frames later."""

    positions: Float[Tensor, "b n d"]
    velocities: Float[Tensor, "b n d"]
    targets: Float[Tensor, "b n d"]
    charges: Float[Tensor, "b n"] | None = None

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Positions, velocities, targets, and the charges if there are charges."""
        found = self.positions, self.velocities, self.targets
        return found if self.charges is None else (*found, self.charges)

    def spread(self, most: int) -> ParticleStates:
        """Returns at most that many states, evenly spaced."""
        rows = torch.linspace(0, len(self) - 1, min(len(self), most)).round().long()
        return ParticleStates(*(tensor[rows] for tensor in self.tensors))


@dataclass(frozen=True)
class NBodyData:
    """States for training, validation and the test."""

    train: ParticleStates
    validation: ParticleStates
    test: ParticleStates
    paths: Float[Tensor, "k frames n d"]
    """Some test trajectories, from the input to the target."""
    time_step: float
    """Time between frames, in the unit of the velocities."""

    @property
    def edge_dim(self) -> int:
        """Features of pairs of particles: charges of equal size need only their products."""
        charges = self.train.charges
        if charges is None:
            return 0
        return 1 if float(charges.abs().amax() - charges.abs().amin()) < 1e-6 * float(charges.abs().amax()) else 3


@dataclass(frozen=True, kw_only=True)
class NBodyRecipe(OptimizationConfig, Recipe[NBodyData]):
    """Train an equivariant network to predict the motion of particles: simulated charges or your own trajectories."""

    name: ClassVar[str] = "nbody"

    model: _DynamicsSpec = field(default_factory=EGNNDynamicsSpec)
    """Model architecture."""
    data: Annotated[str, MaxLength(4096)] = _SIMULATED
    """charged-particles: simulated charges as in the EGNN paper; or an NPZ file with positions and velocities of shape
    (trajectories, frames, particles, dimensions), and optionally charges of shape (trajectories, particles)."""
    num_trajectories: Annotated[int, Range(10, 10**6), Requires(data=(_SIMULATED,))] = 4000
    """Number of simulated trajectories."""
    num_particles: Annotated[int, Range(1, 1000), Requires(data=(_SIMULATED,))] = 5
    """Number of simulated particles."""
    space_dim: Annotated[int, Range(1, 9), Requires(data=(_SIMULATED,))] = 3
    """Dimension of the simulated space."""
    horizon: Annotated[int, Range(1, 10**6)] = 10
    """Number of frames to predict ahead."""
    input_frame: Annotated[int, Range(0, 10**6)] | None = None
    """Frame to predict from. Defaults to 30 for the simulation, as in the paper, and to every frame of a file."""
    test_fraction: Annotated[float, Range(0.01, 0.9)] = 0.2
    """Fraction of the trajectories used for the test. With fewer than 5 trajectories, this fraction of the frames, at
    the end of each."""
    validation_fraction: Annotated[float, Range(0.01, 0.9)] = 0.1
    """Fraction of the rest used for validation."""
    split_seed: Annotated[int, Range(0, 2**62)] = 0
    """Random seed of the split."""
    steps: _Steps = 1200
    batch_size: _PositiveInt | None = 100
    learning_rate: _NonNegative | None = None
    """Peak learning rate. Defaults to 1e-3 for gnn and to 2e-3 for the others."""
    weight_decay: _NonNegative = 0.0
    warmup_ratio: _WarmupRatio = 0.05
    """Fraction of the steps used for warmup, and for the decay of warmup-stable-decay."""
    grad_clip_norm: _NonNegative = 1.0
    ema_decay: _Decay = 0.99

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.model, LinearDynamicsSpec):
            for option in fields(OptimizationConfig):
                if not is_default(self, name := option.name):
                    raise ValueError(
                        f"{name} needs a model that is trained by gradient descent: model linear is fitted by least "
                        "squares"
                    )

    def setup(self) -> TrainingSetup[NBodyData]:
        """Simulates or reads the trajectories and builds the model."""
        data, notes, warnings = self._load()
        train, space_dim = data.train, data.train.positions.shape[-1]
        model = self._build(space_dim, data.edge_dim)
        if isinstance(model.network, LinearDynamics):
            model.network.fit(train.positions, train.velocities, train.targets)
        else:
            model.fit_normalizer(*train.tensors)
        batches = ShuffledBatches(*train.tensors, batch_size=self.batch_size or 100, seed=self.seed)
        optimization = self.with_defaults(learning_rate=getattr(self.model, "learning_rate", None))
        steps = 0 if isinstance(self.model, LinearDynamicsSpec) else optimization.num_steps(len(batches))
        step = optimization.optimizer_step(model, _squared_error_loss, steps=steps) if steps else None
        return TrainingSetup(
            model=model,
            optimizer_steps=[] if step is None else [step],
            batches=batches,
            steps=steps,
            evaluate=partial(_evaluate, states=data.validation.spread(_MAX_EVALUATED)),
            eval_every=max(1, steps // 10),
            restore_best=steps > 0,
            ema_decay=self.ema_decay or None,
            grad_accumulation_steps=self.grad_accumulation_steps,
            claims=partial(_claims, space_dim=space_dim),
            model_config={"space_dim": space_dim, "edge_dim": data.edge_dim},
            data_fingerprint=fingerprint(*train.tensors, *data.validation.tensors, *data.test.tensors),
            notes=notes,
            warnings=warnings,
            data=data,
        )

    @torch.no_grad()
    def finish(self, run: Run, setup: TrainingSetup[NBodyData]) -> Mapping[str, Any]:
        """Compares the model with constant velocity and a linear model, and measures its equivariance."""
        data, model = setup.data, _as_particle_model(setup.model).cpu()
        test = data.test.spread(_MAX_EVALUATED)
        predicted = predict_positions(model, test)
        error = bootstrap(torch.mean, _squared_errors(predicted, test)).json()
        linear = LinearDynamics().fit(data.train.positions, data.train.velocities, data.train.targets)
        fitted = {} if isinstance(model.network, LinearDynamics) else {"linear regression": linear(*test.tensors[:2])}
        moved = test.positions + self.horizon * data.time_step * test.velocities
        baselines = {
            name: float(_squared_errors(found, test).mean())
            for name, found in {"constant velocity": moved, **fitted, "no motion": test.positions}.items()
        }
        errors = _equivariance_errors(model, test, seed=self.seed)
        paths = figures.particle_paths(data.paths, predict_positions(model, test)[: len(data.paths)])
        figures.save(paths, run.figures / "true and predicted paths.png", root=run.root)
        axes = [f"x{i + 1}" for i in range(test.positions.shape[-1])]
        scatter = figures.predicted_vs_actual(predicted.flatten(0, 1), test.targets.flatten(0, 1), names=axes)
        figures.save(scatter, run.figures / "predicted and true positions.png", root=run.root)
        metric, name = "test mean squared error of the positions", _NAMES.get(self.model.name, "the linear model")
        sentence = compare_with_baselines(metric, error, baselines, higher_is_better=False, model=name)
        turned = format_number(errors["rotations and reflections"])
        return {
            "summary": f"{sentence} Rotating the input instead of the prediction changes it by {turned} of the "
            "predicted displacement.",
            "lead_figures": ["true and predicted paths.png"],
            "test": {"mean squared error": error},
            "baselines": baselines,
            "equivariance error, relative to the displacement": errors,
            "examples": {"train": len(data.train), "validation": len(data.validation), "test": len(data.test)},
            "time between frames": data.time_step,
            "parameters": sum(p.numel() for p in model.parameters()),
            "warnings": list(setup.warnings),
        }

    def build_model(self, model_config: Mapping[str, Any]) -> nn.Module:
        """Rebuilds the model of a run, without its weights."""
        space_dim = require_int(model_config.get("space_dim"), 1, 10**4, where="model.space_dim")
        edge_dim = require_int(model_config.get("edge_dim"), 0, 3, where="model.edge_dim")
        return self._build(space_dim, edge_dim)

    def _build(self, space_dim: int, edge_dim: int) -> ParticleModel:
        _check_parameter_count([partial(self.model.build, space_dim, edge_dim)])
        return ParticleModel(self.model.build(space_dim, edge_dim), space_dim=space_dim, edge_dim=edge_dim)

    def _load(self) -> tuple[NBodyData, list[str], list[str]]:
        """Returns the states, notes and warnings."""
        if self.data == _SIMULATED:
            frame = _SIMULATED_FRAME if self.input_frame is None else self.input_frame
            found: Trajectories = simulate_charged_particles(
                self.num_trajectories,
                num_particles=self.num_particles,
                dim=self.space_dim,
                steps=(frame + self.horizon + 1) * _SAVE_EVERY + 1,
                save_every=_SAVE_EVERY,
                dt=_DT,
                seed=self.seed % 2**32,
            )
            return self._split(found, frame, _SAVE_EVERY * _DT), [], []
        try:
            found = read_trajectories(self.data)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{error}; built-in simulation: {_SIMULATED}") from None
        b, frames, n, d = found.positions.shape
        last = frames - 1 - (self.input_frame or 0)
        if last < self.horizon:
            shown = "" if self.input_frame is None else f" after input_frame {self.input_frame}"
            raise ValueError(
                f"{Path(self.data).name} has {frames} frames: horizon must be at most {max(0, last)}{shown}, got "
                f"{self.horizon}"
            )
        time_step, explained = _estimate_time_step(found)
        data = self._split(found, self.input_frame, time_step)
        states = f"{len(data.train)} training, {len(data.validation)} validation and {len(data.test)} test states"
        charges = "no charges" if found.charges is None else "charges"
        split = "parts of the time" if b < _FEW else "trajectories"
        note = (
            f"{Path(self.data).name}: {b} trajectories, {frames} frames, {n} particles, {d} dimensions, {charges}; "
            f"{states} ({split}); time between frames {format_number(time_step)}, from positions and velocities"
        )
        warnings = []
        if explained < 0.5:
            warnings.append(
                f"the velocities explain only {100 * explained:.0f} % of the motion between frames: check their order "
                "and unit"
            )
        size = float((found.positions - found.positions.mean((0, 1, 2))).square().mean().sqrt())
        if float(found.positions.abs().amax()) > 1e4 * max(size, 1e-30):
            warnings.append("the positions are far from 0 for their spread and lose digits: subtract their mean")
        return data, [note], warnings

    def _split(self, found: Trajectories, input_frame: int | None, time_step: float) -> NBodyData:
        """Divides the trajectories, or the time of a few trajectories, into three parts."""
        b, frames, h = *found.positions.shape[:2], self.horizon
        starts = torch.arange(frames - h) if input_frame is None else torch.tensor([input_frame])
        if b >= _FEW:
            order = torch.randperm(b, generator=make_generator(self.split_seed))
            parts = _three_parts(order, self.test_fraction, self.validation_fraction)
            rows = [torch.cartesian_prod(part.sort().values, starts) for part in parts]
        elif input_frame is not None:
            raise ValueError(f"input_frame needs at least {_FEW} trajectories, got {b}: leave it out")
        else:
            times = _three_parts(torch.arange(frames), self.test_fraction, self.validation_fraction)
            parts = [part[: max(0, len(part) - h)] for part in times]
            if not all(map(len, parts)):
                sizes = ", ".join(str(len(part)) for part in times)
                raise ValueError(
                    f"{b} trajectories of {frames} frames are split by time into {sizes} "
                    f"frames for training, validation and test, each needs more than horizon={h}: lower horizon"
                )
            rows = [torch.cartesian_prod(torch.arange(b), part) for part in parts]
        train, validation, test = (_states(found, part, h) for part in rows)
        chosen = rows[2][torch.linspace(0, len(rows[2]) - 1, min(len(rows[2]), _MAX_EVALUATED)).round().long()]
        paths = torch.stack([found.positions[i, k : k + h + 1] for i, k in chosen[:_NUM_PATHS].tolist()])
        return NBodyData(train, validation, test, paths, time_step)


def _three_parts(x: Tensor, test_fraction: float, validation_fraction: float) -> tuple[Tensor, Tensor, Tensor]:
    """Splits into training, validation and test, each with at least one entry."""
    test = min(max(1, round(test_fraction * len(x))), len(x) - 2)
    validation = min(max(1, round(validation_fraction * (len(x) - test))), len(x) - test - 1)
    train, validate, rest = x.split([len(x) - test - validation, validation, test])
    return train, validate, rest


def _states(found: Trajectories, rows: Tensor, horizon: int) -> ParticleStates:
    """Returns the states of trajectories at frames."""
    i, k = rows.unbind(1)
    charges = None if found.charges is None else found.charges[i]
    return ParticleStates(found.positions[i, k], found.velocities[i, k], found.positions[i, k + horizon], charges)


def _estimate_time_step(found: Trajectories) -> tuple[float, float]:
    """Returns the time between frames, and the fraction of the motion between frames that velocities explain."""
    moved = found.positions.diff(dim=1).double().flatten()
    v = ((found.velocities[:, 1:] + found.velocities[:, :-1]) / 2).double().flatten()
    total, power = float(moved @ moved), float(v @ v)
    if not total or not power:
        return 1.0, 1.0
    along = float(moved @ v)
    return along / power, max(0.0, along) ** 2 / (total * power)


# ---------------------------------------------------------------- losses and errors


def _as_particle_model(model: nn.Module) -> ParticleModel:
    if not isinstance(model, ParticleModel):
        raise TypeError(f"expected a ParticleModel, got {type(model).__name__}")
    return model


def _squared_error_loss(model: nn.Module, batch: Batch) -> Tensor:
    """Mean squared error, in units of the mean squared displacement."""
    x, v, target, *charges = batch
    return (model(x, v, *charges) - target).square().mean() / model.get_buffer("displacement").square()


@torch.no_grad()
def predict_positions(model: ParticleModel, states: ParticleStates) -> Float[Tensor, "b n d"]:
    """Predicts the later positions of states, a part at a time.

    Args:
        model: Trained model.
        states: States.
    """
    parts = []
    for x, v, _, *charges in zip(*(tensor.split(_EVALUATED_AT_ONCE) for tensor in states.tensors), strict=True):
        parts.append(model(*(tensor.to(model.center.device) for tensor in (x, v, *charges))).cpu())
    return torch.cat(parts)


def _squared_errors(found: Tensor, states: ParticleStates) -> Float[Tensor, " b"]:
    """Squared error of each state, a mean over particles and axes as in the paper."""
    return (found - states.targets).square().mean((1, 2))


def _evaluate(model: nn.Module, states: ParticleStates) -> dict[str, float]:
    found = _as_particle_model(model)
    error = float(_squared_errors(predict_positions(found, states), states).mean())
    return {"loss": error / float(found.displacement) ** 2, "mean squared error": error}


def _equivariance_errors(model: ParticleModel, states: ParticleStates, *, seed: int) -> dict[str, float]:
    """Root mean square of the difference between moving the input and the output, relative to the displacement."""
    states = states.spread(_EVALUATED_AT_ONCE)
    x, v, center, (_, n, d) = states.positions, states.velocities, model.center, states.positions.shape
    y, generator = predict_positions(model, states), make_generator(seed, 1)
    squares = dict.fromkeys(("rotations and reflections", "translations", "permutations"), 0.0)
    for _ in range(_NUM_ELEMENTS):
        r = Orthogonal(d).sample(generator=generator)
        t = float(model.length) * torch.randn(d, generator=generator)
        order = torch.randperm(n, generator=generator)
        charges = None if states.charges is None else states.charges[:, order]
        pairs = {
            "rotations and reflections": (
                replace(states, positions=(x - center) @ r.mT + center, velocities=v @ r.mT),
                (y - center) @ r.mT + center,
            ),
            "translations": (replace(states, positions=x + t), y + t),
            "permutations": (
                ParticleStates(x[:, order], v[:, order], states.targets[:, order], charges),
                y[:, order],
            ),
        }
        for name, (moved, expected) in pairs.items():
            squares[name] += float((predict_positions(model, moved) - expected).square().mean()) / _NUM_ELEMENTS
    scale = float((y - x).square().mean())
    return {name: (square / scale) ** 0.5 if scale else square**0.5 for name, square in squares.items()}


def _claims(model: nn.Module, *, space_dim: int) -> Iterator[Claim]:
    """Symmetries that the model has by construction, on states as large as those of the training data."""
    found = _as_particle_model(model)
    length, speed, charge = (_REACH * float(found.get_buffer(name)) for name in ("length", "speed", "charge"))
    positions = transformed(lambda x: length * x.tanh(), f"b n:1..4 {space_dim}")
    velocities = transformed(lambda x: speed * x.tanh(), f"b n:1..4 {space_dim}")
    one_size = found.edge_dim == 1
    charges = transformed(lambda x: charge / _REACH * (torch.where(x < 0, -1.0, 1.0) if one_size else x.tanh()), "b n")
    inputs = (positions, velocities, charges) if found.edge_dim else (positions, velocities)
    centered = partial(_about_center, found)
    yield Claim(permutation_equivariance(axis=1), centered, inputs, name="particles")
    if not isinstance(found.network, GNNDynamics):
        rotations = equivariance(group=Orthogonal(space_dim), axis=-1, input=(0, 1))
        yield Claim(rotations, centered, inputs, name="rotations and reflections")
        translations = equivariance(group=Translation(space_dim), axis=-1, input=0)
        yield Claim(translations, centered, inputs, name="translations")


def _about_center(model: ParticleModel, x: Tensor, v: Tensor, *charges: Tensor) -> Tensor:
    """The model with the center of the training data as the origin."""
    center = model.center.to(x)
    return model(x + center, v, *charges) - center
