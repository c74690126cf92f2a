from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from lawful.data import Augment, compose, cutout, gaussian_noise, mixup, random_flip, random_shift
from lawful.laws import Claim, agreement, shape, sums_to_one


def test_random_flip_flips_along_its_axis():
    x = torch.arange(12.0).reshape(1, 3, 4)
    assert torch.equal(random_flip(1, probability=1.0)((x,))[0], x.flip(1))
    assert torch.equal(random_flip(probability=1.0)((x,))[0], x.flip(2))
    assert torch.equal(random_flip(probability=0.0)((x,))[0], x)


def test_random_shift_equals_slicing():
    torch.manual_seed(0)
    x = 1 + torch.rand(50, 2, 9)
    (moved, labels) = random_shift(3)((x, torch.arange(50)))
    assert labels.tolist() == list(range(50))
    seen = set()
    for before, after in zip(x, moved, strict=True):
        steps = [s for s in range(-3, 4) if torch.equal(after, shift_by_slices(before, s))]
        assert len(steps) == 1
        seen.add(steps[0])
    assert seen == set(range(-3, 4))


def shift_by_slices(x, steps):
    out = torch.zeros_like(x)
    size = x.shape[-1]
    out[..., max(steps, 0) : size + min(steps, 0)] = x[..., max(-steps, 0) : size - max(steps, 0)]
    return out


def test_a_shift_of_images_moves_both_axes_together_over_channels():
    torch.manual_seed(0)
    x = torch.zeros(40, 3, 5, 5)
    x[:, :, 2, 2] = 1
    places = random_shift(1, axes=2)((x,))[0].flatten(2).argmax(-1)
    assert (places == places[:, :1]).all()
    assert set(places.flatten().tolist()) == {6, 7, 8, 11, 12, 13, 16, 17, 18}
    assert (random_shift(9, axes=2)((x[:1, :, :1, :1],))[0].shape) == (1, 3, 1, 1)


def test_flips_turn_about_half():
    torch.manual_seed(0)
    x = torch.arange(4.0).expand(1000, 4)
    (y,) = random_flip()((x,))
    turned = (y == x.flip(-1)).all(-1)
    assert (turned | (y == x).all(-1)).all()
    assert 400 < int(turned.sum()) < 600


def test_noise_has_the_given_std():
    torch.manual_seed(0)
    (y,) = gaussian_noise(0.5)((torch.zeros(100, 100),))
    assert abs(float(y.std()) - 0.5) < 0.02
    assert (gaussian_noise(0.0)((y,))[0] == y).all()


def test_a_square_is_cut_out_of_every_channel():
    torch.manual_seed(0)
    (y,) = cutout(3)((torch.ones(200, 2, 8, 8),))
    holes = (y == 0).sum((2, 3))
    assert (holes[:, 0] == holes[:, 1]).all()
    assert set(holes[:, 0].tolist()) == {4, 6, 9}
    (series,) = cutout(3, axes=1)((torch.ones(50, 1, 8),))
    assert set((series == 0).sum(-1).flatten().tolist()) == {2, 3}


def test_mixup_interpolates_inputs_and_targets():
    torch.manual_seed(0)
    x, y = torch.eye(4), torch.arange(4)
    mixture, p = mixup(1.0, num_classes=4)((x, y))
    torch.testing.assert_close(mixture, p)
    torch.testing.assert_close(p.sum(-1), torch.ones(4))
    z = torch.rand(4, 1)
    assert mixup(1.0)((x, z))[1].shape == (4, 1)
    weights = torch.tensor(
        [float(mixup(0.5, num_classes=2)((torch.zeros(1, 1), torch.tensor([0])))[1].sum()) for _ in range(5)]
    )
    torch.testing.assert_close(weights, torch.ones(5))


def test_compose_is_reproducible_and_leaves_its_input_unchanged():
    batch = torch.rand(6, 1, 8, 8), torch.arange(6)
    kept = batch[0].clone()
    augment = compose(random_shift(2, axes=2), random_flip(), gaussian_noise(0.1), cutout(3), mixup(0.2, num_classes=6))
    state = torch.get_rng_state()
    first = augment(batch)
    torch.set_rng_state(state)
    for a, b in zip(first, augment(batch), strict=True):
        assert (a == b).all()
    assert (batch[0] == kept).all()
    assert compose()(batch) == batch


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: random_shift(-1), "max_shift must be at least 0"),
        (lambda: random_flip(probability=2.0), "probability must be between 0 and 1, got 2.0"),
        (lambda: gaussian_noise(-1.0), "std must be non-negative, got -1.0"),
        (lambda: cutout(0), "size and axes must be at least 1, got 0"),
        (lambda: mixup(0.0), "alpha must be positive, got 0.0"),
        (lambda: mixup(1.0)((torch.zeros(2, 2), torch.tensor([0, 1]))), "mixup of class targets needs num_classes"),
        (
            lambda: random_shift(1, axes=2)((torch.zeros(2, 3),)),
            r"expected inputs with more than 2 axes, got shape \(2, 3\)",
        ),
    ],
)
def test_invalid_arguments_raise(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def claims() -> Iterator[Claim]:
    """Second derivations of the augmentations, with the same random numbers in each call."""

    def inputs(augment: Augment) -> Callable[[Tensor], Tensor]:
        return lambda x: augment((x,))[0]

    series = shape("b 1 6")
    noise = inputs(gaussian_noise(0.5))
    yield Claim(agreement(other=lambda x: x + noise(torch.zeros_like(x))), noise, series, name="gaussian_noise(0.5)")
    doubling = compose(random_flip(probability=1.0), lambda batch: (2 * batch[0], *batch[1:]))
    together = agreement(other=lambda x, y: torch.stack([2 * x.flip(-1), y]))
    yield Claim(together, lambda x, y: torch.stack(doubling((x, y))), (series, series), name="compose")
    covered = agreement(other=torch.zeros_like)
    yield Claim(covered, inputs(cutout(12, axes=1)), series, name="cutout of twice the size")

    def cut_counts(x: Tensor) -> Tensor:
        zeros = (inputs(cutout(2, axes=1))(torch.ones(64, 1, 6).to(x)) == 0).sum((1, 2)).to(x)
        return torch.stack([zeros.amin(), zeros.amax()])

    yield Claim(agreement(other=lambda x: x.new_tensor([1, 2])), cut_counts, shape("1"), name="cutout(2), how much")

    def apart(x: Tensor) -> Tensor:
        """From each of 64 shifted copies to the nearest shift, and from each shift to the nearest copy."""
        shifts = torch.cat([x, F.pad(x[..., 1:], (0, 1)), F.pad(x[..., :-1], (1, 0))])
        far = (inputs(random_shift(1))(x.expand(64, 1, 6))[:, None] - shifts).abs().amax((-2, -1))
        return torch.cat([far.amin(0), far.amin(1)])

    yield Claim(agreement(other=lambda x: torch.zeros(67).to(x)), apart, shape("1 1 6"), name="random_shift(1)")
    total = agreement(other=lambda x: x.sum(0))
    yield Claim(total, lambda x: inputs(mixup(0.5))(x).sum(0), shape("b 2"), name="mixup(0.5), the sum")
    labels = torch.tensor([0, 2, 1])
    yield Claim(sums_to_one(), lambda x: mixup(0.5, num_classes=3)((x, labels))[1], shape("3 2"), name="mixup(0.5)")
