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


def test_motions_of_points_and_expected_outputs():
    draw = np.random.default_rng(0)
    x, y, expected = draw.normal(size=(3, 2, 5, 2))
    panels = figures.point_motions(x, y, expected=expected, names=["one", "two"]).axes
    assert [panel.get_title() for panel in panels] == ["one", "two"]
    arrows, circles, crosses = panels[1].collections
    np.testing.assert_allclose(circles.get_offsets(), x[1])
    np.testing.assert_allclose(np.stack([arrows.U, arrows.V], 1), (y - x)[1])
    np.testing.assert_allclose(crosses.get_offsets(), expected[1])
    assert len(figures.point_motions(x, y).axes[1].collections) == 2


def test_surfaces_share_a_range_of_colors():
    corners = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
    faces, values = [[0, 1, 2], [0, 2, 3]], np.array([[0.0, 0, 0, 3], [3, 3, 3, 3]])
    figure = figures.surface_values(np.stack([corners, 2 * corners]), faces, values, names=["a", "b"])
    panels, colorbar = figure.axes[:2], figure.axes[2]
    assert [panel.get_title() for panel in panels] == ["a", "b"]
    assert colorbar.get_ylim() == (0, 3)
    low, high = (panel.collections[0].get_facecolors() for panel in panels)
    assert len(low) == 2
    assert not np.allclose(low[0], high[0])
    np.testing.assert_allclose(high[0], high[1])
    assert panels[0].get_xlim() != panels[1].get_xlim() or panels[0].get_zlim() != panels[1].get_zlim()


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: figures.particle_paths(np.zeros((2, 3, 4)), np.zeros((2, 4))), "expected paths of shape"),
        (
            lambda: figures.generator_matrices(np.zeros((2, 2))),
            r"shape \(k, rows, columns\), got \(2, 2\)",
        ),
        (
            lambda: figures.point_motions(np.zeros((2, 5, 3)), np.zeros((2, 5, 3))),
            r"of shape \(k, n, 2\), got \(2, 5, 3\), \(2, 5, 3\) and",
        ),
        (
            lambda: figures.surface_values(np.zeros((1, 4, 3)), [[0, 1, 2]], np.zeros((1, 3))),
            r"vertices of shape \(k, n, 3\), faces \(m, 3\) and values \(k, n\), got \(1, 4, 3\), \(1, 3\) and",
        ),
        (
            lambda: figures.surface_values(np.zeros((1, 4, 3)), [[0, 1, 4]], np.zeros((1, 4))),
            "expected faces with vertices from 0 to 3",
        ),
        (lambda: figures.vector_fields(np.zeros((1, 3, 3))), r"shape \(k, 2, 2\) or \(k, 2, 3\), got \(1, 3, 3\)"),
    ],
)
def test_errors(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()
