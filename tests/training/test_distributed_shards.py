import json

import pytest
import torch
from safetensors.torch import save_file

from lawful.training import checkpoint as shards
from lawful.training.checkpoint import Checkpoint, Checkpoints, Damaged, seal, whole


def written(folder, *files):
    """Writes files of tensors, each with what its header says of parts."""
    paths = []
    for rank, (tensors, parts) in enumerate(files):
        paths.append(folder / shards.file_name(rank, len(files)))
        save_file(tensors, paths[-1], metadata={"parts": parts if isinstance(parts, str) else json.dumps(parts)})
    return paths


def part(shape, *offsets):
    return {"x": {"shape": list(shape), "offsets": list(offsets)}}


def test_parts_make_a_whole_in_any_order(tmp_path):
    x = torch.arange(21.0).reshape(7, 3)
    files = [
        ({"x": x[4:].clone()}, part((7, 3), 4, 0)),
        ({"x": x[:4].clone(), "y": torch.tensor(2)}, part((7, 3), 0, 0)),
    ]
    found = shards.read(written(tmp_path, *files), whole)
    assert torch.equal(found["x"], x)
    assert found["y"] == 2


@pytest.mark.parametrize("x", [torch.zeros(()), torch.zeros(0), torch.zeros(0, 3), torch.zeros(2, 0), torch.ones(1)])
def test_tensors_of_any_shape_come_back(tmp_path, x):
    held, metadata = shards.laid_out({"x": x})
    save_file(held, tmp_path / "file", metadata=metadata)
    assert torch.equal(shards.read([tmp_path / "file"], whole)["x"], x)


HOSTILE = {
    "a gap": [part((7, 3), 0, 0), part((7, 3), 5, 0)],
    "an overlap": [part((6, 3), 0, 0), part((6, 3), 2, 0)],
    "a missing end": [part((9, 3), 0, 0), part((9, 3), 4, 0)],
    "a huge whole": [part((2**60, 3), 0, 0), part((2**60, 3), 4, 0)],
    "a part outside": [part((7, 3), 0, 0), part((7, 3), 6, 0)],
    "another width": [part((7, 4), 0, 0), part((7, 4), 4, 0)],
    "another offset": [part((7, 3), 0, 1), part((7, 3), 4, 0)],
    "two wholes": [part((7, 3), 0, 0), part((8, 3), 4, 0)],
    "twice": [{}, {}],
    "too few axes": [part((7,), 0), part((7,), 4)],
    "a negative offset": [part((7, 3), 0, 0), part((7, 3), -4, 0)],
    "a number too many": [part((7, 3), 0, 0), part((7, 3), 10**30, 0)],
    "words": [part((7, 3), 0, 0), {"x": {"shape": "large", "offsets": None}}],
    "true": [part((7, 3), 0, 0), part((7, 3), True, 0)],
    "no mapping": [part((7, 3), 0, 0), {"x": 3}],
    "a list": [part((7, 3), 0, 0), []],
    "no JSON": [part((7, 3), 0, 0), "{"],
    "too deep": [part((7, 3), 0, 0), "[" * 10**5],
    "an unknown name": [part((7, 3), 0, 0), {**part((7, 3), 4, 0), "z": {"shape": [1], "offsets": [0]}}],
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_header_is_not_believed(tmp_path, kind):
    sizes = (4, 3)
    paths = written(
        tmp_path, *(({"x": torch.zeros(n, 3)}, parts) for n, parts in zip(sizes, HOSTILE[kind], strict=True))
    )
    with pytest.raises(ValueError):  # noqa: PT011
        shards.read(paths, whole)


@pytest.mark.parametrize("change", ["lost", "renamed"])
def test_a_checkpoint_with_a_file_too_few_is_damaged(tmp_path, change):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.write(Checkpoint(1, {"x": torch.zeros(2)}, {}), keep=2)
    folder = checkpoints.at(1)
    file = folder / "tensors-1-of-1.safetensors"
    if change == "lost":
        file.unlink()
    else:
        file.rename(folder / "tensors-2-of-2.safetensors")
    (folder / "checksums.json").unlink()
    seal(folder)
    with pytest.raises(Damaged, match="one for each process"):
        checkpoints.read(1)
