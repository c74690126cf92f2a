"""A momentum that warms up: an average that is fast at first, while the gradient still changes fast."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from lawful.laws import Claim, agreement, shape
from lawful.optim.part import Point
from lawful.optim.parts import NesterovAverage, within


@dataclass(frozen=True)
class RisingAverage:
    r"""Averages updates and looks one step ahead, as `NesterovAverage` does, with a $\beta$ that rises at first.

    $$\beta_t = \beta + (\beta_0 - \beta) \max\bigl(0, 1 - \tfrac{t}{n}\bigr), \qquad
    v' = \beta_t v + (1 - \beta_t) \, u, \qquad u' = \beta_t v' + (1 - \beta_t) \, u$$

    at step $t = 0, 1, \dots$ of a parameter.

    Reference:
        Jordan et al., *modded-nanogpt: Speedrunning the NanoGPT baseline*, 2024.

    Args:
        beta: $\beta$, from step $n$ on.
        first: $\beta_0$, at the first step.
        rise: $n$; with 0 there is no rise.
    """

    beta: float = 0.95
    first: float = 0.85
    rise: int = 300

    def __post_init__(self) -> None:
        within("beta", self.beta, below=1.0)
        within("first", self.first, below=1.0)
        within("rise", self.rise)

    def start(self, p: Tensor) -> dict[str, Tensor]:
        """The number of steps, and the average."""
        step = torch.zeros((), dtype=torch.float32, device=p.device)
        return {"step": step, "momentum_buffer": torch.zeros_like(p)}

    def __call__(self, updates: list[Tensor], at: Point) -> list[Tensor]:
        beta, first, rise = (at.options[name] for name in ("beta", "first", "rise"))
        left = [max(0.0, 1 - step.item() / rise) if rise else 0.0 for step in at.kept("step")]
        torch._foreach_add_(at.kept("step"), 1)
        now = [beta + (first - beta) * share for share in left]
        v, new = at.kept("momentum_buffer"), torch._foreach_mul(updates, [1 - beta for beta in now])
        torch._foreach_mul_(v, now)
        torch._foreach_add_(v, new)
        ahead = torch._foreach_mul(v, now)
        torch._foreach_add_(ahead, new)
        return list(ahead)


def claims() -> Iterator[Claim]:
    """The laws that a rising average obeys."""

    def last(part: RisingAverage | NesterovAverage) -> Callable[..., Tensor]:
        """What a part makes of the last of some updates."""

        def of(*updates: Tensor) -> Tensor:
            kept, options = [part.start(updates[0])], {"beta": part.beta}
            if isinstance(part, RisingAverage):
                options |= {"first": part.first, "rise": part.rise}
            found = [part([update.clone()], Point([update], kept, options))[0].clone() for update in updates]
            return found[-1]

        return of

    def written(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        """With a momentum of 1/2, 5/8 and 3/4."""
        v = 3 / 4 * (5 / 8 * a / 2 + 3 / 8 * b) + c / 4
        return 3 / 4 * v + c / 4

    three = shape("n 2"), shape("n 2"), shape("n 2")
    rising = last(RisingAverage(0.75, first=0.5, rise=2))
    yield Claim(agreement(other=written), rising, three, name="RisingAverage, the third step")
    flat, plain = last(RisingAverage(0.75, rise=0)), last(NesterovAverage(0.75))
    yield Claim(agreement(other=plain), flat, three, name="RisingAverage without a rise")
