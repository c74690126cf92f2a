"""Recipes: a complete training each, from the data to the report."""

from lawful.recipes.attack import AttackRecipe
from lawful.recipes.autoencode import AutoencodeRecipe
from lawful.recipes.classify import ClassifyRecipe
from lawful.recipes.classify_text import ClassifyTextRecipe
from lawful.recipes.diffusion import DiffusionRecipe
from lawful.recipes.double_descent import DoubleDescentRecipe
from lawful.recipes.flow import FlowRecipe
from lawful.recipes.forecast import ForecastRecipe
from lawful.recipes.gan import GANRecipe
from lawful.recipes.generate import complete, draw, sample, score, tokenizer_of
from lawful.recipes.modular import ModularRecipe
from lawful.recipes.pca import PCARecipe
from lawful.recipes.registry import RECIPES, load, recipe_of
from lawful.recipes.regress import RegressRecipe
from lawful.recipes.sort import SortRecipe
from lawful.recipes.text import TextRecipe
from lawful.recipes.translate import TranslateRecipe
from lawful.recipes.vae import VAERecipe

__all__ = [
    "RECIPES",
    "AttackRecipe",
    "AutoencodeRecipe",
    "ClassifyRecipe",
    "ClassifyTextRecipe",
    "DiffusionRecipe",
    "DoubleDescentRecipe",
    "FlowRecipe",
    "ForecastRecipe",
    "GANRecipe",
    "ModularRecipe",
    "PCARecipe",
    "RegressRecipe",
    "SortRecipe",
    "TextRecipe",
    "TranslateRecipe",
    "VAERecipe",
    "complete",
    "draw",
    "load",
    "recipe_of",
    "sample",
    "score",
    "tokenizer_of",
]
