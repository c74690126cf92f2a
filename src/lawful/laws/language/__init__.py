"""The words in which laws are stated."""

from lawful.laws.language.claim import Claim
from lawful.laws.language.draw import Discard, Draw
from lawful.laws.language.inputs import Input, mask, shape, tokens
from lawful.laws.language.law import ALL, Axis, Inapplicable, Law, law
from lawful.laws.language.map import Map
from lawful.laws.language.statement import (
    AtMost,
    Finite,
    Follows,
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
    "Same",
    "Statement",
    "Unchanged",
    "at",
    "between",
    "index_along",
    "law",
    "mask",
    "shape",
    "tokens",
    "up_to",
]
