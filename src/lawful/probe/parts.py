"""Parts: terms with names that add up to the logits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.laws import Claim, agreement, shape
from lawful.probe.tape import near


@dataclass(frozen=True, eq=False)
class Parts:
    """Holds what each part of a model adds to the logits; their sum over the first axis is the logits themselves.

    Examples:
        >>> parts = Parts(("embedding", "layers.0"), torch.tensor([[1.0, 0.0], [-3.0, 2.0]]))
        >>> parts["layers.0"]
        tensor([-3.,  2.])
        >>> parts.largest(1, token=0)
        [('layers.0', -3.0)]
    """

    names: tuple[str, ...]
    """The name of each part."""
    logits: Float[Tensor, "n *batch vocab"]
    """What each adds."""

    def __getitem__(self, name: str) -> Float[Tensor, "*batch vocab"]:
        if name not in self.names:
            raise KeyError(f"there is no part {name}{near(name, self.names)}")
        return self.logits[self.names.index(name)]

    def __len__(self) -> int:
        return len(self.names)

    def of(self, token: int, *, over: int | None = None) -> Float[Tensor, "n *batch"]:
        """Returns what each part adds to the logit of a token, or to its lead over another.

        Args:
            token: The token.
            over: The other token.
        """
        found = self.logits[..., token]
        return found if over is None else found - self.logits[..., over]

    def largest(self, count: int, *, token: int, over: int | None = None) -> list[tuple[str, float]]:
        """Returns the parts that add or take most, on average over the batch, with how much.

        Args:
            count: How many.
            token: The token.
            over: The other token, for its lead over that.
        """
        found = self.of(token, over=over).detach().reshape(len(self), -1).mean(1)
        order = found.abs().argsort(descending=True, stable=True)[:count].tolist()
        return [(self.names[i], float(found[i])) for i in order]

    def sum(self) -> Float[Tensor, "*batch vocab"]:
        """Returns the logits."""
        return self.logits.sum(0)


def parts_of(named: Sequence[tuple[str, Tensor]]) -> Parts:
    """Puts terms with names together.

    Args:
        named: The names, and what each adds to the logits.

    Examples:
        >>> parts_of([("a", torch.ones(2)), ("b", torch.zeros(2))]).sum()
        tensor([1., 1.])
    """
    return Parts(tuple(name for name, _ in named), torch.stack([value for _, value in named]))


def claims() -> Iterator[Claim]:
    """The laws that parts obey."""

    def read(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        parts = parts_of([(str(i), part) for i, part in enumerate(x)])
        (name, value), *_ = parts.largest(2, token=1, over=0)
        return parts.sum(), parts.of(2, over=0), torch.stack([x.new_tensor(value), parts[name].mean(0)[1]])

    def written(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        lead = (x[:, :, 1] - x[:, :, 0]).mean(1)
        best = max(range(len(x)), key=lambda i: float(lead[i].abs()))
        return x.sum(0), x[:, :, 2] - x[:, :, 0], torch.stack([lead[best], x[best, :, 1].mean()])

    yield Claim(agreement(other=written), read, shape("n:2..5 b 3"), name="Parts")
