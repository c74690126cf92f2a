"""Training in one process, or in several with DDP or FSDP under torchrun."""

from __future__ import annotations

import copy
import gc
import itertools
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from datetime import timedelta
from functools import cache
from inspect import signature
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from lawful.data.batches import Batch
from lawful.training.checkpoint import _full, _is_sharded, _preserve_module, module_state, preserve_rng
from lawful.training.setup import TrainerConfig, TrainingSetup, _as_metrics, _objective_name

_TIMEOUT = timedelta(minutes=10)
"""How long a process waits for a silent one. A process that ended is noticed at once."""
_EXIT_NOTE_SECONDS = 5.0
"""How long a process waits for the reasons why others ended."""
_TEXT_BYTES = 4096
"""Longest text that processes exchange."""
_MIN_SHARD = 2
"""Smallest number of examples per process: BatchNorm has no variance over one."""

_group_count = itertools.count()


class _SingleProcess:
    """One process with the whole model and the whole batch; the base class of the others."""

    rank = 0
    world_size = 1
    command = "lawful"

    def attach(self, setup: TrainingSetup, *, device: str) -> None:
        """Sets the model and the losses."""
        self.setup, self.model, self.device = setup, setup.model, device

    def shard_batch(self, batch: Batch) -> tuple[Batch, float]:
        """Returns this process's part of a batch, and its size relative to an equal part."""
        return batch, 1.0

    def num_microbatches(self, batch: Batch) -> int:
        """Returns the number of gradient accumulation steps for a batch."""
        return min(self.setup.grad_accumulation_steps, len(batch[0]))

    def loss(self, index: int, batch: Batch) -> Tensor | Mapping[str, Tensor]:
        """Computes the loss of an optimizer step."""
        return self.setup.optimizer_steps[index].loss_fn(self.model, batch)

    def gradient_sync(self, *, last: bool) -> AbstractContextManager[object]:
        """Returns the context of a backward pass; only the last of a step averages gradients over processes."""
        return nullcontext()

    def mean_metrics(self, metrics: dict[str, float], weight: float) -> dict[str, float]:
        """Returns the weighted mean of metrics over processes."""
        return metrics

    def sync_buffers(self, weight: float) -> None:
        """Averages the buffers that a step changed, such as running means, over processes."""

    def evaluate(self) -> Mapping[str, float]:
        """Returns the validation metrics, the same in every process."""
        return self.setup.evaluate(self.model) if self.setup.evaluate else {}

    def any(self, *flags: bool) -> tuple[bool, ...]:
        """Returns for each flag whether it is set in any process."""
        return flags

    def first_text(self, text: str | None) -> str | None:
        """Returns the text of the first process that has one."""
        return text

    def barrier(self) -> None:
        """Waits for all processes."""

    def sharded_like(self, name: str, shape: Sequence[int]) -> Tensor | None:
        """Returns the DTensor whose placement a checkpoint's tensor takes, if any."""
        return None

    def full_model(self) -> nn.Module:
        """Returns the model with full weights on rank 0."""
        return self.model

    def failure_message(self, error: BaseException, message: str | None, *, step: int) -> str | None:
        """Returns the message of a failure in any process. Processes that have nothing to report exit."""
        return message

    def close(self, *, failed: bool) -> None:
        """Leaves the process group."""


def _join(config: TrainerConfig) -> _SingleProcess:
    """Joins the process group that torchrun started, or returns a single process.

    Raises:
        ValueError: If the options are not supported together.
    """
    world_size = int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1
    if world_size == 1:
        return _SingleProcess()
    if config.parallel == "data":
        return _DataParallel(config)
    if config.precision == "float16":
        raise ValueError("parallel='sharded' does not support precision='float16': use bfloat16 or parallel='data'")
    return _FSDP(config)


class _LossModule(nn.Module):
    """A module whose forward pass is a loss of the model, so that DDP and FSDP can wrap it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(self.model, *args)


class _MultiProcess(_SingleProcess, ABC):
    """Several processes that each compute the loss of a part of the batch.

    The mean over the batch is the mean over the parts, weighted by their sizes. So the number of processes changes the
    result only by rounding (and in layers that use batch statistics).

    Args:
        config: Trainer options.
    """

    def __init__(self, config: TrainerConfig) -> None:
        if config.device == "cuda":
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        self.device = config.device
        self.wrapped: Any = None
        self.store = dist.PrefixStore(f"lawful/{next(_group_count)}", _store())
        self.rank, self.world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        local = os.environ.get("LOCAL_WORLD_SIZE", str(self.world_size))
        self.command = f"torchrun --nproc-per-node {local} -m lawful"
        backend = "cpu:gloo,cuda:nccl" if config.device == "cuda" else "gloo"
        dist.init_process_group(backend, store=self.store, rank=self.rank, world_size=self.world_size, timeout=_TIMEOUT)

    def attach(self, setup: TrainingSetup, *, device: str) -> None:
        super().attach(setup, device=device)
        for tensor in (*self.model.parameters(), *self.model.buffers()):
            dist.broadcast(tensor.detach(), 0)
        self.wrap()

    @abstractmethod
    def wrap(self) -> None:
        """Wraps the model in DDP or FSDP."""

    def trial_batch(self) -> Batch:
        """Returns this process's part of the first batch."""
        batch, _ = self.shard_batch(self.setup.batches.batch(0))
        batch = tuple(tensor.to(self.device) for tensor in batch)
        return self.setup.augment(batch) if self.setup.augment else batch

    def shard_batch(self, batch: Batch) -> tuple[Batch, float]:
        self.versions = {name: buffer._version for name, buffer in self.model.named_buffers()}
        total = len(batch[0])
        shards = max(1, min(self.world_size, total // _MIN_SHARD))
        self.largest_shard = -(-total // shards)
        if self.rank >= shards:  # takes part in the collectives with weight 0
            return tuple(tensor[:_MIN_SHARD] for tensor in batch), 0.0
        own = tuple(tensor.tensor_split(shards)[self.rank] for tensor in batch)
        return own, len(own[0]) * self.world_size / total

    def num_microbatches(self, batch: Batch) -> int:
        return min(self.setup.grad_accumulation_steps, self.largest_shard)

    def mean_metrics(self, metrics: dict[str, float], weight: float) -> dict[str, float]:
        names = sorted(metrics)
        own = [metrics[name] * weight / self.world_size if weight else 0.0 for name in names]
        total = torch.tensor(own, dtype=torch.float64)
        dist.all_reduce(total)
        return dict(zip(names, total.tolist(), strict=True))

    def sync_buffers(self, weight: float) -> None:
        for name, buffer in self.model.named_buffers():
            if buffer._version == self.versions.get(name):
                continue
            if buffer.is_floating_point():
                buffer.mul_(weight / self.world_size) if weight else buffer.zero_()
                dist.all_reduce(buffer)
            else:
                dist.broadcast(buffer, 0)

    def evaluate(self) -> Mapping[str, float]:
        metrics = self.call_unsharded(super().evaluate)
        values = torch.tensor([float(value) for value in metrics.values()], dtype=torch.float64)
        dist.broadcast(values, 0)
        return dict(zip(metrics, values.tolist(), strict=True))

    def call_unsharded(self, function: Callable[[], Mapping[str, float]]) -> Mapping[str, float]:
        """Calls a function that uses the model outside of the loss."""
        return function()

    def any(self, *flags: bool) -> tuple[bool, ...]:
        numbers = torch.tensor([int(flag) for flag in flags])
        dist.all_reduce(numbers, dist.ReduceOp.MAX)
        return tuple(map(bool, numbers.tolist()))

    def first_text(self, text: str | None) -> str | None:
        data = (text or "").encode()[:_TEXT_BYTES]
        own = torch.tensor([*data, *bytes(_TEXT_BYTES - len(data))], dtype=torch.uint8)
        gathered = [torch.empty_like(own) for _ in range(self.world_size)]
        dist.all_gather(gathered, own)
        texts = (bytes(t.tolist()).rstrip(b"\0").decode(errors="ignore") for t in gathered)
        return next(filter(None, texts), None)

    def barrier(self) -> None:
        dist.all_reduce(torch.zeros(1))

    def failure_message(self, error: BaseException, message: str | None, *, step: int) -> str | None:
        """Returns the message of a failure in the first process that is left; the others exit silently.

        Every process leaves the reason why it ended in the store, an empty one if only the connection failed. A process
        that was killed leaves none.
        """
        lost_connection = _is_connection_error(error)
        reason = "" if lost_connection else message or f"{type(error).__name__}: {error}"
        with suppress(RuntimeError):
            self.store.set(f"exit/{self.rank}", reason)
        if not lost_connection:
            if message is None or self.rank == 0:
                return message
            raise SystemExit(1) from error
        reasons = self._exit_reasons()
        if min(reasons) < self.rank:
            raise SystemExit(1) from error
        if failed := [f"process {rank}: {text}" for rank, text in sorted(reasons.items()) if text]:
            return "\n".join(failed)
        lost = [str(rank) for rank in range(self.world_size) if rank not in reasons]
        if not lost:
            return f"the processes lost their connection at step {step}: {error}"
        return f"lost process {', '.join(lost)} at step {step}"

    def _exit_reasons(self) -> dict[int, str]:
        """Returns the reasons of the processes that ended, by rank."""
        reasons, deadline = {self.rank: ""}, time.monotonic() + _EXIT_NOTE_SECONDS
        with suppress(RuntimeError):  # the store is lost too
            while len(reasons) < self.world_size and time.monotonic() < deadline:
                for rank in range(self.world_size):
                    if rank not in reasons and self.store.check([f"exit/{rank}"]):
                        reasons[rank] = self.store.get(f"exit/{rank}").decode()
                time.sleep(0.05)
        return reasons

    def close(self, *, failed: bool) -> None:
        self.wrapped = None
        gc.collect()  # DDP must release the group before the interpreter exits, or it deadlocks
        if dist.is_initialized() and not (failed and self.device == "cuda"):
            dist.destroy_process_group()


class _DataParallel(_MultiProcess):
    """The whole model in every process, with averaged gradients (DDP)."""

    def wrap(self) -> None:
        weights = [p for p in self.model.parameters() if p.requires_grad]
        if not weights or not self.setup.steps:
            return
        (unused,) = self.any(len(self.setup.optimizer_steps) > 1 or not self.has_all_gradients(weights))
        self.wrapped = DistributedDataParallel(_LossModule(self.model), find_unused_parameters=unused, **_NO_SYNC)
        self.has_all_gradients(weights)

    def has_all_gradients(self, weights: list[nn.Parameter]) -> bool:
        """Computes a gradient without side effects, and returns whether every weight has one.

        DDP sums gradients in the order of their first arrival. After this trial, a resumed run sums in the same order
        as an uninterrupted one from its first step on, with the same rounding.
        """
        with preserve_rng(), _preserve_module(self.model):
            self.model.train()
            metrics = _as_metrics(self.loss(0, self.trial_batch()))
            metrics[_objective_name(metrics)].backward()
            return all(p.grad is not None for p in weights)

    def loss(self, index: int, batch: Batch) -> Tensor | Mapping[str, Tensor]:
        if self.wrapped is None:
            return super().loss(index, batch)
        return self.wrapped(self.setup.optimizer_steps[index].loss_fn, batch)

    def gradient_sync(self, *, last: bool) -> AbstractContextManager[object]:
        return nullcontext() if last or self.wrapped is None else self.wrapped.no_sync()

    def full_model(self) -> nn.Module:
        self.wrapped = None
        return self.model


_RENAMED = "forward_sync_buffers" in signature(DistributedDataParallel).parameters
_NO_SYNC: dict[str, Any] = {"forward_sync_buffers" if _RENAMED else "broadcast_buffers": False}
"""Leaves buffers to `sync_buffers`. PyTorch 2.13 renamed the option."""


@cache
def _store() -> dist.Store:
    """Returns torchrun's key-value store, which outlives the processes."""
    store, _, _ = next(dist.rendezvous("env://", timeout=_TIMEOUT))
    return store


def _is_connection_error(error: BaseException) -> bool:
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))


class _FSDP(_MultiProcess):
    """Rows of each weight, gradient and optimizer state in every process (FSDP2).

    Weights are gathered while a loss is computed, block by block where possible.
    """

    def wrap(self) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        self.meta_model = _with_tensors(self.model, {n: t.to("meta") for n, t in module_state(self.model).items()})
        names = {id(p): name for name, p in self.model.named_parameters()}
        for name, p in self.model.named_parameters():
            if not p.dim():
                raise ValueError(f"parallel='sharded' cannot shard the scalar {name}: give it the shape (1,)")
        mesh = init_device_mesh(self.device, (self.world_size,))
        self.wrapped = _LossModule(self.model)
        for block in self.self_contained_blocks():
            fully_shard(block, mesh=mesh)
        fully_shard(self.wrapped, mesh=mesh)
        sharded = dict(self.model.named_parameters())
        for step in self.setup.optimizer_steps:
            if step.optimizer.state:
                raise ValueError("parallel='sharded' needs a new optimizer, got one that has taken steps")
            gather = _GatherForMatrixOptimizers()
            step.optimizer.register_step_pre_hook(gather.enable)
            step.optimizer.register_step_post_hook(gather.disable)
            for group in step.optimizer.param_groups:
                group["params"] = [sharded[names[id(p)]] for p in group["params"]]

    def self_contained_blocks(self) -> list[nn.Module]:
        """Returns the blocks whose weights are used only in their own forward passes, found by a trial.

        Weights that something else reads, such as a penalty or a tied layer, are gathered with the whole model.
        """
        blocks = _repeated_blocks(self.model)
        if not blocks or not self.setup.steps:
            return []
        uses = _ParameterUses(blocks)
        with ExitStack() as stack, preserve_rng(), _preserve_module(self.model):
            for i, block in enumerate(blocks):
                before = block.register_forward_pre_hook(lambda *_, i=i: uses.enter(i))
                after = block.register_forward_hook(lambda *_, i=i: uses.leave(i))
                stack.callback(before.remove)
                stack.callback(after.remove)
            self.model.train()
            batch = self.trial_batch()
            for step in self.setup.optimizer_steps:
                with uses:
                    step.loss_fn(self.model, batch)
        own = [bool(ran and not outside) for ran, outside in zip(uses.ran, uses.read_outside, strict=True)]
        contained = torch.tensor(own, dtype=torch.uint8)
        dist.all_reduce(contained, dist.ReduceOp.MIN)
        return [block for block, alone in zip(blocks, contained.tolist(), strict=True) if alone]

    def loss(self, index: int, batch: Batch) -> Tensor | Mapping[str, Tensor]:
        return self.wrapped(self.setup.optimizer_steps[index].loss_fn, batch)

    def gradient_sync(self, *, last: bool) -> AbstractContextManager[object]:
        self.wrapped.set_requires_gradient_sync(last)
        return nullcontext()

    def call_unsharded(self, function: Callable[[], Mapping[str, float]]) -> Mapping[str, float]:
        result = self.wrapped(lambda model: function())
        self.wrapped.reshard()
        return result

    def sharded_like(self, name: str, shape: Sequence[int]) -> Tensor | None:
        _, _, rest = name.partition(".")
        weights = dict(self.model.named_parameters())
        return weights.get(rest, weights.get(rest.rpartition(".")[0]))

    def full_model(self) -> nn.Module:
        tensors = {name: _full(tensor.detach()) for name, tensor in module_state(self.model).items()}
        return _with_tensors(self.meta_model, tensors) if self.rank == 0 else self.model


class _GatherForMatrixOptimizers(TorchFunctionMode):
    """Lets an optimizer that needs full matrices, such as Muon, step with sharded parameters.

    Tensors that are stacked are gathered first. Full tensors that meet sharded ones are cut to this process's rows.
    """

    def enable(self, *_: object) -> None:
        self.__enter__()

    def disable(self, *_: object) -> None:
        self.__exit__(None, None, None)

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.stack:
            args = ([_full(tensor) for tensor in args[0]], *args[1:])
        lists = [arg for arg in args if isinstance(arg, list)]
        if sharded := next((group for group in lists if any(map(_is_sharded, group))), None):
            args = tuple([*map(_shard_like, arg, sharded)] if isinstance(arg, list) else arg for arg in args)
        return func(*args, **kwargs or {})


def _shard_like(tensor: Any, like: Any) -> Any:
    from torch.distributed.tensor import distribute_tensor

    full = isinstance(tensor, Tensor) and not _is_sharded(tensor)
    if full and _is_sharded(like) and tensor.shape == like.shape:
        return distribute_tensor(tensor, like.device_mesh, like.placements, src_data_rank=None)
    return tensor


class _ParameterUses(TorchFunctionMode):
    """Records which blocks run, and which have parameters that are read while the block does not run."""

    def __init__(self, blocks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.owners: dict[int, list[int]] = {}
        for i, block in enumerate(blocks):
            for p in block.parameters():
                self.owners.setdefault(id(p), []).append(i)
        self.running, self.ran, self.read_outside = ([0] * len(blocks) for _ in range(3))

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
                self.read_outside[i] |= not self.running[i]
        return func(*args, **kwargs or {})


def _repeated_blocks(model: nn.Module) -> list[nn.Module]:
    """Returns the outermost entries of `ModuleList` and `Sequential` that contain layers."""
    blocks: list[nn.Module] = []
    inside: set[int] = set()
    for module in model.modules():
        if id(module) in inside or not isinstance(module, nn.ModuleList | nn.Sequential):
            continue
        for entry in module:
            if any(list(child.parameters()) for child in entry.children()):
                blocks.append(entry)
                inside |= {id(inner) for inner in entry.modules()}
    return list(dict.fromkeys(blocks))


def _with_tensors(model: nn.Module, tensors: Mapping[str, Tensor]) -> nn.Module:
    """Copies a model with its tensors replaced. Shared tensors stay shared."""
    memo: dict[int, object] = {}
    for name, old in module_state(model).items():
        new = tensors[name]
        memo[id(old)] = nn.Parameter(new, requires_grad=old.requires_grad) if isinstance(old, nn.Parameter) else new
    return copy.deepcopy(model, memo)
