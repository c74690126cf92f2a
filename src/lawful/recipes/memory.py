"""Memory: the past of a signal from a few numbers, by HiPPO and by a trained state-space layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful._json import MaxLength, Range, Requires, require_int
from lawful.blocks import S4D, Standardize
from lawful.checking.formatting import format_number
from lawful.data import Batch, ShuffledBatches, fill_missing, fingerprint, make_generator, read_series
from lawful.functions import HIPPO_OPERATORS, HiPPOMemory, hippo_memory, pca_axes
from lawful.laws import Claim, affinity, agreement, batch_independence, shape
from lawful.probe import figures, spectrum
from lawful.recipes.optimization import OptimizationConfig, _NonNegative, _PositiveInt, _Steps
from lawful.training import Recipe, Run, TrainingSetup, compare_with_baselines
from lawful.training.registry import _check_parameter_count

_BAND_LIMITED, _NUM_WAVES = "band-limited", 32
"""Name of the built-in signals, and the number of sine waves in each."""
_MAX_LENGTH, _SIZES = 1000, (8, 16, 32, 64)
"""Largest default length of a history, and the default sizes."""
_NUM_HISTORIES = (1024, 256, 32)
"""Largest numbers of histories for training, validation and the test."""
_MAX_DRAWN = 10_000
"""Largest number of samples in a figure."""
_SMALL_ERROR, _FASTER = 0.05, 1.5
"""Relative error below which a history counts as remembered; factor of the frequency of other test signals."""
_PENALTIES = tuple(10.0**k for k in range(-14, 1, 2))
"""Ridge penalties of the readout, relative to the largest variance of the states."""
_LAYER, _RECENT = "state-space layer", ", recent past"

_Operator = Literal["legs", "legt", "lagt", "fourier"]
_Errors = dict[str, dict[int, float]]
"""Mean relative errors by memory and size."""


class StateSpaceMemory(nn.Module):
    r"""Reconstructs a history from the last state of a state-space layer.

    $$s_{k+1} = \bar A s_k + \bar B u_k, \qquad \hat u = W s_t + b$$

    The modes of $\bar A$ and the readout are trained. At first the modes are damped harmonics of the history.

    Args:
        length: Number of samples of a history.
        state_dim: Number of states: two for each mode. Even.

    Examples:
        >>> StateSpaceMemory(100, state_dim=8)(torch.zeros(2, 100)).shape
        torch.Size([2, 100])
    """

    def __init__(self, length: int, *, state_dim: int) -> None:
        super().__init__()
        self.ssm = S4D(1, state_dim=state_dim, dt_min=2 / length, dt_max=2 / length)
        for unused in (self.ssm.c, self.ssm.skip):  # the readout reads the states
            unused.requires_grad_(False)
        self.readout = nn.Linear(state_dim, length)

    def forward(self, x: Float[Tensor, "b t"]) -> Float[Tensor, "b t"]:
        """Reconstructs histories from their last states."""
        return self.readout(self.states(x.to(self.readout.weight.dtype)))

    def states(self, x: Float[Tensor, "b t"]) -> Float[Tensor, "b n"]:
        """Returns the last states: products of the history with the responses of the modes."""
        system = self.ssm.system()
        ages = torch.arange(x.shape[-1] - 1, -1, -1, device=x.device)
        with torch.autocast(x.device.type, enabled=False):
            responses = system.b * (system.transition.log() * ages[:, None]).exp()
            return x @ torch.view_as_real(responses).flatten(-2).to(x.dtype)

    def recurrent_states(self, x: Float[Tensor, "b t"]) -> Float[Tensor, "b n"]:
        """Returns the last states, computed sample by sample."""
        state = self.ssm.initial_state(len(x))
        for sample in x.unbind(-1):
            _, state = self.ssm.step(sample[:, None], state)
        return state.squeeze(1)

    @torch.no_grad()
    def fit_readout(self, train: Float[Tensor, "n t"], validation: Float[Tensor, "m t"]) -> None:
        """Fits the readout by ridge regression. The validation error chooses the penalty, or keeps the readout."""
        states, targets = self.states(train.float()).double(), train.double()
        mean, target_mean = states.mean(0), targets.mean(0)
        u, s, v = torch.linalg.svd(states - mean, full_matrices=False)
        projected, largest = u.mT @ (targets - target_mean), s.square().max().clamp_min(1e-300)
        candidates = [(self.readout.weight.clone(), self.readout.bias.clone())]
        for penalty in _PENALTIES:
            weight = projected.mT * (s / (s.square() + penalty * largest)) @ v
            candidates.append((weight.float(), (target_mean - weight @ mean).float()))
        states = self.states(validation.float())
        errors = [_mean_error(nn.functional.linear(states, *each), validation) for each in candidates]
        weight, bias = candidates[errors.index(min(errors))]
        self.readout.weight.copy_(weight)
        self.readout.bias.copy_(bias)


class MemoryModel(nn.Module):
    """State-space memories of several sizes, for signals in their own unit.

    Args:
        members: The memories.
    """

    def __init__(self, members: Sequence[StateSpaceMemory]) -> None:
        super().__init__()
        self.normalizer = Standardize(1)
        self.members = nn.ModuleList(members)

    @property
    def memories(self) -> dict[int, StateSpaceMemory]:
        """The memories by number of states."""
        return {member.ssm.state_dim: member for member in self.members if isinstance(member, StateSpaceMemory)}

    def forward(self, x: Float[Tensor, "b t"]) -> Float[Tensor, "b m t"]:
        """Returns the reconstruction of each memory."""
        z = self.normalizer(x)
        return self.normalizer.inverse(torch.stack([member(z) for member in self.members], dim=1)).to(x.dtype)


def _as_memory_model(model: nn.Module | None) -> MemoryModel:
    if not isinstance(model, MemoryModel):
        raise TypeError(f"expected a MemoryModel, got {type(model).__name__}")
    return model


@dataclass(frozen=True)
class MemoryData:
    """Histories of equal length, in the unit of the signal."""

    train: Float[Tensor, "n t"]
    validation: Float[Tensor, "m t"]
    test: Float[Tensor, "k t"]
    signal: Float[Tensor, " s"]
    """Signal of the figures: the end of the series, or a test history."""
    faster: Float[Tensor, "k t"] | None = None
    """Test histories with higher frequencies, of built-in signals."""
    initial_model: MemoryModel | None = None


@dataclass(frozen=True, kw_only=True)
class MemoryRecipe(OptimizationConfig, Recipe[MemoryData]):
    """Train a state-space layer to reconstruct the past of a signal from a few numbers, and compare it with HiPPO."""

    name: ClassVar[str] = "memory"

    data: Annotated[str, MaxLength(4096)] = _BAND_LIMITED
    """CSV, TSV, Parquet or NumPy file with a series, or band-limited: built-in sums of random sine waves."""
    target: Annotated[str, MaxLength(4096)] | None = None
    """Column with the series. Defaults to the last numeric column."""
    max_frequency: Annotated[float, Range(0.1, 10**4), Requires(data=(_BAND_LIMITED,))] = 10.0
    """Largest frequency of the built-in signals, in cycles per history."""
    length: Annotated[int, Range(3, 5000)] | None = None
    """Number of samples of a history. Defaults to 1000, or to a fifth of a short series."""
    sizes: Annotated[tuple[Annotated[int, Range(2, 256)], ...] | None, MaxLength(16)] = None
    """State dimensions to compare: the number of states of the layer and of HiPPO coefficients (fourier has one fewer).
    They must be even. Defaults to 8, 16, 32 and 64, or to fewer for a short history."""
    operators: Annotated[tuple[_Operator, ...], MaxLength(4)] = ("legs", "legt", "lagt", "fourier")
    """HiPPO operators."""
    window: Annotated[float, Range(1, 10**6)] | None = None
    """Window of legt and fourier, and time constant of lagt, in samples. Defaults to the length of a history, or to a
    tenth of it for lagt."""
    discretization: Literal["foh", "zoh", "bilinear", "backward_euler", "forward_euler"] = "foh"
    """Discretization of the HiPPO operators."""
    steps: _Steps = 300
    batch_size: _PositiveInt | None = 64
    learning_rate: _NonNegative | None = 0.03
    weight_decay: _NonNegative = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.data == _BAND_LIMITED and self.target is not None:
            raise ValueError(f"target needs a file, got data={self.data}")
        if not self.operators or len(set(self.operators)) < len(self.operators):
            raise ValueError(f"operators must be different and at least one, got {self.operators}")
        if self.window is not None and self.operators == ("legs",):
            raise ValueError(f"window would be ignored: legs remembers all of the past, got window={self.window}")
        if self.sizes is not None and (not self.sizes or sorted({*self.sizes}) != [*self.sizes]):
            raise ValueError(f"sizes must be increasing and at least one, got {self.sizes}")
        if any(n % 2 for n in self.sizes or ()):
            raise ValueError(f"sizes must be even (two states per mode), got {self.sizes}")

    def setup(self) -> TrainingSetup[MemoryData]:
        """Reads or draws the signals, divides them into histories and builds the layers."""
        data, notes = self._load()
        length = data.test.shape[1]
        model = self._build(length)
        model.normalizer.fit(data.train)
        batches = ShuffledBatches(data.train, batch_size=self.batch_size or 64, seed=self.seed)
        steps = self.num_steps(len(batches))
        return TrainingSetup(
            model=model,
            optimizer_steps=[self.optimizer_step(model, _reconstruction_loss, steps=steps)],
            batches=batches,
            steps=steps,
            evaluate=partial(_evaluate, histories=data.validation),
            eval_every=max(1, steps // 5),
            monitor=None,
            ema_decay=self.ema_decay or None,
            grad_accumulation_steps=self.grad_accumulation_steps,
            claims=partial(_claims, length=length),
            model_config={"length": length},
            data_fingerprint=fingerprint(data.train, data.validation, data.test),
            notes=notes,
            data=replace(data, initial_model=deepcopy(model)),
        )

    @torch.no_grad()
    def finish(self, run: Run, setup: TrainingSetup[MemoryData]) -> Mapping[str, Any]:
        """Fits the readouts, compares the memories on the test histories and plots what they remember."""
        data, model = setup.data, _as_memory_model(setup.model).cpu()
        before, norm = _as_memory_model(data.initial_model), model.normalizer
        train, validation, test = (norm(x) for x in (data.train, data.validation, data.test))
        for memory in (*model.memories.values(), *before.memories.values()):
            memory.fit_readout(train, validation)
        run.save_weights(model.state_dict())
        operators, sizes = self._operators(test.shape[1]), list(model.memories)
        errors = _errors(model, operators, test)
        references = {
            f"{_LAYER}, untrained modes": {n: _mean_error(m(test), test) for n, m in before.memories.items()},
            "best polynomial": {n: _mean_error(_fit_polynomials(test, n), test) for n in sizes},
            "principal components": _pca_errors(train, test, sizes),
        }
        faster = {} if data.faster is None else _errors(model, operators, norm(data.faster))
        figure = figures.memory_errors({**errors, **references}, references=list(references))
        figures.save(figure, run.figures / "error over size.png", root=run.root)
        for name, remember in operators.items():
            found = {n: remember(norm(data.signal), n) for n in sizes}
            found = {n: memory._replace(values=norm.inverse(memory.values)) for n, memory in found.items()}
            figures.save(figures.hippo_memory(data.signal, found), run.figures / f"{name}.png", root=run.root)
        shown = _first_small({n: min(row[n] for row in _of_all_past(errors).values()) for n in sizes}) or sizes[-1]
        _plot_layers(run, model, before, data.test[-1], shown)
        return {
            "summary": _summarize(errors, references["best polynomial"], faster, length=test.shape[1], size=shown),
            "lead_figures": ["error over size.png", f"{next(iter(operators))}.png"],
            "test": {f"relative error, {shown} states": errors[_LAYER][shown]},
            "relative error": _to_results({**errors, **references}),
            **({f"relative error at {_FASTER} times the frequency": _to_results(faster)} if faster else {}),
            "histories": {"train": len(train), "validation": len(validation), "test": len(test)},
            "samples per history": test.shape[1],
            "parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
        }

    def build_model(self, model_config: Mapping[str, Any]) -> nn.Module:
        """Rebuilds the layers of a run, without their weights."""
        return self._build(require_int(model_config.get("length"), 3, 5000, where="model.length"))

    def _build(self, length: int) -> MemoryModel:
        sizes = tuple(n for n in _SIZES if n < length) if self.sizes is None else self.sizes
        if not sizes or sizes[-1] >= length:
            raise ValueError(f"sizes must be smaller than length: got sizes={sizes or _SIZES}, length={length}")
        _check_parameter_count([partial(StateSpaceMemory, length, state_dim=n) for n in sizes])
        return MemoryModel([StateSpaceMemory(length, state_dim=n) for n in sizes])

    def _load(self) -> tuple[MemoryData, list[str]]:
        """Returns the histories, without a model, and notes for the user."""
        if self.data == _BAND_LIMITED:
            return self._draw(self.length or _MAX_LENGTH), []
        try:
            series = read_series(self.data, target=self.target)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{error}; built-in signals: {_BAND_LIMITED}") from None
        x = torch.from_numpy(fill_missing(series.values))
        count = len(x)
        length = self.length or max(3, min(_MAX_LENGTH, count // 5))
        part = max(length, count // 5)
        if count <= 2 * part + length:
            raise ValueError(
                f"{self.data} has {count} values, at least {3 * length + 1} are needed: a history of {length} "
                "values for the test, one for validation and two for training"
                + (". Lower length" if self.length else "")
            )
        if float(x.amax()) == float(x.amin()):
            raise ValueError(f"{self.data} is constant: there is nothing to remember")
        parts = x.split([count - 2 * part, part, part])
        train, validation, test = (
            _some(rows.unfold(0, length, 1), most) for rows, most in zip(parts, _NUM_HISTORIES, strict=True)
        )
        note = (
            f"histories of {length} values; of {count}, the last {part} are the test, {part} before it the validation"
        )
        return MemoryData(train, validation, test, x[-_MAX_DRAWN:]), [*series.notes, note]

    def _draw(self, length: int) -> MemoryData:
        """Draws the built-in signals."""
        if 2 * self.max_frequency >= length:
            raise ValueError(f"max_frequency must be below length / 2, got {self.max_frequency:g} and length={length}")
        drawn = _draw_band_limited(sum(_NUM_HISTORIES), length, max_frequency=self.max_frequency, seed=self.seed)
        train, validation, test = drawn.split(_NUM_HISTORIES)
        faster = _FASTER * self.max_frequency
        others = _draw_band_limited(len(test), length, max_frequency=faster, seed=self.seed + 1)
        return MemoryData(train, validation, test, test[-1], others if 2 * faster < length else None)

    def _operators(self, length: int) -> dict[str, Callable[[Tensor, int], HiPPOMemory]]:
        """Maps the names of HiPPO operators to what they remember of a signal with a number of coefficients."""
        found: dict[str, Callable[[Tensor, int], HiPPOMemory]] = {}
        for name in self.operators:
            window = None if name == "legs" else self.window or length / (10 if name == "lagt" else 1)
            all_past = name != "lagt" and (window or length) >= length
            found[f"HiPPO {name}{'' if all_past else _RECENT}"] = partial(
                _remember, operator=name, window=window, method=self.discretization
            )
        return found


# ---------------------------------------------------------------- signals, memories and errors


def _draw_band_limited(count: int, length: int, *, max_frequency: float, seed: int) -> Float[Tensor, "n t"]:
    """Draws sums of sine waves with random frequencies, amplitudes and phases, of variance 1.

    Examples:
        >>> _draw_band_limited(2, 100, max_frequency=5.0, seed=0).shape
        torch.Size([2, 100])
    """
    generator = make_generator(seed)
    times = torch.linspace(0, 2 * math.pi, length, dtype=torch.float64)
    signal = torch.zeros(count, length, dtype=torch.float64)
    for _ in range(_NUM_WAVES):
        frequency, phase = torch.rand(2, count, 1, generator=generator, dtype=torch.float64)
        amplitude = torch.randn(count, 1, generator=generator, dtype=torch.float64)
        signal += amplitude * torch.sin(max_frequency * frequency * times + 2 * math.pi * phase)
    return signal * (2 / _NUM_WAVES) ** 0.5


def _some(rows: Float[Tensor, "n t"], most: int) -> Float[Tensor, "m t"]:
    """Returns at most that many rows, evenly spaced, with the last one."""
    return rows[torch.linspace(0, len(rows) - 1, min(len(rows), most)).round().long()]


def _reconstruction_loss(model: nn.Module, batch: Batch) -> Tensor:
    """Sum over the sizes of the squared error, in units of the variance."""
    (x,), scale = batch, model.get_buffer("normalizer.std")
    return ((model(x) - x.unsqueeze(1)) / scale).square().mean((0, 2)).sum()


def _evaluate(model: nn.Module, histories: Tensor) -> dict[str, float]:
    found = _as_memory_model(model)
    x = found.normalizer(histories.to(found.normalizer.mean.device))
    return {f"{n} states/error": _mean_error(memory(x), x) for n, memory in found.memories.items()}


def _remember(
    x: Float[Tensor, "*batch t"], size: int, *, operator: str, window: float | None, method: str
) -> HiPPOMemory:
    """Returns the memory of an operator. The number of coefficients of fourier is odd."""
    return hippo_memory(x, size - (operator == "fourier"), operator=operator, window=window, method=method)


def _errors(
    model: MemoryModel, operators: Mapping[str, Callable[[Tensor, int], HiPPOMemory]], x: Float[Tensor, "n t"]
) -> _Errors:
    """Errors of the memories that read histories sample by sample."""
    hippo = {name: {n: float(f(x, n).error.mean()) for n in model.memories} for name, f in operators.items()}
    return {_LAYER: {n: _mean_error(memory(x), x) for n, memory in model.memories.items()}, **hippo}


def _fit_polynomials(x: Float[Tensor, "n t"], size: int) -> Float[Tensor, "n t"]:
    """Returns the least-squares polynomial of each signal, with that many coefficients."""
    basis = HIPPO_OPERATORS["legs"].basis(size, torch.linspace(0, 1, x.shape[1], dtype=torch.float64))
    return (basis @ torch.linalg.lstsq(basis, x.double().mT, driver="gelsd").solution).mT


def _pca_errors(train: Float[Tensor, "n t"], test: Float[Tensor, "m t"], sizes: Sequence[int]) -> dict[int, float]:
    """Errors of the linear memory with the smallest squared error on the training histories."""
    axes = pca_axes(train)
    parts = {n: axes.components[:n] for n in sizes}
    return {n: _mean_error((test - axes.mean) @ v.mT @ v + axes.mean, test) for n, v in parts.items()}


def _relative_errors(found: Float[Tensor, "*batch t"], expected: Float[Tensor, "*batch t"]) -> Float[Tensor, "*batch"]:
    total = torch.linalg.vector_norm(expected, dim=-1)
    return torch.linalg.vector_norm(found - expected, dim=-1) / torch.where(total > 0, total, 1.0)


def _mean_error(found: Float[Tensor, "n t"], expected: Float[Tensor, "n t"]) -> float:
    return float(_relative_errors(found, expected).mean())


def _of_all_past(errors: _Errors) -> _Errors:
    """The memories that weigh the whole history equally."""
    return {name: row for name, row in errors.items() if not name.endswith(_RECENT)}


def _first_small(errors: Mapping[int, float]) -> int | None:
    """The smallest size with a small error."""
    return next((n for n, error in errors.items() if error < _SMALL_ERROR), None)


# ---------------------------------------------------------------- the report


def _plot_layers(run: Run, model: MemoryModel, before: MemoryModel, history: Float[Tensor, " t"], size: int) -> None:
    """Plots what the layers remember of a history, and the modes of one of them before and after training."""
    times, values = torch.arange(len(history)), model(history[None])[0]
    errors = _relative_errors(model.normalizer(values), model.normalizer(history))
    found = {n: HiPPOMemory(times, *each) for n, *each in zip(model.memories, values, errors, strict=True)}
    figures.save(figures.hippo_memory(history, found, numbers="states"), run.figures / f"{_LAYER}.png", root=run.root)
    modes = torch.cat([spectrum(each.memories[size].ssm) for each in (before, model)])
    figure = figures.spectrum(modes, names=("before training", "after training"))
    figures.save(figure, run.figures / f"modes of {size} states.png", root=run.root)


def _summarize(errors: _Errors, polynomial: Mapping[int, float], faster: _Errors, *, length: int, size: int) -> str:
    """Says who has the smallest error, and how many numbers each needs."""
    rows, largest = _of_all_past(errors), max(polynomial)
    rivals = {name: row[size] for name, row in rows.items() if name != _LAYER} | {"best polynomial": polynomial[size]}
    metric = f"relative error over {length:,} samples from {size} numbers"
    first = compare_with_baselines(metric, rows[_LAYER][size], rivals, higher_is_better=False, model=f"the {_LAYER}")
    needed = {name: _first_small(row) or f"more than {largest}" for name, row in rows.items()}
    small = any(map(_first_small, rows.values()))
    second = f"Numbers for an error below 5 %: {_join(needed)}."
    sentences = [first, second if small else f"No error is below 5 % with at most {largest} numbers."]
    if faster:
        found = {name: format_number(row[largest]) for name, row in _of_all_past(faster).items()}
        sentences.append(f"Errors at {_FASTER} times the frequency, from {largest} numbers: {_join(found)}.")
    return " ".join(sentences)


def _join(values: Mapping[str, object]) -> str:
    return ", ".join(f"{value} ({name})" for name, value in values.items())


def _to_results(errors: _Errors) -> dict[str, dict[str, float | str]]:
    rows = errors.items()
    return {name: {str(n): e if math.isfinite(e) else "diverges" for n, e in row.items()} for name, row in rows}


def _claims(model: nn.Module, *, length: int) -> Iterator[Claim]:
    """The reconstruction is affine; the states are those of the recurrence."""
    yield Claim(batch_independence(), model, shape(f"b {length}"), name="reconstruction")
    yield Claim(affinity(), model, shape(f"b {length}"), name="reconstruction")
    for n, memory in _as_memory_model(model).memories.items():
        law = agreement(other=memory.recurrent_states)
        yield Claim(law, memory.states, shape("b t:1..20"), name=f"{n} states, sample by sample")
