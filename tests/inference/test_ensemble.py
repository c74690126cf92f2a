import pytest
import torch
from torch import nn

import lawful
from lawful.inference import (
    Ensemble,
    mean_log_probabilities,
    mean_probabilities,
    mean_values,
    predict,
    value_uncertainty,
)
from lawful.laws import AtMost, Claim, agreement, law, shape, tokens


def members(n=3):
    torch.manual_seed(0)
    return [nn.Linear(3, 4) for _ in range(n)]


def test_averages():
    x, models = torch.randn(5, 3, generator=torch.Generator().manual_seed(1)), members()
    p = torch.stack([predict(model, x) for model in models])
    torch.testing.assert_close(predict(Ensemble(models), x), p.mean(0))
    product = p.prod(0) ** (1 / 3)
    torch.testing.assert_close(
        predict(Ensemble(models, average=mean_log_probabilities), x), product / product.sum(-1, keepdim=True)
    )
    values = Ensemble(models, average=mean_values)
    torch.testing.assert_close(values(x), sum(model(x) for model in models) / 3)
    assert value_uncertainty(values.member_outputs(x)).std.shape == (5, 4)


def test_state_dict():
    models = members()
    model, other = Ensemble(models), Ensemble([nn.Linear(3, 4) for _ in range(3)])
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(torch.ones(2, 3)), model(torch.ones(2, 3)))


def test_excluded_class():
    scores = torch.tensor([[[0.0, -torch.inf]], [[0.0, 0.0]]])
    torch.testing.assert_close(mean_probabilities(scores).exp(), torch.tensor([[0.75, 0.25]]))
    assert torch.equal(mean_log_probabilities(scores).exp(), torch.tensor([[1.0, 0.0]]))


@law("-log p(y) ≤ mean of -log p_j(y)", every_input=True, discover_with=None)
def no_worse_than_members(f, logits, y):
    """The negative log-likelihood of the ensemble is at most the mean of its members' (Jensen's inequality).

    Satisfied by: the mixture; the geometric mean.
    Broken by: an unnormalized geometric mean; the least confident member.
    """

    def nll(log_p):
        return -log_p.gather(-1, y[..., None].expand(*log_p.shape[:-1], 1))[..., 0]

    return AtMost(nll(f(logits, y)), nll(logits.log_softmax(-1)).mean(0), exercised=True)


def test_minimum_over_members_violates_jensen():
    def least(scores, y):
        return scores.log_softmax(-1).amin(0)

    inputs = (lawful.shape("m b 3"), lawful.tokens("b", vocab_size=3))
    report = lawful.check(least, no_worse_than_members(), inputs=inputs, cases=10)
    assert report.verdicts[0].status == "refuted"


def test_errors():
    with pytest.raises(ValueError, match="an ensemble needs at least one member"):
        Ensemble([])
    with pytest.raises(ValueError, match="every class is excluded by some member"):
        mean_log_probabilities(torch.tensor([[0.0, -torch.inf], [-torch.inf, 0.0]]))


def claims():
    """Second derivations of ensembles."""
    first, second = nn.Linear(3, 2), nn.Linear(3, 2)
    for average in (mean_probabilities, mean_log_probabilities):
        name = average.__name__
        alone = agreement(other=lambda s: s.log_softmax(-1))
        yield Claim(alone, lambda s, average=average: average(s[None]), shape("b 3"), name=f"{name} of one")
        jensen = shape("m b 3"), tokens("b", vocab_size=3)
        yield Claim(no_worse_than_members(), lambda s, y, average=average: average(s), jensen, name=name)
    mixture = agreement(other=lambda s: s.softmax(-1).mean(0))
    yield Claim(mixture, lambda s: mean_probabilities(s).exp(), shape("m b 3"), name="mean_probabilities, a mixture")
    mean_logit = agreement(other=lambda s: s.mean(0).log_softmax(-1))
    yield Claim(mean_logit, mean_log_probabilities, shape("m b 3"), name="mean_log_probabilities, the mean logit")
    halves = agreement(other=lambda x: (first(x) + second(x)) / 2)
    yield Claim(halves, Ensemble([first, second], average=mean_values), shape("b 3"), name="Ensemble")
