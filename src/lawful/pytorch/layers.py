r"""Linear layers, embeddings, convolutions, pooling, dropout, attention.

| layer | equation |
|---|---|
| `nn.Linear` | $y = x W^\top + b$ |
| `nn.Bilinear` | $y_k = \sum_{ij} W_{kij}\, u_i v_j + b_k$ |
| `nn.Embedding` | $y = \operatorname{onehot}(i)\, W$ |
| `nn.Conv1d` | $y_{on} = b_o + \sum_{ck} W_{ock}\, x_{c,\, sn + dk - p}$ |
| its output length | $\lfloor (n + 2p - d(k - 1) - 1) / s \rfloor + 1$ |
| `nn.ConvTranspose1d` | $\langle A x, y \rangle = \langle x, A^\top y \rangle$, $A$ the convolution with that weight |
| `nn.MaxPool1d`, `nn.AvgPool1d` | $y_n = \max_k x_{sn + k}$, $\quad y_n = \frac1K \sum_k x_{sn + k}$ |
| `nn.Dropout` | $y = m \odot x / (1 - p)$, $\; m_i \sim \operatorname{Bernoulli}(1 - p)$; the identity in eval mode |
| `F.scaled_dot_product_attention` | $\operatorname{softmax}(Q K^\top / \sqrt d)\, V$ |
| `nn.MultiheadAttention` | $\operatorname{concat}(\operatorname{head}_1, \dots, \operatorname{head}_h)\, W^O$ |

Every layer treats the samples of a batch independently. A convolution commutes with translations, attention without a
mask with permutations; the causal forms never see the future.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.laws import (
    Claim,
    Draw,
    Law,
    affinity,
    agreement,
    associativity,
    backend_agreement,
    batch_independence,
    causality,
    checkpointed_gradient,
    commutativity,
    convexity,
    determinism,
    dropout_scaling,
    equivariance,
    every_parameter_receives_a_gradient,
    fully_masked_row_is_finite,
    gradient,
    hidden_unit_permutation,
    hidden_unit_rescaling,
    homogeneity,
    invariance,
    invertibility,
    linearity,
    lipschitz,
    locality,
    mask,
    masked_positions_have_no_influence,
    monotonicity,
    no_mutation,
    non_negativity,
    padding_invariance,
    permutation_equivariance,
    permutation_invariance,
    ragged_batches,
    shape,
    shift_invariance,
    state_dict_round_trip,
    sums_to_one,
    tokens,
    train_eval_round_trip,
    translation_equivariance,
    unbiasedness,
)
from lawful.pytorch._rows import Row, claims_from


def claims() -> Iterator[Claim]:
    """Laws of PyTorch's layers."""
    rows = *_linear_layers(), *_convolutions(), *_pooling(), *_dropout(), *_attention(), *_transformer_layers()
    yield from claims_from(rows)


_MODULE = (state_dict_round_trip(), train_eval_round_trip(), every_parameter_receives_a_gradient(), no_mutation())


def _linear_layers() -> Iterator[Row]:
    linear, bilinear, embedding = nn.Linear(4, 3), nn.Bilinear(3, 2, 4), nn.Embedding(5, 3)

    def neurons(x: Tensor) -> Tensor:
        return torch.stack([(w * x).sum(-1) + b for w, b in zip(linear.weight, linear.bias, strict=True)], -1)

    def quadratic_form(u: Tensor, v: Tensor) -> Tensor:
        return torch.einsum("kij,bi,bj->bk", bilinear.weight, u, v) + bilinear.bias

    def one_hot_product(i: Tensor) -> Tensor:
        return F.one_hot(i, 5).to(embedding.weight) @ embedding.weight

    each_token = (batch_independence(), permutation_equivariance(axis=1), causality())
    yield "nn.Linear", linear, shape("b t 4"), (agreement(other=neurons), *each_token, gradient(), *_MODULE)
    yield "nn.Linear", linear, shape("b 4"), (affinity(),)
    yield "nn.Linear(bias=False)", nn.Linear(4, 3, bias=False), shape("b 4"), (linearity(),)
    pair = (shape("b 3"), shape("b 2"))
    yield "nn.Bilinear", bilinear, pair, (agreement(other=quadratic_form), batch_independence(input=(0, 1)), gradient())
    yield "nn.Bilinear(bias=False)", nn.Bilinear(3, 2, 4, bias=False), pair, (linearity(input=0), linearity(input=1))
    ids = tokens("b t", vocab_size=5)
    yield "nn.Embedding", embedding, ids, (agreement(other=one_hot_product), *each_token, gradient(), *_MODULE)
    for mode in ("sum", "mean", "max"):
        bag = nn.EmbeddingBag(5, 3, mode=mode)
        yield f"nn.EmbeddingBag(mode={mode!r})", bag, ids, (permutation_invariance(axis=1), batch_independence())


def _convolutions() -> Iterator[Row]:
    plain, halves = nn.Conv1d(2, 3, 3), nn.Conv1d(2, 4, 3, stride=2, padding=1, groups=2)
    images = nn.Conv2d(2, 3, (2, 3))

    def patches(x: Tensor) -> Tensor:
        return torch.einsum("bcnk,ock->bon", x.unfold(2, 3, 1), plain.weight) + plain.get_parameter("bias")[:, None]

    def groups(x: Tensor) -> Tensor:
        windows = F.pad(x, (1, 1)).unfold(2, 3, 2).unflatten(1, (2, 1))
        y = torch.einsum("bgcnk,gock->bgon", windows, halves.weight.unflatten(0, (2, 2)))
        return y.flatten(1, 2) + halves.get_parameter("bias")[:, None]

    def im2col(x: Tensor) -> Tensor:
        y = images.weight.flatten(1) @ F.unfold(x, (2, 3)) + images.get_parameter("bias")[:, None]
        return y.unflatten(2, (x.shape[2] - 1, x.shape[3] - 2))

    def length(x: Tensor) -> Tensor:
        return x.new_tensor([F.conv1d(x, x.new_ones(1, 1, 3), stride=2, dilation=2, padding=2).shape[2]])

    def length_formula(x: Tensor) -> Tensor:
        return x.new_tensor([(x.shape[2] + 2 * 2 - 2 * (3 - 1) - 1) // 2 + 1])

    laws = agreement(other=patches), batch_independence(), gradient(), *_MODULE
    yield "nn.Conv1d", plain, shape("b 2 n:3..6"), laws
    yield "nn.Conv1d(groups=2, stride=2)", halves, shape("b 2 n:2..6"), (agreement(other=groups),)
    yield "nn.Conv2d by unfold", images, shape("b 2 h:2..5 w:3..5"), (agreement(other=im2col), gradient())
    yield "output length of F.conv1d", length, shape("1 1 n:3..9"), (agreement(other=length_formula),)
    same = nn.Conv1d(2, 3, 3, padding=1)
    window = (translation_equivariance(axis=2, border=1), locality(radius=1, axis=2))
    yield "nn.Conv1d(padding=1)", same, shape("b 2 n:4..8"), window
    ring = nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular")
    shifts = tuple(translation_equivariance(axis=axis) for axis in (2, 3))
    yield "nn.Conv2d(padding_mode='circular')", ring, shape("b 2 h:4..6 w:4..6"), shifts
    volume = nn.Conv3d(2, 4, 2, groups=2, bias=False)
    yield "nn.Conv3d(groups=2, bias=False)", volume, shape("b 2 2 3 2"), (linearity(), batch_independence())
    causal = nn.Sequential(nn.ConstantPad1d((4, 0), 0.0), nn.Conv1d(2, 3, 3, dilation=2))
    yield "nn.Conv1d(dilation=2) after left padding", causal, shape("b 2 n"), (causality(time=2),)
    yield from _convolution_product()
    yield from _transposed_convolutions()


def _convolution_product() -> Iterator[Row]:
    """The discrete convolution f * g, which is F.conv1d with a flipped kernel and full padding."""

    def convolve(f: Tensor, g: Tensor) -> Tensor:
        return F.conv1d(f[None, None], g.flip(-1)[None, None], padding=len(g) - 1)[0, 0]

    def spectral(f: Tensor, g: Tensor) -> Tensor:
        n = len(f) + len(g) - 1
        return torch.fft.irfft(torch.fft.rfft(f, n) * torch.fft.rfft(g, n), n)

    def circular(f: Tensor, g: Tensor) -> Tensor:
        return F.conv1d(F.pad(f[None, None], (len(f) - 1, 0), mode="circular"), g.flip(-1)[None, None])[0, 0]

    full = "F.conv1d, full and flipped"
    yield full, convolve, (shape("n"), shape("n")), (commutativity(), linearity(input=0), linearity(input=1))
    yield full, convolve, (shape("n"), shape("m")), (agreement(other=spectral),)
    yield "F.conv1d, circular and flipped", circular, (shape("n:2..5"), shape("n:2..5")), (associativity(),)


def _transposed_convolutions() -> Iterator[Row]:
    settings = {"stride": 3, "padding": 1, "groups": 2, "bias": False}
    down, up = nn.Conv1d(2, 4, 2, **settings), nn.ConvTranspose1d(4, 2, 2, output_padding=1, **settings)
    down.weight = up.weight
    disjoint = nn.ConvTranspose1d(2, 3, 2, stride=2)

    def left(x: Tensor, y: Tensor) -> Tensor:
        return (down(x) * y).sum((1, 2))

    def right(x: Tensor, y: Tensor) -> Tensor:
        return (x * up(y)).sum((1, 2))

    def side_by_side(x: Tensor) -> Tensor:
        return torch.einsum("bcn,cok->bonk", x, disjoint.weight).flatten(2) + disjoint.get_parameter("bias")[:, None]

    adjoint = (shape("b 2 7"), shape("b 4 3"))
    yield "nn.ConvTranspose1d is the adjoint of nn.Conv1d", left, adjoint, (agreement(other=right),)
    yield "nn.ConvTranspose1d(bias=False)", up, shape("b 4 n"), (linearity(), batch_independence(), gradient())
    yield "nn.ConvTranspose1d(stride=kernel_size)", disjoint, shape("b 2 n"), (agreement(other=side_by_side),)
    image = nn.ConvTranspose2d(2, 3, 3, padding=1, bias=False)
    shifts = tuple(translation_equivariance(axis=axis, border=1) for axis in (2, 3))
    yield "nn.ConvTranspose2d(padding=1)", image, shape("b 2 h:4..6 w:4..6"), shifts


def _shift(draw: Draw) -> int:
    return draw.integer(1, 3, "s")


def _roll(step: int) -> Callable[[int, Tensor], Tensor]:
    return lambda s, x: x.roll(s * step, -1)


def _pooling() -> Iterator[Row]:
    by_stride = equivariance(sample=_shift, act=_roll(2), act_out=_roll(1))
    images, vectors = shape("b 2 h:2..5 w:3..7"), shape("b 2 n:2..6")
    rows: tuple[tuple[str, Callable[..., Tensor], tuple[Law, ...]], ...] = (
        ("Max", torch.amax, (monotonicity(), homogeneity(), convexity(), lipschitz())),
        ("Avg", torch.mean, (monotonicity(), linearity(), lipschitz())),
    )
    for name, reduce, laws in rows:

        def windows(x: Tensor, reduce: Callable[..., Tensor] = reduce) -> Tensor:
            return reduce(x.unfold(2, 2, 2).unfold(3, 3, 3), dim=(-1, -2))

        one, two = (getattr(nn, f"{name}Pool{d}d") for d in (1, 2))
        yield f"nn.{name}Pool2d((2, 3))", two((2, 3)), images, (agreement(other=windows), gradient())
        yield f"nn.{name}Pool1d(2)", one(2), vectors, (*laws, batch_independence())
        yield f"nn.{name}Pool1d(2)", one(2), shape("b 2 8"), (by_stride,)
        yield f"nn.{name}Pool1d(3, 1, 1)", one(3, 1, 1), shape("b 2 n"), (locality(radius=1, axis=2),)
        pool = getattr(nn, f"Adaptive{name}Pool1d")(1)
        yield f"nn.Adaptive{name}Pool1d(1)", pool, shape("b 2 n"), (permutation_invariance(axis=2), homogeneity())
        network = nn.Sequential(nn.Conv1d(2, 3, 3, padding=1, padding_mode="circular"), nn.ReLU(), pool)
        moved = invariance(sample=_shift, act=_roll(1))
        yield f"circular nn.Conv1d, nn.ReLU, nn.Adaptive{name}Pool1d(1)", network, shape("b 2 n:2..6"), (moved,)
    shuffle, unshuffle = nn.PixelShuffle(2), nn.PixelUnshuffle(2)
    yield "nn.PixelShuffle", shuffle, shape("b 8 h w"), (invertibility(inverse=unshuffle), linearity())


def _dropout() -> Iterator[Row]:
    for layer, inputs in ((nn.Dropout(0.5), "b 4"), (nn.Dropout(0.2), "b 4"), (nn.Dropout1d(0.4), "b 2 3")):
        laws = unbiasedness(), dropout_scaling(scale=1 / (1 - layer.p)), determinism(), checkpointed_gradient()
        yield f"nn.{layer}", layer, shape(inputs), laws


def _causal_mask(x: Tensor) -> Tensor:
    return torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)


def _attention() -> Iterator[Row]:
    sdpa = F.scaled_dot_product_attention

    def equation(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v

    def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return sdpa(q, k, v, is_causal=True)

    def padded(x: Tensor, valid: Tensor) -> Tensor:
        return sdpa(x, x, x, attn_mask=valid[:, None])

    name, qkv = "F.scaled_dot_product_attention", (shape("b t 4"), shape("b s 4"), shape("b s 3"))
    laws = (
        agreement(other=equation),
        batch_independence(input=(0, 1, 2)),
        permutation_equivariance(axis=1, input=0),
        permutation_invariance(axis=1, input=(1, 2)),
        shift_invariance(axis=1, input=1),
        linearity(input=2),
        gradient(),
    )
    yield name, sdpa, qkv, laws
    yield f"{name}(is_causal=True)", causal, (shape("b t 4"),) * 3, (causality(input=(0, 1, 2)), backend_agreement())
    sequences = (shape("b t 4"), mask("b t"))
    yield f"{name}(attn_mask)", padded, sequences, (*_MASKED, fully_masked_row_is_finite())
    yield from _multi_head_attention()


_MASKED = (masked_positions_have_no_influence(), padding_invariance(), ragged_batches())


def _multi_head_attention() -> Iterator[Row]:
    attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def self_attention(x: Tensor) -> Tensor:
        return attention(x, x, x)[0]

    def weights(x: Tensor) -> Tensor:
        return attention(x, x, x)[1]

    def causal(x: Tensor) -> Tensor:
        return attention(x, x, x, attn_mask=_causal_mask(x), need_weights=False)[0]

    def padded(x: Tensor, valid: Tensor) -> Tensor:
        return attention(x, x, x, key_padding_mask=~valid, need_weights=False)[0]

    x, name = shape("b t 4"), "nn.MultiheadAttention"
    cross = {"query": x, "key": shape("b s 4"), "value": shape("b s 4")}
    yield name, self_attention, x, (batch_independence(), permutation_equivariance(axis=1), gradient())
    yield f"{name}, weights", weights, x, (sums_to_one(), non_negativity())
    yield name, attention, cross, (permutation_invariance(axis=1, input=("key", "value")),)
    yield f"{name}(attn_mask=causal)", causal, x, (causality(), backend_agreement())
    nan = "torch: softmax over a row of -inf is NaN; F.scaled_dot_product_attention returns 0"
    yield f"{name}(key_padding_mask)", padded, (x, mask("b t")), (*_MASKED, fully_masked_row_is_finite().waived(nan))


def _transformer_layers() -> Iterator[Row]:
    encoder = nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, batch_first=True)
    decoder = nn.TransformerDecoderLayer(4, 2, 6, dropout=0.0, batch_first=True)

    def causal(x: Tensor) -> Tensor:
        return encoder(x, src_mask=_causal_mask(x), is_causal=True)

    def padded(x: Tensor, valid: Tensor) -> Tensor:
        return encoder(x, src_key_padding_mask=~valid)

    def decode(x: Tensor, memory: Tensor) -> Tensor:
        return decoder(x, memory, tgt_mask=_causal_mask(x), tgt_is_causal=True)

    x, name = shape("b t 4"), "nn.TransformerEncoderLayer"
    hidden = {"into": ("linear1.weight", "linear1.bias"), "out_of": "linear2.weight"}
    symmetries = permutation_equivariance(axis=1), hidden_unit_permutation(**hidden), hidden_unit_rescaling(**hidden)
    yield name, encoder, x, (batch_independence(), *symmetries, state_dict_round_trip())
    yield f"{name}(src_mask=causal)", causal, x, (causality(),)
    yield f"{name}(src_key_padding_mask)", padded, (x, mask("b t")), _MASKED
    memory = (batch_independence(input=(0, 1)), causality(input=0), permutation_invariance(axis=1, input=1))
    yield "nn.TransformerDecoderLayer(tgt_mask=causal)", decode, (x, shape("b s 4")), memory
