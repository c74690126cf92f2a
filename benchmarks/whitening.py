"""How long standardising and whitening take at 100,000 x 64: `lawful` against scikit-learn.

Run `OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks/whitening.py`. The peers are `StandardScaler` and
`PCA(whiten=True)`. Both are measured in turn in the same run, on one thread, in processor time; the table gives
medians, the ratio, below 1 where lawful is faster, and the middle half of the ratios. Both are first shown to give the
same numbers, up to the sign of an axis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sklearn
import torch
from measure import compare, row
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits
from torch import Tensor

from lawful.functions.whitening import Standardizer, Whitening, cholesky, pca_whitening, zca_whitening

ROWS, FEATURES, ROUNDS = 100_000, 64, 15


def same(ours: Tensor, peer: Any) -> None:
    """Ends the run unless the numbers are the same, up to the sign of each column."""
    other = torch.from_numpy(peer)
    other = other * (ours * other).sum(0).sign()
    torch.testing.assert_close(ours, other, rtol=1e-2, atol=1e-2)


def main() -> None:
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    turn = torch.linalg.qr(torch.randn(FEATURES, FEATURES, generator=generator, dtype=torch.float64)).Q
    noise = torch.randn(ROWS, FEATURES, generator=generator, dtype=torch.float64)
    wide = noise * torch.linspace(1, 8, FEATURES) @ turn + 3
    print(f"torch {torch.__version__}, scikit-learn {sklearn.__version__}, one thread, {ROUNDS} rounds")
    print("| | lawful, ms | scikit-learn, ms | ratio | middle half |")
    print("|---|---|---|---|---|")
    for dtype in (torch.float32, torch.float64):
        x = wide.to(dtype)
        data, kind = x.numpy(), str(dtype).removeprefix("torch.")
        scaler, turned = StandardScaler().fit(data), PCA(whiten=True).fit(data)
        ours = Standardizer.fit(x)
        same(ours.transform(x), scaler.transform(data))
        print(
            row(
                f"Standardizer.fit, {kind}",
                compare(lambda: Standardizer.fit(x), lambda: StandardScaler().fit(data), rounds=ROUNDS),
            ),
            flush=True,
        )
        print(
            row(
                f"Standardizer.transform, {kind}",
                compare(lambda: ours.transform(x), lambda: scaler.transform(data), rounds=ROUNDS),
            ),
            flush=True,
        )
        print(
            row(
                f"Standardizer.inverse, {kind}",
                compare(lambda: ours.inverse(x), lambda: scaler.inverse_transform(data), rounds=ROUNDS),
            ),
            flush=True,
        )
        for rotation in (pca_whitening, zca_whitening, cholesky):
            fitted, name = Whitening.fit(x, rotation=rotation), f"{rotation.__name__}, {kind}"
            if rotation is pca_whitening:
                same(fitted.transform(x), turned.transform(data))

            def fit(rotation: Callable[[Tensor], Tensor] = rotation) -> Tensor:
                return Whitening.fit(x, rotation=rotation).weight

            print(
                row(f"Whitening.fit, {name}", compare(fit, lambda: PCA(whiten=True).fit(data), rounds=ROUNDS)),
                flush=True,
            )
            print(
                row(
                    f"Whitening.transform, {name}",
                    compare(lambda: fitted.transform(x), lambda: turned.transform(data), rounds=ROUNDS),
                ),
                flush=True,
            )
        print(
            row(
                f"Whitening.inverse, {kind}",
                compare(lambda: fitted.inverse(x), lambda: turned.inverse_transform(data), rounds=ROUNDS),
            ),
            flush=True,
        )


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
