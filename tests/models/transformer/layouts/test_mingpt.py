from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lawful.models.gpt2_weights import MINGPT, gpt2_config
from lawful.models.transformer import Decoder


class Attention(nn.Module):
    def __init__(self, d, heads, bias):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(d, 3 * d, bias=bias), nn.Linear(d, d, bias=bias)
        self.heads = heads
        self.register_buffer("bias", torch.ones(9, 9).tril().view(1, 1, 9, 9))

    def forward(self, x):
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.c_attn(x).chunk(3, -1))
        scores = (q @ k.mT / k.shape[-1] ** 0.5).masked_fill(
            self.bias[..., : x.shape[1], : x.shape[1]] == 0, -torch.inf
        )
        return self.c_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(-2))


class Layer(nn.Module):
    def __init__(self, d, heads, bias):
        super().__init__()
        self.ln_1, self.ln_2 = (nn.LayerNorm(d, bias=bias) for _ in range(2))
        self.attn = Attention(d, heads, bias)
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(d, 4 * d, bias=bias), "c_proj": nn.Linear(4 * d, d, bias=bias)})

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh"))


class Small(nn.Module):
    """A GPT with the names of minGPT."""

    def __init__(self, d=12, heads=3, bias=True):
        super().__init__()
        layers = nn.ModuleList(Layer(d, heads, bias) for _ in range(2))
        tables = {"wte": nn.Embedding(11, d), "wpe": nn.Embedding(9, d)}
        self.transformer = nn.ModuleDict({**tables, "h": layers, "ln_f": nn.LayerNorm(d, bias=bias)})
        self.lm_head = nn.Linear(d, 11, bias=False)

    def forward(self, tokens):
        x = self.transformer["wte"](tokens) + self.transformer["wpe"].weight[: tokens.shape[1]]
        for layer in self.transformer["h"]:
            x = layer(x)
        return self.lm_head(self.transformer["ln_f"](x))


@pytest.mark.parametrize(("bias", "tied"), [(True, False), (False, True)])
def test_weights_move_both_ways(bias, tied):
    torch.manual_seed(0)
    theirs = Small(bias=bias)
    if tied:
        theirs.lm_head.weight = theirs.transformer["wte"].weight
    config = gpt2_config(vocab=11, d=12, depth=2, heads=3, context=9, bias=bias)
    ours = Decoder(replace(config, tied=tied))
    tokens = torch.arange(18).reshape(2, 9) * 7 % 11
    MINGPT.load(ours, theirs.state_dict())
    torch.testing.assert_close(ours(tokens), theirs(tokens), rtol=1e-5, atol=1e-5)

    other = Small(bias=bias)
    absent, unknown = other.load_state_dict(MINGPT.save(ours), strict=False)
    assert (absent, unknown) == ([f"transformer.h.{i}.attn.bias" for i in range(2)], [])
    torch.testing.assert_close(other(tokens), theirs(tokens), rtol=0, atol=0)
