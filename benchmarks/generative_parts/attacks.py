"""Attacks against torchattacks, foolbox and ART, at equal gradient calls.

A small CNN on the built-in digits, with 500 test images in [0, 1] that no attack was tuned on. Strength is robust
accuracy (lower is stronger) over five seeds of the random start; for minimal-norm attacks, the success rate and the
mean norm. Time is CPU time, interleaved in one run, as a ratio to ours. The last column is the largest perturbation in
float32 minus eps: above 0 it left the ball. Install torchattacks with `pip install --no-deps torchattacks==3.5.1`: its
requirements would replace PyTorch.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from lawful.inference.attacks import FGSM, L1, L2, PGD, CarliniWagner, DeepFool

SEEDS, STEPS = 5, 40


def train_classifier() -> tuple[nn.Module, Tensor, Tensor]:
    """A classifier and its test examples."""
    torch.manual_seed(0)
    digits = load_digits()
    x, y = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16, torch.tensor(digits.target)
    order = torch.randperm(len(x))
    train, test = order[:-500], order[-500:]
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(1024, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(12):
        for batch in train[torch.randperm(len(train))].split(64):
            loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model.eval().requires_grad_(False), x[test], y[test]


Attack = Callable[[int], Tensor]


def print_bounded(model: nn.Module, x: Tensor, y: Tensor, attacks: dict[str, Attack], norm: float, eps: float) -> None:
    """Prints robust accuracy, time and the largest excess over eps of each attack."""
    seconds: dict[str, list[float]] = {name: [] for name in attacks}
    accuracy: dict[str, list[float]] = {name: [] for name in attacks}
    excess = dict.fromkeys(attacks, -torch.inf)
    for seed in range(SEEDS):
        for name, attack in attacks.items():
            torch.manual_seed(seed)
            start = time.process_time()
            adversarial = attack(seed).detach()
            seconds[name].append(time.process_time() - start)
            with torch.no_grad():
                accuracy[name].append(100 * float((model(adversarial).argmax(1) == y).float().mean()))
            largest = float(torch.linalg.vector_norm((adversarial - x).flatten(1), norm, dim=1).max())
            excess[name] = max(excess[name], largest - eps)
    ours = next(iter(attacks))
    for name in attacks:
        low, high = min(accuracy[name]), max(accuracy[name])
        ratio = statistics.median(t / own for t, own in zip(seconds[name], seconds[ours], strict=True))
        row = f"| {name} | {statistics.mean(accuracy[name]):.1f} | {low:.1f} to {high:.1f} |"
        print(f"{row} {statistics.median(seconds[name]):.2f} | {ratio:.2f} | {excess[name]:+.1e} |", flush=True)


def print_minimal(model: nn.Module, x: Tensor, y: Tensor, attacks: dict[str, Attack]) -> None:
    """Prints the success rate and the mean norm of each attack."""
    for name, attack in attacks.items():
        torch.manual_seed(0)
        start = time.process_time()
        adversarial = attack(0).detach()
        seconds = time.process_time() - start
        with torch.no_grad():
            fooled, misclassified = model(adversarial).argmax(1) != y, model(x).argmax(1) != y
        norm = (adversarial - x).flatten(1).norm(dim=1)[fooled & ~misclassified].mean()
        print(f"| {name} | {100 * float(fooled.float().mean()):.1f} | {float(norm):.4f} | {seconds:.1f} |", flush=True)


def run() -> None:
    """Prints the tables."""
    warnings.simplefilter("ignore")
    import art
    import foolbox
    import torchattacks
    from art.attacks.evasion import CarliniL2Method, ProjectedGradientDescentPyTorch
    from art.estimators.classification import PyTorchClassifier

    model, x, y = train_classifier()
    with torch.no_grad():
        clean = 100 * float((model(x).argmax(1) == y).float().mean())
    versions = f"torchattacks 3.5.1, foolbox {foolbox.__version__}, ART {art.__version__}"
    print(f"## Attacks on a CNN for digits, 500 images, {clean:.1f} % clean; {versions}; one thread, {SEEDS} seeds")
    box = foolbox.PyTorchModel(model, bounds=(0, 1))
    other = PyTorchClassifier(model, nn.CrossEntropyLoss(), (1, 8, 8), 10, clip_values=(0.0, 1.0), device_type="cpu")

    def fool(attack, eps=None):
        return attack(box, x, y, epsilons=eps)[1]

    def art_pgd(norm, eps):
        attack = ProjectedGradientDescentPyTorch(
            other, norm=norm, eps=eps, eps_step=2.5 * eps / STEPS, max_iter=STEPS, batch_size=500, num_random_init=1,
            verbose=False,
        )  # fmt: skip
        return torch.from_numpy(attack.generate(x.numpy(), y.numpy()))

    heading = "| | robust accuracy, % | seeds | seconds | time to ours | over eps |\n|---|---|---|---|---|---|"
    fa, size = foolbox.attacks, 0.1
    print(f"\nL-inf, eps {size}, {STEPS} gradient calls\n\n{heading}")
    print_bounded(
        model,
        x,
        y,
        {
            "lawful PGD": lambda seed: PGD(eps=size, steps=STEPS, seed=seed)(model, x, y),
            "lawful PGD, early stop": lambda seed: PGD(eps=size, steps=STEPS, seed=seed, stop_margin=0.0)(model, x, y),
            "lawful PGD with momentum": lambda seed: PGD(eps=size, steps=STEPS, seed=seed, momentum=1.0)(model, x, y),
            "torchattacks PGD": lambda _: torchattacks.PGD(model, size, 2.5 * size / STEPS, STEPS)(x, y),
            "torchattacks MI-FGSM": lambda _: torchattacks.MIFGSM(model, size, 2.5 * size / STEPS, STEPS)(x, y),
            "torchattacks APGD": lambda seed: torchattacks.APGD(model, eps=size, steps=STEPS, seed=seed)(x, y),
            "foolbox PGD": lambda _: fool(fa.LinfPGD(rel_stepsize=2.5 / STEPS, steps=STEPS), size),
            "ART PGD": lambda _: art_pgd("inf", size),
        },
        torch.inf,
        size,
    )
    print(f"\nL-inf, eps {size}, one gradient call\n\n{heading}")
    print_bounded(
        model,
        x,
        y,
        {
            "lawful FGSM": lambda _: FGSM(eps=size)(model, x, y),
            "torchattacks FGSM": lambda _: torchattacks.FGSM(model, size)(x, y),
            "foolbox FGSM": lambda _: fool(fa.LinfFastGradientAttack(), size),
        },
        torch.inf,
        size,
    )
    two = 0.6
    print(f"\nL2, eps {two}, {STEPS} gradient calls\n\n{heading}")
    print_bounded(
        model,
        x,
        y,
        {
            "lawful PGD": lambda seed: PGD(eps=two, norm=L2(), steps=STEPS, seed=seed)(model, x, y),
            "torchattacks PGDL2": lambda _: torchattacks.PGDL2(model, two, 2.5 * two / STEPS, STEPS)(x, y),
            "torchattacks APGD": lambda seed: torchattacks.APGD(model, "L2", two, STEPS, seed=seed)(x, y),
            "foolbox L2PGD": lambda _: fool(fa.L2PGD(rel_stepsize=2.5 / STEPS, steps=STEPS), two),
            "ART PGD": lambda _: art_pgd(2, two),
        },
        2,
        two,
    )
    one = 2.0
    print(f"\nL1, eps {one}, {STEPS} gradient calls\n\n{heading}")
    print_bounded(
        model,
        x,
        y,
        {
            "lawful PGD": lambda seed: PGD(eps=one, norm=L1(), steps=STEPS, seed=seed)(model, x, y),
            "foolbox SparseL1": lambda _: fool(fa.SparseL1DescentAttack(rel_stepsize=2.5 / STEPS, steps=STEPS), one),
            "ART PGD": lambda _: art_pgd(1, one),
        },
        1,
        one,
    )
    print("\nThe shortest change, L2\n\n| | fooled, % | mean length | seconds |\n|---|---|---|---|")
    rounds, calls = 5, 60
    ours = CarliniWagner(binary_search_steps=rounds, steps=calls)
    art_cw = CarliniL2Method(
        other, binary_search_steps=rounds, max_iter=calls, learning_rate=0.05, initial_const=1.0, batch_size=500,
        verbose=False,
    )  # fmt: skip
    print_minimal(
        model,
        x,
        y,
        {
            f"lawful CarliniWagner, {rounds} x {calls}": lambda _: ours(model, x, y),
            f"foolbox, {rounds} x {calls}": lambda _: fool(
                fa.L2CarliniWagnerAttack(rounds, calls, 0.05, initial_const=1.0)
            ),
            f"torchattacks, 1 x {rounds * calls}": lambda _: torchattacks.CW(model, 1, 0, rounds * calls, 0.05)(x, y),
            "lawful DeepFool": lambda _: DeepFool()(model, x, y),
            "foolbox DeepFool": lambda _: fool(fa.L2DeepFoolAttack()),
            f"ART, {rounds} x {calls}": lambda _: torch.from_numpy(art_cw.generate(x.numpy(), y.numpy())),
        },
    )
