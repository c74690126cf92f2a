"""Networks that predict the motion of particles: EGNN, Gram matrices, radial fields, message passing and linear."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.blocks import EdgeMLP, MessagePassing, RadialField
from lawful.groups import Euclidean, Orthogonal
from lawful.laws import Claim, equivariance, permutation_equivariance, shape
from lawful.models.egnn import EGNN, GramNetwork


def _speed(v: Tensor) -> Tensor:
    return torch.linalg.vector_norm(v, dim=-1, keepdim=True)


class LinearDynamics(nn.Module):
    r"""The linear maps that commute with motions of the space and permutations of the particles.

    $$x_i' = x_i + \alpha v_i + \beta \bar v + \gamma (x_i - \bar x)$$

    With $\beta = \gamma = 0$ particles move with constant velocity for a time $\alpha$.

    Examples:
        >>> x, v = torch.randn(2, 20, 5, 3)
        >>> float(LinearDynamics().fit(x, v, x + 0.5 * v).weight[0].round(decimals=3))
        0.5
    """

    weight: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.zeros(3))

    def fit(
        self, x: Float[Tensor, "b n d"], v: Float[Tensor, "b n d"], target: Float[Tensor, "b n d"]
    ) -> LinearDynamics:
        """Fits the coefficients by least squares.

        Args:
            x: Positions.
            v: Velocities.
            target: Later positions.
        """
        features = self._features(x.double(), v.double()).flatten(0, -2)
        found = torch.linalg.lstsq(features, (target - x).double().flatten()[:, None], driver="gelsd").solution
        self.weight.copy_(found[:, 0])
        return self

    def forward(
        self,
        x: Float[Tensor, "*batch n d"],
        v: Float[Tensor, "*batch n d"],
        edge_attr: Float[Tensor, "*batch n n a"] | None = None,
    ) -> Float[Tensor, "*batch n d"]:
        """Returns the later positions.

        Args:
            x: Positions.
            v: Velocities.
            edge_attr: Not used.
        """
        return x + self._features(x, v) @ self.weight

    @staticmethod
    def _features(x: Tensor, v: Tensor) -> Tensor:
        return torch.stack([v, v.mean(-2, keepdim=True).expand_as(v), x - x.mean(-2, keepdim=True)], -1)


class EGNNDynamics(nn.Module):
    """EGNN whose features are the speeds.

    Args:
        dim: Width of the features.
        num_layers: Number of layers.
        edge_dim: Width of the features of pairs.
    """

    def __init__(self, *, dim: int = 64, num_layers: int = 4, edge_dim: int = 0) -> None:
        super().__init__()
        self.network = EGNN(1, dim=dim, num_layers=num_layers, edge_dim=edge_dim, velocity=True)

    def forward(
        self,
        x: Float[Tensor, "*batch n d"],
        v: Float[Tensor, "*batch n d"],
        edge_attr: Float[Tensor, "*batch n n a"] | None = None,
    ) -> Float[Tensor, "*batch n d"]:
        """Returns the later positions."""
        return self.network(_speed(v), x, edge_attr=edge_attr, velocity=v)[1]


class GramDynamics(nn.Module):
    """`GramNetwork` whose features are the speeds and whose vectors are the velocities.

    Args:
        dim: Width of the features.
        num_layers: Number of layers.
        num_vectors: Number of vectors per particle inside.
        edge_dim: Width of the features of pairs.
    """

    def __init__(self, *, dim: int = 64, num_layers: int = 4, num_vectors: int = 2, edge_dim: int = 0) -> None:
        super().__init__()
        self.network = GramNetwork(1, dim=dim, num_layers=num_layers, num_vectors=num_vectors, edge_dim=edge_dim)

    def forward(
        self,
        x: Float[Tensor, "*batch n d"],
        v: Float[Tensor, "*batch n d"],
        edge_attr: Float[Tensor, "*batch n n a"] | None = None,
    ) -> Float[Tensor, "*batch n d"]:
        """Returns the later positions."""
        return self.network(_speed(v), x, v.unsqueeze(-2), edge_attr=edge_attr)[1]


class RadialFieldDynamics(nn.Module):
    """Radial fields, one after the other.

    Args:
        hidden_dim: Width of the hidden layers.
        num_layers: Number of radial fields.
        edge_dim: Width of the features of pairs.
    """

    def __init__(self, *, hidden_dim: int = 64, num_layers: int = 4, edge_dim: int = 0) -> None:
        super().__init__()
        self.layers = nn.ModuleList(RadialField(hidden_dim, edge_dim=edge_dim) for _ in range(num_layers))

    def forward(
        self,
        x: Float[Tensor, "*batch n d"],
        v: Float[Tensor, "*batch n d"],
        edge_attr: Float[Tensor, "*batch n n a"] | None = None,
    ) -> Float[Tensor, "*batch n d"]:
        """Returns the later positions."""
        for layer in self.layers:
            x, v = layer(x, velocity=v, edge_attr=edge_attr)
        return x


class _ResidualUpdate(nn.Module):
    """Adds an MLP of the features and the received messages to the features."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(2 * dim, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, h: Tensor, received: Tensor) -> Tensor:
        return h + self.network(torch.cat([h, received], -1))


class GNNDynamics(nn.Module):
    """Message passing with the coordinates as features: equivariant under permutations, not under rotations.

    Positions are relative to their mean. As in the EGNN paper, the distance of a pair is one of its features.

    Args:
        space_dim: Dimension of the space.
        dim: Width of the features.
        num_layers: Number of layers.
        edge_dim: Width of the features of pairs.
    """

    def __init__(self, *, space_dim: int = 3, dim: int = 64, num_layers: int = 4, edge_dim: int = 0) -> None:
        super().__init__()
        self.embed = nn.Linear(2 * space_dim, dim)
        self.layers = nn.ModuleList(
            MessagePassing(EdgeMLP(dim, edge_dim + 1, dim), _ResidualUpdate(dim)) for _ in range(num_layers)
        )
        self.out = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, space_dim))

    def forward(
        self,
        x: Float[Tensor, "*batch n d"],
        v: Float[Tensor, "*batch n d"],
        edge_attr: Float[Tensor, "*batch n n a"] | None = None,
    ) -> Float[Tensor, "*batch n d"]:
        """Returns the later positions."""
        h = self.embed(torch.cat([x - x.mean(-2, keepdim=True), v], -1))
        squared = (x[..., :, None, :] - x[..., None, :, :]).square().sum(-1, keepdim=True)
        pairs = (squared + 0.01).log()
        if edge_attr is not None:
            pairs = torch.cat([pairs, edge_attr], -1)
        for layer in self.layers:
            h = layer(h, edge_attr=pairs)
        return x + self.out(h)


def pair_features(charges: Float[Tensor, "*batch n"], *, only_products: bool = True) -> Float[Tensor, "*batch n n a"]:
    r"""Returns features of pairs of particles: $q_i q_j$, and on request also $q_i$ and $q_j$.

    Args:
        charges: Charges $q$, or masses.
        only_products: Whether to leave out the charges themselves. Charges of equal size need only their products.

    Examples:
        >>> pair_features(torch.tensor([1.0, -1.0]))[..., 0]
        tensor([[ 1., -1.],
                [-1.,  1.]])
    """
    source, target = torch.broadcast_tensors(charges[..., :, None], charges[..., None, :])
    return torch.stack([source * target] if only_products else [source * target, source, target], -1)


class ParticleModel(nn.Module):
    r"""Predicts the later positions of particles, in the units of the data.

    $$\hat x' = x + D \, \Bigl( f\bigl(z, v / u, a\bigr) - z \Bigr), \qquad z = (x - c) / \ell$$

    The features $a$ of pairs are those of `pair_features`, of charges in their own unit. `fit_normalizer` sets the
    center $c$ and the units, one number for all directions. So the model is as equivariant as the network $f$.

    Args:
        network: Map from positions, velocities and features of pairs to later positions, such as `EGNNDynamics()`.
        space_dim: Dimension of the space.
        edge_dim: 0 without charges, 1 for the products of charges, 3 for the charges of both particles as well.

    Examples:
        >>> model = ParticleModel(EGNNDynamics(dim=16, num_layers=2, edge_dim=1), edge_dim=1)
        >>> model(torch.randn(2, 5, 3), torch.randn(2, 5, 3), torch.ones(2, 5)).shape
        torch.Size([2, 5, 3])
    """

    center: Tensor
    length: Tensor
    speed: Tensor
    displacement: Tensor
    charge: Tensor

    def __init__(self, network: nn.Module, *, space_dim: int = 3, edge_dim: int = 0) -> None:
        super().__init__()
        if edge_dim not in (0, 1, 3):
            raise ValueError(f"edge_dim must be 0, 1 or 3, got {edge_dim}")
        self.network, self.edge_dim = network, edge_dim
        self.register_buffer("center", torch.zeros(space_dim))
        for name in ("length", "speed", "displacement", "charge"):
            self.register_buffer(name, torch.ones(()))

    def fit_normalizer(
        self,
        x: Float[Tensor, "b n d"],
        v: Float[Tensor, "b n d"],
        target: Float[Tensor, "b n d"],
        charges: Float[Tensor, "b n"] | None = None,
    ) -> ParticleModel:
        """Fits the center and the units of length, speed, displacement and charge to training data.

        Args:
            x: Positions.
            v: Velocities.
            target: Later positions.
            charges: Charges, if there are charges.
        """
        self.center.copy_(x.mean((0, 1)))
        vectors = {"length": x - self.center, "speed": v, "displacement": target - x}
        if charges is not None:
            vectors["charge"] = charges[..., None]
        for name, vector in vectors.items():
            size = float(vector.double().square().sum(-1).mean().sqrt())
            self.get_buffer(name).fill_(size if size > 0 else 1.0)
        return self

    def forward(
        self,
        positions: Float[Tensor, "*batch n d"],
        velocities: Float[Tensor, "*batch n d"],
        charges: Float[Tensor, "*batch n"] | None = None,
    ) -> Float[Tensor, "*batch n d"]:
        """Returns the later positions.

        Args:
            positions: Positions.
            velocities: Velocities.
            charges: Charges, if the model has `edge_dim`.
        """
        if (charges is None) != (self.edge_dim == 0):
            raise ValueError(f"a model with edge_dim={self.edge_dim} {'needs' if self.edge_dim else 'has no'} charges")
        edge_attr = None if charges is None else pair_features(charges / self.charge, only_products=self.edge_dim == 1)
        z = (positions - self.center) / self.length
        return positions + self.displacement * (self.network(z, velocities / self.speed, edge_attr) - z)


def claims() -> Iterator[Claim]:
    """Laws of networks of particles."""
    networks: dict[str, nn.Module] = {
        "EGNNDynamics": EGNNDynamics(dim=4, num_layers=2, edge_dim=1),
        "GramDynamics": GramDynamics(dim=4, num_layers=2, edge_dim=1),
        "RadialFieldDynamics": RadialFieldDynamics(hidden_dim=4, num_layers=2, edge_dim=1),
        "GNNDynamics": GNNDynamics(dim=4, num_layers=2, edge_dim=1),
    }
    inputs = shape("b n:2..4 3"), shape("b n:2..4 3"), shape("b n:2..4")
    for name, network in networks.items():
        model = ParticleModel(network, edge_dim=1)
        yield Claim(permutation_equivariance(axis=1), model, inputs, name=name)
        if not isinstance(network, GNNDynamics):
            rotations = equivariance(group=Orthogonal(3), axis=-1, input=(0, 1))
            yield Claim(rotations, model, inputs, name=name)
    linear, points = LinearDynamics(), shape("b n:2..4 3")
    linear.weight.copy_(torch.tensor([1.0, 2.0, 3.0]))
    yield Claim(equivariance(group=Euclidean(3), axis=-1), lambda x: linear(x, 0 * x), points, name="LinearDynamics")
