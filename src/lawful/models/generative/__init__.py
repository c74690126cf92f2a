"""Generative models: from PCA to diffusion, under one contract."""

from lawful.models.generative.autoencoder import Autoencoder, Decoded
from lawful.models.generative.autoencoders import (
    CNNAutoencoderConfig,
    MLPAutoencoderConfig,
    cnn_autoencoder,
    cnn_decoder,
    cnn_encoder,
    mlp_autoencoder,
)
from lawful.models.generative.bases import LOGISTIC, NORMAL, UNIFORM, Base
from lawful.models.generative.chart import Chart
from lawful.models.generative.codes import CategoricalCodes, Codes, GaussianCodes
from lawful.models.generative.continuous_flow import ContinuousFlow, Velocity
from lawful.models.generative.contract import Bounds, Generates, Scores, unconditional
from lawful.models.generative.corruption import GaussianCorruption, MaskingCorruption
from lawful.models.generative.denoising_network import DenoisingNetwork
from lawful.models.generative.drawing import Drawing
from lawful.models.generative.flow import Flow
from lawful.models.generative.flows import autoregressive_flow, coupling_flow, level_flow, nice, spline_flow
from lawful.models.generative.gan import GAN, CNNGANConfig, MLPGANConfig, cnn_gan, mlp_gan
from lawful.models.generative.labelled import LabelPlanes
from lawful.models.generative.level_likelihood import LevelLikelihood
from lawful.models.generative.likelihoods import (
    BernoulliLikelihood,
    DecoderLikelihood,
    GaussianLikelihood,
    VaryingGaussianLikelihood,
)
from lawful.models.generative.linear_autoencoder import linear_autoencoder
from lawful.models.generative.networks import (
    PatchTransformer,
    PatchTransformerConfig,
    TimeMLP,
    TimeMLPConfig,
    UNet,
    UNetConfig,
)
from lawful.models.generative.noisy_classifier import NoisyClassifier
from lawful.models.generative.pca import PCA
from lawful.models.generative.score_model import ScoreModel
from lawful.models.generative.vae import VAE, Activity
from lawful.models.generative.vaes import CNNVAEConfig, MLPVAEConfig, cnn_vae, linear_vae, mlp_vae

__all__ = [
    "GAN",
    "LOGISTIC",
    "NORMAL",
    "PCA",
    "UNIFORM",
    "VAE",
    "Activity",
    "Autoencoder",
    "Base",
    "BernoulliLikelihood",
    "Bounds",
    "CNNAutoencoderConfig",
    "CNNGANConfig",
    "CNNVAEConfig",
    "CategoricalCodes",
    "Chart",
    "Codes",
    "ContinuousFlow",
    "Decoded",
    "DecoderLikelihood",
    "DenoisingNetwork",
    "Drawing",
    "Flow",
    "GaussianCodes",
    "GaussianCorruption",
    "GaussianLikelihood",
    "Generates",
    "LabelPlanes",
    "LevelLikelihood",
    "MLPAutoencoderConfig",
    "MLPGANConfig",
    "MLPVAEConfig",
    "MaskingCorruption",
    "NoisyClassifier",
    "PatchTransformer",
    "PatchTransformerConfig",
    "ScoreModel",
    "Scores",
    "TimeMLP",
    "TimeMLPConfig",
    "UNet",
    "UNetConfig",
    "VaryingGaussianLikelihood",
    "Velocity",
    "autoregressive_flow",
    "cnn_autoencoder",
    "cnn_decoder",
    "cnn_encoder",
    "cnn_gan",
    "cnn_vae",
    "coupling_flow",
    "level_flow",
    "linear_autoencoder",
    "linear_vae",
    "mlp_autoencoder",
    "mlp_gan",
    "mlp_vae",
    "nice",
    "spline_flow",
    "unconditional",
]
