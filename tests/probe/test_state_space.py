"""Probes of state-space layers against the layers themselves: what they do to impulses and to sine waves."""

import math
from functools import partial

import pytest
import torch
from torch import nn

from lawful.blocks import S4, S4D, EMALayer, SelectiveStateSpace, StateSpace
from lawful.probe import frequency_response, impulse_response, spectrum, time_scales

FAST = {"dt_min": 0.1, "dt_max": 0.5}
TWO_STATES = {
    "S4D, foh": partial(S4D, state_dim=2, init="inv", **FAST),
    "S4D, bilinear": partial(S4D, state_dim=2, init="legs", discretization="bilinear", **FAST),
    "S4": partial(S4, state_dim=2, **FAST),
}
LAYERS = {
    "S4D": partial(S4D, state_dim=6, **FAST),
    "S4D, zoh": partial(S4D, state_dim=6, discretization="zoh", **FAST),
    "S4": partial(S4, state_dim=6, **FAST),
    "EMALayer": partial(EMALayer, **FAST),
}
all_layers = pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)


@pytest.mark.parametrize("rate", [1.0, 2.0])
@pytest.mark.parametrize("name", TWO_STATES)
def test_modes_are_those_of_the_kernel(name, rate):
    """Prony: a kernel with two modes obeys k[t + 2] = trace k[t + 1] - determinant k[t]."""
    layer = TWO_STATES[name](3).double()
    kernel = impulse_response(layer, 6, rate=rate)[:, 1:]
    rows = torch.stack([kernel[:, 1:-1], -kernel[:, :-2]], -1)
    trace, determinant = torch.linalg.lstsq(rows, kernel[:, 2:, None]).solution[..., 0].unbind(-1)
    torch.testing.assert_close((-1 / time_scales(layer, rate=rate)).sum(-1).exp(), determinant, rtol=1e-6, atol=1e-9)
    z = spectrum(layer, rate=rate)
    parts = 8 if name == "S4" else rate  # S4 has 8 steps for a sample; S4D keeps the modes of rate 1
    bilinear = ((1 + z / (2 * parts)) / (1 - z / (2 * parts))) ** parts
    discrete = z.exp() if name == "S4D, foh" else bilinear
    torch.testing.assert_close(discrete.sum(-1).real, trace, rtol=1e-6, atol=1e-9)


def test_an_average_decays_by_its_time_scale():
    layer = EMALayer(4).double()
    response, scales = impulse_response(layer, 50), time_scales(layer)
    torch.testing.assert_close(response[:, 1:], response[:, 1:2] * (-torch.arange(49) / scales).exp())
    torch.testing.assert_close(-1 / spectrum(layer).real, scales)


@pytest.mark.parametrize("discretization", ["foh", "zoh"])
def test_time_scales_are_inverse_decay_rates(discretization):
    layer = S4D(2, state_dim=8, discretization=discretization)
    torch.testing.assert_close(time_scales(layer), -1 / spectrum(layer).real)
    torch.testing.assert_close(time_scales(layer, rate=4.0), time_scales(layer) / 4)


def test_modes_of_hippo_are_the_negative_integers():
    modes = spectrum(S4(1, state_dim=6, dt_min=1.0, dt_max=1.0))[0]
    expected = -torch.arange(6.0, 0.0, -1.0).to(torch.complex128)
    torch.testing.assert_close(modes[modes.real.argsort()], expected, rtol=1e-2, atol=1e-2)


@all_layers
@pytest.mark.parametrize("rate", [1.0, 2.0])
def test_a_sine_is_scaled_and_shifted(make, rate):
    layer, frequencies = make(2).double(), torch.tensor([0.01, 0.07, 0.31, 0.5])
    gain, phase = frequency_response(layer, frequencies, rate=rate)
    times = torch.arange(400, dtype=torch.float64)
    for i, frequency in enumerate(frequencies.double()):
        angles = 2 * math.pi * frequency * times[:, None]
        y = layer(angles.cos().expand(1, -1, 2), rate=rate)[0, -100:]
        torch.testing.assert_close(y.detach(), gain[:, i] * (angles[-100:] + phase[:, i]).cos(), rtol=1e-5, atol=1e-5)


@all_layers
def test_the_frequency_response_is_the_transform_of_the_impulse_response(make):
    layer = make(3).double()
    gain, phase = frequency_response(layer, torch.fft.rfftfreq(512, dtype=torch.float64))
    torch.testing.assert_close(
        torch.polar(gain, phase), torch.fft.rfft(impulse_response(layer, 512)), rtol=1e-6, atol=1e-6
    )


def test_a_state_space_layer_is_probed_by_its_models():
    layer = StateSpace(2, ssm=partial(S4D, state_dim=4))
    for probe in (spectrum, time_scales, partial(impulse_response, length=9)):
        result = probe(layer)
        assert not result.requires_grad
        torch.testing.assert_close(result, probe(layer.ssm))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: spectrum(SelectiveStateSpace(2)), TypeError, "do not depend on the input: got SelectiveStateSpace"),
        (lambda: impulse_response(nn.Linear(2, 2), 5), TypeError, "StateSpace, S4D, S4 or EMALayer.* got Linear"),
        (lambda: impulse_response(EMALayer(2), 0), ValueError, "length must be at least 1, got 0"),
        (lambda: time_scales(EMALayer(2), rate=0.0), ValueError, r"rate must be positive and finite, got 0\.0"),
        (lambda: frequency_response(EMALayer(2), torch.tensor([0.7])), ValueError, "between 0 and 0.5"),
        (lambda: frequency_response(EMALayer(2), torch.tensor(0.1)), ValueError, "must be a vector"),
    ],
)
def test_invalid_arguments_raise(call, error, message):
    with pytest.raises(error, match=message):
        call()
