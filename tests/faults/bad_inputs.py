"""Bad inputs for every command: files, options and run folders, each run in a forked process with limits.

Run `python -m tests.faults.bad_inputs --cases 10000 --seed 0`. A case fails if it ends with a traceback, with an
internal error, with an exit code that is not documented, by a signal, after more than 10 s of processor time, or with
more than 2 GB of memory above the memory of the process before.

Training stops after two steps, and figures are not drawn: neither depends on the input.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import io
import json
import os
import random
import resource
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, fields
from pathlib import Path
from unittest.mock import MagicMock

EXIT_CODES = (0, 1, 2, 4, 5)
"""Success, failed, interrupted, bad usage or data, nothing was checked. 3 is an internal error."""
MAX_SECONDS, MAX_WALL_SECONDS, MAX_BYTES = 10, 120, 2 * 10**9

STEPS = ("--steps", "1", "--law-cases", "0", "--threads", "1")
NO_STEPS = ("--law-cases", "0", "--threads", "1")
DATA = {
    "classify": ("table.csv", STEPS),
    "regress": ("numbers.csv", STEPS),
    "text": ("text.txt", ("--context-length", "8", "--dim", "8", *STEPS)),
    "translate": ("pairs.tsv", ("--dim", "8", *STEPS)),
    "classify-text": ("labeled.csv", ("--dim", "8", "--steps", "1", "--law-cases", "0", "--threads", "1")),
    "forecast": ("series.csv", ("--dim", "8", "--horizon", "2", *STEPS)),
    "pca": ("numbers.csv", NO_STEPS),
    "autoencode": ("numbers.csv", STEPS),
    "vae": ("numbers.csv", STEPS),
    "flow": ("numbers.csv", STEPS),
    "gan": ("numbers.csv", STEPS),
    "diffusion": ("numbers.csv", STEPS),
    "node-classify": ("edges.csv", ("--nodes", "nodes.csv", *STEPS)),
    "graph-classify": ("graphs.csv", ("--labels", "labels.csv", *STEPS)),
    "molecules": ("molecules.xyz", STEPS),
    "nbody": ("particles.npz", STEPS),
    "classify-sequence": ("arrays.npz", STEPS),
}
"""Data file and options of a small training of each recipe."""
USING = {
    "classify": ("predict",),
    "regress": ("predict",),
    "text": ("generate",),
    "translate": ("predict", "generate"),
    "classify-text": ("predict",),
    "forecast": ("predict",),
    "pca": ("sample", "score"),
    "autoencode": ("sample", "score"),
    "vae": ("sample", "score"),
    "flow": ("sample", "score"),
    "gan": ("sample",),
    "diffusion": ("sample", "score"),
    "node-classify": ("predict",),
    "molecules": ("predict",),
    "nbody": ("predict",),
    "classify-sequence": ("predict",),
}
"""Commands that use a run of each recipe."""
QUICK = ("classify", "pca")
"""Recipes of the default tests."""


# ---------------------------------------------------------------- valid inputs


def write_data(folder):
    """Writes a small valid file of every kind."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet
    from PIL import Image

    generator, chooser = np.random.default_rng(0), random.Random(0)
    x = generator.normal(size=(60, 3)).round(3)
    rows = [f"{a},{b},{c},{'red' if a > 0 else 'blue'},2024-01-{1 + i % 28:02d}" for i, (a, b, c) in enumerate(x)]
    kinds = ["cat" if i % 2 else "dog" for i in range(60)]
    table = "\n".join(f"{row},{kind}" for row, kind in zip(rows, kinds, strict=True))
    words = [
        "the",
        "cat",
        "sat",
        "on",
        "the",
        "mat",
        "and",
        "the",
        "dog",
        "saw",
        "the",
        "sun",
        "over",
        "the",
        "sea",
        "again",
    ]
    texts = [" ".join(chooser.choices(words, k=6)) for _ in range(60)]
    edges = "\n".join(f"{i},{(i + 1) % 30}\n{i},{(7 * i + 3) % 30}" for i in range(30))
    graphs = "\n".join(f"g{i},{j},{(j + 1) % (4 + i % 3)}" for i in range(24) for j in range(4 + i % 3))
    frames = "".join(
        f"3\nenergy={generator.normal():.3f}\n"
        + "".join(
            f"{e} {a:.3f} {b:.3f} {c:.3f}\n" for e, (a, b, c) in zip("OHH", generator.normal(size=(3, 3)), strict=True)
        )
        for _ in range(40)
    )
    files = {
        "table.csv": f"a,b,c,color,day,kind\n{table}\n",
        "table.tsv": f"a,b,c,color,day,kind\n{table}\n".replace(",", "\t"),
        "numbers.csv": "a,b,c\n" + "\n".join(f"{a},{b},{a + b:.3f}" for a, b, _ in x) + "\n",
        "text.txt": "\n".join(texts * 3),
        "pairs.tsv": "\n".join(f"{text}\t{text[::-1]}" for text in texts),
        "labeled.csv": "text,label\n" + "\n".join(f"{t},{k}" for t, k in zip(texts, kinds, strict=True)) + "\n",
        "series.csv": "day,value\n" + "\n".join(f"2024-{1 + i // 28:02d}-{1 + i % 28:02d},{i % 7}" for i in range(84)),
        "edges.csv": f"source,target\n{edges}\n",
        "nodes.csv": "id,size,kind\n" + "\n".join(f"{i},{i % 5},{'ab'[i % 2]}" for i in range(30)) + "\n",
        "graphs.csv": f"graph,source,target\n{graphs}\n",
        "labels.csv": "graph,kind\n" + "\n".join(f"g{i},{'ab'[i % 2]}" for i in range(24)) + "\n",
        "molecules.xyz": frames,
        "new.txt": "\n".join(texts[:5]),
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    np.savez(folder / "arrays.npz", x=generator.normal(size=(40, 2, 16)), y=np.arange(40) % 2)
    np.savez(folder / "points.npz", x=x, y=x[:, :1])
    np.savez_compressed(folder / "packed.npz", x=generator.normal(size=(40, 6)), y=np.arange(40) % 2)
    np.save(folder / "matrix.npy", x)
    np.savez(
        folder / "particles.npz",
        positions=generator.normal(size=(20, 14, 3, 3)),
        velocities=generator.normal(size=(20, 14, 3, 3)),
        charges=generator.choice([-1.0, 1.0], size=(20, 3)),
    )
    columns = {"a": x[:, 0], "color": ["red" if a > 0 else "blue" for a in x[:, 0]], "kind": kinds}
    pyarrow.parquet.write_table(pa.table(columns), folder / "table.parquet")
    for kind in ("cat", "dog"):
        (folder / "images" / kind).mkdir(parents=True)
        for i in range(6):
            Image.fromarray(generator.integers(0, 255, (8, 8), dtype=np.uint8)).save(folder / f"images/{kind}/{i}.png")
    Image.fromarray(generator.integers(0, 255, (12, 12, 3), dtype=np.uint8)).save(folder / "photo.png")
    mask = np.zeros((12, 12), np.uint8)
    mask[4:7, 4:7] = 255
    Image.fromarray(mask).save(folder / "mask.png")


def train_runs(folder, recipes):
    """Trains a run of every recipe."""
    from lawful.cli import main

    for name in recipes:
        data, options = DATA[name]
        with contextlib.redirect_stdout(sys.stderr):
            code = main(["train", name, "--data", data, *options, "--output-dir", "runs"])
        if code not in (0, 2):
            raise RuntimeError(f"the valid training of {name} ended with exit code {code}")


# ---------------------------------------------------------------- bad inputs

WORDS = (
    *(
        "0",
        "-1",
        "100000000000",
        "9223372036854775808",
        "-9223372036854775809",
        "1e308",
        "-1e-308",
        "nan",
        "inf",
        "-inf",
    ),
    *("", " ", "x", "None", "true", "[]", "{}", "\x00", "\x1b[31m", "ü", "\udcff", "a" * 5000, "../..", "/", ".", "-"),
    *("--", "1,2", "1 2", "0x10", "1_0", "../../etc/passwd", "missing.csv", "missing/file.csv", "images", "table.csv"),
)
VALUES = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        2,
        10**11,
        2**63,
        2**64,
        -(2**63),
        1e308,
        -1.5,
        "",
        "x",
        "\n",
        "\x1b]0;x\x07",
        "ü" * 50,
    ),
    *(
        [],
        {},
        [[]],
        [1, 2, 3],
        {"name": "x"},
        {"name": None},
        [10**9] * 4,
        "a" * 20_000,
        [0] * 3000,
        [[[[[[]]]]]],
        99_999,
    ),
    *(10**5, 10**6, 1000, 0.5, "digits", "iris", "../x", "/etc/passwd", "mlp", "table", [1], [100_000, 100_000]),
)
TOKENS = (
    *(
        b"",
        b"\0",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b'"',
        b'""',
        b"\n",
        b"\r",
        b"\r\n",
        b",",
        b";",
        b"\t",
        b"|",
        b"nan",
        b"inf",
    ),
    *(
        b"1e400",
        b"-",
        b"9" * 400,
        b"1" * 20,
        b"\xc3",
        b"\xf0\x9f\x98\x80",
        b"=1+1",
        b"\x1b[2J",
        b"{",
        b"]",
        b"#",
        b"%",
        b"NA",
    ),
    *(
        b"\xe2\x80\xae",
        b"\x85",
        b"\xe2\x80\xa8",
        b"0" * 50,
        b"a" * 100_000,
        b",,,,,,",
        b"\n\n\n",
        b"2024-13-45",
        b"1,5",
    ),
    *(
        (2**31 - 1).to_bytes(4, "little"),
        (2**32 - 1).to_bytes(4, "little"),
        (2**63 - 1).to_bytes(8, "little"),
        b"\xff" * 8,
    ),
)


def mutate(data, chooser, others=()):
    """Truncates, flips, replaces, repeats and splices bytes."""
    data = bytearray(data)
    for _ in range(chooser.choice([1, 1, 1, 2, 3, 8])):
        at = chooser.randrange(len(data) + 1)
        match chooser.randrange(9):
            case 0:
                del data[at:]
            case 1:
                for i in range(at, min(len(data), at + chooser.choice([1, 1, 4, 30]))):
                    data[i] ^= 1 << chooser.randrange(8)
            case 2 | 3:
                data[at : at + chooser.choice([0, 1, 3, 10])] = chooser.choice(TOKENS)
            case 4:
                del data[at : at + chooser.choice([1, 5, 50, 500])]
            case 5:
                data[at:at] = data[at : at + chooser.choice([5, 50, 500])] * chooser.choice([1, 3, 50])
            case 6 if others:
                other = chooser.choice(others)
                data[at:] = other[chooser.randrange(len(other) + 1) :]
            case 7:
                lines = bytes(data).split(b"\n")
                chooser.shuffle(lines)
                data = bytearray(b"\n".join(lines[: chooser.choice([1, 2, 3, len(lines)])]))
            case _:
                lines = bytes(data).split(b"\n")
                i = chooser.randrange(len(lines))
                cells = lines[i].split(b",")
                cells[chooser.randrange(len(cells))] = chooser.choice(TOKENS)
                lines[i] = b",".join(cells)
                data = bytearray(b"\n".join(lines))
    return bytes(data[:2_000_000])


def special(path, chooser):
    """Makes something at the path that is not a file, or not its own."""
    match chooser.randrange(8):
        case 0:
            os.mkfifo(path)
        case 1:
            path.symlink_to("/dev/zero")
        case 2:
            path.mkdir()
        case 3:
            path.symlink_to(path.name)
        case 4:
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(path.name)
        case 5:
            path.write_bytes(b"")
        case 6:
            path.joinpath(*["d"] * 120).mkdir(parents=True)
        case _:
            path.symlink_to("/")


def bad_file(folder, chooser):
    """Writes a bad file, and returns its name."""
    seeds = sorted(path for path in folder.iterdir() if path.is_file())
    seed = chooser.choice(seeds)
    suffix = chooser.choice(seeds).suffix if chooser.random() < 0.1 else seed.suffix
    path = folder / (chooser.choice(["bad", "bad", "bad", "b\udcffd", "b\nad", "=bad", "b\x1b[31mad"]) + suffix)
    if chooser.random() < 0.05:
        special(path, chooser)
    else:
        others = [chooser.choice(seeds).read_bytes()]
        path.write_bytes(mutate(seed.read_bytes(), chooser, others))
    return path.name, seed.name


def file_case(folder, chooser, recipes):
    """A command that reads a bad file."""
    name, seed = bad_file(folder, chooser)
    fitting = [recipe for recipe in recipes if Path(DATA[recipe][0]).suffix == Path(seed).suffix]
    recipe = chooser.choice(fitting or recipes) if chooser.random() < 0.9 else chooser.choice(recipes)
    data, options = DATA[recipe]
    if seed.endswith(".png") and chooser.random() < 0.5:
        images = ["photo.png", "mask.png"]
        images[chooser.randrange(2)] = name
        return ["inpaint", images[0], "--mask", images[1], "--output", "out.png"]
    if seed.endswith(".png"):
        shutil.move(folder / name, folder / "images" / "cat" / name)
        return ["train", chooser.choice(["classify", "vae", "pca"]), "--data", "images", *NO_STEPS]
    if chooser.random() < 0.35 and recipe in USING:
        commands = [command for command in USING[recipe] if command in ("predict", "score")]
        if commands:
            return [chooser.choice(commands), f"runs/{recipe}-001", name]
    if "--nodes" in options and chooser.random() < 0.5:
        options = tuple(name if option == "nodes.csv" else option for option in options)
        name = data
    return ["train", recipe, "--data", name, *options]


def option_case(folder, chooser, recipes):
    """A command with absurd options."""
    from lawful.training.registry import RECIPES, _unions

    using = ("predict", "sample", "score", "generate", "inpaint", "export", "runs", "laws")
    command = chooser.choice([*["train"] * 30, *using * 5, "check", "discover", "approximate"])
    if command == "train":
        recipe = chooser.choice(recipes)
        kind = RECIPES[recipe]
        names = [field.name for field in fields(kind)]
        names += [field.name for members in _unions(kind).values() for member in members for field in fields(member)]
        words = ["train", recipe, "--data", DATA[recipe][0], *DATA[recipe][1]]
        for name in chooser.sample(sorted(set(names)), chooser.choice([1, 1, 2, 3])):
            value = chooser.choice([*WORDS, str(chooser.choice(VALUES))])
            words += (
                [f"--{name.replace('_', '-')}{chooser.choice(['=', ' '])}{value}"]
                if chooser.random() < 0.3
                else [
                    f"--{name.replace('_', '-')}",
                    value,
                ]
            )
        return [*words, *(["--output-dir", chooser.choice([*WORDS, "table.csv/x"])] if chooser.random() < 0.1 else [])]
    options = {
        "predict": ("--nodes", "--output", "--horizon", "--num-samples", "--seed", "--drop-missing"),
        "sample": ("--n", "--output", "--label", "--guidance-scale", "--steps", "--no-noise", "--seed"),
        "score": ("--output", "--num-samples", "--seed"),
        "generate": ("--prompt", "--num-beams", "--temperature", "--top-k", "--top-p", "--min-p", "--stop", "--seed"),
        "inpaint": ("--mask", "--output", "--seed"),
        "export": ("--format", "--output", "--method"),
        "runs": ("--nothing", "--verify"),
        "laws": ("--nothing",),
        "check": ("--law", "--input", "--cases", "--seed", "--timeout", "--json", "--sarif", "--script", "--jobs"),
        "discover": ("--input", "--cases", "--seed", "--timeout", "--json"),
        "approximate": ("--box", "--error", "--output", "--levels", "--max-units"),
    }[command]
    run = f"runs/{chooser.choice([r for r in recipes if r in USING])}-001"
    if command in ("check", "discover", "approximate"):
        run = chooser.choice(["torch.nn:ReLU", "torch.nn:Missing", "nothing:x", "bad.py:x", "x**2", *WORDS])
    words = [command, *([run] if chooser.random() < 0.9 else [chooser.choice(WORDS)])]
    if command in ("predict", "score", "inpaint") and chooser.random() < 0.8:
        words.append(chooser.choice(["table.csv", "numbers.csv", "photo.png", "new.txt", *WORDS]))
    if command == "generate":
        words += ["--max-new-tokens", chooser.choice(["3", "0", "-1", "100000000000"])]
    for option in chooser.sample(options, min(len(options), chooser.choice([0, 1, 2]))):
        words += [option, chooser.choice(WORDS)]
    return words


def run_case(folder, chooser, recipes):
    """A command on a run whose files were changed."""
    recipe = chooser.choice([recipe for recipe in recipes if recipe in USING])
    run = folder / "runs" / f"{recipe}-001"
    files = sorted(
        path for path in run.rglob("*") if path.is_file() and path.suffix in (".json", ".jsonl", ".safetensors")
    )
    names = ["config.json"] * 8 + ["model.safetensors"] * 3 + ["results.json", "metrics.jsonl"]
    path = chooser.choice(files) if chooser.random() < 0.2 else run / chooser.choice(names)
    if not path.exists():
        path = run / "config.json"
    data = path.read_bytes()
    if path.suffix == ".json" and chooser.random() < 0.7:
        whole = json.loads(data)
        for _ in range(chooser.choice([1, 1, 2])):
            insert(whole, chooser)
        data = json.dumps(whole).encode()
    elif chooser.random() < 0.1:
        path.unlink()
        special(path, chooser)
        data = None
    else:
        data = mutate(data, chooser)
    if data is not None:
        path.write_bytes(data)
    name = f"runs/{recipe}-001"
    command = chooser.choice([*USING[recipe] * 4, "export", "runs", "resume"])
    if command == "resume":
        return ["train", "--resume", name]
    if command == "runs":
        return ["runs", "runs"]
    words = [command, name]
    if command in ("predict", "score") and recipe != "forecast":
        words += [DATA[recipe][0]]
    if command == "export":
        words += ["--format", "safetensors", "--output", "out.safetensors"]
    if command == "generate":
        words += ["--max-new-tokens", "3"]
    if command == "sample":
        words += ["--n", "2", "--output", "out.npy"]
    return words


def insert(value, chooser):
    """Replaces, removes or adds a value of JSON data."""
    while isinstance(value, dict | list) and value:
        key = chooser.choice(list(value) if isinstance(value, dict) else range(len(value)))
        if not isinstance(value[key], dict | list) or chooser.random() < 0.3:
            if chooser.random() < 0.15:
                del value[key]
            elif type(value[key]) is int and chooser.random() < 0.5:
                value[key] = chooser.choice([value[key] * 10**3, value[key] + 1, -value[key], 10**5, 10**9, 10**18])
            else:
                value[key] = chooser.choice(VALUES)
            return
        value = value[key]


KINDS = {"file": file_case, "option": option_case, "run": run_case}


# ---------------------------------------------------------------- execution


@dataclass
class Outcome:
    """What a command did."""

    words: list[str]
    kind: str
    seed: str
    code: int | None
    """Exit code; None if a signal ended it."""
    signal: int
    seconds: float
    bytes: int
    """Peak of the memory above that of the parent."""
    error: str

    @property
    def problem(self) -> str:
        """Why the case failed; empty if it did not."""
        if self.signal in (signal.SIGXCPU, signal.SIGKILL) or self.seconds > MAX_SECONDS:
            return "hang"
        if self.signal:
            return f"signal {self.signal}"
        if "Traceback (most recent" in self.error:
            return "traceback"
        if "internal error" in self.error or self.code == 3:
            return "internal error"
        if self.code not in EXIT_CODES:
            return f"exit code {self.code}"
        return "memory" if self.bytes > MAX_BYTES else ""


def prepare(folder, recipes):
    """Writes the valid inputs and trains the runs."""
    from lawful.probe import figures
    from lawful.training import loop

    os.chdir(folder)
    figures.save = MagicMock()
    step, count = loop._TrainingLoop.step, collections.Counter()

    def stop_early(self, *args):
        count[id(self)] += 1
        if count[id(self)] > 2:
            raise KeyboardInterrupt
        return step(self, *args)

    loop._TrainingLoop.step = stop_early
    write_data(folder)
    train_runs(folder, recipes)


def run_one(valid, seed, recipes, kinds=tuple(KINDS)):
    """Runs one case in a forked process."""
    chooser = random.Random(seed)
    kind = chooser.choice(kinds)
    with tempfile.TemporaryDirectory(prefix="bad") as place:
        folder = Path(place) / "data"
        shutil.copytree(valid, folder, symlinks=True)
        os.chdir(folder)
        words = KINDS[kind](folder, chooser, recipes)
        log = Path(place) / "log"
        start = time.monotonic()
        child = os.fork()
        if not child:
            _run_in_child(words, log)
        status, usage, late = _wait(child, start)
        os.chdir(valid)
        error = log.read_bytes().decode(errors="replace")
        before = int(log.with_name("before").read_text())
    return Outcome(
        words,
        kind,
        seed,
        os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else None,
        os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0,
        usage.ru_utime + usage.ru_stime + (MAX_SECONDS if late else 0),
        max(0, usage.ru_maxrss * 1024 - before),
        error,
    )


def _run_in_child(words, log):
    """Runs the command with limits. Does not return."""
    code = 99
    try:
        log.with_name("before").write_text(str(_resident()))  # the parent has more: mapped files are not copied
        output = os.open(log, os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 2)
        os.dup2(output, 1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), encoding="utf-8")
        sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), encoding="utf-8", errors="backslashreplace")
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MAX_BYTES, used + MAX_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (MAX_SECONDS, MAX_SECONDS + 1))
        resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_BYTES, MAX_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        from lawful.cli import main

        code = main([*words, *(["--debug"] if os.environ.get("DEBUG_CASE") else [])])
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _wait(child, start):
    while True:
        pid, status, usage = os.wait4(child, os.WNOHANG)
        if pid:
            return status, usage, False
        if time.monotonic() - start > MAX_WALL_SECONDS:
            os.kill(child, signal.SIGKILL)
            _, status, usage = os.wait4(child, 0)
            return status, usage, True
        time.sleep(0.002)


def _resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def run_cases(seeds, recipes, report=lambda outcome: None, kinds=tuple(KINDS)):
    """Runs cases, and returns those that failed, the number of each exit code, and the largest memory and time."""
    import torch

    from lawful.recipes import generate, predict  # noqa: F401  the forked processes need not import them
    from lawful.training.registry import RECIPES

    torch.set_num_threads(1)
    for name in recipes:
        assert RECIPES[name]
    failed, codes, memory, seconds = [], collections.Counter(), 0, 0.0
    back = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="valid") as place:
        valid = Path(place)
        try:
            prepare(valid, recipes)
            for seed in seeds:
                outcome = run_one(valid, seed, recipes, kinds)
                codes[outcome.code] += 1
                memory, seconds = max(memory, outcome.bytes), max(seconds, outcome.seconds)
                if outcome.problem:
                    failed.append(outcome)
                    report(outcome)
        finally:
            os.chdir(back)
    return failed, codes, memory, seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="only the recipes of the default tests")
    options = parser.parse_args()
    recipes = list(QUICK if options.quick else DATA)

    def report(outcome):
        lines = outcome.error.strip().splitlines()
        print(f"{outcome.problem}: {outcome.seed}: {outcome.words!r:.300}")
        print("   ", "\n    ".join(line[:300] for line in lines[-12:]), flush=True)

    seeds = [f"{options.seed}-{i}" for i in range(options.first, options.first + options.cases)]
    failed, codes, memory, seconds = run_cases(seeds, recipes, report)
    problems = collections.Counter(outcome.problem for outcome in failed)
    print(
        f"{options.cases} cases, exit codes {dict(codes)}, problems {dict(problems)}, largest memory "
        f"{memory / 1e6:.0f} MB, longest {seconds:.1f} s"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
