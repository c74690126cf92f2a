import numpy as np
import pytest
import torch
from PIL import Image

from lawful.data import ImageEncoding, load_dataset, load_like, read_images
from lawful.data import images as module


def save(path, array, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path, **options)


@pytest.fixture
def root(tmp_path):
    random = np.random.default_rng(0)
    for i in range(3):
        for name in ("cat", "dog"):
            save(tmp_path / "pets" / name / f"{i}.png", random.integers(0, 256, (4, 5), dtype=np.uint8))
    (tmp_path / "pets" / "notes.txt").write_text("no image")
    (tmp_path / "pets" / ".hidden").mkdir()
    return tmp_path / "pets"


def test_classes_are_folders_and_pixels_are_in_0_to_1(root):
    examples, encoding = read_images(root)
    assert examples.classes == ("cat", "dog")
    assert examples.targets.tolist() == [0, 0, 0, 1, 1, 1]
    assert examples.inputs.shape == (6, 1, 4, 5)
    assert encoding == ImageEncoding(4, 5, 1, ("cat", "dog"))
    for x, path in zip(examples.inputs, sorted(root.rglob("*.png")), strict=True):
        np.testing.assert_allclose(x[0].numpy(), np.asarray(Image.open(path)) / 255, rtol=1e-6)
    assert load_dataset(root).examples.fingerprint() == examples.fingerprint()


def test_one_color_image_makes_all_images_rgb(root):
    colors = np.zeros((4, 5, 3), dtype=np.uint8)
    colors[..., 0] = 255
    save(root / "dog" / "deep" / "9.png", colors)
    examples, _ = read_images(root)
    assert examples.inputs.shape == (7, 3, 4, 5)
    assert examples.inputs[-1, :, 0, 0].tolist() == [1, 0, 0]
    assert (examples.inputs[0, 0] == examples.inputs[0, 2]).all()
    assert read_images(root, channels=1)[0].inputs.shape == (7, 1, 4, 5)


def test_images_are_resized_on_demand(root):
    save(root / "dog" / "9.png", np.full((8, 8), 51, dtype=np.uint8))
    message = r"0\.png is 5 x 4 and \S+9\.png is 8 x 8: resize all images, for example with --resize 4 5"
    with pytest.raises(ValueError, match=message):
        read_images(root)
    with pytest.raises(ValueError, match=r"9\.png is 8 x 8, expected 5 x 4 as in training: resize it, or train with"):
        load_like(root, ImageEncoding(4, 5, 1, ("cat", "dog")))
    data = load_dataset(root, size=(6, 7))
    assert data.examples.inputs.shape == (7, 1, 6, 7)
    torch.testing.assert_close(data.examples.inputs[-1], torch.full((1, 6, 7), 0.2))
    assert data.encoding == ImageEncoding(6, 7, 1, ("cat", "dog"), resized=True)


def test_sixteen_bit_palette_transparent_and_rotated_images(root):
    save(root / "cat" / "a16.png", np.full((4, 5), 65535, dtype=np.uint16))
    examples, encoding = read_images(root)
    assert examples.inputs[3].tolist() == torch.ones(1, 4, 5).tolist()
    assert encoding.channels == 1
    turned = Image.Exif()
    turned[274] = 6
    grey = np.tile(np.arange(0, 250, 50, dtype=np.uint8)[:, None], (1, 4))
    Image.fromarray(grey).save(root / "cat" / "b.jpg", exif=turned, quality=100)
    assert read_images(root)[0].inputs.shape == (8, 1, 4, 5)
    Image.fromarray(np.zeros((4, 5), dtype=np.uint8)).convert("P").save(root / "cat" / "c.gif")
    Image.new("RGBA", (5, 4), (0, 0, 255, 128)).save(root / "cat" / "d.png")
    Image.new("LA", (5, 4), (0, 0)).save(root / "cat" / "e.png")
    x = read_images(root)[0].inputs
    torch.testing.assert_close(x[6, :, 0, 0], torch.tensor([127 / 255, 127 / 255, 1.0]))  # transparent over white
    assert x[7].unique().tolist() == [1.0]


def test_new_images_are_read_in_the_same_way(root, tmp_path):
    data = load_dataset(root)
    again = load_like(root, data.encoding)
    assert (again.inputs == data.examples.inputs).all()
    assert again.targets.tolist() == data.examples.targets.tolist()
    flat = load_like(root / "dog", data.encoding)
    assert (flat.inputs == data.examples.inputs[3:]).all()
    assert flat.targets is None
    assert load_like(root / "dog" / "0.png", data.encoding).inputs.shape == (1, 1, 4, 5)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="has no images"):
        load_like(tmp_path / "empty", data.encoding)


@pytest.mark.parametrize("content", [b"", b"no image", None])
def test_error_names_the_broken_image(root, content):
    whole = (root / "cat" / "0.png").read_bytes()
    (root / "cat" / "7.png").write_bytes(whole[: len(whole) // 2] if content is None else content)
    with pytest.raises(ValueError, match=r"cannot read image .*7\.png: "):
        read_images(root)


def test_every_altered_image_is_read_or_named(root):
    whole = (root / "cat" / "0.png").read_bytes()
    random = np.random.default_rng(0)
    said = []
    for _ in range(60):
        content = bytearray(whole)
        content[random.integers(len(whole))] = random.integers(256)
        (root / "cat" / "0.png").write_bytes(bytes(content[: random.integers(len(whole) // 2, len(whole) + 1)]))
        try:
            read_images(root, size=(4, 4))
        except ValueError as error:
            said.append(str(error))
    assert said
    assert all("cannot read image" in message and "cat/0.png" in message for message in said)


def test_decompression_bomb_is_rejected_before_decoding(root):
    Image.new("1", (20_000, 5_000)).save(root / "cat" / "bomb.png")
    with pytest.raises(
        ValueError,
        match=r"cannot read image .*bomb\.png: Image size \(100000000 pixels\) exceeds limit",
    ):
        read_images(root, size=(4, 4))
    Image.new("1", (10_000, 5_001)).save(root / "cat" / "bomb.png")
    with pytest.raises(
        ValueError, match=r"cannot read image .*bomb\.png: it has 10000 x 5001 pixels, at most 50000000 are allowed"
    ):
        read_images(root, size=(4, 4))


def test_total_number_of_values_is_limited(root, monkeypatch):
    monkeypatch.setattr(module, "_MAX_VALUES", 100)
    with pytest.raises(ValueError, match="6 images have 120 values, at most 100 are allowed: reduce size"):
        read_images(root)


def test_folder_layout_errors(tmp_path, root):
    with pytest.raises(
        ValueError, match=r"cat must have one folder of images per class, such as cat/1\.png: no folder has images"
    ):
        read_images(root / "cat")
    with pytest.raises(ValueError, match="test_folder_layout_errors0 must have at least 2 classes, got only 'pets'"):
        read_images(tmp_path)
    (root / "cat").rename(root / "train")
    (root / "dog").rename(root / "test")
    with pytest.raises(ValueError, match="are splits, not classes: pass one of test, train"):
        read_images(root)
    with pytest.raises(ValueError, match=r"size must be \(height, width\).*got \(0, 3\)"):
        read_images(_named(root), size=(0, 3))
    with pytest.raises(ValueError, match="channels must be 1 or 3, got 2"):
        read_images(root, channels=2)


def _named(root):
    (root / "train").rename(root / "cat")
    return root
