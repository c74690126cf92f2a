r"""Normalising: subtract the mean, divide by the deviation; what over is a line of data.

Layer normalisation: each sample by its own mean and deviation.
RMS normalisation: divide by the root mean square.
Group normalisation: each sample by groups of its channels.
Instance normalisation: each channel of each sample by itself.
Batch normalisation: each channel by its mean and deviation over the batch.
AdaNorm: a layer norm whose gain is made from what it normalises.
Weight normalisation: a weight as a length and a direction.
Spectral normalisation: a layer whose matrix stretches nothing by more than a given factor.
Whitening as a layer: batch normalisation that also removes the correlation between channels.
What a normalised layer does not notice: the table of the layer-normalisation paper.

A layer without a bias, $f(x, W) = \operatorname{norm}(x W^\top)$, is a map of the data and of the weight. Scaling and
shifting either of them is an invariance of that map, or it is not.

Reference:
    Ba, Kiros and Hinton, *Layer Normalization*, 2016, table 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call
from torch.nn import functional as F

from lawful.functions.whitening import inverse_root
from lawful.laws import (
    Claim,
    Draw,
    agreement,
    batch_independence,
    causality,
    derivative,
    equivariance,
    finiteness,
    gradient,
    homogeneity,
    linearity,
    lipschitz,
    scale_free_weights,
    scale_invariance,
    second_order_gradient,
    shape,
    shift_invariance,
    ties,
    transformed,
)

OVER = {
    "batch": "b s",
    "layer": "c s",
    "instance": "s",
    "group": "c s",
    "rms": "c s",
}
"""Which axes each kind runs over: the batch b, the channels c (of one group), the space axes s."""


def axes_of(kind: str, dim: int, *, batch: int = 1) -> tuple[int, ...]:
    """Returns the axes that a kind of normalisation runs over.

    Args:
        kind: A row of `OVER`.
        dim: How many axes the input has.
        batch: How many of them, the first ones, are the batch; then come the channels, then space.

    Examples:
        >>> axes_of("batch", 4), axes_of("instance", 4), axes_of("layer", 3, batch=2)
        ((0, 2, 3), (2, 3), (2,))
    """
    if kind not in OVER:
        raise ValueError(f"kind is one of {', '.join(OVER)}: got {kind!r}")
    where = {"b": range(batch), "c": range(batch, batch + 1), "s": range(batch + 1, dim)}
    return tuple(axis for letter in OVER[kind].split() for axis in where[letter])


def check_eps(eps: float) -> None:
    """Refuses an ε that is negative, or no number."""
    if not eps >= 0:
        raise ValueError(f"eps is at least 0: got {eps}")


def normalize(x: Float[Tensor, "*shape"], axes: tuple[int, ...], *, eps: float = 1e-5) -> Float[Tensor, "*shape"]:
    r"""Gives `x` the mean 0 and the variance 1 over some axes.

    $$y = \frac{x - \operatorname{mean}(x)}{\sqrt{\operatorname{var}(x) + \epsilon}}$$

    The variance divides by the number of entries. With $\epsilon > 0$ that of $y$ is a little below 1, and entries
    that are all the same give 0; with $\epsilon = 0$ those give no number.

    Args:
        x: The input $x$.
        axes: The axes that mean and variance run over.
        eps: $\epsilon$.

    Examples:
        >>> normalize(torch.tensor([1.0, 3.0]), (0,), eps=0.0)
        tensor([-1.,  1.])
    """
    if not axes:
        raise ValueError("at least one axis to normalise over was wanted: got none")
    centred = x - x.mean(axes, keepdim=True)
    return centred * (centred.square().mean(axes, keepdim=True) + eps).rsqrt()


def _normalize_claims() -> Iterator[Claim]:
    """The laws that normalising obeys."""
    over, eps = axes_of("batch", 3), 1e-5

    def mean(x: Tensor) -> Tensor:
        return (1 + normalize(x, over)).mean((0, 2))

    def variance(x: Tensor) -> Tensor:
        return normalize(x, over).square().mean((0, 2))

    def expected(x: Tensor) -> Tensor:
        v = x.var((0, 2), correction=0)
        return v / (v + eps)

    ordinary = transformed(torch.tanh, "3 2 4")
    yield Claim(agreement(other=lambda x: torch.ones_like(x[0, :, 0])), mean, ordinary, name="1 + mean 0")
    yield Claim(agreement(other=expected), variance, ordinary, name="variance 1")
    yield Claim(gradient(), partial(normalize, axes=over, eps=0.1), shape("b 2 n"), name="normalize")
    exact = partial(normalize, axes=(-1,), eps=0.0)
    yield Claim(shift_invariance().excluding(ties), exact, shape("b 4"), name="normalize(eps=0)")
    yield Claim(homogeneity(degree=0.0).excluding(ties), exact, shape("b 4"), name="normalize(eps=0)")
    for kind, batch, kept in (("batch", 1, {1}), ("layer", 1, {0}), ("instance", 1, {0, 1}), ("group", 2, {0, 1})):

        def by_kind(x: Tensor, kind: str = kind, batch: int = batch) -> Tensor:
            return normalize(x, axes_of(kind, x.dim()) if batch == 1 else axes_of(kind, x.dim(), batch=batch))

        def in_rows(x: Tensor, kept: set[int] = kept) -> Tensor:
            others = [axis for axis in range(x.dim()) if axis not in kept]
            rows = x.permute(*kept, *others)
            y = rows.flatten(len(kept)) - rows.flatten(len(kept)).mean(-1, keepdim=True)
            y = y / (y.square().mean(-1, keepdim=True) + eps).sqrt()
            return y.reshape(rows.shape).permute([[*kept, *others].index(axis) for axis in range(x.dim())])

        yield Claim(agreement(other=in_rows), by_kind, shape("2 2 3 2"), name=f"normalize, {kind}")


class LayerNorm(nn.Module):
    r"""Normalises each sample, or each token, over its last axes, then scales and shifts every entry.

    $$y = \gamma \odot \frac{x - \operatorname{mean}(x)}{\sqrt{\operatorname{var}(x) + \epsilon}} + \beta$$

    It is the same in training and evaluation, and no sample sees another. After a layer (*post-norm*) it takes away
    the scale of the layer's matrix; before it (*pre-norm*) the scale of the data.

    Parameters are named as those of `nn.LayerNorm`.

    Reference:
        Ba, Kiros and Hinton, *Layer Normalization*, 2016.

    Args:
        d: The size of the last axis, or those of the last axes.
        eps: $\epsilon$.
        affine: Whether there are $\gamma$ (`weight`) and $\beta$ (`bias`).

    Examples:
        >>> LayerNorm(2, eps=0.0)(torch.tensor([1.0, 3.0])).detach()
        tensor([-1.,  1.])
    """

    def __init__(self, d: int | tuple[int, ...], *, eps: float = 1e-5, affine: bool = True) -> None:
        super().__init__()
        check_eps(eps)
        self.shape = (d,) if isinstance(d, int) else tuple(d)
        if min(self.shape, default=0) < 1:
            raise ValueError(f"d is one or several sizes of at least 1: got {d}")
        self.weight = nn.Parameter(torch.ones(self.shape)) if affine else None
        self.bias = nn.Parameter(torch.zeros(self.shape)) if affine else None
        self.eps = eps

    def forward(self, x: Float[Tensor, "*batch_d"]) -> Float[Tensor, "*batch_d"]:
        """Normalises the last axes."""
        if x.shape[-len(self.shape) :] != self.shape:
            raise ValueError(f"the last axes are to have sizes {self.shape}: got shape {tuple(x.shape)}")
        return F.layer_norm(x, self.shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.shape}, eps={self.eps}, affine={self.weight is not None}"


def _layer_norm_claims() -> Iterator[Claim]:
    """The laws that LayerNorm obeys; `invariances` claims more."""
    rows = ((LayerNorm(4), 1e-5, shape("b t 4")), (LayerNorm((3, 2), eps=0.1), 0.1, shape("b 3 2")))
    for norm, eps, inputs in rows:

        def equation(x: Tensor, norm: LayerNorm = norm, eps: float = eps) -> Tensor:
            over = axes_of("layer", x.dim(), batch=x.dim() - len(norm.shape))
            weight, bias = norm.parameters()
            return weight * normalize(x, over, eps=eps) + bias

        yield Claim(agreement(other=equation), norm, inputs, name=f"LayerNorm({norm.shape})")
    exact = LayerNorm(4, eps=0.0)
    yield Claim(batch_independence(), exact, shape("b t 4"))
    yield Claim(shift_invariance().excluding(ties), exact, shape("b t 4"), name="LayerNorm(eps=0)")
    yield Claim(scale_invariance().excluding(ties), exact, shape("b t 4"), name="LayerNorm(eps=0)")
    mlp = nn.Sequential(nn.Linear(3, 5), nn.GELU(), nn.Linear(5, 4))
    post = nn.Sequential(mlp, exact)
    yield Claim(scale_free_weights(weights=("0.2.weight", "0.2.bias")), post, shape("b 3"), name="post-norm")
    pre = nn.Sequential(LayerNorm(3, eps=0.0), mlp)
    yield Claim(homogeneity(degree=0.0).excluding(ties), pre, shape("b 3"), name="pre-norm")


class _Fused(torch.autograd.Function):
    r"""Computes what PyTorch's `rms_norm` does, to the last bit, and its gradients in fewer passes over memory.

    With $r$ the inverse root, $n = r x$ and $h = g \odot \bar y$, the gradient is that of a layer norm whose mean is
    held at 0, for which there is a kernel, and what that has taken away too much, $\tfrac{r}{d} \sum_j h_j$:

    $$\bar x = r \, \bigl(h - \tfrac{1}{d} \, n \sum_j h_j n_j\bigr), \qquad \bar g = \sum n \odot \bar y$$
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        root = x.square().mean(-1, keepdim=True).add_(eps).rsqrt_()
        ctx.save_for_backward(x, weight, root)
        ctx.eps = eps
        return (x * root).mul_(weight)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        (x, weight, root), (grad,) = ctx.saved_tensors, grads
        if torch.is_grad_enabled():  # for a second derivative, which the kernel does not know
            root = torch.rsqrt(x.square().mean(-1, keepdim=True) + ctx.eps)
            n, h = root * x, grad * weight
            return root * (h - n * (h * n).mean(-1, keepdim=True)), (grad * n).reshape(-1, len(weight)).sum(0), None
        wanted = [*ctx.needs_input_grad[:2], False]
        to_x, to_weight, _ = torch.ops.aten.native_layer_norm_backward(
            grad, x, weight.shape, torch.zeros_like(root), root, weight, None, wanted
        )
        if to_x is not None:
            to_x.addcmul_((grad @ weight).unsqueeze(-1), root, value=1 / len(weight))
        return to_x, to_weight, None


def _fits(x: Tensor, weight: Tensor) -> bool:
    """Whether the usual backward pass is all that is to come, on the processor and in full precision."""
    return (
        x.is_cpu
        and x.dtype == weight.dtype
        and x.dtype in (torch.float32, torch.float64)
        and torch.is_grad_enabled()
        and forward_ad._current_level < 0
        and not torch._C._are_functorch_transforms_active()
        and not torch.compiler.is_compiling()
        and not torch.is_autocast_enabled("cpu")
    )


class RMSNorm(nn.Module):
    r"""Divides each vector by its root mean square and multiplies by a gain.

    $$y_i = g_i \, \frac{x_i}{\sqrt{\tfrac{1}{d} \sum_j x_j^2 + \epsilon}}$$

    The parameter `weight` is $g$, as in PyTorch's own module, so that weights move over. With $\epsilon = 0$ the
    length of $x$ does not matter at all, and $x = 0$ gives no number.

    Reference:
        Zhang and Sennrich, *Root Mean Square Layer Normalization*, 2019.

    Args:
        d: The width $d$, the size of the last axis.
        eps: $\epsilon$.

    Examples:
        >>> import torch
        >>> RMSNorm(2, eps=0.0)(torch.tensor([3.0, 3.0])).detach()
        tensor([1., 1.])
    """

    def __init__(self, d: int, *, eps: float = 1e-6) -> None:
        if d < 1:
            raise ValueError(f"d is at least 1: got {d}")
        check_eps(eps)
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))
        self.shape, self.eps = (d,), eps

    def forward(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        """Normalises the last axis."""
        if x.shape[-1:] != self.shape:
            raise ValueError(f"the last axis is to have size {self.shape[0]}: got shape {tuple(x.shape)}")
        if _fits(x, self.weight):
            return _Fused.apply(x, self.weight, self.eps)
        return F.rms_norm(x, self.shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.shape[0]}, eps={self.eps}"


def _rms_norm_claims() -> Iterator[Claim]:
    """The laws that RMSNorm obeys."""
    for law in (batch_independence(), causality(time=1), gradient(), second_order_gradient(), finiteness()):
        yield Claim(law, RMSNorm(8), shape("b t 8"))
    yield Claim(scale_invariance(), RMSNorm(8, eps=0.0), shape("b t 8"), name="RMSNorm(eps=0)")
    for norm, d, eps in ((RMSNorm(1), 1, 1e-6), (RMSNorm(8, eps=0.1), 8, 0.1)):

        def equation(x: Tensor, norm: RMSNorm = norm, d: int = d, eps: float = eps) -> Tensor:
            return norm.weight * x * torch.rsqrt(x.square().sum(-1, keepdim=True) / d + eps)

        yield Claim(agreement(other=equation), norm, shape(f"b t {d}"), name=f"RMSNorm({d}, {eps=})")


class GroupNorm(nn.Module):
    r"""Normalises each group of channels over its channels and positions, then scales and shifts each channel.

    $$y = \gamma_c \, \frac{x - \mu_g}{\sqrt{\sigma_g^2 + \epsilon}} + \beta_c$$

    One group is a layer norm over channels and space; a group for each channel is an instance norm. Parameters are
    named as those of `nn.GroupNorm`.

    Reference:
        Wu and He, *Group Normalization*, 2018.

    Args:
        groups: How many groups $g$.
        c: The channels, so many in all.
        eps: $\epsilon$.
        affine: Whether there are $\gamma$ (`weight`) and $\beta$ (`bias`).

    Examples:
        >>> GroupNorm(2, 4, eps=0.0)(torch.tensor([[1.0, 3.0, 10.0, 30.0]])).detach()
        tensor([[-1.,  1., -1.,  1.]])
    """

    def __init__(self, groups: int, c: int, *, eps: float = 1e-5, affine: bool = True) -> None:
        super().__init__()
        check_eps(eps)
        if min(groups, c) < 1 or c % groups:
            raise ValueError(f"groups must divide c: got c={c}, groups={groups}")
        self.weight = nn.Parameter(torch.ones(c)) if affine else None
        self.bias = nn.Parameter(torch.zeros(c)) if affine else None
        self.groups, self.c, self.eps = groups, c, eps

    def forward(self, x: Float[Tensor, "b c *space"]) -> Float[Tensor, "b c *space"]:
        """Normalises the channels of each group."""
        if x.dim() < 2 or x.shape[1] != self.c:
            raise ValueError(f"axis 1 is to have size {self.c}: got shape {tuple(x.shape)}")
        return F.group_norm(x, self.groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.groups}, {self.c}, eps={self.eps}, affine={self.weight is not None}"


def _group_norm_claims() -> Iterator[Claim]:
    """The laws that GroupNorm obeys."""
    norm = GroupNorm(2, 4)

    def equation(x: Tensor) -> Tensor:
        groups = x.unflatten(1, (2, 2))
        y = normalize(groups, axes_of("group", groups.dim(), batch=2), eps=1e-5).flatten(1, 2)
        weight, bias = norm.parameters()
        return y * weight[:, None] + bias[:, None]

    yield Claim(agreement(other=equation), norm, shape("b 4 n"), name="GroupNorm(2, 4)")
    yield Claim(batch_independence(), norm, shape("b 4 n"), name="GroupNorm(2, 4)")
    for groups, kind in ((1, "layer"), (4, "instance")):

        def same(x: Tensor, kind: str = kind) -> Tensor:
            return normalize(x, axes_of(kind, x.dim()), eps=0.1)

        limit = GroupNorm(groups, 4, eps=0.1, affine=False)
        yield Claim(agreement(other=same), limit, shape("b 4 h 2"), name=f"GroupNorm({groups}, 4) as {kind}")


class InstanceNorm(nn.Module):
    r"""Normalises each channel of each sample over its positions, and may then scale and shift it.

    $$y = \gamma_c \, \frac{x - \mu_{b, c}}{\sqrt{\sigma_{b, c}^2 + \epsilon}} + \beta_c$$

    On an image that takes the contrast and the brightness of each channel away. Parameters are named as those of
    `nn.InstanceNorm1d` to `3d`, and are not there by default either.

    Reference:
        Ulyanov, Vedaldi and Lempitsky, *Instance Normalization: The Missing Ingredient for Fast Stylization*, 2016.

    Args:
        c: The channels.
        eps: $\epsilon$.
        affine: Whether there are $\gamma$ (`weight`) and $\beta$ (`bias`).

    Examples:
        >>> InstanceNorm(1, eps=0.0)(torch.tensor([[[1.0, 3.0]]]))
        tensor([[[-1.,  1.]]])
    """

    def __init__(self, c: int, *, eps: float = 1e-5, affine: bool = False) -> None:
        super().__init__()
        check_eps(eps)
        if c < 1:
            raise ValueError(f"c is at least 1: got {c}")
        self.weight = nn.Parameter(torch.ones(c)) if affine else None
        self.bias = nn.Parameter(torch.zeros(c)) if affine else None
        self.c, self.eps = c, eps

    def forward(self, x: Float[Tensor, "b c *space"]) -> Float[Tensor, "b c *space"]:
        """Normalises the space axes."""
        if x.dim() < 3 or x.shape[1] != self.c:
            raise ValueError(f"axis 1 is to have size {self.c}, before space axes: got shape {tuple(x.shape)}")
        if math.prod(x.shape[2:]) == 1:
            raise ValueError(
                f"more than one position was wanted, for there is no other deviation: got shape {tuple(x.shape)}"
            )
        return F.instance_norm(x, weight=self.weight, bias=self.bias, eps=self.eps)

    def extra_repr(self) -> str:
        return f"{self.c}, eps={self.eps}, affine={self.weight is not None}"


def _instance_norm_claims() -> Iterator[Claim]:
    """The laws that InstanceNorm obeys."""
    norm = InstanceNorm(3, affine=True)

    def equation(x: Tensor) -> Tensor:
        y = normalize(x, axes_of("instance", x.dim()), eps=1e-5)
        weight, bias = norm.parameters()
        return y * weight[:, None, None] + bias[:, None, None]

    yield Claim(agreement(other=equation), norm, shape("b 3 h 2"))
    yield Claim(batch_independence(), norm, shape("b 3 h 2"))
    plain = agreement(other=nn.InstanceNorm1d(3))
    yield Claim(plain, InstanceNorm(3), shape("b 3 n:2..4"))
    none = agreement(other=lambda x: x.new_tensor(0))
    yield Claim(none, lambda x: x.new_tensor(len([*InstanceNorm(3).parameters()])), shape("1"), name="no parameters")
    exact = InstanceNorm(3, eps=0.0)
    yield Claim(scale_invariance().excluding(ties), exact, shape("b 3 4"), name="InstanceNorm(eps=0)")
    yield Claim(shift_invariance().excluding(ties), exact, shape("b 3 4"), name="InstanceNorm(eps=0)")


class BatchNorm(nn.Module):
    r"""Normalises each channel over the batch and all positions, then scales and shifts it.

    $$y = \gamma \, \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}} + \beta$$

    In training $\mu$ and $\sigma^2$ are those of the batch, so that its samples depend on each other; in evaluation
    they are running averages, $r \leftarrow (1 - m) r + m \, s$, and each channel is an affine map. The average of the
    variance is of the one that divides by $n - 1$. With $\gamma = \sqrt{\sigma^2 + \epsilon}$, the deviation and not
    the variance, and $\beta = \mu$ the layer does nothing. Since $\beta$ is there, a layer before it needs no bias.

    Parameters and buffers are named as those of `nn.BatchNorm1d` to `3d`, which this is for any number of space axes.

    Reference:
        Ioffe and Szegedy, *Batch Normalization: Accelerating Deep Network Training by Reducing Internal Covariate
        Shift*, 2015.

    Args:
        c: The channels.
        eps: $\epsilon$, above 0.
        momentum: $m$; with None the average is over all batches so far.
        affine: Whether there are $\gamma$ (`weight`) and $\beta$ (`bias`).

    Examples:
        >>> BatchNorm(1, eps=1e-9)(torch.tensor([[1.0], [3.0]])).detach()
        tensor([[-1.],
                [ 1.]])
    """

    def __init__(self, c: int, *, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True) -> None:
        super().__init__()
        if c < 1 or not eps > 0:
            raise ValueError(f"c is at least 1, and eps above 0: got {c=}, {eps=}")
        if momentum is not None and not 0 <= momentum <= 1:
            raise ValueError(f"momentum is from 0 to 1: got {momentum}")
        self.weight = nn.Parameter(torch.ones(c)) if affine else None
        self.bias = nn.Parameter(torch.zeros(c)) if affine else None
        self.eps, self.momentum = eps, momentum
        self.running_mean: Tensor
        self.running_var: Tensor
        self.num_batches_tracked: Tensor
        self.register_buffer("running_mean", torch.zeros(c))
        self.register_buffer("running_var", torch.ones(c))
        self.register_buffer("num_batches_tracked", torch.tensor(0))

    def forward(self, x: Float[Tensor, "b c *space"]) -> Float[Tensor, "b c *space"]:
        """Normalises by the batch in training, by the running averages in evaluation."""
        if x.dim() < 2 or x.shape[1] != self.running_mean.numel():
            raise ValueError(f"axis 1 is to have size {self.running_mean.numel()}: got shape {tuple(x.shape)}")
        share = self.momentum or 0.0
        if self.training:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                share = 1 / int(self.num_batches_tracked)
        return F.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, self.training, share, self.eps
        )

    def extra_repr(self) -> str:
        affine = self.weight is not None
        return f"{self.running_mean.numel()}, eps={self.eps}, momentum={self.momentum}, {affine=}"


def _batch_norm_claims() -> Iterator[Claim]:
    """The laws that BatchNorm obeys; `invariances` claims more."""
    for affine, inputs in ((True, shape("b:2..4 3 n:1..3")), (False, shape("b:2..3 3 2 h:1..3"))):
        norm = BatchNorm(3) if affine else BatchNorm(3, affine=False)
        norm.running_mean.copy_(torch.tensor([1.0, -2.0, 0.5]))
        norm.running_var.copy_(torch.tensor([2.0, 0.5, 4.0]))

        def equation(x: Tensor, norm: BatchNorm = norm) -> Tensor:
            per_channel = (1, -1, *[1] * (x.dim() - 2))
            mean, variance = (r.reshape(per_channel) for r in (norm.running_mean, norm.running_var))
            by_batch = normalize(x, axes_of("batch", x.dim()), eps=1e-5)
            y = by_batch if norm.training else (x - mean) / (variance + 1e-5).sqrt()
            affine = [p.reshape(per_channel) for p in norm.parameters()]
            return affine[0] * y + affine[1] if affine else y

        yield Claim(agreement(other=equation), norm, inputs, name=f"BatchNorm({affine=})")
    yield Claim(batch_independence(), BatchNorm(3).eval(), shape("b 3 n"), name="BatchNorm.eval()")
    yield Claim(agreement(other=lambda x: x), _undone, shape("b:2..4 3 n"), name="γ = deviation, β = mean")
    for momentum in (0.3, None):

        def tracked(x: Tensor, momentum: float | None = momentum) -> Tensor:
            norm = BatchNorm(3, momentum=momentum).to(x)
            for batch in (x, 2 * x, x + 1):
                norm(batch)
            return torch.stack([norm.running_mean, norm.running_var])

        def averaged(x: Tensor, momentum: float | None = momentum) -> Tensor:
            mean, variance = x.mean((0, 2)), x.var((0, 2))
            seen = torch.stack([torch.stack([mean, variance]), torch.stack([2 * mean, 4 * variance])])
            last = torch.stack([mean + 1, variance])
            if momentum is None:
                return (seen.sum(0) + last) / 3
            start = torch.stack([torch.zeros_like(mean), torch.ones_like(mean)])
            kept = 1 - momentum
            return kept**3 * start + momentum * (kept**2 * seen[0] + kept * seen[1] + last)

        yield Claim(agreement(other=averaged), tracked, shape("b:2..4 3 n"), name=f"running averages, {momentum=}")
    yield Claim(gradient(), BatchNorm(2, eps=0.1), shape("b:2..3 2 2"))


def _undone(x: Tensor) -> Tensor:
    """A batch norm whose scale and shift are the deviation and the mean of its batch."""
    norm = BatchNorm(x.shape[1]).to(x)
    deviation = (x.var((0, 2), correction=0) + norm.eps).sqrt()
    return torch.func.functional_call(norm, {"weight": deviation, "bias": x.mean((0, 2))}, x)


class AdaNorm(nn.Module):
    r"""Normalises each vector and scales every entry by how large it came out, in place of a learned gain and bias.

    $$z = C (1 - k y) \odot y \qquad y = \frac{x - \operatorname{mean}(x)}{\sqrt{\operatorname{var}(x) + \epsilon}}$$

    Up to its two constants this gain is the only one that is differentiable, has the mean $C$ whatever comes in, and
    keeps the mean of $z$ bounded: at $-C k$. In the backward pass the gain counts as a constant, so that the gradient
    is centred and scaled as that of a layer norm; it is not the derivative of the output.

    Reference:
        Xu et al., *Understanding and Improving Layer Normalization*, 2019.

    Args:
        scale: $C$.
        k: $k$, how much less the larger entries are scaled.
        eps: $\epsilon$.

    Examples:
        >>> AdaNorm(eps=0.0)(torch.tensor([1.0, 3.0]))
        tensor([-1.1000,  0.9000])
    """

    def __init__(self, *, scale: float = 1.0, k: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__()
        check_eps(eps)
        self.scale, self.k, self.eps = scale, k, eps

    def forward(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        """Normalises the last axis."""
        if x.dim() == 0:
            raise ValueError("an input with a last axis was wanted: got shape ()")
        y = F.layer_norm(x, x.shape[-1:], eps=self.eps)
        return self.scale * (1 - self.k * y.detach()) * y

    def extra_repr(self) -> str:
        return f"scale={self.scale}, k={self.k}, eps={self.eps}"


def _ada_norm_claims() -> Iterator[Claim]:
    """The laws that AdaNorm obeys."""
    c, k, eps = 2.0, 0.3, 0.1
    norm, exact = AdaNorm(scale=c, k=k, eps=eps), AdaNorm(eps=0.0)
    inputs = shape("b 4")

    def equation(x: Tensor) -> Tensor:
        y = normalize(x, (-1,), eps=1e-5)
        return y - y.square() / 10

    def mean(x: Tensor) -> Tensor:
        return norm(x).mean(-1)

    def bound(x: Tensor) -> Tensor:
        variance = x.var(-1, correction=0)
        return -c * k * variance / (variance + eps)

    def through_a_constant_gain(x: Tensor) -> Tensor:
        gain = c * (1 - k * normalize(x, (-1,), eps=eps))
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            return torch.autograd.grad(normalize(leaf, (-1,), eps=eps), leaf, gain)[0]

    yield Claim(agreement(other=equation), AdaNorm(), inputs)
    yield Claim(agreement(other=bound), mean, inputs, name="mean of AdaNorm")
    yield Claim(derivative(formula=through_a_constant_gain), norm, inputs)
    yield Claim(batch_independence(), norm, inputs)
    yield Claim(scale_invariance().excluding(ties), exact, inputs, name="AdaNorm(eps=0)")
    yield Claim(shift_invariance().excluding(ties), exact, inputs, name="AdaNorm(eps=0)")


class WeightNorm(nn.Module):
    r"""Makes the vectors of a weight from their lengths and directions.

    $$w = g \, \frac{v}{\lVert v \rVert}$$

    The scale of $v$ makes no difference, and $v = 0$ gives no number. It is a parametrisation, to be put on any weight:
    `parametrize.register_parametrization(layer, "weight", WeightNorm())`, from `torch.nn.utils`. The parameters are
    then `original0`, which is $g$, and `original1`, which is $v$, as with PyTorch's own `weight_norm`.

    Reference:
        Salimans and Kingma, *Weight Normalization: A Simple Reparameterization to Accelerate Training of Deep Neural
        Networks*, 2016.

    Args:
        axis: The axis that counts the vectors; each runs over all other axes.

    Examples:
        >>> WeightNorm()(torch.tensor([[10.0]]), torch.tensor([[3.0, 4.0]]))
        tensor([[6., 8.]])
    """

    def __init__(self, *, axis: int = 0) -> None:
        super().__init__()
        self.axis = axis

    def forward(self, g: Float[Tensor, "*ones"], v: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Gives each direction its length."""
        n = v.shape[self.axis]
        if g.dim() != v.dim() or not n == g.shape[self.axis] == g.numel():
            raise ValueError(f"one length for each of {n} vectors was wanted: got shape {tuple(g.shape)}")
        return torch._weight_norm(v, g, self.axis % v.dim())

    def right_inverse(self, w: Float[Tensor, "*shape"]) -> tuple[Float[Tensor, "*ones"], Float[Tensor, "*shape"]]:
        """Returns lengths and directions that make the weight: its own, not scaled."""
        others = tuple(axis for axis in range(w.dim()) if axis != self.axis % w.dim())
        return torch.linalg.vector_norm(w, dim=others, keepdim=True), w

    def extra_repr(self) -> str:
        return f"axis={self.axis}"


def _weight_norm_claims() -> Iterator[Claim]:
    """The laws that WeightNorm obeys; `invariances` claims more."""

    def away_from_zero(x: Tensor) -> Tensor:
        return x + torch.where(x < 0, -1.0, 1.0)

    directions = transformed(away_from_zero, "2 3 4")
    for axis, lengths in ((0, "2 1 1"), (1, "1 3 1"), (-1, "1 1 4")):
        norm = WeightNorm(axis=axis)

        def equation(g: Tensor, v: Tensor, axis: int = axis) -> Tensor:
            first = v.movedim(axis, 0)
            length = first.square().sum((1, 2), keepdim=True).sqrt()
            return g * (first / length).movedim(0, axis)

        yield Claim(agreement(other=equation), norm, (shape(lengths), directions), name=f"WeightNorm({axis=})")

        def there_and_back(w: Tensor, norm: WeightNorm = norm) -> Tensor:
            return norm(*norm.right_inverse(w))

        yield Claim(agreement(other=lambda w: w), there_and_back, directions, name=f"its inverse, {axis=}")
    norm = WeightNorm()
    both = (shape("2 1"), transformed(away_from_zero, "2 3"))
    yield Claim(scale_invariance(axis=1, input=1), norm, both)
    yield Claim(linearity(input=0), norm, both)
    yield Claim(gradient(), norm, both)


class SpectralNorm(nn.Module):
    r"""Divides the weight of a layer by its largest singular value.

    $$\bar W = c \, \frac{W}{\sigma_1(W)}, \qquad \sigma_1(W) = \frac{u^\top W v}{\|u\| \, \|v\|}$$

    The layer then stretches distances by at most $c$: a Lipschitz constant. The singular vectors $u$ and $v$ are found
    exactly at the beginning, and follow the weight by a step of the power method at each pass in training; their error
    enters $\sigma_1$ only squared. A convolution's weight is taken as a matrix with a row for each channel that comes
    out, as the reference does: that bounds what one place of its output does, not the whole map.

    Reference:
        Miyato, Kataoka, Koyama and Yoshida, *Spectral Normalization for Generative Adversarial Networks*, 2018.

    Args:
        layer: Any module with a parameter `weight`: a dense layer, a convolution.
        constant: $c$.
        steps: How many steps of the power method a pass in training takes.

    Examples:
        >>> block = SpectralNorm(nn.Linear(3, 2))
        >>> round(torch.linalg.matrix_norm(block.weight, 2).item(), 4)
        1.0
    """

    u: Tensor
    v: Tensor

    def __init__(self, layer: nn.Module, *, constant: float = 1.0, steps: int = 1) -> None:
        super().__init__()
        if not isinstance(getattr(layer, "weight", None), nn.Parameter) or layer.get_parameter("weight").dim() < 2:
            raise TypeError(f"a layer with a matrix `weight` was wanted: got {type(layer).__name__}")
        if not constant > 0 or steps < 1:
            raise ValueError(f"constant is above 0 and steps at least 1: got {constant} and {steps}")
        self.layer, self.constant, self.steps = layer, constant, steps
        u, _, v = torch.linalg.svd(self.matrix.detach(), full_matrices=False)
        self.register_buffer("u", u[:, 0].clone())
        self.register_buffer("v", v[0].clone())

    @property
    def matrix(self) -> Tensor:
        """$W$, with a row for each output."""
        return self.layer.get_parameter("weight").flatten(1)

    @property
    def weight(self) -> Tensor:
        r"""$\bar W$, as the layer has it."""
        largest = torch.einsum("i,ij,j->", self.u, self.matrix, self.v) / (self.u.norm() * self.v.norm())
        return self.layer.get_parameter("weight") * (self.constant / largest)

    @torch.no_grad()
    def follow(self) -> None:
        """Takes steps of the power method; a matrix of zeros leaves the vectors as they are."""
        u, v = self.u, self.v
        for _ in range(self.steps):
            ahead = self.matrix.T @ u
            v = ahead / ahead.norm() if ahead.norm() > 0 else v
            back = self.matrix @ v
            u = back / back.norm() if back.norm() > 0 else u
        self.u, self.v = u, v

    def forward(self, x: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
        """Applies the layer with the normalised weight."""
        if self.training:
            self.follow()
        return functional_call(self.layer, {"weight": self.weight}, x)


def _spectral_norm_claims() -> Iterator[Claim]:
    """The laws that spectral normalisation obeys."""
    block = SpectralNorm(nn.Linear(4, 3)).eval()
    wide = SpectralNorm(nn.Conv1d(2, 3, 2), constant=0.5).eval()
    yield Claim(lipschitz(constant=1.0), block, shape("b 4"), name="SpectralNorm(Linear)")

    def equation(x: Tensor) -> Tensor:
        weight, bias = block.layer.parameters()
        return x @ (weight / torch.linalg.svdvals(weight)[0]).T + bias

    yield Claim(agreement(other=equation), block, shape("b 4"), name="SpectralNorm(Linear)")

    def largest(x: Tensor) -> Tensor:
        moved = SpectralNorm(nn.Linear(3, 3), steps=60).to(x)
        with torch.no_grad():
            moved.layer.get_parameter("weight").copy_(x.tanh() + torch.diag(x.new_tensor([9.0, 0.0, 0.0])))
        moved.train()(x)
        return torch.linalg.matrix_norm(moved.weight, 2)

    one = replace(agreement(other=lambda x: x.new_ones(())), cases=20)
    yield Claim(one, largest, shape("3 3"), name="SpectralNorm, after the weight has moved")

    def of_kernel(x: Tensor) -> Tensor:
        return torch.linalg.matrix_norm(wide.to(x).weight.flatten(1), 2)

    half = agreement(other=lambda x: x.new_tensor(0.5))
    yield Claim(half, of_kernel, shape("2"), name="SpectralNorm(Conv1d, constant=0.5)")


class WhiteningNorm(nn.Module):
    r"""Gives the channels, over the batch and all positions, the mean 0 and the identity as covariance.

    $$y = (\Sigma + \epsilon 1)^{-1/2} (x - \mu)$$

    Of all matrices that whiten, the symmetric one (ZCA) moves the data least: turning the channels turns the output.
    In training $\mu$ and $\Sigma$ are those of the batch; in evaluation the mean and the matrix are running averages.
    A batch with fewer entries than channels has no full covariance, and $\epsilon$ stands in for what is missing; an
    empty one leaves the averages as they are. It computes in single precision at least, under autocast too.

    Reference:
        Huang et al., *Decorrelated Batch Normalization*, 2018.

    Args:
        c: The channels.
        eps: $\epsilon$, above 0.
        momentum: The weight of a batch in the running averages.

    Examples:
        >>> x = torch.tensor([[2.0, 2.0], [-2.0, -2.0], [1.0, -1.0], [-1.0, 1.0]])
        >>> y = WhiteningNorm(2, eps=1e-9)(x)
        >>> torch.allclose(y.mT @ y / 4, torch.eye(2), atol=1e-5)
        True
    """

    def __init__(self, c: int, *, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        if c < 1 or not eps > 0 or not 0 <= momentum <= 1:
            raise ValueError(f"c at least 1, eps above 0, momentum from 0 to 1: got {c=}, {eps=}, {momentum=}")
        self.eps, self.momentum = eps, momentum
        self.running_mean: Tensor
        self.running_matrix: Tensor
        self.register_buffer("running_mean", torch.zeros(c))
        self.register_buffer("running_matrix", torch.eye(c))

    def forward(self, x: Float[Tensor, "b c *space"]) -> Float[Tensor, "b c *space"]:
        """Whitens by the batch in training, by the running averages in evaluation."""
        c = self.running_mean.numel()
        if x.dim() < 2 or x.shape[1] != c:
            raise ValueError(f"axis 1 is to have size {c}: got shape {tuple(x.shape)}")
        if not x.is_floating_point():
            raise TypeError(f"floating point numbers were wanted: got {x.dtype}")
        device, precise = x.device.type, torch.promote_types(x.dtype, torch.float32)
        casts = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
        with torch.autocast(device, enabled=False) if casts else nullcontext():
            rows = x.movedim(1, -1).to(precise)
            if self.training and x.numel():
                mean, matrix = self._of_batch(rows)
            else:
                mean, matrix = self.running_mean.to(precise), self.running_matrix.to(precise)
            return ((rows - mean) @ matrix).movedim(-1, 1).to(x.dtype)

    def _of_batch(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The mean and the matrix of a batch, which are added to the running averages."""
        mean = rows.flatten(0, -2).mean(0)
        flat = rows.flatten(0, -2) - mean
        matrix = inverse_root(flat.mT @ flat / len(flat) + self.eps * torch.eye(flat.shape[1]).to(flat))
        for running, found in ((self.running_mean, mean), (self.running_matrix, matrix)):
            running.lerp_(found.detach().to(running.dtype), self.momentum)
        return mean, matrix

    def extra_repr(self) -> str:
        return f"{self.running_mean.numel()}, eps={self.eps}, momentum={self.momentum}"


def _whitening_norm_claims() -> Iterator[Claim]:
    """The laws that whitening obeys."""

    def covariance(x: Tensor) -> Tensor:
        rows = _whitened(x).movedim(1, -1).reshape(-1, 2)
        return rows.mT @ rows / len(rows)

    def nearly_one(x: Tensor) -> Tensor:
        rows = x.movedim(1, -1).reshape(-1, 2)
        a = rows.T.cov(correction=0) + 0.1 * torch.eye(2).to(x)
        return torch.eye(2).to(x) - 0.1 * torch.linalg.inv(a)

    yield Claim(agreement(other=nearly_one), covariance, shape("b 2 n"), name="covariance 1")
    yield Claim(equivariance(sample=_rotation, act=_turned), _whitened, shape("b:2..5 3"), name="WhiteningNorm")
    yield Claim(shift_invariance(axis=0), _whitened, shape("b:2..5 3"), name="WhiteningNorm")
    single = agreement(other=lambda x: normalize(x, (0, 2), eps=0.1))
    yield Claim(single, _whitened, shape("b 1 n"), name="one channel: a batch norm")

    def running(x: Tensor) -> Tensor:
        layer = WhiteningNorm(2, eps=0.1, momentum=0.3).to(x)
        layer(x)
        return layer.eval()(x)

    def averaged(x: Tensor) -> Tensor:
        one = torch.eye(2).to(x)
        axes, variances, _ = torch.linalg.svd(x.mT.cov(correction=0) + 0.1 * one)
        return (x - 0.3 * x.mean(0)) @ (0.7 * one + 0.3 * axes * variances.rsqrt() @ axes.mT)

    yield Claim(agreement(other=averaged), running, shape("b:2..5 2"), name="WhiteningNorm, running averages")
    norm, usual = WhiteningNorm(3).eval(), nn.BatchNorm1d(3)
    defaults = agreement(other=lambda x: x.new_tensor([usual.eps, usual.momentum]))
    yield Claim(defaults, lambda x: x.new_tensor([norm.eps, norm.momentum]), shape("1"), name="as in a batch norm")
    yield Claim(batch_independence(), norm, shape("b 3"), name="WhiteningNorm.eval()")


def _whitened(x: Tensor) -> Tensor:
    """What a fresh layer in training gives."""
    return WhiteningNorm(x.shape[1], eps=0.1).to(x)(x)


def _rotation(draw: Draw) -> Tensor:
    return torch.linalg.qr(draw.normal(3, 3)).Q


def _turned(q: Tensor, x: Tensor) -> Tensor:
    return x @ q.mT


LAWS = {
    "weight matrix re-scaled": homogeneity(degree=0.0, input=1),
    "weight matrix re-centred": shift_invariance(axis=0, input=1),
    "weight vector re-scaled": scale_invariance(axis=1, input=1),
    "data set re-scaled": homogeneity(degree=0.0, input=0),
    "data set re-centred": shift_invariance(axis=0, input=0),
    "single case re-scaled": scale_invariance(axis=1, input=0),
}
"""The columns of the table."""

TABLE = {
    "batch norm": (True, False, True, True, True, False),
    "weight norm": (True, False, True, False, False, False),
    "layer norm": (True, True, False, True, False, True),
}
"""Its rows: whether the layer is invariant."""


def normalised(kind: str) -> Callable[[Tensor, Tensor], Tensor]:
    """Returns the layer of a row: a map of the data (b, c) and the weight (d, c), with no eps to speak of.

    Examples:
        >>> layer = normalised("layer norm")
        >>> layer(torch.eye(2), torch.tensor([[3.0, 0.0], [0.0, 2.0]]))
        tensor([[ 1., -1.],
                [-1.,  1.]])
    """

    def layer(x: Tensor, w: Tensor) -> Tensor:
        if kind == "weight norm":
            return x @ WeightNorm()(w.new_ones(len(w), 1), w).mT
        d = len(w)
        norm = BatchNorm(d, eps=1e-30, affine=False) if kind == "batch norm" else LayerNorm(d, eps=0.0, affine=False)
        return norm.to(x)(x @ w.mT)

    if kind not in TABLE:
        raise ValueError(f"a row of the table is one of {', '.join(TABLE)}: got {kind!r}")
    return layer


def _apart(x: Tensor) -> Tensor:
    """Rows that are never all the same, where eps = 0 gives no number."""
    rows, columns = x.shape
    return x.tanh() + 3 * torch.eye(rows, columns).to(x) + torch.arange(columns).to(x)


INPUTS = (transformed(_apart, "b:3..5 3"), transformed(_apart, "d:3..5 3"))
"""Data and weights for which every entry of the table has a value."""


def _invariances_claims() -> Iterator[Claim]:
    """Every yes of the table, and all that is seen of one shift and one scale."""
    for kind, row in TABLE.items():
        layer = normalised(kind)
        for (column, law), holds in zip(LAWS.items(), row, strict=True):
            if holds:
                yield Claim(law, layer, INPUTS, name=f"{kind}, {column}")

        def unseen(x: Tensor, w: Tensor, f: Callable[[Tensor, Tensor], Tensor] = layer) -> Tensor:
            shift, rows, cases = (
                x.new_tensor([1.0, -2.0, 4.0]),
                *(1 + torch.arange(len(a)).to(a)[:, None] for a in (w, x)),
            )
            weights = [(x, 3 * w), (x, w + shift), (x, rows * w)]
            changed = [*weights, (3 * x, w), (x + shift, w), (cases * x, w)]
            return x.new_tensor([torch.allclose(f(x, w), f(*pair), atol=1e-3) for pair in changed])

        told = agreement(other=lambda x, w, row=row: x.new_tensor(row))
        yield Claim(told, unseen, INPUTS, name=f"{kind}, the row of the table")


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _normalize_claims()
    yield from _layer_norm_claims()
    yield from _rms_norm_claims()
    yield from _group_norm_claims()
    yield from _instance_norm_claims()
    yield from _batch_norm_claims()
    yield from _ada_norm_claims()
    yield from _weight_norm_claims()
    yield from _spectral_norm_claims()
    yield from _whitening_norm_claims()
    yield from _invariances_claims()
