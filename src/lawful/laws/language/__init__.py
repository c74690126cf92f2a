"""The words in which laws are stated."""

from lawful.laws.language.claim import Claim
from lawful.laws.language.compose import all_of, kink_at, ties
from lawful.laws.language.draw import Discard, Draw
from lawful.laws.language.inputs import Input, made, mask, probabilities, shape, tokens
from lawful.laws.language.law import ALL, Axis, Inapplicable, Law, Unable, law
from lawful.laws.language.map import Map
from lawful.laws.language.statement import (
    AtMost,
    Averages,
    Finite,
    Follows,
    Reached,
    Same,
    Statement,
    Unchanged,
    at,
    between,
    index_along,
    up_to,
)

__all__ = [
    "ALL",
    "AtMost",
    "Averages",
    "Axis",
    "Claim",
    "Discard",
    "Draw",
    "Finite",
    "Follows",
    "Inapplicable",
    "Input",
    "Law",
    "Map",
    "Reached",
    "Same",
    "Statement",
    "Unable",
    "Unchanged",
    "all_of",
    "at",
    "between",
    "index_along",
    "kink_at",
    "law",
    "made",
    "mask",
    "probabilities",
    "shape",
    "ties",
    "tokens",
    "up_to",
]
