import math

import numpy as np
import pytest
import torch

from lawful.recipes import NBodyRecipe, SymmetryRecipe, load
from lawful.recipes import symmetry as recipe_module
from lawful.training import train

QUIET = {"threads": 1, "law_cases": 0}
SMALL = {"image_size": 7, "num_pairs": 120}


@pytest.fixture
def write(tmp_path):
    def write(name="own.npz", **arrays):
        if name.endswith(".csv"):
            rows = [",".join(arrays), *(",".join(map(str, row)) for row in zip(*arrays.values(), strict=True))]
            (tmp_path / name).write_text("\n".join(rows) + "\n")
        else:
            np.savez(tmp_path / name, **arrays)
        return str(tmp_path / name)

    return write


def turn(angle):
    return np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])


def ring(count=2000, center=(3.0, 0.0)):
    draw = np.random.default_rng(0)
    angles, radius = draw.uniform(0, 2 * np.pi, count), 1 + 0.1 * draw.normal(size=count)
    return np.stack([radius * np.cos(angles), radius * np.sin(angles)], 1) + center


@pytest.mark.parametrize(
    ("data", "amount", "sentence"),
    [
        ("rotated-images", None, "related by a rotation by "),
        pytest.param("rotated-images", -10.0, "The truth is a rotation by 10 degrees", marks=pytest.mark.long),
        ("translated-images", None, "The truth is a translation by (0.5, 0)"),
        pytest.param("scaled-images", 0.9, "The truth is a scaling by 0.9", marks=pytest.mark.long),
    ],
)
def test_built_in_images(data, amount, sentence):
    recipe = SymmetryRecipe(data=data, amount=amount, **SMALL)
    found, note = recipe._find()
    names = [recipe_module._describe(g, found, threshold=0.9) for g in found.generators]
    assert sentence in recipe._summarize(found, names)
    assert recipe_module._correlation(found.matrix, found.true_matrix) > 0.95
    relative = (found.generators[0] - found.known).norm() / found.known.norm()
    assert relative < 0.35  # central differences of small images
    assert note == f"{data}: 120 pairs of images of 7 x 7 pixels"


def test_a_run_names_the_motion_of_pairs(write, tmp_path):
    x = np.random.default_rng(0).normal(size=(200, 2)) * 3 + 5
    path = write(x=x, y=(x - [1, 2]) @ turn(0.3).T + [1, 2])
    run = train(SymmetryRecipe(data=path, threads=1, law_cases=3), output_dir=tmp_path)
    assert run.results["summary"] == (
        "The 200 pairs of own.npz are related by a rotation by 17.2 degrees about (1, 2). It explains 100 % of the "
        "change, any affine map at most 100 %."
    )
    assert run.results["correlation with named generators"]["rotation of x1 and x2"] > 0.7
    assert sorted(path.name for path in run.figures.iterdir()) == ["generators.png", "vector fields.png"]
    log = run.log.read_text()
    assert log.count("held  ") == 2
    groups, point = load(run), torch.tensor([[1.0, 2.0], [2.0, 2.0]])
    expected = [[1.0, 2.0], [1 + math.cos(0.3), 2 + math.sin(0.3)]]
    torch.testing.assert_close(groups(point)[:, 0], torch.tensor(expected), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("y", "name"),
    [
        (lambda x: x + np.array([1.0, 0.0, 2.0]), "translation by (1, 0, 2)"),
        (lambda x: 1.5 * x, "scaling by 1.5"),
        (
            lambda x: x @ np.array([[1, 0, 0], [0, 0, 1], [0, -1, 0.0]]),
            "rotation by 90 degrees about the axis (1, 0, 0)",
        ),
        (lambda x: x + 0.5 * x[:, [1]] * [1.0, 0.0, 0.0], "shear"),
        (lambda x: x * [2.0, 0.5, 1.0], "stretch"),
    ],
)
def test_motions_of_space_are_named(y, name, write):
    x = np.random.default_rng(0).normal(size=(50, 3))
    x -= x.mean(0)
    found, _ = SymmetryRecipe(data=write(x=x, y=y(x)))._find()
    assert recipe_module._describe(found.generators[0], found, threshold=0.9).startswith(name)


def test_pairs_in_a_table(write):
    x = np.random.default_rng(0).normal(size=(50, 2))
    y = x @ turn(0.5).T
    names = ("x1", "x2", "y1", "y2")
    path = write("pairs.csv", **dict(zip(names, np.concatenate([x, y], 1).T, strict=True)))
    (generator,) = SymmetryRecipe(data=path)._find()[0].generators
    expected = torch.tensor([[0.0, -0.5, 0.0], [0.5, 0.0, 0.0]])
    torch.testing.assert_close(generator, expected, rtol=0, atol=1e-4)


def test_pairs_without_a_relation_are_said_to_be_so(write):
    x, y = np.random.default_rng(0).normal(size=(2, 200, 2))
    recipe = SymmetryRecipe(data=write(x=x, y=y))
    found, _ = recipe._find()
    assert "The pairs are not related by such a motion." in recipe._summarize(found, ["scaling"])


def test_points_on_a_ring_are_symmetric_under_rotations_about_its_center(write, tmp_path):
    x = ring()
    run = train(SymmetryRecipe(data=write("ring.csv", a=x[:, 0], b=x[:, 1]), **QUIET), output_dir=tmp_path)
    assert "2,000 points of ring.csv have 1 generator of symmetries: rotation about (3," in run.results["summary"]
    assert "would go unnoticed" in run.results["summary"]
    box = write("box.csv", a=np.random.default_rng(1).uniform(size=2000), b=np.random.default_rng(2).uniform(size=2000))
    run = train(SymmetryRecipe(data=box, **QUIET), output_dir=tmp_path)
    assert "have no affine symmetry" in run.results["summary"]
    assert load(run)(torch.zeros(3, 2)).shape == (3, 0, 2)


def test_symmetries_of_trained_particles(tmp_path):
    options = {"num_trajectories": 20, "num_particles": 3, "input_frame": 0, "horizon": 1, "steps": 2, **QUIET}
    for model, expected in (
        ("egnn", "commutes with rotations and translations (6 generators), at"),
        ("gnn", "commutes with translations (3 generators), at tolerance 0.001."),
    ):
        run = train(NBodyRecipe(model=model, **options), output_dir=tmp_path)
        found = train(SymmetryRecipe(run=str(run.path), **QUIET), output_dir=tmp_path)
        assert expected in found.results["summary"]


def test_symmetries_of_a_table(tmp_path, write):
    """A regression on x1 + x2 does not change along (1, -1)."""
    draw = np.random.default_rng(0)
    a, b = draw.normal(size=(2, 200))
    path = write("sum.csv", a=a, b=b, y=a + b)
    run = train("regress", data=path, model="linear", output_dir=tmp_path, **QUIET)
    data, _ = SymmetryRecipe(run=str(run.path))._find()
    direction = torch.tensor([[0.0, 0.0, 1 / a.std()], [0.0, 0.0, -1 / b.std()]])
    assert data.generators.flatten(1).matmul(direction.float().flatten()).norm() > 0.99 * direction.norm()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"z": np.zeros(3)}, "has no array x, its arrays are z"),
        ({"x": np.zeros((9, 2)), "y": np.zeros((9, 3))}, r"must be pairs of points \(n, d\) or of images"),
        ({"x": np.full((600, 2), np.nan)}, "x of own.npz has NaN or infinite values: leave these rows out"),
        ({"x": np.zeros((9, 2), dtype="U1")}, "must be numbers, got dtype <U1"),
        ({"x": np.zeros((9, 2))}, "expected at least 500 points"),
        ({"x": np.zeros((900, 2))}, "the points lie in a subspace"),
        ({"x": np.zeros((900, 20))}, "with d up to 12"),
        ({"x": np.zeros((3, 2)), "y": np.zeros((3, 2))}, "needs more than 3 pairs of up to 12 dimensions, got 3 of 2"),
        ({"x": np.zeros((9, 4, 4)), "y": np.zeros((9, 4, 4))}, "at least as many pairs as pixels"),
    ],
)
def test_bad_files(arrays, message, write):
    with pytest.raises(ValueError, match=message):
        SymmetryRecipe(data=write(**arrays))._find()


def test_bad_options(tmp_path):
    with pytest.raises(ValueError, match="data would be ignored: run runs/x has its own data"):
        SymmetryRecipe(data="scaled-images", run="runs/x")
    with pytest.raises(ValueError, match="amount of scaled-images must be a positive factor, got -1"):
        SymmetryRecipe(data="scaled-images", amount=-1.0)
    with pytest.raises(ValueError, match="tolerance needs run"):
        SymmetryRecipe(tolerance=0.1)
    with pytest.raises(FileNotFoundError, match="built-in pairs: rotated-images"):
        SymmetryRecipe(data="turned-images")._find()
    run = train("memory", length=60, sizes=(4,), max_frequency=3.0, steps=1, output_dir=tmp_path, **QUIET)
    with pytest.raises(ValueError, match="run must be of nbody, regress or classify, got"):
        SymmetryRecipe(run=str(run.path))._find()
