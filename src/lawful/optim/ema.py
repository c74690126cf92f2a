"""Exponential moving average of the weights of a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from lawful.laws import Claim, linearity, shape


class EMA:
    r"""Exponential moving average of the weights of a model.

    $$\bar\theta \leftarrow \alpha \, \bar\theta + (1 - \alpha) \, \theta$$

    The average starts at the current weights. Buffers are copied, not averaged.

    Reference:
        Polyak and Juditsky, *Acceleration of Stochastic Approximation by Averaging*, 1992.

    Args:
        model: Model to average.
        decay: Decay $\alpha$, from 0 (the last weights) to 1 (the first).

    Examples:
        >>> model = nn.Linear(2, 1)
        >>> ema = EMA(model, decay=0.9)
        >>> ema.update(model)
        >>> with ema.average_parameters(model):
        ...     y = model(torch.zeros(2))
    """

    def __init__(self, model: nn.Module, *, decay: float) -> None:
        if not 0 <= decay <= 1:
            raise ValueError(f"decay must be in [0, 1], got {decay}")
        self.decay = decay
        self.tensors = {name: x.detach().clone() for name, x in _tensors(model).items()}

    @torch.no_grad()
    def update(self, model: nn.Module, *, decay: float | None = None) -> None:
        """Adds the current weights to the average.

        Args:
            model: Model to average.
            decay: Decay of this update. Defaults to the decay of the average.
        """
        decay = self.decay if decay is None else decay
        current = self._current(model)
        averaged = [name for name, p in model.named_parameters() if p.is_floating_point() or p.is_complex()]
        if averaged:
            torch._foreach_lerp_(
                [self.tensors[name] for name in averaged], [current[name] for name in averaged], 1 - decay
            )
        for name in current.keys() - set(averaged):
            self.tensors[name].copy_(current[name])

    @contextmanager
    def average_parameters(self, model: nn.Module) -> Iterator[None]:
        """Gives the model the averaged weights inside the context, and restores its own afterwards."""
        current = self._current(model)
        own = {name: x.detach().clone() for name, x in current.items()}
        _copy(self.tensors, current)
        try:
            yield
        finally:
            _copy(own, current)

    def state_dict(self) -> dict[str, Tensor]:
        """Returns the average, by the names of parameters and buffers."""
        return dict(self.tensors)

    def load_state_dict(self, state_dict: Mapping[str, Tensor]) -> None:
        """Copies a `state_dict()` into the average."""
        _check_names(self.tensors, state_dict)
        _copy(state_dict, self.tensors)

    def _current(self, model: nn.Module) -> dict[str, Tensor]:
        current = _tensors(model)
        _check_names(self.tensors, current)
        return current


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    return dict(model.named_parameters()) | dict(model.named_buffers())


def _check_names(expected: Mapping[str, Tensor], got: Mapping[str, Tensor]) -> None:
    if expected.keys() != got.keys():
        raise ValueError(f"expected tensors {sorted(expected)}, got {sorted(got)}")


@torch.no_grad()
def _copy(source: Mapping[str, Tensor], target: Mapping[str, Tensor]) -> None:
    for name, x in target.items():
        x.copy_(source[name])


def claims() -> Iterator[Claim]:
    """Laws of the average."""

    def average(x: Tensor) -> Tensor:
        model = nn.ParameterDict({"x": x[0].detach().clone()})
        ema = EMA(model, decay=0.75)
        for weights in x[1:]:
            model["x"].data.copy_(weights)
            ema.update(model)
        return ema.tensors["x"]

    yield Claim(linearity(), average, shape("t:2..4 3"), name="EMA, from a sequence of weights to their average")
