"""Fuzzes what reads files, with coverage as a guide: `python tests/faults/fuzz/run.py --seconds 20`.

Each target gets its share of the time in a separate process. An exception other than `ValueError`, a hang or more
than 4 GB of memory ends it with the input that did it.
"""

import argparse
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[3]


def fuzz(name, seconds, folder):
    """Runs one target for a time; it does not return."""
    import atheris

    with atheris.instrument_imports(include=["lawful.training.storage", "lawful.data.tables", "safetensors", "json"]):
        from tests.faults.fuzz.targets import SEEDS, TARGETS

    def one(data):
        with suppress(ValueError):
            TARGETS[name](data)

    for i, seed in enumerate(SEEDS[name]):
        (Path(folder) / f"seed{i}").write_bytes(seed)
    limits = ["-rss_limit_mb=4096", "-timeout=20", "-max_len=8192", f"-artifact_prefix={folder}/", "-verbosity=0"]
    atheris.Setup([sys.argv[0], f"-max_total_time={seconds}", "-print_final_stats=1", *limits, str(folder)], one)
    atheris.Fuzz()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=20, help="altogether, but for the time to start")
    parser.add_argument("--target", help="one only")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    if options.inside:
        fuzz(options.target, options.seconds, options.inside)
    from tests.faults.fuzz.targets import TARGETS

    failed = []
    names = [options.target] if options.target else list(TARGETS)
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            share = str(max(1, options.seconds // len(names)))
            command = [sys.executable, __file__, "--target", name, "--seconds", share, "--inside", folder]
            done = subprocess.run(command, capture_output=True, text=True, errors="replace")
            counts = [line for line in done.stderr.splitlines() if "number_of_executed_units" in line]
            print(f"{name}: {counts[0].split()[-1] if counts else 'no'} inputs, {'bad' if done.returncode else 'good'}")
            if done.returncode:
                failed.append(name)
                print(done.stderr[-3000:] + done.stdout[-2000:])
                for path in [*Path(folder).glob("crash-*"), *Path(folder).glob("timeout-*")]:
                    print(path.name, path.read_bytes()[:2000])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
