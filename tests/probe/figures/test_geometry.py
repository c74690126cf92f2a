import numpy as np
import pytest

from lawful.probe import figures


@pytest.mark.parametrize("d", [1, 2, 3])
def test_paths_of_particles(d):
    draw = np.random.default_rng(0)
    paths = draw.normal(size=(4, 5, 3, d))
    figure = figures.particle_paths(paths, paths[:, -1])
    panels = [axes for axes in figure.axes if axes.get_visible()]
    assert len(panels) == 4
    assert (panels[0].get_xlabel(), panels[0].get_ylabel()) == (("frame", "x") if d == 1 else ("x₁", "x₂"))
    drawn = panels[0].lines[0].get_xydata()
    np.testing.assert_allclose(drawn[:, 1], paths[0, :, 0, 0 if d == 1 else 1])


def test_matrices_and_fields_of_generators():
    turn = [[0.0, -1.0, 0.5], [1.0, 0.0, 0.0]]
    figure = figures.generator_matrices([turn], names=["rotation"])
    assert {text.get_text() for text in figure.axes[0].texts} == {"0.00", "-1.00", "1.00", "0.50"}
    figure = figures.vector_fields(
        [turn, turn], names=["one", "two"], points=np.random.default_rng(0).normal(size=(9, 2))
    )
    assert [axes.get_title() for axes in figure.axes] == ["one", "two"]
    arrows = figures.vector_fields([turn], arrows=3).axes[0].collections[0]
    assert arrows.U[4] * 2 == pytest.approx(arrows.U[7] * 2 + arrows.U[1] * 2 - arrows.U[4] * 2)  # linear in y
    assert arrows.U[4] > 0
    assert arrows.V[4] == pytest.approx(0)


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: figures.particle_paths(np.zeros((2, 3, 4)), np.zeros((2, 4))), "expected paths of shape"),
        (
            lambda: figures.generator_matrices(np.zeros((2, 2))),
            r"shape \(k, rows, columns\), got \(2, 2\)",
        ),
        (lambda: figures.vector_fields(np.zeros((1, 3, 3))), r"shape \(k, 2, 2\) or \(k, 2, 3\), got \(1, 3, 3\)"),
    ],
)
def test_errors(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()
