r"""Properties of a state-space layer: impulse response, spectrum, time scales, frequency response.

Time is measured in samples. A layer with the learned step $\Delta$ has, for each channel, the continuous modes
$\lambda$ (the eigenvalues of $\Delta A$) and the discrete ones $\bar\lambda$ (those of the recurrence).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Complex, Float
from torch import Tensor, nn

from lawful.blocks.state_space import S4, S4D, EMALayer, StateSpace
from lawful.functions.linear_system import DiagonalSystem

_Model = S4D | S4 | EMALayer


def _model(layer: nn.Module, rate: float) -> _Model:
    """Returns the models of a layer, one per channel."""
    model = layer.ssm if isinstance(layer, StateSpace) else layer
    if not isinstance(model, _Model):
        raise TypeError(
            "layer must be a StateSpace, S4D, S4 or EMALayer, whose weights do not depend on the input: "
            f"got {type(model).__name__}"
        )
    if not 0 < rate < math.inf:
        raise ValueError(f"rate must be positive and finite, got {rate}")
    return model


@torch.no_grad()
def impulse_response(layer: nn.Module, length: int, *, rate: float = 1.0) -> Float[Tensor, "d t"]:
    r"""Returns the response of each channel to an impulse: the kernel of the convolution.

    $$k_0 = d, \qquad k_t = c^\top \bar A^{t-1} b, \qquad y_t = \sum_{s \le t} k_s u_{t-s}$$

    Entry 0 is the direct weight, which contains the skip connection.

    Args:
        layer: `StateSpace`, `S4D`, `S4` or `EMALayer`.
        length: Number of samples.
        rate: Factor of the sampling step.

    Examples:
        >>> from lawful.blocks import EMALayer
        >>> average = EMALayer(1, dt_min=0.5, dt_max=0.5)
        >>> response = impulse_response(average, 4)
        >>> response[0, 2:] / response[0, 1:-1]  # exp(-0.5)
        tensor([0.6065, 0.6065])
    """
    model = _model(layer, rate)
    if length < 1:
        raise ValueError(f"length must be at least 1, got {length}")
    return model.kernel(length, rate=rate)


@torch.no_grad()
def spectrum(layer: nn.Module, *, rate: float = 1.0) -> Complex[Tensor, "d n"]:
    r"""Returns the modes of each channel in continuous time: the eigenvalues of $\Delta A$.

    $$\lambda = -\text{decay rate} + i \cdot \text{angular frequency}$$

    The decay rate is per sample, the angular frequency in radians per sample. A frequency above $\pi$ is beyond the
    Nyquist frequency: samples do not show it. There is one mode for each state; complex modes come in conjugate pairs.

    The matrix of `S4` is not normal: at its initialization, HiPPO-LegS, the modes are $-\Delta, -2\Delta, \dots$, but
    beyond about 8 states rounding changes the fast ones. The impulse response is not sensitive.

    Args:
        layer: `StateSpace`, `S4D`, `S4` or `EMALayer`.
        rate: Factor of the sampling step.

    Examples:
        >>> from lawful.blocks import S4D
        >>> spectrum(S4D(1, state_dim=4, dt_min=0.1, dt_max=0.1))[0].to(torch.complex64)
        tensor([-0.0500+0.0000j, -0.0500+0.3142j, -0.0500-0.0000j, -0.0500-0.3142j])
    """
    model = _model(layer, rate)
    if isinstance(model, S4D):
        modes = torch.cat([model.modes(), model.modes().conj()], -1)
    elif isinstance(model, S4):
        modes = torch.linalg.eigvals(model.matrix())
    else:
        modes = torch.complex(-torch.ones_like(model.log_dt), torch.zeros_like(model.log_dt)).unsqueeze(-1)
    return rate * model.log_dt.double().exp().unsqueeze(-1) * modes


@torch.no_grad()
def time_scales(layer: nn.Module, *, rate: float = 1.0) -> Float[Tensor, "d n"]:
    r"""Returns the time scales of each channel: the number of samples in which a mode decays to $1/e$.

    $$\tau = -1 / \log |\bar\lambda|$$

    This is the inverse of the decay rate, $-1 / \operatorname{Re} \lambda$, unless the discretization is bilinear.
    A bilinear discretization slows down the decay of fast oscillations.

    Args:
        layer: `StateSpace`, `S4D`, `S4` or `EMALayer`.
        rate: Factor of the sampling step.

    Examples:
        >>> from lawful.blocks import EMALayer
        >>> time_scales(EMALayer(1, dt_min=0.01, dt_max=0.01)).round(decimals=3)
        tensor([[100.]], dtype=torch.float64)
    """
    system = _model(layer, rate).system(rate)
    if isinstance(system, DiagonalSystem):
        sizes = system.transition.abs().repeat(1, 2)
    else:
        sizes = torch.linalg.eigvals(system.transition).abs()
    return -1 / sizes.log()


class FrequencyResponse(NamedTuple):
    """Response to sine waves.

    Args:
        gain: Amplitude of the output for an input of amplitude 1.
        phase: Phase of the output relative to the input, between -π and π. A delayed output has a negative phase.
    """

    gain: Float[Tensor, "d f"]
    phase: Float[Tensor, "d f"]


@torch.no_grad()
def frequency_response(layer: nn.Module, frequencies: Float[Tensor, " f"], *, rate: float = 1.0) -> FrequencyResponse:
    r"""Returns the gain and phase of each channel at some frequencies, after all transients.

    $$H(\omega) = d + c^\top (e^{i \omega} I - \bar A)^{-1} b, \qquad
    \sin(\omega t) \mapsto |H| \sin(\omega t + \arg H)$$

    $H$ is the Fourier transform of the impulse response.

    Args:
        layer: `StateSpace`, `S4D`, `S4` or `EMALayer`.
        frequencies: Frequencies $\omega / 2 \pi$ in cycles per sample, from 0 to 0.5.
        rate: Factor of the sampling step.

    Examples:
        >>> from lawful.blocks import EMALayer
        >>> average = EMALayer(1)
        >>> _ = nn.init.zeros_(average.skip)
        >>> gain, phase = frequency_response(average, torch.tensor([0.0, 0.5]))
        >>> gain[0, 0].round(decimals=6), bool(gain[0, 1] < 0.5)  # a low-pass filter
        (tensor(1., dtype=torch.float64), True)
    """
    system = _model(layer, rate).system(rate)
    if frequencies.dim() != 1 or not bool(((frequencies >= 0) & (frequencies <= 0.5)).all()):
        raise ValueError(
            "frequencies must be a vector of numbers between 0 and 0.5 cycles per sample, "
            f"got {frequencies.tolist() if frequencies.numel() < 5 else tuple(frequencies.shape)}"
        )
    angles = 2 * math.pi * frequencies.double().to(system.d.device)
    points = torch.polar(torch.ones_like(angles), angles)
    if isinstance(system, DiagonalSystem):
        weights, poles = (system.c * system.b).unsqueeze(-1), system.transition.unsqueeze(-1)
        pairs = weights / (points - poles) + weights.conj() / (points - poles.conj())
        response = system.d.unsqueeze(-1) + pairs.sum(1)
    else:
        transition, b, c = (x.to(points) for x in (system.transition, system.b, system.c))
        identity = torch.eye(transition.shape[-1]).to(points)
        solved = [torch.linalg.solve(z * identity - transition, b) for z in points]  # one by one, to save memory
        response = system.d.unsqueeze(-1) + torch.stack([(c * x).sum(-1) for x in solved], -1)
    return FrequencyResponse(response.abs(), response.angle())
