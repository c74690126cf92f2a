"""Handwritten digits: the 1,797 images of 8 x 8 pixels that come with scikit-learn."""

from __future__ import annotations

from typing import Any

import torch

from lawful.data.examples import Examples


def digits() -> Examples:
    """Reads the digits: `n 1 8 8`, from 0 to 1 in steps of 1/16.

    Reference:
        Alpaydin and Kaynak, *Optical Recognition of Handwritten Digits*, 1998.

    Examples:
        >>> digits().inputs.shape
        torch.Size([1797, 1, 8, 8])
    """
    from sklearn.datasets import load_digits

    data: Any = load_digits()
    inputs = torch.from_numpy(data.images).float()[:, None] / 16
    targets = torch.from_numpy(data.target).long()
    return Examples(inputs=inputs, targets=targets, classes=tuple(map(str, range(10))), name="digits")
