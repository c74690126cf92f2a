"""Corruption: what a denoising model is given in place of the clean data.

Autoencoders: through a narrow code and back, so that the code must say what matters.
Autoencoders of dense layers, and of convolutions.
The linear autoencoder, which finds the space of the principal axes by another way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks import Standardize
from lawful.blocks.linear import Activation
from lawful.functions import identity, normal_noise, pinv
from lawful.laws import Claim, Draw, Equal, Map, Statement, agreement, batch_independence, law, shape, transformed
from lawful.models.generative.protocols import SupportsSample
from lawful.models.mlp import MLP, MLPConfig

Corruption = Callable[[Tensor], Tensor]
"""What is done to an input in training, before it is encoded."""


class GaussianCorruption(nn.Module):
    r"""Adds noise, $\tilde x = x + \sigma \varepsilon$.

    Args:
        sigma: $\sigma$, in the units of what it is added to.

    Examples:
        >>> GaussianCorruption(0.1)(torch.zeros(2, 3)).shape
        torch.Size([2, 3])
    """

    def __init__(self, sigma: float) -> None:
        super().__init__()
        if not 0 <= sigma < math.inf:
            raise ValueError(f"sigma is not negative, and finite: got {sigma}")
        self.sigma = sigma

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Adds noise from PyTorch's own generator."""
        return x + self.sigma * torch.randn_like(x)


class MaskingCorruption(nn.Module):
    r"""Puts entries to 0, each with probability $p$; nothing is scaled up for it.

    Args:
        p: $p$.

    Examples:
        >>> MaskingCorruption(1.0)(torch.ones(3))
        tensor([0., 0., 0.])
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"p is a probability: got {p}")
        self.p = p

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Drops entries by PyTorch's own generator."""
        return x * (torch.rand_like(x) >= self.p)


def _corruption_claims() -> Iterator[Claim]:
    """The laws that corruption obeys, from one state of the generator."""

    def noise(x: Tensor) -> Tensor:
        return GaussianCorruption(0.5)(x) - x

    def alone(x: Tensor) -> Tensor:
        return 0.5 * torch.randn_like(x)

    def dropped(x: Tensor) -> Tensor:
        y = MaskingCorruption(0.3)(x)
        return torch.stack([y, (y == 0).to(x)])

    def some(x: Tensor) -> Tensor:
        gone = torch.rand_like(x) < 0.3
        return torch.stack([x.masked_fill(gone, 0.0), gone.to(x)])

    yield Claim(agreement(other=alone), noise, transformed(torch.tanh, "n 3"), name="GaussianCorruption")
    yield Claim(agreement(other=some), dropped, transformed(lambda x: x.tanh() + 2, "n 3"), name="MaskingCorruption")


class Autoencoder(nn.Module):
    r"""Encodes each example as a short code, and decodes it.

    $$z = E(\tilde x), \qquad \hat x = D(z), \qquad \mathcal{L} = \lVert \hat x - x \rVert^2$$

    In training the input may be corrupted, $\tilde x \ne x$, and what comes out is still compared with the clean one:
    a denoising autoencoder. Data go in and come out in their own units; inside they are standardised, and corrupted
    after that.

    Reference:
        Vincent, Larochelle, Bengio and Manzagol, *Extracting and Composing Robust Features with Denoising
        Autoencoders*, 2008.

    Args:
        encoder: $E$, from a batch of examples to codes.
        decoder: $D$, from codes to a batch of examples.
        shape: The shape of an example.
        inputs: The standardising of the data; one mean and one deviation for all entries unless given.
        corrupt: What makes $\tilde x$ of $x$ in training.

    Examples:
        >>> model = Autoencoder(nn.Linear(5, 2), nn.Linear(2, 5), shape=(5,))
        >>> model.encode(torch.zeros(3, 5)).shape, model(torch.zeros(3, 5)).shape
        (torch.Size([3, 2]), torch.Size([3, 5]))
    """

    def __init__(
        self,
        encoder: nn.Module,
        decoder: nn.Module,
        *,
        shape: tuple[int, ...],
        inputs: Standardize | None = None,
        corrupt: Corruption = identity,
    ) -> None:
        super().__init__()
        self.encoder, self.decoder, self.shape, self.corrupt = encoder, decoder, shape, corrupt
        self.inputs = Standardize((1,) * len(shape)) if inputs is None else inputs

    def fit_normalizer(self, x: Float[Tensor, "n *shape"]) -> Autoencoder:
        """Reads mean and deviation of the training data."""
        self.inputs.fit(x)
        return self

    def encode(self, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n k"]:
        """Returns the codes $z$; in training, of corrupted examples."""
        if x.shape[1:] != self.shape:
            raise ValueError(f"examples of shape {self.shape} were wanted: got shape {tuple(x.shape)}")
        x = self.inputs(x)
        return self.encoder(self.corrupt(x) if self.training else x)

    def decode(self, z: Float[Tensor, "n k"]) -> Float[Tensor, "n *shape"]:
        r"""Returns the examples $\hat x$ of codes."""
        return self.inputs.inverse(self.decoder(z).reshape(-1, *self.shape))

    def forward(self, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
        """Encodes and decodes."""
        return self.decode(self.encode(x))

    def errors(self, x: Float[Tensor, "n *shape"]) -> Float[Tensor, " n"]:
        r"""Returns $\lVert \hat x - x \rVert^2$ of each example, in the units of the data."""
        return (self(x) - x).square().flatten(1).sum(-1)

    def loss(self, x: Float[Tensor, "n *shape"]) -> Float[Tensor, ""]:
        r"""Returns the mean of $(\hat x - x)^2$ over examples and entries, in standard units: what is trained on."""
        return (self.inputs(self(x)) - self.inputs(x)).square().mean()

    def interpolate(
        self, a: Float[Tensor, "n *shape"], b: Float[Tensor, "n *shape"], *, steps: int = 8
    ) -> Float[Tensor, "steps n *shape"]:
        """Goes straight from code to code, and decodes on the way; ends included."""
        if steps < 2:
            raise ValueError(f"steps are at least 2, the two ends: got {steps}")
        z, w = self.encode(a), self.encode(b)
        return torch.stack([self.decode(z + (w - z) * (i / (steps - 1))) for i in range(steps)])


class AutoencoderSampler(nn.Module):
    """Draws codes from a model of codes, and decodes them: samples from an autoencoder.

    Args:
        codes: What draws codes, vectors: PCA of those of the training data, say.
        autoencoder: What decodes them.

    Examples:
        >>> from lawful.models.generative.pca import PCA
        >>> model = Autoencoder(nn.Linear(5, 2), nn.Linear(2, 5), shape=(5,))
        >>> AutoencoderSampler(PCA.fit(model.encode(torch.randn(9, 5)).detach()), model).sample(4).shape
        torch.Size([4, 5])
    """

    def __init__(self, codes: SupportsSample, autoencoder: Autoencoder) -> None:
        super().__init__()
        self.codes, self.autoencoder = codes, autoencoder

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an example."""
        return self.autoencoder.shape

    @torch.no_grad()
    def sample(
        self, n: int, seed: int = 0, *, first: int = 0, labels: Int[Tensor, " n"] | None = None
    ) -> Float[Tensor, "n *shape"]:
        """Draws examples."""
        return self.autoencoder.decode(self.codes.sample(n, seed, first=first, labels=labels))


def _autoencoder_claims() -> Iterator[Claim]:
    """The laws that autoencoders obey."""
    into, out_of = nn.Linear(6, 2), nn.Linear(2, 6)
    model = Autoencoder(nn.Sequential(nn.Flatten(), into), out_of, shape=(2, 3)).eval()
    model.inputs.mean.fill_(0.5)
    model.inputs.std.fill_(2.0)
    near = transformed(torch.tanh, "n 2 3")

    def decoded(z: Tensor) -> Tensor:
        return ((z @ out_of.weight.T + out_of.bias) * 2 + 0.5).reshape(-1, 2, 3)

    def encoded(x: Tensor) -> Tensor:
        return (x.flatten(1) - 0.5) / 2 @ into.weight.T + into.bias

    def losses(x: Tensor) -> Tensor:
        return torch.cat([model.errors(x), model.loss(x)[None]])

    def squares(x: Tensor) -> Tensor:
        off = (decoded(encoded(x)) - x).square()
        return torch.cat([off.sum((1, 2)), off.mean()[None] / 4])

    def between(x: Tensor) -> Tensor:
        return model.interpolate(x, x.flip(0), steps=3)

    def straight(x: Tensor) -> Tensor:
        z, w = encoded(x), encoded(x.flip(0))
        return torch.stack([decoded(z), decoded((z + w) / 2), decoded(w)])

    yield Claim(agreement(other=lambda x: decoded(encoded(x))), model, near, name="Autoencoder")
    yield Claim(agreement(other=squares), losses, near, name="Autoencoder: errors and loss")
    yield Claim(agreement(other=straight), between, near, name="Autoencoder.interpolate")

    def clean(x: Tensor) -> Tensor:
        noisy = Autoencoder(nn.Flatten(), nn.Identity(), shape=(2, 3), corrupt=lambda x: x + 1).train()
        return noisy.to(x.dtype).loss(x)

    one = agreement(other=lambda x: x.new_ones(()))
    yield Claim(one, clean, near, name="a corrupted input is compared with the clean one")


@dataclass(frozen=True, kw_only=True)
class MLPAutoencoderConfig:
    """The sizes of an autoencoder of dense layers."""

    shape: tuple[int, ...]
    """The shape of an example."""
    latent: int
    """The size of a code: the bottleneck."""
    hidden: tuple[int, ...] = (128,)
    """The width of each hidden layer of the encoder; the decoder has them in reverse."""
    activation: Activation = F.silu
    """What each hidden layer applies to its entries."""


def mlp_autoencoder(config: MLPAutoencoderConfig, *, corrupt: Corruption = identity) -> Autoencoder:
    """Makes an autoencoder of dense layers, for examples of any shape.

    Args:
        config: The sizes.
        corrupt: What is done to an input in training.

    Examples:
        >>> mlp_autoencoder(MLPAutoencoderConfig(shape=(40,), latent=3, hidden=()))(torch.zeros(2, 40)).shape
        torch.Size([2, 40])
    """
    _check(config.shape, config.latent)
    d, k = math.prod(config.shape), config.latent
    encoder = MLP(MLPConfig(d_in=d, d_out=k, hidden=config.hidden, activation=config.activation))
    decoder = MLP(MLPConfig(d_in=k, d_out=d, hidden=config.hidden[::-1], activation=config.activation))
    return Autoencoder(nn.Sequential(nn.Flatten(), encoder), decoder, shape=config.shape, corrupt=corrupt)


@dataclass(frozen=True, kw_only=True)
class CNNAutoencoderConfig:
    """The sizes of an autoencoder of convolutions, for series and images."""

    shape: tuple[int, ...]
    """The shape of an example, channels first: (c, t) or (c, h, w)."""
    latent: int
    """The size of a code: the bottleneck."""
    width: int = 16
    """The channels after the first convolution; each halving doubles them."""
    halvings: int = 2
    """How often the space axes are halved."""
    activation: Activation = F.silu
    """What each hidden layer applies to its entries."""

    @property
    def sizes(self) -> list[tuple[int, ...]]:
        """The shapes of what the convolutions put out, from the input to the smallest."""
        sizes = [self.shape]
        for i in range(self.halvings):
            sizes.append((self.width * 2**i, *((n + 1) // 2 for n in sizes[-1][1:])))
        return sizes


class ActivationModule(nn.Module):
    """Applies a function to each entry: a copy of its own where it is a module."""

    def __init__(self, activation: Activation) -> None:
        super().__init__()
        self.activation = deepcopy(activation)

    def forward(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Applies it."""
        return self.activation(x)


def cnn_encoder(config: CNNAutoencoderConfig) -> nn.Sequential:
    """Makes what halves series or images by convolutions, down to a code.

    Examples:
        >>> cnn_encoder(CNNAutoencoderConfig(shape=(2, 9), latent=3, width=4))(torch.zeros(5, 2, 9)).shape
        torch.Size([5, 3])
    """
    convolution, layers = _convolution(config), []
    for before, after in pairwise(config.sizes):
        layers += [convolution(before[0], after[0], 3, stride=2, padding=1), ActivationModule(config.activation)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(math.prod(config.sizes[-1]), config.latent))


def cnn_decoder(config: CNNAutoencoderConfig) -> nn.Sequential:
    """Makes what doubles a code to series or images, by convolutions.

    Examples:
        >>> cnn_decoder(CNNAutoencoderConfig(shape=(2, 9), latent=3, width=4))(torch.zeros(5, 3)).shape
        torch.Size([5, 2, 9])
    """
    convolution, smallest, layers = _convolution(config), config.sizes[-1], []
    for before, after in pairwise(config.sizes):
        double = nn.Upsample(before[1:], mode="nearest")
        layers = [ActivationModule(config.activation), double, convolution(after[0], before[0], 3, padding=1), *layers]
    return nn.Sequential(nn.Linear(config.latent, math.prod(smallest)), nn.Unflatten(1, smallest), *layers)


def cnn_autoencoder(config: CNNAutoencoderConfig, *, corrupt: Corruption = identity) -> Autoencoder:
    """Makes an autoencoder that halves series or images by convolutions, and doubles them again.

    Args:
        config: The sizes.
        corrupt: What is done to an input in training.

    Examples:
        >>> model = cnn_autoencoder(CNNAutoencoderConfig(shape=(1, 7, 9), latent=2, width=4))
        >>> model(torch.zeros(3, 1, 7, 9)).shape
        torch.Size([3, 1, 7, 9])
    """
    return Autoencoder(cnn_encoder(config), cnn_decoder(config), shape=config.shape, corrupt=corrupt)


def _convolution(config: CNNAutoencoderConfig) -> type[nn.Conv1d] | type[nn.Conv2d]:
    """The convolution along the space axes, after a look at the sizes."""
    _check(config.shape, config.latent)
    if len(config.shape) not in (2, 3):
        raise ValueError(f"a shape of (c, t) or (c, h, w) was wanted: got {config.shape}")
    if config.halvings < 1 or config.width < 1:
        raise ValueError(f"halvings and width are at least 1: got {config.halvings} and {config.width}")
    return nn.Conv1d if len(config.shape) == 2 else nn.Conv2d


def _check(shape: tuple[int, ...], latent: int) -> None:
    if not shape or min(shape) < 1:
        raise ValueError(f"a shape of sizes of at least 1 was wanted: got {shape}")
    if latent < 1:
        raise ValueError(f"latent is at least 1: got {latent}")


def _autoencoders_claims() -> Iterator[Claim]:
    """The laws that both kinds of autoencoders obey."""
    dense = mlp_autoencoder(MLPAutoencoderConfig(shape=(2, 3), latent=2, hidden=(5,))).eval()
    images = cnn_autoencoder(CNNAutoencoderConfig(shape=(1, 5, 4), latent=2, width=2)).eval()
    series = cnn_autoencoder(CNNAutoencoderConfig(shape=(2, 5), latent=3, width=2, halvings=1)).eval()

    def equation(x: Tensor) -> Tensor:
        w1, b1, w2, b2 = dense.encoder.parameters()
        v1, c1, v2, c2 = dense.decoder.parameters()
        z = F.silu(x.flatten(1) @ w1.T + b1) @ w2.T + b2
        return (F.silu(z @ v1.T + c1) @ v2.T + c2).reshape(x.shape)

    def convolved(x: Tensor) -> Tensor:
        w, b, v, c = series.encoder.parameters()
        u, e, k, f = series.decoder.parameters()
        z = F.silu(F.conv1d(x, w, b, stride=2, padding=1)).flatten(1) @ v.T + c
        small = F.silu((z @ u.T + e).reshape(-1, 2, 3))
        return F.conv1d(small[:, :, [0, 0, 1, 1, 2]], k, f, padding=1)

    yield Claim(agreement(other=equation), dense, transformed(torch.tanh, "n 2 3"), name="mlp_autoencoder")
    yield Claim(agreement(other=convolved), series, transformed(torch.tanh, "n 2 5"), name="cnn_autoencoder of series")
    yield Claim(batch_independence(), images, shape("n 1 5 4"), name="cnn_autoencoder of images")


def linear_autoencoder(
    x: Float[Tensor, "n d"], *, latent: int, rounds: int = 50
) -> tuple[Float[Tensor, "d k"], Float[Tensor, "k d"]]:
    r"""Fits an encoder and a decoder without activations by least squares, each in turn while the other stays.

    $$\min_{E, D} \lVert X - X E D \rVert^2, \qquad D \leftarrow (X E)^+ X, \quad E \leftarrow D^+$$

    $X$ is taken from its mean. All minima have one $E D$, the projection onto the space of the first $k$ principal
    axes; $E$ and $D$ themselves are known up to an invertible matrix between them. The error falls by
    $\lambda_{k + 1} / \lambda_k$ in each round. With $k \ge d$ the pair is the identity and has learned nothing: it is
    the bottleneck that makes it choose.

    Reference:
        Baldi and Hornik, *Neural Networks and Principal Component Analysis*, 1989.

    Args:
        x: The data $X$, a row for each sample.
        latent: $k$, the size of a code.
        rounds: How often both are solved for.

    Returns:
        $E$ and $D$.

    Examples:
        >>> x = torch.tensor([[0.0, 0.0], [2.0, 2.0], [4.0, 4.0]])
        >>> encoder, decoder = linear_autoencoder(x, latent=1)
        >>> encoder @ decoder
        tensor([[0.5000, 0.5000],
                [0.5000, 0.5000]])
    """
    if not 1 <= latent <= x.shape[1]:
        raise ValueError(f"latent is from 1 to the {x.shape[1]} features: got {latent}")
    off = x - x.mean(0)
    encoder = normal_noise(x.shape[1], latent, seed=0, dtype=x.dtype, device=x.device)
    decoder = encoder.mT
    for _ in range(rounds):
        decoder = pinv(off @ encoder) @ off
        encoder = pinv(decoder)
    return encoder, decoder


def projection(axes: Float[Tensor, "k d"]) -> Float[Tensor, "d d"]:
    """Returns the orthogonal projection onto the space that rows span."""
    return pinv(axes) @ axes


@law("rows of f(x) span the space of the first k principal axes of x", discover_with=None)
def principal_span(f: Map, x: Tensor, *, draw: Draw) -> Statement:
    """The decoder that a map fits to data spans the same space as the principal axes.

    `f(x)` is a matrix with a row for each entry of a code. The domain leaves out data in which the axis that is just
    left out varies nearly as much as the last that is kept: there the space is not known.

    Satisfied by: a linear autoencoder, fitted to the end; PCA.
    Broken by: an autoencoder that forgets the mean; one of random features; one that stopped early.
    """
    decoder = f(x)
    k = len(decoder)
    _, spread, vt = torch.linalg.svd(x - x.mean(0), full_matrices=False)
    least = torch.finfo(x.dtype).eps ** 0.5 * spread[0]
    beyond = spread[k] if k < len(spread) else torch.zeros_like(spread[0])
    draw.assume((spread[k - 1] > least) & (beyond < 0.5 * spread[k - 1]))
    return Equal(projection(decoder), vt[:k].mT @ vt[:k], exercised=True)


def _linear_autoencoder_claims() -> Iterator[Claim]:
    """The laws that linear autoencoders obey."""
    turn = torch.tensor([[0.6, 0.8, 0.0], [-0.8, 0.6, 0.0], [0.0, 0.0, 1.0]])

    def spread(x: Tensor) -> Tensor:
        q = torch.linalg.qr(x.tanh() + 2 * torch.eye(len(x), 3).to(x)).Q
        return q * x.new_tensor([9.0, 3.0, 0.5]) @ turn.to(x) + x.new_tensor([1.0, 2.0, 0.0])

    data = transformed(spread, "n:6..8 3")
    for latent in (1, 2):

        def decoder(x: Tensor, latent: int = latent) -> Tensor:
            return linear_autoencoder(x, latent=latent, rounds=30)[1]

        yield Claim(replace(principal_span(), cases=10), decoder, data, name=f"linear_autoencoder(latent={latent})")

    def through(x: Tensor) -> Tensor:
        encoder, decoder = linear_autoencoder(x, latent=3, rounds=2)
        return encoder @ decoder

    square = transformed(lambda x: x.tanh() + 3 * torch.eye(6, 3).to(x), "6 3")
    yield Claim(agreement(other=lambda x: torch.eye(3).to(x)), through, square, name="without a bottleneck: E D = 1")
    plane = transformed(lambda x: x.tanh() + torch.eye(2, 4).to(x) * 3, "2 4")
    twice = agreement(other=lambda a: torch.linalg.qr(a.mT).Q @ torch.linalg.qr(a.mT).Q.mT)
    yield Claim(twice, projection, plane, name="projection")


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _corruption_claims()
    yield from _autoencoder_claims()
    yield from _autoencoders_claims()
    yield from _linear_autoencoder_claims()
