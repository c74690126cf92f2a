"""Figures of generative models."""

import numpy as np
import pytest
import torch

from lawful.data import ring
from lawful.probe import figures


def test_samples_share_a_range():
    x = torch.rand(5, 1, 8, 8)
    figure = figures.sample_grid(x, columns=3, titles="abcde", value_range=(0.0, 2.0))
    shown = [axes for axes in figure.axes if axes.images]
    assert [axes.get_title() for axes in shown] == list("abcde")
    assert all(axes.images[0].get_clim() == (0.0, 2.0) for axes in shown)
    assert np.allclose(shown[3].images[0].get_array(), x[3, 0])


def test_color_images_series_and_rows():
    images = figures.sample_grid(torch.rand(2, 3, 4, 5))
    assert images.axes[0].images[0].get_array().shape == (4, 5, 3)
    for x, lines in ((torch.rand(2, 1, 9), 1), (torch.rand(2, 3, 9), 3), (torch.rand(2, 9), 1)):
        assert len(figures.sample_grid(x).axes[1].lines) == lines


def test_images_of_data_and_samples_side_by_side():
    data, samples = torch.rand(7, 1, 4, 5), torch.rand(5, 1, 4, 5)
    figure = figures.data_and_samples(data, samples, columns=3, value_range=(0.0, 1.0))
    left, right = (axes.images[0].get_array() for axes in figure.axes)
    assert left.shape == (3 * 5 - 1, 3 * 6 - 1)
    assert right.shape == (2 * 5 - 1, 3 * 6 - 1)
    assert np.allclose(left[5:9, 6:11], data[4, 0])
    assert np.allclose(right[5:9, 12:17], 1.0)  # an empty place is white
    color = figures.data_and_samples(torch.rand(2, 3, 4, 4), torch.rand(2, 3, 4, 4)).axes[1].images[0].get_array()
    assert color.shape[2] == 3
    for channels in (2, 4):
        shown = torch.rand(2, channels, 4, 4)
        assert figures.data_and_samples(shown, shown).axes[0].images[0].get_array().ndim == 2


def test_series_of_data_and_samples_side_by_side():
    figure = figures.data_and_samples(torch.rand(4, 2, 9), torch.rand(3, 2, 9))
    assert [len(axes.lines) for axes in figure.axes] == [8, 6]


def test_marginals_have_the_range_of_the_data():
    x = torch.randn(500, 14)
    figure = figures.marginals(x, 100 * x, columns=[f"column {i}" for i in range(14)])
    shown = [axes for axes in figure.axes if axes.patches]
    assert len(shown) == 12
    assert all(-6 < axes.get_xlim()[0] < axes.get_xlim()[1] < 6 for axes in shown)


def test_columns_of_different_units_have_their_own_ranges():
    x = torch.rand(50, 2) * torch.tensor([1.0, 1e4])
    axes = figures.point_clouds(x, x, names=("data", "samples"), axes_names=("age", "income")).axes[1]
    assert (axes.get_xlim()[1] < 2, axes.get_ylim()[1] > 5e3) == (True, True)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("age", "income")
    axes = figures.point_clouds(x[:, :1].expand(-1, 2) * torch.tensor([1.0, 2.0]), names=["data"]).axes[0]
    assert axes.get_xlim() == axes.get_ylim()


def test_reconstructions_share_the_range_of_the_data():
    data = torch.rand(3, 1, 4, 4)
    figure = figures.reconstructions(data, 10 * data, names=("data", "output"))
    assert [axes.get_ylabel() for axes in figure.axes] == ["data", "", "", "output", "", ""]
    assert len({axes.images[0].get_clim() for axes in figure.axes}) == 1


def test_latents_have_the_color_of_their_label():
    z, labels = torch.randn(40, 3), torch.arange(40) % 10
    figure = figures.latent_map(z, labels=labels, names=[f"label {k}" for k in range(10)])
    drawn = figure.axes[0].collections
    assert [len(points.get_offsets()) for points in drawn] == [4] * 10
    assert np.allclose(drawn[2].get_offsets(), z[labels == 2, :2])
    looks = {(tuple(points.get_facecolor()[0]), tuple(points.get_edgecolor().ravel())) for points in drawn}
    assert len(looks) == 10
    assert figures.latent_map(z).axes[0].get_legend() is None


def test_trajectories_start_at_noise_and_end_at_samples():
    paths = torch.randn(4, 7, 2)
    axes = figures.trajectories(paths, data=torch.randn(9, 2), max_paths=5).axes[0]
    assert len(axes.lines) == 5
    data, noise, samples = axes.collections
    assert len(data.get_offsets()) == 9
    assert np.allclose(noise.get_offsets(), paths[0, :5])
    assert np.allclose(samples.get_offsets(), paths[-1, :5])


def test_arrows_point_along_the_score_and_do_not_overlap():
    target = ring().with_noise(1.0, 0.3)
    figure = figures.score_field(
        lambda x: target.score(x.double()), log_prob=lambda x: target.log_prob(x.double()), arrows=7, low=-2, high=2
    )
    arrows = figure.axes[0].collections[0]
    drawn = np.stack([arrows.U, arrows.V], axis=1)
    score = target.score(torch.as_tensor(arrows.XY, dtype=torch.float64)).numpy()
    long = np.linalg.norm(score, axis=1) > 1e-6
    cosines = (drawn * score).sum(1)[long] / (np.linalg.norm(drawn, axis=1) * np.linalg.norm(score, axis=1))[long]
    assert cosines.min() > 0.999
    assert np.linalg.norm(drawn, axis=1).max() == pytest.approx(4 / 7)
    assert figure.axes[0].images[0].get_array().shape == (200, 200)


def test_the_density_matches_the_points():
    target = ring()
    x = target.sample(500)
    figure = figures.point_clouds(x, x, names=("data", "samples"), log_prob=lambda y: target.log_prob(y.double()))
    picture = figure.axes[-1].images[0]
    low, high, *_ = picture.get_extent()
    row, column = np.unravel_index(picture.get_array().argmax(), (200, 200))
    place = low + (high - low) * np.array([column, row]) / 199
    assert np.linalg.norm(target.means.numpy() - place, axis=1).min() < 0.1


def test_the_bottleneck_curve_has_a_line_per_model_and_one_for_the_mean():
    axes = figures.bottleneck_curve({"PCA": [(1, 4.0), (2, 3.0)], "autoencoder": [(2, 2.5)]}, mean=5.0).axes[0]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["mean", "PCA", "autoencoder"]


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: figures.sample_grid(torch.rand(0, 1, 2, 2)), "at least one example"),
        (lambda: figures.reconstructions(torch.rand(2, 4), torch.rand(3, 4), names="ab"), "rows of equal shape"),
        (lambda: figures.latent_map(torch.rand(3, 1)), "at least two coordinates"),
        (lambda: figures.latent_map(torch.rand(3, 2), labels=[0, 1]), "one label per latent"),
        (lambda: figures.trajectories(torch.rand(1, 3, 2)), r"steps >= 2"),
        (lambda: figures.score_field(lambda x: x, low=1.0, high=0.0), "low < high"),
        (lambda: figures.point_clouds(torch.rand(3, 2), names=()), "one name per cloud"),
        (lambda: figures.data_and_samples(torch.rand(3, 1, 2, 2), torch.rand(3, 1, 3, 3)), "samples of the same"),
        (lambda: figures.marginals(torch.rand(3, 2), torch.rand(3, 1)), "rows of the same columns"),
    ],
)
def test_invalid_arguments_raise(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()


@pytest.mark.parametrize(("offset", "shared"), [(0.0, True), (100.0, False)])
def test_clouds_share_one_range_only_if_it_has_little_empty_space(offset, shared):
    points = torch.rand(50, 2, generator=torch.Generator().manual_seed(0)) * 50
    (axes,) = figures.point_clouds(points + torch.tensor([offset, 0.0]), names=("data",)).axes
    assert (axes.get_xlim() == axes.get_ylim()) == shared
