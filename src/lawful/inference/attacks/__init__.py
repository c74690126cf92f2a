"""Adversarial attacks on classifiers, and robust accuracy."""

from lawful.inference.attacks.base import (
    FREE,
    TARGETED,
    UNIT,
    UNTARGETED,
    Attack,
    AttackLoss,
    Classifier,
    Goal,
    InputBounds,
    log_odds,
    margin,
)
from lawful.inference.attacks.evaluate import MultiTargetedAttack, WorstCaseAttack, robust_accuracy
from lawful.inference.attacks.gradient import FGSM, PGD
from lawful.inference.attacks.minimal import CarliniWagner, DeepFool
from lawful.inference.attacks.norms import L1, L2, LInf, Norm, Perturbation

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
    "AttackLoss",
    "CarliniWagner",
    "Classifier",
    "DeepFool",
    "Goal",
    "InputBounds",
    "LInf",
    "MultiTargetedAttack",
    "Norm",
    "Perturbation",
    "WorstCaseAttack",
    "log_odds",
    "margin",
    "robust_accuracy",
]
