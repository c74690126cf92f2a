import pytest
import scipy.linalg
import torch
from torch import nn

from lawful.blocks import CIRCULAR, FULL, NONE, REFLECT, SAME, Convolution, as_convolution, as_matrix


def drawn(*sizes, seed=0):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("padding", [CIRCULAR, SAME, NONE, FULL])
@pytest.mark.parametrize(("kernel", "size"), [((3,), (2, 7)), ((3, 3), (2, 5, 4)), ((3, 3, 3), (1, 3, 4, 3))])
def test_recovers_the_kernel_of_a_layer(padding, kernel, size):
    torch.manual_seed(0)
    layer = Convolution(size[0], 3, kernel=kernel, padding=padding, bias=False)
    found = as_convolution(layer, size, padding=padding)
    torch.testing.assert_close(found.weight, layer.weight)
    found = as_convolution(as_matrix(layer, size[1:]), size, kernel=kernel, padding=padding)
    torch.testing.assert_close(found.weight, layer.weight)


def test_recovers_the_kernel_of_torch_layers():
    layer = nn.Conv1d(1, 2, 5, padding="same", padding_mode="circular", bias=False).double()
    found = as_convolution(layer, (1, 6))
    assert found.weight.dtype is torch.float64
    torch.testing.assert_close(found.weight, layer.weight)


@pytest.mark.parametrize("n", [4, 5])
def test_recovers_any_circulant_matrix(n):
    matrix = torch.from_numpy(scipy.linalg.circulant(drawn(n).double().numpy()))
    x = drawn(3, 1, n).double()
    torch.testing.assert_close(as_convolution(matrix, (1, n))(x)[:, 0], x[:, 0] @ matrix.mT)


def test_recovers_any_toeplitz_matrix():
    matrix = torch.from_numpy(scipy.linalg.toeplitz(drawn(5).numpy(), drawn(5, seed=1).numpy()))
    x = drawn(3, 1, 5)
    torch.testing.assert_close(as_convolution(matrix, (1, 5), padding=SAME)(x)[:, 0], x[:, 0] @ matrix.mT)


def test_a_product_in_the_spectrum_is_a_convolution():
    spectrum = drawn(5, 8).to(torch.complex64)

    def filtered(x):
        return torch.fft.ifft2(torch.fft.fft2(x) * torch.fft.fft2(spectrum.real)).real

    x = drawn(2, 1, 5, 8)
    torch.testing.assert_close(as_convolution(filtered, (1, 5, 8))(x), filtered(x), rtol=1e-4, atol=1e-4)


def test_the_identity_and_zero_have_one_tap():
    assert as_convolution(lambda x: x, (1, 5)).weight.tolist() == [[[1.0]]]
    assert as_convolution(torch.zeros(4, 4), (1, 4)).weight.tolist() == [[[0.0]]]
    assert as_convolution(lambda x: 2 * x, (1, 5), kernel=(3,)).weight.tolist() == [[[0.0, 2.0, 0.0]]]


@pytest.mark.parametrize(
    ("linear_map", "settings", "why"),
    [
        (lambda x: x + 1, {}, r"not linear: f\(0\) = 0 fails at output \(0, 0\): 1, 0"),
        (torch.relu, {}, r"not linear: f\(-1 x\) = -1 f\(x\) fails"),
        (lambda x: x.clamp(-50, 50), {}, r"not linear: f\(100 x\) = 100 f\(x\) fails"),
        (lambda x: x.sort(-1).values, {}, "not linear"),
        (lambda x: x * x[..., :1].abs() / x[..., 1:2].abs(), {}, r"not linear: f\(0\) = 0 fails"),
        (lambda x: torch.nan * x, {}, "not linear"),
        (lambda x: x.flip(-1), {}, r"shifted by 1 along space axis 0, the weight of input \(0, \d\)"),
        (lambda x: x.cumsum(-1), {}, "not shift-equivariant"),
        (lambda x: x * torch.arange(6.0), {}, r"in output \(0, 5\) goes from 5 to 0"),
        (Convolution(1, 1, kernel=(3,), padding=SAME, bias=False), {}, "not shift-equivariant"),
        (
            lambda x: x.roll(2, -1),
            {"kernel": (3,)},
            "not local: on space axis 0 outputs read the input at -2",
        ),
        (lambda x: x.cumsum(-1), {"padding": SAME, "kernel": (5,)}, "not local"),
        (lambda x: x[..., 1:], {"padding": NONE, "kernel": (3,)}, r"\(3,\) does not lead from size \(6,\) to \(5,\)"),
        (lambda x: x, {"padding": REFLECT}, "reflects at the border does not commute"),
        (lambda x: x[..., 1:], {}, r"channels and size \(6,\) was wanted: got \(1, 5\)"),
        (lambda x: x[..., 1:], {"padding": SAME}, "no kernel leads from size 6 to 5"),
        (lambda x: x.sum(-1), {}, "an output with channels"),
        (torch.eye(5), {}, r"6 columns and a multiple of 6 rows was wanted: got shape \(5, 5\)"),
        (torch.full((6, 6), torch.nan), {}, "a matrix of finite numbers was wanted: got 36 NaN or infinite"),
        (torch.eye(6)[1:], {"padding": NONE}, "the kernel is to be given: got None"),
        (lambda x: x, {"kernel": (3, 3)}, "kernel is an int of at least 1, on each of 1 space axes"),
    ],
)
def test_says_why_there_is_none(linear_map, settings, why):
    with pytest.raises(ValueError, match=why):
        as_convolution(linear_map, (1, 6), **settings)


def test_says_along_which_axis():
    with pytest.raises(ValueError, match="along space axis 1"):
        as_convolution(lambda x: x * torch.arange(3.0), (1, 4, 3))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_linear_enough_and_keeps_small_taps(dtype):
    layer = nn.Conv1d(1, 1, 5, padding=2, padding_mode="circular", bias=False).to(dtype)
    for seed in range(5):
        weight = drawn(1, 1, 5, seed=seed)
        weight[..., 0] = 0.01
        layer.weight.data = weight.to(dtype)
        assert as_convolution(layer, (1, 6)).weight.equal(layer.weight)


def test_a_module_is_asked_in_evaluation_mode_and_left_as_it_was():
    norm = nn.BatchNorm1d(1, affine=False)
    model = nn.Sequential(nn.Conv1d(1, 1, 1, bias=False), norm, nn.Dropout(0.5)).train()
    model[2].eval()
    found = as_convolution(model, (1, 6))
    torch.testing.assert_close(found.weight, model[0].weight / (1 + norm.eps) ** 0.5)
    assert norm.num_batches_tracked == 0
    assert [m.training for m in model.modules()] == [True, True, True, False]


def test_a_matrix_has_two_axes_and_real_numbers(unchecked):
    with pytest.raises(ValueError, match=r"a matrix was wanted: got shape \(4,\)"):
        as_convolution(torch.ones(4), (1, 4))
    with pytest.raises(TypeError, match=r"floating point numbers was wanted: got torch\.int64"):
        as_convolution(torch.eye(4).long(), (1, 4))
