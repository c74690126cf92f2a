import pytest

import lawful
from lawful.blocks.normalization import INPUTS, LAWS, TABLE, normalised

NOES = [(kind, column) for kind, row in TABLE.items() for column, holds in zip(LAWS, row, strict=True) if not holds]


@pytest.mark.parametrize(("kind", "column"), NOES)
def test_every_no_of_the_table_is_refuted(kind, column):
    verdict = lawful.check(normalised(kind), LAWS[column], inputs=INPUTS, cases=20).verdicts[0]
    assert verdict.status == "refuted"


def test_a_row_that_is_not_there():
    with pytest.raises(ValueError, match="one of batch norm, weight norm, layer norm: got 'group norm'"):
        normalised("group norm")
