"""Densities: normalization, agreement of samples and density, scores and reparameterized gradients."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from lawful.laws._helpers import require_real
from lawful.laws.interfaces import Draw, Map
from lawful.laws.law import Inapplicable, law
from lawful.laws.statements import Equal, FollowsCDF, HasMean, Statement


@dataclass(frozen=True)
class _Line:
    """Change of variables from an interval to the whole real line: identity, logarithm or logit.

    A density that is infinite at a bound of its support is bounded in the new coordinate z.
    """

    low: float
    high: float

    def coordinate(self, x: Tensor) -> Tensor:
        """Returns the coordinate z of the point x."""
        z = (x - self.low).clamp_min(1e-300).log() if math.isfinite(self.low) else x
        if math.isfinite(self.high):
            z = (z if math.isfinite(self.low) else torch.zeros_like(x)) - (self.high - x).clamp_min(1e-300).log()
        return z

    def point(self, z: Tensor, dtype: torch.dtype) -> Tensor:
        """Returns the point x of the coordinate z, in `dtype` and inside the interval."""
        if math.isfinite(self.low) and math.isfinite(self.high):
            x = self.low + (self.high - self.low) * z.sigmoid()
        elif math.isfinite(self.low):
            x = self.low + z.exp()
        else:
            x = self.high - (-z).exp() if math.isfinite(self.high) else z
        if not dtype.is_floating_point:
            return x.to(dtype)
        low, high = torch.tensor([self.low, self.high], dtype=dtype)
        return x.to(dtype).clamp(low.nextafter(high), high.nextafter(low))

    def is_at_bound(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """Returns whether points are so close to a bound that `dtype` cannot resolve them."""
        eps = torch.finfo(dtype).eps if dtype.is_floating_point else 0.0
        bounds = [bound for bound in (self.low, self.high) if math.isfinite(bound)]
        close = [(x - bound).abs() <= 4 * eps * abs(bound) for bound in bounds]
        return torch.stack([*close, torch.zeros_like(x, dtype=torch.bool)]).any(0)

    def log_derivative(self, z: Tensor) -> Tensor:
        """Returns log dx/dz."""
        if math.isfinite(self.low) and math.isfinite(self.high):
            logistic = torch.nn.functional.logsigmoid(z) + torch.nn.functional.logsigmoid(-z)
            return logistic + math.log(self.high - self.low)
        return z if math.isfinite(self.low) else -z if math.isfinite(self.high) else torch.zeros_like(z)


def _mass_before(nodes: Tensor, density: Tensor, place: Tensor, own: Tensor) -> Tensor:
    """Returns the fraction of the integral of each density, by the trapezoid rule, that lies before its sample.

    Args:
        nodes: Sorted quadrature nodes, of shape (k,).
        density: Densities at the nodes, of shape (n, k), or (1, k) if all samples have the same density.
        place: Samples, of shape (n,). They are quadrature nodes as well.
        own: Density of each sample.
    """
    pieces = (density[:, 1:] + density[:, :-1]) / 2 * nodes.diff()
    cumulative = torch.nn.functional.pad(pieces.cumsum(1), (1, 0)).expand(len(place), -1)
    after = torch.searchsorted(nodes.contiguous(), place.contiguous()).clamp(1, len(nodes) - 1)[:, None]
    low, high = (density.expand(len(place), -1).gather(1, index)[:, 0] for index in (after - 1, after))
    first = (low + own) / 2 * (place - nodes[after[:, 0] - 1])
    second = (own + high) / 2 * (nodes[after[:, 0]] - place)
    before = cumulative.gather(1, after - 1)[:, 0] + first
    return before / (before + second + cumulative[:, -1] - cumulative.gather(1, after)[:, 0])


def _integer_grid(x: Tensor, support: tuple[float, float] | None) -> Tensor:
    """Returns the integers from a little below the samples to a little above, inside the support."""
    margin = 5 + float(x.max() - x.min())
    low, high = support or (-math.inf, math.inf)
    first, last = max(float(x.min()) - margin, low), min(float(x.max()) + margin, high)
    return torch.arange(round(first), round(last) + 1, device=x.device)


def _nodes(x: Tensor, count: int = 128) -> Tensor:
    """Returns the quadrature nodes: quantiles of the samples, and a uniform grid over five times their range."""
    margin = 2 * (x.max() - x.min())
    even = torch.linspace(float(x.min() - margin), float(x.max() + margin), count, device=x.device, dtype=x.dtype)
    quantiles = x.sort().values[torch.arange(count, device=x.device) * (x.numel() - 1) // (count - 1)]
    middle = x.median()
    return torch.cat([even, quantiles, middle + (quantiles - middle) * 1.5]).sort().values


def _integrate(
    density: Callable[[Tensor], Tensor], axis: _Line, samples: Tensor, dtype: torch.dtype, rounds: int = 12
) -> tuple[Tensor, Tensor]:
    """Integrates a density over an interval by adaptive quadrature.

    The first nodes are near the samples and on a grid that is fine near 0 and coarse far away, as far as `dtype`
    resolves it. Each round halves the quarter of the intervals for which the trapezoid and midpoint rules differ most.

    Returns the integral, and the largest integrand at the two ends.
    """

    def integrand(z: Tensor) -> Tensor:
        return (density(axis.point(z, dtype)).double() * axis.log_derivative(z).exp()).nan_to_num(0.0)

    grid = torch.linspace(-14, 14, 801, dtype=torch.float64).sinh() / 10
    z = torch.cat([grid, _nodes(axis.coordinate(samples))]).sort().values
    z = z[(axis.coordinate(axis.point(z, dtype).double()) - z).abs() < 0.01 * (1 + z.abs())]
    values = integrand(z)
    for _ in range(rounds):
        middle = (z[1:] + z[:-1]) / 2
        between = integrand(middle)
        error = ((values[1:] + values[:-1]) / 2 - between).abs() * z.diff()
        split = error >= error.sort().values[3 * error.numel() // 4]
        z = torch.cat([z, middle[split]])
        z, order = z.sort()
        values = torch.cat([values, between[split]])[order]
    return torch.trapezoid(values, z), torch.maximum(values[0], values[-1])


def _sampler_inputs(f: Map, sample: str | Callable[..., Any], xs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Returns the inputs if the sampler needs them in addition to the number of samples, else nothing."""
    sampler = getattr(f.target, sample, None) if isinstance(sample, str) else sample
    try:
        signature = inspect.signature(sampler)  # pyrefly: ignore
        signature.bind(1, *xs)
    except TypeError:
        return ()
    except ValueError:  # a builtin has no signature
        return xs
    rest = list(signature.parameters.values())[1:]
    # an optional argument, such as a seed, is not an input
    needed = any(p.kind is p.VAR_POSITIONAL or (p.default is p.empty and p.kind is not p.VAR_KEYWORD) for p in rest)
    return xs if needed else ()


_Support = tuple[float, float] | None


def _draw_samples(
    f: Map, sample: str | Callable[..., Any], xs: tuple[Tensor, ...], support: _Support, draw: Draw
) -> tuple[Tensor, _Support]:
    """Returns samples of shape (n,) or (n, d), and the bounds of their support."""
    n, size = draw.samples, draw.samples
    if isinstance(f.target, Distribution) and sample == "sample":
        size, support = (n,), support or _support(f.target)
        if f.target.support in (constraints.simplex, constraints.one_hot):
            raise Inapplicable("the coordinates of a sample are not free: the support is a simplex or one-hot")
    x = f.with_seed(draw.integer(0, 2**16)).method(sample)(size, *xs).detach()
    if x.dim() not in (1, 2) or x.shape[0] != n:
        raise Inapplicable(f"expected sample({n}) of shape ({n},) or ({n}, d), got {tuple(x.shape)}")
    return x, support


@law("x ~ p ⇒ F(x_i | x_-i) ~ U(0, 1), with p = exp(log_prob)", cases=4, every_input=True)
def samples_follow_density(
    f: Map,
    *xs: Tensor,
    sample: str | Callable[..., Any] = "sample",
    log_prob: str | Callable[..., Any] = "log_prob",
    support: tuple[float, float] | None = None,
    draw: Draw,
) -> Statement:
    """Samples follow the density, or the probabilities, that `log_prob` returns.

    For each sample the density is integrated along one coordinate through the sample. If the samples are right, the
    fraction of the mass before the sample is uniform on [0, 1]. Cases are skipped if half of the nodes give
    another integral, because the density is too rough. The test has two stages: samples that fail at a
    false-alarm rate of 1e-3 are drawn again, ten times as many, and tested at 1e-6.

    `sample(n)` returns (n,) or (n, d) samples, `log_prob(x)` their (n,) log-densities. Both are names of methods, or
    functions; `torch.distributions` have both. Integer samples are discrete. `support` bounds the density.

    Satisfied by: a sampler and a density of the same distribution.
    Broken by: a scale used as a variance; a truncation that the density ignores.
    """
    n, xs = draw.samples, _sampler_inputs(f, sample, xs)
    x, support = _draw_samples(f, sample, xs, support, draw)
    rows = x.reshape(n, -1)
    i = draw.integer(0, rows.shape[1] - 1, "i")
    here = rows[:, i].double()
    discrete = bool((here == here.round()).all())
    axis = _Line(-math.inf, math.inf) if discrete else _Line(*(support or (-math.inf, math.inf)))
    draw.assume(axis.is_at_bound(here, rows.dtype).double().mean() < 0.01)
    if discrete:
        place, where = here, _integer_grid(here, support)
    else:
        spacing = (rows[:, i].nextafter(torch.full_like(rows[:, i], math.inf)) - rows[:, i]).double()
        if spacing.max() > 1e-4 * here.std():  # coarse samples: each stands for all numbers that round to it
            here = here + spacing * (torch.special.ndtr(draw.normal(n).double()) - 0.5)
        place = axis.coordinate(here)
        where = axis.coordinate(axis.point(_nodes(place), rows.dtype).double())
    if rows.shape[1] == 1:  # all samples share the density along the line
        points = axis.point(where, rows.dtype)[:, None]
    else:
        points = rows[:, None, :].repeat(1, where.numel(), 1)
        points[:, :, i] = axis.point(where, rows.dtype)
        points = points.flatten(0, 1)
    with torch.no_grad():
        logs = f.method(log_prob)(torch.cat([points, rows]).reshape(-1, *x.shape[1:]), *xs)
    if logs.numel() != len(points) + n:
        raise Inapplicable(f"expected log_prob to return one number per sample, got shape {tuple(logs.shape)}")
    logs = logs.detach().double().reshape(-1)
    lines = logs[:-n].reshape(-1, where.numel()) + axis.log_derivative(where)
    own = logs[-n:] + axis.log_derivative(place)
    peak = torch.maximum(lines.amax(1), own.max() if len(lines) == 1 else own)
    density, own = (lines - peak[:, None]).exp(), (own - peak).exp()
    if discrete:
        below = (density * (where < place[:, None])).sum(1)
        equal = (density * (where == place[:, None])).sum(1)
        return FollowsCDF((below + equal * torch.special.ndtr(draw.normal(n).double())) / density.sum(1))
    before = _mass_before(where, density, place, own)
    draw.assume((before - _mass_before(where[::2], density[:, ::2], place, own)).abs().max() < 0.005)
    return FollowsCDF(before)


def _support(distribution: Distribution) -> tuple[float, float] | None:
    support: Any = distribution.support
    while hasattr(support, "base_constraint"):
        support = support.base_constraint
    if support is constraints.boolean:
        return 0.0, 1.0
    low, high = getattr(support, "lower_bound", -math.inf), getattr(support, "upper_bound", math.inf)
    return float(low), float(high)


@law("∫ p(x) dx = 1, with p = exp(log_prob)", eval_if_random=True, rtol=1e-3, cases=4, every_input=True)
def density_integrates_to_one(
    f: Map,
    *xs: Tensor,
    log_prob: str | Callable[..., Any] = "log_prob",
    sample: str | Callable[..., Any] = "sample",
    support: tuple[float, float] | None = None,
    draw: Draw,
) -> Statement:
    """The density integrates, or the probabilities sum, to 1.

    `log_prob(x)` and `sample(n)` are as in `samples_follow_density`; the shape of a sample gives the dimension. In
    one dimension the integral is an adaptive quadrature; cases with mass that the dtype cannot resolve are skipped.
    In more dimensions it is the mean of p/q over samples of a Student t distribution q, fitted to the module's own
    samples.

    Satisfied by: a normalized density; a flow with the right log-determinant.
    Broken by: a missing constant; a truncation without its factor; a log-determinant of the wrong sign.
    """
    xs = _sampler_inputs(f, sample, xs)
    x, support = _draw_samples(f, sample, xs, support, draw)

    def density(points: Tensor) -> Tensor:
        with torch.no_grad():
            found = f.method(log_prob)(points.reshape(-1, *x.shape[1:]).to(x.dtype), *xs)
        if found.numel() != points.numel() // max(1, x[0].numel()):
            raise Inapplicable(f"expected log_prob to return one number per sample, got shape {tuple(found.shape)}")
        return found.detach().double().reshape(-1).exp()

    if x[0].numel() > 1:
        return _importance_sampling_mean(x.double(), density, support or (-math.inf, math.inf), draw)
    if bool((x == x.round()).all()):
        total = density(_integer_grid(x.double().reshape(-1), support)).sum()
    else:
        low, high = support or (-math.inf, math.inf)
        middle = 0.0 if math.isfinite(low) or math.isfinite(high) else float(x.double().median())
        axis, here = _Line(low, high), x.double().reshape(-1) - middle
        total, tail = _integrate(lambda z: density(z + middle), axis, here, x.dtype)
        draw.assume(tail < 1e-4 * total)
    return Equal(total, torch.ones_like(total), exercised=True)


def _importance_sampling_mean(
    x: Tensor, density: Callable[[Tensor], Tensor], support: tuple[float, float], draw: Draw, freedom: float = 4.0
) -> Statement:
    """States that p/q has mean 1 over samples of a Student t distribution q with the mean and covariance of x."""
    n, d = x.shape
    mean = x.mean(0)
    root = torch.linalg.cholesky(torch.cov(x.T) + 1e-9 * torch.eye(d, dtype=x.dtype))
    normal, other = draw.normal(n, d).double(), draw.normal(n, int(freedom)).double()
    z = normal * (freedom / other.square().sum(1, keepdim=True)).sqrt()
    log_q = (
        math.lgamma((freedom + d) / 2)
        - math.lgamma(freedom / 2)
        - d / 2 * math.log(freedom * math.pi)
        - root.diagonal().log().sum()
        - (freedom + d) / 2 * (z.square().sum(1) / freedom).log1p()
    )
    points = mean + z @ root.T
    inside = ((points > support[0]) & (points < support[1])).all(1)
    ratio = density(torch.where(inside[:, None], points, x)) / log_q.exp()
    return HasMean(torch.where(inside, ratio, 0.0), torch.ones((), dtype=torch.float64))


@law("s(x) = ∇ log p(x)", eval_if_random=True)
def score(
    f: Map, x: Tensor, *, score: str | Callable[..., Any] = "score", log_prob: str | Callable[..., Any] = "log_prob"
) -> Statement:
    """The score of the module is the gradient of its log-density.

    `score(x)` and `log_prob(x)` are names of methods, or functions.

    Satisfied by: a score computed by autograd; a Gaussian and its score.
    Broken by: the gradient of the energy with the wrong sign; a scale used as a variance.
    """
    reported = f.method(score)(require_real(x))
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        log_density = f.method(log_prob)(leaf)
        if not log_density.requires_grad:
            raise Inapplicable("the log-density does not require a gradient")
        found = torch.autograd.grad(log_density, leaf, torch.ones_like(log_density))[0]
    return Equal(reported, found, exercised=True)


_NUM_GROUPS = 50


@law("E ∇_θ h(x_θ) = ∇_θ E h(x), x ~ p_θ", cases=4, every_input=True)
def reparameterized_gradient(
    f: Map,
    *xs: Tensor,
    sample: str | Callable[..., Any] = "rsample",
    log_prob: str | Callable[..., Any] = "log_prob",
    draw: Draw,
) -> Statement:
    r"""The gradient through reparameterized samples is an unbiased gradient of the expectation.

    The expectation is taken of a bounded function h. The second estimate of its gradient comes from independent
    samples, by the score function $h(x) \nabla_\theta \log p_\theta(x)$. The means of the two must agree
    statistically.

    Satisfied by: a location plus a scale times noise.
    Broken by: a sample that is detached from the scale; a straight-through estimator.
    """
    xs = _sampler_inputs(f, sample, xs)
    n, parameters = draw.samples // _NUM_GROUPS * _NUM_GROUPS, list(f.parameters.values())
    if not parameters:
        raise Inapplicable("no parameter requires a gradient")
    directions = [draw.normal(*p.shape) for p in parameters]

    def directional_derivatives(values: Tensor) -> Tensor:
        """Returns the derivative of the mean of each group in the drawn direction."""
        means = values.reshape(_NUM_GROUPS, -1).mean(1)
        found = []
        for mean in means:
            parts = torch.autograd.grad(mean, parameters, retain_graph=True, allow_unused=True)
            zero = torch.zeros_like(mean)
            pairs = zip(parts, directions, strict=True)
            found.append(sum(((g * d).sum() for g, d in pairs if g is not None), zero))
        return torch.stack(found)

    def h(z: Tensor) -> Tensor:
        return torch.tanh(z.reshape(n, -1) @ weights + offset)

    with torch.enable_grad():
        x = f.with_seed(draw.integer(0, 2**16)).method(sample)(n, *xs)
        if x.dim() not in (1, 2) or x.shape[0] != n:
            raise Inapplicable(f"expected {sample}({n}) of shape ({n},) or ({n}, d), got {tuple(x.shape)}")
        weights, offset = draw.normal(x[0].numel()).to(x), draw.normal(1).to(x)  # h is not odd: scales have an effect
        y = f.with_seed(draw.integer(2**16 + 1, 2**17)).method(sample)(n, *xs).detach()
        if not x.requires_grad:
            raise Inapplicable("the samples do not require a gradient")
        logs = f.method(log_prob)(y, *xs).reshape(n)
        values = h(y)
        score_function = (values - values.mean()) * logs
        difference = directional_derivatives(h(x)) - directional_derivatives(score_function)
    return HasMean(difference.detach(), torch.zeros(()))
