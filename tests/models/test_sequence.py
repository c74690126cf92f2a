import pytest
import torch

from lawful.blocks import StateSpace
from lawful.models import SequenceClassifier, sequence_classifier


def parameters(model):
    return sum(p.numel() for p in model.parameters())


def test_the_default_has_fewer_than_ten_thousand_parameters():
    assert parameters(sequence_classifier()) < 10_000


@pytest.mark.parametrize("ssm", ["s4d", "s4", "selective"])
def test_steps_give_the_logits_of_the_sequence_so_far(ssm):
    torch.manual_seed(0)
    model, x = sequence_classifier(2, 3, ssm=ssm, dim=4, state_dim=4).double(), torch.randn(2, 70, 2).double()
    state = model.initial_state(2)
    for t in range(70):
        logits, state = model.step(x[:, t], state, rate=0.5)
        if t in (0, 8, 69):
            torch.testing.assert_close(logits, model(x[:, : t + 1], rate=0.5), rtol=1e-4, atol=1e-5)


def test_rate_classifies_series_with_twice_as_many_samples():
    torch.manual_seed(0)
    model = sequence_classifier(1, 3, dim=8, state_dim=4)
    with torch.no_grad():
        t = torch.linspace(0, 1, 161)
        wave = torch.stack([torch.sin(3 * t), torch.cos(5 * t)]).unsqueeze(-1)
        coarse = model(wave[:, ::2])
        same, other = model(wave, rate=0.5), model(wave)
    assert (same - coarse).norm() < 0.2 * (other - coarse).norm()


def test_a_mask_gives_the_logits_of_the_shorter_series():
    torch.manual_seed(0)
    model, x = sequence_classifier(2, 3, dim=4, state_dim=4), torch.randn(2, 9, 2)
    mask = torch.arange(9) < torch.tensor([[5], [9]])
    torch.testing.assert_close(model(x, mask=mask)[:1], model(x[:1, :5]))
    torch.testing.assert_close(model(x, mask=mask)[1:], model(x[1:]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SequenceClassifier(1, 2, []), "at least one"),
        (lambda: SequenceClassifier(1, 2, [StateSpace(2), StateSpace(4)]), r"equal widths .* got \[2, 4\]"),
        (lambda: sequence_classifier(ssm="s5"), "ssm must be s4d, s4 or selective, got 's5'"),
        (lambda: sequence_classifier(num_layers=0), "sizes must be at least 1, got .*num_layers=0"),
        (lambda: sequence_classifier()(torch.zeros(2, 40)), r"expected x of shape \(b, t, 1\) .* got \(2, 40\)"),
        (lambda: sequence_classifier()(torch.zeros(2, 0, 1)), "with t >= 1"),
        (lambda: sequence_classifier()(torch.full((2, 3, 1), torch.nan)), "x must be finite"),
        (lambda: sequence_classifier()(torch.zeros(2, 3, 1), rate=0.0), "rate must be positive"),
        (
            lambda: sequence_classifier()(torch.zeros(2, 3, 1), mask=torch.ones(2, 4, dtype=torch.bool)),
            r"expected a mask of shape \(2, 3\), got \(2, 4\)",
        ),
    ],
)
def test_invalid_arguments_are_an_error(call, message):
    with pytest.raises(ValueError, match=message):
        call()
