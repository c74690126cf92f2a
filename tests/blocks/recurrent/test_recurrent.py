import pytest
import torch
from torch import nn

from lawful.blocks import GRU, LSTM, Elman

PAIRS = [(Elman, nn.RNN, nn.RNNCell), (GRU, nn.GRU, nn.GRUCell), (LSTM, nn.LSTM, nn.LSTMCell)]


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("ours", "theirs", "cell"), PAIRS)
def test_equals_torch_and_takes_its_weights(ours, theirs, cell):
    layer, other = ours(3, 4).double(), theirs(3, 4, batch_first=True).double()
    layer.load_state_dict(other.state_dict())
    x = randn(2, 5, 3)
    torch.testing.assert_close(layer(x)[0], other(x)[0], rtol=0, atol=0)


@pytest.mark.parametrize(("ours", "theirs", "cell"), PAIRS)
def test_equals_the_cell_of_torch_unrolled(ours, theirs, cell):
    layer, one = ours(3, 4).double(), cell(3, 4).double()
    one.load_state_dict({name.removesuffix("_l0"): p for name, p in layer.state_dict().items()})
    x, state, outputs = randn(2, 5, 3), None, []
    for now in x.unbind(1):
        state = one(now, state)
        outputs.append(state[0] if isinstance(state, tuple) else state)
    y, last = layer(x)
    torch.testing.assert_close(y, torch.stack(outputs, 1))
    torch.testing.assert_close(last, state)


@pytest.mark.parametrize("kind", [Elman, GRU, LSTM])
def test_a_sequence_goes_on_from_a_state(kind):
    layer, x = kind(3, 4).double(), randn(2, 5, 3)
    whole, last = layer(x)
    first, state = layer(x[:, :2])
    second, end = layer(x[:, 2:], state)
    torch.testing.assert_close(torch.cat([first, second], 1), whole)
    torch.testing.assert_close(end, last)
    stepped, _ = layer.step(x[:, 2], state)
    torch.testing.assert_close(stepped, whole[:, 2])


@pytest.mark.parametrize("kind", [Elman, GRU, LSTM])
def test_nan_goes_forward_in_time_only(kind):
    x = randn(1, 4, 3)
    x[:, 2] = float("nan")
    assert kind(3, 4).double()(x)[0].isnan().all(-1).tolist() == [[False, False, True, True]]


@pytest.mark.parametrize("kind", [Elman, GRU, LSTM])
def test_errors_say_what_was_wanted_and_what_came(kind):
    with pytest.raises(ValueError, match=r"shape \(b, t, 3\) with t at least 1 were wanted: got shape \(2, 5, 4\)"):
        kind(3, 4)(torch.zeros(2, 5, 4))
    with pytest.raises(ValueError, match=r"got shape \(2, 0, 3\)"):
        kind(3, 4)(torch.zeros(2, 0, 3))
    with pytest.raises(ValueError, match="got d=0"):
        kind(0, 4)


@pytest.mark.parametrize("kind", [Elman, GRU, LSTM])
def test_steps_and_states_of_other_sizes_are_refused(kind, unchecked):
    layer, x = kind(2, 3), torch.zeros(4, 2)
    for sizes in ((4, 2), (1, 3), (3,)):
        state = (torch.zeros(4, 3), torch.zeros(sizes)) if kind is LSTM else torch.zeros(sizes)
        for call, given in ((layer.step, x), (layer, x[:, None])):
            with pytest.raises(ValueError, match=r"a state of shape \(4, 3\) was wanted: got shape \("):
                call(given, state)
    with pytest.raises(ValueError, match=r"vectors of shape \(b, 2\) were wanted: got shape \(4, 3\)"):
        layer.step(torch.zeros(4, 3))


def test_the_state_of_an_lstm_is_two(unchecked):
    layer, x = LSTM(2, 3), torch.zeros(4, 2)
    for call, given in ((layer.step, x), (layer, x[:, None])):
        with pytest.raises(ValueError, match="a state of two, h and c, was wanted: got Tensor of 4"):
            call(given, torch.zeros(4, 3))
