from functools import partial

import pytest
import torch
from torch import nn

from lawful import blocks, optim
from lawful.optim import newton_schulz
from lawful.optim.transforms import AdamMoments


def matrices(model):
    return [p for p in model.parameters() if p.ndim == 2]


SCALES = [(optim.aspect_ratio_scale, "original"), (optim.adam_matched_scale, "match_rms_adamw")]


@pytest.mark.parametrize(("scale", "theirs"), SCALES)
def test_equals_pytorchs(scale, theirs, dtype, tools, monkeypatch):
    ours = partial(optim.muon, lr=0.02, decay=0.1, scale=scale, precision=dtype)
    other = partial(torch.optim.Muon, lr=0.02, weight_decay=0.1, adjust_lr_fn=theirs)
    mine, _ = tools.trained(lambda m: ours(matrices(m)), dtype, steps=50 if dtype is torch.float64 else 10)
    monkeypatch.setattr(
        torch.Tensor, "bfloat16", torch.Tensor.clone
    )  # PyTorch's goes down to it; here it stays as it is
    same, _ = tools.trained(lambda m: other(matrices(m)), dtype, steps=50 if dtype is torch.float64 else 10)
    tolerance = 1e-3 if dtype is torch.float32 else 1e-8
    for a, b in zip(matrices(mine), matrices(same), strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("scale", "theirs"), SCALES)
def test_equals_pytorchs_in_low_precision(scale, theirs, dtype, tools):
    ours = partial(optim.muon, lr=0.02, scale=scale, precision=torch.bfloat16)
    other = partial(torch.optim.Muon, lr=0.02, adjust_lr_fn=theirs)
    mine, _ = tools.trained(lambda m: ours(matrices(m)), dtype, steps=1)
    same, _ = tools.trained(lambda m: other(matrices(m)), dtype, steps=1)
    for a, b in zip(matrices(mine), matrices(same), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0.02 * 0.02 * scale(*a.shape))


@pytest.mark.parametrize("shape", [(3, 3), (3, 7), (7, 3), (2, 4, 3), (2, 2, 3, 5), (1, 4), (4, 1)])
def test_orthogonalise_is_a_polynomial_of_the_singular_values(shape):
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    u, s, v = torch.linalg.svd(x, full_matrices=False)
    s = s / s.norm(dim=-1, keepdim=True)
    for _ in range(5):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    torch.testing.assert_close(newton_schulz(x), u * s[..., None, :] @ v, rtol=1e-8, atol=1e-8)


def test_of_zero_is_zero():
    assert (newton_schulz(torch.zeros(2, 3, 4)) == 0).all()


def test_stacking_changes_nothing(dtype):
    generator = torch.Generator().manual_seed(0)
    shapes = [(4, 6), (6, 4), (4, 6), (5, 5), (1, 3)]
    grads = [torch.randn(*shape, generator=generator).to(dtype) for shape in shapes]

    def moved(several):
        params = [nn.Parameter(torch.zeros_like(g)) for g in several]
        for p, g in zip(params, several, strict=True):
            p.grad = g
        optim.muon(params, lr=1.0).step()
        return params

    for together, (alone,) in zip(moved(grads), [moved([g]) for g in grads], strict=True):
        torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-4)


def test_one_optimizer_for_a_model():
    model = nn.Sequential(blocks.Embedding(5, 4), nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 3))
    optimizer = optim.muon_with_adamw(model, lr=0.02, adam_lr=1e-3, decay=0.0, on="[!3]*")
    first, rest = optimizer.param_groups
    assert [p is model[1].weight for p in first["params"]] == [True]
    assert (first["kind"], first["lr"], rest["kind"], rest["lr"]) == ("muon", 0.02, "adamw", 1e-3)
    assert len(rest["params"]) == 6
    before = [p.detach().clone() for p in model.parameters()]
    model(torch.arange(5)).square().sum().backward()
    optimizer.step()
    assert all((p != q).any() for p, q in zip(model.parameters(), before, strict=True))
    values = torch.linalg.svdvals((before[1] - model[1].weight).detach()) / 0.02
    assert (values < 1.3).all()


def test_a_model_without_matrices_is_adamws():
    (group,) = optim.muon_with_adamw(nn.LayerNorm(3)).param_groups
    assert group["kind"] == "adamw"


def test_errors_say_what_was_wanted_and_what_came():
    x = nn.Parameter(torch.zeros(3))
    x.grad = torch.ones(3)
    with pytest.raises(ValueError, match=r"for matrices: got a parameter of shape \(3,\)"):
        optim.muon([x]).step()
    with pytest.raises(ValueError, match="steps is at least 1 and below 100: got 0"):
        optim.muon([x], steps=0)


def test_rates_of_adamw_by_patterns_of_names():
    model = nn.Sequential(nn.Linear(2, 3), nn.Embedding(5, 3), nn.Linear(3, 2))
    rates = {"1.*": 0.1, "2.*": 0.2, "*": 0.3}
    moments = AdamMoments(beta1=0.5)
    optimizer = optim.muon_with_adamw(model, lr=0.5, adam_lr=rates, moments=moments, on="0.*")
    found = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    wanted = {"0.weight": 0.5, "0.bias": 0.3, "1.weight": 0.1, "2.weight": 0.2, "2.bias": 0.2}
    assert {name: found[id(p)]["lr"] for name, p in model.named_parameters()} == wanted
    assert found[id(model[1].weight)]["beta1"] == 0.5
    with pytest.raises(ValueError, match="a pattern for every name"):
        optim.muon_with_adamw(model, adam_lr={"1.*": 0.1})


def test_the_momentum_rises_as_the_option_of_a_group_by_hand_does(tools):
    rising = optim.WarmupMomentum(0.95, first=0.5, rise=8)

    def by_hand(model):
        optimizer = optim.muon(matrices(model), lr=0.02)
        step = optimizer.step

        def stepped():
            t = next(counted)
            optimizer.param_groups[0]["beta"] = 0.95 - 0.45 * max(0, 1 - t / 8)
            step()

        counted, optimizer.step = iter(range(20)), stepped
        return optimizer

    mine, made = tools.trained(lambda m: optim.muon(matrices(m), lr=0.02, beta=rising), torch.float64, steps=20)
    same, _ = tools.trained(by_hand, torch.float64, steps=20)
    for a, b in zip(matrices(mine), matrices(same), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)
    group = made.param_groups[0]
    assert (group["beta"], group["first"], group["rise"]) == (0.95, 0.5, 8)


def test_a_rise_goes_on_from_what_is_kept(tools):
    build = partial(optim.muon, lr=0.02, beta=optim.WarmupMomentum(0.9, first=0.1, rise=6))
    whole, optimizer = tools.trained(lambda m: build(matrices(m)), torch.float64, steps=4)
    other = tools.network(torch.float64)
    other.load_state_dict(whole.state_dict())
    again = build(matrices(other))
    again.load_state_dict(optimizer.state_dict())
    for model, one in ((whole, optimizer), (other, again)):
        for p in matrices(model):
            p.grad = torch.ones_like(p)
        one.step()
    tools.close(other, whole, torch.float64)


def test_the_bounds_of_a_rise():
    with pytest.raises(ValueError, match="first is at least 0 and below 1: got 1"):
        optim.WarmupMomentum(first=1.0)
    with pytest.raises(ValueError, match="rise is at least 0 and below inf: got -1"):
        optim.WarmupMomentum(rise=-1)
