import pytest
import torch

from lawful.blocks import LearnedPositions, SinusoidalPositions


def test_learned_positions_are_rows():
    layer = LearnedPositions(6, 3)
    torch.testing.assert_close(layer(torch.tensor([[5, 0]])), layer.weight[[5, 0]][None])
    assert list(layer.state_dict()) == ["weight"]


def test_sinusoidal_positions_equal_numpy():
    positions = torch.tensor([0, 1, 50, 1000])
    angles = positions.double()[:, None] / 10000 ** (torch.arange(4) / 4)
    wanted = torch.empty(4, 8, dtype=torch.float64)
    wanted[:, 0::2], wanted[:, 1::2] = angles.sin(), angles.cos()
    torch.testing.assert_close(SinusoidalPositions(8).double()(positions), wanted)
    assert SinusoidalPositions(8)(positions).dtype == torch.float32


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(IndexError, match="positions from 0 to 3 were wanted: got 2 to 4"):
        LearnedPositions(4, 2)(torch.tensor([2, 4]))
    with pytest.raises(ValueError, match="n=0"):
        LearnedPositions(0, 2)
    with pytest.raises(ValueError, match="even, and at least 2: got 3"):
        SinusoidalPositions(3)
    with pytest.raises(ValueError, match=r"above 0: got 0\.0"):
        SinusoidalPositions(4, base=0.0)


def test_learned_positions_begin_as_those_of_gpt2():
    assert LearnedPositions(2000, 50).weight.std().item() == pytest.approx(0.02, rel=0.02)
