"""`lawful export`."""

from __future__ import annotations

from typing import Annotated, Literal

import tyro

from lawful.cli.console import FAILED, OPTIONAL, OPTIONAL_FILE, USAGE, check_output, note, say


def export(
    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    format: Annotated[Literal["onnx", "torch-export", "safetensors"] | None, OPTIONAL] = None,
    output: Annotated[str | None, OPTIONAL_FILE] = None,
    method: Annotated[str | None, OPTIONAL] = None,
) -> int:
    """Export a trained model for use elsewhere: ONNX, torch.export or safetensors.

    Batch size and sequence length are dynamic. A JSON file beside the model has the names and shapes of its inputs
    and outputs, the tokenizer, the classes and the encoding of the data.

    Args:
        run: Folder of the run.
        format: File format. Defaults to the format of the output file.
        output: File to write: .onnx, .pt2 or .safetensors. Defaults to the name of the run, in the current folder.
        method: Method to export, such as encode of a VAE. Defaults to log_prob (flows), transform (PCA) or forward.
    """
    from lawful.recipes.model_export import export as export_model
    from lawful.training.errors import user_message

    try:
        check_output(output)
        exported = export_model(run, output, format=format, method=method)
    except ImportError as error:
        say(f"error: {error}")
        return FAILED
    except (ValueError, OSError) as error:
        say(f"error: {user_message(error) or error}")
        return USAGE
    note(f"exported: {exported.path}")
    note(f"description: {exported.metadata_path}")
    for kind in ("inputs", "outputs"):
        for part in exported.metadata.get(kind, ()):
            shape = ", ".join(map(str, part["shape"]))
            note(f"{kind[:-1]}: {part['name']} {part['dtype']} ({shape})")
    if exported.max_difference is not None:
        note(f"largest difference to the model: {exported.max_difference:.2g}")
    elif exported.metadata["format"] == "onnx":
        say("the file was not compared with the model: install onnxruntime to do so")
    return 0
