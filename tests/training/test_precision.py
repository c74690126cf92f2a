import pytest
import torch
from torch import nn

from lawful.training.precision import _compile, _Precision
from lawful.training.setup import TrainerConfig


def test_float32_has_no_autocast():
    messages = []
    precision = _Precision(TrainerConfig(), messages.append)
    with precision.autocast():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
    assert (messages, precision.scaler) == ([], None)


def test_bfloat16_keeps_weights_in_float32():
    layer, precision = nn.Linear(2, 1), _Precision(TrainerConfig(precision="bfloat16"), print)
    with precision.autocast():
        y = layer(torch.ones(3, 2))
    assert y.dtype == torch.bfloat16
    precision.backward(y.sum())
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    precision.unscale(optimizer)
    precision.step(optimizer)
    precision.update()
    assert layer.weight.dtype == torch.float32


def test_unsupported_precision_falls_back_to_float32(monkeypatch):
    messages = []
    monkeypatch.setattr(_Precision, "_is_supported", lambda self: False)
    precision = _Precision(TrainerConfig(precision="float16"), messages.append)
    assert messages == ["float16 is not supported on cpu: using float32"]
    assert (precision.dtype, precision.scaler) == (torch.float32, None)


def test_a_model_that_does_not_compile_runs_in_eager_mode(monkeypatch):
    model, messages = nn.Linear(2, 1), []
    monkeypatch.setattr(torch, "compile", lambda call: call)

    def trial():
        raise RuntimeError("no compiler\nmore lines")

    _compile(model, trial, messages.append)
    assert messages == ["torch.compile failed, training in eager mode: no compiler"]
    assert model(torch.ones(1, 2)).shape == (1, 1)
    assert list(model.state_dict()) == ["weight", "bias"]


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_model_keeps_its_parameter_names():
    model, messages = nn.Linear(2, 1), []
    _compile(model, lambda: model(torch.ones(1, 2)), messages.append)
    assert list(model.state_dict()) == ["weight", "bias"]
