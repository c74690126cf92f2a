"""Padding: how far an input is continued past its border, and with what."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from lawful.laws import Claim, agreement, shape

FILLS = ("constant", "circular", "reflect")


@dataclass(frozen=True)
class Padding:
    r"""Says how many positions are added to an axis, and what stands there.

    A kernel of $k$ taps at a dilation of $\delta$ spans $s = \delta (k - 1)$ positions besides the one it is at.
    The padding adds $p = m s + 2 e$ positions, $\lfloor p / 2 \rfloor$ of them before and the others after.

    Args:
        fill: What is added: `"constant"` for zeros, `"circular"` for the other end, `"reflect"` for the mirror image.
        spans: $m$: 0 for none, 1 for an output as large as the input, 2 for every position the kernel can reach.
        extra: $e$, a fixed number on both sides.

    Examples:
        >>> SAME.sides(2), FULL.sides(2), Padding(extra=3).sides(2)
        ((1, 1), (2, 2), (3, 3))
    """

    fill: str = "constant"
    spans: int = 0
    extra: int = 0

    def __post_init__(self) -> None:
        if self.fill not in FILLS:
            raise ValueError(f"fill is one of {', '.join(FILLS)}: got {self.fill!r}")
        if self.spans < 0 or self.extra < 0:
            raise ValueError(f"spans and extra are at least 0: got spans={self.spans}, extra={self.extra}")

    def sides(self, span: int) -> tuple[int, int]:
        """Returns how many positions are added before and after an axis, for a kernel of that span."""
        total = self.spans * span + 2 * self.extra
        return total // 2, total - total // 2


def as_padding(padding: Padding | int) -> Padding:
    """Takes a number for as many zeros on both sides.

    Examples:
        >>> as_padding(2).sides(4)
        (2, 2)
    """
    if isinstance(padding, int):
        return Padding(extra=padding)
    if not isinstance(padding, Padding):
        raise TypeError(f"padding is a Padding, or an int of zeros on both sides: got {padding!r}")
    return padding


NONE = Padding()
"""Nothing is added: the kernel stays inside, and the output is smaller by its span."""
SAME = Padding(spans=1)
"""Zeros, so that at stride 1 the output is as large as the input."""
FULL = Padding(spans=2)
"""Zeros, so that the kernel meets the input wherever it can, and the output is larger by its span."""
CIRCULAR = Padding("circular", spans=1)
"""The other end of the axis, which becomes a circle; as large as the input."""
REFLECT = Padding("reflect", spans=1)
"""The mirror image, without the border itself; as large as the input."""


def claims() -> Iterator[Claim]:
    """The laws that padding obeys: which entry stands at which position."""
    n, span, small = 4, 5, ((2, 3), (5, 5), (2, 2), (0, 0))
    rows = zip((SAME, FULL, Padding(extra=2), NONE, CIRCULAR, REFLECT), (*small, small[0], small[0]), strict=True)
    for padding, (before, after) in rows:
        position = torch.arange(-before, n + after)
        mirrored = position.abs() - 2 * (position - (n - 1)).clamp(min=0)
        inside = position.where(position == position % n, n)
        read = {"circular": position % n, "reflect": mirrored, "constant": inside}[padding.fill]

        def padded(x: Tensor, padding: Padding = padding) -> Tensor:
            return F.pad(x, padding.sides(span), mode=padding.fill)

        def equation(x: Tensor, read: Tensor = read) -> Tensor:
            return torch.cat([x, torch.zeros_like(x[..., :1])], -1)[..., read]

        name = f"{padding.fill}, spans={padding.spans}, extra={padding.extra}"
        yield Claim(agreement(other=equation), padded, shape(f"b 2 {n}"), name=name)
    number = agreement(other=lambda x: F.pad(x, (2, 2)))
    yield Claim(number, lambda x: F.pad(x, as_padding(2).sides(span)), shape("b n"), name="as_padding(2)")
