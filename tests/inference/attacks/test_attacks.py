import math

import pytest
import torch
from torch import nn

from lawful.inference.attacks import (
    FGSM,
    FREE,
    L1,
    L2,
    PGD,
    TARGETED,
    UNIT,
    UNTARGETED,
    CarliniWagner,
    DeepFool,
    InputBounds,
    LInf,
    MultiTargetedAttack,
    WorstCaseAttack,
    log_odds,
    margin,
    robust_accuracy,
)

NORMS = (LInf(), L2(), L1(fraction=0.3))


def classifier(*sizes, scale=1.0):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(sizes), 16), nn.Tanh(), nn.Dropout(0.5), nn.Linear(16, 4))
    with torch.no_grad():
        model[1].weight.mul_(3)
        model[1].bias.sub_(model[1].weight.sum(1) / 2)
        model[-1].weight.mul_(scale)
        model[-1].bias.zero_()
    return model


def inputs(*shape, dtype=torch.float32):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)


def predict(model, x):
    return model.eval()(x).argmax(1)


@pytest.mark.parametrize("norm", NORMS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(6,), (2, 3, 4)])
def test_every_attack_stays_in_the_ball_and_within_bounds_exactly(norm, dtype, shape):
    model, x = classifier(*shape).to(dtype), inputs(9, *shape, dtype=dtype)
    x[0], x[1] = 0, 1
    y = predict(model, x)
    for eps in (0.1, 1e-6):
        attacks = [PGD(eps=eps, norm=norm, steps=2), PGD(eps=eps, norm=norm, steps=0), FGSM(eps=eps, norm=norm)]
        attacks += [PGD(eps=eps, norm=norm, steps=2, momentum=1.0), DeepFool(eps=eps, norm=norm, steps=2)]
        attacks += [CarliniWagner(eps=eps, steps=3, binary_search_steps=1)] if norm == L2() else []
        for attack in (*attacks, WorstCaseAttack(tuple(attacks))):
            near = attack(model, x, y)
            assert near.dtype == dtype
            assert near.shape == x.shape
            assert bool((norm.length(near - x) <= eps).all())
            assert float(norm.length(near - x).max()) <= eps
            order = {LInf: math.inf, L2: 2, L1: 1}[type(norm)]
            assert float(torch.linalg.vector_norm((near - x).flatten(1), order, dim=1).max()) <= eps
            assert float(near.min()) >= 0
            assert float(near.max()) <= 1


def test_attacks_do_not_change_the_model():
    model, x = classifier(6), inputs(7, 6)
    model[3].eval()
    modes, seed = [m.training for m in model.modules()], torch.get_rng_state()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for attack in (
        PGD(eps=0.1, steps=2),
        DeepFool(steps=2),
        CarliniWagner(steps=2, binary_search_steps=1),
        FGSM(eps=0.1),
    ):
        with torch.no_grad():
            near = attack(model, x, torch.zeros(7, dtype=torch.long))
        assert not near.requires_grad
        assert [m.training for m in model.modules()] == modes
        assert all(p.grad is None for p in model.parameters())
        assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())
        assert torch.equal(torch.get_rng_state(), seed)


def test_fgsm_is_the_sign_of_the_gradient_of_the_cross_entropy():
    model, x = classifier(6).eval(), inputs(5, 6)
    y = torch.tensor([0, 1, 2, 3, 0])
    leaf = x.clone().requires_grad_()
    nn.functional.cross_entropy(model(leaf), y).backward()
    away, toward = (FGSM(eps=0.05, bounds=FREE, goal=goal)(model, x, y) for goal in (UNTARGETED, TARGETED))
    start = nn.functional.cross_entropy(model(x), y, reduction="none")
    rose = nn.functional.cross_entropy(model(x + 0.05 * leaf.grad.sign()), y, reduction="none") > start
    torch.testing.assert_close(away[rose], (x + 0.05 * leaf.grad.sign())[rose])
    fell = (toward - (x - 0.05 * leaf.grad.sign())).abs().amax(1) < 1e-6
    assert bool(fell.any())


def test_saturated_logits_do_not_mask_the_gradient():
    """With logits a thousand apart, the gradient of the cross-entropy vanishes in float32."""
    model, x = classifier(6, scale=3000.0).eval(), inputs(30, 6)
    y = predict(model, x)
    leaf = x.clone().requires_grad_()
    nn.functional.cross_entropy(model(leaf), y).backward()
    assert bool((leaf.grad == 0).flatten(1).all(1).any())
    sure = robust_accuracy(model, x, y, attack=PGD(eps=0.3, steps=10))
    assert sure.value < 1


def test_a_targeted_attack_reaches_its_target():
    model, x = classifier(12).eval(), inputs(8, 12)
    targets = (predict(model, x) + 1) % 4
    near = PGD(eps=0.9, steps=20, goal=TARGETED)(model, x, targets)
    before = model(x).log_softmax(1).gather(1, targets[:, None])
    after = model(near).log_softmax(1).gather(1, targets[:, None])
    assert bool((after > before).all())
    assert float((predict(model, near) == targets).float().mean()) > 0.5


def test_random_starts_do_not_depend_on_the_batch():
    model, x = classifier(6).eval(), inputs(9, 6)
    y = predict(model, x)
    attack = PGD(eps=0.1, steps=0, seed=4)
    whole = attack(model, x, y)
    assert torch.equal(attack(model, x[3:5], y[3:5], indices=torch.tensor([3, 4])), whole[3:5])
    figures = {
        batch: robust_accuracy(model, x, y, attack=PGD(eps=0.2, steps=3), batch_size=batch) for batch in (1, 4, 100)
    }
    assert len(set(figures.values())) == 1
    assert not torch.equal(PGD(eps=0.1, steps=0, seed=5)(model, x, y), whole)


def test_stop_margin_saves_model_calls():
    model, x = classifier(12).eval(), inputs(40, 12)
    y = predict(model, x)
    calls = []
    model.register_forward_hook(lambda module, args, out: calls.append(len(out)))
    full = robust_accuracy(model, x, y, attack=PGD(eps=0.3, steps=10))
    worked = sum(calls)
    calls.clear()
    rested = robust_accuracy(model, x, y, attack=PGD(eps=0.3, steps=10, stop_margin=0.0))
    assert rested == full
    assert sum(calls) < worked


def test_the_step_sizes_of_pgd_follow_a_squared_cosine():
    """With a linear model the signs never change: the perturbation is the sum of the step sizes, a (T + 1) / 2."""
    model, x = nn.Linear(3, 2, bias=False).double(), inputs(4, 3, dtype=torch.float64)
    y = torch.tensor([0, 1, 0, 1])
    way = torch.stack([(model.weight[1 - k] - model.weight[k]).sign() for k in y.tolist()]).detach()
    for steps in (1, 2, 5):
        near = PGD(eps=100.0, steps=steps, step_size=0.5, random_start=0.0, bounds=FREE)(model, x, y)
        torch.testing.assert_close(near - x, 0.5 * (steps + 1) / 2 * way)


class Product(nn.Module):
    """Returns the logits 0 and a b of an input (a, b), whose gradient is (b, a)."""

    def forward(self, x):
        return torch.stack([torch.zeros_like(x[:, 0]), x.prod(1)], 1)


def test_the_momentum_of_pgd_adds_normalized_gradients():
    x = torch.tensor([[1.0, 0.2], [0.3, 2.0]], dtype=torch.float64)
    attack = PGD(eps=9.0, norm=L2(), steps=3, step_size=0.3, random_start=0.0, momentum=0.5, bounds=FREE)
    position, velocity = x, torch.zeros_like(x)
    for step in range(3):
        gradient = position.flip(1)
        velocity = 0.5 * velocity + gradient / gradient.sum(1, keepdim=True)
        size = 0.3 * math.cos(math.pi * step / 6) ** 2
        position = position + size * velocity / velocity.norm(dim=1, keepdim=True)
    torch.testing.assert_close(attack(Product(), x, torch.tensor([0, 0])), position)


@pytest.mark.parametrize("norm", [L2(), LInf()], ids=str)
def test_deep_fool_of_a_linear_model_crosses_the_nearest_boundary(norm):
    torch.manual_seed(0)
    model, x = nn.Linear(5, 4), inputs(20, 5, dtype=torch.float32)
    y = model(x).argmax(1)
    near = DeepFool(norm=norm, binary_search_steps=0, bounds=FREE)(model, x, y)
    closest = DeepFool(norm=norm, binary_search_steps=12, bounds=FREE)(model, x, y)
    assert not bool((model(near).argmax(1) == y).any() or (model(closest).argmax(1) == y).any())
    z, weight = model(x).detach(), model.weight.detach()
    dual = 2 if norm == L2() else 1
    for i in range(20):
        gaps = [(z[i, y[i]] - z[i, k]) / (weight[k] - weight[y[i]]).norm(dual) for k in range(4) if k != y[i]]
        torch.testing.assert_close(norm.length(near - x)[i], 1.02 * min(gaps), rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(norm.length(closest - x)[i], min(gaps), rtol=1e-3, atol=1e-5)


def test_carlini_wagner_of_a_linear_model_is_close_to_the_minimum_norm():
    torch.manual_seed(0)
    model, x = nn.Linear(3, 2), inputs(6, 3)
    y = model(x).argmax(1)
    near = CarliniWagner(steps=80, binary_search_steps=4, lr=0.03, bounds=FREE)(model, x, y)
    assert not bool((model(near).argmax(1) == y).any())
    z, way = model(x).detach(), (model.weight[0] - model.weight[1]).detach()
    shortest = (z[:, 0] - z[:, 1]).abs() / way.norm()
    length = (near - x).norm(dim=1)
    assert bool((length >= shortest * (1 - 1e-4)).all())
    assert bool((length <= 1.15 * shortest + 1e-2).all())


def test_deep_fool_considers_the_most_likely_candidates():
    """The nearest boundary is that of the least likely class, whose logit changes fastest."""
    model, x = nn.Linear(1, 3), torch.zeros(1, 1)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.0], [1.0], [-10.0]]))
        model.bias.copy_(torch.tensor([3.0, 2.0, 1.0]))
    for candidates, boundary in ((1, 1.0), (2, -0.2)):
        attack = DeepFool(candidates=candidates, overshoot=0.02, binary_search_steps=0, bounds=FREE)
        near = attack(model, x, torch.tensor([0]))
        torch.testing.assert_close(near, torch.tensor([[1.02 * boundary]]))


@pytest.mark.parametrize("confidence", [0.0, 1.0])
def test_carlini_wagner_reaches_its_confidence(confidence):
    model, x, y = nn.Linear(1, 2, bias=False), torch.tensor([[0.5]]), torch.tensor([0])
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0], [-1.0]]))  # the margin at x is -2 x
    attack = CarliniWagner(confidence=confidence, steps=40, binary_search_steps=1, lr=0.05, bounds=FREE)
    near = float(attack(model, x, y))
    assert -confidence / 2 - 0.1 < near < -confidence / 2
    weak = CarliniWagner(initial_const=1e-3, steps=40, binary_search_steps=1, lr=0.05, bounds=FREE)
    assert torch.equal(weak(model, x, y), x)


def test_carlini_wagner_returns_perturbations_up_to_eps():
    model, x, y = nn.Linear(1, 2, bias=False), torch.tensor([[0.5]]), torch.tensor([0])
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0], [-1.0]]))  # the boundary is at 0
    for eps, found in ((0.7, True), (0.4, False)):
        near = CarliniWagner(eps=eps, steps=15, binary_search_steps=1, lr=0.1, bounds=FREE)(model, x, y)
        assert bool(near < 0) == found
        assert found or torch.equal(near, x)


def test_worst_case_and_multi_targeted_attacks():
    model, x = classifier(12).eval(), inputs(30, 12)
    y = predict(model, x)
    attacks = (FGSM(eps=0.2), PGD(eps=0.2, steps=5), PGD(eps=0.2, steps=5, loss=margin, seed=1))
    each = [robust_accuracy(model, x, y, attack=attack).value for attack in attacks]
    assert robust_accuracy(model, x, y, attack=WorstCaseAttack(attacks)).value <= min(each)
    toward = MultiTargetedAttack(PGD(eps=0.2, steps=5, goal=TARGETED), num_targets=3)
    assert robust_accuracy(model, x, y, attack=toward).value <= robust_accuracy(model, x, y, attack=FGSM(eps=0.0)).value


def test_a_worst_case_attack_goes_on_with_the_examples_that_are_not_fooled():
    """Each attack moves half of the examples over the boundary at 0."""
    model, x, tried = nn.Linear(1, 2, bias=False), torch.tensor([[1.0], [2.0], [3.0], [4.0]]), []
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0], [-1.0]]))

    def subtract(amount):
        def attack(model, x, y, *, indices):
            tried.append(indices.tolist())
            return x - amount

        return attack

    near = WorstCaseAttack((subtract(2.5), subtract(4.5)))(model, x, torch.zeros(4, dtype=torch.long))
    assert tried == [[0, 1, 2, 3], [2, 3]]
    torch.testing.assert_close(near, torch.tensor([[-1.5], [-0.5], [-1.5], [-0.5]]))


def test_a_multi_targeted_attack_tries_the_most_likely_wrong_classes_first():
    model, x, tried = classifier(12).eval(), inputs(30, 12), []
    y = predict(model, x)

    def attack(model, x, target, *, indices):
        tried.append(target)
        return x

    for num_targets, last in ((2, 3), (9, 4)):  # never the class itself
        tried.clear()
        MultiTargetedAttack(attack, num_targets=num_targets)(model, x, y)
        assert torch.equal(torch.stack(tried, 1), model(x).argsort(1, descending=True)[:, 1:last])


def test_default_bounds_are_those_of_images():
    assert InputBounds() == UNIT


def test_only_directions_that_leave_the_bounds_are_masked():
    g = torch.tensor([-0.5, 0.0, 0.5])
    for x, masked in ((0.0, [0.0, 0.0, 0.5]), (0.5, [-0.5, 0.0, 0.5]), (1.0, [-0.5, 0.0, 0.0])):
        assert UNIT.mask_outward(g, torch.full((3,), x)).tolist() == masked


def test_random_noise_is_weaker_than_an_attack():
    model, x = classifier(12).eval(), inputs(100, 12)
    y = predict(model, x)
    noise = robust_accuracy(model, x, y, attack=PGD(eps=0.2, steps=0))
    assert robust_accuracy(model, x, y, attack=PGD(eps=0.2, steps=10)).value < noise.value


def test_projections_agree_with_a_general_solver():
    scipy = pytest.importorskip("scipy.optimize")
    draw = torch.Generator().manual_seed(2)
    delta = 2 * torch.randn(4, 5, generator=draw, dtype=torch.float64)
    low, high = -torch.rand(4, 5, generator=draw, dtype=torch.float64), torch.rand(4, 5, generator=draw).double()
    for norm, order in ((L2(), 2), (L1(), 1)):
        found = norm.project(delta, 0.9, low, high)
        for d, lo, hi, p in zip(delta, low, high, found, strict=True):
            bounds = [(0.0, float(h) if v > 0 else -float(k)) for v, k, h in zip(d, lo, hi, strict=True)]
            inside = {"type": "ineq", "fun": lambda u: 0.9**order - (u**order).sum()}
            size = d.abs().numpy()
            best = scipy.minimize(
                lambda u: ((u - size) ** 2).sum(), [0.0] * 5, bounds=bounds, constraints=[inside], method="SLSQP",
                options={"ftol": 1e-14, "maxiter": 500},
            )  # fmt: skip
            torch.testing.assert_close(p.abs(), torch.from_numpy(best.x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (
            torch.full((2, 6), 200.5),
            [0, 1],
            r"x must be between 0 and 1, got 200.5 .* bounds=InputBounds\(0, 255\)",
        ),
        (torch.full((2, 6), 16.0), [0, 1], r"bounds=InputBounds\(0, 16\)"),
        (torch.full((2, 6), 300.0), [0, 1], r"bounds=InputBounds\(0, 300\)"),
        (torch.full((2, 6), torch.nan), [0, 1], "x must be finite, example 0 is not"),
        (torch.full((2, 6), torch.inf), [0, 1], "x must be finite"),
        (torch.zeros(0, 6), [], "expected non-empty x"),
        (torch.zeros(2, 6), [0, 7], "y must be between 0 and 3, got 0 to 7"),
        (torch.zeros(2, 6), [0, -1], "y must be between 0 and 3, got -1 to 0"),
        (torch.zeros(2, 6), [0], r"expected y of shape \(2,\), got \(1,\)"),
    ],
)
def test_invalid_inputs_raise(x, y, message):
    for attack in (PGD(eps=0.1), DeepFool(), CarliniWagner()):
        with pytest.raises(ValueError, match=message):
            attack(classifier(6), x, torch.tensor(y, dtype=torch.long))


def test_invalid_models_raise():
    y = torch.tensor([0, 1])
    with pytest.raises(ValueError, match="do not depend on x"):
        PGD(eps=0.1)(lambda x: torch.zeros(len(x), 3), torch.zeros(2, 6), y)
    with pytest.raises(ValueError, match=r"expected logits of shape \(2, c\) with at least 2 classes, got \(2, 1\)"):
        PGD(eps=0.1)(nn.Linear(6, 1), torch.zeros(2, 6), y)
    with pytest.raises(ValueError, match="the logits of the model must be finite"):
        PGD(eps=0.1)(lambda x: x[:, :3] / 0 * 0, torch.zeros(2, 6), y)
    with pytest.raises(ValueError, match="the gradient of the model is not finite at example 0"):
        PGD(eps=0.1, random_start=0.0)(lambda x: x[:, :3].sqrt(), torch.zeros(2, 6), y)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PGD(eps=-1), "eps must be finite and non-negative, got -1"),
        (lambda: PGD(eps=math.inf), "eps must be finite"),
        (lambda: PGD(eps=1, steps=-1), "steps must be at least 0, got -1"),
        (lambda: PGD(eps=1, step_size=0.0), "step_size must be positive, got 0.0"),
        (lambda: PGD(eps=1, random_start=2.0), "random_start must be between 0 and 1, got 2.0"),
        (lambda: PGD(eps=1, momentum=-1.0), "momentum must be non-negative, got -1.0"),
        (lambda: InputBounds(1.0, 0.0), "low must be less than high: got low=1.0, high=0.0"),
        (lambda: L1(fraction=2.0), "fraction must be between 0 and 1, got 2.0"),
        (lambda: CarliniWagner(steps=0), "steps and binary_search_steps must be at least 1, got 0 and 9"),
        (lambda: CarliniWagner(lr=0.0), "initial_const and lr must be positive, got 1.0 and 0.0"),
        (lambda: DeepFool(steps=0), "steps and candidates must be at least 1, got 0 and 9"),
        (lambda: DeepFool(overshoot=-1.0), "eps, overshoot and binary_search_steps must be non-negative"),
        (lambda: WorstCaseAttack(()), "attacks must not be empty"),
        (lambda: MultiTargetedAttack(FGSM(eps=1.0), num_targets=0), "num_targets must be at least 1, got 0"),
    ],
)
def test_invalid_options_raise(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_log_odds_do_not_saturate():
    z = torch.tensor([[200.0, 0.0, -5.0]], requires_grad=True)
    log_odds(z, torch.tensor([0])).backward()
    assert float(z.grad[0, 0]) == -1.0
