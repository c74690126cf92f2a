"""The residual connection: what a block adds to its input.

Residual gates: learned factors on what a block adds to the stream.
The mix: a learned combination of two streams.
Splitting: sublayers in turn as steps of a differential equation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.blocks.layer_pattern import expand_layer_pattern
from lawful.blocks.linear import Dense
from lawful.functions.tap import tap
from lawful.laws import Claim, agreement, derivative, shape

Block = Callable[[Tensor], Tensor]


class Residual(nn.Module):
    r"""Adds the output of a block to its input.

    $$y = x + f(x), \qquad \frac{\partial y}{\partial x} = 1 + \frac{\partial f}{\partial x}$$

    A block that gives 0 makes it the identity, and the gradient reaches $x$ whatever the block does. A block that
    changes its input in place, such as `nn.ReLU(inplace=True)`, changes the $x$ that is added to. With all that may
    stand around the block,

    $$y = n_3\bigl(x + h \, g(n_2(f(n_1(x))))\bigr)$$

    Reference:
        He, Zhang, Ren and Sun, *Deep Residual Learning for Image Recognition*, 2015.

    Args:
        block: $f$, whose output has the shape of its input.
        norm: $n_1$, on the way into the block.
        inner: $n_2$, on the way out of it.
        after: $n_3$, on the sum.
        gate: $g$, such as `LayerScale`, `Gate` or `Dropout`.
        step: $h$.

    Examples:
        >>> Residual(nn.Identity())(torch.tensor([1.0, 2.0]))
        tensor([2., 4.])
    """

    def __init__(
        self,
        block: nn.Module,
        *,
        norm: nn.Module | None = None,
        inner: nn.Module | None = None,
        after: nn.Module | None = None,
        gate: nn.Module | None = None,
        step: float = 1.0,
    ) -> None:
        super().__init__()
        self.norm, self.block, self.inner, self.gate, self.after = norm, block, inner, gate, after
        self.step = step

    def forward(self, x: Float[Tensor, "*shape"], f: Block | None = None) -> Float[Tensor, "*shape"]:
        """Adds what the block makes of x to x.

        Args:
            x: $x$.
            f: What is called in the place of the block, where that takes more than $x$: for instance
                `partial(layer.block, mask=mask)`.
        """
        y = _kept(self.block if f is None else f, x if self.norm is None else self.norm(x))
        y = y if self.inner is None else self.inner(y)
        y = y if self.gate is None else self.gate(y)
        y = x + tap("added", y if self.step == 1 else self.step * y)
        return y if self.after is None else self.after(y)

    def extra_repr(self) -> str:
        return f"step={self.step}" if self.step != 1 else ""


def _kept(block: Block, x: Tensor) -> Tensor:
    """What a block makes of x, in the shape of x."""
    y = block(x)
    if y.shape != x.shape:
        raise ValueError(f"the block is to keep the shape {tuple(x.shape)}: got {tuple(y.shape)}")
    return y


def pre_norm(block: nn.Module, norm: nn.Module, *, gate: nn.Module | None = None, step: float = 1.0) -> Residual:
    r"""Puts a norm before a block, inside the residual connection.

    $$y = x + h \, g(f(\operatorname{norm}(x)))$$

    The stream $x$ itself is never normalised, so that gradients pass as they are. The standard since GPT-2.

    Reference:
        Xiong et al., *On Layer Normalization in the Transformer Architecture*, 2020.

    Args:
        block: $f$.
        norm: The normalisation.
        gate: $g$, on what is added; nothing unless given.
        step: $h$.

    Examples:
        >>> pre_norm(nn.Linear(4, 4), nn.LayerNorm(4))(torch.ones(2, 4)).shape
        torch.Size([2, 4])
    """
    return Residual(block, norm=norm, gate=gate, step=step)


def post_norm(block: nn.Module, norm: nn.Module, *, gate: nn.Module | None = None, step: float = 1.0) -> Residual:
    r"""Puts a norm after the residual connection.

    $$y = \operatorname{norm}(x + h \, g(f(x)))$$

    The form of the first transformer.

    Reference:
        Vaswani et al., *Attention Is All You Need*, 2017.

    Args:
        block: $f$.
        norm: The normalisation.
        gate: $g$, on what is added; nothing unless given.
        step: $h$.

    Examples:
        >>> post_norm(nn.Linear(4, 4), nn.LayerNorm(4))(torch.ones(2, 4)).shape
        torch.Size([2, 4])
    """
    return Residual(block, after=norm, gate=gate, step=step)


def sandwich_norm(block: nn.Module, norm: nn.Module, *, gate: nn.Module | None = None, step: float = 1.0) -> Residual:
    r"""Puts a norm before a block and another after it, both inside the residual connection.

    $$y = x + h \, g\bigl(\operatorname{norm}'(f(\operatorname{norm}(x)))\bigr)$$

    What is added has a size that does not depend on the weights of the block. The second norm is a copy of the first,
    with parameters of its own.

    Reference:
        Ding et al., *CogView: Mastering Text-to-Image Generation via Transformers*, 2021.

    Args:
        block: $f$.
        norm: The normalisation.
        gate: $g$, on what is added; nothing unless given.
        step: $h$.

    Examples:
        >>> sandwich_norm(nn.Linear(4, 4), nn.LayerNorm(4))(torch.ones(2, 4)).shape
        torch.Size([2, 4])
    """
    return Residual(block, norm=norm, inner=deepcopy(norm), gate=gate, step=step)


def contributions(blocks: Sequence[Block], x: Float[Tensor, "*shape"]) -> Float[Tensor, "n ..."]:
    r"""Returns what each block of a residual stream adds to it, after the input itself.

    $$x + f_1(x) + f_2(x + f_1(x)) + \dots$$

    The sum of these is the output of the residual blocks in sequence.

    Args:
        blocks: $f_1, f_2, \dots$
        x: The input.

    Examples:
        >>> contributions([torch.square, torch.neg], torch.tensor([2.0]))
        tensor([[ 2.],
                [ 4.],
                [-6.]])
    """
    terms, stream = [x], x
    for block in blocks:
        terms.append(_kept(block, stream))
        stream = stream + terms[-1]
    return torch.stack(terms)


def paths(blocks: Sequence[Block], x: Float[Tensor, "*shape"]) -> Float[Tensor, "n ..."]:
    r"""Returns the end of each path through residual blocks: every block is passed through or passed by.

    $$(1 + f_2)(1 + f_1) = 1 + f_1 + f_2 + f_2 f_1$$

    There are $2^n$ paths through $n$ blocks, the one that passes by all of them first. For linear blocks their sum
    is the output of the residual blocks in sequence.

    Reference:
        Veit, Wilber and Belongie, *Residual Networks Behave Like Ensembles of Relatively Shallow Networks*, 2016.

    Args:
        blocks: $f_1, f_2, \dots$
        x: The input.

    Examples:
        >>> paths([lambda x: 2 * x, lambda x: 10 * x], torch.tensor([1.0])).flatten()
        tensor([ 1.,  2., 10., 20.])
    """
    ends = [x]
    for block in blocks:
        ends += [_kept(block, end) for end in ends]
    return torch.stack(ends)


def _residual_claims() -> Iterator[Claim]:
    """The laws that residual connections obey."""
    block, zero, norm = Dense(4, 4, activation=torch.tanh), Dense(4, 4, bias=False), nn.LayerNorm(4)
    nn.init.zeros_(zero.weight.requires_grad_(False))
    layers = [Dense(4, 4, bias=False) for _ in range(3)]
    bent = [Dense(4, 4, activation=torch.tanh) for _ in range(3)]

    def slope(x: Tensor) -> Tensor:
        return 1 + (1 - block(x) ** 2) @ block.weight

    def before(x: Tensor) -> Tensor:
        return x + block(norm(x))

    def after(x: Tensor) -> Tensor:
        return norm(x + block(x))

    def summed(x: Tensor) -> Tensor:
        return contributions(bent, x).sum(0)

    def over_paths(x: Tensor) -> Tensor:
        return paths(layers, x).sum(0)

    def product(x: Tensor) -> Tensor:
        for layer in layers:
            x = x @ (torch.eye(4).to(x) + layer.weight.T)
        return x

    yield Claim(agreement(other=lambda x: 1 * x), Residual(zero), shape("b 4"), name="Residual of a block that is 0")
    yield Claim(derivative(formula=slope), Residual(block), shape("b 4"))
    yield Claim(agreement(other=before), pre_norm(block, norm), shape("b 4"), name="pre_norm")
    yield Claim(agreement(other=after), post_norm(block, norm), shape("b 4"), name="post_norm")
    gate = Dense(4, 4)
    between = sandwich_norm(block, norm, gate=gate, step=0.5)

    def around(x: Tensor) -> Tensor:
        return x + gate(between.get_submodule("inner")(block(norm(x)))) / 2

    yield Claim(agreement(other=around), between, shape("b 4"), name="sandwich_norm, half a step")
    stack = nn.Sequential(*map(Residual, bent))
    yield Claim(agreement(other=summed), stack, shape("b 4"), name="Residual blocks, contributions")
    yield Claim(agreement(other=product), over_paths, shape("b 4"), name="sum over paths")


class LayerScale(nn.Module):
    r"""Multiplies each entry of a vector by a learned factor.

    $$y = \lambda \odot x$$

    On what a block adds to the stream, with a small start, it makes a deep network nearly the identity at first. The
    parameter `weight` is $\lambda$.

    Reference:
        Touvron, Cord, Sablayrolles, Synnaeve and Jégou, *Going deeper with Image Transformers*, 2021.

    Args:
        d: The width of $x$.
        start: The value of all factors before training.

    Examples:
        >>> LayerScale(3, start=0.5)(torch.tensor([2.0, 4.0, 6.0])).detach()
        tensor([1., 2., 3.])
    """

    def __init__(self, d: int, *, start: float = 1e-4) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((d,), start))

    def forward(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        """Scales the last axis."""
        return self.weight * x


class Gate(nn.Module):
    r"""Multiplies a tensor by one learned number, 0 at the start.

    $$y = \alpha x$$

    On what a block adds to the stream it makes any network the identity at first, with gradients that reach
    everything through $\alpha$ alone. The parameter `weight` is $\alpha$.

    Reference:
        Bachlechner, Majumder, Mao, Cottrell and McAuley, *ReZero is All You Need*, 2020.

    Args:
        start: $\alpha$ before training.

    Examples:
        >>> Gate()(torch.tensor([2.0, 4.0])).detach()
        tensor([0., 0.])
    """

    def __init__(self, *, start: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(start))

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Scales everything."""
        return self.weight * x


def _gates_claims() -> Iterator[Claim]:
    """The laws that residual gates obey."""
    block, scale, gate = Dense(4, 4, activation=torch.tanh), LayerScale(4, start=0.5), Gate(start=0.5)

    def scaled(x: Tensor) -> Tensor:
        return x + block(x) @ torch.diag(scale.weight)

    def gated(x: Tensor) -> Tensor:
        return x + gate.weight * block(x)

    for one, equation in ((scale, scaled), (gate, gated)):
        yield Claim(agreement(other=equation), Residual(block, gate=one), shape("b 4"), name=type(one).__name__)
    small = agreement(other=lambda x: 1e-4 * x)
    yield Claim(small, lambda x: LayerScale(4)(x), shape("b 4"), name="LayerScale at the start")
    closed = agreement(other=lambda x: 1 * x)
    yield Claim(closed, lambda x: Residual(block, gate=Gate())(x), shape("b 4"), name="Gate at the start")


class WeightedSum(nn.Module):
    r"""Adds two tensors with learned weights.

    $$z = a \, x + b \, y$$

    With $y$ the embedding of the tokens it is a shortcut into a layer deep down; with $y$ the values of the first
    attention layer, the value residual. The parameter `weight` is $(a, b)$. At the start $y$ has no part in it.

    Reference:
        Zhou et al., *Value Residual Learning*, 2024.

    Args:
        start: $(a, b)$ before training.

    Examples:
        >>> WeightedSum(start=(0.5, 2.0))(torch.tensor([2.0]), torch.tensor([1.0])).detach()
        tensor([3.])
    """

    def __init__(self, *, start: tuple[float, float] = (1.0, 0.0)) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(start))

    def forward(self, x: Float[Tensor, "*shape"], y: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Mixes y into x."""
        a, b = self.weight.unbind()
        return torch.addcmul(a * x, b, y)


def _mix_claims() -> Iterator[Claim]:
    """The laws that a mix obeys."""
    mix = WeightedSum(start=(0.5, 2.0))

    def equation(x: Tensor, y: Tensor) -> Tensor:
        return mix.weight[0] * x + mix.weight[1] * y

    yield Claim(agreement(other=equation), mix, (shape("b t 3"), shape("b t 3")))
    new = agreement(other=lambda x, y: 1 * x)
    yield Claim(new, lambda x, y: WeightedSum()(x, y), (shape("b 3"), shape("b 3")), name="Mix at the start")


Flow = Callable[[Tensor, float], Tensor]


def split(
    pattern: str, flows: Mapping[str, Flow], x: Float[Tensor, "*shape"], *, step: float = 1.0
) -> Float[Tensor, "*shape"]:
    r"""Follows the parts of a differential equation in turn, in the order of a transformer's sublayers.

    $$\dot x = s(x) + f(x), \qquad x \mapsto \varphi_f^{h / 2} \varphi_s^{h} \varphi_f^{h / 2}(x)$$

    The stream is a cloud of particles, one for each token: attention moves them by what they do to each other,
    feed-forward each on its own. `"sf"` is the splitting of Lie and Trotter, whose error over one step is of the order
    $h^2$; `"hsh"`, a Macaron layer, that of Strang, whose error is of the order $h^3$. That is so where the parts are
    followed exactly. A residual sublayer takes a step of Euler, $\varphi^h(x) = x + h f(x)$, which leaves an
    error of the order $h^2$ of its own: of a Macaron layer only the part that is due to the order is smaller.

    Reference:
        Lu et al., *Understanding and Improving Transformer From a Multi-Particle Dynamic System Point of View*, 2019.

    Args:
        pattern: The order, as in `expand_layer_pattern`; h is half a step of f.
        flows: For each of the letters s and f, $\varphi(x, h)$.
        x: $x$.
        step: $h$.

    Examples:
        >>> euler = {"s": lambda x, h: x + h, "f": lambda x, h: x + h * x}
        >>> split("sf", euler, torch.tensor(1.0)), split("hsh", euler, torch.tensor(1.0))
        (tensor(4.), tensor(3.7500))
    """
    for letter in expand_layer_pattern(pattern):
        x = flows["f"](x, step / 2) if letter == "h" else flows[letter](x, step)
    return x


def _splitting_claims() -> Iterator[Claim]:
    """The laws that splittings obey."""
    step = 0.5
    s, f = torch.zeros(2, 3, 3, dtype=torch.float64)
    s[0, 1], f[1, 2] = 2.0, 3.0  # their commutator commutes with both, so that there are no terms of higher order

    def exact(a: Tensor) -> Flow:
        return lambda x, h: x @ torch.matrix_exp(h * a).to(x).mT

    def euler(a: Tensor) -> Flow:
        return lambda x, h: x + h * x @ a.to(x).mT

    def moved(a: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda x: exact(a)(x, 1.0)

    def sublayers(x: Tensor) -> Tensor:
        one = torch.eye(3).to(s)
        return x @ ((one + step / 2 * f) @ (one + step * s) @ (one + step / 2 * f)).to(x).mT

    whole, commutator = step * (s + f), step**2 * (f @ s - s @ f)
    flows, steps = {"s": exact(s), "f": exact(f)}, {"s": euler(s), "f": euler(f)}
    for pattern, flow, other, name in (
        ("hsh", flows, moved(whole), "Strang's splitting, exact"),
        ("sf", flows, moved(whole + commutator / 2), "Lie's splitting, off by half a commutator"),
        ("fs", flows, moved(whole - commutator / 2), "Lie's splitting, the other way round"),
        ("hsh", steps, sublayers, "a Macaron layer of linear sublayers"),
    ):

        def followed(x: Tensor, pattern: str = pattern, flow: Mapping[str, Flow] = flow) -> Tensor:
            return split(pattern, flow, x, step=step)

        yield Claim(agreement(other=other), followed, shape("b 3"), name=name)

    def whole_step(x: Tensor) -> Tensor:
        return split("s", flows, x)

    yield Claim(replace(agreement(other=moved(s)), cases=20), whole_step, shape("b 3"), name="a step of one")


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _residual_claims()
    yield from _gates_claims()
    yield from _mix_claims()
    yield from _splitting_claims()
