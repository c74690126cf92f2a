"""Sequence classifiers: residual state-space layers, mean pooling and a linear head."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Literal, cast

from jaxtyping import Bool, Float
from torch import Tensor, nn

from lawful.blocks import S4, S4D, SelectiveStateSpace, StateSpace
from lawful.blocks.residual import Residual, pre_norm
from lawful.functions.attention import NO_MASK, Mask
from lawful.laws import (
    Claim,
    agreement,
    batch_independence,
    fully_masked_row_is_finite,
    masked_positions_have_no_influence,
    padding_invariance,
    shape,
)
from lawful.laws import mask as mask_domain


class SequenceClassifier(nn.Module):
    r"""Classifier of sequences: residual layers in time, mean pooling, and a linear head.

    $$h_0 = W x + b, \qquad h_{\ell + 1} = h_\ell + f_\ell(\operatorname{norm}(h_\ell)), \qquad
    y = V \frac{1}{t} \sum_{s = 1}^{t} h_{L, s} + a$$

    The layers are causal, so that `step` classifies a stream in constant memory: after each sample, it returns the
    logits of the sequence so far. With `rate`, a trained classifier takes sequences of another sampling rate.

    Args:
        in_channels: Channels of the input.
        num_classes: Number of classes.
        layers: Layers $f_\ell$ of equal width: `StateSpace` or `SelectiveStateSpace`.
        norm: Factory for the norms, called with the width.
        dropout: Dropout probability after each layer.

    Examples:
        >>> import torch
        >>> model = SequenceClassifier(3, 10, [StateSpace(8), StateSpace(8)])
        >>> model(torch.zeros(2, 40, 3)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        layers: Sequence[StateSpace | SelectiveStateSpace],
        *,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        widths = {layer.dim for layer in layers}
        if len(widths) != 1:
            raise ValueError(f"layers must have equal widths and there must be at least one, got {sorted(widths)}")
        (dim,) = widths
        self.in_channels = in_channels
        self.embedding = nn.Linear(in_channels, dim)
        self.layers = nn.ModuleList(pre_norm(layer, norm(dim), gate=nn.Dropout(dropout)) for layer in layers)
        self.head = nn.Linear(dim, num_classes)

    def forward(
        self, x: Float[Tensor, "b t c"], *, mask: Bool[Tensor, "b t"] | None = None, rate: float = 1.0
    ) -> Float[Tensor, "b classes"]:
        """Returns the logits of the classes.

        Args:
            x: Sequences.
            mask: False for padding. By default, nothing is padding.
            rate: Factor of the sampling step: 2 for a sequence with half of the samples.
        """
        if x.dim() != 3 or x.shape[-1] != self.in_channels or not x.shape[1]:
            raise ValueError(f"expected x of shape (b, t, {self.in_channels}) with t >= 1, got {tuple(x.shape)}")
        if mask is not None and mask.shape != x.shape[:2]:
            raise ValueError(f"expected a mask of shape {tuple(x.shape[:2])}, got {tuple(mask.shape)}")
        padding = NO_MASK if mask is None else Mask(padding=mask)
        h = self.embedding(x)
        for layer in self._residuals:
            h = layer(h, partial(layer.block, mask=padding, rate=rate))
        if mask is None:
            return self.head(h.mean(1))
        return self.head((h * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True).clamp(min=1))

    def step(
        self, x: Float[Tensor, "b c"], state: tuple[Any, ...], rate: float = 1.0
    ) -> tuple[Float[Tensor, "b classes"], tuple[Any, ...]]:
        """Reads one sample, and returns the logits of the sequence so far and the next state.

        Args:
            x: Sample.
            state: State, from `initial_state` or an earlier step.
            rate: Factor of the sampling step.
        """
        h, (total, count, *before), after = self.embedding(x), state, []
        for layer, own in zip(self._residuals, before, strict=True):
            h, own = _step(layer, h, own, rate)
            after.append(own)
        total, count = total + h, count + 1
        return self.head(total / count), (total, count, *after)

    def initial_state(self, batch: int) -> tuple[Any, ...]:
        """Returns the state of an empty sequence: the sum over time, the number of samples, and the layers' states.

        Args:
            batch: Number of sequences.
        """
        total = self.head.weight.new_zeros(batch, self.head.in_features)
        return (total, 0, *(layer.block.initial_state(batch) for layer in self._residuals))

    @property
    def _residuals(self) -> list[Residual]:
        return cast("list[Residual]", list(self.layers))


def _step(layer: Residual, h: Tensor, state: Any, rate: float) -> tuple[Tensor, Any]:
    """Applies a residual layer to one sample."""

    def block(x: Tensor) -> Tensor:
        nonlocal state
        y, state = layer.block.step(x, state, rate)
        return y

    return layer(h, block), state


def sequence_classifier(
    in_channels: int = 1,
    num_classes: int = 10,
    *,
    ssm: Literal["s4d", "s4", "selective"] = "s4d",
    dim: int = 32,
    num_layers: int = 2,
    state_dim: int = 32,
    dropout: float = 0.0,
    dt_min: float = 0.01,
    dt_max: float = 0.2,
) -> SequenceClassifier:
    """Builds a classifier of sequences from state-space layers.

    Args:
        in_channels: Channels of the input.
        num_classes: Number of classes.
        ssm: State-space model: "s4d" (diagonal), "s4" (diagonal plus rank one) or "selective" (Mamba).
        dim: Width of the layers.
        num_layers: Number of layers.
        state_dim: Number of states per channel.
        dropout: Dropout probability after each layer.
        dt_min: Smallest initial step: the inverse of the longest memory, in samples. Smaller for long sequences.
        dt_max: Largest initial step.

    Examples:
        >>> import torch
        >>> model = sequence_classifier()
        >>> model(torch.zeros(2, 40, 1)).shape, sum(p.numel() for p in model.parameters())
        (torch.Size([2, 10]), 8842)
    """
    if min(in_channels, num_classes, dim, num_layers) < 1:
        sizes = f"{in_channels=}, {num_classes=}, {dim=}, {num_layers=}"
        raise ValueError(f"sizes must be at least 1, got {sizes}")
    models = {"s4d": S4D, "s4": S4}
    if ssm != "selective" and ssm not in models:
        raise ValueError(f"ssm must be s4d, s4 or selective, got {ssm!r}")
    sizes = {"state_dim": state_dim, "dt_min": dt_min, "dt_max": dt_max}

    def layer() -> StateSpace | SelectiveStateSpace:
        if ssm == "selective":
            return SelectiveStateSpace(dim, **sizes)
        return StateSpace(dim, ssm=partial(models[ssm], **sizes))

    return SequenceClassifier(in_channels, num_classes, [layer() for _ in range(num_layers)], dropout=dropout)


def claims() -> Iterator[Claim]:
    """The laws of sequence classifiers."""
    series, valid = shape("b t:1..12 2"), mask_domain("b t:1..12")
    for ssm in ("s4d", "selective"):
        model = sequence_classifier(2, 3, ssm=ssm, dim=4, state_dim=4)
        padded, name = partial(_classify_padded, model), f"SequenceClassifier, {ssm}"
        yield Claim(batch_independence(), model, series, name=name)
        yield Claim(agreement(other=partial(_classify_stream, model)), model, series, name=f"{name}, step by step")
        for law in (padding_invariance(), masked_positions_have_no_influence(), fully_masked_row_is_finite()):
            yield Claim(law, padded, (series, valid), name=f"{name}, padded")


def _classify_padded(model: SequenceClassifier, x: Tensor, mask: Tensor) -> Tensor:
    return model(x, mask=mask)


def _classify_stream(model: SequenceClassifier, x: Tensor) -> Tensor:
    logits, state = x.new_zeros(()), model.initial_state(len(x))
    for sample in x.unbind(1):
        logits, state = model.step(sample, state)
    return logits
