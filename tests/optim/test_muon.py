from functools import partial

import pytest
import torch
from torch import nn

from lawful import optim
from lawful.optim import muon as muon_module
from lawful.optim import newton_schulz


def matrices(model):
    return [p for p in model.parameters() if p.ndim == 2]


SCALES = [(optim.aspect_ratio_scale, "original"), (optim.adam_matched_scale, "match_rms_adamw")]


@pytest.mark.parametrize(("scale", "theirs"), SCALES)
def test_matches_pytorch(scale, theirs, dtype, tools, monkeypatch):
    ours = partial(optim.Muon, lr=0.02, weight_decay=0.1, scale=scale, dtype=dtype)
    other = partial(torch.optim.Muon, lr=0.02, weight_decay=0.1, adjust_lr_fn=theirs)
    mine, _ = tools.train_network(lambda m: ours(matrices(m)), dtype, steps=50 if dtype is torch.float64 else 10)
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.clone)  # PyTorch's Muon always computes in bfloat16
    same, _ = tools.train_network(lambda m: other(matrices(m)), dtype, steps=50 if dtype is torch.float64 else 10)
    tolerance = 1e-3 if dtype is torch.float32 else 1e-8
    for a, b in zip(matrices(mine), matrices(same), strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def test_momentum_without_nesterov_matches_pytorch(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.clone)  # PyTorch's Muon always computes in bfloat16
    ours, theirs = (nn.Parameter(torch.ones(3, 4, dtype=torch.float64)) for _ in range(2))
    optimizers = optim.Muon([ours], nesterov=False), torch.optim.Muon([theirs], nesterov=False)
    for seed in range(3):
        gradient = torch.randn(3, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        for p, optimizer in zip((ours, theirs), optimizers, strict=True):
            p.grad = gradient
            optimizer.step()
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(("scale", "theirs"), SCALES)
def test_matches_pytorch_in_bfloat16(scale, theirs, dtype, tools):
    ours = partial(optim.Muon, lr=0.02, scale=scale, dtype=torch.bfloat16)
    other = partial(torch.optim.Muon, lr=0.02, adjust_lr_fn=theirs)
    mine, _ = tools.train_network(lambda m: ours(matrices(m)), dtype, steps=1)
    same, _ = tools.train_network(lambda m: other(matrices(m)), dtype, steps=1)
    for a, b in zip(matrices(mine), matrices(same), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0.02 * 0.02 * scale(*a.shape))


@pytest.mark.parametrize("shape", [(3, 3), (3, 7), (7, 3), (2, 4, 3), (2, 2, 3, 5), (1, 4), (4, 1)])
def test_newton_schulz_is_a_polynomial_of_the_singular_values(shape):
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    u, s, v = torch.linalg.svd(x, full_matrices=False)
    s = s / s.norm(dim=-1, keepdim=True)
    for _ in range(5):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    torch.testing.assert_close(newton_schulz(x), u * s[..., None, :] @ v, rtol=1e-8, atol=1e-8)


def test_newton_schulz_of_zero_is_zero():
    assert (newton_schulz(torch.zeros(2, 3, 4)) == 0).all()


def test_batching_matrices_of_one_shape_changes_nothing(dtype):
    generator = torch.Generator().manual_seed(0)
    shapes = [(4, 6), (6, 4), (4, 6), (5, 5), (1, 3)]
    grads = [torch.randn(*shape, generator=generator).to(dtype) for shape in shapes]

    def moved(several):
        params = [nn.Parameter(torch.zeros_like(g)) for g in several]
        for p, g in zip(params, several, strict=True):
            p.grad = g
        optim.Muon(params, lr=1.0).step()
        return params

    for together, (alone,) in zip(moved(grads), [moved([g]) for g in grads], strict=True):
        torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-4)


def test_muon_with_adamw_splits_the_parameters():
    model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 3))
    optimizer = optim.muon_with_adamw(model, lr=0.02, adam_lr=1e-3, weight_decay=0.0, muon_params="[!3]*")
    first, rest = optimizer.param_groups
    assert [p is model[1].weight for p in first["params"]] == [True]
    assert (first["optimizer"], first["lr"], rest["optimizer"], rest["lr"]) == ("muon", 0.02, "adamw", 1e-3)
    assert len(rest["params"]) == 6
    before = [p.detach().clone() for p in model.parameters()]
    model(torch.arange(5)).square().sum().backward()
    optimizer.step()
    assert all((p != q).any() for p, q in zip(model.parameters(), before, strict=True))
    values = torch.linalg.svdvals((before[1] - model[1].weight).detach()) / 0.02
    assert (values < 1.3).all()


def test_a_model_without_matrices_uses_adamw():
    (group,) = optim.muon_with_adamw(nn.LayerNorm(3)).param_groups
    assert group["optimizer"] == "adamw"


def test_errors_name_what_was_expected():
    x = nn.Parameter(torch.zeros(3))
    x.grad = torch.ones(3)
    with pytest.raises(ValueError, match=r"Muon expects matrices, got a parameter of shape \(3,\)"):
        optim.Muon([x]).step()
    with pytest.raises(ValueError, match=r"ns_steps must be in \[1, 100\), got 0"):
        optim.Muon([x], ns_steps=0)


def test_learning_rates_of_adamw_by_name_pattern():
    model = nn.Sequential(nn.Linear(2, 3), nn.Embedding(5, 3), nn.Linear(3, 2))
    rates = {"1.*": 0.1, "2.*": 0.2, "*": 0.3}
    optimizer = optim.muon_with_adamw(model, lr=0.5, adam_lr=rates, betas=(0.5, 0.9), muon_params="0.*")
    groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    expected = {"0.weight": 0.5, "0.bias": 0.3, "1.weight": 0.1, "2.weight": 0.2, "2.bias": 0.2}
    assert {name: groups[id(p)]["lr"] for name, p in model.named_parameters()} == expected
    assert groups[id(model[1].weight)]["betas"] == (0.5, 0.9)
    with pytest.raises(ValueError, match=r"no pattern that matches '0\.bias'"):
        optim.muon_with_adamw(model, adam_lr={"1.*": 0.1})


def test_momentum_warmup_equals_a_group_option_changed_by_hand(tools):
    warmup = optim.WarmupMomentum(0.95, initial_momentum=0.5, warmup_steps=8)

    def by_hand(model):
        optimizer = optim.Muon(matrices(model), lr=0.02)
        t = iter(range(20))
        optimizer.register_step_pre_hook(
            lambda *_: optimizer.param_groups[0].update(momentum=0.95 - 0.45 * max(0, 1 - next(t) / 8))
        )
        return optimizer

    ours, optimizer = tools.train_network(
        lambda m: optim.Muon(matrices(m), lr=0.02, momentum=warmup), torch.float64, steps=20
    )
    same, _ = tools.train_network(by_hand, torch.float64, steps=20)
    for a, b in zip(matrices(ours), matrices(same), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)
    group = optimizer.param_groups[0]
    assert (group["momentum"], group["initial_momentum"], group["warmup_steps"]) == (0.95, 0.5, 8)


def test_momentum_warmup_resumes_from_the_state(tools):
    warmup = optim.WarmupMomentum(0.9, initial_momentum=0.1, warmup_steps=6)
    build = partial(optim.Muon, lr=0.02, momentum=warmup)
    whole, optimizer = tools.train_network(lambda m: build(matrices(m)), torch.float64, steps=4)
    other = tools.network(torch.float64)
    other.load_state_dict(whole.state_dict())
    resumed = build(matrices(other))
    resumed.load_state_dict(optimizer.state_dict())
    for model, one in ((whole, optimizer), (other, resumed)):
        for p in matrices(model):
            p.grad = torch.ones_like(p)
        one.step()
    tools.assert_close(other, whole, torch.float64)


def iterate(x, steps=5, dtype=torch.float64):
    """The iteration, written out."""
    y = x.to(dtype) / x.to(dtype).norm()
    y = y.T if len(y) > y.shape[1] else y
    for _ in range(steps):
        g = y @ y.T
        y = 3.4445 * y + (-4.7750 * g + 2.0315 * g @ g) @ y
    return y.T if x.shape[0] > x.shape[1] else y


def matrix_with_spectrum(m, n, low):
    """A matrix with singular values from 1 to 10**low."""
    torch.manual_seed(0)
    k = min(m, n)
    u, v = (torch.linalg.qr(torch.randn(size, k, dtype=torch.float64)).Q for size in (m, n))
    return ((u * torch.logspace(0, low, k, dtype=torch.float64)) @ v.T).float()


@pytest.mark.parametrize("low", [0, -6])
@pytest.mark.parametrize("shape", [(3, 5), (64, 64), (64, 128), (130, 64), (300, 300), (257, 600)])
def test_newton_schulz_agrees_with_float64(shape, low):
    x = matrix_with_spectrum(*shape, low)
    for steps in (1, 4, 5, 7):  # rounding errors grow with every step for tiny singular values
        exact, bfloat16 = iterate(x, steps), iterate(x, steps, torch.bfloat16)
        error, usual = (torch.linalg.matrix_norm(y - exact) for y in (newton_schulz(x, steps=steps), bfloat16))
        assert error < 0.02 * usual, steps


def test_newton_schulz_of_batches():
    x = torch.randn(2, 3, 70, 200)
    y = newton_schulz(x)
    for i, j in ((0, 0), (1, 2)):
        torch.testing.assert_close(y[i, j], newton_schulz(x[i, j]), atol=1e-5, rtol=1e-4)
    assert not newton_schulz(torch.zeros(80, 300)).any()


@pytest.mark.parametrize(
    ("flags", "native"), [({}, False), ({"avx512_bf16": True}, True), ({"amx_bf16": False}, False)]
)
def test_bfloat16_is_native_only_if_the_processor_says_so(monkeypatch, flags, native):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: flags, raising=False)
    assert muon_module._has_bfloat16_instructions.__wrapped__("cpu") is native


@pytest.mark.parametrize("native", [True, False])
def test_default_dtype(monkeypatch, native):
    monkeypatch.setattr(muon_module, "_has_bfloat16_instructions", lambda device: native)
    dtype = muon_module._newton_schulz_dtype
    assert dtype(torch.zeros(2, 2)) == torch.float32
    assert dtype(torch.zeros(512, 512, dtype=torch.float64)) == torch.float64
    assert dtype(torch.zeros(512, 256)) == (torch.bfloat16 if native else torch.float32)


@pytest.mark.parametrize("native", [pytest.param(True, marks=pytest.mark.long), False])
def test_large_matrices_match_pytorch(monkeypatch, native):
    monkeypatch.setattr(muon_module, "_has_bfloat16_instructions", lambda device: native)
    torch.manual_seed(0)
    shapes = [(16, 16), (16, 64), (64, 16), (272, 288)]
    ours, theirs = ([nn.Parameter(torch.ones(shape)) for shape in shapes] for _ in range(2))
    for p, q in zip(ours, theirs, strict=True):
        p.grad = torch.randn_like(p)
        q.grad = p.grad.clone()
    optim.Muon(ours, lr=0.1).step()
    torch.optim.Muon(theirs, lr=0.1).step()
    for p, q in zip(ours, theirs, strict=True):
        assert float(((p - q).norm() / (q - 0.99).norm()).detach()) < 3e-2
