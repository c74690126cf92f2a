"""Attacks: inputs close to given ones that a classifier takes for something else, and what is left of its accuracy."""

from lawful.inference.attacks.base import (
    FREE,
    TARGETED,
    UNIT,
    UNTARGETED,
    Attack,
    Classifier,
    Goal,
    InputBounds,
    log_odds,
    margin,
)
from lawful.inference.attacks.evaluate import TowardEach, WorstCaseAttack, robust_accuracy
from lawful.inference.attacks.gradient import FGSM, PGD
from lawful.inference.attacks.minimal import CarliniWagner, DeepFool
from lawful.inference.attacks.norms import L1, L2, LInf, Norm

__all__ = [
    "FGSM",
    "FREE",
    "L1",
    "L2",
    "PGD",
    "TARGETED",
    "UNIT",
    "UNTARGETED",
    "Attack",
    "CarliniWagner",
    "Classifier",
    "DeepFool",
    "Goal",
    "InputBounds",
    "LInf",
    "Norm",
    "TowardEach",
    "WorstCaseAttack",
    "log_odds",
    "margin",
    "robust_accuracy",
]
