"""Several processes that train one model together: who is there, what each does, and what happens when one is lost.

Several processes that each hold a share of every weight (FSDP).
"""

from __future__ import annotations

import copy
import gc
import itertools
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from datetime import timedelta
from functools import cache
from inspect import signature
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import distribute_tensor
from torch.nn.parallel import DistributedDataParallel
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from lawful.data.batches import Batch
from lawful.training import checkpoint as shards
from lawful.training.checkpoint import module_kept, module_state, preserve_rng
from lawful.training.setup import TrainerConfig, TrainingSetup
from lawful.training.world import SingleProcess

PATIENCE = timedelta(minutes=10)
"""How long a process waits for another that is silent; one that ended is noticed at once."""
ROLL_CALL = 5.0
"""Seconds in which the processes that are left say so."""
SMALLEST = 2
"""The examples of the smallest share: of one there is no variance, which some layers take over their batch."""

_groups = itertools.count()


def join(trainer: TrainerConfig) -> SingleProcess:
    """Joins the processes that torchrun started, or is alone where it was not torchrun.

    Raises:
        ValueError: where the options do not go together.
    """
    size = int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1
    if size == 1:
        return SingleProcess()
    if trainer.parallel == "data":
        return DataParallel(trainer)
    if trainer.precision == "float16":
        raise ValueError("float16 wants parallel data: its factor of the loss is not shared out; bfloat16 needs none")
    pass

    return FSDP(trainer)


class Caller(nn.Module):
    """A module whose forward pass is any function of a model, so that what wraps modules wraps objectives too."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(self.model, *args)


class MultiProcess(SingleProcess, ABC):
    """Processes that each take their share of a batch, and have gradients and figures in common.

    The mean over the whole batch is the mean of the means of the shares, each weighted by its size, so that the
    number of processes changes nothing but rounding (and what a layer computes over its batch, such as its mean).

    Args:
        trainer: The options.
    """

    def __init__(self, trainer: TrainerConfig) -> None:
        if trainer.device == "cuda":
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        self.trainer, self.device = trainer, trainer.device
        self.caller: Any = None
        self.store = dist.PrefixStore(f"lawful/{next(_groups)}", _store())
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        local = os.environ.get("LOCAL_WORLD_SIZE", str(self.size))
        self.command = f"torchrun --nproc-per-node {local} -m lawful"
        backend = "cpu:gloo,cuda:nccl" if trainer.device == "cuda" else "gloo"
        dist.init_process_group(backend, store=self.store, rank=self.rank, world_size=self.size, timeout=PATIENCE)

    def setup(self, training: TrainingSetup, *, device: str) -> None:
        super().setup(training, device=device)
        for tensor in (*self.model.parameters(), *self.model.buffers()):
            dist.broadcast(tensor.detach(), 0)
        self.wrap()

    @abstractmethod
    def wrap(self) -> None:
        """Makes of the model what the processes train together."""

    def share(self, batch: Batch) -> tuple[Batch, float]:
        self.versions = {name: buffer._version for name, buffer in self.model.named_buffers()}
        whole = len(batch[0])
        among = max(1, min(self.size, whole // SMALLEST))
        self.largest = -(-whole // among)
        if self.rank >= among:
            return tuple(tensor[:SMALLEST] for tensor in batch), 0.0
        own = tuple(tensor.tensor_split(among)[self.rank] for tensor in batch)
        return own, len(own[0]) * self.size / whole

    def parts(self, batch: Batch) -> int:
        return min(self.training.grad_accumulation_steps, self.largest)

    def mean(self, figures: dict[str, float], weight: float) -> dict[str, float]:
        names = sorted(figures)
        own = [figures[name] * weight / self.size if weight else 0.0 for name in names]
        total = torch.tensor(own, dtype=torch.float64)
        dist.all_reduce(total)
        return dict(zip(names, total.tolist(), strict=True))

    def settle(self, weight: float) -> None:
        for name, buffer in self.model.named_buffers():
            if buffer._version == self.versions.get(name):
                continue
            if buffer.is_floating_point():
                buffer.mul_(weight / self.size) if weight else buffer.zero_()
                dist.all_reduce(buffer)
            else:
                dist.broadcast(buffer, 0)

    def evaluate(self) -> Mapping[str, float]:
        found = self.judged(super().evaluate)
        figures = torch.tensor([float(value) for value in found.values()], dtype=torch.float64)
        dist.broadcast(figures, 0)
        return dict(zip(found, figures.tolist(), strict=True))

    def judged(self, evaluate: Callable[[], Mapping[str, float]]) -> Mapping[str, float]:
        """Evaluates where the model can be called."""
        return evaluate()

    def any(self, flag: bool) -> bool:
        number = torch.tensor(int(flag))
        dist.all_reduce(number, dist.ReduceOp.MAX)
        return bool(number)

    def first(self, text: str | None) -> str | None:
        source = torch.tensor(self.size if text is None else self.rank)
        dist.all_reduce(source, dist.ReduceOp.MIN)
        if source == self.size:
            return None
        said = (text or "").encode()
        length = torch.tensor(len(said))
        dist.broadcast(length, int(source))
        buffer = torch.zeros(int(length), dtype=torch.uint8)
        if source == self.rank:
            buffer = torch.frombuffer(bytearray(said), dtype=torch.uint8) if said else buffer
        dist.broadcast(buffer, int(source))
        return bytes(buffer.tolist()).decode()

    def wait(self) -> None:
        dist.all_reduce(torch.zeros(1))

    def went_wrong(self, error: BaseException, sentence: str | None, *, step: int) -> str | None:
        """Says what went wrong in any process; the first process that is left speaks, and others end without a word."""
        if not _is_of_connection(error):
            self._tell(sentence or f"{type(error).__name__}: {error}")
            if sentence is None or self.rank == 0:
                return sentence
            raise SystemExit(1) from error
        said = self._roll_call()
        if min(said) < self.rank:
            raise SystemExit(1) from error
        lost = [rank for rank in range(self.size) if rank not in said]
        reasons = [f"process {rank}: {reason}" for rank, reason in sorted(said.items()) if reason]
        if reasons:
            return "\n".join(reasons)
        if not lost:
            return f"the processes lost their connection at step {step}: {error}"
        several = "processes" if len(lost) > 1 else "process"
        return f"{several} {', '.join(map(str, lost))} {'were' if len(lost) > 1 else 'was'} lost at step {step}"

    def _tell(self, reason: str) -> None:
        try:
            self.store.set(f"end/{self.rank}", reason)
        except RuntimeError:
            return

    def _roll_call(self) -> dict[int, str]:
        """Returns why each process that is left ended; nothing if it is because of others."""
        self._tell("")
        deadline = time.monotonic() + ROLL_CALL
        said = {self.rank: ""}
        try:
            while len(said) < self.size and time.monotonic() < deadline:
                for rank in range(self.size):
                    if rank not in said and self.store.check([f"end/{rank}"]):
                        said[rank] = self.store.get(f"end/{rank}").decode()
                time.sleep(0.05)
        except RuntimeError:
            return said
        return said

    def leave(self, *, failed: bool) -> None:
        self.caller = None
        gc.collect()  # DDP is to let go of the group before Python does: the last one ends it, and DDP would deadlock
        if dist.is_initialized() and not (failed and self.device == "cuda"):
            dist.destroy_process_group()


class DataParallel(MultiProcess):
    """Processes with the whole model each, whose gradients are averaged (DDP)."""

    def wrap(self) -> None:
        weights = [p for p in self.model.parameters() if p.requires_grad]
        if not weights or not self.training.steps:
            return
        unused = self.any(len(self.training.optimizer_steps) > 1 or not self.reaches(weights))
        self.caller = DistributedDataParallel(Caller(self.model), find_unused_parameters=unused, **_NO_SYNC)
        self.reaches(weights)

    def reaches(self, weights: list[nn.Parameter]) -> bool:
        """Computes a gradient, throws it away, and says whether it was one of all weights.

        DDP adds up gradients in the order in which its first one came: after this, a run that is resumed adds in the
        same order from its first step on as one that was never stopped, and rounds alike.
        """
        batch, _ = self.share(self.training.batches.batch(0))
        batch = tuple(tensor.to(self.device) for tensor in batch)
        with preserve_rng(), module_kept(self.model):
            self.model.train()
            batch = self.training.augment(batch) if self.training.augment else batch
            found = self.call(0, batch)
            (found if isinstance(found, Tensor) else found["loss"]).backward()
            return all(p.grad is not None for p in weights)

    def call(self, turn: int, part: Batch) -> Tensor | Mapping[str, Tensor]:
        objective = self.training.optimizer_steps[turn].loss_fn
        return self.caller(objective, part) if self.caller is not None else loss_fn(self.model, part)

    def together(self, *, last: bool) -> AbstractContextManager[object]:
        return nullcontext() if last or self.caller is None else self.caller.no_sync()

    def whole(self) -> nn.Module:
        self.caller = None
        return self.model


_NEW = "forward_sync_buffers" in signature(DistributedDataParallel).parameters
_NO_SYNC: dict[str, Any] = {"forward_sync_buffers" if _NEW else "broadcast_buffers": False}
"""Has buffers left to `settle`; PyTorch 2.13 has another name for it."""


@cache
def _store() -> dist.Store:
    """Where processes leave each other notes: torchrun's, which outlives them."""
    store, _, _ = next(dist.rendezvous("env://", timeout=PATIENCE))
    return store


def _is_of_connection(error: BaseException) -> bool:
    """Says whether it is another process that an error comes from."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))


class FSDP(MultiProcess):
    """Processes that hold some rows of each weight, of its gradient and of what the optimizer remembers of it.

    The weights are gathered while an objective runs, those of the blocks of a model one block at a time, and each
    gradient is added up where its rows are.
    """

    def wrap(self) -> None:
        self.blank = _with_tensors(self.model, {name: t.to("meta") for name, t in module_state(self.model).items()})
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
        for turn in self.training.optimizer_steps:
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
        with ExitStack() as stack, preserve_rng(), module_kept(self.model):
            for i, block in enumerate(found):
                before = block.register_forward_pre_hook(lambda *_, i=i: watch.enter(i))
                after = block.register_forward_hook(lambda *_, i=i: watch.leave(i))
                stack.callback(before.remove)
                stack.callback(after.remove)
            self.model.train()
            batch = self.training.augment(batch) if self.training.augment else batch
            for turn in self.training.optimizer_steps:
                with watch:
                    turn.objective(self.model, batch)
        own = [bool(ran and not read) for ran, read in zip(watch.ran, watch.read, strict=True)]
        closed = torch.tensor(own, dtype=torch.uint8)
        dist.all_reduce(closed, dist.ReduceOp.MIN)
        return [block for block, alone in zip(found, closed.tolist(), strict=True) if alone]

    def call(self, turn: int, part: Batch) -> Tensor | Mapping[str, Tensor]:
        return self.caller(self.training.optimizer_steps[turn].loss_fn, part)

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
        tensors = {name: shards.full(tensor.detach()) for name, tensor in module_state(self.model).items()}
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
    for name, old in module_state(model).items():
        new = tensors[name]
        memo[id(old)] = nn.Parameter(new, requires_grad=old.requires_grad) if isinstance(old, nn.Parameter) else new
    return copy.deepcopy(model, memo)
