from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
import scipy.linalg
import scipy.signal
import torch
from torch import nn
from torch.nn import functional as F

from lawful.blocks import (
    conv_from_linear_map,
    conv_output_size,
    conv_parameter_count,
    conv_to_matrix,
    convolve,
    linear_matrix,
    tap_matrix,
)
from lawful.laws import Claim, agreement, commutativity, shape


def randn(*sizes, seed=0):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (5, 3), (3, 5), (4, 4)])
def test_equals_numpy(n, m):
    f, g = randn(n), randn(m, seed=1)
    torch.testing.assert_close(convolve(f, g), torch.from_numpy(np.convolve(f, g, mode="full")))


@pytest.mark.parametrize("num_dims", [1, 2, 3])
def test_equals_scipy(num_dims):
    f, g = randn(*(4, 3, 5)[:num_dims]), randn(*(2, 3, 2)[:num_dims], seed=1)
    torch.testing.assert_close(
        convolve(f, g, num_dims=num_dims), torch.from_numpy(scipy.signal.convolve(f.numpy(), g.numpy()))
    )


def test_batches_broadcast():
    f, g = randn(2, 1, 4), randn(3, 2, seed=1)
    y = convolve(f, g)
    assert y.shape == (2, 3, 5)
    torch.testing.assert_close(y[1, 2], convolve(f[1, 0], g[2]))


def test_multiplies_polynomials():
    assert convolve(torch.tensor([1.0, 1.0]), torch.tensor([1.0, -1.0])).tolist() == [1, 0, -1]


def test_invalid_signals_are_rejected():
    with pytest.raises(ValueError, match=r"got num_dims=2, shapes \(3,\) and \(2,\)"):
        convolve(torch.zeros(3), torch.zeros(2), num_dims=2)
    with pytest.raises(ValueError, match=r"expected non-empty signals, got sizes \(0,\) and \(2,\)"):
        convolve(torch.zeros(0), torch.zeros(2))
    assert convolve(torch.tensor([1.0, torch.nan]), torch.ones(2)).isnan().tolist() == [False, True, True]


@pytest.mark.parametrize(("f", "g", "out"), [((0, 3), (2,), (0, 4)), ((2, 0, 3), (2, 1, 5), (2, 0, 7))])
def test_an_empty_batch_gives_an_empty_batch(f, g, out):
    f, g = torch.zeros(f, requires_grad=True), torch.zeros(g)
    y = convolve(f, g)
    assert y.shape == out
    y.sum().backward()
    assert f.grad.shape == f.shape


def test_conv_layers_are_cross_correlations():
    layer = nn.Conv1d(1, 1, 3, bias=False).double()
    x = randn(1, 1, 7)
    expected = scipy.signal.correlate(x[0, 0].numpy(), layer.weight[0, 0].detach().numpy(), mode="valid")
    torch.testing.assert_close(layer(x)[0, 0].detach(), torch.from_numpy(expected))
    torch.testing.assert_close(layer(x)[0, 0], convolve(x[0, 0], layer.weight[0, 0].flip(0))[2:-2])


def test_linear_matrix_equals_numpy():
    a = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    np.testing.assert_array_equal(linear_matrix(lambda x: x @ a.T, (4,)), a)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_module_is_evaluated_in_its_dtype(dtype):
    layer = nn.Linear(4, 3, bias=False).to(dtype)
    found = linear_matrix(layer, (4,))
    assert found.dtype is dtype
    assert found.equal(layer.weight)


def test_the_axes_of_an_output_come_before_those_of_an_input():
    found = linear_matrix(lambda x: x.sum(-1), (2, 3))
    assert found.equal(torch.eye(2)[:, :, None].expand(2, 2, 3))


def test_modes_are_restored_when_it_raises():
    model = nn.Sequential(nn.ReLU(), nn.Dropout(0.5).eval())
    with pytest.raises(ValueError, match="not linear"):
        linear_matrix(model, (2,))
    assert [m.training for m in model.modules()] == [True, True, False]


@pytest.mark.parametrize(
    ("f", "why"),
    [
        (lambda x: x + 1, r"not linear: f\(0\) = 0 fails at output \(0,\): 1, 0"),
        (torch.abs, r"not linear: f\(-1 x\) = -1 f\(x\) fails"),
        (lambda x: x.clamp(-20, 20), r"not linear: f\(100 x\) = 100 f\(x\) fails"),
        (lambda x: x**3 / (x.square().sum(-1, keepdim=True) + 1e-30), r"f\(x \+ y\) = f\(x\) \+ f\(y\) fails"),
        (lambda x: x - x.mean(0), r"not linear"),
        (lambda x: x / 0, r"not linear: f\(0\) = 0 fails at output \(0,\): nan, 0"),
    ],
)
def test_nonlinear_functions_are_rejected(f, why):
    with pytest.raises(ValueError, match=why):
        linear_matrix(f, (3,))


def test_rtol_defines_what_counts_as_linear():
    def nearly(x):
        return x + 1e-3 * x.abs()

    with pytest.raises(ValueError, match="not linear"):
        linear_matrix(nearly, (3,))
    assert linear_matrix(nearly, (3,), rtol=0.1).shape == (3, 3)


def test_integer_outputs_are_rejected():
    with pytest.raises(TypeError, match=r"expected floating-point outputs, got torch\.int64"):
        linear_matrix(lambda x: x.long(), (3,))


def conv(taps, **options):
    layer = nn.Conv1d(1, 1, len(taps), bias=False, **options).double()
    layer.weight.data = torch.tensor([[taps]], dtype=torch.float64)
    return layer


def test_toeplitz():
    expected = scipy.linalg.toeplitz([1, 0, 0], [1, 2, 3, 0, 0])
    torch.testing.assert_close(conv_to_matrix(conv([1, 2, 3]), (5,)).detach(), torch.from_numpy(expected).double())


def test_circulant():
    expected = scipy.linalg.circulant([2, 1, 0, 0, 3])
    matrix = conv_to_matrix(conv([1, 2, 3], padding="same", padding_mode="circular"), (5,)).detach()
    torch.testing.assert_close(matrix, torch.from_numpy(expected).double())


def test_full_padding_is_the_matrix_of_scipy():
    expected = scipy.linalg.convolution_matrix([3, 2, 1], 4, mode="full")
    matrix = conv_to_matrix(conv([1, 2, 3], padding=2), (4,)).detach()
    torch.testing.assert_close(matrix, torch.from_numpy(expected).double())


def test_blocks_of_an_image_are_toeplitz_in_toeplitz():
    image = nn.Conv2d(1, 1, 2, padding="same", bias=False).double()
    blocks = conv_to_matrix(image, (3, 4)).unflatten(1, (3, 4)).unflatten(0, (3, 4)).transpose(1, 2)
    torch.testing.assert_close(blocks[1:, 1:], blocks[:-1, :-1])
    torch.testing.assert_close(blocks[..., 1:, 1:], blocks[..., :-1, :-1])
    assert not blocks[1, 0].any()
    assert not blocks[0, 2].any()


def test_gradients_reach_the_kernel():
    image = nn.Conv2d(2, 2, 2, groups=2)
    conv_to_matrix(image, (3, 3)).sum().backward()
    torch.testing.assert_close(image.weight.grad, torch.full_like(image.weight, 4.0))


def test_parameter_counts():
    three = nn.Conv1d(1, 1, 3, padding="same", bias=False)
    assert conv_parameter_count(three, (5,)) == (3, 25)
    assert conv_parameter_count(three, (500,)) == (3, 250_000)
    image = nn.Conv2d(4, 6, (3, 2), stride=2, groups=2)
    rows, columns = conv_to_matrix(image, (7, 5)).shape
    linear = sum(p.numel() for p in nn.Linear(columns, rows).parameters())
    assert conv_parameter_count(image, (7, 5)) == (6 * 2 * 6 + 6, linear)


@pytest.mark.parametrize("padding", [0, 2, "valid"])
@pytest.mark.parametrize("stride", [1, 2, (3, 1)])
@pytest.mark.parametrize("dilation", [1, (1, 2)])
def test_output_sizes_equal_torch(padding, stride, dilation):
    layer = nn.Conv2d(1, 1, (3, 2), stride=stride, dilation=dilation, padding=padding)
    assert conv_output_size(layer, (8, 7)) == layer(torch.zeros(1, 1, 8, 7)).shape[2:]
    same = nn.Conv2d(1, 1, (3, 2), dilation=dilation, padding="same", padding_mode="circular")
    assert conv_output_size(same, (8, 7)) == (8, 7)


def test_invalid_sizes_are_rejected():
    with pytest.raises(ValueError, match=r"expected size with 1 axes, got \(3, 3\)"):
        conv_to_matrix(conv([1, 2]), (3, 3))
    with pytest.raises(ValueError, match="spans 3 does not fit into 2 entries"):
        conv_to_matrix(conv([1, 2, 3]), (2,))
    with pytest.raises(ValueError, match="spans 5 does not fit into 4 entries"):
        tap_matrix(4, 3, dilation=2)


@pytest.mark.parametrize("function", [conv_to_matrix, conv_output_size])
def test_only_a_convolution_has_a_matrix(function, unchecked):
    with pytest.raises(TypeError, match=r"expected nn\.Conv1d, nn\.Conv2d or nn\.Conv3d, got ConvTranspose1d"):
        function(nn.ConvTranspose1d(1, 1, 3), (5,))


CONVS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
PADDINGS = {
    "circular": {"padding": "same", "padding_mode": "circular"},
    "same": {"padding": "same", "padding_mode": "zeros"},
    "valid": {"padding": "valid", "padding_mode": "zeros"},
    "full": {"padding": "full", "padding_mode": "zeros"},
}
SAME = PADDINGS["same"]
VALID = PADDINGS["valid"]


def layer_with(kernel, c, out, padding):
    options = dict(PADDINGS[padding])
    if padding == "full":
        options["padding"] = tuple(k - 1 for k in kernel)
    return CONVS[len(kernel)](c, out, kernel, bias=False, **options)


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize(("kernel", "size"), [((3,), (2, 7)), ((3, 3), (2, 5, 4)), ((3, 3, 3), (1, 3, 4, 3))])
def test_recovers_the_kernel_of_a_layer(padding, kernel, size):
    torch.manual_seed(0)
    layer = layer_with(kernel, size[0], 3, padding)
    torch.testing.assert_close(conv_from_linear_map(layer, size, **PADDINGS[padding]).weight, layer.weight)
    matrix = conv_to_matrix(layer, size[1:])
    found = conv_from_linear_map(matrix, size, kernel_size=kernel, **PADDINGS[padding])
    torch.testing.assert_close(found.weight, layer.weight)
    x = torch.randn(2, *size)
    torch.testing.assert_close(found(x), layer(x))


def test_recovers_the_kernel_of_torch_layers():
    layer = nn.Conv1d(1, 2, 5, padding="same", padding_mode="circular", bias=False).double()
    found = conv_from_linear_map(layer, (1, 6))
    assert found.weight.dtype is torch.float64
    torch.testing.assert_close(found.weight, layer.weight)


@pytest.mark.parametrize("n", [4, 5])
def test_recovers_any_circulant_matrix(n):
    matrix = torch.from_numpy(scipy.linalg.circulant(randn(n).double().numpy()))
    x = randn(3, 1, n).double()
    torch.testing.assert_close(conv_from_linear_map(matrix, (1, n))(x)[:, 0], x[:, 0] @ matrix.mT)


def test_recovers_any_toeplitz_matrix():
    matrix = torch.from_numpy(scipy.linalg.toeplitz(randn(5).numpy(), randn(5, seed=1).numpy()))
    x = randn(3, 1, 5)
    torch.testing.assert_close(conv_from_linear_map(matrix, (1, 5), **SAME)(x)[:, 0], x[:, 0] @ matrix.mT)


def test_a_product_in_the_spectrum_is_a_convolution():
    spectrum = randn(5, 8).float()

    def filtered(x):
        return torch.fft.ifft2(torch.fft.fft2(x) * torch.fft.fft2(spectrum)).real

    x = randn(2, 1, 5, 8).float()
    torch.testing.assert_close(conv_from_linear_map(filtered, (1, 5, 8))(x), filtered(x), rtol=1e-4, atol=1e-4)


def test_the_identity_and_zero_have_one_tap():
    assert conv_from_linear_map(lambda x: x, (1, 5)).weight.tolist() == [[[1.0]]]
    assert conv_from_linear_map(torch.zeros(4, 4), (1, 4)).weight.tolist() == [[[0.0]]]
    assert conv_from_linear_map(lambda x: 2 * x, (1, 5), kernel_size=(3,)).weight.tolist() == [[[0.0, 2.0, 0.0]]]


@pytest.mark.parametrize(
    ("linear_map", "settings", "why"),
    [
        (lambda x: x + 1, {}, r"not linear: f\(0\) = 0 fails at output \(0, 0\): 1, 0"),
        (torch.relu, {}, r"not linear: f\(-1 x\) = -1 f\(x\) fails"),
        (lambda x: x.clamp(-50, 50), {}, r"not linear: f\(100 x\) = 100 f\(x\) fails"),
        (lambda x: x.sort(-1).values, {}, "not linear"),
        (lambda x: x * x[..., :1].abs() / x[..., 1:2].abs(), {}, r"not linear: f\(0\) = 0 fails"),
        (lambda x: torch.nan * x, {}, "not linear"),
        (lambda x: x.flip(-1), {}, r"shifted by 1 along spatial axis 0, the weight of input \(0, \d\)"),
        (lambda x: x.cumsum(-1), {}, "not shift-equivariant"),
        (lambda x: x * torch.arange(6.0), {}, r"in output \(0, 5\) changes from 5 to 0"),
        (nn.Conv1d(1, 1, 3, padding=1, bias=False), {}, "not shift-equivariant"),
        (
            lambda x: x.roll(2, -1),
            {"kernel_size": (3,)},
            "not local: outputs read offset -2 on spatial axis 0",
        ),
        (lambda x: x.cumsum(-1), {**SAME, "kernel_size": (5,)}, "not local"),
        (lambda x: x[..., 1:], {**VALID, "kernel_size": (3,)}, r"does not map size \(6,\) to \(5,\)"),
        (lambda x: x, {"padding_mode": "reflect"}, "padding_mode must be"),
        (lambda x: x[..., 1:], {}, r"channels and spatial axes \(6,\), got \(1, 5\)"),
        (lambda x: x[..., 1:], SAME, "no kernel with this padding maps size 6 to 5"),
        (lambda x: x.sum(-1), {}, "expected an output with channels"),
        (torch.eye(5), {}, r"6 columns and a multiple of 6 rows, got shape \(5, 5\)"),
        (torch.full((6, 6), torch.nan), {}, "expected a finite matrix, got 36 NaN or infinite"),
        (torch.eye(6)[1:], VALID, "needs a kernel_size, got None"),
        (lambda x: x, {"kernel_size": (3, 3)}, "expected kernel_size with 1 positive entries"),
    ],
)
def test_other_maps_are_rejected(linear_map, settings, why):
    with pytest.raises(ValueError, match=why):
        conv_from_linear_map(linear_map, (1, 6), **settings)


def test_error_names_the_axis():
    with pytest.raises(ValueError, match="along spatial axis 1"):
        conv_from_linear_map(lambda x: x * torch.arange(3.0), (1, 4, 3))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_linear_enough_and_keeps_small_taps(dtype):
    layer = nn.Conv1d(1, 1, 5, padding=2, padding_mode="circular", bias=False).to(dtype)
    for seed in range(5):
        weight = randn(1, 1, 5, seed=seed)
        weight[..., 0] = 0.01
        layer.weight.data = weight.to(dtype)
        assert conv_from_linear_map(layer, (1, 6)).weight.equal(layer.weight)


def test_a_module_is_evaluated_in_eval_mode():
    norm = nn.BatchNorm1d(1, affine=False)
    model = nn.Sequential(nn.Conv1d(1, 1, 1, bias=False), norm, nn.Dropout(0.5)).train()
    model[2].eval()
    found = conv_from_linear_map(model, (1, 6))
    torch.testing.assert_close(found.weight, model[0].weight / (1 + norm.eps) ** 0.5)
    assert norm.num_batches_tracked == 0
    assert [m.training for m in model.modules()] == [True, True, True, False]


def test_invalid_matrices_are_rejected(unchecked):
    with pytest.raises(ValueError, match=r"expected a matrix, got shape \(4,\)"):
        conv_from_linear_map(torch.ones(4), (1, 4))
    with pytest.raises(TypeError, match=r"expected a floating-point matrix, got torch\.int64"):
        conv_from_linear_map(torch.eye(4).long(), (1, 4))


def _claims_of_convolve() -> Iterator[Claim]:
    def spectral(f, g):
        sizes = [a + b - 1 for a, b in zip(f.shape[-2:], g.shape[-2:], strict=True)]
        return torch.fft.ifft2(torch.fft.fft2(f, sizes) * torch.fft.fft2(g, sizes)).real

    images = shape("b 3 2"), shape("b 2 m:1..3")
    yield Claim(agreement(other=spectral), partial(convolve, num_dims=2), images, name="convolution theorem")
    volumes = shape("2 1 3"), shape("2 1 3")
    yield Claim(commutativity(), partial(convolve, num_dims=3), volumes, name="convolve(num_dims=3)")
    left = lambda f, g, h: convolve(convolve(f, g), h)  # noqa: E731
    right = agreement(other=lambda f, g, h: convolve(f, convolve(g, h)))
    yield Claim(right, left, (shape("b n"), shape("b m"), shape("3")), name="associativity")
    full = nn.Conv1d(1, 1, 3, padding=2, bias=False)
    reversed_kernel = agreement(other=lambda x: convolve(x, full.weight[0, 0].flip(-1)))
    yield Claim(reversed_kernel, full, shape("b 1 n"), name="nn.Conv1d with full padding")


def _claims_of_matrices() -> Iterator[Claim]:
    for kernel, options, size in (
        ((3,), {}, (5,)),
        ((2,), {"padding": "same", "dilation": 2}, (5,)),
        ((3, 2), {"padding": "same", "padding_mode": "circular", "groups": 2}, (3, 4)),
        ((3, 3), {"padding": 1, "padding_mode": "reflect", "stride": (2, 1)}, (4, 3)),
        ((1, 2, 2), {"padding": (0, 1, 1), "stride": 2}, (2, 3, 2)),
    ):
        layer = CONVS[len(kernel)](2, 4, kernel, **options)

        def dense(x, layer=layer, size=size):
            y = (x.flatten(1) @ conv_to_matrix(layer, size).mT).unflatten(1, (4, -1)) + layer.bias[:, None]
            return y.reshape_as(layer(x))

        yield Claim(agreement(other=dense), layer, shape(f"b 2 {' '.join(map(str, size))}"), name=str(layer))

    def written_out(w):
        (a, b, c), o = w, w.new_zeros(())
        return torch.stack([torch.stack(row) for row in ((a, b, c, o, o), (o, a, b, c, o), (o, o, a, b, c))])

    def toeplitz(w):
        return tap_matrix(5, 3).to(w) @ w

    yield Claim(agreement(other=written_out), toeplitz, shape("3"), name="three taps")
    shared = agreement(other=lambda w: toeplitz(w)[:-1, :-1])
    yield Claim(shared, lambda w: toeplitz(w)[1:, 1:], shape("3"), name="weight sharing")
    for n in (0, 1):
        padding = (n, 0)

        def padded(x, padding=padding):
            return x @ tap_matrix(4, 1, padding=padding)[..., 0].to(x).mT

        yield Claim(agreement(other=lambda x, p=padding: F.pad(x, p)), padded, shape("b 4"), name=f"{padding=}")

    transposed = nn.ConvTranspose1d(4, 2, 2, stride=3, padding=1, groups=2, bias=False)
    layer = nn.Conv1d(2, 4, 2, stride=3, padding=1, groups=2, bias=False)
    layer.weight = transposed.weight

    def back(y):
        return (y.flatten(1) @ conv_to_matrix(layer, (7,))).unflatten(1, (2, 7))

    transpose = agreement(other=lambda y: transposed(y, output_size=(7,)))
    yield Claim(transpose, back, shape("b 4 3"), name="nn.ConvTranspose1d is the transpose")


def _circulant(x):
    return torch.stack([x.roll(s) for s in range(len(x))])


def _is_rejected(matrix, kernel_size, **padding):
    try:
        conv_from_linear_map(matrix, (1, len(matrix)), kernel_size=(kernel_size,), **padding)
    except ValueError:
        return matrix.new_ones(())
    return matrix.new_zeros(())


def claims() -> Iterator[Claim]:
    """Second derivations of convolution and its matrix."""
    yield from _claims_of_convolve()
    yield from _claims_of_matrices()

    def recovered(x):
        return conv_to_matrix(conv_from_linear_map(_circulant(x), (1, len(x)), rtol=1e-6), (len(x),))

    yield Claim(agreement(other=_circulant), recovered, shape("5"), name="circulant matrix")
    for name, taps in (("circular", 3), ("same", 2), ("valid", 3), ("full", 2)):

        def kernel(w, name=name):
            layer = layer_with(tuple(w.shape[2:]), 1, 2, name)
            layer.weight = nn.Parameter(w)
            matrix = conv_to_matrix(layer, (4,))
            return conv_from_linear_map(matrix, (1, 4), kernel_size=tuple(w.shape[2:]), **PADDINGS[name]).weight

        yield Claim(agreement(other=torch.clone), kernel, shape(f"2 1 {taps}"), name=f"kernel of a matrix, {name}")

    def rejected(x):
        a = x.tanh() + 3 * torch.eye(4).to(x)
        wrong = _circulant(a[0]) + torch.diag(a[1, :3], -1).abs() + 1e-3 * torch.eye(4).to(x)[2]
        far = _circulant(a[0]).roll(2, 1)
        return torch.stack([_is_rejected(wrong, 3), _is_rejected(wrong, 3, **SAME), _is_rejected(far, 1)])

    yield Claim(agreement(other=lambda x: x.new_ones(3)), rejected, shape("4 4"), name="other matrices are rejected")
    product = lambda a: linear_matrix(lambda x: x.to(a) @ a, a.shape[:1])  # noqa: E731
    yield Claim(agreement(other=lambda a: a.mT), product, shape("n m"), name="linear_matrix")
