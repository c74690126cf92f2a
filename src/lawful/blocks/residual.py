"""The residual connection: what a block adds to its input."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.blocks.dense import Dense
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


def claims() -> Iterator[Claim]:
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
