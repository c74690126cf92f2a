"""A refutation names the culprit: the parameter, the submodule or the two tensors."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lawful import shape, tokens
from lawful.checking.check import SearchBudget, judge_law
from lawful.laws import (
    batch_independence,
    checkpointed_gradient,
    determinism,
    gradient,
    gradient_accumulation,
    second_order_gradient,
    weight_sharing,
)


def judge(module, law, inputs, cases=20, **budget):
    return judge_law(law, module, inputs, type(module).__name__, SearchBudget(cases, **budget))


class _Doubled(torch.autograd.Function):
    """The identity with a wrong gradient."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad


class _Layers(nn.Module):
    def __init__(self, change=lambda weight: weight):
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(4, 4) for _ in range(3))
        self.change = change

    def forward(self, x):
        x = self.first(x).tanh()
        x = F.linear(x, self.change(self.second.weight), self.second.bias).tanh()
        return self.third(x)


@pytest.mark.parametrize("law", [gradient(), second_order_gradient()], ids=["first", "second"])
def test_the_parameter_with_a_wrong_gradient(law):
    torch.manual_seed(0)
    found = judge(_Layers(_Doubled.apply), law, shape("b 4"))
    assert found.reason == "the gradient of second.weight is wrong"
    assert f"{law}  the gradient of second.weight is wrong\n" in str(found)


def test_the_parameter_without_a_gradient():
    torch.manual_seed(0)
    assert judge(_Layers(torch.detach), gradient(), shape("b 4")).reason == "second.weight receives no gradient"


def test_the_input_with_a_wrong_gradient():
    def scaled(x, y):
        return x + _Doubled.apply(y)

    assert judge(scaled, gradient(), (shape("b"), shape("b"))).reason == "the gradient of input 1 is wrong"
    assert judge(_Doubled.apply, gradient(), shape("b")).reason == "the gradient of the input is wrong"


def test_gradients_have_names():
    class Noisy(nn.Module):
        """Draws another number in the recomputation."""

        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(3))
            self.generator = torch.Generator().manual_seed(0)

        def forward(self, x):
            return self.scale * x * torch.rand(3, generator=self.generator)

    class MeanOfTokens(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(3))

        def forward(self, x):
            kept = x > 0
            return (self.scale * x * kept).sum() / kept.sum().clamp_min(1)

    found = judge(Noisy(), checkpointed_gradient(), shape("b 3"))
    assert found.counterexample.name in ("gradient of the input", "gradient of scale")
    found = judge(MeanOfTokens(), gradient_accumulation(), shape("b 3"))
    assert found.counterexample.name in ("loss", "gradient of scale")


class _InAList(nn.Module):
    """Holds its layers in a plain list, which `eval()` does not reach."""

    def __init__(self):
        super().__init__()
        self.layers = [nn.ReLU(), nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))]

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class _Forgotten(nn.Module):
    """Switches a submodule to training mode itself."""

    def __init__(self):
        super().__init__()
        self.norm, self.drop = nn.LayerNorm(4), nn.Dropout(0.5)

    def forward(self, x):
        return self.drop.train()(self.norm(x))


class _Frozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.ModuleDict({"norm": nn.BatchNorm1d(4)})

    def forward(self, x):
        return self.body["norm"](x)


def test_a_submodule_that_is_not_registered():
    torch.manual_seed(0)
    found = judge(_InAList(), determinism(), shape("b 4"), shrinks=20)
    assert found.reason == "still in training mode: layers[1].1 (Dropout)"


def test_a_submodule_that_switches_to_training_mode():
    assert judge(_Forgotten(), determinism(), shape("b 4")).reason == "still in training mode: drop (Dropout)"


def test_a_submodule_that_was_left_in_training_mode():
    module = _Frozen().eval()
    module.body["norm"].train()
    found = judge(module, batch_independence(), shape("b 4"))
    assert found.reason == "still in training mode: body.norm (BatchNorm1d)"
    assert found.counterexample.mode == "eval mode"


def test_a_module_in_training_mode_is_no_culprit():
    found = judge(_Frozen(), batch_independence(), shape("b 4"))
    assert (found.reason, found.counterexample.mode) == ("", "training mode")


class _Tied(nn.Module):
    def __init__(self, copied=False):
        super().__init__()
        self.embedding, self.middle = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
        self.output = nn.Linear(4, 7, bias=False)
        self.middle.weight = self.output.weight = self.embedding.weight
        if copied:
            self.output.weight = nn.Parameter(self.output.weight.detach().clone())

    def forward(self, token_ids):
        x = self.embedding(token_ids)
        return self.output(x) + self.middle(x).tanh()


TIED = weight_sharing(names=("embedding.weight", "middle.weight", "output.weight"))


def test_tensors_that_are_no_longer_shared():
    torch.manual_seed(0)
    inputs = tokens("b t", vocab_size=7)
    found = judge(_Tied(copied=True), TIED, inputs)
    assert found.reason == "embedding.weight and output.weight are not shared"
    assert judge(_Tied(), TIED, inputs).status == "held"
