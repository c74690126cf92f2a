"""What recipes with examples and targets share: from the options to a training, and back from a run to a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import torch
from torch import nn

from lawful.data import Augment, ShuffledBatches, SupervisedDataset, bootstrap_indices
from lawful.inference import Ensemble
from lawful.inference.ensemble import Average
from lawful.laws import Claim
from lawful.models import Standardized
from lawful.recipes.data import DataSplits, Sizes, SupervisedData
from lawful.recipes.model_size import check_parameter_count
from lawful.recipes.optimization import Learning
from lawful.training import Objective, TrainerConfig, TrainingSetup, seeded


@dataclass(frozen=True, kw_only=True)
class Supervised(TrainingSetup):
    """A training together with the examples that it was made of."""

    parts: DataSplits


def prepared(
    model: Standardized,
    parts: DataSplits,
    *,
    learning: Learning,
    engine: TrainerConfig,
    objective: Objective,
    evaluate: Callable[[nn.Module, SupervisedDataset], Mapping[str, float]],
    claims: Callable[[nn.Module], Iterable[Claim]],
    augment: Augment | None = None,
    fitted: bool = False,
) -> Supervised:
    """Makes a training of a model and its examples.

    Args:
        model: The model, fitted to the moments of the training examples.
        parts: The examples.
        learning: How it learns.
        engine: How it is run.
        objective: The loss.
        evaluate: Figures of the model on examples.
        claims: The laws that the trained model is to keep.
        augment: What is done to a batch before a step.
        fitted: Whether the model needs no steps.
    """
    train = drawn(parts.train, learning, engine)
    batches = ShuffledBatches(train.inputs, train.targets, size=learning.batch, seed=engine.seed)
    steps = 0 if fitted else (learning.epochs or 1) * len(batches)
    validation, patience = parts.validation, 0 if fitted else learning.patience
    if patience and validation is None:
        raise ValueError("patience wants examples to choose by: give validation a share above 0, or patience 0")
    return Supervised(
        model=model,
        turns=[] if fitted else [learning.turn(model, objective, steps=steps)],
        batches=batches,
        steps=steps,
        evaluate=None if validation is None else lambda model: evaluate(model, validation),
        every=len(batches),
        patience=patience or None,
        augment=augment,
        constrain=learning.constraint(),
        average=learning.average or None,
        accumulate=learning.accumulate,
        claims=claims,
        described={"encoding": parts.encoding.to_json(), "sizes": Sizes.of(parts.train)},
        fingerprint=parts.fingerprint,
        notes=parts.notes,
        parts=parts,
    )


def used(recipe: Any, only: Mapping[str, Sequence[str]]) -> None:
    """Refuses an option of another model than the one that is trained.

    Args:
        recipe: A dataclass with a field `model`.
        only: The models that an option is for.
    """
    usual = {option.name: option.default for option in fields(recipe)}
    for name, models in only.items():
        if recipe.model not in models and getattr(recipe, name) != usual[name]:
            raise ValueError(f"{name} is for the model {' or '.join(models)}: the model is {recipe.model}")


def drawn(train: SupervisedDataset, learning: Learning, engine: TrainerConfig) -> SupervisedDataset:
    """The examples that a model is trained on: all of them, or as many drawn with replacement."""
    return train.take(bootstrap_indices(len(train), seed=engine.seed)) if learning.bagging else train


@dataclass(frozen=True, kw_only=True)
class Members:
    """What makes an ensemble of a recipe: its members are the same recipe with other seeds."""

    given: SupervisedData = field(default_factory=SupervisedData)
    learning: Learning = field(default_factory=Learning)
    engine: TrainerConfig = field(default_factory=TrainerConfig)

    def members(self) -> list[Self]:
        """The recipes of the members; none where there is one model only."""
        if self.learning.members == 1:
            return []
        return seeded(replace(self, learning=replace(self.learning, members=1)), self.learning.members)

    def together(self, models: Sequence[nn.Module], average: Average) -> nn.Module:
        return models[0] if len(models) == 1 else Ensemble(models, average=average)


def single(build: Callable[[Sizes], Standardized], sizes: Sizes) -> Standardized:
    """Builds one model for raw inputs, after counting its weights without memory for them.

    Raises:
        ValueError: where there are too many.
    """
    check_parameter_count([lambda: build(sizes)])
    return build(sizes)


@torch.no_grad()
def fit_moments(model: Standardized, train: SupervisedDataset) -> Standardized:
    """Gives a model the mean and the deviation of the training examples."""
    return model.fit(train.inputs, None if model.outputs is None else train.targets)
