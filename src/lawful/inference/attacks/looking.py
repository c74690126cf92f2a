"""How an attack looks at a model: scores and their gradient by the inputs, and nothing of the model is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.blocks.modes import in_training
from lawful.laws import Claim, agreement, shape

Classifier = Callable[[Tensor], Tensor]
"""From inputs, along the first axis, to the scores (logits) of each class."""


@contextmanager
def looking(model: Classifier) -> Iterator[None]:
    """Within it a model is in evaluation mode and gradients are on; afterwards both are as they were."""
    with ExitStack() as stack:
        if isinstance(model, nn.Module):
            stack.enter_context(in_training(model))
        stack.enter_context(torch.enable_grad())
        yield


def scores_of(model: Classifier, x: Float[Tensor, "n ..."], classes: Tensor | None = None) -> Float[Tensor, "n c"]:
    """Returns the scores of a model.

    Raises:
        ValueError: where they are not those of two classes or more, not finite, or of fewer classes than are named.
    """
    z = model(x)
    if z.dim() != 2 or len(z) != len(x) or z.shape[1] < 2:
        raise ValueError(
            f"scores of two classes or more, ({len(x)}, c), were wanted of the model: got {tuple(z.shape)}"
        )
    if not bool(z.isfinite().all()):
        raise ValueError(f"the scores of the model are not finite: {z[~z.isfinite()][0]}")
    if classes is not None and not (int(classes.min()) >= 0 and int(classes.max()) < z.shape[1]):
        least, most = int(classes.min()), int(classes.max())
        raise ValueError(f"classes from 0 to {z.shape[1] - 1} were wanted: got {least} to {most}")
    return z


def gradient_of(gain: Float[Tensor, " n"], x: Float[Tensor, "n ..."], *, keep: bool = False) -> Float[Tensor, "n ..."]:
    """Returns the gradient of each example's gain by that example.

    Raises:
        ValueError: where the gain does not depend on the inputs, or its gradient is not finite.
    """
    if not gain.requires_grad:
        raise ValueError("the scores of the model do not depend on its inputs: there is no gradient to follow")
    (g,) = torch.autograd.grad(gain.sum(), x, retain_graph=keep)
    if not bool(g.isfinite().all()):
        bad = int((~g.isfinite()).flatten(1).any(1).nonzero()[0])
        raise ValueError(f"the gradient of the model is not finite at example {bad}")
    return g


def claims() -> Iterator[Claim]:
    """The laws that looking obeys."""
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(), nn.Linear(4, 2))

    def slope(x: Tensor) -> Tensor:
        with looking(model):
            leaf = x.detach().requires_grad_()
            return gradient_of(scores_of(model, leaf)[:, 1], leaf)

    def product(x: Tensor) -> Tensor:
        first, _, last, _ = model.parameters()
        return (last[1] @ first).expand(len(x), 3)

    yield Claim(agreement(other=product), slope, shape("n 3"), name="gradient_of, with dropout off")
