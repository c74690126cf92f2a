"""Residual connections: norm placement, gates, expansion into paths, and the order of sublayers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.functions.tap import tap
from lawful.laws import Claim, agreement, derivative, shape

_Block = Callable[[Tensor], Tensor]
_Flow = Callable[[Tensor, float], Tensor]

_LETTERS = "sfhcm"
MACARON = "(hsh)*"
"""Attention between two half steps of a feed-forward block."""

_REPEATED_TWICE = re.compile(r"\*\s*[*\d]|\d\s*\*")
_GROUP = re.compile(rf"\(([{_LETTERS}]+)\)(\*|\d+|)|([{_LETTERS}])(\*|\d+)")


class Residual(nn.Module):
    r"""Adds the output of a block to its input.

    $$y = n_3\bigl(x + s \, g(n_2(f(n_1(x))))\bigr)$$

    Without norms and gate, $y = x + f(x)$ and $\partial y / \partial x = 1 + \partial f / \partial x$: a block that
    returns 0 makes it the identity. A block that modifies its input in place, such as `nn.ReLU(inplace=True)`, also
    modifies the $x$ that is added.

    Reference:
        He, Zhang, Ren and Sun, *Deep Residual Learning for Image Recognition*, 2015.

    Args:
        block: $f$, whose output has the shape of its input.
        norm: $n_1$, the norm of the block's input (pre-norm).
        branch_norm: $n_2$, the norm of the block's output.
        output_norm: $n_3$, the norm of the sum (post-norm).
        gate: $g$, such as `LayerScale`, `ReZero` or `nn.Dropout`.
        scale: $s$.
        name: Name of the submodule $f$, such as "attention". `layer.block` is the same module.

    Examples:
        >>> Residual(nn.Identity())(torch.tensor([1.0, 2.0]))
        tensor([2., 4.])
        >>> [*Residual(nn.Linear(2, 2), name="feed_forward").state_dict()]
        ['feed_forward.weight', 'feed_forward.bias']
    """

    def __init__(
        self,
        block: nn.Module,
        *,
        norm: nn.Module | None = None,
        branch_norm: nn.Module | None = None,
        output_norm: nn.Module | None = None,
        gate: nn.Module | None = None,
        scale: float = 1.0,
        name: str = "block",
    ) -> None:
        super().__init__()
        self.block_name = name
        self.norm = norm
        setattr(self, name, block)
        self.branch_norm, self.gate, self.output_norm = branch_norm, gate, output_norm
        self.scale = scale

    @property
    def block(self) -> Any:
        """The block $f$; also available by its own name, such as `layer.attention`."""
        return self._modules[self.block_name]

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(self.block_name if name == "block" else name, value)

    def forward(self, x: Float[Tensor, "*shape"], function: _Block | None = None) -> Float[Tensor, "*shape"]:
        """Applies the residual block.

        Args:
            x: Input.
            function: Called instead of the block, when that takes more than $x$: `partial(layer.block, mask=mask)`.
        """
        y = _same_shape(function or self.block, x if self.norm is None else self.norm(x))
        y = y if self.branch_norm is None else self.branch_norm(y)
        y = y if self.gate is None else self.gate(y)
        y = x + tap("added", y if self.scale == 1 else self.scale * y)
        return y if self.output_norm is None else self.output_norm(y)

    def extra_repr(self) -> str:
        return f"scale={self.scale}" if self.scale != 1 else ""


def _same_shape(block: _Block, x: Tensor) -> Tensor:
    y = block(x)
    if y.shape != x.shape:
        raise ValueError(f"expected a block that keeps the shape {tuple(x.shape)}, got {tuple(y.shape)}")
    return y


def pre_norm(
    block: nn.Module, norm: nn.Module, *, gate: nn.Module | None = None, scale: float = 1.0, name: str = "block"
) -> Residual:
    r"""Builds a pre-norm residual block, the standard since GPT-2.

    $$y = x + s \, g(f(\operatorname{norm}(x)))$$

    The residual stream $x$ itself is never normalized, so that gradients pass unchanged.

    Reference:
        Xiong et al., *On Layer Normalization in the Transformer Architecture*, 2020.

    Args:
        block: $f$.
        norm: Norm of the block's input.
        gate: $g$, applied to the block's output.
        scale: $s$.
        name: Name of the submodule $f$.

    Examples:
        >>> pre_norm(nn.Linear(4, 4), nn.LayerNorm(4))(torch.ones(2, 4)).shape
        torch.Size([2, 4])
    """
    return Residual(block, norm=norm, gate=gate, scale=scale, name=name)


def post_norm(
    block: nn.Module, norm: nn.Module, *, gate: nn.Module | None = None, scale: float = 1.0, name: str = "block"
) -> Residual:
    r"""Builds a post-norm residual block, as in the first transformer.

    $$y = \operatorname{norm}(x + s \, g(f(x)))$$

    Reference:
        Vaswani et al., *Attention Is All You Need*, 2017.

    Args:
        block: $f$.
        norm: Norm of the sum.
        gate: $g$, applied to the block's output.
        scale: $s$.
        name: Name of the submodule $f$.

    Examples:
        >>> post_norm(nn.Linear(4, 4), nn.LayerNorm(4))(torch.ones(2, 4)).shape
        torch.Size([2, 4])
    """
    return Residual(block, output_norm=norm, gate=gate, scale=scale, name=name)


def sandwich_norm(
    block: nn.Module, norm: nn.Module, *, gate: nn.Module | None = None, scale: float = 1.0, name: str = "block"
) -> Residual:
    r"""Builds a residual block with a norm before and a norm after the block.

    $$y = x + s \, g\bigl(\operatorname{norm}'(f(\operatorname{norm}(x)))\bigr)$$

    The size of the update does not depend on the scale of the block's output. The second norm is a copy of the first,
    with its own parameters.

    Reference:
        Ding et al., *CogView: Mastering Text-to-Image Generation via Transformers*, 2021.

    Args:
        block: $f$.
        norm: Norm of the block's input; a copy normalizes its output.
        gate: $g$, applied to the block's output.
        scale: $s$.
        name: Name of the submodule $f$.

    Examples:
        >>> sandwich_norm(nn.Linear(4, 4), nn.LayerNorm(4))(torch.ones(2, 4)).shape
        torch.Size([2, 4])
    """
    return Residual(block, norm=norm, branch_norm=deepcopy(norm), gate=gate, scale=scale, name=name)


class LayerScale(nn.Module):
    r"""Multiplies each channel by a learned factor.

    $$y = \lambda \odot x$$

    As the gate of a residual block, with a small initial value, a deep network starts close to the identity.
    The parameter `weight` is $\lambda$.

    Reference:
        Touvron, Cord, Sablayrolles, Synnaeve and Jégou, *Going deeper with Image Transformers*, 2021.

    Args:
        dim: Number of channels.
        init_value: Initial value of the factors.

    Examples:
        >>> LayerScale(3, init_value=0.5)(torch.tensor([2.0, 4.0, 6.0])).detach()
        tensor([1., 2., 3.])
    """

    def __init__(self, dim: int, *, init_value: float = 1e-4) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((dim,), init_value))

    def forward(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        """Scales the last axis."""
        return self.weight * x


class ReZero(nn.Module):
    r"""Multiplies a tensor by one learned scalar, initialized to 0.

    $$y = \alpha x$$

    As the gate of residual blocks, any network starts as the identity. The parameter `weight` is $\alpha$.

    Reference:
        Bachlechner, Majumder, Mao, Cottrell and McAuley, *ReZero is All You Need*, 2020.

    Args:
        init_value: Initial value of $\alpha$.

    Examples:
        >>> ReZero()(torch.tensor([2.0, 4.0])).detach()
        tensor([0., 0.])
    """

    def __init__(self, *, init_value: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(init_value))

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Scales the tensor."""
        return self.weight * x


class WeightedSum(nn.Module):
    r"""Adds two tensors with learned weights, initialized to return the first.

    $$z = a \, x + b \, y$$

    With the token embeddings as $y$ it is a skip connection into a deep layer; with the values of the first attention
    layer, a value residual. The parameter `weight` is $(a, b)$.

    Reference:
        Zhou et al., *Value Residual Learning*, 2024.

    Args:
        init_value: Initial value of $(a, b)$.

    Examples:
        >>> WeightedSum(init_value=(0.5, 2.0))(torch.tensor([2.0]), torch.tensor([1.0])).detach()
        tensor([3.])
    """

    def __init__(self, *, init_value: tuple[float, float] = (1.0, 0.0)) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(init_value))

    def forward(self, x: Float[Tensor, "*shape"], y: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Adds the weighted tensors."""
        a, b = self.weight.unbind()
        return torch.addcmul(a * x, b, y)


def residual_contributions(blocks: Sequence[_Block], x: Float[Tensor, "*shape"]) -> Float[Tensor, "n ..."]:
    r"""Returns the input and the contribution of each block to the residual stream.

    $$x + f_1(x) + f_2(x + f_1(x)) + \dots$$

    Their sum is the output of the residual blocks in sequence.

    Args:
        blocks: $f_1, f_2, \dots$
        x: Input.

    Examples:
        >>> residual_contributions([torch.square, torch.neg], torch.tensor([2.0]))
        tensor([[ 2.],
                [ 4.],
                [-6.]])
    """
    terms, stream = [x], x
    for block in blocks:
        terms.append(_same_shape(block, stream))
        stream = stream + terms[-1]
    return torch.stack(terms)


def residual_paths(blocks: Sequence[_Block], x: Float[Tensor, "*shape"]) -> Float[Tensor, "n ..."]:
    r"""Returns the output of each of the $2^n$ paths through $n$ residual blocks: every block is applied or skipped.

    $$(1 + f_2)(1 + f_1) = 1 + f_1 + f_2 + f_2 f_1$$

    The first path skips all blocks. For linear blocks the sum is the output of the residual blocks in sequence.

    Reference:
        Veit, Wilber and Belongie, *Residual Networks Behave Like Ensembles of Relatively Shallow Networks*, 2016.

    Args:
        blocks: $f_1, f_2, \dots$
        x: Input.

    Examples:
        >>> residual_paths([lambda x: 2 * x, lambda x: 10 * x], torch.tensor([1.0])).flatten()
        tensor([ 1.,  2., 10., 20.])
    """
    outputs = [x]
    for block in blocks:
        outputs += [_same_shape(block, y) for y in outputs]
    return torch.stack(outputs)


def expand_layer_pattern(pattern: str, num_layers: int = 1) -> str:
    r"""Expands a layer pattern into one letter per sublayer.

    The letters are `s` self-attention, `m` state-space layer, `f` feed-forward, `h` half a step of feed-forward, `c`
    cross-attention. A number after a letter or a group repeats it that many times, a star `num_layers` times:

    $$\texttt{"(sf)*"} \mapsto (sf)^{n}, \qquad \texttt{"s2(sf)3f2"} \mapsto s^2 (sf)^3 f^2$$

    Reference:
        Press, Smith and Levy, *Improving Transformer Models by Reordering their Sublayers*, 2020.

    Args:
        pattern: Layer pattern: `"(sf)*"` is the usual transformer, `"s*"` attention only, `"(hsh)*"` Macaron.
        num_layers: Number of repeats of a star.

    Examples:
        >>> expand_layer_pattern("(sf)*", 3), expand_layer_pattern("s2(sf)f2"), expand_layer_pattern("s*", 2)
        ('sfsfsf', 'sssfff', 'ss')
    """
    if num_layers < 1:
        raise ValueError(f"num_layers must be at least 1, got {num_layers}")

    def repeat(match: re.Match[str]) -> str:
        group, group_count, letter, letter_count = match.groups()
        count = group_count or letter_count
        return (group or letter) * (num_layers if count == "*" else int(count or 1))

    text, previous = pattern.replace(" ", ""), None
    while text != previous:
        previous, text = text, _GROUP.sub(repeat, text)
    if not text or text.strip(_LETTERS) or _REPEATED_TWICE.search(pattern):
        raise ValueError(f"layer_pattern may contain s, m, f, h, c, parentheses, numbers and *: got {pattern!r}")
    return text


def sandwich_pattern(num_layers: int, *, num_outer: int) -> str:
    r"""Returns the sandwich pattern, with some attention sublayers first and as many feed-forward sublayers last.

    $$s^k (sf)^{n - k} f^k$$

    Reference:
        Press, Smith and Levy, *Improving Transformer Models by Reordering their Sublayers*, 2020.

    Args:
        num_layers: $n$, the number of sublayers of each kind.
        num_outer: $k$, from 0 (the usual order) to $n$.

    Examples:
        >>> sandwich_pattern(4, num_outer=2), expand_layer_pattern(sandwich_pattern(4, num_outer=2))
        ('s2(sf)2f2', 'sssfsfff')
    """
    if num_layers < 1 or not 0 <= num_outer <= num_layers:
        raise ValueError(f"num_outer must be between 0 and num_layers: got {num_outer=}, {num_layers=}")
    return f"s{num_outer}(sf){num_layers - num_outer}f{num_outer}"


def splitting_step(
    pattern: str, flows: Mapping[str, _Flow], x: Float[Tensor, "*shape"], *, step_size: float = 1.0
) -> Float[Tensor, "*shape"]:
    r"""Takes one step of an operator splitting method, in the order of a transformer's sublayers.

    $$\dot x = s(x) + f(x), \qquad x \mapsto \varphi_f^{h / 2} \varphi_s^{h} \varphi_f^{h / 2}(x)$$

    The tokens are particles: attention is their interaction, feed-forward acts on each. `"sf"` is Lie-Trotter
    splitting, with local error $O(h^2)$; `"hsh"`, a Macaron layer, is Strang splitting, with local error $O(h^3)$, if
    the flows are exact. A residual sublayer is an Euler step, $\varphi^h(x) = x + h f(x)$, with its own local error
    $O(h^2)$.

    Reference:
        Lu et al., *Understanding and Improving Transformer From a Multi-Particle Dynamic System Point of View*, 2019.

    Args:
        pattern: Order of the sublayers, as in `expand_layer_pattern`; `h` is half a step of `f`.
        flows: $\varphi(x, h)$ for each of the letters `s` and `f`.
        x: Input.
        step_size: $h$.

    Examples:
        >>> euler = {"s": lambda x, h: x + h, "f": lambda x, h: x + h * x}
        >>> splitting_step("sf", euler, torch.tensor(1.0)), splitting_step("hsh", euler, torch.tensor(1.0))
        (tensor(4.), tensor(3.7500))
    """
    for letter in expand_layer_pattern(pattern):
        x = flows["f"](x, step_size / 2) if letter == "h" else flows[letter](x, step_size)
    return x


def claims() -> Iterator[Claim]:
    """Laws of residual connections."""
    linear, layers = nn.Linear(4, 4), [nn.Linear(4, 4, bias=False) for _ in range(3)]

    def block(x: Tensor) -> Tensor:
        return torch.tanh(linear(x))

    def jacobian(x: Tensor) -> Tensor:
        return 1 + (1 - block(x) ** 2) @ linear.weight

    residual = Residual(nn.Sequential(linear, nn.Tanh()))
    stack = nn.Sequential(*map(Residual, layers))
    yield Claim(derivative(formula=jacobian), residual, shape("b 4"))
    identity = agreement(other=lambda x: 1 * x)
    yield Claim(identity, Residual(linear, gate=ReZero().requires_grad_(False)), shape("b 4"), name="initial identity")
    total = agreement(other=lambda x: residual_contributions(layers, x).sum(0))
    yield Claim(total, stack, shape("b 4"), name="sum of contributions")
    over_paths = agreement(other=lambda x: residual_paths(layers, x).sum(0))
    yield Claim(over_paths, stack, shape("b 4"), name="sum over paths of linear blocks")
