"""The tape: what a recorder has kept, by name.

Edits: what to put in the place of an intermediate.
The pattern of fused attention, in any model: computed step by step while it is asked for.
Recording: every intermediate of a model by its name, to look at or to change.
"""

from __future__ import annotations

import difflib
import math
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from types import EllipsisType, FunctionType
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from lawful.functions.tap import is_recorded, open_recorder, tap
from lawful.laws import Claim, agreement, shape


def near(name: str, known: Iterable[str]) -> str:
    """Ends a sentence about a name that is not there with the known names most like it.

    Args:
        name: What was asked for.
        known: What there is.

    Examples:
        >>> near("layers.0.patern", ["layers.0.pattern", "norm", "head"])
        '; near names: layers.0.pattern'
    """
    known = list(dict.fromkeys(known))
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    last = name.rpartition(".")[2]
    close += [k for k in known if k.rpartition(".")[2] == last and k not in close][: 3 - len(close)]
    return f"; near names: {', '.join(close)}" if close else ""


class Pattern:
    """A name in which `*` stands for any characters and `?` for any one.

    Args:
        text: The name.

    Examples:
        >>> Pattern("layers.*.pattern").fits("layers.0.block.pattern"), Pattern("z").fits("layers.0.z")
        (True, False)
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.plain = not set(text) & {"*", "?"}
        parts = ({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in text)
        self._fits = re.compile("".join(parts), re.S).fullmatch

    def fits(self, name: str) -> bool:
        """Says whether a name is one of those meant."""
        return self._fits(name) is not None


class ActivationCache(Mapping[str, Any]):
    """Holds the values that were asked for, in the order in which they first came up.

    `tape["layers.0.block.pattern"]` is a value; `tape.names` are the names of all that could have been asked for.
    Values are kept as they are, with their gradients and without a copy; one that was changed in place since is an
    error.

    Examples:
        >>> tape = ActivationCache()
        >>> tape.keep("a", torch.tensor([1.0]))
        >>> list(tape), tape["a"]
        (['a'], tensor([1.]))
    """

    def __init__(self) -> None:
        self._kept: dict[str, list[tuple[Any, int | None]]] = {}
        self._names: dict[str, None] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of everything that came up while recording, kept or not."""
        return tuple(self._names)

    def note(self, name: str) -> None:
        """Remembers that a name came up."""
        self._names[name] = None

    def keep(self, name: str, value: Any) -> None:
        """Keeps a value, after those that the name had before."""
        self.note(name)
        self._kept.setdefault(name, []).append((value, _version(value)))

    def calls(self, name: str) -> list[Any]:
        """Returns the values of a name, one for each time that it came up.

        Args:
            name: What the value is called.
        """
        if name not in self._kept:
            raise KeyError(f"{name} was not recorded{near(name, self._names)}")
        for value, version in self._kept[name]:
            if _version(value) != version:
                raise RuntimeError(f"{name} was changed in place after it was recorded: record a copy, or edit it")
        return [value for value, _ in self._kept[name]]

    def __getitem__(self, name: str) -> Any:
        values = self.calls(name)
        if len(values) > 1:
            raise LookupError(f"{name} came up {len(values)} times: take one of tape.calls({name!r})")
        return values[0]

    def __contains__(self, name: object) -> bool:
        return name in self._kept

    def __iter__(self) -> Iterator[str]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def tensor(self, name: str) -> Tensor:
        """Returns a value that is a tensor, or the first entry of one that is a tuple.

        Args:
            name: What the value is called.
        """
        value = self[name]
        return value[0] if isinstance(value, tuple) else value

    def stack(self, pattern: str) -> Tensor:
        """Returns the values of all names of a pattern, which are of one shape, along a new first axis.

        Args:
            pattern: The names, with `*` and `?`.
        """
        found = [self[name] for name in self if Pattern(pattern).fits(name)]
        if not found:
            raise KeyError(f"{pattern} was not recorded{near(pattern, self._names)}")
        return torch.stack(found)

    def __repr__(self) -> str:
        shown = (f"{name}: {_shown(values[-1][0])}" for name, values in self._kept.items())
        return f"Tape({', '.join(shown)})"


def _version(value: Any) -> int | None:
    """How often a tensor has been changed in place, where that is counted."""
    return value._version if isinstance(value, Tensor) and not value.is_inference() else None


def _shown(value: Any) -> str:
    return str(tuple(value.shape)) if isinstance(value, Tensor) else type(value).__name__


Edit = Callable[[Tensor], Tensor]
Index = int | slice | EllipsisType | Tensor | tuple[int | slice | EllipsisType | Tensor, ...]


def zero_ablation(x: Tensor) -> Tensor:
    """Puts 0 in the place of a value.

    Args:
        x: The value.

    Examples:
        >>> zero_ablation(torch.tensor([1.0, 2.0]))
        tensor([0., 0.])
    """
    return torch.zeros_like(x)


def mean_ablation(*axes: int) -> Edit:
    """Puts the mean over some axes in the place of a value: over the batch unless others are given.

    What is the same for all samples stays, what tells them apart goes.

    Args:
        axes: The axes that the mean runs over.

    Examples:
        >>> mean_ablation()(torch.tensor([[1.0], [3.0]])).flatten()
        tensor([2., 2.])
    """
    return lambda x: x.mean(axes or (0,), keepdim=True).expand_as(x)


def resample_ablation(*, seed: int = 0) -> Edit:
    """Puts the value of another sample of the batch, drawn at random, in the place of each.

    The samples are renumbered in a random order in which none keeps its place, so that their distribution stays.

    Args:
        seed: What the order is drawn from.

    Examples:
        >>> resample_ablation()(torch.tensor([[1.0], [3.0]])).flatten()
        tensor([3., 1.])
    """

    def edit(x: Tensor) -> Tensor:
        if len(x) < 2:
            raise ValueError(f"resampling needs a batch of at least 2: got {len(x)}")
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed)).to(x.device)
        return x[order.roll(1)[order.argsort()]]

    return edit


def steering(vector: Float[Tensor, "*shape"], *, by: float = 1.0) -> Edit:
    r"""Adds a multiple of a vector to a value.

    $$x + \lambda v$$

    Args:
        vector: $v$, of a shape that broadcasts to the value.
        by: $\lambda$.

    Examples:
        >>> steering(torch.tensor([0.0, 1.0]), by=3.0)(torch.ones(2))
        tensor([1., 4.])
    """
    return lambda x: x + by * vector


def replaced(value: Tensor) -> Edit:
    """Puts a given value in the place of one of the same shape: that of another run.

    Args:
        value: The value.

    Examples:
        >>> replaced(torch.ones(2))(torch.zeros(2))
        tensor([1., 1.])
    """

    def edit(x: Tensor) -> Tensor:
        if x.shape != value.shape:
            raise ValueError(f"a value of shape {tuple(x.shape)} was wanted: got {tuple(value.shape)}")
        return value

    return edit


def only(index: Index, edit: Edit) -> Edit:
    """Restricts an edit to part of a value: one head, some positions.

    Args:
        index: The part, as in `x[index]`: `(..., 3, slice(None), slice(None))` is head 3 of `(*batch, h, t, k)`.
        edit: What is done to that part.

    Examples:
        >>> only((..., 1), zero_ablation)(torch.ones(2, 2))
        tensor([[1., 0.],
                [1., 0.]])
    """

    def part(x: Tensor) -> Tensor:
        y = x.clone()
        y[index] = edit(x[index])
        return y

    return part


def _edits_claims() -> Iterator[Claim]:
    """The laws that edits obey."""
    v = torch.tensor([1.0, -2.0, 3.0])

    def steer(x: Tensor) -> Tensor:
        return steering(v.to(x), by=-2.0)(x)

    def mean(x: Tensor) -> Tensor:
        return torch.stack([x.sum(0) / len(x)] * len(x))

    def part(x: Tensor) -> Tensor:
        return only((..., slice(1, 3)), zero_ablation)(x)

    def masked(x: Tensor) -> Tensor:
        return x * torch.tensor([1, 0, 0]).to(x)

    def mates(x: Tensor) -> Tensor:
        """How many samples came from elsewhere, and their sum."""
        numbers = torch.arange(len(x)).to(x)
        moved = torch.stack([resample_ablation(seed=seed)(numbers) for seed in range(5)])
        return torch.stack([(moved != numbers).sum().to(x), moved.sum()])

    yield Claim(agreement(other=lambda x: x - 2 * v.to(x)), steer, shape("b 3"), name="steered")
    yield Claim(agreement(other=mean), mean_ablation(), shape("b 3"), name="averaged")
    yield Claim(
        agreement(other=lambda x: 0 * x + x.mean()), mean_ablation(0, 1), shape("b 3"), name="averaged over all"
    )
    yield Claim(agreement(other=masked), part, shape("b 3"), name="only")
    counted = agreement(other=lambda x: x.new_tensor([5 * len(x), 5 * len(x) * (len(x) - 1) / 2]))
    yield Claim(counted, mates, shape("b:2..9 3"), name="resampled")


def tapped_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    r"""Does what PyTorch's `scaled_dot_product_attention` does, with its `scores` and its `pattern` tapped.

    $$\operatorname{softmax}\bigl(s \, q k^\top + m\bigr) \, v$$

    The arguments are those of PyTorch's function, and so is the alignment of `is_causal`, to the first key.

    Examples:
        >>> q, k, v = torch.randn(3, 1, 4, 2).unbind()
        >>> torch.allclose(tapped_attention(q, k, v), F.scaled_dot_product_attention(q, k, v), atol=1e-6)
        True
    """
    if enable_gqa:
        key, value = (x.repeat_interleave(query.shape[-3] // x.shape[-3], -3) for x in (key, value))
    scores = query @ key.mT * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        attn_mask = scores.new_ones(scores.shape[-2:], dtype=torch.bool).tril()
    if attn_mask is not None:
        seen = attn_mask.dtype == torch.bool
        scores = scores.masked_fill(~attn_mask, -math.inf) if seen else scores + attn_mask
    pattern = torch.softmax(tap("scores", scores), -1)
    if attn_mask is not None:
        pattern = pattern.masked_fill((scores == -math.inf).all(-1, keepdim=True), 0.0)
    return F.dropout(tap("pattern", pattern), dropout_p) @ value


# What `nn.MultiheadAttention` calls, with the attention inside it tapped.
_forward: Any = F.multi_head_attention_forward
_inside = {"scaled_dot_product_attention": tapped_attention, "has_torch_function": lambda _: False}
_tapped_forward = FunctionType(_forward.__code__, _forward.__globals__ | _inside, argdefs=_forward.__defaults__)


class WatchedAttention(TorchFunctionMode):
    """Puts `tapped_attention` in the place of PyTorch's fused attention, wherever its pattern is asked for."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Calls a function of PyTorch, or what stands in for it."""
        if func in (F.scaled_dot_product_attention, F.multi_head_attention_forward) and is_recorded(
            "scores", "pattern"
        ):
            func = tapped_attention if func is F.scaled_dot_product_attention else _tapped_forward
        return func(*args, **(kwargs or {}))


def _fused_claims() -> Iterator[Claim]:
    """The laws that tapped attention obeys."""
    lower = torch.ones(3, 3, dtype=torch.bool).tril(1)
    cases = {
        "plain": {},
        "causal": {"is_causal": True},
        "mask and scale": {"attn_mask": lower, "scale": 0.7},
        "added mask": {"attn_mask": 1.0 * lower},
        "an empty row": {"attn_mask": lower & torch.tensor([[True], [False], [True]])},
    }
    for name, options in cases.items():

        def tapped_form(x: Tensor, options: dict[str, Any] = options) -> Tensor:
            return tapped_attention(x, x.flip(-1), x.roll(1, -2), **_typed(options, x))

        def fused(x: Tensor, options: dict[str, Any] = options) -> Tensor:
            return F.scaled_dot_product_attention(x, x.flip(-1), x.roll(1, -2), **_typed(options, x))

        yield Claim(agreement(other=fused), tapped_form, shape("b 2 3 4"), name=f"tapped_attention, {name}")

    def grouped(x: Tensor) -> Tensor:
        return tapped_attention(x, x[:, :2], x[:, 2:], enable_gqa=True)

    def repeated(x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(x, x[:, [0, 0, 1, 1]], x[:, [2, 2, 3, 3]])

    yield Claim(agreement(other=repeated), grouped, shape("b 4 3 2"), name="tapped_attention, grouped")


def _typed(options: dict[str, Any], x: Tensor) -> dict[str, Any]:
    """The options, with an added mask in the precision of x."""
    return {k: v.to(x) if isinstance(v, Tensor) and v.is_floating_point() else v for k, v in options.items()}


EditRecord = Callable[[Any], Any]
WITHOUT_A_PATTERN = (
    " (they are those of MultiHeadAttention and of PyTorch's scaled_dot_product_attention, neither of which ran; "
    'a model of Hugging Face is to be loaded with attn_implementation="sdpa")'
)


@contextmanager
def record(model: nn.Module, *names: str, edit: Mapping[str, EditRecord] | None = None) -> Iterator[ActivationCache]:
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
        stack.enter_context(open_recorder(recorder))
        yield recorder.tape
    recorder.complete()


class _Recorder:
    """Knows which module is running, by hooks, and so the full name of what is tapped."""

    def __init__(self, model: nn.Module, names: tuple[str, ...], edit: Mapping[str, EditRecord]) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"a module was wanted: got {type(model).__name__}")
        self.model: nn.Module = getattr(model, "_orig_mod", model)
        self.asked = [(Pattern(name), None) for name in names] + [(Pattern(name), f) for name, f in edit.items()]
        self.tape, self.thread = ActivationCache(), threading.get_ident()
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

    def _meant(self, name: str) -> tuple[bool, tuple[EditRecord, ...]]:
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


def _record_claims() -> Iterator[Claim]:
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


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _edits_claims()
    yield from _fused_claims()
    yield from _record_claims()
