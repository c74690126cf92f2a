import numpy as np
import pytest
import torch
from torch.nn import functional as F

from lawful.blocks import CIRCULAR, FULL, NONE, REFLECT, SAME, Padding
from lawful.blocks.convolution_matrix import as_padding

MODES = {"constant": "constant", "circular": "wrap", "reflect": "reflect"}


@pytest.mark.parametrize("padding", [NONE, SAME, FULL, CIRCULAR, REFLECT, Padding("reflect", extra=1)])
@pytest.mark.parametrize("span", [0, 1, 2, 3])
def test_the_fills_are_those_of_numpy(padding, span):
    x = torch.arange(1.0, 8.0)
    ours = F.pad(x[None, None], padding.sides(span), mode=padding.fill)[0, 0]
    np.testing.assert_array_equal(ours, np.pad(x, padding.sides(span), mode=MODES[padding.fill]))


@pytest.mark.parametrize("span", range(6))
def test_an_odd_number_has_one_more_after(span):
    before, after = SAME.sides(span)
    assert before + after == span
    assert after - before == span % 2
    assert FULL.sides(span) == (span, span)
    assert NONE.sides(span) == (0, 0)
    assert as_padding(3).sides(span) == (3, 3)


def test_a_padding_is_itself_and_compares_by_value():
    assert as_padding(CIRCULAR) is CIRCULAR
    assert as_padding(2) == Padding(extra=2)
    assert len({SAME, Padding(spans=1), CIRCULAR}) == 2


def test_errors_say_what_was_wanted_and_what_came(unchecked):
    with pytest.raises(ValueError, match="fill is one of constant, circular, reflect: got 'same'"):
        Padding("same")
    with pytest.raises(ValueError, match="at least 0: got spans=-1, extra=0"):
        Padding(spans=-1)
    with pytest.raises(ValueError, match="at least 0: got spans=0, extra=-2"):
        as_padding(-2)
    with pytest.raises(TypeError, match="padding is a Padding, or an int of zeros on both sides: got 'same'"):
        as_padding("same")
