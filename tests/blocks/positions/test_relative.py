import pytest
import torch
from transformers import T5Config
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.t5.modeling_t5 import T5Attention

from lawful.blocks import ALiBi, ClippedRelativeBias, T5RelativeBias


@pytest.mark.parametrize(("decoder", "sides"), [(False, 2), (True, 1)])
@pytest.mark.parametrize(("buckets", "reach"), [(32, 128), (8, 20)])
def test_buckets_equal_t5(decoder, sides, buckets, reach):
    config = T5Config(
        num_heads=3,
        is_decoder=decoder,
        relative_attention_num_buckets=buckets,
        relative_attention_max_distance=reach,
    )
    torch.manual_seed(0)
    theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    ours = T5RelativeBias(3, buckets=buckets, reach=reach, sides=sides)
    ours.weight = theirs.relative_attention_bias.weight
    torch.testing.assert_close(ours(torch.arange(300), torch.arange(300)), theirs.compute_bias(300, 300)[0])


@pytest.mark.parametrize("heads", [1, 2, 4, 6, 8, 12])
def test_slopes_equal_those_of_bloom(heads):
    theirs = build_alibi_tensor(torch.ones(1, 5), heads, torch.float32)
    ours = ALiBi(heads)(torch.tensor([0]), torch.arange(5))
    torch.testing.assert_close(-ours, theirs)


def test_far_keys_share_a_bias():
    layer = ClippedRelativeBias(1, reach=2)
    with torch.no_grad():
        layer.weight.copy_(torch.arange(5.0)[:, None])
    assert layer(torch.tensor([5]), torch.arange(11)).tolist() == [[[0, 0, 0, 0, 1, 2, 3, 4, 4, 4, 4]]]


@pytest.mark.parametrize("layer", [ALiBi(3), ClippedRelativeBias(3), T5RelativeBias(3)])
def test_rows_of_a_batch_have_positions_of_their_own(layer):
    queries, keys = torch.tensor([[4, 5], [9, 7]]), torch.tensor([[0, 5, 3], [2, 1, 9]])
    together = layer(queries, keys)
    assert together.shape == (2, 3, 2, 3)
    for row in range(2):
        torch.testing.assert_close(together[row], layer(queries[row], keys[row]))


def test_biases_follow_the_precision_of_the_model_and_the_state_dict_has_weights_alone():
    for layer, names in ((ALiBi(2), []), (T5RelativeBias(2), ["weight"]), (ClippedRelativeBias(2), ["weight"])):
        assert list(layer.state_dict()) == names
        assert layer.double()(torch.arange(2), torch.arange(3)).dtype == torch.float64


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match="at least 1: got 0"):
        ALiBi(0)
    with pytest.raises(ValueError, match="multiple of 4, and reach above 1: got buckets=6, reach=128"):
        T5RelativeBias(2, buckets=6)
    with pytest.raises(ValueError, match="1 or 2: got 3"):
        T5RelativeBias(2, sides=3)
    with pytest.raises(ValueError, match="got 2 and -1"):
        ClippedRelativeBias(2, reach=-1)
