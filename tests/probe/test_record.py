"""Recording and patching activations."""

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks.attention import HeadSpec, MultiHeadAttention
from lawful.functions import is_recorded, tap
from lawful.functions.attention import CAUSAL, attention_weights
from lawful.laws import Claim, agreement, shape
from lawful.probe import (
    at_index,
    attention_only_model,
    mean_ablation,
    patch,
    record,
    resample_ablation,
    steering,
    tapped_attention,
    zero_ablation,
)


class CustomModel(nn.Module):
    """A list of layers, a module used twice, a tap, and an optional costly tap."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.shared = nn.Tanh()
        self.costly = 0

    def forward(self, x):
        for layer in self.layers:
            x = x + self.shared(layer(x))
        if is_recorded("costly"):
            self.costly += 1
            tap("costly", x @ x.mT)
        return tap("out", x)


def hooks(model):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def test_only_named_activations_are_stored_but_all_names_are_listed():
    model = CustomModel()
    with record(model, "out") as cache:
        model(torch.ones(2, 4))
    assert list(cache) == ["out"]
    assert set(cache.names) == {
        "input", "layers.0.input", "layers.0", "layers.1.input", "layers.1", "shared.input", "shared", "costly", "out",
    }  # fmt: skip
    assert model.costly == 0


def test_outputs_inputs_and_taps_are_recorded_with_gradients():
    model, x = CustomModel(), torch.randn(2, 4)
    with record(model, "layers.*", "out", "costly") as cache:
        y = model(x)
    assert cache["out"] is y
    assert torch.equal(cache["layers.0"], F.linear(x, *model.layers[0].parameters()))
    assert torch.equal(cache["costly"], y @ y.mT)
    assert cache["layers.0.input"] is x
    assert cache["layers.1"].grad_fn is not None
    assert model.costly == 1
    assert cache.stack("layers.?").shape == (2, 2, 4)
    assert "layers.1: (2, 4)" in repr(cache)


def test_a_name_that_occurs_twice():
    model = CustomModel()
    with record(model, "shared") as cache:
        model(torch.ones(2, 4))
    with pytest.raises(LookupError, match=r"was recorded 2 times: use one of cache.calls\('shared'\)"):
        cache["shared"]
    assert len(cache.calls("shared")) == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("layer.0", r"the model has no activation 'layer\.0': did you mean layers\.0"),
        ("layers.7", r"the model has no activation 'layers\.7': did you mean layers\.\d"),
        ("layers", "layers is a container without a forward"),
        ("layers.0.wieght.x", "the model has no"),
        ("costy", "costy did not occur: did you mean costly"),
        ("*.pattern", r"\*\.pattern did not occur"),
        ("", "the model has no"),
    ],
)
@pytest.mark.parametrize("how", ["keep", "edit"])
def test_a_name_that_does_not_occur_raises_with_a_suggestion(name, message, how):
    model = CustomModel()
    block = {"keep": partial(record, model, name), "edit": partial(patch, model, {name: zero_ablation})}[how]
    with pytest.raises(LookupError, match=message), block():
        model(torch.ones(2, 4))
    assert hooks(model) == 0


def test_a_model_that_was_not_called_raises():
    with pytest.raises(LookupError, match="was not called"), record(CustomModel(), "out"):
        pass


def test_a_name_that_was_not_recorded_is_a_key_error():
    model = CustomModel()
    with record(model, "out") as cache:
        model(torch.ones(2, 4))
    with pytest.raises(KeyError, match="did you mean layers"):
        cache["layers.3"]
    assert "layers.0" not in cache


def test_an_activation_that_is_changed_in_place_raises():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(inplace=True))
    with record(model, "0") as cache:
        model(torch.ones(1, 2))
    with pytest.raises(RuntimeError, match="0 was changed in place after it was recorded"):
        cache["0"]


def test_hooks_are_removed_when_the_model_raises():
    model = CustomModel()
    with pytest.raises(RuntimeError, match="shapes"), record(model, "never"):
        model(torch.ones(2, 3))
    assert hooks(model) == 0


def test_names_are_right_after_a_caught_error():
    model = CustomModel()
    with record(model, "out") as cache:
        with pytest.raises(RuntimeError, match="shapes"):
            model(torch.ones(2, 3))
        model(torch.ones(2, 4))
    assert cache["out"].shape == (2, 4)


def test_nested_recorders_see_outer_edits():
    model, x = CustomModel(), torch.randn(2, 4)
    with record(model, "layers.0", edits={"layers.0": zero_ablation}) as outer, record(model, "layers.0") as inner:
        model(x)
    assert not outer["layers.0"].any()
    assert not inner["layers.0"].any()
    assert hooks(model) == 0


def test_other_models_are_not_recorded():
    one, other = CustomModel(), CustomModel()
    with record(one, "out") as cache:
        one(torch.ones(2, 4))
        other(torch.ones(3, 4))
        tap("out", torch.ones(5))
    assert cache["out"].shape == (2, 4)


def test_submodules_called_alone_keep_their_names():
    model = nn.Sequential(CustomModel(), nn.Linear(4, 1))
    with record(model, "0.out", "1") as cache:
        model[1](model[0](torch.ones(2, 4)))
    assert list(cache) == ["0.out", "1"]


def test_a_shared_module_has_the_name_of_its_caller():
    shared = nn.Linear(4, 4)
    model = nn.ModuleDict({"a": nn.Sequential(shared), "b": nn.Sequential(shared, nn.ReLU())})
    with record(model, "b.0") as cache:
        model["b"](torch.ones(1, 4))
    assert list(cache) == ["b.0"]


def test_threads_record_separately():
    model, found, start = CustomModel().eval(), {}, threading.Barrier(4)

    def work(i):
        start.wait()
        for n in range(10):
            with (
                torch.no_grad(),
                record(model, "out", edits={"layers.0": steering(torch.full((4,), float(i)))}) as cache,
            ):
                y = model(torch.ones(i + 1, 4))
            found[i, n] = cache["out"] is y and y.shape[0] == i + 1

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 40
    assert all(found.values())
    assert hooks(model) == 0
    assert not is_recorded("out")


def test_inference_mode_and_no_grad():
    model = CustomModel()
    with torch.inference_mode(), record(model, "out") as cache:
        y = model(torch.ones(1, 4))
        assert cache["out"] is y


def test_a_function_raises():
    with pytest.raises(TypeError, match=r"must be a torch\.nn\.Module, got function"), record(lambda x: x):
        pass


def test_edits_ablate_steer_and_resample():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2)), torch.randn(4, 3)
    head = model[1]
    mid = model[0](x)
    for edit, expected in (
        (zero_ablation, 0 * mid),
        (mean_ablation(), mid.mean(0, keepdim=True).expand_as(mid)),
        (mean_ablation(1), mid.mean(1, keepdim=True).expand_as(mid)),
        (steering(torch.ones(3), scale=2.0), mid + 2),
        (at_index((..., 1), zero_ablation), mid * torch.tensor([1.0, 0.0, 1.0])),
    ):
        with patch(model, {"0": edit}):
            assert torch.allclose(model(x), head(expected))
    with record(model, "0", edits={"0": resample_ablation(seed=1)}) as cache:
        model(x)
    assert not any(torch.equal(a, b) for a, b in zip(cache["0"], mid, strict=True))
    with pytest.raises(ValueError, match="a batch of at least 2, got 1"):
        resample_ablation()(x[:1])


@pytest.mark.parametrize(
    "heads", [[HeadSpec(4, count=2)], [HeadSpec(count=2, key=3), HeadSpec(count=1, key=2, value=5)]]
)
def test_patterns_of_fused_attention_and_sum_of_heads(heads):
    torch.manual_seed(0)
    layer, x = MultiHeadAttention(8, heads=heads), torch.randn(2, 5, 8)
    plain = layer(x, mask=CAUSAL)
    with record(layer, "*") as cache:
        y = layer(x, mask=CAUSAL)
    assert torch.allclose(y, plain, atol=1e-6)
    assert torch.allclose(cache["heads"].sum(-3) + layer.out.bias, y, atol=1e-6)
    for end in [""] if len(heads) == 1 else ["0", "1"]:
        weights = attention_weights(cache["q" + end], cache["k" + end], mask=CAUSAL)
        assert torch.allclose(cache["pattern" + end], weights, atol=1e-6)


def test_a_patched_pattern_changes_the_heads():
    model, x = attention_only_model(vocab_size=5, dim=4), torch.tensor([[1, 2, 3]])
    with record(model, "layers.0.attention.heads", edits={"layers.0.attention.pattern": zero_ablation}) as cache:
        model(x)
    assert cache["layers.0.attention.heads"].abs().max() < 1e-6 + model.layers[0].block.value.bias.abs().max()


class CustomAttention(nn.Module):
    """Attention by PyTorch's fused function."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x):
        q, k, v = (y.unflatten(-1, (2, 4)).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


def test_patterns_of_any_fused_attention_can_be_recorded_and_patched():
    torch.manual_seed(0)
    model, x = nn.Sequential(CustomAttention()), torch.randn(2, 5, 8)
    with record(model, "0.pattern", "0.scores") as cache:
        y = model(x)
    assert torch.allclose(y, model(x), atol=1e-6)
    assert torch.allclose(cache["0.pattern"].sum(-1), torch.ones(2, 2, 5))
    assert not cache["0.pattern"].triu(1).any()
    assert torch.allclose(cache["0.scores"].softmax(-1), cache["0.pattern"])
    with patch(model, {"0.pattern": lambda a: torch.eye(5).expand_as(a)}):
        patched = model(x)
    assert torch.allclose(patched, model[0].qkv(x)[..., 16:], atol=1e-6)


@pytest.mark.parametrize("training", [True, False])
def test_patterns_of_nn_transformer_encoder_layer(training):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, dropout=0.0, batch_first=True).train(training)
    x = torch.randn(2, 5, 8)
    with torch.no_grad(), record(layer, "self_attn.pattern") as cache:
        layer(x)
    _, weights = layer.self_attn(x, x, x, average_attn_weights=False)
    assert torch.allclose(cache["self_attn.pattern"], weights, atol=1e-6)


def test_all_activations_are_stored_by_default():
    model = CustomModel()
    with record(model) as cache:
        model(torch.ones(2, 4))
    assert set(cache.keys()) == set(cache.names)
    assert model.costly == 1
    with record(model):
        pass
    assert hooks(model) == 0


def test_head_outputs_are_stored_only_by_name():
    layer, x = MultiHeadAttention(8, num_heads=2), torch.randn(2, 5, 8)
    with record(layer) as cache:
        layer(x)
    assert {"pattern", "z", "out"} <= set(cache)
    assert "heads" not in cache
    assert "heads" in cache.names


def claims() -> Iterator[Claim]:
    """Second derivations of recording, edits and tapped attention."""
    yield from record_claims()
    yield from edit_claims()
    yield from tapped_attention_claims()


class Residual(nn.Module):
    """A small residual model with a tap."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x):
        return x + self.second(tap("hidden", torch.tanh(self.first(x))))


def record_claims() -> Iterator[Claim]:
    model = Residual()

    def activations(x):
        with record(model, "first", "hidden", "second.input", "second") as cache:
            model(x)
        return tuple(cache[name] for name in ("first", "hidden", "second.input", "second"))

    def from_weights(x):
        first = x @ model.first.weight.T + model.first.bias
        hidden = first.tanh()
        return first, hidden, hidden, hidden @ model.second.weight.T + model.second.bias

    def patched(x):
        with patch(model, {"first": lambda y: 2 * y}), patch(model, {"hidden": torch.square, "s*d": torch.neg}):
            return model(x)

    def by_hand(x):
        return x - model.second((2 * model.first(x)).tanh() ** 2)

    yield Claim(agreement(other=from_weights), activations, shape("b 3"), name="recorded activations")
    yield Claim(agreement(other=by_hand), patched, shape("b 3"), name="nested patches")


def edit_claims() -> Iterator[Claim]:
    v = torch.tensor([1.0, -2.0, 3.0])

    def mean(x):
        return torch.stack([x.sum(0) / len(x)] * len(x))

    def counts(x):
        """How many samples moved, and the sum of their indices."""
        numbers = torch.arange(len(x)).to(x)
        moved = torch.stack([resample_ablation(seed=seed)(numbers) for seed in range(5)])
        return torch.stack([(moved != numbers).sum().to(x), moved.sum()])

    steered = agreement(other=lambda x: x - 2 * v.to(x))
    zeroed = agreement(other=lambda x: x * torch.tensor([1, 0, 0]).to(x))
    all_moved = agreement(other=lambda x: x.new_tensor([5 * len(x), 5 * len(x) * (len(x) - 1) / 2]))
    yield Claim(steered, lambda x: steering(v.to(x), scale=-2.0)(x), shape("b 3"), name="steering")
    yield Claim(agreement(other=mean), mean_ablation(), shape("b 3"), name="mean_ablation")
    yield Claim(agreement(other=lambda x: 0 * x + x.mean()), mean_ablation(0, 1), shape("b 3"), name="mean over all")
    yield Claim(zeroed, lambda x: at_index((..., slice(1, 3)), zero_ablation)(x), shape("b 3"), name="at_index")
    yield Claim(all_moved, counts, shape("b:2..9 3"), name="resample_ablation")


def tapped_attention_claims() -> Iterator[Claim]:
    lower = torch.ones(3, 3, dtype=torch.bool).tril(1)
    cases: dict[str, dict[str, Any]] = {
        "no mask": {},
        "mask and scale": {"attn_mask": lower, "scale": 0.7},
        "float mask": {"attn_mask": 1.0 * lower},
        "a fully masked row": {"attn_mask": lower & torch.tensor([[True], [False], [True]])},
    }
    for name, options in cases.items():

        def attend(attention, x, options=options):
            typed = {k: v.to(x) if isinstance(v, Tensor) and v.is_floating_point() else v for k, v in options.items()}
            return attention(x, x.flip(-1), x.roll(1, -2), **typed)

        fused = agreement(other=partial(attend, F.scaled_dot_product_attention))
        yield Claim(fused, partial(attend, tapped_attention), shape("b 2 3 4"), name=f"tapped_attention, {name}")

    def grouped(x):
        return tapped_attention(x, x[:, :2], x[:, 2:], enable_gqa=True)

    def repeated(x):
        return F.scaled_dot_product_attention(x, x[:, [0, 0, 1, 1]], x[:, [2, 2, 3, 3]])

    yield Claim(agreement(other=repeated), grouped, shape("b 4 3 2"), name="tapped_attention, grouped queries")
