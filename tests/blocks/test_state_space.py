from functools import partial

import pytest
import torch
from scipy import signal as scipy_signal

from lawful.blocks import S4, S4D, EMALayer, RecurrentCache, SelectiveStateSpace, StateSpace
from lawful.functions import HIPPO_OPERATORS, Mask
from lawful.functions.attention import CAUSAL

MODELS = {
    **{f"S4D {init}": partial(S4D, init=init, state_dim=8) for init in ("lin", "inv", "legs")},
    **{f"S4D {method}": partial(S4D, discretization=method, state_dim=8) for method in ("zoh", "bilinear")},
    "DSS": partial(S4D, init="legs", discretization="zoh", state_dim=8),
    "S4": partial(S4, state_dim=8),
    "EMALayer": EMALayer,
}
LAYERS = {
    "StateSpace": partial(StateSpace, ssm=partial(S4D, state_dim=8)),
    "StateSpace S4": partial(StateSpace, ssm=partial(S4, state_dim=8)),
    "SelectiveStateSpace": SelectiveStateSpace,
}
EVERY_MODEL = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
EVERY_MODEL_AND_LAYER = pytest.mark.parametrize("make", (MODELS | LAYERS).values(), ids=MODELS | LAYERS)
EVERY_LAYER = pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)


def relative_error(x, y):
    return float(((x - y).norm() / y.norm()).detach())


def continuous_system(layer, channel, rate=1.0):
    """A, B, C, D of one channel, for SciPy, with the skip connection apart."""
    a, b, c, d = (x[channel].detach().numpy() for x in layer.continuous(rate))
    return a, b, c, d


@pytest.mark.parametrize(("name", "rate"), [("S4D lin", 1.0), ("S4D legs", 3.0), ("S4D bilinear", 1.0)])
def test_kernel_is_that_of_scipy(name, rate):
    layer = MODELS[name](2)
    for channel, kernel in enumerate(layer.kernel(50, rate=rate).double()):
        system = scipy_signal.cont2discrete(continuous_system(layer, channel, rate), 1.0, layer.discretization)
        _, (response,) = scipy_signal.dimpulse(system, n=50)
        torch.testing.assert_close(kernel.detach(), torch.from_numpy(response[:, 0]), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "held", "tolerance"),
    [
        ("S4D lin", False, 1e-9),
        ("S4D inv", False, 1e-9),
        ("S4D zoh", True, 1e-9),
        ("S4D bilinear", False, 1e-3),
        ("DSS", True, 1e-9),
        ("S4", False, 1e-4),
        ("EMALayer", True, 1e-9),
    ],
)
def test_outputs_solve_the_differential_equation(name, held, tolerance):
    layer, t = MODELS[name](2, dt_max=0.02).double(), torch.arange(1, 401, dtype=torch.float64)
    signal = (0.05 * t).sin() * (0.003 * t).cos()
    y = layer(signal[None, :, None].expand(1, -1, 2))[0].detach()
    # the signal begins at 0; a zero-order hold keeps each sample over the step that ends with it
    inputs = torch.cat([signal, signal[-1:]] if held else [signal[:1] * 0, signal])
    for channel, found in enumerate(y.unbind(-1)):
        a, b, c, d = continuous_system(layer, channel)
        _, outputs, _ = scipy_signal.lsim((a, b, c, 0 * d), inputs.numpy(), range(401), interp=not held)
        expected = torch.from_numpy(outputs[1:]).flatten() + torch.from_numpy(d).flatten() * signal
        assert relative_error(found, expected) < tolerance


def test_dss_is_s4d_with_the_modes_of_hippo_and_a_zero_order_hold():
    layer, t = MODELS["DSS"](3), torch.arange(40)
    # DSS_EXP: K = W (e^{Λ Δ} - 1) / Λ · e^{Λ Δ t}, the modes with their conjugates, without their part of the skip
    modes = torch.cat([layer.modes(), layer.modes().conj()], -1)
    w = torch.view_as_complex(layer.c.double().view(3, -1, 2))
    step = layer.log_dt.double().exp().unsqueeze(-1)
    weights = torch.cat([w, w.conj()], -1) * (torch.exp(step * modes) - 1) / modes
    kernel = torch.einsum("dn,dnt->dt", weights, torch.exp((step * modes).unsqueeze(-1) * t))
    assert kernel.imag.abs().max() < 1e-12
    kernel = kernel.real + torch.nn.functional.pad(layer.skip.double().unsqueeze(-1), (0, 39))
    torch.testing.assert_close(layer.double().kernel(40), kernel)


@pytest.mark.parametrize("rate", [1.0, 3.0])
def test_kernel_of_s4_is_the_bilinear_rule_in_small_steps(rate):
    layer = MODELS["S4"](2)
    hat = torch.zeros(50 * 8, dtype=torch.float64)  # an impulse at sample 1, linear between the samples
    hat[:17] = 1 - (torch.arange(17) / 8 - 1).abs()
    for channel, kernel in enumerate(layer.kernel(48, rate=rate).double().detach()):
        a, b, c, d = continuous_system(layer, channel, rate / 8)
        system = scipy_signal.cont2discrete((a, b, c, 0 * d), 1.0, "bilinear")  # the skip has no half steps
        _, response, _ = scipy_signal.dlsim(system, hat.numpy())
        expected = torch.from_numpy(response[8::8, 0])[:48].clone()
        expected[0] += layer.skip[channel].detach()
        torch.testing.assert_close(kernel, expected, rtol=1e-4, atol=1e-6)


def test_zero_order_hold_is_that_of_the_paper():
    layer = MODELS["S4D zoh"](3)
    a, dt = layer.modes(), layer.log_dt.double().exp().unsqueeze(-1)
    weights = torch.view_as_complex(layer.c.double().view(3, -1, 2)) * (torch.exp(dt * a) - 1) / a
    powers = torch.exp((dt * a).unsqueeze(-1) * torch.arange(40))
    kernel = 2 * (weights.unsqueeze(-1) * powers).sum(1).real
    kernel[:, 0] += layer.skip
    torch.testing.assert_close(layer.kernel(40), kernel.float(), rtol=1e-4, atol=1e-5)


def test_moving_average():
    layer, x = EMALayer(2), torch.randn(3, 30, 2)
    decay = torch.exp(-layer.log_dt.exp())
    state, outputs = torch.zeros(3, 2), []
    for u in x.unbind(1):
        state = decay * state + (1 - decay) * u
        outputs.append(state + layer.skip * u)
    torch.testing.assert_close(layer(x), torch.stack(outputs, 1))


def test_s4_starts_with_the_spectrum_of_hippo():
    a, _ = HIPPO_OPERATORS["legs"].matrices(4)
    values = torch.linalg.eigvals(S4(1, state_dim=4).matrix()[0].detach()).real.sort().values
    torch.testing.assert_close(values, torch.linalg.eigvals(a).real.sort().values, rtol=1e-3, atol=1e-3)


@EVERY_MODEL
def test_views_agree(make):
    layer, x = make(3), torch.randn(2, 150, 3)
    y = layer(x)
    assert relative_error(layer.convolve(x), y) < 1e-5
    state, steps = layer.initial_state(2), []
    for u in x.unbind(1):
        out, state = layer.step(u, state)
        steps.append(out)
    assert relative_error(torch.stack(steps, 1), y) < 1e-5


@EVERY_MODEL
def test_half_of_the_samples_at_twice_the_step(make):
    layer = make(3)
    t = torch.arange(1024) / 1024
    signal = sum(torch.sin(2 * torch.pi * k * t + k) for k in range(1, 6))[None, :, None].expand(1, -1, 3)
    full, half = layer(signal)[:, 1::2], layer(signal[:, 1::2], rate=2.0)
    assert relative_error(half, full) < 0.01
    state, steps = layer.initial_state(1), []
    for u in signal[:, 1:64:2].unbind(1):
        out, state = layer.step(u, state, 2.0)
        steps.append(out)
    assert relative_error(torch.stack(steps, 1), half[:, :32]) < 1e-5


@EVERY_LAYER
def test_a_causal_mask_changes_nothing(make):
    layer, x = make(4), torch.randn(2, 20, 4)
    assert torch.equal(layer(x, mask=CAUSAL), layer(x))


@EVERY_MODEL_AND_LAYER
def test_cache_continues_in_pieces(make):
    layer, x = make(4), torch.randn(2, 100, 4)
    cache = layer.cache(window=3)
    pieces = [layer(piece, cache=cache) for piece in x.split([70, 1, 29], dim=1)]
    torch.testing.assert_close(torch.cat(pieces, 1), layer(x), rtol=1e-4, atol=1e-5)
    assert cache.length == 100
    before = cache.nbytes
    layer(x, cache=cache)
    assert cache.nbytes == before


@pytest.mark.parametrize("name", ["S4D lin", "S4", "EMALayer"])
def test_a_cache_follows_new_weights_and_rates(name):
    layer, x = MODELS[name](3), torch.randn(2, 1, 3)
    cache = layer.cache()
    for rate, change in ((1.0, False), (1.0, True), (2.0, False)):
        with torch.no_grad():
            layer.log_dt.add_(0.5 * change)
            before = cache.state[0] if cache.state else layer.initial_state(2)
            y = layer(x, cache=cache, rate=rate)
        expected, after = layer.step(x[:, 0], before, rate)
        torch.testing.assert_close((y[:, 0], cache.state[0]), (expected, after))


def test_the_convolution_of_a_selective_layer():
    layer, x = SelectiveStateSpace(4, conv_size=3), torch.randn(2, 9, 8)
    torch.testing.assert_close(layer._convolve(x), layer.conv(x.mT).mT)


@EVERY_LAYER
def test_left_padding_has_no_influence(make):
    layer, x = make(4), torch.randn(2, 9, 4)
    padding = torch.tensor([[False] * 4 + [True] * 5, [True] * 9])
    y = layer(x, mask=Mask(causal=True, padding=padding))
    torch.testing.assert_close(y[0, 4:], layer(x[:1, 4:])[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(y[1], layer(x)[1], rtol=1e-4, atol=1e-5)


@EVERY_MODEL
def test_all_modes_decay_with_any_parameters(make):
    layer = make(20)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(std=3.0)
    for rate in (0.01, 1.0, 100.0):
        transition = layer.system(rate).transition
        modes = transition if transition.is_complex() else torch.linalg.eigvals(transition)
        assert (modes.abs() <= 1 + 1e-12).all()


@EVERY_LAYER
def test_forward_changes_no_parameter(make):
    layer = make(4)
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    for t in (3, 200, 1):
        layer(torch.randn(1, t, 4)).sum().backward()
    assert all(torch.equal(value, before[name]) for name, value in layer.state_dict().items())
    assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())


@EVERY_LAYER
def test_autocast_and_half_precision(make):
    layer, x = make(4), torch.randn(2, 20, 4)
    exact = layer(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x)
    assert relative_error(y.float(), exact) < 0.05
    assert relative_error(layer.bfloat16()(x.bfloat16()).float(), exact) < 0.1


@pytest.mark.long
@EVERY_LAYER
def test_compiled_layers_are_equal_at_any_length(make):
    torch._dynamo.reset()
    layer = make(4)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    for t in (30, 45):
        x = torch.randn(2, t, 4, requires_grad=True)
        found, expected = compiled(x), layer(x)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
        gradients = [torch.autograd.grad(y.square().sum(), x)[0] for y in (found, expected)]
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "make",
    [
        LAYERS["StateSpace"],
        pytest.param(LAYERS["StateSpace S4"], marks=pytest.mark.long),
        LAYERS["SelectiveStateSpace"],
    ],
)
def test_export_at_any_batch_size_and_length(make):
    layer = make(4)
    sizes = {0: torch.export.Dim("b", max=64), 1: torch.export.Dim("t", min=2, max=4096)}
    program = torch.export.export(layer, (torch.randn(2, 70, 4),), dynamic_shapes={"x": sizes})
    for b, t in ((1, 3), (2, 64), (5, 130)):
        x = torch.randn(b, t, 4)
        torch.testing.assert_close(program.module()(x), layer(x), rtol=1e-4, atol=1e-5)


@EVERY_MODEL_AND_LAYER
def test_errors(make):
    layer = make(4)
    for x in (torch.zeros(2, 3), torch.zeros(1, 3, 5), torch.zeros(1, 0, 4)):
        with pytest.raises(ValueError, match=r"expected x of shape \(b, t, 4\) with t >= 1, got"):
            layer(x)
    for rate in (0, 0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="rate must be positive and finite, got"):
            layer(torch.zeros(1, 3, 4), rate=rate)
        with pytest.raises(ValueError, match="rate must be positive and finite, got"):
            layer.step(torch.zeros(2, 4), layer.initial_state(2), rate)
    for bad in (float("nan"), float("inf")):
        x = torch.zeros(1, 3, 4)
        x[0, 1, 2] = bad
        with pytest.raises(ValueError, match="x must be finite, got NaN or infinite values"):
            layer(x)
        with pytest.raises(ValueError, match="x must be finite, got NaN or infinite values"):
            layer.step(x[:, 1], layer.initial_state(1))
    for dtype in (torch.long, torch.complex64):
        with pytest.raises(TypeError, match=r"x must have a floating-point dtype, got torch\."):
            layer(torch.zeros(1, 3, 4, dtype=dtype))
    for x in (torch.zeros(4), torch.zeros(2, 5), torch.zeros(2, 1, 4)):
        with pytest.raises(ValueError, match=r"expected x of shape \(b, 4\), got"):
            layer.step(x, layer.initial_state(2))


@EVERY_LAYER
def test_a_window_is_refused(make):
    with pytest.raises(ValueError, match="supports causal and padding masks only"):
        make(4)(torch.zeros(1, 3, 4), mask=Mask(causal=True, window=2))


@EVERY_MODEL
def test_errors_of_models(make):
    layer = make(4)
    for x in (torch.zeros(2, 3), torch.zeros(1, 0, 4)):
        with pytest.raises(ValueError, match=r"expected x of shape \(b, t, 4\) with t >= 1, got"):
            layer.convolve(x)
    with pytest.raises(ValueError, match="x must be finite, got NaN or infinite values"):
        layer.convolve(torch.full((1, 3, 4), float("nan")))
    calls = (lambda: layer.convolve(torch.zeros(1, 3, 4), rate=0.0), lambda: layer.kernel(3, rate=-1.0))
    for call in (*calls, lambda: layer.continuous(rate=0.0)):
        with pytest.raises(ValueError, match="rate must be positive and finite, got"):
            call()
    for length in (0, -1):
        with pytest.raises(ValueError, match=f"length must be at least 1, got {length}"):
            layer.kernel(length)


@EVERY_MODEL_AND_LAYER
def test_a_state_of_another_shape(make):
    layer = make(4)
    with pytest.raises(ValueError, match=r"expected a state of shape \(2, .*\), got \(1, "):
        layer.step(torch.zeros(2, 4), layer.initial_state(1))
    cache = layer.cache()
    layer(torch.zeros(3, 5, 4), cache=cache)
    with pytest.raises(ValueError, match=r"expected a state of shape \(2, .*\), got \(3, "):
        layer(torch.zeros(2, 5, 4), cache=cache)
    with pytest.raises(ValueError, match="state"):
        layer.step(torch.zeros(2, 4), "state")
    state = layer.initial_state(2)
    wrong = tuple(x.long() for x in state) if isinstance(state, tuple) else state.long()
    with pytest.raises(TypeError, match=r"state must have a floating-point dtype, got torch\.int64"):
        layer.step(torch.zeros(2, 4), wrong)


def test_the_states_of_a_selective_layer():
    layer = SelectiveStateSpace(4, state_dim=3)
    inputs, state = layer.initial_state(2)
    for wrong in ((inputs[:, 1:], state), (inputs, state[..., 1:]), (inputs[..., 1:], state)):
        with pytest.raises(ValueError, match=r"expected a state of shape \(2, .*\), got \(2, "):
            layer.step(torch.zeros(2, 4), wrong)
    with pytest.raises(ValueError, match="state must have two tensors, as from initial_state, got Tensor"):
        layer.step(torch.zeros(2, 4), state)


@EVERY_MODEL_AND_LAYER
def test_one_sample(make):
    layer, x = make(4), torch.randn(2, 1, 4)
    y, _ = layer.step(x[:, 0], layer.initial_state(2))
    torch.testing.assert_close(layer(x)[:, 0], y)
    if hasattr(layer, "convolve"):
        torch.testing.assert_close(layer.convolve(x)[:, 0], y, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(layer.kernel(1)[:, 0] * x[:, 0], y, rtol=1e-4, atol=1e-5)


@EVERY_MODEL_AND_LAYER
def test_an_empty_batch(make):
    layer, cache = make(4), make(4).cache()
    y = layer(torch.zeros(0, 5, 4))
    y.sum().backward()
    assert y.shape == layer(torch.zeros(0, 5, 4), cache=cache).shape == (0, 5, 4)
    assert all(not p.grad.any() for p in layer.parameters() if p.grad is not None)
    assert len(layer.step(torch.zeros(0, 4), layer.initial_state(0))[0]) == 0


@EVERY_MODEL
def test_constant_signals(make):
    layer = make(3)
    y = layer(torch.full((1, 300, 3), 2.0))
    torch.testing.assert_close(y[0].mT, 2 * layer.kernel(300).cumsum(-1), rtol=1e-3, atol=1e-3)
    assert not layer(torch.zeros(1, 300, 3)).any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"state_dim": 7}, "state_dim must be even"),
        ({"init": "line"}, "init must be one of lin, inv, legs, got 'line'"),
        ({"discretization": "euler"}, "discretization must be one of foh, zoh, bilinear, got 'euler'"),
        ({"state_dim": 0}, "dim and state_dim must be at least 1, got dim=4, state_dim=0"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        S4D(4, **arguments)


@pytest.mark.parametrize("kind", [S4D, S4, EMALayer, SelectiveStateSpace])
@pytest.mark.parametrize(("low", "high"), [(0.0, 0.1), (-0.1, 0.1), (0.2, 0.1), (0.1, float("inf")), (float("nan"), 1)])
def test_bad_steps(kind, low, high):
    with pytest.raises(ValueError, match="expected 0 < dt_min <= dt_max, both finite, got dt_min="):
        kind(4, dt_min=low, dt_max=high)


@pytest.mark.parametrize("name", ["state_dim", "expand", "conv_size", "dt_rank"])
def test_bad_sizes_of_a_selective_layer(name):
    with pytest.raises(ValueError, match=f"sizes must be at least 1, got .*{name}=0"):
        SelectiveStateSpace(4, **{name: 0})


def test_a_constant_is_its_own_average():
    layer = EMALayer(1, dt_min=0.5)
    y = layer(torch.full((1, 200, 1), 3.0))[0, -1] - 3 * layer.skip
    torch.testing.assert_close(y, torch.tensor([3.0]), rtol=1e-4, atol=1e-4)


def test_the_initial_steps_of_a_selective_state_space_are_log_uniform():
    layer = SelectiveStateSpace(200, dt_min=1e-2, dt_max=1.0)
    steps = torch.nn.functional.softplus(layer.dt_proj.bias.detach())
    assert 0.99e-2 < float(steps.min()) < 2e-2
    assert 0.5 < float(steps.max()) < 1.01
    assert float(steps.log10().mean()) == pytest.approx(-1.0, abs=0.15)  # 400 steps: five standard errors


def test_recurrent_cache():
    cache = RecurrentCache()
    cache.write([torch.arange(6.0).view(3, 2)], length=4)
    assert torch.equal(cache.select(torch.tensor([2, 0])).state[0], torch.tensor([[4.0, 5.0], [0.0, 1.0]]))
    with pytest.raises(ValueError, match="can only be trimmed to 0 or 4 tokens, got 2"):
        cache.trim(2)
    results = [cache.reuse(key, lambda found=found: found) for key, found in ((1, "a"), (1, "b"), (2, "c"))]
    assert results == ["a", "a", "c"]
    cache.trim(0)
    assert (cache.length, cache.nbytes, repr(cache)) == (0, 0, "RecurrentCache(length=0)")
