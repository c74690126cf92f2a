"""Generative models: from PCA to diffusion, under one contract."""

from lawful.models.generative.autoencoder import Autoencoder, Decoded
from lawful.models.generative.autoencoders import (
    CNNAutoencoderConfig,
    MLPAutoencoderConfig,
    cnn_autoencoder,
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
from lawful.models.generative.flows import coupling_flow, level_flow, nice, spline_flow
from lawful.models.generative.gan import GAN, CNNGANConfig, MLPGANConfig, cnn_gan, mlp_gan
from lawful.models.generative.likelihoods import (
    BernoulliLikelihood,
    GaussianLikelihood,
    Likelihood,
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
from lawful.models.generative.vaes import MLPVAEConfig, linear_vae, mlp_vae

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
    "CategoricalCodes",
    "Chart",
    "Codes",
    "ContinuousFlow",
    "Decoded",
    "DenoisingNetwork",
    "Drawing",
    "Flow",
    "GaussianCodes",
    "GaussianCorruption",
    "GaussianLikelihood",
    "Generates",
    "Likelihood",
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
    "cnn_autoencoder",
    "cnn_gan",
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
