"""Recipes of language: text in, text out."""

from lawful.recipes.language.classify_text import ClassifyText
from lawful.recipes.language.forecast import Forecast
from lawful.recipes.language.sort import Sort
from lawful.recipes.language.text import Text
from lawful.recipes.language.translate import Translate

__all__ = ["ClassifyText", "Forecast", "Sort", "Text", "Translate"]
