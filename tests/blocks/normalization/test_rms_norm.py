import pytest
import torch
from torch.nn import functional as F

from lawful.blocks import RMSNorm


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_torch_with_its_weights(dtype):
    theirs = torch.nn.RMSNorm(6, eps=1e-3).to(dtype)
    torch.nn.init.normal_(theirs.weight, generator=torch.Generator().manual_seed(0))
    ours = RMSNorm(6, eps=1e-3).to(dtype)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 3, 6, generator=torch.Generator().manual_seed(1), dtype=dtype)
    torch.testing.assert_close(ours(x), theirs(x))
    torch.testing.assert_close(ours(x), ours.weight * x / (x.square().mean(-1, keepdim=True) + 1e-3).sqrt())


def leaves(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    norm = RMSNorm(6, eps=1e-2).to(dtype)
    torch.nn.init.normal_(norm.weight, generator=generator)
    x, g = (torch.randn(2, 5, 3, 6, generator=generator, dtype=dtype) for _ in "xg")
    return norm, x, g


def theirs(norm, x):
    return F.rms_norm(x, (6,), norm.weight, norm.eps)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (1, 2, 0, 3), (0, 3, 1, 2)], ids=["straight", "turned", "strided"])
def test_values_are_those_of_pytorch_to_the_bit_and_so_are_gradients_but_for_rounding(dtype, order):
    norm, x, g = leaves(dtype)
    x = x.permute(order)
    x = (x if order[3] == 3 else x.transpose(1, 3)).detach().requires_grad_()
    g = g.reshape(x.shape)
    assert torch.equal(norm(x), theirs(norm, x))
    assert torch.equal(norm(x).detach(), torch.no_grad()(norm)(x))
    found, wanted = (torch.autograd.grad(f(x), (x, norm.weight), g) for f in (norm, lambda x: theirs(norm, x)))
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b)


def test_only_what_is_asked_for_is_computed():
    norm, x, g = leaves()
    wanted = torch.autograd.grad(theirs(norm, x), norm.weight, g)
    torch.testing.assert_close(torch.autograd.grad(norm(x), norm.weight, g), wanted)
    norm.requires_grad_(False)
    assert not norm(x).requires_grad
    x.requires_grad_()
    norm(x).backward(g)
    torch.testing.assert_close(x.grad, torch.autograd.grad(theirs(norm, x), x, g)[0])
    found, wanted = (torch.autograd.grad(f(x), x, g, create_graph=True)[0] for f in (norm, lambda x: theirs(norm, x)))
    torch.testing.assert_close(*(torch.autograd.grad(y.square().sum(), x)[0] for y in (found, wanted)))


def test_second_and_forward_derivatives():
    norm, x, _ = leaves()
    few = x[0, :2].detach().requires_grad_()
    assert torch.autograd.gradcheck(norm, few, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(norm, few)

    def of_weight(weight, x):
        return torch.func.functional_call(norm, {"weight": weight}, x)

    assert torch.autograd.gradgradcheck(of_weight, (norm.weight.detach().requires_grad_(), few))
    assert torch.autograd.gradgradcheck(norm, few[0, 0])


def test_transforms_of_functions():
    norm, x, _ = leaves()
    torch.testing.assert_close(torch.vmap(norm)(x), theirs(norm, x))
    row = x[0, 0, 0]
    jacobians = [of(norm)(row) for of in (torch.func.jacrev, torch.func.jacfwd)]
    for found in jacobians:
        torch.testing.assert_close(found, torch.func.jacrev(lambda x: theirs(norm, x))(row))
    parameters = dict(norm.named_parameters())
    each = torch.func.vmap(
        torch.func.grad(lambda p, x: torch.func.functional_call(norm, p, x).square().sum()), in_dims=(None, 0)
    )(parameters, x)
    for n, one in enumerate(x):
        norm.zero_grad()
        norm(one).square().sum().backward()
        torch.testing.assert_close(each["weight"][n], norm.weight.grad)


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match=r"size 6: got shape \(2, 5\)"):
        RMSNorm(6)(torch.zeros(2, 5))
    with pytest.raises(ValueError, match="at least 1: got 0"):
        RMSNorm(0)
