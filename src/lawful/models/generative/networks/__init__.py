"""Networks that are told of a noise level, and of a label."""

from lawful.models.generative.networks.network import Conditioned
from lawful.models.generative.networks.patch_transformer import PatchTransformer, PatchTransformerConfig
from lawful.models.generative.networks.time_mlp import TimeMLP, TimeMLPConfig
from lawful.models.generative.networks.unet import UNet, UNetConfig

__all__ = [
    "Conditioned",
    "PatchTransformer",
    "PatchTransformerConfig",
    "TimeMLP",
    "TimeMLPConfig",
    "UNet",
    "UNetConfig",
]
