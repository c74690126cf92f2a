"""Small models to look into: random ones, and one with an induction head put there by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn

from lawful.blocks.attention import HeadSpec, MultiHeadAttention
from lawful.blocks.positions import LearnedPositions
from lawful.laws import Claim, agreement, transformed
from lawful.models.transformer import Decoder, TransformerExtras, decoder


def unchanged(d: int) -> nn.Module:
    """Makes a norm that does nothing, for a model that is to be taken apart without norms.

    Args:
        d: The width.

    Examples:
        >>> unchanged(4)
        Identity()
    """
    return nn.Identity()


def attention_only(
    *,
    vocab: int,
    d: int,
    depth: int = 2,
    heads: int = 2,
    context: int = 16,
    norm: Callable[[int], nn.Module] = unchanged,
    extras: TransformerExtras | None = None,
) -> Decoder:
    """Makes a decoder of attention layers alone, with learned positions, biases and random weights.

    Args:
        vocab: The number of tokens.
        d: The width.
        depth: The number of layers.
        heads: The number of heads of each.
        context: The number of positions.
        norm: Makes the norms.
        extras: Optional parts.

    Examples:
        >>> attention_only(vocab=5, d=4)(torch.tensor([1, 2, 3])).shape
        torch.Size([3, 5])
    """
    return decoder(
        vocab_size=vocab,
        dim=d,
        num_layers=depth,
        layer_pattern="s*",
        attention=partial(MultiHeadAttention, num_heads=heads),
        norm=norm,
        positions=partial(LearnedPositions, context),
        extras=TransformerExtras() if extras is None else extras,
        init=None,
    )


def induction_model(*, vocab: int, context: int, sharpness: float = 40.0) -> Decoder:
    r"""Makes a decoder of two attention layers that goes on with what came before: after `a b ... a` it says `b`.

    The stream has a place each for the token, the token before, the answer, and the position. Head 0 of the first
    layer looks at the position before and writes its token into the second place. Head 1 of the second looks for
    positions where that equals its own token, and writes the token it finds there into the third. The other heads do
    nothing.

    Reference:
        Olsson et al., *In-context Learning and Induction HeadSpec*, 2022.

    Args:
        vocab: The number of tokens.
        context: The number of positions.
        sharpness: How sure the heads are: the lead of a score, before the softmax.

    Examples:
        >>> model = induction_model(vocab=5, context=8)
        >>> model(torch.tensor([3, 1, 4, 3])).argmax(-1)[-1]
        tensor(1)
    """
    n, size, d = context, max(context, vocab), context + 3 * vocab
    token, before, answer = (slice(i * vocab, (i + 1) * vocab) for i in range(3))
    place, matched = slice(3 * vocab, d), slice(size, size + vocab)
    model = decoder(
        vocab_size=vocab,
        dim=d,
        num_layers=2,
        layer_pattern="s*",
        attention=partial(MultiHeadAttention, heads=[HeadSpec(size, vocab, count=2)], bias=False),
        norm=unchanged,
        positions=partial(LearnedPositions, n),
        init=None,
    )
    one, scale = torch.eye(vocab), sharpness * size**0.5
    weights = {
        "embedding": [(slice(None), token, one)],
        "positions": [(slice(None), place, torch.eye(n))],
        "head": [(slice(None), answer, one)],
        "layers.0.block.query": [(slice(n), place, scale * torch.ones(n - 1).diag(1))],
        "layers.0.block.key": [(slice(n), place, torch.eye(n))],
        "layers.0.block.value": [(slice(vocab), token, one)],
        "layers.0.block.out": [(before, slice(vocab), one)],
        "layers.1.block.query": [(matched, token, scale * one)],
        "layers.1.block.key": [
            (matched, before, one),
            (matched, place.start, -torch.ones(vocab)),
        ],  # none before the first
        "layers.1.block.value": [(slice(vocab, None), token, one)],
        "layers.1.block.out": [(answer, slice(vocab, None), one)],
    }
    with torch.no_grad():
        for name, parts in weights.items():
            weight = model.get_parameter(f"{name}.weight").zero_()
            for rows, columns, values in parts:
                weight[rows, columns] = values
    return model


def repeated(x: Tensor) -> Tensor:
    """Makes of random numbers an order of all tokens, and writes it twice.

    Args:
        x: A number for each token.

    Examples:
        >>> repeated(torch.tensor([[0.3, 0.1, 0.2]]))
        tensor([[1, 2, 0, 1, 2, 0]])
    """
    return x.argsort(-1).repeat(*[1] * (x.dim() - 1), 2)


def claims() -> Iterator[Claim]:
    """The laws that the induction model obeys."""

    def said(x: Tensor) -> Tensor:
        """The logit of the token that comes next, from the second time that the sequence is read."""
        tokens = repeated(x)
        return (
            induction_model(vocab=4, context=8)
            .to(x)(tokens)[..., 4:-1, :]
            .gather(-1, tokens[..., 5:, None])
            .squeeze(-1)
        )

    sure = agreement(other=lambda x: torch.ones_like(x[..., 1:]))
    yield Claim(sure, said, transformed(torch.tanh, "b 4"), name="an induction model goes on with what it has read")
