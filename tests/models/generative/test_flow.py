import math
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from lawful.blocks import RationalQuadraticSpline
from lawful.blocks.flows import AffineTransform, AutoregressiveTransform, ComposedTransform, CouplingTransform
from lawful.data import Dequantizer, gaussian_density, ring
from lawful.laws import Claim, agreement, density_integrates_to_one, samples_follow_density, shape, transformed
from lawful.models.generative import (
    LOGISTIC,
    ContinuousFlow,
    Flow,
    SupportsLogProb,
    SupportsLogProbEstimate,
    SupportsSample,
    VelocityField,
    discretized_flow,
    maf,
    nice,
    real_nvp,
    spline_flow,
)
from lawful.optim import adam

FLOWS = {
    "spline_flow": lambda **kept: spline_flow(2, hidden_dims=[8], num_bins=4, num_frequencies=2, **kept),
    "autoregressive_flow": lambda **kept: maf(2, num_layers=2, hidden_dims=[8], **kept),
    "coupling_flow": lambda **kept: real_nvp(2, num_layers=2, hidden_dims=[8], **kept),
    "spline couplings": lambda **kept: real_nvp(
        2, num_layers=2, hidden_dims=[8], transform=RationalQuadraticSpline(num_bins=4), **kept
    ),
    "nice": lambda **kept: nice(2, num_layers=2, hidden_dims=[8], **kept),
    "discretized_flow": lambda **kept: discretized_flow(
        2, num_levels=5, low=-4.0, high=4.0, hidden_dims=[8], num_components=2, **kept
    ),
}


def randomize_parameters(flow):
    with torch.no_grad():
        for i, p in enumerate(flow.parameters()):
            p.add_(0.2 * torch.randn(p.shape, generator=torch.Generator().manual_seed(i)))
    return flow


def grid(n, reach):
    axis = (torch.arange(n, dtype=torch.float64) + 0.5) / n * 2 * reach - reach
    return torch.cartesian_prod(axis, axis), (2 * reach / n) ** 2


@pytest.mark.parametrize("name", FLOWS)
def test_density_integrates_to_one(name):
    torch.manual_seed(0)
    flow = randomize_parameters(FLOWS[name]()).double()
    if name != "discretized_flow":
        flow.fit_normalizer(
            0.5 * torch.randn(500, 2, dtype=torch.float64) @ torch.tensor([[1.0, 0.3], [0, 2.0]]).double() + 0.3
        )
    assert isinstance(flow, SupportsSample)
    assert isinstance(flow, SupportsLogProb)
    points, area = grid(320, 16.0)
    log_prob = flow.log_prob(points).detach()
    assert float(log_prob.exp().sum() * area) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("name", FLOWS)
def test_samples_do_not_depend_on_n(name):
    flow = randomize_parameters(FLOWS[name]())
    whole = flow.sample(5, seed=3)
    torch.testing.assert_close(whole[2:], flow.sample(3, seed=3, first=2), atol=1e-5, rtol=1e-5)
    assert whole.shape == (5, 2)
    assert flow.sample(0).shape == (0, 2)
    assert flow.sample((2, 3)).shape == (2, 3, 2)
    torch.manual_seed(0)
    first = flow.sample((4,))
    torch.manual_seed(0)
    torch.testing.assert_close(flow.sample(4), first)
    assert not torch.allclose(flow.sample(4), first)
    assert not torch.allclose(whole, flow.sample(5, seed=4))


@pytest.mark.parametrize("name", FLOWS)
def test_rsample_is_differentiable(name):
    """The derivative of f(f^-1(z)) = z is zero: the paths through the sample and through the parameters cancel."""
    flow = randomize_parameters(FLOWS[name]()).double()
    x = flow.rsample((4,), seed=3)
    assert torch.equal(x.detach(), flow.sample(4, seed=3))
    parameters = [p for p in flow.parameters() if p.requires_grad]
    direct = torch.autograd.grad(x.sin().sum(), parameters, retain_graph=True, allow_unused=True)
    assert sum(float(g.abs().sum()) for g in direct if g is not None) > 0.01
    z, _ = flow.eval().encode(x)  # without dropout, as rsample
    for g in torch.autograd.grad(z.sin().sum(), parameters, allow_unused=True):
        assert g is None or g.abs().max() < 1e-6


@pytest.mark.parametrize("name", FLOWS)
def test_density_is_conditional_with_labels_and_a_mixture_without(name):
    flow = randomize_parameters(FLOWS[name](num_classes=3))
    x, labels = 0.3 * torch.randn(6, 2), torch.tensor([0, 1, 2, 2, 2, 2])
    if name != "discretized_flow":
        flow.fit_normalizer(torch.randn(6, 2), labels=labels)
        each = torch.stack([flow.log_prob(x, labels=torch.full((6,), c)) for c in range(3)])
        weights = torch.tensor([1 / 6, 1 / 6, 4 / 6])
        torch.testing.assert_close(flow.log_prob(x), (each.exp() * weights[:, None]).sum(0).log())
    assert flow.sample(6, labels=labels).shape == flow.sample(6).shape == (6, 2)


def test_one_affine_autoregressive_layer_is_a_chain_of_gaussians():
    flow = randomize_parameters(maf(3, num_layers=1, hidden_dims=[8])).double()
    x = torch.randn(4, 3, dtype=torch.float64)
    chain = torch.zeros(4, dtype=torch.float64)
    for i in range(3):
        seen = torch.where(torch.arange(3) < i, x, 0.0)
        a, t = flow.transform[0].network(seen)[:, i].unbind(-1)
        std = (-2 * torch.tanh(a / 2)).exp()
        chain = chain + torch.distributions.Normal(-t * std, std).log_prob(x[:, i])
    torch.testing.assert_close(flow.log_prob(x), chain)


def test_an_affine_autoregressive_flow_by_its_jacobian():
    flow = randomize_parameters(maf(3, num_layers=2, hidden_dims=[8], num_classes=2)).double()
    flow.fit_normalizer(3 * torch.randn(20, 3, dtype=torch.float64) + 1, labels=torch.arange(20) % 2)
    x, labels = torch.randn(4, 3, dtype=torch.float64), torch.tensor([0, 1, 1, 0])
    rows = range(4)
    maps = [lambda one, i=i: flow.encode(one[None], labels=labels[i : i + 1])[0][0] for i in rows]
    jacobians = torch.stack([torch.autograd.functional.jacobian(maps[i], x[i]) for i in rows])
    z, log_det = flow.encode(x, labels=labels)
    torch.testing.assert_close(log_det, jacobians.det().abs().log())
    assert bool((jacobians != 0).all())  # layers of opposite orders
    normal = torch.distributions.Normal(0.0, 1.0).log_prob(z).sum(-1)
    torch.testing.assert_close(flow.log_prob(x, labels=labels).detach(), (normal + log_det).detach())
    torch.testing.assert_close(flow.decode(z, labels=labels), x)


def test_scales_of_an_affine_autoregressive_flow_stay_bounded():
    flow = maf(3, num_layers=2, hidden_dims=[8])
    with torch.no_grad():
        for p in flow.parameters():
            p.copy_(1e3 * torch.randn(p.shape, generator=torch.Generator().manual_seed(0)))
    _, log_det = flow.encode(torch.randn(50, 3, generator=torch.Generator().manual_seed(1)))
    assert 1 < float(log_det.detach().abs().max()) <= 2 * 2 * 3


def test_flow_fits_a_gaussian():
    torch.manual_seed(0)
    target = gaussian_density(torch.tensor([5.0, -1.0]), torch.tensor([[4.0, 1.2], [1.2, 1.0]]))
    x = target.sample(2000, seed=0).float()
    flow = real_nvp(2, num_layers=2, hidden_dims=[16]).fit_normalizer(x)
    optimizer = adam(flow.parameters(), lr=1e-2)
    for step in range(60):
        optimizer.zero_grad()
        (-flow.log_prob(x[step * 32 : step * 32 + 32])).mean().backward()
        optimizer.step()
    with torch.no_grad():
        gap = -float(flow.log_prob(target.sample(4000, seed=1).float()).mean()) - float(target.entropy)
    assert -0.05 < gap < 0.2


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_the_default_flow_learns_the_ring(seed):
    torch.manual_seed(seed)
    target = ring()
    flow = spline_flow(dim=2).fit_normalizer(target.sample(5000, seed=1).float())
    optimizer = adam(flow.parameters(), lr=1e-2)
    for step in range(300):
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 * (1 + math.cos(math.pi * step / 300)) / 2
        optimizer.zero_grad()
        (-flow.log_prob(target.sample(512, seed=2, first=512 * step).float())).mean().backward()
        optimizer.step()
    with torch.no_grad():
        gap = -float(flow.log_prob(target.sample(20_000, seed=3).float()).mean()) - target.entropy
    assert gap < 0.15


def test_log_prob_does_not_depend_on_the_dequantization_noise():
    pixels = Dequantizer(levels=17)
    low, high = pixels.support
    flow = randomize_parameters(discretized_flow((1, 2, 2), num_levels=17, low=low, high=high, hidden_dims=[8])).eval()
    levels = torch.tensor([[[[0.0, 1.0], [0.5, 0.25]]]])
    found = [flow.log_prob(pixels.dequantize(levels, seed=seed)) for seed in range(3)]
    torch.testing.assert_close(found[0], found[1])
    torch.testing.assert_close(found[0], found[2])
    every = torch.cartesian_prod(*[torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0])] * 2)
    few = Dequantizer(levels=5)
    flow = randomize_parameters(
        discretized_flow(2, num_levels=5, low=few.support[0], high=few.support[1], hidden_dims=[8])
    ).eval()
    bits = few.bits_per_dim(flow.log_prob(every).detach(), 2)
    assert float((2 ** (-2 * bits)).sum()) == pytest.approx(1, abs=1e-4)


def test_constant_features_one_example_and_bad_data():
    x = torch.stack([torch.randn(20), torch.full((20,), 2.0)], -1)
    flow = spline_flow(2, hidden_dims=[8]).fit_normalizer(x)
    assert bool(flow.log_prob(x).isfinite().all())
    assert bool(spline_flow(2, hidden_dims=[8]).fit_normalizer(x[:1]).log_prob(x[:1]).isfinite().all())
    with pytest.raises(ValueError, match="expected finite examples"):
        flow.log_prob(torch.tensor([[float("nan"), 0.0]]))
    with pytest.raises(ValueError, match=r"expected x of shape \(n, 2\), got \(3, 4\)"):
        flow.log_prob(torch.zeros(3, 4))
    with pytest.raises(ValueError, match="it takes no labels"):
        flow.sample(2, labels=torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="expected labels from 0 to 1, got 0 to 5"):
        spline_flow(2, num_classes=2, hidden_dims=[8]).sample(2, labels=torch.tensor([0, 5]))
    with pytest.raises(ValueError, match="labels are required"):
        spline_flow(2, num_classes=2, hidden_dims=[8]).fit_normalizer(x)
    with pytest.raises(ValueError, match="expected finite low < high"):
        flow.set_normalizer_range(1.0, 0.0)
    assert flow.log_prob(torch.zeros(0, 2)).shape == (0,)


def test_a_label_for_each_example(unchecked):
    with pytest.raises(ValueError, match=r"expected labels of shape \(3,\), got \(2,\)"):
        spline_flow(2, num_classes=2, hidden_dims=[8]).sample(3, labels=torch.tensor([0, 1]))


def test_diverged_flow():
    flow = nice(2, hidden_dims=[4])
    with torch.no_grad():
        next(flow.parameters()).fill_(math.nan)
    assert flow.log_prob(torch.zeros(3, 2)).isnan().all()
    with pytest.raises(ValueError, match="the flow has diverged"):
        flow.sample(2)


def test_continuous_flow_converges_in_steps_and_estimates_its_error():
    torch.manual_seed(0)
    velocity = VelocityField(3, hidden_dims=[8]).double()
    x = torch.randn(6, 3, dtype=torch.float64)
    coarse, fine = (ContinuousFlow(velocity, shape=(3,), steps=n).double().fit_normalizer(x) for n in (8, 32))
    assert isinstance(fine, SupportsSample)
    assert isinstance(fine, SupportsLogProbEstimate)
    torch.testing.assert_close(coarse.log_prob_estimate(x).value, fine.log_prob_estimate(x).value, atol=1e-5, rtol=0)
    torch.testing.assert_close(fine.decode(fine.encode(x)[0]), x, atol=1e-6, rtol=0)
    wide = ContinuousFlow(VelocityField(20, hidden_dims=[8]), shape=(4, 5), steps=4)
    found = wide.log_prob_estimate(torch.randn(3, 4, 5))
    assert bool((found.error > 0).all())
    assert found.evaluations == 16
    assert wide.sample(2, seed=1).shape == (2, 4, 5)


def test_a_continuous_flow_can_be_trained_by_its_likelihood():
    torch.manual_seed(0)
    x = torch.randn(64, 2) @ torch.tensor([[1.0, 0.9], [0.0, 0.4]])
    flow = ContinuousFlow(VelocityField(2, hidden_dims=[16]), shape=(2,), steps=2).fit_normalizer(x)
    optimizer = adam(flow.parameters(), lr=2e-2)
    first = float(-flow.log_prob_estimate(x).value.mean())
    for _ in range(15):
        optimizer.zero_grad()
        (-flow.log_prob(x)).mean().backward()
        optimizer.step()
    assert float(-flow.log_prob_estimate(x).value.mean()) < first - 0.1


def _flow_claims() -> Iterator[Claim]:
    """Laws of flows."""
    x = torch.tensor([[1.0, -2.0], [3.0, 4.0], [2.0, 0.5]])
    plain = Flow(
        ComposedTransform([AutoregressiveTransform(2, transform=AffineTransform(), hidden_dims=[])]), shape=(2,)
    ).fit_normalizer(x)
    two = ComposedTransform(
        [
            CouplingTransform(
                2, transform=AffineTransform(bound=1.0), hidden_dims=[4], condition_dim=2, activation=torch.tanh
            )
        ]
    )
    classes = Flow(two, LOGISTIC, shape=(2,), num_classes=2).fit_normalizer(x, labels=torch.tensor([0, 1, 1]))
    with torch.no_grad():
        for i, p in enumerate([*plain.transform.parameters(), *classes.transform.parameters()]):
            p.copy_(0.7 * torch.sin(torch.arange(p.numel()).reshape(p.shape) + i + 1.0))

    def gaussian(y: Tensor) -> Tensor:
        """An affine autoregressive flow of one layer without hidden units is conditionally Gaussian."""
        z = (y - x.mean(0).to(y)) / x.std(0, correction=0).to(y)
        u = plain.get_submodule("transform.0.network")(z)
        scale, shift = torch.exp(2 * torch.tanh(u[..., 0] / 2)), u[..., 1]
        spread = x.std(0, correction=0).to(y) / scale
        center = x.mean(0).to(y) - spread * shift
        return torch.distributions.Normal(center, spread).log_prob(y).sum(-1)

    yield Claim(
        agreement(other=gaussian), lambda y: plain.log_prob(y), transformed(torch.tanh, "n 2"), name="Flow, affine"
    )

    def sampled(flow: Flow) -> Callable[[int], Tensor]:
        return lambda n: flow.sample(n, seed=int(torch.randint(2**31, ())))

    def scored(flow: Flow) -> Callable[[Tensor], Tensor]:
        return lambda y: flow.log_prob(y.to(flow.normalizer.mean)).detach()

    for law, flow, name in (
        (samples_follow_density, plain, "Flow"),
        (density_integrates_to_one, plain, "Flow"),
        (density_integrates_to_one, classes, "Flow of two classes"),
    ):
        yield Claim(law(sample=sampled(flow), log_prob=scored(flow)), scored(flow), shape("n 2"), name=name)


def claims() -> Iterator[Claim]:
    """Second derivations."""
    yield from _flow_claims()
