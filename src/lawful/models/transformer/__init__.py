"""Transformers: decoder, encoder and both, put together of any attention, feed-forward, norms and positions."""

from lawful.models.transformer.cache import Cache
from lawful.models.transformer.decoder import Decoder, DecoderConfig
from lawful.models.transformer.encoder import Encoder, EncoderConfig
from lawful.models.transformer.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from lawful.models.transformer.given import Given, GivenCache
from lawful.models.transformer.layouts import (
    GPT2,
    MINGPT,
    TORCH_DECODER,
    TORCH_ENCODER,
    TORCH_TRANSFORMER,
    Layout,
    read_gpt2,
    write_gpt2,
)
from lawful.models.transformer.parts import rotary_attention, small_normal, squared_relu, zero_outputs
from lawful.models.transformer.standard import gpt2_config
from lawful.models.transformer.stream import Extras

__all__ = [
    "GPT2",
    "MINGPT",
    "TORCH_DECODER",
    "TORCH_ENCODER",
    "TORCH_TRANSFORMER",
    "Cache",
    "Decoder",
    "DecoderConfig",
    "Encoder",
    "EncoderConfig",
    "EncoderDecoder",
    "EncoderDecoderConfig",
    "Extras",
    "Given",
    "GivenCache",
    "Layout",
    "gpt2_config",
    "read_gpt2",
    "rotary_attention",
    "small_normal",
    "squared_relu",
    "write_gpt2",
    "zero_outputs",
]
