"""Shapes and types of functions and blocks are checked at every call while the tests run."""

from jaxtyping import install_import_hook

install_import_hook(["lawful.functions", "lawful.blocks"], "beartype.beartype")
