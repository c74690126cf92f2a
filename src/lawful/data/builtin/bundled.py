"""The small tables that come with scikit-learn."""

from __future__ import annotations

from typing import Any

import torch

from lawful.data.examples import Examples
from lawful.data.tables.encoding import Column, Encoding

TARGETS = {"iris": "species", "wine": "cultivar", "breast-cancer": "diagnosis", "diabetes": "progression"}
"""The tables, and what the target of each is called."""


def bundled(name: str) -> tuple[Examples, Encoding]:
    """Reads one of the tables `iris`, `wine`, `breast-cancer` (classes) and `diabetes` (numbers), as it was measured.

    Args:
        name: Which table.

    Examples:
        >>> examples, encoding = bundled("iris")
        >>> examples.inputs.shape, examples.classes
        (torch.Size([150, 4]), ('setosa', 'versicolor', 'virginica'))
    """
    from sklearn import datasets

    if name not in TARGETS:
        raise ValueError(f"the tables are {', '.join(TARGETS)}: got {name!r}")
    load: Any = getattr(datasets, f"load_{name.replace('-', '_')}")
    data = load(scaled=False) if name == "diabetes" else load()
    columns, targets = tuple(map(str, data.feature_names)), torch.from_numpy(data.target)
    classes = None if name == "diabetes" else tuple(map(str, data.target_names))
    targets = targets.float()[:, None] if classes is None else targets.long()
    examples = Examples(
        inputs=torch.from_numpy(data.data).float(), targets=targets, classes=classes, columns=columns, name=name
    )
    return examples, Encoding(tuple(map(Column, columns)), Column(TARGETS[name], classes))
