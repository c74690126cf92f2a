"""Recipes: a complete training each, from the data to the report."""

from lawful.recipes.ask import complete, draw, score
from lawful.recipes.catalogue import RECIPES, load, recipe_of
from lawful.recipes.classify import Classify
from lawful.recipes.double_descent import DoubleDescent
from lawful.recipes.generative import Attack, Autoencode, Diffusion, Flow, Gan, Pca, Vae
from lawful.recipes.language import ClassifyText, Forecast, Sort, Text, Translate
from lawful.recipes.modular import Modular
from lawful.recipes.regress import Regress
from lawful.recipes.sample import sample, tokenizer_of

__all__ = [
    "RECIPES",
    "Attack",
    "Autoencode",
    "Classify",
    "ClassifyText",
    "Diffusion",
    "DoubleDescent",
    "Flow",
    "Forecast",
    "Gan",
    "Modular",
    "Pca",
    "Regress",
    "Sort",
    "Text",
    "Translate",
    "Vae",
    "complete",
    "draw",
    "load",
    "recipe_of",
    "sample",
    "score",
    "tokenizer_of",
]
