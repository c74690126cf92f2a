"""Splitting: sublayers in turn as steps of a differential equation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.blocks.transformer.order import order
from lawful.laws import Claim, agreement, shape

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
        pattern: The order, as in `order`; h is half a step of f.
        flows: For each of the letters s and f, $\varphi(x, h)$.
        x: $x$.
        step: $h$.

    Examples:
        >>> euler = {"s": lambda x, h: x + h, "f": lambda x, h: x + h * x}
        >>> split("sf", euler, torch.tensor(1.0)), split("hsh", euler, torch.tensor(1.0))
        (tensor(4.), tensor(3.7500))
    """
    for letter in order(pattern):
        x = flows["f"](x, step / 2) if letter == "h" else flows[letter](x, step)
    return x


def claims() -> Iterator[Claim]:
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
