"""Runs trainings in several forked processes, as torchrun does, so that PyTorch is imported once.

Usage: `python processes.py JOBS`, a JSON list of jobs. For each job it prints a line of JSON with output and exit
codes of its processes. Under torchrun, it is one process of the first job.
"""

import faulthandler
import json
import os
import signal
import socket
import sys
import tempfile
from pathlib import Path

import torch
import torch._dynamo  # every optimizer imports it: import it once, before forking
import torch.distributed.fsdp
import torch.distributed.tensor
from torch import nn

from lawful.data.batches import ShuffledBatches
from lawful.optim import adamw, max_norm, muon_with_adamw
from lawful.training import OptimizerStep, Run, TrainerConfig, TrainingFailed, TrainingSetup, train


class Net(nn.Module):
    """Blocks in a list, sizes that three does not divide, and a loss that does not call `forward`."""

    def __init__(self, *, dropout=0.0, norm=False):
        super().__init__()
        self.embed = nn.Linear(4, 8)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(2)])
        self.norm = nn.BatchNorm1d(8) if norm else nn.Identity()
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(8, 1)

    def score(self, x):
        h = self.embed(x)
        for block in self.blocks:
            h = h + block(h)
        return self.head(self.dropout(self.norm(h)))

    def forward(self, x):
        return self.score(x)


class SignalingBatches:
    """Batches that send a signal to one process at one step."""

    def __init__(self, batches, *, at, rank, number):
        self.batches, self.at, self.rank, self.number = batches, at, rank, number

    def __len__(self):
        return len(self.batches)

    def batch(self, step):
        if step == self.at and int(os.environ.get("RANK", "0")) == self.rank:
            os.kill(os.getpid(), self.number)
        return self.batches.batch(step)


def make_setup(job):
    torch.manual_seed(0)
    x = torch.randn(98, 4, dtype=torch.float64)
    y = x.sum(1, keepdim=True).sin()
    if "nan_row" in job:
        x[job["nan_row"]] = torch.nan
    model = Net(dropout=job.get("dropout", 0.0), norm=job.get("norm", False)).double()
    if job.get("tied"):
        model.blocks[1][0].weight = model.blocks[0][0].weight
    if job.get("frozen"):
        model.blocks[0].requires_grad_(False)

    def loss(model, batch):
        inputs, targets = batch
        found = nn.functional.mse_loss(model.score(inputs), targets)
        if job.get("penalty"):
            found = found + 0.01 * model.blocks[0][0].weight.square().sum() + 0.01 * model.head.weight.abs().sum()
        return {"loss": found, "size": found.new_tensor(float(len(inputs)))}

    def second(model, batch):
        return model.embed(batch[0]).square().mean()

    optimizers = {"adamw": lambda m: adamw(m.parameters(), lr=0.01), "muon": lambda m: muon_with_adamw(m, lr=0.01)}
    optimizers["sgd"] = lambda m: torch.optim.SGD(m.parameters(), lr=0.05)
    steps = [
        OptimizerStep(
            loss_fn=loss, optimizer=optimizers[job.get("optimizer", "adamw")](model), grad_clip_norm=job.get("clip")
        )
    ]
    if job.get("two_optimizers"):
        steps = [
            OptimizerStep(name="one", loss_fn=loss, optimizer=torch.optim.Adam(model.blocks.parameters(), lr=0.01)),
            OptimizerStep(name="two", loss_fn=second, optimizer=torch.optim.Adam(model.embed.parameters(), lr=0.01)),
        ]
    batches = ShuffledBatches(x, y, batch_size=32, seed=0)
    if "signal" in job:
        at, rank, name = job["signal"]
        batches = SignalingBatches(batches, at=at, rank=rank, number=getattr(signal, name))
    return TrainingSetup(
        model=model,
        optimizer_steps=steps,
        batches=batches,
        steps=job.get("steps", 12),
        evaluate=lambda m: {"loss": float(nn.functional.mse_loss(m(x[:20]), y[:20]))},
        eval_every=5,
        grad_accumulation_steps=job.get("grad_accumulation_steps", 1),
        ema_decay=job.get("ema_decay"),
        constrain=(lambda m: max_norm(m, limit=0.8)) if job.get("constrain") else None,
    )


def work(job):
    """Trains in one process."""
    trainer = TrainerConfig(
        parallel=job.get("parallel", "data"), checkpoint_every=job.get("checkpoint_every", 1000), law_cases=0, threads=1
    )
    resume = Run(job["resume"]) if "resume" in job else None
    try:
        run = train(make_setup(job), trainer=trainer, output_dir=job["folder"], resume=resume)
        print("RUN", run.path)
        return 0
    except TrainingFailed as error:
        print("FAILED", error)
        return 3


def start(rank, size, port, job, out):
    """Forks a process."""
    if pid := os.fork():
        return pid
    if size > 1:
        os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank)}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    code = 1
    try:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
        faulthandler.dump_traceback_later(60, exit=True)
        code = work(job)
    except SystemExit as error:
        code = int(error.code or 0)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def run(job):
    size = job.get("size", 1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    outs = [tempfile.TemporaryFile("w+") for _ in range(size)]  # noqa: SIM115
    pids = [start(rank, size, port, job, out) for rank, out in enumerate(outs)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    output = []
    for out in outs:
        out.seek(0)
        output.append(out.read())
        out.close()
    return {"codes": codes, "output": output}


if __name__ == "__main__":
    torch.set_num_threads(1)
    jobs, made = json.loads(Path(sys.argv[1]).read_text()), {}
    if "RANK" in os.environ:
        sys.exit(work(jobs[0]))
    for job in jobs:
        if "after" in job:
            job["resume"] = made[job["after"]]
        found = run(job)
        folders = sorted(Path(job["folder"]).glob("net-*")) if Path(job["folder"]).is_dir() else []
        made[job["name"]] = job.get("resume") or (str(folders[-1]) if folders else "")
        print(json.dumps({"name": job["name"], "run": made[job["name"]], **found}), flush=True)
