"""Couplings: some entries pass unchanged, and give the parameters by which the others are mapped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.blocks.dropout import Dropout
from lawful.blocks.flows.autoregressive import FeatureEncoding, FourierEncoding, IdentityEncoding, with_condition
from lawful.blocks.flows.spline import RationalQuadraticSpline
from lawful.blocks.flows.transforms import AffineTransform, ShiftTransform, UnivariateTransform
from lawful.blocks.linear import Activation, Dense
from lawful.laws import Claim, agreement, invertibility, log_determinant, shape


class CouplingTransform(nn.Module):
    r"""Maps some entries by an increasing function whose parameters a network computes from the others.

    $$y_A = x_A, \qquad y_B = g\bigl(x_B; \; u(x_A, c)\bigr), \qquad
    \log \Bigl|\det \frac{\partial y}{\partial x}\Bigr| = \sum_{i \in B} \log g'(x_i; u_i)$$

    Both ways take one pass of the network, which may be any. With `ShiftTransform()` it is the additive coupling of NICE, whose
    log-determinant is exactly 0; with `AffineTransform()` that of Real NVP; with `RationalQuadraticSpline()` that of neural spline
    flows. At first every $u$ is 0.

    Reference:
        Dinh, Krueger and Bengio, *NICE: Non-linear Independent Components Estimation*, 2015.

    Args:
        d: The number of entries.
        transform: $g$.
        changed: $B$, the entries that are mapped; every second one, from 1 on, unless given.
        hidden: The widths of the hidden layers of the network.
        condition: The size of a condition $c$; 0 without one.
        encoding: What the network is shown of each entry; the entry alone unless given.
        activation: What comes after each hidden layer.
        dropout: The share of hidden units that is dropped in training.

    Examples:
        >>> block = CouplingTransform(4, transform=ShiftTransform())
        >>> y, log_det = block(torch.ones(2, 4))
        >>> log_det
        tensor([0., 0.])
    """

    _kept: Tensor
    _changed: Tensor

    def __init__(
        self,
        d: int,
        *,
        transform: UnivariateTransform,
        changed: Sequence[int] | None = None,
        hidden: Sequence[int] = (64, 64),
        condition: int = 0,
        encoding: FeatureEncoding | None = None,
        activation: Activation = torch.relu,
        dropout: float = 0.0,
    ) -> None:
        changed = list(range(1, d, 2)) if changed is None else sorted(changed)
        kept = sorted(set(range(d)) - set(changed))
        if not (changed and kept) or len(changed) + len(kept) != d:
            raise ValueError(f"some of {d} entries, but not all, are to be changed: got {changed}")
        super().__init__()
        self.transform, self.condition = transform, condition
        self.encoding: FeatureEncoding = IdentityEncoding() if encoding is None else encoding
        self.register_buffer("_kept", torch.tensor(kept), persistent=False)
        self.register_buffer("_changed", torch.tensor(changed), persistent=False)
        sizes = [len(kept) * self.encoding.size + condition, *hidden]
        layers: list[nn.Module] = []
        for i, o in zip(sizes, hidden, strict=False):
            layers += [Dense(i, o, activation=activation), *([Dropout(dropout)] if dropout else [])]
        last = Dense(sizes[-1], len(changed) * transform.size)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.network = nn.Sequential(*layers, last)

    def forward(
        self, x: Float[Tensor, "n d"], condition: Float[Tensor, "n c"] | None = None
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Maps vectors, and returns the log-determinants."""
        y, log_slope = self.transform.forward(x[:, self._changed], self._given(x, condition))
        return x.index_copy(-1, self._changed, y), log_slope.sum(-1)

    def inverse(
        self, y: Float[Tensor, "n d"], condition: Float[Tensor, "n c"] | None = None
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Undoes it; the log-determinants are those of the way back."""
        x, log_slope = self.transform.inverse(y[:, self._changed], self._given(y, condition))
        return y.index_copy(-1, self._changed, x), log_slope.sum(-1)

    def _given(self, x: Tensor, condition: Tensor | None) -> Tensor:
        seen = with_condition(self.encoding(x[:, self._kept]), condition, self.condition)
        return self.network(seen).unflatten(-1, (-1, self.transform.size))

    def extra_repr(self) -> str:
        return f"{len(self._kept)} kept, {len(self._changed)} changed, transform={self.transform}"


def claims() -> Iterator[Claim]:
    """The laws that couplings obey."""
    additive = CouplingTransform(3, transform=ShiftTransform(), hidden=[5])
    affine = CouplingTransform(3, transform=AffineTransform(bound=1.0), changed=[0, 2], hidden=[5])
    spline = CouplingTransform(
        3,
        transform=RationalQuadraticSpline(bins=2, box=2.0),
        hidden=[5],
        encoding=FourierEncoding(count=1),
        activation=torch.tanh,
    )
    for block in (additive, affine, spline):
        for law in (log_determinant(), invertibility()):
            yield Claim(law, block, shape("n 3"), name=f"Coupling({type(block.transform).__name__})")

    def equation(x: Tensor) -> tuple[Tensor, Tensor]:
        w, b, v, c = additive.network.parameters()
        h = torch.relu(x[:, [0, 2]] @ w.T + b) @ v.T + c
        return torch.stack([x[:, 0], x[:, 1] + h[:, 0], x[:, 2]], -1), 0 * x[:, 0]

    yield Claim(agreement(other=equation), additive, shape("n 3"), name="additive coupling, log-determinant 0")
