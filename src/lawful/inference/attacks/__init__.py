"""Attacks: inputs close to given ones that a classifier takes for something else, and what is left of its accuracy."""

from lawful.inference.attacks.attack import Attack
from lawful.inference.attacks.box import FREE, UNIT, Box
from lawful.inference.attacks.carlini_wagner import CarliniWagner
from lawful.inference.attacks.deep_fool import DeepFool
from lawful.inference.attacks.fgsm import FGSM
from lawful.inference.attacks.goals import AWAY, TOWARD, Goal, log_odds, margin
from lawful.inference.attacks.looking import Classifier
from lawful.inference.attacks.norms import L1, L2, LInf, Norm
from lawful.inference.attacks.pgd import PGD
from lawful.inference.attacks.worst import TowardEach, Worst, robust_accuracy

__all__ = [
    "AWAY",
    "FGSM",
    "FREE",
    "L1",
    "L2",
    "PGD",
    "TOWARD",
    "UNIT",
    "Attack",
    "Box",
    "CarliniWagner",
    "Classifier",
    "DeepFool",
    "Goal",
    "LInf",
    "Norm",
    "TowardEach",
    "Worst",
    "log_odds",
    "margin",
    "robust_accuracy",
]
