"""Attacks on the user of a foreign run folder: links in place of every file, and hostile text in every string.

python -m tests.faults.attacks FOLDER
"""

import argparse
import hashlib
import io
import json
import os
import random
import shutil
import signal
import sys
from contextlib import redirect_stderr, redirect_stdout, suppress
from html.parser import HTMLParser
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from lawful.cli import main as lawful
from lawful.training import Run, train
from lawful.training.report import write_report
from tests.recipes import test_every_option as options

SECRET = "a secret of the user 4711"
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "\x1b]0;title\x07\x1b[2J\x9b31m",
    "a\n2026-01-01 00:00:00  forged\nlawful: error: forged",
    "=cmd|' /C calc'!A0",
    "\u202eabc\u2066",
    "../../../../nowhere/secret.txt",
    "</pre></section><iframe srcdoc='<script>alert(1)</script>'>",
    "'); alert(1); ('",
    "javascript:alert(1)",
)
FILE_LINKS = ("file", "relative", "dangling", "loop", "zero", "pipe", "hard", "same")
FOLDER_LINKS = ("folder", "relative folder", "dangling folder")
SECONDS = 60
ADDRESSES = {"href", "src", "xlink:href", "action", "formaction", "data", "poster", "srcset", "background", "ping"}
"""Attributes whose value a browser opens. Others, such as `aria-label` and `alt`, are text."""


def digest(folder):
    """Returns names and contents of a folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        found[str(path.relative_to(folder))] = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "-"
    return found


def commands(run, recipe, out):
    """Returns the commands that a user runs on a folder of others."""
    yield ["runs", str(run.parent)]
    yield ["runs", str(run.parent), "--verify"]
    yield ["export", str(run), "--output", str(out / "model.safetensors")]
    if recipe == "classify":
        yield ["predict", str(run), "table.csv", "--output", str(out / "predictions.csv")]
    if recipe == "text":
        yield ["generate", str(run), "--max-new-tokens", "3"]
    if recipe == "pca":
        yield ["sample", str(run), "-n", "2", "--output", str(out / "samples.csv")]
        yield ["score", str(run), "numbers.csv", "--output", str(out / "scores.csv")]
    yield ["train", "--resume", str(run)]


def run_commands(run, recipe, out):
    """Runs all commands; returns the text that they print, and their exit codes."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    shown, codes = io.StringIO(), []
    for words in commands(run, recipe, out):
        signal.alarm(SECONDS)
        with redirect_stdout(shown), redirect_stderr(shown):
            codes.append(lawful(words))
        signal.alarm(0)
    with suppress(ValueError, OSError):
        write_report(Run(run))
    return shown.getvalue(), codes


def replace_by_link(path, kind, home):
    """Puts a link, or a pipe, in place of a file or folder."""
    whole = path.read_bytes() if path.is_file() else b""
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    target = home / ("folder" if "folder" in kind else "secret.txt")
    match kind:
        case "file" | "folder":
            path.symlink_to(target)
        case "relative" | "relative folder":
            path.symlink_to(os.path.relpath(target, path.parent))
        case "dangling" | "dangling folder":
            path.symlink_to(home / f"new {kind}")
        case "loop":
            path.symlink_to(path.name)
        case "zero":
            path.symlink_to("/dev/zero")
        case "pipe":
            os.mkfifo(path)
        case "hard":
            os.link(target, path)
        case "same":
            (home / "same").write_bytes(whole)
            os.link(home / "same", path)


def problems_of_text(text):
    """Returns what is wrong with printed text: control characters, forged lines, internal errors."""
    found = [f"control character {c!r}" for c in set(text) if not c.isprintable() and c != "\n"]
    for line in text.splitlines():
        if line.startswith(("2026-01-01 00:00:00", "lawful: error: forged", "forged")):
            found.append(f"forged line {line!r}")
        if "internal error" in line or "Traceback" in line:
            found.append(line)
    return found


class Tags(HTMLParser):
    """Collects what could run code."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        if tag in ("iframe", "object", "embed", "base", "form"):
            self.found.append(tag)
        for name, value in attributes:
            # browsers ignore spaces and control characters
            address = "".join(c for c in value or "" if c > " ").lower()
            if name.startswith("on") or name == "srcdoc" or (name in ADDRESSES and address.startswith("javascript:")):
                self.found.append(f"{tag} {name}={value}")
            if tag == "script" and name == "src":
                self.found.append("script with src")
        self.found += ["script"] if tag == "script" else []


def insert(value, draw):
    """Returns JSON with hostile text in some strings and keys."""
    if isinstance(value, dict):
        return {(draw.choice(HOSTILE) if draw.random() < 0.1 else k): insert(v, draw) for k, v in value.items()}
    if isinstance(value, list):
        return [insert(entry, draw) for entry in value]
    return draw.choice(HOSTILE) if isinstance(value, str) and draw.random() < 0.5 else value


def hostile_strings(run, draw):
    """Writes hostile text into results, metrics, tensor names and file names, and sometimes the configuration."""
    for name in ("checksums.json", *(["config.json"] if draw.random() < 0.5 else []), "results.json"):
        path = run / name
        if name == "checksums.json":
            path.unlink()
        else:
            path.write_text(json.dumps(insert(json.loads(path.read_text()), draw)))
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line.pop("crc")
        line[draw.choice(HOSTILE)] = draw.choice((1.0, draw.choice(HOSTILE)))
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for folder in ("samples", "figures", "state"):
        for text in HOSTILE:
            name = text.replace("/", "_") + draw.choice((".txt", ".csv", ".png", ""))
            (run / folder / name).write_text(draw.choice(HOSTILE))
    if draw.random() < 0.3:
        tensors = load_file(run / "model.safetensors")
        save_file({draw.choice(HOSTILE): tensor for tensor in tensors.values()}, run / "model.safetensors")
    for step in (run / "state").glob("step-0*"):
        (step / draw.choice(HOSTILE).replace("/", "_")).write_text("x")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--strings", type=int, default=200, help="number of runs with hostile text")
    parser.add_argument("--every", type=int, default=1, help="use every n-th attack")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)

    class Folders:
        def mktemp(self, name):
            (folder / name).mkdir(exist_ok=True)
            return folder / name

    data = options.data.__wrapped__(Folders())
    next(data)
    home, out, place = folder / "home", folder / "out", folder / "foreign"
    failures, attacks, number, draw = [], 0, 0, random.Random(0)
    with options.plain_figures():
        for recipe in ("classify", "pca", "text"):
            with redirect_stdout(io.StringIO()):
                whole = train(recipe, output_dir=folder / "runs", **options.BASES[recipe].options).path
            names = [path.relative_to(whole) for path in sorted(whole.rglob("*"))]
            of_files, of_folders = FILE_LINKS + FOLDER_LINKS[:1], FOLDER_LINKS + FILE_LINKS[:1]
            kinds = {name: of_files if (whole / name).is_file() else of_folders for name in names}
            cases = [(name, kind) for name in names for kind in kinds[name]]
            cases += [(None, index) for index in range(arguments.strings // 3)]
            for name, kind in cases:
                number += 1
                if number % arguments.every:
                    continue
                attacks += 1
                for path in (home, place):
                    shutil.rmtree(path, ignore_errors=True)
                (home / "folder").mkdir(parents=True)
                for secret in ("secret.txt", "folder/secret.txt"):
                    (home / secret).write_text(SECRET)
                run = Path(shutil.copytree(whole, place / f"{recipe}-001"))
                if name is None:
                    hostile_strings(run, draw)
                else:
                    replace_by_link(run / name, kind, home)
                before = digest(home)
                try:
                    shown, codes = run_commands(run, recipe, out)
                except BaseException as error:
                    failures.append(f"{recipe} {name} {kind}: {type(error).__name__}: {error}")
                    continue
                report = run / "report.html"
                text = report.read_text(errors="replace") if report.is_file() and not report.is_symlink() else ""
                tags = Tags()
                tags.feed(text)
                found = problems_of_text(shown)
                found += [f"report: {tag}" for tag in tags.found if tag != "script"]
                found += ["report: scripts"] if tags.found.count("script") > 1 else []
                found += ["the user's files have changed"] if digest(home) != before else []
                found += ["internal error"] if 3 in codes else []
                leaked = [shown, text] + [path.read_text(errors="replace") for path in out.iterdir() if path.is_file()]
                found += ["a secret was read"] if any(SECRET in part for part in leaked) and kind != "hard" else []
                failures += [f"{recipe} {name} {kind}: {text}" for text in found]
    data.close()
    sys.stdout.write(json.dumps({"attacks": attacks, "failures": failures}) + "\n")


if __name__ == "__main__":
    main()
