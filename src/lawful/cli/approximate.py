"""`lawful approximate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import tyro

from lawful._files import list_folder
from lawful._names import quote
from lawful.cli.console import OPTIONAL, USAGE, say


def approximate(
    expression: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="EXPRESSION")],
    box: Annotated[tuple[float, ...], tyro.conf.arg(metavar="LOW HIGH [LOW HIGH ...]")],
    error: float,
    output: Annotated[str, tyro.conf.arg(metavar="FOLDER")] = "network",
    activation: str = "relu",
    method: Literal["squares", "exponentials"] = "squares",
    levels: Annotated[int | None, OPTIONAL] = None,
    dtype: Literal["float32", "float64"] = "float32",
    max_units: int = 10_000,
) -> int:
    """Build a network that approximates an expression on a box, with a certified bound on its error.

    The folder has the network as safetensors and ONNX, the certificate as JSON, and a picture of the error.

    Args:
        expression: Function of x, y, z or x1, x2, ..., such as "exp(-x^2) * sin(3*y)".
        box: Lowest and highest value of each variable.
        error: Maximum error on the box, including rounding.
        output: Folder to write.
        activation: relu, or for one variable tanh, sigmoid, softplus, silu or gelu.
        method: For several variables: products built from squares, or one hidden layer from a sum of exponentials.
        levels: Number of layers that refine each approximate square. Defaults to the number with the fewest units.
        dtype: Dtype of the network.
        max_units: Maximum number of hidden units.
    """
    import torch

    from lawful.probe.figures import approximation_error, save
    from lawful.recipes.model_export import export
    from lawful.theory import approximate as build
    from lawful.training.errors import user_message

    try:
        if not box or len(box) % 2:
            raise ValueError(f"--box must have a low and a high value for each variable: got {len(box)} numbers")
        folder = Path(output)
        pairs = list(zip(box[::2], box[1::2], strict=True))
        network, certificate = build(
            expression,
            pairs,
            error,
            activation=activation,
            method=method,
            levels=levels,
            dtype={"float32": torch.float32, "float64": torch.float64}[dtype],
            max_units=max_units,
        )
        certificate.save(folder, network)
        save(approximation_error(network, certificate), folder / "picture.png")
        try:
            inputs = torch.tensor([[low for low, _ in pairs], [high for _, high in pairs]], dtype=getattr(torch, dtype))
            export(network, folder / "network.onnx", inputs=inputs)
        except ImportError as missing:
            say(f"no ONNX file: {missing}")
    except (ValueError, OSError) as problem:
        say(f"error: {user_message(problem) or problem}")
        return USAGE
    print(certificate)
    print(f"files: {', '.join(quote(name) for name in list_folder(folder))} in {quote(folder)}")
    print(f"check without lawful: python examples/check_certificate.py {quote(folder)}")
    return 0
