"""Adversarial attacks: the accuracy of a classifier under perturbations of its inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from lawful._json import MaxLength, Range, Requires, from_json, is_default, to_json
from lawful.data import ShuffledBatches
from lawful.inference import predict
from lawful.inference.attacks import (
    FGSM,
    PGD,
    Attack,
    CarliniWagner,
    DeepFool,
    WorstCaseAttack,
    margin,
    robust_accuracy,
)
from lawful.inference.metrics import accuracy
from lawful.probe import figures
from lawful.recipes.classify import _NORMS, ClassifyRecipe, _AttackUnits, _NormalizedClassifier, _NormName
from lawful.recipes.data import DataSplits, ExampleSpec
from lawful.recipes.optimization import _NonNegative
from lawful.recipes.supervised import CNNSpec, _ClassifierSpec
from lawful.training import Run, TrainerConfig, TrainingSetup

_ITERATIVE = ("pgd", "momentum", "deepfool", "carlini-wagner", "worst")
"""Attacks that take gradient steps; fgsm takes one."""
_DEFAULT_SIZES = (0.02, 0.05, 0.1, 0.2)
"""Default sizes of perturbations, as fractions of the range of an entry, times the factor below."""
_SIZE_FACTORS = {"linf": lambda d: 1.0, "l2": lambda d: math.sqrt(d) / 2, "l1": lambda d: d / 20}
"""Factor of the default sizes for d entries, so that the norms have comparable effects."""


@dataclass(frozen=True, kw_only=True)
class AttackRecipe(ClassifyRecipe):
    """Attack a classifier (a trained run or a new one) and measure its robust accuracy."""

    name: ClassVar[str] = "attack"

    model: _ClassifierSpec = field(default_factory=CNNSpec)
    """Model architecture of the classifier, without `run`."""
    run: Annotated[str, MaxLength(4096)] = ""
    """Folder of a classify run to attack. By default, a classifier is trained first."""
    attack: Literal["pgd", "fgsm", "momentum", "deepfool", "carlini-wagner", "worst"] = "pgd"
    """Attack. momentum is PGD with momentum; worst is the strongest of three attacks for each example."""
    eps: Annotated[tuple[_NonNegative, ...], MaxLength(100)] = ()
    """Sizes of the perturbations, in units of the data (tables: standard deviations). Defaults to fractions of the
    range."""
    norm: _NormName = "linf"
    """Norm of the perturbations."""
    attack_steps: Annotated[int, Range(1, 10**6), Requires(attack=_ITERATIVE)] = 40
    """Number of gradient steps of the attack."""
    num_examples: Annotated[int, Range(1, 10**7)] = 500
    """Number of test examples to attack."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.attack == "deepfool" and self.norm == "l1":
            raise ValueError("attack deepfool supports norm l2 and linf, got l1")
        if self.attack == "carlini-wagner" and self.norm != "l2":
            raise ValueError(f"attack carlini-wagner needs norm l2, got {self.norm}")
        own = {"run", "attack", "eps", "norm", "attack_steps", "num_examples", *(f.name for f in fields(TrainerConfig))}
        ignored = [f.name for f in fields(self) if f.name not in own and not is_default(self, f.name)]
        if self.run and ignored:
            raise ValueError(
                f"{', '.join(ignored)} would be ignored: run {self.run} has its own data and model. Leave them out, or "
                "leave run out to train a classifier"
            )
        if not self.run and self.model.closed_form:
            raise ValueError(f"attacks need gradients: model {self.model.name} has none, choose mlp, cnn or logistic")

    def setup(self) -> TrainingSetup[DataSplits]:
        """Trains a classifier, or loads the classifier of a run."""
        if not self.run:
            if (Path(self.data) / "config.json").is_file():
                raise ValueError(f"data must be a dataset, got the run {self.data}: set run to attack its classifier")
            return super().setup()
        from lawful.training.registry import load, recipe_of

        run = Run(self.run)
        recipe = recipe_of(run)
        if not isinstance(recipe, ClassifyRecipe):
            raise ValueError(f"expected a run of classify, got {self.run} of {recipe.name}")
        splits = recipe.load_splits("classify")
        return TrainingSetup(
            model=load(run),
            optimizer_steps=[],
            batches=ShuffledBatches(splits.train.inputs, splits.train.targets, batch_size=64, seed=0),
            steps=0,
            model_config={
                "encoding": splits.encoding.to_json(),
                "example_spec": ExampleSpec.of(splits.train),
                "classifier": {"recipe": recipe.name, "options": to_json(recipe)},
            },
            data_fingerprint=splits.fingerprint,
            warnings=splits.warnings,
            data=splits,
        )

    def build_model(self, model_config: Mapping[str, Any]) -> nn.Module:
        """Rebuilds the classifier of a run, without its weights."""
        found = model_config.get("classifier")
        if not self.run or not isinstance(found, dict):
            return super().build_model(model_config)
        kind = AttackRecipe if found.get("recipe") == self.name else ClassifyRecipe
        options = {**found.get("options", {}), **({"run": ""} if kind is AttackRecipe else {})}
        return from_json(kind, options, at="model.classifier.options").build_model(model_config)

    def finish(self, run: Run, setup: TrainingSetup[DataSplits]) -> Mapping[str, Any]:
        """Measures the accuracy under attacks of each size, and under random noise of the same size."""
        splits = setup.data
        units = _AttackUnits.of(splits.train.inputs)
        x, y = units.normalize(splits.test.inputs[: self.num_examples]), splits.test.targets[: self.num_examples]
        classifier, d = _NormalizedClassifier(setup.model, units), math.prod(x.shape[1:])
        span = units.bounds.span if math.isfinite(units.bounds.high) else 1.0
        sizes = self.eps or tuple(round(size * span * _SIZE_FACTORS[self.norm](d), 4) for size in _DEFAULT_SIZES)
        clean = accuracy(predict(classifier, x), y)
        attacked = [robust_accuracy(classifier, x, y, attack=self._build_attack(eps, units)) for eps in sizes]
        noises = [PGD(eps=eps, norm=_NORMS[self.norm], steps=0, bounds=units.bounds, seed=self.seed) for eps in sizes]
        random = [robust_accuracy(classifier, x, y, attack=noise) for noise in noises]
        chance, names = float(torch.bincount(y).max()) / len(y), [f"eps {eps:g}" for eps in sizes]
        middle = self._build_attack(sizes[len(sizes) // 2], units)
        self._plot_examples(run, classifier, x, y, middle, splits.test.classes or ())
        curve: dict[str, list[float]] = {self.attack: [clean.value, *(found.value for found in attacked)]}
        curve["random noise"] = [clean.value, *(found.value for found in random)]
        figure = figures.robustness_curve([0.0, *sizes], curve, distance=self.norm, chance=chance)
        figures.save(figure, run.figures / "robust accuracy.png", root=run.root)
        rows = zip([0.0, *sizes], *curve.values(), strict=True)
        run.write_csv("samples/robust accuracy.csv", [["eps", *curve], *rows])
        i = len(sizes) // 2
        return {
            "summary": f"Under attacks ({self.attack}) of size {sizes[i]:g} in {self.norm}, the accuracy falls from "
            f"{clean.value:.4g} to {attacked[i].value:.4g}. Random noise of this size leaves {random[i].value:.4g}.",
            "test": {"accuracy": clean.json()}
            | {f"robust, {name}": found.json() for name, found in zip(names, attacked, strict=True)},
            "baselines": {f"random noise, {name}": found.value for name, found in zip(names, random, strict=True)}
            | {"most frequent class": chance},
            "units of eps": f"{self.norm}, in {'standard deviations' if x.dim() == 2 else 'units of the data'}",
            "examples": {"attacked": len(x)},
            "warnings": list(splits.warnings),
        }

    def _build_attack(self, eps: float, units: _AttackUnits) -> Attack:
        norm, bounds, steps = _NORMS[self.norm], units.bounds, self.attack_steps
        pgd = PGD(eps=eps, norm=norm, steps=steps, stop_margin=0.0, bounds=bounds, seed=self.seed)
        match self.attack:
            case "pgd":
                return pgd
            case "fgsm":
                return FGSM(eps=eps, norm=norm, bounds=bounds)
            case "momentum":
                return PGD(
                    eps=eps, norm=norm, steps=steps, momentum=1.0, random_start=0.0, stop_margin=0.0, bounds=bounds
                )
            case "deepfool":
                return DeepFool(eps=eps, norm=norm, steps=steps, bounds=bounds)
            case "carlini-wagner":
                return CarliniWagner(eps=eps, steps=steps, bounds=bounds)
            case "worst":
                other = replace(pgd, loss=margin, seed=(self.seed + 1) % 2**63)
                return WorstCaseAttack((FGSM(eps=eps, norm=norm, bounds=bounds), pgd, other))

    def _plot_examples(
        self, run: Run, classifier: nn.Module, x: Tensor, y: Tensor, attack: Attack, names: tuple[str, ...]
    ) -> None:
        """Plots images or series before and after the attack."""
        if x.dim() < 3:
            return
        adversarial = attack(classifier, x[:64], y[:64])
        before, after = (predict(classifier, part).argmax(1) for part in (x[:64], adversarial))
        fooled = ((before == y[:64]) & (after != y[:64])).nonzero()[:, 0][:8]
        chosen = fooled if len(fooled) else torch.arange(min(8, len(adversarial)))
        labels = [[names[int(k)] for k in classes[chosen]] for classes in (before, after)]
        figure = figures.adversarial_examples(x[chosen], adversarial[chosen], labels[0], labels[1])
        figures.save(figure, run.figures / "examples.png", root=run.root)
