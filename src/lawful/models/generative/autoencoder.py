"""Autoencoders: through a narrow code and back, so that the code must say what matters."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lawful.blocks import Standardize
from lawful.functions import identity
from lawful.laws import Claim, agreement, made
from lawful.models.generative.contract import Generates
from lawful.models.generative.corruption import Corruption


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

    def fit_units(self, x: Float[Tensor, "n *shape"]) -> Autoencoder:
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


class Decoded(nn.Module):
    """Draws codes from a model of codes, and decodes them: samples from an autoencoder.

    Args:
        codes: What draws codes, vectors: PCA of those of the training data, say.
        autoencoder: What decodes them.

    Examples:
        >>> from lawful.models.generative.pca import PCA
        >>> model = Autoencoder(nn.Linear(5, 2), nn.Linear(2, 5), shape=(5,))
        >>> Decoded(PCA.fit(model.encode(torch.randn(9, 5)).detach()), model).sample(4).shape
        torch.Size([4, 5])
    """

    def __init__(self, codes: Generates, autoencoder: Autoencoder) -> None:
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


def claims() -> Iterator[Claim]:
    """The laws that autoencoders obey."""
    into, out_of = nn.Linear(6, 2), nn.Linear(2, 6)
    model = Autoencoder(nn.Sequential(nn.Flatten(), into), out_of, shape=(2, 3)).eval()
    model.inputs.mean.fill_(0.5)
    model.inputs.std.fill_(2.0)
    near = made(torch.tanh, "n 2 3")

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
