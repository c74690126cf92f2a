"""Invertible blocks one after another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.blocks.flows.coupling import Coupling
from lawful.blocks.flows.entrywise import Affine
from lawful.blocks.flows.linear import Permutation
from lawful.blocks.flows.scale import ActNorm
from lawful.laws import Claim, invertibility, log_determinant, shape


class Composition(nn.ModuleList):
    r"""Applies invertible blocks in turn; their log-determinants add up.

    $$f = f_K \circ \dots \circ f_1, \qquad
    \log |\det Df(x)| = \sum_k \log |\det Df_k(x_{k - 1})|, \quad x_k = f_k(x_{k - 1})$$

    Args:
        blocks: $f_1$ to $f_K$: modules whose call and whose `inverse` take vectors and a condition, and return vectors
            and log-determinants.

    Examples:
        >>> both = Composition([Permutation([1, 0]), Coupling(2, transform=Affine())])
        >>> both(torch.tensor([[1.0, 2.0]]))[0]
        tensor([[2., 1.]], grad_fn=<IndexCopyBackward0>)
    """

    def __init__(self, blocks: Iterable[nn.Module]) -> None:
        super().__init__(blocks)

    def forward(
        self, x: Float[Tensor, "n d"], condition: Float[Tensor, "n c"] | None = None
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Maps vectors from the first block to the last, and returns the log-determinants."""
        log_det = x.new_zeros(len(x))
        for block in self:
            x, more = block(x, condition)
            log_det = log_det + more
        return x, log_det

    def inverse(
        self, y: Float[Tensor, "n d"], condition: Float[Tensor, "n c"] | None = None
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Undoes it, from the last block to the first."""
        log_det = y.new_zeros(len(y))
        for block in reversed(list(self)):
            y, more = block.inverse(y, condition)  # pyrefly: ignore [not-callable]
            log_det = log_det + more
        return y, log_det

    @torch.no_grad()
    def fit(self, x: Float[Tensor, "n d"], condition: Float[Tensor, "n c"] | None = None) -> Composition:
        """Lets the blocks that can be fitted read data, each what the blocks before it make of them."""
        for block in self:
            if isinstance(block, ActNorm | Composition):
                block.fit(x)
            x, _ = block(x, condition)
        return self


def claims() -> Iterator[Claim]:
    """The laws that compositions obey."""
    both = Composition(
        [ActNorm(3), Coupling(3, transform=Affine(bound=1.0), hidden=[4]), Permutation([2, 0, 1]), ActNorm(3)]
    )
    for law in (log_determinant(), invertibility()):
        yield Claim(law, both, shape("n 3"))

    def there(y: Tensor) -> tuple[Tensor, Tensor]:
        return both.inverse(y)

    yield Claim(log_determinant(), there, shape("n 3"), name="Composition.inverse")
