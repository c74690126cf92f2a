"""Test accuracy and time of the supervised recipes with their defaults, over several seeds.

Run `OMP_NUM_THREADS=1 python benchmarks/supervised.py`. Each seed is another stratified 80/20 split, other initial
weights and another order of the examples; nothing is held out for validation, and nothing was chosen by the test. Time
is the processor's, of the whole run from reading the data to the report. The peers are the five nearest examples and a
support vector machine of scikit-learn's, on the same split and inputs.
"""

from __future__ import annotations

import argparse
import io
import statistics
import tempfile
import time
from contextlib import redirect_stdout

import torch

from lawful.recipes import ClassifyRecipe, CNNSpec, MLPSpec
from lawful.training import train

TASKS = {
    "digits, MLP": ("digits", MLPSpec()),
    "digits, CNN": ("digits", CNNSpec()),
    "MNIST-1D, CNN": ("mnist1d", CNNSpec()),
}


def svm_accuracy(recipe: ClassifyRecipe) -> float:
    """Returns the test accuracy of a support vector machine with an RBF kernel."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    splits = recipe.load_splits("classify")
    (x, y), (new, labels) = ((p.inputs.flatten(1).numpy(), p.targets.numpy()) for p in (splits.train, splits.test))
    scale = float(x.std())
    svm = make_pipeline(StandardScaler(with_std=False), SVC(C=10.0, gamma="scale")).fit(x / scale, y)
    return float(svm.score(new / scale, labels))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, one thread, {len(seeds)} seeds\n")
    print("| task | test accuracy, mean | least | processor, s a run | 5 nearest | support vector machine |")
    print("|---|---|---|---|---|---|")
    for name, (data, model) in TASKS.items():
        found, taken, near, peer = [], [], [], []
        for seed in seeds:
            recipe = ClassifyRecipe(
                data=data, model=model, seed=seed, split_seed=seed, validation_fraction=0.0, threads=1
            )
            start = time.process_time()
            with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
                results = train(recipe, output_dir=folder).results
            taken.append(time.process_time() - start)
            found.append(results["test"]["accuracy"]["value"])
            near.append(results["baseline accuracy"]["5 nearest neighbors"]["value"])
            peer.append(svm_accuracy(recipe))
        means = [100 * statistics.mean(values) for values in (found, near, peer)]
        print(
            f"| {name} | {means[0]:.2f} % | {100 * min(found):.2f} % | {statistics.median(taken):.1f} "
            f"| {means[1]:.2f} % | {means[2]:.2f} % |",
            flush=True,
        )


if __name__ == "__main__":
    main()
