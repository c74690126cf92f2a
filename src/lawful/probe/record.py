"""Recording: every intermediate of a model by its name, to look at or to change."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from lawful.functions.tap import listening, tap
from lawful.laws import Claim, agreement, shape
from lawful.probe.fused import WatchedAttention
from lawful.probe.tape import Pattern, Tape, near

Edit = Callable[[Any], Any]
WITHOUT_A_PATTERN = (
    " (they are those of MultiHeadAttention and of PyTorch's scaled_dot_product_attention, neither of which ran; "
    'a model of Hugging Face is to be loaded with attn_implementation="sdpa")'
)


@contextmanager
def record(model: nn.Module, *names: str, edit: Mapping[str, Edit] | None = None) -> Iterator[Tape]:
    """Records intermediates of a model while the block lasts, and changes those for which there is an edit.

    What has a name: the output of every submodule, under its path (`layers.0.block`); what goes into it, its first
    argument (`layers.0.block.input`); and what is tapped in its code (`layers.0.block.pattern`), in your own modules
    as in those of this library. Of attention by PyTorch's fused function, in any model, `scores` and `pattern` are
    computed when asked for. In a name, `*` stands for any characters and `?` for one. Only what is asked for is kept;
    `tape.names` lists what came up. Of an output that is a tuple an edit changes the first entry. A compiled model runs
    as it is written while it is recorded.

    A name that never comes up is a `LookupError`: at once where no submodule fits it, else when the block ends. Hooks
    are removed however the block ends; blocks may be nested, and each records only its own thread.

    Args:
        model: Any module.
        names: What is to be kept.
        edit: For each name a function: the model goes on with what it returns, and that is what is kept.

    Examples:
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
        >>> with record(model, "0") as tape:
        ...     y = model(torch.ones(1, 2))
        >>> tape.names, tape["0"].shape
        (('input', '0.input', '0', '1.input', '1'), torch.Size([1, 3]))
        >>> with record(model, edit={"0": torch.zeros_like}):
        ...     print(model(torch.ones(1, 2)).detach())
        tensor([[0., 0., 0.]])
    """
    recorder = _Recorder(model, names, edit or {})
    with ExitStack() as stack:
        if "torch._dynamo" in sys.modules:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        recorder.hook(stack)
        if recorder.minds_attention():
            stack.enter_context(WatchedAttention())
        stack.enter_context(listening(recorder))
        yield recorder.tape
    recorder.complete()


class _Recorder:
    """Knows which module is running, by hooks, and so the full name of what is tapped."""

    def __init__(self, model: nn.Module, names: tuple[str, ...], edit: Mapping[str, Edit]) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"a module was wanted: got {type(model).__name__}")
        self.model: nn.Module = getattr(model, "_orig_mod", model)
        self.asked = [(Pattern(name), None) for name in names] + [(Pattern(name), f) for name, f in edit.items()]
        self.tape, self.thread = Tape(), threading.get_ident()
        self.paths: dict[nn.Module, list[str]] = {}
        for path, module in self.model.named_modules(remove_duplicate=False):
            self.paths.setdefault(module, []).append(path.replace("_orig_mod.", ""))
        self.known = {path for paths in self.paths.values() for path in paths}
        self.running: list[str] = []
        self.ran = False
        self.meant = cache(self._meant)
        self.came: set[str] = set()
        for pattern, _ in self.asked:
            self._check(pattern)

    def _check(self, pattern: Pattern) -> None:
        """Refuses at once a name that cannot come up."""
        if not pattern.plain:
            return
        name, silent = pattern.text, {p for m in self.paths if _is_list(m) for p in self.paths[m]}
        parent, _, last = name.rpartition(".")
        if name in silent:
            raise LookupError(f"{name} is a list of modules, which does not run itself")
        if not last or (name not in self.known and parent not in self.known - silent):
            raise LookupError(f"the model has no {name or 'name that is empty'}{near(name, self.known)}")

    def _meant(self, name: str) -> tuple[bool, tuple[Edit, ...]]:
        """Whether a name is to be kept, and its edits."""
        fitting = [(pattern, f) for pattern, f in self.asked if pattern.fits(name)]
        return any(f is None for _, f in fitting), tuple(f for _, f in fitting if f is not None)

    def hook(self, stack: ExitStack) -> None:
        for module in self.paths:
            for handle in (
                module.register_forward_pre_hook(self._enters),
                module.register_forward_hook(self._returns),
                module.register_forward_hook(self._left, always_call=True),
            ):
                stack.callback(handle.remove)

    def minds_attention(self) -> bool:
        """Whether the scores or the pattern of some attention may be asked for."""
        names = [f"{path}.{name}".lstrip(".") for path in self.known for name in ("scores", "pattern")]
        return not self.asked or any(self._is_tapped(pattern, names) for pattern, _ in self.asked)

    def _is_tapped(self, pattern: Pattern, names: list[str]) -> bool:
        """Whether one of these is meant, or a name inside a module that may be one of them, misspelt."""
        if pattern.plain:
            return pattern.text not in self.known and not pattern.text.endswith("input")
        return any(pattern.fits(name) for name in names)

    def complete(self) -> None:
        """Refuses a name that did not come up."""
        for pattern, _ in self.asked:
            if not any(pattern.fits(name) for name in self.came):
                why = "" if self.ran else " (the model did not run while it was recorded)"
                if self.ran and pattern.text.endswith(("pattern", "scores")):
                    why = WITHOUT_A_PATTERN if not any(n.endswith("pattern") for n in self.tape.names) else ""
                raise LookupError(f"{pattern.text} did not come up{why}{near(pattern.text, self.tape.names)}")

    def _mine(self) -> bool:
        return threading.get_ident() == self.thread

    def _enters(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if not self._mine():
            return None
        self.ran = True
        inside = f"{self.running[-1]}." if self.running and self.running[-1] else ""
        paths = self.paths[module]
        self.running.append(next((path for path in paths if path.startswith(inside)), paths[0]))
        name = self._full("input")
        if not args or not isinstance(args[0], Tensor) or name in self.known:
            return None
        return (self._passes(name, args[0]), *args[1:])

    def _returns(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        if not self._mine() or not self.running or not self.running[-1]:
            return None
        return self._passes(self.running[-1], output)

    def _left(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if self._mine() and self.running:
            self.running.pop()

    def _full(self, name: str) -> str:
        return f"{self.running[-1]}.{name}" if self.running[-1] else name

    def _passes(self, name: str, value: Any) -> Any:
        keep, edits = self.meant(name)
        self.tape.note(name)
        if keep or edits:
            self.came.add(name)
        for f in edits:
            value = (f(value[0]), *value[1:]) if type(value) is tuple and value else f(value)
        if keep:
            self.tape.keep(name, value)
        return value

    def wants(self, name: str) -> bool:
        if not self.running or not self._mine():
            return False
        full = self._full(name)
        self.tape.note(full)
        keep, edits = self.meant(full)
        return keep or bool(edits)

    def heard(self, name: str, x: Tensor) -> Tensor:
        return self._passes(self._full(name), x) if self.running and self._mine() else x


def _is_list(module: nn.Module) -> bool:
    """Whether a module only holds others."""
    return type(module).forward is nn.Module.forward


class _Example(nn.Module):
    """A small residual model with a tap."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(tap("bent", torch.tanh(self.first(x))))


def claims() -> Iterator[Claim]:
    """The laws that recording obeys."""
    model = _Example()

    def recorded(x: Tensor) -> Tensor:
        with record(model, "*"):
            return model(x)

    def seen(x: Tensor) -> tuple[Tensor, ...]:
        with record(model, "first", "bent", "second.input", "second") as tape:
            model(x)
        return tuple(tape[name] for name in ("first", "bent", "second.input", "second"))

    def written(x: Tensor) -> tuple[Tensor, ...]:
        first = x @ model.first.weight.T + model.first.bias
        bent = first.tanh()
        return first, bent, bent, bent @ model.second.weight.T + model.second.bias

    def edited(x: Tensor) -> Tensor:
        with (
            record(model, edit={"first": lambda y: 2 * y}),
            record(model, edit={"bent": torch.square, "s*d": torch.neg}),
        ):
            return model(x)

    def by_hand(x: Tensor) -> Tensor:
        return x - model.second((2 * model.first(x)).tanh() ** 2)

    def after(x: Tensor) -> Tensor:
        edited(x)
        return model(x)

    yield Claim(agreement(other=model), recorded, shape("b 3"), name="a recorded model")
    yield Claim(agreement(other=written), seen, shape("b 3"), name="what is recorded")
    yield Claim(agreement(other=by_hand), edited, shape("b 3"), name="an edited model")
    yield Claim(agreement(other=recorded), after, shape("b 3"), name="a model after an edit")
