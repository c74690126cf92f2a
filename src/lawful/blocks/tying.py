"""Weight tying: two modules, one parameter."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn

from lawful.blocks.dense import Dense
from lawful.blocks.embedding import Embedding
from lawful.laws import Claim, agreement, state_dict_round_trip, tokens, weight_sharing


def tie(source: nn.Module, name: str, target: nn.Module, target_name: str) -> None:
    r"""Makes a parameter of one module that of another: one tensor, not a copy.

    Both modules then read and train the same numbers, and the gradient is the sum of what the two uses give. Copying,
    saving, loading and moving a model that holds both keep the tie; a new parameter in the place of one of them, as
    `load_state_dict(..., assign=True)` puts there, ends it.

    Reference:
        Press and Wolf, *Using the Output Embedding to Improve Language Models*, 2017.

    Args:
        source: The module that has the parameter.
        name: Its name there, such as `"weight"`.
        target: The module that is to use it too.
        target_name: The name of the parameter of `target` that it replaces.

    Examples:
        >>> embedding, head = Embedding(65, 8), Dense(8, 65, bias=False)
        >>> tie(embedding, "weight", head, "weight")
        >>> head.weight is embedding.weight
        True
    """
    shared, replaced = source.get_parameter(name), target.get_parameter(target_name)
    if shared.shape != replaced.shape:
        raise ValueError(
            f"tied parameters are to have one shape: got {name} {tuple(shared.shape)} "
            f"and {target_name} {tuple(replaced.shape)}"
        )
    path, _, leaf = target_name.rpartition(".")
    setattr(target.get_submodule(path), leaf, shared)


def claims() -> Iterator[Claim]:
    """The laws that tied weights obey."""
    model = nn.Sequential(Embedding(5, 3), Dense(3, 5, bias=False))
    tie(model, "0.weight", model, "1.weight")

    def gram(x: Tensor) -> Tensor:
        w = model.get_parameter("0.weight")
        return (w @ w.mT)[x]

    for law in (weight_sharing(names=("0.weight", "1.weight")), agreement(other=gram), state_dict_round_trip()):
        yield Claim(law, model, tokens("b t", vocab=5), name="tied embedding and head")
