"""The moving average of weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from lawful.laws import Claim, agreement, shape


class EMA:
    r"""Averages the weights of a model over its training, older ones counting less.

    $$\bar\theta \leftarrow \alpha \, \bar\theta + (1 - \alpha) \, \theta$$

    The average starts at the weights that the model has at first, and is always a convex combination of weights it
    had. Buffers are not averaged but copied.

    Reference:
        Polyak and Juditsky, *Acceleration of Stochastic Approximation by Averaging*, 1992.

    Args:
        model: The model.
        decay: $\alpha$, from 0 (the last weights) to 1 (the first).

    Examples:
        >>> model = nn.Linear(2, 1)
        >>> average = EMA(model, decay=0.9)
        >>> average.update(model)
        >>> with average.swapped_in(model):
        ...     y = model(torch.zeros(2))
    """

    def __init__(self, model: nn.Module, *, decay: float) -> None:
        if not 0 <= decay <= 1:
            raise ValueError(f"decay is from 0 to 1: got {decay}")
        self.decay = decay
        self.tensors = {name: x.detach().clone() for name, x in _tensors(model).items()}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Takes the weights of now into the average."""
        current = self._of(model)
        averaged = [name for name, p in model.named_parameters() if p.is_floating_point() or p.is_complex()]
        if averaged:
            torch._foreach_lerp_(
                [self.tensors[name] for name in averaged], [current[name] for name in averaged], 1 - self.decay
            )
        for name in current.keys() - set(averaged):
            self.tensors[name].copy_(current[name])

    @contextmanager
    def swapped_in(self, model: nn.Module) -> Iterator[None]:
        """Gives the model the average inside a `with`, and its own weights and buffers back at the end."""
        current = self._of(model)
        own = {name: x.detach().clone() for name, x in current.items()}
        _copy(self.tensors, current)
        try:
            yield
        finally:
            _copy(own, current)

    def state_dict(self) -> dict[str, Tensor]:
        """The average, by the names of parameters and buffers."""
        return dict(self.tensors)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Takes over what `state_dict()` gave."""
        _same_names(self.tensors, state)
        _copy(state, self.tensors)

    def _of(self, model: nn.Module) -> dict[str, Tensor]:
        current = _tensors(model)
        _same_names(self.tensors, current)
        return current


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    return dict(model.named_parameters()) | dict(model.named_buffers())


def _same_names(wanted: Mapping[str, Tensor], got: Mapping[str, Tensor]) -> None:
    if wanted.keys() != got.keys():
        raise ValueError(f"the average is of {sorted(wanted)}: got {sorted(got)}")


@torch.no_grad()
def _copy(source: Mapping[str, Tensor], target: Mapping[str, Tensor]) -> None:
    for name, x in target.items():
        x.copy_(source[name])


def claims() -> Iterator[Claim]:
    """The laws that the average obeys."""

    def averaged(x: Tensor) -> Tensor:
        model = nn.ParameterDict({"x": x[0].detach().clone()})
        average = EMA(model, decay=0.75)
        for weights in x[1:]:
            model["x"].data.copy_(weights)
            average.update(model)
        return average.tensors["x"]

    def combination(x: Tensor) -> Tensor:
        powers = 0.75 ** torch.arange(len(x) - 1, -1, -1).to(x)
        weights = torch.cat([powers[:1], 0.25 * powers[1:]])
        return weights @ x

    yield Claim(agreement(other=combination), averaged, shape("t:1..4 3"), name="WeightAverage")
