"""Record the activations of any model by name, and edit them while it runs."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatchcase
from functools import cache
from types import EllipsisType, FunctionType
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from lawful._suggest import did_you_mean
from lawful.functions.tap import is_recorded, open_recorder, tap
from lawful.laws import Claim, agreement, shape

Edit = Callable[[Tensor], Tensor]
"""A function that replaces an activation."""
_Index = int | slice | EllipsisType | Tensor | tuple[int | slice | EllipsisType | Tensor, ...]


class ActivationCache(Mapping[str, Any]):
    """The activations that `record` stored, by name, in the order of the forward pass.

    Activations are not copied and keep their gradients. Reading one that was changed in place after it was recorded
    raises a RuntimeError.

    Examples:
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
        >>> with record(model) as cache:
        ...     y = model(torch.ones(1, 2))
        >>> list(cache.keys())
        ['input', '0.input', '0', '1.input', '1']
        >>> cache["0"].shape
        torch.Size([1, 3])
    """

    def __init__(self) -> None:
        self._values: dict[str, list[tuple[Any, int | None]]] = {}
        self._names: dict[str, None] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all activations of the forward pass, stored or not."""
        return tuple(self._names)

    def _note(self, name: str) -> None:
        self._names[name] = None

    def _store(self, name: str, value: Any) -> None:
        self._note(name)
        self._values.setdefault(name, []).append((value, _version(value)))

    def calls(self, name: str) -> list[Any]:
        """Returns all activations of a name that occurs several times, such as the outputs of a shared module.

        Args:
            name: Name of the activation.
        """
        if name not in self._values:
            raise KeyError(f"{name} was not recorded{did_you_mean(name, self._names)}")
        for value, version in self._values[name]:
            if _version(value) != version:
                raise RuntimeError(f"{name} was changed in place after it was recorded: record a copy, or edit it")
        return [value for value, _ in self._values[name]]

    def __getitem__(self, name: str) -> Any:
        values = self.calls(name)
        if len(values) > 1:
            raise LookupError(f"{name} was recorded {len(values)} times: use one of cache.calls({name!r})")
        return values[0]

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def tensor(self, name: str) -> Tensor:
        """Returns an activation, or its first entry if it is a tuple.

        Args:
            name: Name of the activation.
        """
        value = self[name]
        return value[0] if isinstance(value, tuple) else value

    def stack(self, pattern: str) -> Tensor:
        """Stacks activations of equal shape along a new first axis.

        Args:
            pattern: Names, with the wildcards `*` and `?`.
        """
        found = [self[name] for name in self if fnmatchcase(name, pattern)]
        if not found:
            raise KeyError(f"{pattern} was not recorded{did_you_mean(pattern, self._names)}")
        return torch.stack(found)

    def __repr__(self) -> str:
        shapes = (f"{name}: {_shape_text(values[-1][0])}" for name, values in self._values.items())
        return f"ActivationCache({', '.join(shapes)})"


def _version(value: Any) -> int | None:
    """Number of in-place changes of a tensor; None for tensors that do not count them."""
    return value._version if isinstance(value, Tensor) and not value.is_inference() else None


def _shape_text(value: Any) -> str:
    return str(tuple(value.shape)) if isinstance(value, Tensor) else type(value).__name__


@contextmanager
def record(model: nn.Module, *names: str, edits: Mapping[str, Edit] | None = None) -> Iterator[ActivationCache]:
    """Records activations of a model inside a `with` block.

    Names are: the output of each submodule, by its path (`layers.0.attention`); its first argument
    (`layers.0.attention.input`); and each value inside it that is named by `tap` (`layers.0.attention.pattern`). The
    attention `scores` and `pattern` are available in every model that uses PyTorch's fused attention; they are computed
    only when recorded. Names may have the wildcards `*` and `?`. A compiled model runs uncompiled while it is recorded.

    Blocks can be nested. Each records its own thread only. Hooks are removed when the block ends.

    Args:
        model: Any module.
        names: Activations to store. Defaults to all, except the outputs of single heads (`heads` of
            `MultiHeadAttention`), which replace the output projection.
        edits: Functions that replace activations, by name; the edited values are stored. If an output is a tuple, its
            first entry is edited. See also `patch`.

    Raises:
        LookupError: If a name does not occur in the model.

    Examples:
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
        >>> with record(model, "0") as cache:
        ...     y = model(torch.ones(1, 2))
        >>> cache["0"].shape, cache.names
        (torch.Size([1, 3]), ('input', '0.input', '0', '1.input', '1'))
    """
    with _recorder(model, names, edits or {}, keep_all=not names) as cache:
        yield cache


@contextmanager
def patch(model: nn.Module, edits: Mapping[str, Edit]) -> Iterator[None]:
    """Edits activations of a model inside a `with` block.

    Args:
        model: Any module.
        edits: Functions that replace activations, by name, such as `zero_ablation`, `mean_ablation()` or
            `replace_with(value)`. Names are the same as in `record`.

    Raises:
        LookupError: If a name does not occur in the model.

    Examples:
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
        >>> with patch(model, {"0": zero_ablation}):
        ...     print(model(torch.ones(1, 2)).detach())
        tensor([[0., 0., 0.]])
    """
    with _recorder(model, (), edits, keep_all=False):
        yield


@contextmanager
def _recorder(
    model: nn.Module, names: tuple[str, ...], edits: Mapping[str, Edit], *, keep_all: bool
) -> Iterator[ActivationCache]:
    recorder = _Recorder(model, names, edits, keep_all=keep_all)
    with ExitStack() as stack:
        if "torch._dynamo" in sys.modules:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        recorder.register_hooks(stack)
        if recorder.may_need_attention_weights():
            stack.enter_context(_AttentionTaps())
        stack.enter_context(open_recorder(recorder))
        yield recorder.cache
    recorder.check_all_found()


class _Recorder:
    """Tracks the running module by hooks, to know the full name of each tap."""

    def __init__(
        self, model: nn.Module, names: tuple[str, ...], edits: Mapping[str, Edit], *, keep_all: bool = False
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
        self.model: nn.Module = getattr(model, "_orig_mod", model)
        self.names, self.edits, self.keep_all = names, edits, keep_all
        self.cache, self.thread = ActivationCache(), threading.get_ident()
        self.paths: dict[nn.Module, list[str]] = {}
        for path, module in self.model.named_modules(remove_duplicate=False):
            self.paths.setdefault(module, []).append(path.replace("_orig_mod.", ""))
        self.known = {path for paths in self.paths.values() for path in paths}
        self.running: list[str] = []
        self.ran = False
        self.lookup = cache(self._lookup)
        self.found: set[str] = set()
        for name in (*names, *edits):
            self._check_name(name)

    def _check_name(self, name: str) -> None:
        """Raises at once for a name that cannot occur."""
        if _has_wildcard(name):
            return
        containers = {p for m in self.paths if _is_container(m) for p in self.paths[m]}
        parent, _, last = name.rpartition(".")
        if name in containers:
            raise LookupError(f"{name} is a container without a forward: record its entries, such as {name}.0")
        if not last or (name not in self.known and parent not in self.known - containers):
            raise LookupError(f"the model has no activation {name!r}{did_you_mean(name, self.known)}")

    def _lookup(self, name: str) -> tuple[bool, tuple[Edit, ...]]:
        """Returns whether to store an activation, and its edits."""
        keep = self.keep_all or any(_matches(name, pattern) for pattern in self.names)
        return keep, tuple(edit for pattern, edit in self.edits.items() if _matches(name, pattern))

    def register_hooks(self, stack: ExitStack) -> None:
        for module in self.paths:
            for handle in (
                module.register_forward_pre_hook(self._before_forward),
                module.register_forward_hook(self._after_forward),
                module.register_forward_hook(self._leave_module, always_call=True),
            ):
                stack.callback(handle.remove)

    def may_need_attention_weights(self) -> bool:
        """Whether the scores or the pattern of an attention may be among the names."""
        if self.keep_all or not (self.names or self.edits):
            return True
        weights = [f"{path}.{name}".lstrip(".") for path in self.known for name in ("scores", "pattern")]

        def may_match(pattern: str) -> bool:
            if not _has_wildcard(
                pattern
            ):  # a misspelled name may be one of them: its error then suggests the right one
                return pattern not in self.known and not pattern.endswith("input")
            return any(_matches(name, pattern) for name in weights)

        return any(may_match(pattern) for pattern in (*self.names, *self.edits))

    def check_all_found(self) -> None:
        """Raises for a name that did not occur."""
        for pattern in (*self.names, *self.edits):
            if any(_matches(name, pattern) for name in self.found):
                continue
            hint = "" if self.ran else " (the model was not called inside the block)"
            if self.ran and pattern.endswith(("pattern", "scores")):
                hint = _NO_ATTENTION_HINT if not any(n.endswith("pattern") for n in self.cache.names) else ""
            raise LookupError(f"{pattern} did not occur{hint}{did_you_mean(pattern, self.cache.names)}")

    def _is_own_thread(self) -> bool:
        return threading.get_ident() == self.thread

    def _before_forward(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if not self._is_own_thread():
            return None
        self.ran = True
        inside = f"{self.running[-1]}." if self.running and self.running[-1] else ""
        paths = self.paths[module]
        self.running.append(next((path for path in paths if path.startswith(inside)), paths[0]))
        name = self._full_name("input")
        if not args or not isinstance(args[0], Tensor) or name in self.known:
            return None
        return (self._process(name, args[0]), *args[1:])

    def _after_forward(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        if not self._is_own_thread() or not self.running or not self.running[-1]:
            return None
        return self._process(self.running[-1], output)

    def _leave_module(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if self._is_own_thread() and self.running:
            self.running.pop()

    def _full_name(self, name: str) -> str:
        return f"{self.running[-1]}.{name}" if self.running[-1] else name

    def _process(self, name: str, value: Any) -> Any:
        """Edits and stores an activation."""
        keep, edits = self.lookup(name)
        self.cache._note(name)
        if keep or edits:
            self.found.add(name)
        for edit in edits:
            value = (edit(value[0]), *value[1:]) if type(value) is tuple and value else edit(value)
        if keep:
            self.cache._store(name, value)
        return value

    def wants(self, name: str) -> bool:
        if not self.running or not self._is_own_thread():
            return False
        full_name = self._full_name(name)
        self.cache._note(full_name)
        keep, edits = self.lookup(full_name)
        if self.keep_all and name in _ONLY_BY_NAME:
            return bool(edits)
        return keep or bool(edits)

    def on_value(self, name: str, x: Tensor) -> Tensor:
        return self._process(self._full_name(name), x) if self.running and self._is_own_thread() else x


_NO_ATTENTION_HINT = (
    " (attention weights need MultiHeadAttention or PyTorch's scaled_dot_product_attention, and neither ran; "
    'load a Hugging Face model with attn_implementation="sdpa")'
)


_ONLY_BY_NAME = ("heads",)
"""Values on demand that `record` without names does not compute: they replace a module, here the output projection."""


def _has_wildcard(name: str) -> bool:
    return "*" in name or "?" in name


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) if _has_wildcard(pattern) else name == pattern


def _is_container(module: nn.Module) -> bool:
    """Whether a module does not define `forward`."""
    return type(module).forward is nn.Module.forward


def zero_ablation(x: Tensor) -> Tensor:
    """Replaces an activation by zeros.

    Args:
        x: The activation.

    Examples:
        >>> zero_ablation(torch.tensor([1.0, 2.0]))
        tensor([0., 0.])
    """
    return torch.zeros_like(x)


def mean_ablation(*axes: int) -> Edit:
    """Replaces an activation by its mean.

    Args:
        axes: Axes of the mean. Defaults to the batch axis 0.

    Examples:
        >>> mean_ablation()(torch.tensor([[1.0], [3.0]])).flatten()
        tensor([2., 2.])
    """
    return lambda x: x.mean(axes or (0,), keepdim=True).expand_as(x)


def resample_ablation(*, seed: int = 0) -> Edit:
    """Replaces the activation of each sample by the activation of another sample of the batch.

    The samples are permuted at random without fixed points.

    Args:
        seed: Random seed.

    Examples:
        >>> resample_ablation()(torch.tensor([[1.0], [3.0]])).flatten()
        tensor([3., 1.])
    """

    def edit(x: Tensor) -> Tensor:
        if len(x) < 2:
            raise ValueError(f"resample_ablation needs a batch of at least 2, got {len(x)}")
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed)).to(x.device)
        return x[order.roll(1)[order.argsort()]]

    return edit


def steering(vector: Float[Tensor, "*shape"], *, scale: float = 1.0) -> Edit:
    r"""Adds a steering vector to an activation: $x + \lambda v$.

    Args:
        vector: Vector $v$, of a shape that broadcasts to the activation.
        scale: Factor $\lambda$.

    Examples:
        >>> steering(torch.tensor([0.0, 1.0]), scale=3.0)(torch.ones(2))
        tensor([1., 4.])
    """
    return lambda x: x + scale * vector


def replace_with(value: Tensor) -> Edit:
    """Replaces an activation by a given tensor, such as the activation of another input.

    Args:
        value: The new activation, of the same shape.

    Examples:
        >>> replace_with(torch.ones(2))(torch.zeros(2))
        tensor([1., 1.])
    """

    def edit(x: Tensor) -> Tensor:
        if x.shape != value.shape:
            raise ValueError(f"expected a value of shape {tuple(x.shape)}, got {tuple(value.shape)}")
        return value

    return edit


def at_index(index: _Index, edit: Edit) -> Edit:
    """Restricts an edit to a part of an activation, such as a head or a position.

    Args:
        index: The part, as in `x[index]`: `(..., 3, slice(None), slice(None))` is head 3 of `(*batch, h, t, k)`.
        edit: Edit of that part.

    Examples:
        >>> at_index((..., 1), zero_ablation)(torch.ones(2, 2))
        tensor([[1., 0.],
                [1., 0.]])
    """

    def edit_part(x: Tensor) -> Tensor:
        y = x.clone()
        y[index] = edit(x[index])
        return y

    return edit_part


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
    r"""PyTorch's `scaled_dot_product_attention` with taps for `scores` and `pattern`.

    $$\operatorname{softmax}\bigl(s \, q k^\top + m\bigr) \, v$$

    Takes the same arguments as PyTorch's function. `is_causal` also aligns the mask to the first key.

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
        is_boolean = attn_mask.dtype == torch.bool
        scores = scores.masked_fill(~attn_mask, -math.inf) if is_boolean else scores + attn_mask
    pattern = torch.softmax(tap("scores", scores), -1)
    if attn_mask is not None:
        pattern = pattern.masked_fill((scores == -math.inf).all(-1, keepdim=True), 0.0)
    return F.dropout(tap("pattern", pattern), dropout_p) @ value


# The function behind nn.MultiheadAttention, with tapped attention inside.
_forward: Any = F.multi_head_attention_forward
_overrides = {"scaled_dot_product_attention": tapped_attention, "has_torch_function": lambda _: False}
_tapped_forward = FunctionType(_forward.__code__, _forward.__globals__ | _overrides, argdefs=_forward.__defaults__)


class _AttentionTaps(TorchFunctionMode):
    """Replaces PyTorch's fused attention by `tapped_attention` where its scores or pattern are recorded."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (F.scaled_dot_product_attention, F.multi_head_attention_forward) and is_recorded(
            "scores", "pattern"
        ):
            func = tapped_attention if func is F.scaled_dot_product_attention else _tapped_forward
        return func(*args, **(kwargs or {}))


def claims() -> Iterator[Claim]:
    """Recording does not change the output, and edits end with the block."""
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))

    def record_all(x: Tensor) -> Tensor:
        with record(model):
            return model(x)

    def after_patch(x: Tensor) -> Tensor:
        with patch(model, {"0": zero_ablation}):
            model(x)
        return model(x)

    def explicit_attention(x: Tensor) -> Tensor:
        return tapped_attention(x, x.flip(-1), x.roll(1, -2), is_causal=True)

    def fused(x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(x, x.flip(-1), x.roll(1, -2), is_causal=True)

    yield Claim(agreement(other=model), record_all, shape("b 3"), name="a recorded model")
    yield Claim(agreement(other=model), after_patch, shape("b 3"), name="a model after a patch")
    yield Claim(agreement(other=fused), explicit_attention, shape("b 2 3 4"), name="tapped_attention")
