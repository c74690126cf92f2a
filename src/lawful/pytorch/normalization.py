r"""Normalization of activations and of weights.

With mean $\mu$ and variance $\sigma^2$ over a set of axes,

$$y = \gamma \odot \frac{x - \mu}{\sqrt{\sigma^2 + \varepsilon}} + \beta$$

| layer | statistics over |
|---|---|
| `nn.LayerNorm` | the features of a token |
| `nn.BatchNorm1d` | the batch and positions of a channel; running averages in eval mode |
| `nn.GroupNorm` | the channels and positions of a group |
| `nn.InstanceNorm1d` | the positions of a channel |

`nn.RMSNorm` is $y = \gamma \odot x / \sqrt{\operatorname{mean}(x^2) + \varepsilon}$; `F.normalize` is
$x / \lVert x \rVert$. `weight_norm` writes a weight as $w = g\, v / \lVert v \rVert$; `spectral_norm` divides it by its
largest singular value.

Table 1 of the layer-norm paper lists the invariances of a normalized linear layer
$f(x, W) = \operatorname{norm}(x W^\top)$. The claims check every "yes" of it.

Reference:
    Ba, Kiros and Hinton, *Layer Normalization*, 2016. Ioffe and Szegedy, *Batch Normalization*, 2015.
    Zhang and Sennrich, *Root Mean Square Layer Normalization*, 2019. Salimans and Kingma, *Weight Normalization*, 2016.
    Miyato, Kataoka, Koyama and Yoshida, *Spectral Normalization for Generative Adversarial Networks*, 2018.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from lawful.laws import (
    Claim,
    affinity,
    agreement,
    batch_independence,
    causality,
    finiteness,
    gradient,
    homogeneity,
    idempotence,
    linearity,
    lipschitz,
    locality,
    no_buffer_change,
    no_parameter_change,
    oddness,
    permutation_equivariance,
    scale_free_weights,
    scale_invariance,
    second_order_gradient,
    shape,
    shift_invariance,
    state_dict_round_trip,
    ties,
    train_eval_round_trip,
    transformed,
)
from lawful.pytorch._rows import Row, claims_from


def claims() -> Iterator[Claim]:
    """Laws of PyTorch's normalization layers."""
    rows = *_layer_norms(), *_batch_norms(), *_channel_norms(), *_invariances(), *_weight_norms()
    yield from claims_from(rows)


def _standardize(x: Tensor, axes: tuple[int, ...], eps: float = 1e-5) -> Tensor:
    centered = x - x.mean(axes, keepdim=True)
    return centered / (centered.square().mean(axes, keepdim=True) + eps).sqrt()


def _layer_norms() -> Iterator[Row]:
    layer, rms = nn.LayerNorm(4), nn.RMSNorm(4, eps=0.1)

    def layer_equation(x: Tensor) -> Tensor:
        return layer.weight * _standardize(x, (-1,)) + layer.bias

    def rms_equation(x: Tensor) -> Tensor:
        return rms.weight * x * (x.square().mean(-1, keepdim=True) + 0.1).rsqrt()

    def mean(x: Tensor) -> Tensor:
        return 1 + F.layer_norm(x, (4,)).mean(-1)

    def variance(x: Tensor) -> Tensor:
        return F.layer_norm(x, (4,), eps=0.1).square().mean(-1)

    def shrunk_variance(x: Tensor) -> Tensor:
        return 1 - 0.1 / (x.var(-1, correction=0) + 0.1)

    tokens = shape("b t 4")
    each_token = batch_independence(), permutation_equivariance(axis=1), causality(), gradient(), finiteness()
    yield "nn.LayerNorm", layer, tokens, (agreement(other=layer_equation), *each_token)
    yield "nn.LayerNorm", nn.LayerNorm(4, eps=0.1), tokens, (second_order_gradient(),)
    yield "nn.LayerNorm([3, 2])", nn.LayerNorm([3, 2]), shape("b 3 2"), (batch_independence(),)
    yield "mean of F.layer_norm, plus 1", mean, tokens, (agreement(other=lambda x: torch.ones_like(x[..., 0])),)
    yield "variance of F.layer_norm", variance, tokens, (agreement(other=shrunk_variance),)
    invariant = shift_invariance().excluding(ties), scale_invariance().excluding(ties)
    yield "nn.LayerNorm(eps=0)", nn.LayerNorm(4, eps=0.0), tokens, invariant
    yield "nn.RMSNorm", rms, tokens, (agreement(other=rms_equation), *each_token, second_order_gradient())
    yield "nn.RMSNorm(eps=0)", nn.RMSNorm(4, eps=0.0), tokens, (scale_invariance(), oddness())
    mlp = nn.Sequential(nn.Linear(3, 5), nn.GELU(), nn.Linear(5, 4))
    post, pre = nn.Sequential(mlp, nn.LayerNorm(4, eps=0.0)), nn.Sequential(nn.LayerNorm(3, eps=0.0), mlp)
    yield (
        "MLP before nn.LayerNorm(eps=0)",
        post,
        shape("b 3"),
        (scale_free_weights(weights=("0.2.weight", "0.2.bias")),),
    )
    yield "MLP after nn.LayerNorm(eps=0)", pre, shape("b 3"), (homogeneity(degree=0.0).excluding(ties),)


def _batch_norms() -> Iterator[Row]:
    norm = nn.BatchNorm1d(3)
    norm.get_buffer("running_mean").copy_(torch.tensor([1.0, -2.0, 0.5]))
    norm.get_buffer("running_var").copy_(torch.tensor([2.0, 0.5, 4.0]))

    def equation(x: Tensor) -> Tensor:
        names = "running_mean", "running_var", "weight", "bias"
        mean, variance, weight, bias = (getattr(norm, name)[:, None] for name in names)
        y = _standardize(x, (0, 2)) if norm.training else (x - mean) / (variance + 1e-5).sqrt()
        return weight * y + bias

    def undone(x: Tensor) -> Tensor:
        deviation = (x.var((0, 2), correction=0) + 1e-5).sqrt()
        return F.batch_norm(x, None, None, deviation, x.mean((0, 2)), training=True)

    batch = shape("b:2..4 3 n:1..3")
    laws = permutation_equivariance(axis=0), state_dict_round_trip(), train_eval_round_trip(), no_parameter_change()
    yield "nn.BatchNorm1d", norm, batch, (agreement(other=equation), *laws, no_buffer_change())
    yield "nn.BatchNorm1d(eps=0.1)", nn.BatchNorm1d(2, eps=0.1), shape("b:2..3 2 2"), (gradient(),)
    fixed = batch_independence(), causality(time=2), affinity()
    yield "nn.BatchNorm1d.eval()", nn.BatchNorm1d(3).eval(), batch, fixed
    yield "F.batch_norm, weight = deviation, bias = mean", undone, batch, (agreement(other=lambda x: x),)
    for momentum in (0.3, None):

        def running(x: Tensor, momentum: float | None = momentum) -> Tensor:
            tracker = nn.BatchNorm1d(3, momentum=momentum).to(x)
            for step in (x, 2 * x, x + 1):
                tracker(step)
            return torch.stack(list(tracker.buffers())[:2])

        def average(x: Tensor, momentum: float | None = momentum) -> Tensor:
            mean, variance = x.mean((0, 2)), x.var((0, 2))
            steps = (
                torch.stack([mean, variance]),
                torch.stack([2 * mean, 4 * variance]),
                torch.stack([mean + 1, variance]),
            )
            state = torch.stack([torch.zeros_like(mean), torch.ones_like(mean)])
            for n, step in enumerate(steps, 1):
                state = torch.lerp(state, step, momentum or 1 / n)
            return state

        name = f"running statistics of nn.BatchNorm1d({momentum=})"
        yield name, running, shape("b:2..4 3 n"), (agreement(other=average),)


def _channel_norms() -> Iterator[Row]:
    group, instance = nn.GroupNorm(2, 4), nn.InstanceNorm1d(3, affine=True)

    def group_equation(x: Tensor) -> Tensor:
        y = _standardize(x.unflatten(1, (2, 2)), (2, 3)).flatten(1, 2)
        return y * group.weight[:, None] + group.bias[:, None]

    def instance_equation(x: Tensor) -> Tensor:
        return _standardize(x, (2,)) * instance.weight[:, None] + instance.bias[:, None]

    each_sample = batch_independence(), permutation_equivariance(axis=2), gradient()
    yield "nn.GroupNorm", group, shape("b 4 n"), (agreement(other=group_equation), *each_sample)
    for groups, axes, name in ((1, (1, 2, 3), "layer norm"), (4, (2, 3), "instance norm")):
        same = agreement(other=lambda x, axes=axes: _standardize(x, axes, 0.1))
        limit = nn.GroupNorm(groups, 4, eps=0.1, affine=False)
        yield f"nn.GroupNorm({groups}, 4, affine=False) is {name}", limit, shape("b 4 h 2"), (same,)
    yield "nn.InstanceNorm1d", instance, shape("b 3 n:2..4"), (agreement(other=instance_equation), *each_sample)
    invariant = shift_invariance().excluding(ties), scale_invariance().excluding(ties)
    yield "nn.InstanceNorm1d(eps=0)", nn.InstanceNorm1d(3, eps=0.0), shape("b 3 4"), invariant
    response, images = nn.LocalResponseNorm(3, alpha=1.0), shape("b 4 h 2")
    yield "nn.LocalResponseNorm(3)", response, images, (locality(radius=1, axis=1), gradient())
    window = "torch: channel 0 stays in the window of every later channel"
    slope = "torch: the backward pass drops terms of the window"
    old = nn.CrossMapLRN2d(3, alpha=1.0)
    yield "nn.CrossMapLRN2d(3)", old, images, (locality(radius=1, axis=1).waived(window), gradient().waived(slope))
    unit = idempotence(), scale_invariance(), batch_independence(), finiteness()
    yield "F.normalize", F.normalize, transformed(lambda x: x + torch.where(x < 0, -1.0, 1.0), "b 4"), unit


def _invariances() -> Iterator[Row]:
    laws = {
        "weight matrix re-scaled": homogeneity(degree=0.0, input=1),
        "weight matrix re-centered": shift_invariance(axis=0, input=1),
        "weight vector re-scaled": scale_invariance(axis=1, input=1),
        "data set re-scaled": homogeneity(degree=0.0, input=0),
        "data set re-centered": shift_invariance(axis=0, input=0),
        "single case re-scaled": scale_invariance(axis=1, input=0),
    }
    table: tuple[tuple[str, Callable[[Tensor, Tensor], Tensor], tuple[bool, ...]], ...] = (
        ("F.batch_norm", _normalized_by_batch, (True, False, True, True, True, False)),
        ("weight norm", lambda x, w: x @ F.normalize(w, dim=1, eps=0.0).mT, (True, False, True, False, False, False)),
        (
            "F.layer_norm",
            lambda x, w: F.layer_norm(x @ w.mT, w.shape[:1], eps=0.0),
            (True, True, False, True, False, True),
        ),
    )
    inputs = (transformed(_far_from_ties, "3 3"), transformed(_far_from_ties, "4 3"))
    for name, layer, row in table:
        for (column, law), holds in zip(laws.items(), row, strict=True):
            if holds:
                yield f"{name} of x Wᵀ: {column}", layer, inputs, (law,)


def _normalized_by_batch(x: Tensor, w: Tensor) -> Tensor:
    return F.batch_norm(x @ w.mT, None, None, training=True, eps=1e-30)


def _far_from_ties(x: Tensor) -> Tensor:
    """Maps any matrix to one whose rows and columns are far from constant."""
    m, n = x.shape
    return x.tanh() / 8 + torch.linspace(1, 3, m).to(x)[:, None] ** torch.linspace(-1, 2, n).to(x)


def _weight_norms() -> Iterator[Row]:
    normed = parametrizations.weight_norm(nn.Linear(4, 3))
    spectral = parametrizations.spectral_norm(nn.Linear(4, 3), n_power_iterations=60).eval()

    def weight(g: Tensor, v: Tensor) -> Tensor:
        return torch._weight_norm(v, g, 0)

    def equation(g: Tensor, v: Tensor) -> Tensor:
        return g * v / v.square().sum(1, keepdim=True).sqrt()

    def spectral_equation(x: Tensor) -> Tensor:
        weight = spectral.get_parameter("parametrizations.weight.original")
        return x @ (weight / torch.linalg.svdvals(weight)[0]).T + spectral.bias

    directions = transformed(lambda v: v + torch.where(v < 0, -1.0, 1.0), "3 4")
    laws = linearity(input=0), scale_invariance(axis=1, input=1), gradient()
    yield "weight_norm, the weight", weight, (shape("3 1"), directions), (agreement(other=equation), *laws)
    scale_free = scale_free_weights(weights="parametrizations.weight.original1")
    yield "weight_norm(nn.Linear)", normed, shape("b 4"), (scale_free, batch_independence(), state_dict_round_trip())
    yield "spectral_norm(nn.Linear)", spectral, shape("b 4"), (lipschitz(), agreement(other=spectral_equation))
