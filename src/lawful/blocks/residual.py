"""The residual connection: what a block adds to its input."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.blocks.dense import Dense
from lawful.laws import Claim, agreement, derivative, shape

Block = Callable[[Tensor], Tensor]


class Residual(nn.Module):
    r"""Adds the output of a block to its input.

    $$y = x + f(x), \qquad \frac{\partial y}{\partial x} = 1 + \frac{\partial f}{\partial x}$$

    A block that gives 0 makes it the identity, and the gradient reaches $x$ whatever the block does. A block that
    changes its input in place, such as `nn.ReLU(inplace=True)`, changes the $x$ that is added to.

    Reference:
        He, Zhang, Ren and Sun, *Deep Residual Learning for Image Recognition*, 2015.

    Args:
        block: $f$, whose output has the shape of its input.

    Examples:
        >>> Residual(nn.Identity())(torch.tensor([1.0, 2.0]))
        tensor([2., 4.])
    """

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Adds what the block makes of x to x."""
        return x + _kept(self.block, x)


def _kept(block: Block, x: Tensor) -> Tensor:
    """What a block makes of x, in the shape of x."""
    y = block(x)
    if y.shape != x.shape:
        raise ValueError(f"the block is to keep the shape {tuple(x.shape)}: got {tuple(y.shape)}")
    return y


def pre_norm(block: nn.Module, norm: nn.Module) -> nn.Module:
    r"""Puts a norm before a block, inside the residual connection.

    $$y = x + f(\operatorname{norm}(x))$$

    The stream $x$ itself is never normalised, so that gradients pass as they are. The standard since GPT-2.

    Reference:
        Xiong et al., *On Layer Normalization in the Transformer Architecture*, 2020.

    Args:
        block: $f$.
        norm: The normalisation.

    Examples:
        >>> pre_norm(nn.Linear(4, 4), nn.LayerNorm(4))(torch.ones(2, 4)).shape
        torch.Size([2, 4])
    """
    return Residual(nn.Sequential(norm, block))


def post_norm(block: nn.Module, norm: nn.Module) -> nn.Module:
    r"""Puts a norm after the residual connection.

    $$y = \operatorname{norm}(x + f(x))$$

    The form of the first transformer.

    Reference:
        Vaswani et al., *Attention Is All You Need*, 2017.

    Args:
        block: $f$.
        norm: The normalisation.

    Examples:
        >>> post_norm(nn.Linear(4, 4), nn.LayerNorm(4))(torch.ones(2, 4)).shape
        torch.Size([2, 4])
    """
    return nn.Sequential(Residual(block), norm)


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
    stack = nn.Sequential(*map(Residual, bent))
    yield Claim(agreement(other=summed), stack, shape("b 4"), name="Residual blocks, contributions")
    yield Claim(agreement(other=product), over_paths, shape("b 4"), name="sum over paths")
