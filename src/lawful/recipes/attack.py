"""Attack: how far a classifier can be led astray by changes of its inputs that are hard to see."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import nn

from lawful import _json as config
from lawful.data import ShuffledBatches
from lawful.inference import predict
from lawful.inference.attacks import FGSM, PGD, CarliniWagner, DeepFool, WorstCaseAttack, margin, robust_accuracy
from lawful.inference.attacks import Attack as Attacking
from lawful.inference.metrics import accuracy
from lawful.probe import figures
from lawful.recipes.classify import NORMS, ClassifyRecipe, Measured, Measuring, Units
from lawful.recipes.data import Sizes
from lawful.recipes.optimization import NotNegative
from lawful.recipes.supervised import Supervised
from lawful.training import MaxLength, Range, Run, TrainingSetup, from_json, validate

SHARES = (0.02, 0.05, 0.1, 0.2)
"""The sizes of changes unless they are given: shares of the range of an entry, times what follows."""
REACH = {"linf": lambda d: 1.0, "l2": lambda d: math.sqrt(d) / 2, "l1": lambda d: d / 20}
"""How long a change of d entries is beside the change of one, so that the default sizes are alike in effect."""


@dataclass(frozen=True, kw_only=True)
class AttackRecipe(ClassifyRecipe):
    """Attack a classifier, that of a run or one that is trained first, and measure what is left of its accuracy."""

    name: ClassVar[str] = "attack"

    model: Literal["mlp", "cnn", "logistic", "thresholded", "nearest"] = "cnn"
    """Without a run, what is trained: a perceptron; a convolutional network; logistic regression."""
    run: Annotated[str, MaxLength(4096)] = ""
    """The folder of a run of `classify`, to attack its classifier on its test data; by default one is trained."""
    by: Literal["pgd", "fgsm", "momentum", "deepfool", "carlini-wagner", "worst"] = "pgd"
    """Projected gradient; its first step; with momentum; the nearest border; the shortest change; the worst of some."""
    eps: Annotated[tuple[NotNegative, ...], MaxLength(100)] = ()
    """The sizes of changes, in units of the data (of a table: in deviations); by default shares of the range."""
    norm: Measured = "linf"
    """What sizes are measured in: the largest change of an entry, the Euclidean length, the sum of absolute changes."""
    steps: Annotated[int, Range(1, 10**6)] = 40
    """How many gradients an attack takes."""
    examples: Annotated[int, Range(1, 10**7)] = 500
    """How many of the test examples are attacked."""

    def __post_init__(self) -> None:
        validate(self)
        super().__post_init__()
        if self.by in ("deepfool", "carlini-wagner") and self.norm == "l1":
            raise ValueError(f"{self.by} is for the norms l2 and linf: got l1")
        if self.by == "carlini-wagner" and self.norm != "l2":
            raise ValueError("carlini-wagner is for the norm l2: say --norm l2")
        if not self.run and self.model in ("nearest", "thresholded"):
            raise ValueError(f"an attack follows gradients: the model {self.model} has none that lead anywhere")

    def training(self) -> Supervised:
        """Trains a classifier, or takes that of a run, which needs no steps."""
        if not self.run:
            return super().training()
        from lawful.recipes.registry import load, recipe_of

        run = Run(self.run)
        recipe = recipe_of(run)
        if not isinstance(recipe, ClassifyRecipe):
            raise ValueError(f"an attack is for classifiers: {self.run} is a run of {recipe.name}")
        parts = recipe.given.parts("classify")
        sizes = Sizes.of(parts.train)
        return Supervised(
            model=load(run),
            turns=[],
            batches=ShuffledBatches(parts.train.inputs, parts.train.targets, size=64, seed=0),
            steps=0,
            described={
                "encoding": parts.encoding.to_json(),
                "sizes": sizes,
                "classifier": {"recipe": recipe.name, "options": config.to_json(recipe)},
            },
            fingerprint=parts.fingerprint,
            notes=parts.notes,
            parts=parts,
        )

    def restored(self, facts: Mapping[str, Any]) -> nn.Module:
        """Builds the classifier of a run, before its weights are put in."""
        found = facts.get("classifier")
        if not self.run or not isinstance(found, dict):
            return super().restored(facts)
        kind = AttackRecipe if found.get("recipe") == self.name else ClassifyRecipe
        options = {**found.get("options", {}), **({"run": ""} if kind is AttackRecipe else {})}
        return from_json(kind, options, at="model.classifier.options").restored(facts)

    def finish(self, run: Run, training: TrainingSetup) -> Mapping[str, Any]:
        """Attacks the classifier at each size, and beside it changes inputs at random by as much."""
        if not isinstance(training, Supervised):
            return {}
        parts, model = training.parts, training.model
        units = Units.of(parts.train.inputs)
        x, y = units.measured(parts.test.inputs[: self.examples]), parts.test.targets[: self.examples]
        classifier, d = Measuring(model, units), math.prod(x.shape[1:])
        span = units.box.span if math.isfinite(units.box.high) else 1.0
        sizes = self.eps or tuple(round(share * span * REACH[self.norm](d), 4) for share in SHARES)
        clean = accuracy(predict(classifier, x), y)
        attacked = [robust_accuracy(classifier, x, y, attack=self.attack(eps, units)) for eps in sizes]
        noisy = [PGD(eps=eps, norm=NORMS[self.norm], steps=0, box=units.box) for eps in sizes]
        random = [robust_accuracy(classifier, x, y, attack=noise) for noise in noisy]
        chance, named = float(torch.bincount(y).max()) / len(y), [f"eps {eps:g}" for eps in sizes]
        self.drawn(run, classifier, x, y, self.attack(sizes[len(sizes) // 2], units), parts.test.classes or ())
        curve: dict[str, list[float]] = {self.by: [clean.value, *(found.value for found in attacked)]}
        curve["random noise"] = [clean.value, *(found.value for found in random)]
        drawn = figures.robustness_curve([0.0, *sizes], curve, distance=self.norm, chance=chance)
        figures.save(drawn, run.figures / "robust accuracy.png")
        with (run.samples / "robust accuracy.csv").open("w", encoding="utf-8", newline="") as file:
            rows = zip([0.0, *sizes], *curve.values(), strict=True)
            csv.writer(file).writerows([["size", *curve], *rows])
        return {
            "test": {"accuracy": clean.json()}
            | {f"robust, {eps}": found.json() for eps, found in zip(named, attacked, strict=True)},
            "baselines": {f"random noise, {eps}": found.value for eps, found in zip(named, random, strict=True)}
            | {"the commonest class": chance},
            "measured in": f"{self.norm}, of {'standard deviations' if x.dim() == 2 else 'the units of the data'}",
            "examples": {"attacked": len(x)},
            "warnings": list(parts.notes),
        }

    def attack(self, eps: float, units: Units) -> Attacking:
        """The attack of a size."""
        norm, box = NORMS[self.norm], units.box
        plain = PGD(eps=eps, norm=norm, steps=self.steps, enough=0.0, box=box, seed=self.engine.seed)
        match self.by:
            case "pgd":
                return plain
            case "fgsm":
                return FGSM(eps=eps, norm=norm, box=box)
            case "momentum":
                return PGD(eps=eps, norm=norm, steps=self.steps, momentum=1.0, start=0.0, enough=0.0, box=box)
            case "deepfool":
                return DeepFool(eps=eps, norm=norm, steps=self.steps, box=box)
            case "carlini-wagner":
                return CarliniWagner(eps=eps, steps=self.steps, box=box)
            case "worst":
                other = PGD(eps=eps, norm=norm, steps=self.steps, gain=margin, enough=0.0, box=box, seed=1)
                return WorstCaseAttack((FGSM(eps=eps, norm=norm, box=box), plain, other))

    def drawn(
        self,
        run: Run,
        classifier: nn.Module,
        x: torch.Tensor,
        y: torch.Tensor,
        attack: Attacking,
        names: tuple[str, ...],
    ) -> None:
        """Draws some examples before and after the attack, where they are images or series."""
        if x.dim() < 3:
            return
        near = attack(classifier, x[:64], y[:64])
        before, after = (predict(classifier, part).argmax(1) for part in (x[:64], near))
        fooled = ((before == y[:64]) & (after != y[:64])).nonzero()[:, 0][:8]
        chosen = fooled if len(fooled) else torch.arange(min(8, len(near)))
        said = [[names[int(k)] for k in classes[chosen]] for classes in (before, after)]
        figures.save(
            figures.adversarial_examples(x[chosen], near[chosen], said[0], said[1]), run.figures / "examples.png"
        )
