"""Second derivations of the metrics of samples."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from lawful.inference.metrics import (
    class_coverage,
    frechet_distance,
    gaussian_frechet,
    gaussian_kernel,
    mmd,
    mode_coverage,
    neighbor_coverage,
)
from lawful.laws import Claim, Draw, Equal, Map, Statement, agreement, law, permutation_invariance, tokens, transformed


@law("d(x R, y R) = d(x, y), R orthogonal", every_input=True, discover_with=None)
def _joint_rotation_invariance(f: Map, x: Tensor, y: Tensor, *, draw: Draw) -> Statement:
    """Rotating both sets of features does not change the distance.

    Satisfied by: distances of means and covariances; kernels of distances or of inner products.
    Broken by: variances feature by feature.
    """
    turn = torch.linalg.qr(draw.normal(x.shape[1], x.shape[1])).Q
    return Equal(f(x @ turn, y @ turn), f(x, y))


def _frechet_claims() -> Iterator[Claim]:
    """Laws of the Fréchet distance."""

    def distance(x: Tensor, y: Tensor) -> Tensor:
        return x.new_tensor(frechet_distance(x, y))

    def wide(x: Tensor) -> Tensor:
        return x.tanh() + torch.cat([torch.eye(2), -torch.eye(2)]).to(x)

    data = (transformed(wide, "4 2"), transformed(wide, "4 2"))
    yield Claim(_joint_rotation_invariance(), distance, data, name="frechet_distance")
    yield Claim(agreement(other=lambda x, y: distance(y, x)), distance, data, name="frechet_distance(y, x)")

    def commuting(x: Tensor) -> Tensor:
        means, scales = x[0].tanh(), x[1:].tanh() + 2
        pair = [torch.diag(s.square()) for s in scales]
        return gaussian_frechet(means, pair[0], torch.zeros_like(means), pair[1])

    def along_axes(x: Tensor) -> Tensor:
        return x[0].tanh().square().sum() + (x[1].tanh() - x[2].tanh()).square().sum()

    yield Claim(
        agreement(other=along_axes),
        commuting,
        transformed(torch.clone, "3 3"),
        name="gaussian_frechet, one set of axes",
    )

    def by_eigenvalues(x: Tensor, y: Tensor) -> Tensor:
        a, b = (z.double().mT.cov() for z in (x, y))
        overlap = torch.linalg.eigvals(a @ b).real.clamp_min(0).sqrt().sum()
        return ((x.double().mean(0) - y.double().mean(0)).square().sum() + (a + b).trace() - 2 * overlap).to(x)

    yield Claim(agreement(other=by_eigenvalues), distance, data, name="frechet_distance, by eigenvalues of a product")


def _mmd_claims() -> Iterator[Claim]:
    """Laws of the maximum mean discrepancy."""
    data = (transformed(torch.tanh, "n:2..4 2"), transformed(torch.tanh, "m:2..4 2"))

    def distance(x: Tensor, y: Tensor) -> Tensor:
        return x.new_tensor([mmd(x, y, rows=2), mmd(x, y, kernel=partial(gaussian_kernel, width=0.7), rows=3)])

    def reference(x: Tensor, y: Tensor) -> Tensor:
        def mean(k: Callable[[Tensor, Tensor], Tensor], a: Tensor, b: Tensor) -> Tensor:
            return torch.stack(
                [k(u, v) for i, u in enumerate(a) for j, v in enumerate(b) if a is not b or i != j]
            ).mean()

        def pair(k: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
            return mean(k, x, x) + mean(k, y, y) - 2 * mean(k, x, y)

        cubic, gaussian = lambda a, b: (a @ b / 2 + 1) ** 3, lambda a, b: (-(a - b).square().sum() / 0.98).exp()
        return torch.stack([pair(cubic), pair(gaussian)])

    yield Claim(replace(agreement(other=reference), cases=10), distance, data, name="mmd")
    yield Claim(_joint_rotation_invariance(), distance, data, name="mmd")
    yield Claim(permutation_invariance(axis=0, input=0), distance, data, name="mmd")


def _coverage_claims() -> Iterator[Claim]:
    """Laws of coverage."""
    modes = torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0]])

    def counts(x: Tensor) -> Tensor:
        found = mode_coverage(x, modes, scale=0.25, num_stds=2.0)
        return x.new_tensor([*found.counts, found.coverage, found.quality])

    def reference(x: Tensor) -> Tensor:
        apart = (x[:, None].double() - modes).square().sum(-1)
        counts = ((apart <= 0.25) & (apart == apart.amin(1, keepdim=True))).sum(0)
        return torch.cat([counts, (counts > 0).double().mean()[None], (counts.sum() / len(x))[None]]).to(x)

    places = transformed(lambda x: (4 * x.tanh()).round() / 3 + 0.1, "n 2")
    yield Claim(agreement(other=reference), counts, places, name="mode_coverage")

    def spread(labels: Tensor) -> Tensor:
        return torch.tensor(class_coverage(labels, num_classes=3).divergence(torch.tensor([2.0, 1.0, 1.0])))

    def from_entropy(labels: Tensor) -> Tensor:
        p = torch.nn.functional.one_hot(labels.long(), 3).double().mean(0)
        return torch.nn.functional.kl_div(torch.tensor([0.5, 0.25, 0.25]).log(), p, reduction="sum").float()

    yield Claim(
        agreement(other=from_entropy), spread, tokens("n:1..9", vocab_size=3), name="class_coverage, divergence"
    )

    def among(x: Tensor, y: Tensor) -> Tensor:
        found = neighbor_coverage(x, y, k=2)
        return x.new_tensor([found.precision, found.density, found.recall, found.coverage])

    def balls(x: Tensor, y: Tensor) -> Tensor:
        def reach(z: Tensor) -> Tensor:
            return (z[:, None] - z).norm(dim=-1).sort(dim=1).values[:, 2]

        x, y = x.double(), y.double()
        apart = (x[:, None] - y).norm(dim=-1)
        real, fake = apart <= reach(x)[:, None], apart <= reach(y)
        figures = [real.any(0).double().mean(), real.double().mean() * len(x) / 2, fake.any(1).double().mean()]
        return torch.stack([*figures, real.any(1).double().mean()])

    sides = (
        transformed(lambda x: x.tanh() + torch.arange(5.0)[:, None].to(x).square() / 7, "5 2"),
        transformed(torch.tanh, "4 2"),
    )
    same = agreement(other=lambda x, y: balls(x, y).to(x))
    yield Claim(same, among, sides, name="neighbor_coverage")


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _frechet_claims()
    yield from _mmd_claims()
    yield from _coverage_claims()
