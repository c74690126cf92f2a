"""Molecules: an equivariant network predicts a property, such as the energy, from elements and positions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from lawful._json import Config, MaxLength, Range, Tagged, require_list, require_text
from lawful._names import quote
from lawful._suggest import did_you_mean
from lawful.blocks.modes import eval_mode
from lawful.data import (
    Batch,
    Graph,
    GraphBatch,
    Molecule,
    ShuffledBatches,
    fingerprint,
    metal_clusters,
    read_xyz,
    split_indices,
)
from lawful.functions import radius_graph
from lawful.groups import Euclidean
from lawful.inference.metrics import mean_absolute_error, r_squared, root_mean_squared_error
from lawful.laws import Claim, invariance, permutation_invariance, shape
from lawful.models import EGNN, GramNetwork, LinearRegression
from lawful.probe import figures
from lawful.recipes.optimization import (
    EvaluationConfig,
    OptimizationConfig,
    _NonNegative,
    _NumEvals,
    _Patience,
    _PositiveInt,
    _Steps,
)
from lawful.training import Recipe, Run, TrainingSetup, compare_with_baselines
from lawful.training.registry import _check_parameter_count

_CLUSTERS, _NUM_CLUSTERS = "clusters", 1200
"""Name and number of the built-in molecules."""
_ENERGIES = ("energy", "e", "total_energy", "etot", "energies", "e_tot", "e0", "u0")
"""Names of the default target, case-insensitive."""
_MAX_ELEMENTS, _MAX_PAIR_ELEMENTS, _EVALUATION_BATCH = 200, 8, 64
_LOSSES = {"mse": F.mse_loss, "mae": F.l1_loss, "huber": F.smooth_l1_loss}


@dataclass(frozen=True, kw_only=True)
class EGNNSpec(Config, Tagged):
    """E(n)-equivariant graph network: messages depend on distances."""

    name: ClassVar[str] = "egnn"

    dim: Annotated[int, Range(1, 10**5)] = 64
    """Width of the layers."""
    num_layers: Annotated[int, Range(1, 100)] = 3
    """Number of layers."""


@dataclass(frozen=True, kw_only=True)
class GramSpec(Config, Tagged):
    """Equivariant graph network whose messages depend on distances and angles."""

    name: ClassVar[str] = "gram"

    dim: Annotated[int, Range(1, 10**5)] = 64
    """Width of the layers."""
    num_layers: Annotated[int, Range(1, 100)] = 3
    """Number of layers."""
    num_vectors: Annotated[int, Range(1, 1000)] = 2
    """Number of vectors per atom."""


_MoleculeModel = EGNNSpec | GramSpec


class MoleculeModel(nn.Module):
    r"""Predicts a property of molecules: linear in the numbers of atoms, plus a sum over the atoms of a network.

    $$y = b + \sum_i \Bigl[ c_{z_i} + \frac{\sigma}{\bar n} f_i(x, z) \Bigr]$$

    $b$ and $c$ are fitted by least squares, and $\sigma$ is the standard deviation of their error. $f$ is the invariant
    output of an equivariant network. With the readout "mean", both sums are means.

    Args:
        spec: Specification of the network.
        elements: Elements.
        readout: "sum" for energies and other properties that grow with the molecule, or "mean".
        cutoff: Largest distance of neighbors; 0 for all pairs.
        num_radial: Number of radial basis functions of distances.
    """

    def __init__(
        self,
        spec: _MoleculeModel,
        elements: Sequence[str],
        *,
        readout: Literal["sum", "mean"] = "sum",
        cutoff: float = 0.0,
        num_radial: int = 16,
    ) -> None:
        super().__init__()
        self.elements, self.readout, self.cutoff, self.num_radial = tuple(elements), readout, cutoff, num_radial
        self.reference = LinearRegression(len(self.elements)).requires_grad_(False)
        self.scale: Tensor
        self.mean_size: Tensor
        self.distances: Tensor
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("mean_size", torch.ones(()))
        self.register_buffer("distances", torch.linspace(0, 1, num_radial))
        self.network: nn.Module
        if isinstance(spec, GramSpec):
            self.network = GramNetwork(
                len(self.elements),
                dim=spec.dim,
                num_layers=spec.num_layers,
                num_vectors=spec.num_vectors,
                edge_dim=num_radial,
            )
        else:
            self.network = EGNN(len(self.elements), dim=spec.dim, num_layers=spec.num_layers, edge_dim=num_radial)
        self.head = nn.Sequential(nn.Linear(spec.dim, spec.dim), nn.SiLU(), nn.Linear(spec.dim, 1))

    @torch.no_grad()
    def fit_reference(self, graphs: Sequence[Graph], targets: Float[Tensor, " g"]) -> MoleculeModel:
        """Fits the linear part to the numbers of atoms, and the scale of its error and of the distances.

        Args:
            graphs: Molecules as graphs, from `to_graph`.
            targets: Property of each molecule.
        """
        batch = GraphBatch.from_graphs(graphs)
        counts = self._read_out(batch.x[:, 3:], batch.batch, len(graphs))
        self.reference.fit(counts, targets[:, None], penalty=1e-6)
        error = (targets - self.reference(counts)[:, 0]).std()
        self.scale.copy_(error if error > 0 else torch.ones(()))
        self.mean_size.fill_(batch.num_nodes / len(graphs) if self.readout == "sum" else 1.0)
        apart = _distances(batch.x, batch.edge_index)
        if len(apart):
            low, high = apart.quantile(0.001) if len(apart) < 10**7 else apart.min(), apart.max()
            self.distances.copy_(torch.linspace(float(low), float(high), self.num_radial))
        return self

    def to_graph(self, molecule: Molecule) -> Graph:
        """Converts a molecule to a graph: positions and one-hot elements; edges between neighbors.

        Args:
            molecule: Molecule with known elements.

        Raises:
            ValueError: If the molecule has an element that the training data do not have.
        """
        if strange := [name for name in molecule.elements if name not in self.elements]:
            known = ", ".join(self.elements)
            raise ValueError(f"{molecule.name or molecule}: unknown element {strange[0]!r}, the model has {known}")
        return _to_graph(molecule, self.elements, self.cutoff)

    def forward(
        self,
        x: Float[Tensor, "n d"],
        edge_index: Int[Tensor, "2 e"],
        *,
        batch: Int[Tensor, " n"] | None = None,
        num_graphs: int | None = None,
    ) -> Float[Tensor, " g"]:
        """Returns the property of each molecule.

        Args:
            x: Positions and one-hot elements.
            edge_index: Pairs of neighbors.
            batch: Molecule of each atom. Defaults to one molecule.
            num_graphs: Number of molecules. Defaults to the largest entry of `batch` plus 1.
        """
        batch = torch.zeros(len(x), dtype=torch.int64, device=x.device) if batch is None else batch
        count = int(batch.max()) + 1 if num_graphs is None else num_graphs
        positions, elements = x[:, :3], x[:, 3:]
        centered = positions - _mean(positions, batch, count)[batch]
        radial = self.radial_basis(_distances(x, edge_index))
        if isinstance(self.network, GramNetwork):
            vectors = x.new_zeros(len(x), 1, 3)
            h, *_ = self.network(elements, centered, vectors, edge_index, edge_attr=radial)
        else:
            h, *_ = self.network(elements, centered, edge_index, edge_attr=radial)
        network = self._read_out(self.head(h), batch, count)[:, 0] / self.mean_size
        return self.reference(self._read_out(elements, batch, count))[:, 0] + self.scale * network

    def radial_basis(self, distances: Float[Tensor, " e"]) -> Float[Tensor, "e r"]:
        """Returns Gaussians of distances, with centers at equal steps over those of the training data.

        Args:
            distances: Distances of pairs of atoms.
        """
        centers = self.distances.to(distances)
        width = (centers[-1] - centers[0]).clamp_min(1e-6) / max(1, self.num_radial - 1)
        return (-((distances[:, None] - centers) / width).square()).exp()

    def _read_out(self, h: Float[Tensor, "n d"], batch: Int[Tensor, " n"], count: int) -> Float[Tensor, "g d"]:
        if self.readout == "mean":
            return _mean(h, batch, count)
        return h.new_zeros(count, h.shape[1]).index_add(0, batch, h)

    def predict(self, molecules: Sequence[Molecule] | str | Path) -> np.ndarray:
        """Returns the property of each molecule.

        Args:
            molecules: Molecules, or an XYZ file, or a folder of XYZ files.
        """
        if isinstance(molecules, str | Path):
            molecules = read_xyz(molecules)[0]
        with eval_mode(self):
            return _predict(self, [self.to_graph(molecule) for molecule in molecules]).numpy()


def _distances(x: Float[Tensor, "n d"], edge_index: Int[Tensor, "2 e"]) -> Float[Tensor, " e"]:
    return (x[edge_index[0], :3] - x[edge_index[1], :3]).square().sum(-1).clamp_min(1e-12).sqrt()


def _mean(h: Float[Tensor, "n d"], batch: Int[Tensor, " n"], count: int) -> Float[Tensor, "g d"]:
    sizes = h.new_zeros(count).index_add(0, batch, h.new_ones(len(h)))
    return h.new_zeros(count, h.shape[1]).index_add(0, batch, h) / sizes.clamp_min(1)[:, None]


def _to_graph(molecule: Molecule, elements: Sequence[str], cutoff: float) -> Graph:
    number = torch.tensor([elements.index(name) for name in molecule.elements])
    positions = (molecule.positions - molecule.positions.mean(0)).float()
    index = radius_graph(positions, cutoff or 1e30)
    return Graph(torch.cat([positions, F.one_hot(number, len(elements)).float()], 1), index)


@torch.no_grad()
def _predict(model: MoleculeModel, graphs: Sequence[Graph]) -> Float[Tensor, " g"]:
    found = []
    for start in range(0, len(graphs), _EVALUATION_BATCH):
        found.append(_outputs(model, graphs[start : start + _EVALUATION_BATCH], model.scale.device).cpu())
    return torch.cat(found)


def _outputs(model: nn.Module, graphs: Sequence[Graph], device: torch.device) -> Float[Tensor, " g"]:
    batch = GraphBatch.from_graphs(graphs)
    return model(
        batch.x.to(device), batch.edge_index.to(device), batch=batch.batch.to(device), num_graphs=batch.num_graphs
    )


def _as_molecule_model(model: nn.Module) -> MoleculeModel:
    if not isinstance(model, MoleculeModel):
        raise TypeError(f"expected a MoleculeModel, got {type(model).__name__}")
    return model


@dataclass(frozen=True)
class MoleculeData:
    """Molecules as graphs, their property, and the molecules of each split."""

    molecules: Sequence[Molecule]
    graphs: Sequence[Graph]
    targets: Float[Tensor, " g"]
    target: str
    """Name of the property."""
    splits: Mapping[str, Int[Tensor, " k"]]
    """Molecules for training, validation and test."""
    warnings: tuple[str, ...] = ()

    def take(self, indices: Int[Tensor, " k"]) -> list[Graph]:
        """Returns the graphs at `indices`."""
        return [self.graphs[i] for i in indices.tolist()]


@dataclass(frozen=True, kw_only=True)
class MoleculesRecipe(OptimizationConfig, EvaluationConfig, Recipe[MoleculeData]):
    """Train an equivariant network on XYZ files to predict an energy, or another property of molecules."""

    name: ClassVar[str] = "molecules"

    model: _MoleculeModel = field(default_factory=EGNNSpec)
    """Model architecture."""
    data: Annotated[str, MaxLength(4096)] = _CLUSTERS
    """XYZ or extended XYZ file with many molecules, a folder of XYZ files, or clusters: random metal clusters."""
    target: Annotated[str, MaxLength(4096)] | None = None
    """Property in the comment lines. Defaults to energy, or to the only property."""
    readout: Literal["sum", "mean"] = "sum"
    """sum: add the outputs of all atoms, for energies and other properties that grow with the molecule; mean: average
    them."""
    cutoff: _NonNegative = 0.0
    """Maximum distance between neighbors, in the unit of the positions; 0 means all pairs."""
    num_radial: Annotated[int, Range(1, 1000)] = 24
    """Number of radial basis functions of the distances."""
    loss: Literal["mse", "mae", "huber"] = "huber"
    """Loss. Targets are in units of the residual standard deviation of a linear regression on atom counts."""
    test_fraction: Annotated[float, Range(0.01, 0.9)] = 0.2
    """Fraction of the molecules used for the test."""
    validation_fraction: Annotated[float, Range(0, 0.9)] = 0.1
    """Fraction of the remaining molecules used for validation."""
    split_seed: Annotated[int, Range(0, 2**62)] = 0
    """Random seed of the split."""
    steps: _Steps = 800
    batch_size: _PositiveInt | None = 32
    """Molecules per step."""
    learning_rate: _NonNegative | None = 3e-3
    grad_clip_norm: _NonNegative = 1.0
    num_evals: _NumEvals = 15
    """Number of evaluations during training."""
    patience: _Patience = 0

    def setup(self) -> TrainingSetup[MoleculeData]:
        """Reads the molecules, splits them and builds the model."""
        molecules, notes = self.read()
        target, targets = self._targets(molecules)
        splits = self._split(len(molecules))
        train = splits["train"]
        elements = tuple(sorted({name for i in train.tolist() for name in molecules[i].elements}))
        if len(elements) > _MAX_ELEMENTS:
            raise ValueError(f"expected at most {_MAX_ELEMENTS} elements, got {len(elements)}")
        model = self._build(elements)
        data = MoleculeData(molecules, [model.to_graph(m) for m in molecules], targets, target, splits, notes)
        if float(targets[train].max()) == float(targets[train].min()):
            raise ValueError(f"{target} is the same for all {len(train)} training molecules")
        model.fit_reference(data.take(train), targets[train])
        batches = ShuffledBatches(train, batch_size=self.batch_size or 32, seed=self.seed)
        steps, validated = self.num_steps(len(batches)), len(splits["validation"]) > 0
        if self.patience and not validated:
            raise ValueError("patience needs validation data: set validation_fraction above 0, or patience=0")
        return TrainingSetup(
            model=model,
            optimizer_steps=[self.optimizer_step(model, partial(self._loss, data=data), steps=steps)],
            batches=batches,
            steps=steps,
            evaluate=partial(self._evaluate, data=data) if validated else None,
            eval_every=self.eval_every(steps, steps_per_epoch=len(batches)),
            patience=self.patience or None,
            restore_best=validated,
            ema_decay=self.ema_decay or None,
            grad_accumulation_steps=self.grad_accumulation_steps,
            claims=_claims,
            model_config={"elements": list(elements), "target": target},
            data_fingerprint=fingerprint(targets, *(graph.x for graph in data.graphs), *splits.values()),
            notes=[_describe(Path(self.data).name, data, elements)],
            warnings=notes,
            data=data,
        )

    def finish(self, run: Run, setup: TrainingSetup[MoleculeData]) -> Mapping[str, Any]:
        """Evaluates the model on the test molecules and writes figures."""
        data, model = setup.data, _as_molecule_model(setup.model)
        y = _predict(model, data.graphs)
        results: dict[str, Any] = {}
        for name in ("test", "validation", "train"):
            if len(some := data.splits[name]):
                results[name] = _metrics(y[some], data.targets[some])
        test = data.splits["test"]
        figure = figures.predicted_vs_actual(y[test][:, None], data.targets[test][:, None])
        figures.save(figure, run.figures / "predicted and true.png", root=run.root)
        rows = [[data.molecules[i].name, f"{float(data.targets[i]):.6g}", f"{float(y[i]):.6g}"] for i in test.tolist()]
        head = ["molecule", f"true {data.target}", f"predicted {data.target}"]
        run.write_csv("samples/test predictions.csv", [head, *rows])
        baselines = _baselines(data, model)
        return {
            **results,
            "baseline root mean squared error": baselines,
            "examples": {name: len(some) for name, some in data.splits.items() if len(some)},
            "summary": compare_with_baselines(
                f"test root mean squared error of {data.target}",
                results["test"]["root mean squared error"],
                baselines,
                higher_is_better=False,
                model="the EGNN" if isinstance(self.model, EGNNSpec) else "the Gram network",
            ),
            "lead_figures": ["predicted and true.png"],
            "warnings": list(data.warnings),
        }

    def build_model(self, model_config: Mapping[str, Any]) -> nn.Module:
        """Rebuilds the model of a run, without its weights."""
        listed = require_list(model_config.get("elements"), _MAX_ELEMENTS, where="model.elements")
        elements = tuple(require_text(name, where="model.elements") for name in listed)
        if len({*elements}) < len(elements):
            raise ValueError("model.elements must be distinct")
        return self._build(elements)

    def read(self, data: str | Path | None = None) -> tuple[list[Molecule], tuple[str, ...]]:
        """Reads the molecules of the options, or of another file.

        Args:
            data: Another file or folder.
        """
        source = self.data if data is None else data
        if str(source) == _CLUSTERS:
            return metal_clusters(_NUM_CLUSTERS), ()
        path = Path(source)
        if not path.exists() and not path.suffix and len(path.parts) == 1:
            close = did_you_mean(str(source), (_CLUSTERS,))
            raise FileNotFoundError(f"no such file or folder: {str(source)!r}{close} Built-in: {_CLUSTERS}")
        return read_xyz(source)

    def _build(self, elements: Sequence[str]) -> MoleculeModel:
        build = partial(
            MoleculeModel,
            self.model,
            elements,
            readout=self.readout,
            cutoff=float(self.cutoff),
            num_radial=self.num_radial,
        )
        _check_parameter_count([build])
        return build()

    def _targets(self, molecules: Sequence[Molecule]) -> tuple[str, Tensor]:
        """Returns the name of the property and its values."""
        if not molecules:
            raise ValueError(f"{self.data} has no molecules")
        names = list(dict.fromkeys(name for molecule in molecules for name in molecule.properties))
        target = self.target
        if target is None:
            energies = [name for name in names if name.lower() in _ENERGIES]
            if len(names) == 1 or energies:
                target = min(energies, key=lambda name: _ENERGIES.index(name.lower())) if energies else names[0]
            elif names:
                raise ValueError(f"target must be one of the properties {', '.join(map(quote, names[:20]))}")
            else:
                raise ValueError(f"{self.data} has no property in its comment lines, such as energy=-1.5")
        if missing := next((m for m in molecules if target not in m.properties), None):
            close = "" if target in names else did_you_mean(target, names)
            own = f"its properties are {', '.join(missing.properties)}" if missing.properties else "it has none"
            raise ValueError(f"{missing.name} has no property {target!r} with a finite number: {own}{close}")
        values = torch.tensor([molecule.properties[target] for molecule in molecules], dtype=torch.float64)
        return target, values.float()

    def _split(self, n: int) -> dict[str, Tensor]:
        rest = 1 - self.test_fraction
        fractions = {
            "train": rest * (1 - self.validation_fraction),
            "validation": rest * self.validation_fraction,
            "test": self.test_fraction,
        }
        fractions = {name: fraction for name, fraction in fractions.items() if fraction}
        parts = split_indices(n, fractions=[*fractions.values()], seed=self.split_seed)
        return {"validation": torch.zeros(0, dtype=torch.int64), **dict(zip(fractions, parts, strict=True))}

    def _loss(self, model: nn.Module, batch: Batch, data: MoleculeData) -> Tensor:
        """Loss in units of the residual standard deviation of the linear regression."""
        (indices,) = batch
        y = _outputs(model, data.take(indices), indices.device)
        scale = model.get_buffer("scale")
        return _LOSSES[self.loss](y / scale, data.targets.to(indices.device)[indices] / scale)

    def _evaluate(self, model: nn.Module, data: MoleculeData) -> dict[str, float]:
        some, trained = data.splits["validation"], _as_molecule_model(model)
        y, targets, scale = _predict(trained, data.take(some)), data.targets[some], trained.scale.cpu()
        loss = _LOSSES[self.loss](y / scale, targets / scale)
        return {"loss": float(loss), "rmse": float((y - targets).square().mean().sqrt())}


def _describe(name: str, data: MoleculeData, elements: Sequence[str]) -> str:
    sizes = [len(molecule) for molecule in data.molecules]
    splits = ", ".join(f"{len(some):,} {split}" for split, some in data.splits.items() if len(some))
    span = f"{min(sizes)} to {max(sizes)}" if min(sizes) < max(sizes) else str(sizes[0])
    return (
        f"{name}: {len(sizes):,} molecules of {span} atoms, elements {', '.join(elements[:12])}, "
        f"property {data.target}; {splits}"
    )


def _metrics(y: Tensor, targets: Tensor) -> dict[str, Any]:
    return {
        "root mean squared error": root_mean_squared_error(y, targets).json(),
        "mean absolute error": mean_absolute_error(y, targets).json(),
        "R²": r_squared(y, targets).json(),
    }


@torch.no_grad()
def _baselines(data: MoleculeData, model: MoleculeModel) -> dict[str, dict[str, float]]:
    """Returns the RMSE of the mean, and of linear regression on atom counts, and on these and distances of pairs."""
    fitting, test = torch.cat([data.splits["train"], data.splits["validation"]]), data.splits["test"]
    y, batch = data.targets, GraphBatch.from_graphs(data.graphs)
    counts = model._read_out(batch.x[:, 3:], batch.batch, len(data.graphs))
    features = {"linear regression on atom counts": (counts, 1e-6)}
    if len(model.elements) <= _MAX_PAIR_ELEMENTS:
        pairs = torch.cat([counts, _pair_features(model, batch)], 1)
        features["linear regression on atom counts and pair distances"] = (pairs, 0.1)
    found = {"mean": y[fitting].mean().expand(len(test))}
    for name, (x, penalty) in features.items():
        linear = LinearRegression(x.shape[1]).fit(x[fitting], y[fitting][:, None], penalty=penalty)
        found[name] = linear(x[test])[:, 0]
    return {name: root_mean_squared_error(value, y[test]).json() for name, value in found.items()}


def _pair_features(model: MoleculeModel, batch: GraphBatch) -> Float[Tensor, "g m"]:
    """Returns the radial basis functions of the distances, summed over the pairs of each two elements."""
    first, second = (batch.x[ends, 3:].argmax(1) for ends in batch.edge_index)
    count, size = len(model.elements), model.num_radial
    kind = torch.minimum(first, second) * count + torch.maximum(first, second)
    place = batch.batch[batch.edge_index[0]] * count**2 + kind
    radial = model.radial_basis(_distances(batch.x, batch.edge_index))
    return radial.new_zeros(batch.num_graphs * count**2, size).index_add(0, place, radial).reshape(batch.num_graphs, -1)


def _claims(model: nn.Module) -> Iterator[Claim]:
    """Rotations, reflections and translations, and a new order of the atoms, do not change the property."""
    trained = _as_molecule_model(model)
    count = len(trained.elements)

    def of_equal_atoms(x: Tensor) -> Tensor:
        elements = F.one_hot(torch.zeros(x.shape[-2], dtype=torch.int64), count).to(x)
        index = torch.ones(x.shape[-2], x.shape[-2]).fill_diagonal_(0).nonzero().T
        return trained(torch.cat([x, elements], -1), index)

    points = shape("n:2..5 3")
    yield Claim(invariance(group=Euclidean(3), axis=-1), of_equal_atoms, points, name="molecule")
    yield Claim(permutation_invariance(axis=0), of_equal_atoms, points, name="molecule")
