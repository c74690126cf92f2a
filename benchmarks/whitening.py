"""Time of standardization and whitening of 100,000 x 64 numbers: `lawful` against scikit-learn.

Run `OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks/whitening.py`. The peers are `StandardScaler` and
`PCA(whiten=True)`, interleaved in the same run, on one thread, in processor time. The table gives medians, the ratio
(below 1: lawful is faster) and the middle half of the ratios. Results are first compared, up to the sign of an axis.
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

from lawful.functions import Standardizer, Whitening, cholesky_whitening, pca_whitening, zca_whitening

ROWS, FEATURES, ROUNDS = 100_000, 64, 15


def check_equal(ours: Tensor, peer: Any) -> None:
    """Raises unless the results are equal, up to the sign of each column."""
    other = torch.from_numpy(peer)
    other = other * (ours * other).sum(0).sign()
    torch.testing.assert_close(ours, other, rtol=1e-2, atol=1e-2)


def main() -> None:
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    rotation = torch.linalg.qr(torch.randn(FEATURES, FEATURES, generator=generator, dtype=torch.float64)).Q
    noise = torch.randn(ROWS, FEATURES, generator=generator, dtype=torch.float64)
    wide = noise * torch.linspace(1, 8, FEATURES) @ rotation + 3
    print(f"torch {torch.__version__}, scikit-learn {sklearn.__version__}, one thread, {ROUNDS} rounds")
    print("| | lawful, ms | scikit-learn, ms | ratio | middle half |")
    print("|---|---|---|---|---|")
    for dtype in (torch.float32, torch.float64):
        x = wide.to(dtype)
        data, kind = x.numpy(), str(dtype).removeprefix("torch.")
        scaler, pca = StandardScaler().fit(data), PCA(whiten=True).fit(data)
        ours = Standardizer.fit(x)
        check_equal(ours.transform(x), scaler.transform(data))
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
                f"Standardizer.inverse_transform, {kind}",
                compare(lambda: ours.inverse_transform(x), lambda: scaler.inverse_transform(data), rounds=ROUNDS),
            ),
            flush=True,
        )
        for method in (pca_whitening, zca_whitening, cholesky_whitening):
            fitted, name = Whitening.fit(x, method=method), f"{method.__name__}, {kind}"
            if method is pca_whitening:
                check_equal(fitted.transform(x), pca.transform(data))

            def fit(method: Callable[[Tensor], Tensor] = method) -> Tensor:
                return Whitening.fit(x, method=method).weight

            print(
                row(f"Whitening.fit, {name}", compare(fit, lambda: PCA(whiten=True).fit(data), rounds=ROUNDS)),
                flush=True,
            )
            print(
                row(
                    f"Whitening.transform, {name}",
                    compare(lambda: fitted.transform(x), lambda: pca.transform(data), rounds=ROUNDS),
                ),
                flush=True,
            )
        print(
            row(
                f"Whitening.inverse_transform, {kind}",
                compare(lambda: fitted.inverse_transform(x), lambda: pca.inverse_transform(data), rounds=ROUNDS),
            ),
            flush=True,
        )


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
