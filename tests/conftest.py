"""Shapes and types of what the library computes are checked at every call while the tests run."""

from jaxtyping import install_import_hook

CHECKED = ("functions", "groups", "blocks", "solvers", "objectives", "models")

install_import_hook([f"lawful.{folder}" for folder in CHECKED], "beartype.beartype")
