import json
import math

import numpy as np
import pytest
import torch
from sklearn import metrics as oracle

from lawful.inference.metrics import (
    accuracy,
    bootstrap,
    brier,
    calibration_error,
    confusion_matrix,
    mean_absolute_error,
    negative_log_likelihood,
    per_class,
    r_squared,
    reliability,
    root_mean_squared_error,
)


def random_predictions(n=200, c=4):
    generator = torch.Generator().manual_seed(0)
    p = (2 * torch.randn(n, c, generator=generator, dtype=torch.float64)).softmax(-1)
    return p, torch.multinomial(p, 1, generator=generator)[:, 0]


def test_classification_equals_scikit_learn():
    p, y = random_predictions()
    said = p.argmax(-1)
    assert accuracy(p, y).value == oracle.accuracy_score(y, said)
    assert confusion_matrix(p, y).tolist() == oracle.confusion_matrix(y, said).tolist()
    assert negative_log_likelihood(p, y).value == pytest.approx(oracle.log_loss(y, p))
    assert brier(p, y).value == pytest.approx(oracle.brier_score_loss(y, p, scale_by_half=False))
    expected = oracle.precision_recall_fscore_support(y, said)
    for score, precision, recall, f1, support in zip(per_class(confusion_matrix(p, y)), *expected, strict=True):
        found = [score.precision.value, score.recall.value, score.f1.value, score.support]
        assert found == pytest.approx([precision, recall, f1, support])


def test_regression_equals_scikit_learn():
    generator = torch.Generator().manual_seed(0)
    target = torch.randn(50, 3, generator=generator, dtype=torch.float64)
    y = target + 0.3 * torch.randn(50, 3, generator=generator, dtype=torch.float64)
    assert mean_absolute_error(y, target).value == pytest.approx(oracle.mean_absolute_error(target, y))
    squared = oracle.mean_squared_error(target, y)
    assert root_mean_squared_error(y, target).value == pytest.approx(math.sqrt(squared))
    assert r_squared(y, target).value == pytest.approx(oracle.r2_score(target, y))


def test_calibration_equals_a_loop_over_bins():
    p, y = random_predictions(500)
    sure, right = p.max(-1).values.numpy(), (p.argmax(-1) == y).numpy()
    total, bins = 0.0, reliability(p, y, bins=7)
    for k in range(7):
        here = (sure > k / 7) & (sure <= (k + 1) / 7)
        found = [b for b in bins if b.low == k / 7]
        assert bool(found) == here.any()
        if found:
            total += here.mean() * abs(right[here].mean() - sure[here].mean())
            assert (found[0].count, found[0].accuracy.value) == (here.sum(), right[here].mean())
            assert found[0].confidence == pytest.approx(sure[here].mean())
    assert calibration_error(p, y, bins=7).value == pytest.approx(total)


def test_labels_drawn_from_the_probabilities_are_calibrated():
    assert calibration_error(*random_predictions(20_000)).value < 0.02
    p, y = random_predictions(2000)
    assert calibration_error((8 * p.log()).softmax(-1), y).value > 0.1


def test_intervals_hold_the_value_and_shrink_with_the_data():
    for figure in (accuracy, negative_log_likelihood, brier, calibration_error):
        few, many = figure(*random_predictions(50)), figure(*random_predictions(5000))
        assert few.low <= few.value <= few.high
        assert many.high - many.low < 0.5 * (few.high - few.low)


def test_absent_class_has_zero_scores():
    p, y = torch.tensor([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0]]), torch.tensor([0, 0])
    scores = per_class(confusion_matrix(p, y))
    assert scores[2].f1.json() == scores[2].recall.json() == {"value": 0.0, "low": 0.0, "high": 1.0}
    assert scores[1].precision.value == scores[1].support == 0
    assert json.dumps([score.json() for score in scores])


def test_one_class_and_one_example():
    p, y = torch.ones(1, 1), torch.zeros(1, dtype=torch.long)
    assert accuracy(p, y).value == 1
    assert negative_log_likelihood(p, y).value == brier(p, y).value == calibration_error(p, y).value == 0
    assert confusion_matrix(p, y).tolist() == [[1]]
    assert [b.count for b in reliability(p, y)] == [1]


def test_nll_of_a_confident_mistake_is_finite():
    p, y = torch.tensor([[1.0, 0.0]], dtype=torch.float64), torch.tensor([1])
    assert negative_log_likelihood(p, y).value == pytest.approx(oracle.log_loss(y, p, labels=[0, 1]))
    assert brier(p, y).value == 2


def test_a_target_that_does_not_vary():
    flat = torch.full((4,), 0.1)
    assert r_squared(flat, flat).value == oracle.r2_score(flat, flat) == 1
    assert r_squared(flat + 1, flat).value == oracle.r2_score(flat, flat + 1) == 0
    assert np.isfinite(list(r_squared(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.5])).json().values())).all()


def test_invalid_arguments_raise():
    p, y = random_predictions(5)
    for figure in (accuracy, confusion_matrix, negative_log_likelihood, brier, calibration_error, reliability):
        with pytest.raises(
            ValueError, match=r"expected non-empty float p of shape \(n, c\), got torch.float64 of shape \(0, 4\)"
        ):
            figure(p[:0], y[:0])
        with pytest.raises(ValueError, match=r"expected 5 integer labels, got torch.int64 of shape \(4,\)"):
            figure(p, y[1:])
        with pytest.raises(ValueError, match="labels must be between 0 and 3, got -1 to 3"):
            figure(p, torch.tensor([-1, 0, 1, 2, 3]))
        with pytest.raises(ValueError, match="p contains NaN"):
            figure(p * torch.nan, y)
    for figure in (r_squared, mean_absolute_error, root_mean_squared_error):
        with pytest.raises(ValueError, match=r"equal, non-empty shapes, got \(0,\) and \(0,\)"):
            figure(torch.zeros(0), torch.zeros(0))
        with pytest.raises(ValueError, match=r"got \(3,\) and \(3, 1\)"):
            figure(torch.zeros(3), torch.zeros(3, 1))
        with pytest.raises(ValueError, match="predictions and targets must be finite"):
            figure(torch.tensor([torch.inf]), torch.zeros(1))
    with pytest.raises(ValueError, match="bins must be at least 1, got 0"):
        reliability(p, y, bins=0)
    with pytest.raises(ValueError, match=r"expected a square matrix, got shape \(2, 3\)"):
        per_class(torch.zeros(2, 3, dtype=torch.long))


@pytest.mark.parametrize(("n", "samples"), [(10, 1000), (50_000, 1000), (100_000, 500), (10**6, 100)])
def test_many_examples_have_fewer_bootstrap_samples(n, samples):
    calls = []
    bootstrap(lambda x: calls.append(len(x)) or x[:1].mean(), torch.zeros(n))
    assert calls == [n] * (samples + 1)
