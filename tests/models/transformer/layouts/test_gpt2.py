import json
from dataclasses import replace

import pytest
import torch
import transformers

from lawful.models.transformer import GPT2, Decoder, DecoderConfig, gpt2_config, read_gpt2, write_gpt2


def theirs(seed=0, **sizes):
    torch.manual_seed(seed)
    sizes = {"vocab_size": 11, "n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 9} | sizes
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(bos_token_id=0, eos_token_id=0, **sizes)).eval()
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.3)
    return model


def ours(bias=True, seed=1):
    torch.manual_seed(seed)
    return Decoder(gpt2_config(vocab=11, d=12, depth=2, heads=3, context=9, bias=bias)).eval()


def logits(model):
    tokens = torch.arange(18).reshape(2, 9) * 7 % 11
    found = model(tokens)
    return getattr(found, "logits", found)


def same(a, b):
    torch.testing.assert_close(logits(a), logits(b), rtol=1e-5, atol=1e-5)


def test_loaded_weights_give_the_logits_of_hugging_face():
    their, our = theirs(), ours()
    GPT2.load(our, their.state_dict())
    same(our, their)
    assert our.head.weight is our.embedding.weight


def test_the_published_names_have_no_prefix_and_may_hold_masks():
    their, our = theirs(), ours()
    state = {name.removeprefix("transformer."): x for name, x in their.state_dict().items()}
    del state["lm_head.weight"]
    GPT2.load(our, state | {f"h.{i}.attn.bias": torch.ones(1, 1, 9, 9).tril() for i in range(2)})
    same(our, their)


@pytest.mark.parametrize("bias", [True, False])
def test_saved_weights_give_hugging_face_the_logits(bias):
    their, our = theirs(), ours(bias)
    for p in our.parameters():
        torch.nn.init.normal_(p, std=0.3)
    their.load_state_dict(GPT2.save(our))
    same(our, their)


def test_without_biases_only_zero_ones_are_loaded():
    their, our = theirs(), ours(bias=False)
    with pytest.raises(ValueError, match=r"h\.0\.ln_1\.bias is to be zero, as the model has no layers\.0\.norm\.bias"):
        GPT2.load(our, their.state_dict())
    for name, p in their.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.zeros_(p)
    GPT2.load(our, their.state_dict())
    same(our, their)


def test_saving_and_loading_is_exact():
    one, other = ours(seed=1), ours(seed=2)
    GPT2.load(other, GPT2.save(one))
    assert torch.equal(logits(one), logits(other))


def test_folders_are_read_by_both(tmp_path):
    their, our = theirs(layer_norm_epsilon=1e-3), ours()
    their.save_pretrained(tmp_path / "theirs")
    same(read_gpt2(tmp_path / "theirs").eval(), their)
    write_gpt2(our, tmp_path / "ours")
    same(transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "ours").eval(), our)
    same(read_gpt2(tmp_path / "ours").eval(), our)


def test_another_activation_is_refused(tmp_path):
    theirs().save_pretrained(tmp_path)
    sizes = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(sizes | {"activation_function": "relu"}))
    with pytest.raises(ValueError, match="gelu_new, is wanted: got 'relu'"):
        read_gpt2(tmp_path)


def test_names_and_shapes_that_do_not_fit_are_refused_and_nothing_changes():
    our, state = ours(), theirs().state_dict()
    before = logits(our)
    good = state.pop("transformer.h.1.mlp.c_fc.weight")
    with pytest.raises(KeyError, match=r"h\.1\.mlp\.c_fc\.weight is missing: the nearest name is h\.\d\.mlp\.c_"):
        GPT2.load(our, state)
    with pytest.raises(KeyError, match=r"h\.1\.mlp\.fc\.weight has no place in the model: .* h\.1\.mlp\.c_fc\.weight"):
        GPT2.load(our, state | {"h.1.mlp.fc.weight": good})
    with pytest.raises(ValueError, match=r"c_fc\.weight is to have the shape \(12, 48\): got \(48, 12\)"):
        GPT2.load(our, state | {"h.1.mlp.c_fc.weight": good.T})
    with pytest.raises(ValueError, match="are one parameter"):
        GPT2.load(our, state | {"h.1.mlp.c_fc.weight": good, "lm_head.weight": torch.zeros(11, 12)})
    assert torch.equal(logits(our), before)


def test_other_models_are_refused():
    with pytest.raises(TypeError, match=r"order \(sf\)\* is wanted: got ssff"):
        GPT2.save(Decoder(replace(ours().config, order="s2f2")))
    with pytest.raises(TypeError, match=r"is wanted: got .*Linear"):
        GPT2.save(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match=r"no place for layers\.0\.block\.query_norm\.weight"):
        GPT2.save(Decoder(DecoderConfig(vocab=11, d=16, depth=1)))
    with pytest.raises(ValueError, match=r"wants a parameter positions\.weight"):
        GPT2.save(Decoder(replace(ours().config, positions=None)))
