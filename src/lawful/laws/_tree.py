"""Nested structures of tensors: tuples, lists, mappings and dataclasses, as modules take and return them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

Key = int | str
"""Names a leaf: an index, a key or an attribute, or several of them joined by dots (`"1.hidden"`)."""


def children(node: Any) -> dict[Key, Any] | None:
    """Returns the items of a mapping, dataclass, tuple or list by key; None for anything else."""
    if type(node) in (tuple, list):  # by far the most frequent case, so it comes first
        return dict(enumerate(node))
    if isinstance(node, Mapping):
        return dict(node)
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        return {field.name: getattr(node, field.name) for field in dataclasses.fields(node)}
    if isinstance(node, tuple) and hasattr(node, "_fields"):
        return dict(zip(node._fields, node, strict=True))  # pyrefly: ignore
    if isinstance(node, tuple | list):
        return dict(enumerate(node))
    return None


def leaves(tree: Any, kind: type | tuple[type, ...] = Tensor, path: str = "") -> dict[str, Any]:
    """Returns the leaves of type `kind` by dotted path, in order. Other leaves are skipped."""
    if isinstance(tree, kind):
        return {path: tree}
    found: dict[str, Any] = {}
    for key, child in (children(tree) or {}).items():
        found |= leaves(child, kind, f"{path}.{key}" if path else str(key))
    return found


def transform(
    tree: Any, function: Callable[[str, Any], Any], kind: type | tuple[type, ...] = Tensor, path: str = ""
) -> Any:
    """Rebuilds a structure with every leaf of type `kind` replaced by `function(path, leaf)`."""
    if isinstance(tree, kind):
        return function(path, tree)
    parts = children(tree)
    if parts is None:
        return tree
    new = {key: transform(child, function, kind, f"{path}.{key}" if path else str(key)) for key, child in parts.items()}
    if type(tree) in (tuple, list):
        return type(tree)(new.values())
    if isinstance(tree, Mapping):
        return new
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        return dataclasses.replace(tree, **{str(key): value for key, value in new.items()})
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*new.values())
    return type(tree)(new.values())
