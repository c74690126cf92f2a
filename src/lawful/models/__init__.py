"""Models: an architecture a file, blocks put together under one small dataclass."""

from lawful.models.logistic_regression import LogisticRegression, LogisticRegressionConfig
from lawful.models.mlp import MLP, MLPConfig
from lawful.models.residual_cnn import ResidualCNN, ResidualCNNConfig

__all__ = [
    "MLP",
    "LogisticRegression",
    "LogisticRegressionConfig",
    "MLPConfig",
    "ResidualCNN",
    "ResidualCNNConfig",
]
