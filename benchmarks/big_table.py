"""Memory and processor time of one epoch on a table of 1,000,000 rows (67 MB of CSV).

Run `OMP_NUM_THREADS=1 python benchmarks/big_table.py`; `--rows 20000` for another size, `--recipe regress` for one
recipe.

The table has four columns of decimals, two of integers, two of categories, one of dates and a class. Each recipe runs
in a fresh process that imports lawful and the libraries of the recipe first. The figures are the processor time after
the imports, for reading, encoding, one epoch, evaluation and report, and the peak of the resident memory above the
memory after the imports, relative to the size of the file.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

COLORS = ("red", "green", "blue", "yellow", "black", "white")


def write_table(path: Path, rows: int) -> None:
    """Writes the table."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(rows, 4))
    counts = generator.integers(0, 10**4, size=(rows, 2))
    color, city = generator.integers(0, len(COLORS), rows), generator.integers(0, 40, rows)
    days = (np.datetime64("2015-01-01") + generator.integers(0, 3000, rows)).astype(str)
    kind = np.where(x[:, 0] + (color == 2) + generator.normal(size=rows) > 0, "yes", "no")
    with path.open("w", encoding="utf-8") as file:
        file.write("a,b,c,count,number,color,city,day,kind,d\n")
        for i in range(rows):
            numbers = f"{x[i, 0]:.4f},{x[i, 1]:.4f},{x[i, 2]:.4f},{counts[i, 0]},{counts[i, 1]}"
            file.write(f"{numbers},{COLORS[color[i]]},city{city[i]:02d},{days[i]},{kind[i]},{x[i, 3] + x[i, 1]:.4f}\n")


def train(recipe: str, table: str) -> None:
    """Trains in this process, and prints the figures."""
    from lawful.cli import main

    for module in ("pyarrow.csv", "pyarrow.compute", f"lawful.recipes.{recipe}", "lawful.training"):
        importlib.import_module(module)
    before = resource.getrusage(resource.RUSAGE_SELF)
    target = {"classify": "kind", "regress": "d"}[recipe]
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        code = main(["train", recipe, "--data", table, "--target", target, "--epochs", "1", "--output-dir", folder])
    after = resource.getrusage(resource.RUSAGE_SELF)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"code": code, "seconds": seconds, "before": before.ru_maxrss, "peak": after.ru_maxrss}))


def main() -> None:
    """Measures each recipe."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10**6)
    parser.add_argument("--recipe", choices=("classify", "regress"))
    parser.add_argument("--table", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.table:
        train(options.recipe, options.table)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "big.csv"
        write_table(path, options.rows)
        size = path.stat().st_size
        print(f"{options.rows:,} rows, {size / 1e6:.1f} MB")
        for recipe in [options.recipe] if options.recipe else ["classify", "regress"]:
            command = [sys.executable, __file__, "--recipe", recipe, "--table", str(path)]
            found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            before, peak = found["before"] * 1024, found["peak"] * 1024
            print(
                f"{recipe}: exit code {found['code']}, {found['seconds']:.1f} s of processor time, peak "
                f"{peak / 1e6:.0f} MB, {before / 1e6:.0f} MB after the imports: {(peak - before) / size:.1f} times the "
                "file above them"
            )


if __name__ == "__main__":
    main()
