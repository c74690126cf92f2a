"""Discrete groups: elements are integers or lists of them."""
