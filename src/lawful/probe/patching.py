"""Patching: which intermediates carry the difference between two inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lawful.laws import Claim, agreement, shape
from lawful.probe.record import ActivationCache, only, record, replaced

Metric = Callable[[Any], Tensor]
Effect = Callable[[Tensor, Tensor], Tensor]
Inputs = Tensor | tuple[Any, ...]


def _run(model: nn.Module, x: Inputs) -> Any:
    return model(*x) if isinstance(x, tuple) else model(x)


def _recorded(model: nn.Module, x: Inputs, *names: str) -> tuple[ActivationCache, Any]:
    with record(model, *names) as tape:
        y = _run(model, x)
    return tape, y


def _slices(value: Tensor, axis: int | None) -> list[Any]:
    """The parts of a value: all of it, or the slices along an axis."""
    if axis is None:
        return [...]
    before = (slice(None),) * (axis % value.dim())
    return [(*before, i) for i in range(value.shape[axis])]


@torch.no_grad()
def activation_patching(
    model: nn.Module, clean: Inputs, corrupted: Inputs, *, names: str, metric: Metric, axis: int | None = None
) -> dict[str, Tensor]:
    r"""Measures what a metric gains when one intermediate of a corrupted run is as in the clean run.

    $$m\bigl(f(x' \mid a \leftarrow a(x))\bigr) - m\bigl(f(x')\bigr)$$

    Each intermediate, or each slice of it, costs a run.

    Reference:
        Vig et al., *Investigating Gender Bias in Language Models Using Causal Mediation Analysis*, 2020;
        Meng et al., *Locating and Editing Factual Associations in GPT*, 2022.

    Args:
        model: $f$.
        clean: $x$; several arguments as a tuple.
        corrupted: $x'$, of the shape of $x$.
        names: The intermediates $a$, with `*` and `?`.
        metric: $m$, from an output to a number.
        axis: The axis, such as that of the heads or the positions, whose slices are patched one by one.

    Returns:
        For each name a number, or one for each slice.

    Examples:
        >>> model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU())
        >>> effects = activation_patching(model, torch.ones(1, 2), torch.ones(1, 2), names="0", metric=torch.sum)
        >>> effects["0"]
        tensor(0.)
    """
    tape, _ = _recorded(model, clean, names)
    base = metric(_run(model, corrupted))
    effects = {}
    for name in tape:
        found = []
        value = tape.tensor(name)
        for part in _slices(value, axis):
            with record(model, edit={name: only(part, replaced(value[part]))}):
                found.append(metric(_run(model, corrupted)) - base)
        effects[name] = found[0] if axis is None else torch.stack(found)
    return effects


def attribution_patching(
    model: nn.Module, clean: Inputs, corrupted: Inputs, *, names: str, metric: Metric, axis: int | None = None
) -> dict[str, Tensor]:
    r"""Estimates by a gradient what activation patching would measure, for all intermediates at once.

    $$\Bigl\langle \frac{\partial\, m(f(x'))}{\partial a},\; a(x) - a(x') \Bigr\rangle$$

    Two runs and one backward pass. It is exact where the model is affine in $a$ and so is the metric, as it is for
    small differences; behind a softmax that is far from both, it may be wrong.

    Reference:
        Nanda, *Attribution Patching: Activation Patching At Industrial Scale*, 2023.

    Args:
        model: $f$.
        clean: $x$; several arguments as a tuple.
        corrupted: $x'$, of the shape of $x$.
        names: The intermediates $a$, with `*` and `?`.
        metric: $m$, from an output to a number.
        axis: The axis whose slices are told apart.

    Returns:
        For each name a number, or one for each slice.

    Examples:
        >>> model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU())
        >>> effects = attribution_patching(model, torch.ones(1, 2), torch.ones(1, 2), names="0", metric=torch.sum)
        >>> effects["0"]
        tensor(0.)
    """
    with torch.no_grad():
        tape, _ = _recorded(model, clean, names)
    with torch.enable_grad(), record(model, names, edit={names: _leaf}) as other:
        y = metric(_run(model, corrupted))
    slopes = torch.autograd.grad(y, [other.tensor(name) for name in tape], allow_unused=True)
    effects = {}
    for name, slope in zip(tape, slopes, strict=True):
        change = tape.tensor(name) - other.tensor(name).detach()
        product = torch.zeros_like(change) if slope is None else slope * change
        effects[name] = product.sum() if axis is None else product.movedim(axis, 0).flatten(1).sum(1)
    return effects


def _leaf(x: Tensor) -> Tensor:
    """A value that a gradient can be taken by."""
    return x if x.requires_grad else x.detach().requires_grad_()


@torch.no_grad()
def path_patching(
    model: nn.Module,
    clean: Inputs,
    corrupted: Inputs,
    *,
    sender: str,
    receivers: Sequence[str],
    frozen: str,
    metric: Metric,
    part: Any = ...,
) -> Tensor:
    r"""Measures what a metric gains when a sender is as in the clean run, for given receivers and nobody else.

    Three runs: the receivers $r$ are found in a corrupted run whose sender $a$ is clean and whose other
    intermediates $b$ are held as they were; then they are put into a corrupted run.

    $$m\bigl(f(x' \mid r \leftarrow r(x' \mid a \leftarrow a(x),\, b \leftarrow b(x')))\bigr) - m\bigl(f(x')\bigr)$$

    Reference:
        Wang et al., *Interpretability in the Wild: a Circuit for Indirect Object Identification in GPT-2 small*, 2022;
        Goldowsky-Dill et al., *Localizing Model Behavior with Path Patching*, 2023.

    Args:
        model: $f$.
        clean: $x$; several arguments as a tuple.
        corrupted: $x'$, of the shape of $x$.
        sender: The name $a$.
        receivers: The names $r$, such as the input of a later attention layer, or its queries.
        frozen: The names $b$, with `*` and `?`, such as `layers.*.added`; the modules around the sender are left free.
        metric: $m$, from an output to a number.
        part: The part of the sender, as an index: one head.

    Examples:
        >>> model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
        >>> x, y = torch.ones(1, 2), torch.zeros(1, 2)
        >>> path_patching(model, x, x, sender="0", receivers=["2.input"], frozen="0", metric=torch.sum)
        tensor(0.)
    """
    tape, _ = _recorded(model, clean, sender)
    held, y = _recorded(model, corrupted, frozen)
    modules = dict(model.named_modules())
    around = {name: name if name in modules else name.rpartition(".")[0] for name in held}
    keep = {name: replaced(held.tensor(name)) for name in held if not f"{sender}.".startswith(f"{around[name]}.")}
    edit = keep | {sender: only(part, replaced(tape.tensor(sender)[part]))}
    with record(model, *receivers, edit=edit) as found:
        _run(model, corrupted)
    with record(model, edit={name: replaced(found.tensor(name)) for name in receivers}):
        return metric(_run(model, corrupted)) - metric(y)


def claims() -> Iterator[Claim]:
    """The laws that patching obeys."""
    a, b = nn.Linear(3, 2), nn.Linear(2, 2)
    linear, bent = nn.Sequential(a, b), nn.Sequential(a, nn.Tanh(), b)
    pair = shape("b 3"), shape("b 3")

    def measured(patching: Callable[..., dict[str, Tensor]], model: nn.Module, axis: int | None = None) -> Effect:
        def effect(x: Tensor, y: Tensor) -> Tensor:
            return patching(model, x, y, names="0", metric=_first, axis=axis)["0"]

        return effect

    def units(x: Tensor, y: Tensor) -> Tensor:
        """The effect of each hidden unit, by hand."""
        return ((x - y) @ a.weight.mT * b.weight[0]).sum(0)

    def on_top(x: Tensor, y: Tensor) -> Tensor:
        return bent(y)[:, 0].sum() + measured(activation_patching, bent)(x, y)

    def whole(x: Tensor, _: Tensor) -> Tensor:
        return bent(x)[:, 0].sum()

    def slope(x: Tensor, y: Tensor) -> Tensor:
        return ((1 - a(y).tanh() ** 2) * b.weight[0] * ((x - y) @ a.weight.mT)).sum()

    exact, estimated = (measured(patching, linear, -1) for patching in (activation_patching, attribution_patching))
    yield Claim(agreement(other=units), exact, pair, name="activation patching of each unit, by hand")
    yield Claim(agreement(other=exact), estimated, pair, name="attribution patching of a linear model")
    yield Claim(agreement(other=whole), on_top, pair, name="patching all there is")
    yield Claim(agreement(other=slope), measured(attribution_patching, bent), pair, name="the gradient, by hand")
    two = _Branches()

    def direct(x: Tensor, y: Tensor) -> Tensor:
        return path_patching(two, x, y, sender="a", receivers=["c.input"], frozen="b", metric=_first)

    def through_one(x: Tensor, y: Tensor) -> Tensor:
        """What a gives to c itself, while what it gives to b stays."""
        mixed = two.c(two.a(x) + two.b(two.a(y)))
        return _first(mixed - two.c(two.a(y) + two.b(two.a(y))))

    yield Claim(agreement(other=through_one), direct, pair, name="path_patching")


def _first(y: Tensor) -> Tensor:
    """The sum of the first entries of the outputs: an affine metric."""
    return y[..., 0].sum()


class _Branches(nn.Module):
    """A small model in which a reaches c directly and through b."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Sequential(nn.Linear(3, 3), nn.Tanh()) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        a = self.a(x)
        return self.c(a + self.b(a))
