"""Activation patching: which activations cause the difference between the outputs of two inputs; ablated heads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from lawful.blocks.attention import MultiHeadAttention
from lawful.laws import Claim, agreement, shape
from lawful.probe.record import ActivationCache, Edit, at_index, patch, record, replace_with, zero_ablation

_Metric = Callable[[Any], Tensor]
_Inputs = Tensor | tuple[Any, ...]


def _call(model: nn.Module, x: _Inputs) -> Any:
    return model(*x) if isinstance(x, tuple) else model(x)


def _record(model: nn.Module, x: _Inputs, name: str) -> tuple[ActivationCache, Any]:
    with record(model, name) as cache:
        y = _call(model, x)
    return cache, y


def _slices(value: Tensor, axis: int | None) -> list[Any]:
    """Returns the indices of the slices along an axis, or of the whole value."""
    if axis is None:
        return [...]
    before = (slice(None),) * (axis % value.dim())
    return [(*before, i) for i in range(value.shape[axis])]


@torch.no_grad()
def activation_patching(
    model: nn.Module, clean: _Inputs, corrupted: _Inputs, *, names: str, metric: _Metric, axis: int | None = None
) -> dict[str, Tensor]:
    r"""Measures how much a metric changes when a corrupted run gets one activation of the clean run.

    $$m\bigl(f(x' \mid a \leftarrow a(x))\bigr) - m\bigl(f(x')\bigr)$$

    Each activation, or each slice of it, costs one forward pass.

    Reference:
        Vig et al., *Investigating Gender Bias in Language Models Using Causal Mediation Analysis*, 2020;
        Meng et al., *Locating and Editing Factual Associations in GPT*, 2022.

    Args:
        model: Model $f$.
        clean: Clean input $x$; a tuple for several arguments.
        corrupted: Corrupted input $x'$, of the same shape.
        names: Activations $a$, with the wildcards `*` and `?`.
        metric: Function $m$ from an output to a scalar, such as a logit difference.
        axis: Axis of the activation, such as heads or positions, whose slices are patched one by one.

    Returns:
        The effect of each activation, or of each slice.

    Examples:
        >>> model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU())
        >>> effects = activation_patching(model, torch.ones(1, 2), torch.ones(1, 2), names="0", metric=torch.sum)
        >>> effects["0"]
        tensor(0.)
    """
    cache, _ = _record(model, clean, names)
    baseline = metric(_call(model, corrupted))
    effects = {}
    for name in cache:
        value, changes = cache.tensor(name), []
        for index in _slices(value, axis):
            with patch(model, {name: at_index(index, replace_with(value[index]))}):
                changes.append(metric(_call(model, corrupted)) - baseline)
        effects[name] = changes[0] if axis is None else torch.stack(changes)
    return effects


def attribution_patching(
    model: nn.Module, clean: _Inputs, corrupted: _Inputs, *, names: str, metric: _Metric, axis: int | None = None
) -> dict[str, Tensor]:
    r"""Approximates activation patching by a gradient, for all activations at once.

    $$\Bigl\langle \frac{\partial\, m(f(x'))}{\partial a},\; a(x) - a(x') \Bigr\rangle$$

    It costs two forward passes and one backward pass. It is exact if the metric is affine in $a$, and otherwise a
    first-order approximation, which a saturated softmax can make wrong.

    Reference:
        Nanda, *Attribution Patching: Activation Patching At Industrial Scale*, 2023.

    Args:
        model: Model $f$.
        clean: Clean input $x$; a tuple for several arguments.
        corrupted: Corrupted input $x'$, of the same shape.
        names: Activations $a$, with the wildcards `*` and `?`.
        metric: Function $m$ from an output to a scalar, such as a logit difference.
        axis: Axis of the activation whose slices are measured separately.

    Returns:
        The effect of each activation, or of each slice.

    Examples:
        >>> model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU())
        >>> effects = attribution_patching(model, torch.ones(1, 2), torch.ones(1, 2), names="0", metric=torch.sum)
        >>> effects["0"]
        tensor(0.)
    """
    with torch.no_grad():
        cache, _ = _record(model, clean, names)
    with torch.enable_grad(), record(model, names, edits={names: _require_grad}) as corrupted_cache:
        y = metric(_call(model, corrupted))
    activations = [corrupted_cache.tensor(name) for name in cache]
    effects = {}
    gradients = torch.autograd.grad(y, activations, allow_unused=True)
    for name, activation, gradient in zip(cache, activations, gradients, strict=True):
        change = cache.tensor(name) - activation.detach()
        product = torch.zeros_like(change) if gradient is None else gradient * change
        effects[name] = product.sum() if axis is None else product.movedim(axis, 0).flatten(1).sum(1)
    return effects


def _require_grad(x: Tensor) -> Tensor:
    return x if x.requires_grad else x.detach().requires_grad_()


@torch.no_grad()
def path_patching(
    model: nn.Module,
    clean: _Inputs,
    corrupted: _Inputs,
    *,
    sender: str,
    receivers: Sequence[str],
    frozen: str,
    metric: _Metric,
    index: Any = ...,
) -> Tensor:
    r"""Measures the effect of a sender on a metric through the direct paths to given receivers only.

    The receivers $r$ are recorded in a corrupted run in which the sender $a$ is clean and the other activations $b$
    are frozen. They are then patched into a corrupted run.

    $$m\bigl(f(x' \mid r \leftarrow r(x' \mid a \leftarrow a(x),\, b \leftarrow b(x')))\bigr) - m\bigl(f(x')\bigr)$$

    Reference:
        Wang et al., *Interpretability in the Wild: a Circuit for Indirect Object Identification in GPT-2 small*, 2022;
        Goldowsky-Dill et al., *Localizing Model Behavior with Path Patching*, 2023.

    Args:
        model: Model $f$.
        clean: Clean input $x$; a tuple for several arguments.
        corrupted: Corrupted input $x'$, of the same shape.
        sender: Name of the activation $a$.
        receivers: Names of the activations $r$, such as the input of a later layer, or its queries.
        frozen: Names of the activations $b$, with wildcards, such as `layers.*.added`. Modules that contain the sender
            are not frozen.
        metric: Function $m$ from an output to a scalar.
        index: Index of the patched part of the sender, such as a head.

    Examples:
        >>> model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
        >>> x = torch.ones(1, 2)
        >>> path_patching(model, x, x, sender="0", receivers=["2.input"], frozen="0", metric=torch.sum)
        tensor(0.)
    """
    clean_cache, _ = _record(model, clean, sender)
    frozen_cache, y = _record(model, corrupted, frozen)
    modules = dict(model.named_modules())
    edits = {sender: at_index(index, replace_with(clean_cache.tensor(sender)[index]))}
    for name in frozen_cache:
        module = name if name in modules else name.rpartition(".")[0]
        if not f"{sender}.".startswith(f"{module}."):
            edits[name] = replace_with(frozen_cache.tensor(name))
    with record(model, *receivers, edits=edits) as cache:
        _call(model, corrupted)
    with patch(model, {name: replace_with(cache.tensor(name)) for name in receivers}):
        return metric(_call(model, corrupted)) - metric(y)


@contextmanager
def ablate_heads(
    model: nn.Module,
    heads: Iterable[tuple[str | int, int] | tuple[str | int, int, float]],
    *,
    edit: Edit = zero_ablation,
) -> Iterator[None]:
    """Ablates attention heads of a model inside a `with` block.

    Args:
        model: A model with `MultiHeadAttention`, or with PyTorch's fused attention, as Hugging Face models have.
        heads: Pairs of an attention module and a head. The module is given by its name or by its index among the
            attention modules. The heads that `find_induction_heads` returns, with their scores, are accepted.
        edit: Replacement of the output of the heads: `zero_ablation`, `mean_ablation()`, `resample_ablation()`, ...
            Models without `MultiHeadAttention` support `zero_ablation` only.

    Raises:
        LookupError: If the model has no such module or head.

    Examples:
        >>> from lawful.probe import find_induction_heads, induction_model
        >>> model, x = induction_model(vocab_size=8, context_length=8), torch.tensor([[3, 1, 4, 3]])
        >>> int(model(x)[0, -1].argmax())
        1
        >>> with ablate_heads(model, find_induction_heads(model)):
        ...     print(bool(model(x)[0, -1].max() > 0.5))
        False
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    attention = [name for name, module in modules.items() if isinstance(module, MultiHeadAttention)]
    chosen: dict[str, list[int]] = {}
    for module, head, *_ in heads:
        if isinstance(module, int):
            if not 0 <= module < len(attention):
                raise IndexError(f"the index of the module must be in [0, {len(attention)}), got {module}")
            module = attention[module]
        block = modules.get(module)
        if isinstance(block, MultiHeadAttention) and not 0 <= head < block.num_heads:
            raise IndexError(f"{module} has {block.num_heads} heads, got head {head}")
        if block is not None and not isinstance(block, MultiHeadAttention) and edit is not zero_ablation:
            raise ValueError(f"{module} supports zero_ablation only: it is not a lawful.blocks.MultiHeadAttention")
        chosen.setdefault(module, []).append(head)
    edits = {}
    for module, indices in chosen.items():  # without attention weights, the output of a head is zero
        tapped = "heads" if isinstance(modules.get(module), MultiHeadAttention) else "pattern"
        index = ..., torch.tensor(sorted(set(indices))), slice(None), slice(None)
        edits[f"{module}.{tapped}".lstrip(".")] = at_index(index, edit)
    with patch(model, edits):
        yield


def claims() -> Iterator[Claim]:
    """Patching everything gives the clean output, and attribution patching is exact for linear models."""
    a, b = nn.Linear(3, 2), nn.Linear(2, 2)
    linear, nonlinear = nn.Sequential(a, b), nn.Sequential(a, nn.Tanh(), b)
    pair = shape("b 3"), shape("b 3")

    def metric(y: Tensor) -> Tensor:
        return y[..., 0].sum()

    def patched_metric(x: Tensor, y: Tensor) -> Tensor:
        effect = activation_patching(nonlinear, x, y, names="0", metric=metric)["0"]
        return metric(nonlinear(y)) + effect

    def exact(x: Tensor, y: Tensor) -> Tensor:
        return activation_patching(linear, x, y, names="0", metric=metric, axis=-1)["0"]

    def approximate(x: Tensor, y: Tensor) -> Tensor:
        return attribution_patching(linear, x, y, names="0", metric=metric, axis=-1)["0"]

    clean = agreement(other=lambda x, _: metric(nonlinear(x)))
    yield Claim(clean, patched_metric, pair, name="activation_patching of a bottleneck")
    yield Claim(agreement(other=exact), approximate, pair, name="attribution_patching of a linear model")
