"""Models: an architecture a file, blocks put together under one small dataclass."""

from lawful.models.cnn import ResidualCNN, ResidualCNNConfig
from lawful.models.generative.autoencoder import (
    Autoencoder,
    CNNAutoencoderConfig,
    MLPAutoencoderConfig,
    cnn_autoencoder,
    mlp_autoencoder,
)
from lawful.models.generative.chart import Chart
from lawful.models.generative.pca import PCA
from lawful.models.gpt2_weights import gpt2_config
from lawful.models.k_nearest import KNearest, KNearestClassifier, KNearestConfig
from lawful.models.linear import (
    LinearRegression,
    LinearRegressionConfig,
    LogisticRegression,
    LogisticRegressionConfig,
    Monomials,
    PolynomialRegression,
    PolynomialRegressionConfig,
    SoftmaxRegression,
    SoftmaxRegressionConfig,
    ThresholdedRegression,
    ThresholdedRegressionConfig,
)
from lawful.models.mlp import MLP, MLPConfig, SpatialMLP
from lawful.models.standardized import Standardized
from lawful.models.transformer import (
    Decoder,
    DecoderConfig,
    Encoder,
    EncoderConfig,
    EncoderDecoder,
    EncoderDecoderConfig,
    TransformerExtras,
)

__all__ = [
    "MLP",
    "PCA",
    "Autoencoder",
    "CNNAutoencoderConfig",
    "Chart",
    "Decoder",
    "DecoderConfig",
    "Encoder",
    "EncoderConfig",
    "EncoderDecoder",
    "EncoderDecoderConfig",
    "KNearest",
    "KNearestClassifier",
    "KNearestConfig",
    "LinearRegression",
    "LinearRegressionConfig",
    "LogisticRegression",
    "LogisticRegressionConfig",
    "MLPAutoencoderConfig",
    "MLPConfig",
    "Monomials",
    "PolynomialRegression",
    "PolynomialRegressionConfig",
    "ResidualCNN",
    "ResidualCNNConfig",
    "SoftmaxRegression",
    "SoftmaxRegressionConfig",
    "SpatialMLP",
    "Standardized",
    "ThresholdedRegression",
    "ThresholdedRegressionConfig",
    "TransformerExtras",
    "cnn_autoencoder",
    "gpt2_config",
    "mlp_autoencoder",
]
