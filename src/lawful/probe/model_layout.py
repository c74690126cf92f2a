"""Where the parts of a residual model are, and linear maps of its norms and residual branches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful._suggest import did_you_mean
from lawful.blocks.residual import Residual, WeightedSum
from lawful.laws import Claim, agreement, linearity, shape
from lawful.probe.record import ActivationCache

_LinearMap = Callable[[Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class ModelLayout:
    """Names of the parts of a model whose layers add to a residual stream, which a norm and a head read at the end."""

    embedding: str = "embedding"
    """Token embedding."""
    layers: str = "layers"
    """List of layers; each maps the residual stream to the residual stream."""
    norm: str | None = "norm"
    """Norm before the head; None if there is none."""
    head: str = "head"
    """Linear map to the logits."""

    @property
    def final_module(self) -> str:
        """The module that reads the residual stream after the last layer: the norm, or the head without a norm."""
        return self.head if self.norm is None else self.norm

    def get_norm(self, model: nn.Module) -> nn.Module:
        """Returns the norm before the head, the identity if there is none."""
        return nn.Identity() if self.norm is None else model.get_submodule(self.norm)

    def layer_names(self, model: nn.Module) -> list[str]:
        """Returns the names of the layers of a model."""
        return [f"{self.layers}.{i}" for i in range(len(list(model.get_submodule(self.layers).children())))]

    def embedding_skip_names(self, model: nn.Module) -> tuple[str, ...]:
        """Returns the names of the skip connections from the embedding to later layers, for `record`."""
        return ("embedding_skips.?*",) if getattr(model, "embedding_skips", None) is not None else ()

    def embedding_skip_weights(
        self, model: nn.Module, cache: ActivationCache, stream: Float[Tensor, "*batch t d"]
    ) -> tuple[Tensor, Tensor] | None:
        """Returns the weights of the residual stream and of the embedding in the skip connection that gave `stream`.

        Args:
            model: The model.
            cache: Recorded activations, including `embedding_skip_names`.
            stream: The output of a skip connection; otherwise None is returned.
        """
        for name, module in model.named_children():
            if name == "embedding_skips":
                for i, skip in module.named_children():
                    if isinstance(skip, WeightedSum) and cache.get(f"{name}.{i}") is stream:
                        a, b = skip.weight.unbind()
                        return a, b
        return None


LAYOUTS = (
    ModelLayout(),
    ModelLayout(embedding="transformer.wte", layers="transformer.h", norm="transformer.ln_f", head="lm_head"),
    ModelLayout(embedding="model.embed_tokens", layers="model.layers", norm="model.norm", head="lm_head"),
)
"""Known layouts: the models of this library, and Hugging Face's GPT-2 and Llama families."""


def infer_layout(model: nn.Module) -> ModelLayout:
    """Finds the layout of a model among the known `LAYOUTS`.

    Args:
        model: The model.

    Raises:
        ValueError: If the model has other names; write a `ModelLayout` for it.

    Examples:
        >>> parts = {"embedding": nn.Embedding(5, 3), "layers": nn.ModuleList(), "norm": nn.LayerNorm(3)}
        >>> infer_layout(nn.ModuleDict(parts | {"head": nn.Linear(3, 5)})).norm
        'norm'
    """
    known = {name for name, _ in model.named_modules(remove_duplicate=False)}
    for layout in LAYOUTS:
        if {layout.embedding, layout.layers, layout.final_module, layout.head} <= known:
            return layout
    missing = next(name for name in ("embedding", "layers", "norm", "head") if name not in known)
    raise ValueError(
        f"the model has no module {missing!r}: pass layout=ModelLayout(...) with its names, "
        f"norm=None if there is no norm before the head{did_you_mean(missing, known)}"
    )


def frozen_norm(norm: nn.Module, x: Float[Tensor, "*batch d"]) -> tuple[_LinearMap, Float[Tensor, "*batch d"]]:
    r"""Linearizes a norm by freezing its scale at $x$.

    $$\operatorname{norm}(y) \approx \frac{\gamma \odot P y}{\sigma(x)} + \beta$$

    $P$ subtracts the mean for a layer norm, and is the identity for an RMS norm. The map is exact at $y = x$, and maps
    sums to sums, which attribution to the terms of a sum needs.

    Args:
        norm: Layer norm, RMS norm or identity.
        x: Input at which the scale is frozen.

    Returns:
        The linear part, and $\beta$ in the shape of $x$.

    Examples:
        >>> linear, shift = frozen_norm(nn.LayerNorm(2), torch.tensor([1.0, 5.0]))
        >>> linear(torch.tensor([1.0, 5.0])).detach().round(decimals=3)
        tensor([-1.,  1.])
    """
    if isinstance(norm, nn.Identity):
        return lambda y: y, torch.zeros_like(x)
    subtracts_mean = isinstance(norm, nn.LayerNorm)
    if not subtracts_mean and not isinstance(norm, nn.RMSNorm) and not type(norm).__name__.endswith("RMSNorm"):
        raise TypeError(f"norm must be a LayerNorm, an RMSNorm or the identity, got {type(norm).__name__}")
    gain = getattr(norm, "weight", None)
    bias = getattr(norm, "bias", None)
    shift = torch.zeros_like(x) if bias is None else bias.expand_as(x)

    def norm_without_scale(y: Tensor) -> Tensor:
        y = y - y.mean(-1, keepdim=True) if subtracts_mean else y
        return y if gain is None else gain * y

    at_x = norm_without_scale(x)
    square = (at_x * at_x).sum(-1, keepdim=True)
    product = ((norm(x) - shift) * at_x).sum(-1, keepdim=True)
    scale = torch.where(square > 0, product / square.where(square > 0, 1.0), 0.0)
    return lambda y: scale * norm_without_scale(y), shift


def linearize_branch(
    layer: nn.Module, y: Float[Tensor, "*batch t d"], *, name: str = "the layer"
) -> tuple[_LinearMap, Float[Tensor, "*batch t d"]]:
    r"""Returns the affine map from the output of a block to its term in the residual stream.

    $$x + h \, g(\operatorname{norm}'(y)) = x + L y + c$$

    with step $h$, gate $g$, and the scale of the branch norm frozen at $y$. A layer that is not a `Residual` adds its
    output unchanged.

    Args:
        layer: The layer.
        y: Output of its block.
        name: Name of the layer in errors.

    Returns:
        $L$, and $c$ in the shape of $y$.

    Raises:
        ValueError: If the gate is not linear, such as dropout in training mode, or a norm follows the addition.

    Examples:
        >>> from lawful.blocks import LayerScale
        >>> layer = Residual(nn.Identity(), gate=LayerScale(2, init_value=0.5))
        >>> linear, constant = linearize_branch(layer, torch.ones(1, 2))
        >>> linear(torch.tensor([[2.0, 4.0]])).detach()
        tensor([[1., 2.]])
    """
    if not isinstance(layer, Residual):
        return lambda x: x, torch.zeros_like(y)
    check_no_output_norm(layer, name)
    inner, shift = frozen_norm(layer.branch_norm or nn.Identity(), y)
    gate, step = layer.gate or nn.Identity(), layer.scale
    at_zero = gate(torch.zeros_like(y))

    def linear(x: Tensor) -> Tensor:
        return step * (gate(inner(x)) - at_zero)

    with torch.no_grad():
        whole, other = linear(y), 2 * y.roll(1, -1)  # y + other is 0 for y = 0 only
        error = linear(y + other) + linear(-other) - whole
    if not bool((error.abs() <= 1e-3 * whole.abs().max()).all()):
        raise ValueError(
            f"the gate of {name} must be linear, got {type(gate).__name__} (is the model in training mode?)"
        )
    return linear, step * (gate(shift) if layer.branch_norm is not None else at_zero)


def check_no_output_norm(layer: nn.Module, name: str) -> None:
    """Raises if a layer normalizes after the addition, so that the residual stream is not a sum.

    Args:
        layer: The layer.
        name: Its name in the error.
    """
    if isinstance(layer, Residual) and layer.output_norm is not None:
        raise ValueError(f"{name} has a norm after the addition (post-norm): the residual stream is not a sum of terms")


def claims() -> Iterator[Claim]:
    """A frozen norm is linear, and exact where it was frozen."""
    at = torch.tensor([[0.5, -1.0, 2.0, 0.0]])
    for norm in (nn.LayerNorm(4), nn.RMSNorm(4)):

        def frozen(x: Tensor, norm: nn.Module = norm) -> Tensor:
            linear, shift = frozen_norm(norm, x)
            return linear(x) + shift

        def linear_part(x: Tensor, norm: nn.Module = norm) -> Tensor:
            return frozen_norm(norm, at.to(x))[0](x)

        name = f"frozen_norm({type(norm).__name__})"
        yield Claim(agreement(other=norm), frozen, shape("b t 4"), name=name)
        yield Claim(linearity(), linear_part, shape("b 4"), name=name)
