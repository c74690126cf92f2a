import hashlib

import pytest
import torch

from lawful.data import SupervisedDataset, fingerprint
from lawful.data.batches import derive_seed, make_generator


def test_fingerprint_depends_on_values_shapes_dtypes_and_order():
    x = torch.arange(6.0)
    all_of_them = [
        (x,),
        (x.reshape(2, 3),),
        (x.reshape(3, 2),),
        (x.double(),),
        (x.int(),),
        (x, x),
        (x + 1,),
        (-0.0 * x,),
    ]
    all_of_them += [(0 * x,), (x[:5],), (torch.zeros(0),), (), (torch.zeros(()),), (x > 2,), (x.bfloat16(),)]
    assert len({fingerprint(*tensors) for tensors in all_of_them}) == len(all_of_them)
    assert fingerprint(x.reshape(2, 3).T.contiguous()) == fingerprint(x.reshape(2, 3).T)


def test_it_is_the_sha256_of_the_bytes():
    x = torch.tensor([1.0, 2.0])
    assert fingerprint(x) == hashlib.sha256(b"torch.float32 (2,);" + x.numpy().tobytes()).hexdigest()


def test_seeds_do_not_collide():
    assert len({derive_seed(a, b) for a in range(50) for b in range(50)}) == 2500
    assert all(0 <= derive_seed(a) < 2**63 for a in (-5, 0, 2**70))
    assert (
        torch.rand(3, generator=make_generator(1, 2)).tolist() != torch.rand(3, generator=make_generator(2, 1)).tolist()
    )


def test_invalid_arguments_raise():
    x, y = torch.zeros(3, 2), torch.tensor([0, 1, 1])
    assert len(SupervisedDataset(inputs=x, targets=y, classes=("a", "b"), columns=("p", "q"))) == 3
    with pytest.raises(ValueError, match="equal, non-zero lengths: got 3 and 2"):
        SupervisedDataset(inputs=x, targets=y[:2], classes=("a", "b"))
    with pytest.raises(ValueError, match=r"for 1 column names, got \(3, 2\)"):
        SupervisedDataset(inputs=x, targets=y, classes=("a", "b"), columns=("p",))
    with pytest.raises(ValueError, match="between 0 and 0"):
        SupervisedDataset(inputs=x, targets=y, classes=("a",))
    with pytest.raises(ValueError, match=r"expected int64 targets of shape \(n,\), got torch\.float32"):
        SupervisedDataset(inputs=x, targets=y.float(), classes=("a", "b"))
    with pytest.raises(ValueError, match="expected float targets"):
        SupervisedDataset(inputs=x, targets=torch.zeros(3))
