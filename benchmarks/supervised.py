"""How good the supervised recipes are with their own settings: test accuracy over seeds, and the time it takes.

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

from lawful.recipes import ClassifyRecipe
from lawful.recipes.data import SupervisedData
from lawful.training import TrainerConfig, train

TASKS = {
    "digits, mlp": ("digits", "mlp", {}),
    "digits, cnn": ("digits", "cnn", {}),
    "MNIST-1D, cnn": ("mnist1d", "cnn", {}),
}


def machine(given: SupervisedData) -> float:
    """The accuracy of a support vector machine with radial basis functions."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    parts = given.parts("classify")
    (x, y), (asked, right) = ((p.inputs.flatten(1).numpy(), p.targets.numpy()) for p in (parts.train, parts.test))
    scale = float(x.std())
    found = make_pipeline(StandardScaler(with_std=False), SVC(C=10.0, gamma="scale")).fit(x / scale, y)
    return float(found.score(asked / scale, right))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, one thread, {len(seeds)} seeds\n")
    print("| task | test accuracy, mean | least | processor, s a run | 5 nearest | support vector machine |")
    print("|---|---|---|---|---|---|")
    for name, (data, model, options) in TASKS.items():
        found, taken, near, peer = [], [], [], []
        for seed in seeds:
            given = SupervisedData(data=data, validation=0.0, split=seed)
            recipe = ClassifyRecipe(model=model, given=given, engine=TrainerConfig(seed=seed, threads=1), **options)
            start = time.process_time()
            with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
                results = train(recipe, folder=folder).results
            taken.append(time.process_time() - start)
            found.append(results["test"]["accuracy"]["value"])
            near.append(results["baseline accuracy"]["5 nearest examples"]["value"])
            peer.append(machine(given))
        means = [100 * statistics.mean(values) for values in (found, near, peer)]
        print(
            f"| {name} | {means[0]:.2f} % | {100 * min(found):.2f} % | {statistics.median(taken):.1f} "
            f"| {means[1]:.2f} % | {means[2]:.2f} % |",
            flush=True,
        )


if __name__ == "__main__":
    main()
