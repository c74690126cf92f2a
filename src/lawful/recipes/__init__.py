"""Recipes: a complete training each, from the data to the report."""

from lawful.recipes.catalogue import RECIPES, load, recipe_of
from lawful.recipes.classify import Classify
from lawful.recipes.double_descent import DoubleDescent
from lawful.recipes.language import ClassifyText, Forecast, Sort, Text, Translate
from lawful.recipes.modular import Modular
from lawful.recipes.regress import Regress
from lawful.recipes.sample import sample, tokenizer_of

__all__ = [
    "RECIPES",
    "Classify",
    "ClassifyText",
    "DoubleDescent",
    "Forecast",
    "Modular",
    "Regress",
    "Sort",
    "Text",
    "Translate",
    "load",
    "recipe_of",
    "sample",
    "tokenizer_of",
]
