"""Small models to take apart: random attention-only models, and one with a hand-built induction head."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn

from lawful.blocks.attention import HeadSpec, MultiHeadAttention
from lawful.blocks.positions import LearnedPositions
from lawful.laws import Claim, agreement, transformed
from lawful.models.transformer import Decoder, TransformerExtras, decoder


def _no_norm(dim: int) -> nn.Module:
    return nn.Identity()


def attention_only_model(
    *,
    vocab_size: int,
    dim: int,
    num_layers: int = 2,
    num_heads: int = 2,
    context_length: int = 16,
    norm: Callable[[int], nn.Module] = _no_norm,
    extras: TransformerExtras | None = None,
) -> Decoder:
    """Builds a decoder of attention layers only, with learned positions, biases and random weights.

    Args:
        vocab_size: Number of tokens.
        dim: Width of the residual stream.
        num_layers: Number of layers.
        num_heads: Number of heads of each layer.
        context_length: Maximum number of tokens.
        norm: Factory for the norms, called with the width. Defaults to no norms.
        extras: Optional parts.

    Examples:
        >>> attention_only_model(vocab_size=5, dim=4)(torch.tensor([1, 2, 3])).shape
        torch.Size([3, 5])
    """
    return decoder(
        vocab_size=vocab_size,
        dim=dim,
        num_layers=num_layers,
        layer_pattern="s*",
        attention=partial(MultiHeadAttention, num_heads=num_heads),
        norm=norm,
        positions=partial(LearnedPositions, context_length),
        extras=TransformerExtras() if extras is None else extras,
        init=None,
    )


def induction_model(*, vocab_size: int, context_length: int, sharpness: float = 40.0) -> Decoder:
    r"""Builds a two-layer attention-only decoder that completes repetitions: after `a b ... a` it predicts `b`.

    The residual stream has a one-hot subspace each for the token, the previous token, the prediction and the position.
    Head 0 of the first layer attends to the previous position and copies its token to the second subspace. Head 1 of
    the second layer attends to positions whose previous token equals the current token, and copies their token to the
    third subspace. The other heads output zero.

    Reference:
        Olsson et al., *In-context Learning and Induction Heads*, 2022.

    Args:
        vocab_size: Number of tokens.
        context_length: Maximum number of tokens.
        sharpness: Score of the attended position, before the softmax.

    Examples:
        >>> model = induction_model(vocab_size=5, context_length=8)
        >>> model(torch.tensor([3, 1, 4, 3])).argmax(-1)[-1]
        tensor(1)
    """
    n, size, dim = context_length, max(context_length, vocab_size), context_length + 3 * vocab_size
    token, previous, prediction = (slice(i * vocab_size, (i + 1) * vocab_size) for i in range(3))
    position, matched = slice(3 * vocab_size, dim), slice(size, size + vocab_size)
    model = decoder(
        vocab_size=vocab_size,
        dim=dim,
        num_layers=2,
        layer_pattern="s*",
        attention=partial(MultiHeadAttention, heads=[HeadSpec(size, vocab_size, count=2)], bias=False),
        norm=_no_norm,
        positions=partial(LearnedPositions, n),
        init=None,
    )
    one, scale = torch.eye(vocab_size), sharpness * size**0.5
    weights = {
        "embedding": [(slice(None), token, one)],
        "positions": [(slice(None), position, torch.eye(n))],
        "head": [(slice(None), prediction, one)],
        "layers.0.attention.query": [(slice(n), position, scale * torch.ones(n - 1).diag(1))],
        "layers.0.attention.key": [(slice(n), position, torch.eye(n))],
        "layers.0.attention.value": [(slice(vocab_size), token, one)],
        "layers.0.attention.out": [(previous, slice(vocab_size), one)],
        "layers.1.attention.query": [(matched, token, scale * one)],
        "layers.1.attention.key": [
            (matched, previous, one),
            (matched, position.start, -torch.ones(vocab_size)),  # the first position has no previous token
        ],
        "layers.1.attention.value": [(slice(vocab_size, None), token, one)],
        "layers.1.attention.out": [(prediction, slice(vocab_size, None), one)],
    }
    with torch.no_grad():
        for name, blocks in weights.items():
            weight = model.get_parameter(f"{name}.weight").zero_()
            for rows, columns, values in blocks:
                weight[rows, columns] = values
    return model


def claims() -> Iterator[Claim]:
    """An induction model predicts the next token of a repeated sequence."""

    def next_token_logit(x: Tensor) -> Tensor:
        """The logit of the right next token, in the repetition of a random permutation of the tokens."""
        tokens = x.argsort(-1).repeat(*[1] * (x.dim() - 1), 2)
        logits = induction_model(vocab_size=4, context_length=8).to(x)(tokens)
        return logits[..., 4:-1, :].gather(-1, tokens[..., 5:, None]).squeeze(-1)

    certain = agreement(other=lambda x: torch.ones_like(x[..., 1:]))
    yield Claim(certain, next_token_logit, transformed(torch.tanh, "b 4"), name="induction_model")
