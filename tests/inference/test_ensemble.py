import pytest
import torch
from torch import nn

import lawful
from lawful.inference import Ensemble, mean, mean_log_probabilities, mean_probabilities, predict, value_spread
from lawful.inference.ensemble import no_worse_than_its_members


def members(n=3):
    torch.manual_seed(0)
    return [nn.Linear(3, 4) for _ in range(n)]


def test_averages_are_those_of_numpy():
    x, models = torch.randn(5, 3, generator=torch.Generator().manual_seed(1)), members()
    p = torch.stack([predict(model, x) for model in models])
    torch.testing.assert_close(predict(Ensemble(models), x), p.mean(0))
    product = p.prod(0) ** (1 / 3)
    torch.testing.assert_close(
        predict(Ensemble(models, average=mean_log_probabilities), x), product / product.sum(-1, keepdim=True)
    )
    values = Ensemble(models, average=mean)
    torch.testing.assert_close(values(x), sum(model(x) for model in models) / 3)
    assert value_spread(values.each(x)).std.shape == (5, 4)


def test_it_is_saved_as_one_model():
    models = members()
    model, other = Ensemble(models), Ensemble([nn.Linear(3, 4) for _ in range(3)])
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(torch.ones(2, 3)), model(torch.ones(2, 3)))


def test_a_class_that_one_member_rules_out():
    scores = torch.tensor([[[0.0, -torch.inf]], [[0.0, 0.0]]])
    torch.testing.assert_close(mean_probabilities(scores).exp(), torch.tensor([[0.75, 0.25]]))
    assert torch.equal(mean_log_probabilities(scores).exp(), torch.tensor([[1.0, 0.0]]))


def test_the_law_tells_the_least_of_the_members():
    def least(scores, y):
        return scores.log_softmax(-1).amin(0)

    inputs = (lawful.shape("m b 3"), lawful.tokens("b", vocab_size=3))
    report = lawful.check(least, no_worse_than_its_members(), inputs=inputs, cases=10)
    assert report.verdicts[0].status == "refuted"


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match="at least one member was wanted: got none"):
        Ensemble([])
    with pytest.raises(ValueError, match="got members that agree on none"):
        mean_log_probabilities(torch.tensor([[0.0, -torch.inf], [-torch.inf, 0.0]]))
