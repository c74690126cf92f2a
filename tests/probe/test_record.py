import threading
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lawful.blocks.attention import HeadSpec, MultiHeadAttention
from lawful.functions import is_recorded, tap
from lawful.functions.attention import CAUSAL, attention_weights
from lawful.probe import attention_only, mean_ablation, only, record, resample_ablation, steering, zero_ablation


class Own(nn.Module):
    """A user's model: a list of layers, one of them used twice, a tap, something costly on demand."""

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


def test_nothing_is_kept_unless_asked_for_but_all_names_are_listed():
    model = Own()
    with record(model) as tape:
        model(torch.ones(2, 4))
    assert len(tape) == 0
    assert set(tape.names) == {
        "input", "layers.0.input", "layers.0", "layers.1.input", "layers.1", "shared.input", "shared", "costly", "out",
    }  # fmt: skip
    assert model.costly == 0


def test_it_records_outputs_inputs_and_taps_with_their_gradients():
    model, x = Own(), torch.randn(2, 4)
    with record(model, "layers.*", "out", "costly") as tape:
        y = model(x)
    assert tape["out"] is y
    assert torch.equal(tape["layers.0"], F.linear(x, *model.layers[0].parameters()))
    assert torch.equal(tape["costly"], y @ y.mT)
    assert tape["layers.0.input"] is x
    assert tape["layers.1"].grad_fn is not None
    assert model.costly == 1
    assert tape.stack("layers.?").shape == (2, 2, 4)
    assert "layers.1: (2, 4)" in repr(tape)


def test_a_name_that_comes_up_twice_says_so():
    model = Own()
    with record(model, "shared") as tape:
        model(torch.ones(2, 4))
    with pytest.raises(LookupError, match=r"came up 2 times: take one of tape.calls\('shared'\)"):
        tape["shared"]
    assert len(tape.calls("shared")) == 2


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("layer.0", r"the model has no layer\.0; near names: layers\.0"),
        ("layers.7", r"the model has no layers\.7; near names: layers\.\d, layers\.\d"),
        ("layers", "layers is a list of modules, which does not run itself"),
        ("layers.0.wieght.x", "the model has no"),
        ("costy", "costy did not come up; near names: costly"),
        ("*.pattern", r"\*\.pattern did not come up"),
        ("", "the model has no"),
    ],
)
@pytest.mark.parametrize("how", ["keep", "edit"])
def test_a_name_that_cannot_come_up_is_an_error_with_near_names(name, said, how):
    model = Own()
    asked = {"keep": partial(record, model, name), "edit": partial(record, model, edit={name: zero_ablation})}[how]
    with pytest.raises(LookupError, match=said), asked():
        model(torch.ones(2, 4))
    assert hooks(model) == 0


def test_a_model_that_did_not_run_says_so():
    with pytest.raises(LookupError, match="did not run"), record(Own(), "out"):
        pass


def test_what_was_not_recorded_is_a_key_error_with_near_names():
    model = Own()
    with record(model, "out") as tape:
        model(torch.ones(2, 4))
    with pytest.raises(KeyError, match="near names: layers"):
        tape["layers.3"]
    assert "layers.0" not in tape


def test_a_value_that_is_changed_in_place_later_is_an_error():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(inplace=True))
    with record(model, "0") as tape:
        model(torch.ones(1, 2))
    with pytest.raises(RuntimeError, match="0 was changed in place after it was recorded"):
        tape["0"]


def test_hooks_are_removed_when_the_model_raises_and_its_error_is_the_one_seen():
    model = Own()
    with pytest.raises(RuntimeError, match="shapes"), record(model, "never"):
        model(torch.ones(2, 3))
    assert hooks(model) == 0


def test_an_error_inside_the_model_that_is_caught_leaves_the_names_right():
    model = Own()
    with record(model, "out") as tape:
        with pytest.raises(RuntimeError):
            model(torch.ones(2, 3))
        model(torch.ones(2, 4))
    assert tape["out"].shape == (2, 4)


def test_recorders_nest_and_the_inner_sees_the_edit_of_the_outer():
    model, x = Own(), torch.randn(2, 4)
    with record(model, "layers.0", edit={"layers.0": zero_ablation}) as outer, record(model, "layers.0") as inner:
        model(x)
    assert not outer["layers.0"].any()
    assert not inner["layers.0"].any()
    assert hooks(model) == 0


def test_two_models_are_told_apart():
    one, other = Own(), Own()
    with record(one, "out") as tape:
        one(torch.ones(2, 4))
        other(torch.ones(3, 4))
        tap("out", torch.ones(5))
    assert tape["out"].shape == (2, 4)


def test_a_submodule_of_a_wrapper_and_a_part_called_alone_have_their_names():
    model = nn.Sequential(Own(), nn.Linear(4, 1))
    with record(model, "0.out", "1") as tape:
        model[1](model[0](torch.ones(2, 4)))
    assert list(tape) == ["0.out", "1"]


def test_a_module_in_two_places_has_the_name_of_where_it_runs():
    shared = nn.Linear(4, 4)
    model = nn.ModuleDict({"a": nn.Sequential(shared), "b": nn.Sequential(shared, nn.ReLU())})
    with record(model, "b.0") as tape:
        model["b"](torch.ones(1, 4))
    assert list(tape) == ["b.0"]


def test_threads_record_only_what_is_their_own():
    model, found, start = Own().eval(), {}, threading.Barrier(4)

    def work(i):
        start.wait()
        for n in range(10):
            with torch.no_grad(), record(model, "out", edit={"layers.0": steering(torch.full((4,), float(i)))}) as tape:
                y = model(torch.ones(i + 1, 4))
            found[i, n] = tape["out"] is y and y.shape[0] == i + 1

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
    model = Own()
    with torch.inference_mode(), record(model, "out") as tape:
        y = model(torch.ones(1, 4))
        assert tape["out"] is y


def test_only_a_module_can_be_recorded():
    with pytest.raises(TypeError, match="a module was wanted: got function"), record(lambda x: x):
        pass


def test_edits_ablate_steer_and_resample():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2)), torch.randn(4, 3)
    head = model[1]
    mid = model[0](x)
    for edit, wanted in (
        (zero_ablation, 0 * mid),
        (mean_ablation(), mid.mean(0, keepdim=True).expand_as(mid)),
        (steering(torch.ones(3), by=2.0), mid + 2),
        (only((..., 1), zero_ablation), mid * torch.tensor([1.0, 0.0, 1.0])),
    ):
        with record(model, edit={"0": edit}):
            assert torch.allclose(model(x), head(wanted))
    with record(model, "0", edit={"0": resample_ablation(seed=1)}) as tape:
        model(x)
    assert not any(torch.equal(a, b) for a, b in zip(tape["0"], mid, strict=True))
    with pytest.raises(ValueError, match="a batch of at least 2: got 1"):
        resample_ablation()(x[:1])


@pytest.mark.parametrize(
    "heads", [[HeadSpec(4, count=2)], [HeadSpec(count=2, key=3), HeadSpec(count=1, key=2, value=5)]]
)
def test_the_pattern_of_fused_attention_and_heads_that_add_up(heads):
    torch.manual_seed(0)
    layer, x = MultiHeadAttention(8, heads=heads), torch.randn(2, 5, 8)
    plain = layer(x, mask=CAUSAL)
    with record(layer, "*") as tape:
        y = layer(x, mask=CAUSAL)
    assert torch.allclose(y, plain, atol=1e-6)
    assert torch.allclose(tape["heads"].sum(-3) + layer.out.bias, y, atol=1e-6)
    for end in [""] if heads == 2 else ["0", "1"]:
        weights = attention_weights(tape["q" + end], tape["k" + end], mask=CAUSAL)
        assert torch.allclose(tape["pattern" + end], weights, atol=1e-6)


def test_a_patched_pattern_acts():
    model, x = attention_only(vocab=5, d=4), torch.tensor([[1, 2, 3]])
    with record(model, "layers.0.block.heads", edit={"layers.0.block.pattern": zero_ablation}) as tape:
        model(x)
    assert tape["layers.0.block.heads"].abs().max() < 1e-6 + model.layers[0].block.value.bias.abs().max()


class OwnAttention(nn.Module):
    """A user's attention, by PyTorch's fused function."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x):
        q, k, v = (y.unflatten(-1, (2, 4)).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


def test_the_pattern_of_any_fused_attention_can_be_seen_and_patched():
    torch.manual_seed(0)
    model, x = nn.Sequential(OwnAttention()), torch.randn(2, 5, 8)
    with record(model, "0.pattern", "0.scores") as tape:
        y = model(x)
    assert torch.allclose(y, model(x), atol=1e-6)
    assert torch.allclose(tape["0.pattern"].sum(-1), torch.ones(2, 2, 5))
    assert not tape["0.pattern"].triu(1).any()
    assert torch.allclose(tape["0.scores"].softmax(-1), tape["0.pattern"])
    with record(model, edit={"0.pattern": lambda a: torch.eye(5).expand_as(a)}):
        looked = model(x)
    assert torch.allclose(looked, model[0].qkv(x)[..., 16:], atol=1e-6)


@pytest.mark.parametrize("training", [True, False])
def test_the_pattern_of_pytorchs_own_layer(training):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, dropout=0.0, batch_first=True).train(training)
    x = torch.randn(2, 5, 8)
    with torch.no_grad(), record(layer, "self_attn.pattern") as tape:
        layer(x)
    _, weights = layer.self_attn(x, x, x, average_attn_weights=False)
    assert torch.allclose(tape["self_attn.pattern"], weights, atol=1e-6)
