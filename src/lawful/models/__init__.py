"""Models: an architecture a file, blocks put together under one small dataclass."""

from lawful.models.generative import (
    PCA,
    Autoencoder,
    Chart,
    CNNAutoencoderConfig,
    MLPAutoencoderConfig,
    cnn_autoencoder,
    mlp_autoencoder,
)
from lawful.models.k_nearest import KNearest, KNearestClassifier, KNearestConfig
from lawful.models.laid_out import LaidOut
from lawful.models.linear_regression import LinearRegression, LinearRegressionConfig
from lawful.models.logistic_regression import LogisticRegression, LogisticRegressionConfig
from lawful.models.mlp import MLP, MLPConfig
from lawful.models.polynomial_regression import Monomials, PolynomialRegression, PolynomialRegressionConfig
from lawful.models.residual_cnn import ResidualCNN, ResidualCNNConfig
from lawful.models.softmax_regression import SoftmaxRegression, SoftmaxRegressionConfig
from lawful.models.standardized import Standardized
from lawful.models.thresholded_regression import ThresholdedRegression, ThresholdedRegressionConfig
from lawful.models.transformer import (
    Decoder,
    DecoderConfig,
    Encoder,
    EncoderConfig,
    EncoderDecoder,
    EncoderDecoderConfig,
    Extras,
    gpt2_config,
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
    "Extras",
    "KNearest",
    "KNearestClassifier",
    "KNearestConfig",
    "LaidOut",
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
    "Standardized",
    "ThresholdedRegression",
    "ThresholdedRegressionConfig",
    "cnn_autoencoder",
    "gpt2_config",
    "mlp_autoencoder",
]
