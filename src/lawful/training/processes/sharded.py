"""Several processes that each hold a share of every weight (FSDP)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import distribute_tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from lawful.data.batches import Batch
from lawful.training.processes.distributed import Caller, Together
from lawful.training.storage import shards
from lawful.training.storage.state import module_kept, of_module, randomness_kept


class Sharded(Together):
    """Processes that hold some rows of each weight, of its gradient and of what the optimizer remembers of it.

    The weights are gathered while an objective runs, those of the blocks of a model one block at a time, and each
    gradient is added up where its rows are.
    """

    def wrap(self) -> None:
        self.blank = _with_tensors(self.model, {name: t.to("meta") for name, t in of_module(self.model).items()})
        whole = {id(p): name for name, p in self.model.named_parameters()}
        for name, p in self.model.named_parameters():
            if not p.dim():
                raise ValueError(f"a weight that is shared out has an axis: {name} has none; give it the shape (1,)")
        mesh = init_device_mesh(self.device, (self.size,))
        self.caller = Caller(self.model)
        for block in self.closed_blocks():
            fully_shard(block, mesh=mesh)
        fully_shard(self.caller, mesh=mesh)
        shared = dict(self.model.named_parameters())
        for turn in self.training.turns:
            if turn.optimizer.state:
                raise ValueError("an optimizer that has taken steps cannot be shared out")
            stepping = _Stepping()
            turn.optimizer.register_step_pre_hook(stepping.begin)
            turn.optimizer.register_step_post_hook(stepping.end)
            for group in turn.optimizer.param_groups:
                group["params"] = [shared[whole[id(p)]] for p in group["params"]]

    def closed_blocks(self) -> list[nn.Module]:
        """Returns the blocks whose weights are read by their own forward passes alone, found by trying each objective.

        Weights that something else reads too, such as a penalty or a tied layer, are gathered with the whole model.
        """
        found = blocks(self.model)
        if not found or not self.training.steps:
            return []
        watch = _Watch(found)
        batch, _ = self.share(self.training.batches.batch(0))
        batch = tuple(tensor.to(self.device) for tensor in batch)
        with ExitStack() as stack, randomness_kept(), module_kept(self.model):
            for i, block in enumerate(found):
                before = block.register_forward_pre_hook(lambda *_, i=i: watch.enter(i))
                after = block.register_forward_hook(lambda *_, i=i: watch.leave(i))
                stack.callback(before.remove)
                stack.callback(after.remove)
            self.model.train()
            batch = self.training.augment(batch) if self.training.augment else batch
            for turn in self.training.turns:
                with watch:
                    turn.objective(self.model, batch)
        own = [bool(ran and not read) for ran, read in zip(watch.ran, watch.read, strict=True)]
        closed = torch.tensor(own, dtype=torch.uint8)
        dist.all_reduce(closed, dist.ReduceOp.MIN)
        return [block for block, alone in zip(found, closed.tolist(), strict=True) if alone]

    def call(self, turn: int, part: Batch) -> Tensor | Mapping[str, Tensor]:
        return self.caller(self.training.turns[turn].objective, part)

    def together(self, *, last: bool) -> AbstractContextManager[object]:
        self.caller.set_requires_gradient_sync(last)
        return nullcontext()

    def judged(self, evaluate: Callable[[], Mapping[str, float]]) -> Mapping[str, float]:
        found = self.caller(lambda model: evaluate())
        self.caller.reshard()
        return found

    def like(self, name: str, shape: Sequence[int]) -> Tensor | None:
        _, _, rest = name.partition(".")
        weights = dict(self.model.named_parameters())
        return weights.get(rest, weights.get(rest.rpartition(".")[0]))

    def whole(self) -> nn.Module:
        tensors = {name: shards.full(tensor.detach()) for name, tensor in of_module(self.model).items()}
        return _with_tensors(self.blank, tensors) if self.rank == 0 else self.model


class _Stepping(TorchFunctionMode):
    """Lets an optimizer that needs whole matrices, as Muon does, step with shared-out ones.

    What it stacks is gathered first; a whole tensor that meets shared-out ones is cut to the rows of this process.
    """

    def begin(self, *step: object) -> None:
        self.__enter__()

    def end(self, *step: object) -> None:
        self.__exit__(None, None, None)

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.stack:
            args = ([shards.full(tensor) for tensor in args[0]], *args[1:])
        lists = [arg for arg in args if isinstance(arg, list)]
        if alike := next((group for group in lists if any(map(shards.is_shared, group))), None):
            args = tuple([*map(_cut, arg, alike)] if isinstance(arg, list) else arg for arg in args)
        return func(*args, **kwargs or {})


def _cut(tensor: Any, like: Any) -> Any:
    """The rows of a whole tensor that this process holds of another of its shape."""
    whole = isinstance(tensor, Tensor) and not shards.is_shared(tensor)
    if whole and shards.is_shared(like) and tensor.shape == like.shape:
        return distribute_tensor(tensor, like.device_mesh, like.placements, src_data_rank=None)
    return tensor


class _Watch(TorchFunctionMode):
    """Notes which blocks run, and which have weights that are read while they do not run."""

    def __init__(self, entries: Sequence[nn.Module]) -> None:
        super().__init__()
        self.owners: dict[int, list[int]] = {}
        for i, entry in enumerate(entries):
            for p in entry.parameters():
                self.owners.setdefault(id(p), []).append(i)
        self.running, self.ran, self.read = [0] * len(entries), [0] * len(entries), [0] * len(entries)

    def enter(self, i: int) -> None:
        self.running[i] += 1
        self.ran[i] = 1

    def leave(self, i: int) -> None:
        self.running[i] -= 1

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        for leaf in tree_leaves((args, kwargs)):
            for i in self.owners.get(id(leaf), ()):
                self.read[i] |= not self.running[i]
        return func(*args, **kwargs or {})


def blocks(model: nn.Module) -> list[nn.Module]:
    """Returns the outermost entries, with layers of their own, of lists and sequences of modules."""
    found: list[nn.Module] = []
    within: set[int] = set()
    for module in model.modules():
        if id(module) in within or not isinstance(module, nn.ModuleList | nn.Sequential):
            continue
        for entry in module:
            if any(list(child.parameters()) for child in entry.children()):
                found.append(entry)
                within |= {id(inner) for inner in entry.modules()}
    return list(dict.fromkeys(found))


def _with_tensors(model: nn.Module, tensors: Mapping[str, Tensor]) -> nn.Module:
    """A copy of a model with other tensors in the place of its own; what was one tensor stays one."""
    memo: dict[int, object] = {}
    for name, old in of_module(model).items():
        new = tensors[name]
        memo[id(old)] = nn.Parameter(new, requires_grad=old.requires_grad) if isinstance(old, nn.Parameter) else new
    return copy.deepcopy(model, memo)
