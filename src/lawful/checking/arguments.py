"""What a map takes and returns: which inputs and outputs a law names, and what the report calls them."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from lawful.laws.language import ALL, Law
from lawful.laws.language.law import nearest
from lawful.laws.language.tree import leaves


class MapRaised(Exception):
    """The map raised, or returned what no law can speak of."""

    def __init__(self, sentence: str, cause: BaseException | None = None) -> None:
        super().__init__(sentence)
        self.cause = cause


def read(output: Any, key: Any) -> Any:
    """Picks an output: the first tensor, all of them, or the one that a key names."""
    if isinstance(output, int | float | complex) and not isinstance(output, bool):
        output = torch.tensor(output)
    found = leaves(output)
    if not found:
        kind = "None" if output is None else f"a {type(output).__name__} with no tensor in it"
        raise MapRaised(f"a tensor, or a structure of tensors, was wanted: the map returned {kind}")
    for x in found.values():
        if x.is_nested or x.layout is not torch.strided:
            raise MapRaised("dense tensors were wanted: the map returned a nested or sparse one")
    if key is ALL:
        return tuple(found.values())
    if key is None:
        return next(iter(found.values()))
    if str(key) in found:
        return found[str(key)]
    if isinstance(key, int) and 0 <= key < len(found):
        return list(found.values())[key]
    if isinstance(key, str) and isinstance(getattr(output, key, None), Tensor):
        return getattr(output, key)
    known = [name or "a single tensor" for name in found]
    raise ValueError(f"there is no output {key!r}{nearest(str(key), known)} The map returned: {', '.join(known)}")


def focus(law: Law, arguments: Any, names: list[str]) -> tuple[str, ...]:
    """Finds the paths of the inputs that a law speaks of; `names` are those of the map's positional arguments."""
    found = list(leaves(arguments))
    names = names if isinstance(arguments, tuple) else []
    if law.input is ALL:
        return tuple(found)
    if law.input is None:
        wanted = 1 if law.arity is None else law.arity
        if len(found) < wanted:
            raise ValueError(f"{law.name} speaks of {wanted} inputs: got {len(found)}")
        return tuple(found[:wanted])
    keys = law.input if isinstance(law.input, tuple) else (law.input,)
    paths = []
    for key in keys:
        if isinstance(key, int) and str(key) not in found and 0 <= key < len(found):
            path = found[key]
        else:
            path = str(names.index(key)) if key in names else str(key)
        if path not in found:
            known = [names[int(p)] if p.isdigit() and int(p) < len(names) else p for p in found]
            raise ValueError(f"there is no input {key!r}{nearest(str(key), known)} The inputs are: {', '.join(known)}")
        paths.append(path)
    if law.arity is not None and len(paths) != law.arity:
        raise ValueError(f"{law.name} speaks of {law.arity} inputs: input={law.input!r} names {len(paths)}")
    return tuple(paths)


def argument_names(target: Any) -> list[str]:
    """The names of the positional arguments of a map, as far as it has a signature."""
    function = target.forward if isinstance(target, nn.Module) else target
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.POSITIONAL_ONLY)]


def labels(arguments: Any, names: list[str]) -> dict[str, str]:
    """Names every input as the map's own signature does, or x for an only one."""
    found = list(leaves(arguments))
    if not isinstance(arguments, tuple):
        return {path: path for path in found}
    shown = {}
    for path in found:
        head, _, rest = path.partition(".")
        name = names[int(head)] if int(head) < len(names) else "x" if len(found) == 1 else f"x{head}"
        shown[path] = f"{name}.{rest}" if rest else name
    return shown
