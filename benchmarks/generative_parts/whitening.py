"""Whitening and probabilistic PCA of rank-deficient data, against scikit-learn.

The first dataset is that of scikit-learn's issue 29534; others are similar. Three pixels of the digits are constant.
`max |z|` is the largest whitened number, `|cov - 1|` the largest entry of the covariance of the components minus the
identity. Scores are mean log-densities of held-out rows, in nats. Covariances divide by N in lawful and by N - 1 in
scikit-learn, and each is judged by its own convention.
"""

from __future__ import annotations

import warnings

import sklearn
import torch
from sklearn import decomposition
from sklearn.datasets import load_digits, make_low_rank_matrix

from lawful.functions.whitening import Whitening, zca_whitening
from lawful.models.generative import PCA


def low_rank(rows: int, features: int, rank: int, shift: float = 0.0) -> torch.Tensor:
    found = make_low_rank_matrix(rows, features, effective_rank=rank, tail_strength=0, random_state=0)
    return torch.from_numpy(found) + shift


def distance_to_identity(z: torch.Tensor, correction: int) -> float:
    return float((z.mT.cov(correction=correction) - torch.eye(z.shape[1])).abs().max())


def distance_to_projection(z: torch.Tensor, axes: torch.Tensor) -> float:
    return float((z.mT.cov(correction=0) - axes @ axes.mT).abs().max())


def score(model: decomposition.PCA, rows: torch.Tensor) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return f"{model.score(rows.numpy()):.4g}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def run() -> None:
    """Prints both tables."""
    digits = torch.from_numpy(load_digits().data)
    digits = digits[torch.randperm(len(digits), generator=torch.Generator().manual_seed(0))]
    sets = {
        "make_low_rank_matrix(1000, 10, effective_rank=2)": low_rank(1000, 10, 2),
        "the same, 1000 x 100, effective_rank=10": low_rank(1000, 100, 10),
        "the same, far from 0 (+ 10)": low_rank(1000, 100, 10, shift=10.0),
        "the same, 20000 x 50, effective_rank=8": low_rank(20_000, 50, 8),
        "fewer rows than features, 50 x 500": low_rank(50, 500, 8),
        "digits, 1797 x 64": digits,
    }
    print(f"\nscikit-learn {sklearn.__version__}, torch {torch.__version__}, float64, no randomness\n")
    print(
        "| data | scikit-learn: kept, max abs z, abs(cov - 1) | its svd_solver='full' | lawful PCA: kept, max abs z, "
        "abs(cov - 1) | lawful ZCA: abs(cov - projection) | data put back, off by |"
    )
    print("|---|---|---|---|---|---|")
    for name, x in sets.items():
        cells = []
        for solver in ("auto", "full"):
            z = torch.from_numpy(decomposition.PCA(whiten=True, svd_solver=solver).fit_transform(x.numpy()))
            cells.append(f"{z.shape[1]}, {float(z.abs().max()):.5g}, {distance_to_identity(z, 1):.1e}")
        model = PCA().fit(x)
        z, y = model.whiten(x), model.zca(x)
        cells.append(f"{len(model.components)}, {float(z.abs().max()):.5g}, {distance_to_identity(z, 0):.1e}")
        cells.append(f"{distance_to_projection(y, model.components.mT):.1e}")
        cells.append(f"{float((model.inverse_zca(y) - x).abs().max()):.1e}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)

    print("\n| data, four fifths fitted, one fifth scored | scikit-learn's score | lawful's score | rows not finite |")
    print("|---|---|---|---|")
    for name, x in sets.items():
        cut = len(x) * 4 // 5
        train, test = x[:cut], x[cut:]
        ours = PCA().fit(train).log_prob(test)
        peer = score(decomposition.PCA(whiten=True).fit(train.numpy()), test)
        print(
            f"| {name} | {peer} | {float(ours.mean()):.4g} | {int((~ours.isfinite()).sum())} of {len(test)} |",
            flush=True,
        )

    streamed = PCA(61).fit_batches(digits.split(100))
    exact = PCA().fit(digits)
    off = float((streamed.explained_variance / exact.explained_variance - 1).abs().max())
    by_moments = Whitening.fit(digits, method=zca_whitening)
    same = float((by_moments.transform(digits) - exact.zca(digits)).abs().max())
    print(f"\ndigits, batches of 100: relative error of the variances of PCA.fit_batches at most {off:.1e}.")
    print(f"digits: PCA.zca and Whitening(method=zca_whitening), from the covariance, differ by {same:.1e} at most.")


if __name__ == "__main__":
    run()
