"""The laid-out network: a stack of affine layers whose units have places."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.laws import Claim, agreement, boundedness, shape
from lawful.models.mlp import MLP, MLPConfig
from lawful.objectives.locality import affine_layers, lengths, locality, on_a_grid, on_a_line
from lawful.optim.row_swaps import better_order, rearrange


class LaidOut(nn.Module):
    """Gives the units of any stack of affine layers places, and lets them change these.

    A hidden unit changes its place with its row of one weight, its bias and its column of the next; an input or an
    output with a note of where it went, in the integer buffers `inputs` and `outputs`. The function stays the same as
    long as what is between the layers treats all units alike.

    Args:
        model: The stack.
        place: The places of a layer of so many units: `on_a_line`, `on_a_grid` or another.
        gap: How far a layer is above the one before.
        order: The exponent of the distance.

    Examples:
        >>> model = LaidOut(nn.Sequential(nn.Linear(4, 20), nn.SiLU(), nn.Linear(20, 2)))
        >>> model(torch.zeros(3, 4)).shape, model.swap(most=5) >= 0
        (torch.Size([3, 2]), True)
    """

    inputs: Tensor
    outputs: Tensor

    def __init__(
        self,
        model: nn.Module,
        *,
        place: Callable[[int], Float[Tensor, "n k"]] = on_a_line,
        gap: float = 0.1,
        order: float = 1.0,
    ) -> None:
        super().__init__()
        self.model, self.gap = model, gap
        widths = [affine_layers(model)[0].weight.shape[1], *(layer.weight.shape[0] for layer in affine_layers(model))]
        self.places = [place(width) for width in widths]
        for i, d in enumerate(lengths(self.places, gap=gap, order=order)):
            self.register_buffer(f"lengths{i}", d, persistent=False)
        self.register_buffer("inputs", torch.arange(widths[0]))
        self.register_buffer("outputs", torch.arange(widths[-1]))

    def forward(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        """Brings the inputs to their places, and the outputs back from theirs."""
        return self.model(x[..., self.inputs])[..., self.outputs.argsort()]

    @property
    def lengths(self) -> list[Tensor]:
        """The lengths of the connections, layer by layer."""
        return [self.get_buffer(f"lengths{i}") for i in range(len(self.places) - 1)]

    def locality(self, *, bias: bool = True) -> Float[Tensor, ""]:
        """The penalty for long connections; that for biases may be left out."""
        return locality(affine_layers(self.model), self.lengths, bias=self.gap if bias else 0.0)

    @torch.no_grad()
    def swap(self, *, most: int, optimizer: torch.optim.Optimizer | None = None) -> int:
        """Lets units of each layer, the inputs first and the outputs last, change to places where they cost less.

        Args:
            most: How many of a layer, those with the largest weights, look for another place.
            optimizer: What remembers something of the weights: it is moved along.

        Returns:
            How many units have another place.
        """
        layers, far, moved = affine_layers(self.model), self.lengths, 0
        for i in range(len(self.places)):
            into, out_of = (layers[i - 1] if i else None), (layers[i] if i < len(layers) else None)
            ends = [(into.weight, far[i - 1])] if into else []
            ends += [(out_of.weight.T, far[i].T)] if out_of else []
            weights, reach = (torch.cat(side, dim=1) for side in zip(*ends, strict=True))
            order = better_order(weights, reach, most=most)
            moved += int((order != torch.arange(len(order), device=order.device)).sum())
            for parameter in (into.weight, into.bias) if into else ():
                if parameter is not None:
                    rearrange(parameter, order, optimizer=optimizer)
            if out_of:
                rearrange(out_of.weight, order, axis=1, optimizer=optimizer)
            if not into:
                rearrange(self.inputs, order)
            if not out_of:
                rearrange(self.outputs, order)
        return moved


def claims() -> Iterator[Claim]:
    """The laws that a laid-out network obeys."""

    def made() -> LaidOut:
        torch.manual_seed(0)
        stack = MLP(MLPConfig(d_in=3, d_out=2, hidden=(5, 4), activation=nn.functional.silu))
        return LaidOut(stack, place=on_a_grid, gap=0.2, order=2.0)

    plain, swapped = made(), made()
    for _ in range(3):
        swapped.swap(most=4)

    def dearer(x: Tensor) -> Tensor:
        model = made().to(x.dtype)
        for p in model.parameters():
            p.data.copy_(x[: p.numel()].reshape(p.shape))
        before = model.locality().detach().clone()
        model.swap(most=4)
        return model.locality().detach() / before.clamp_min(torch.finfo(x.dtype).tiny)

    def usual(x: Tensor) -> Tensor:
        layer = nn.Linear(2, 2).to(x.dtype)
        layer.weight.data, layer.bias.data = x[:2], x[2]
        model = LaidOut(nn.Sequential(layer)).to(x.dtype)
        return torch.stack([model.locality(), model.locality(bias=False)]).detach()

    def written_out(x: Tensor) -> Tensor:
        costs = (x.abs() * x.new_tensor([[0.1, 0.6], [0.6, 0.1], [0.1, 0.1]])).sum(-1)
        return torch.stack([costs.sum(), costs[:2].sum()])

    yield Claim(agreement(other=written_out), usual, shape("3 2"), name="LaidOut, its penalty")
    yield Claim(agreement(other=plain), swapped, shape("b 3"), name="LaidOut, after swaps")
    yield Claim(boundedness(low=0.0, high=1.0), dearer, shape("20"), name="LaidOut, penalty after swaps to before")
