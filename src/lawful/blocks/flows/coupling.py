"""Coupling transforms: some entries are mapped with parameters that a network computes from the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.blocks.flows.autoregressive import FeatureEncoding, IdentityEncoding, append_condition
from lawful.blocks.flows.transforms import AffineTransform, ShiftTransform, UnivariateTransform
from lawful.blocks.linear import Activation
from lawful.laws import Claim, agreement, inverse_log_determinant, invertibility, log_determinant, shape


class CouplingTransform(nn.Module):
    r"""Coupling transform: maps some entries by an increasing function whose parameters depend on the others.

    $$y_A = x_A, \qquad y_B = g\bigl(x_B; \; u(x_A, c)\bigr), \qquad
    \log \Bigl|\det \frac{\partial y}{\partial x}\Bigr| = \sum_{i \in B} \log g'(x_i; u_i)$$

    Both directions take one pass of the network. With `ShiftTransform()` it is the additive coupling of NICE, with
    log-determinant 0; with `AffineTransform()`, the affine coupling of Real NVP; with `RationalQuadraticSpline()`, the
    coupling of neural spline flows. $u$ is initialized to 0.

    Reference:
        Dinh, Krueger and Bengio, *NICE: Non-linear Independent Components Estimation*, 2015.

    Args:
        dim: Number of entries.
        transform: $g$.
        transformed: $B$, the entries that are mapped. Defaults to every second one, from 1.
        hidden_dims: Widths of the hidden layers of the network.
        condition_dim: Size of the condition $c$; 0 for none.
        encoding: Encoding of the entries. Defaults to `IdentityEncoding()`.
        activation: Activation of the hidden layers.
        dropout: Dropout probability of the hidden units.

    Examples:
        >>> block = CouplingTransform(4, transform=ShiftTransform())
        >>> y, log_det = block(torch.ones(2, 4))
        >>> log_det
        tensor([0., 0.])
    """

    _identity: Tensor
    _transformed: Tensor

    def __init__(
        self,
        dim: int,
        *,
        transform: UnivariateTransform,
        transformed: Sequence[int] | None = None,
        hidden_dims: Sequence[int] = (64, 64),
        condition_dim: int = 0,
        encoding: FeatureEncoding | None = None,
        activation: Activation = torch.relu,
        dropout: float = 0.0,
    ) -> None:
        transformed = list(range(1, dim, 2)) if transformed is None else sorted(transformed)
        identity = sorted(set(range(dim)) - set(transformed))
        if not (transformed and identity) or len(transformed) + len(identity) != dim:
            raise ValueError(f"transformed must contain some but not all of {dim} entries, got {transformed}")
        super().__init__()
        self.transform, self.condition_dim, self.activation = transform, condition_dim, activation
        self.encoding: FeatureEncoding = IdentityEncoding() if encoding is None else encoding
        self.register_buffer("_identity", torch.tensor(identity), persistent=False)
        self.register_buffer("_transformed", torch.tensor(transformed), persistent=False)
        sizes = [len(identity) * self.encoding.num_features + condition_dim, *hidden_dims]
        self.hidden = nn.ModuleList(nn.Linear(i, o) for i, o in pairwise(sizes))
        self.out = nn.Linear(sizes[-1], len(transformed) * transform.num_parameters)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "n d"], condition: Float[Tensor, "n c"] | None = None
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Maps vectors, and returns the log-determinants."""
        y, log_derivative = self.transform.forward(x[:, self._transformed], self._parameters_of(x, condition))
        return x.index_copy(-1, self._transformed, y), log_derivative.sum(-1)

    def inverse(
        self, y: Float[Tensor, "n d"], condition: Float[Tensor, "n c"] | None = None
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Maps vectors back, and returns the log-determinants of the inverse."""
        x, log_derivative = self.transform.inverse(y[:, self._transformed], self._parameters_of(y, condition))
        return y.index_copy(-1, self._transformed, x), log_derivative.sum(-1)

    def _parameters_of(self, x: Tensor, condition: Tensor | None) -> Tensor:
        h = append_condition(self.encoding(x[:, self._identity]), condition, self.condition_dim)
        for layer in self.hidden:
            h = self.dropout(self.activation(layer(h)))
        return self.out(h).unflatten(-1, (-1, self.transform.num_parameters))

    def extra_repr(self) -> str:
        return f"{len(self._identity)} identity, {len(self._transformed)} transformed, transform={self.transform}"


def claims() -> Iterator[Claim]:
    """Laws of coupling transforms."""
    additive = CouplingTransform(3, transform=ShiftTransform(), hidden_dims=[5])
    affine = CouplingTransform(3, transform=AffineTransform(bound=1.0), transformed=[0, 2], hidden_dims=[5])
    for block in (additive, affine):
        for law in (log_determinant(), invertibility(), inverse_log_determinant()):
            yield Claim(law, block, shape("n 3"), name=f"CouplingTransform({type(block.transform).__name__})")
    zero = agreement(other=lambda x: 0 * x[:, 0])
    yield Claim(zero, lambda x: additive(x)[1], shape("n 3"), name="additive coupling, log-determinant 0")
