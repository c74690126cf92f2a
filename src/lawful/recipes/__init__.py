"""Recipes: a complete training each, from the data to the report."""

from lawful.recipes.catalogue import RECIPES, load, recipe_of
from lawful.recipes.classify import Classify
from lawful.recipes.double_descent import DoubleDescent
from lawful.recipes.modular import Modular
from lawful.recipes.regress import Regress

__all__ = ["RECIPES", "Classify", "DoubleDescent", "Modular", "Regress", "load", "recipe_of"]
