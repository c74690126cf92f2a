"""Recipes: complete trainings as dataclasses, from the data to the report.

Names are imported on first use, so that one recipe does not import the others.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lawful.recipes.attack import AttackRecipe
    from lawful.recipes.autoencode import (
        AutoencodeRecipe,
        CNNAutoencoderSpec,
        GaussianCorruptionSpec,
        MaskingCorruptionSpec,
        MLPAutoencoderSpec,
        NoCorruptionSpec,
    )
    from lawful.recipes.classify import AdversarialConfig, AugmentationConfig, ClassifyRecipe
    from lawful.recipes.classify_text import ClassifyTextRecipe, LabeledTextData, TextSpec
    from lawful.recipes.data import (
        DataConfig,
        DataSpec,
        DataSplits,
        ExampleSpec,
        GenerativeDataConfig,
        GenerativeSplits,
        NewData,
        SupervisedDataConfig,
    )
    from lawful.recipes.diffusion import (
        AutoNetworkSpec,
        DiffusionConfig,
        DiffusionRecipe,
        DiscreteTimeSpec,
        LogNormalLevelsSpec,
        LogUniformLevelsSpec,
        PatchTransformerSpec,
        TimeMLPSpec,
        UNetSpec,
        UniformTimeSpec,
    )
    from lawful.recipes.double_descent import DoubleDescentRecipe, NoisySplits
    from lawful.recipes.flow import (
        AutoFlowSpec,
        AutoregressiveFlowSpec,
        ContinuousFlowSpec,
        DiscretizedFlowSpec,
        FlowRecipe,
        NICESpec,
        RealNVPSpec,
        SplineFlowSpec,
    )
    from lawful.recipes.forecast import ForecastRecipe
    from lawful.recipes.gan import CNNGANSpec, GANRecipe, MLPGANSpec
    from lawful.recipes.generate import (
        LoadedModel,
        ScoreTable,
        SupportsInpaint,
        draw_samples,
        generate_from_run,
        inpaint,
        inpaint_with_model,
        load_generative_model,
        load_tokenizer,
        sample_from_run,
        samples_csv,
        save_image,
        save_samples,
        score,
    )
    from lawful.recipes.generative import GenerativeRecipe
    from lawful.recipes.modular import FormulaTask, ModularData, ModularRecipe
    from lawful.recipes.optimization import (
        EvaluationConfig,
        LearningRates,
        OptimizationConfig,
        RegularizationConfig,
        TransformerOptimizationConfig,
    )
    from lawful.recipes.pca import ExactPCASpec, IncrementalPCASpec, PCARecipe, RandomizedPCASpec
    from lawful.recipes.predict import Predictions, predictions
    from lawful.recipes.regress import RegressRecipe
    from lawful.recipes.supervised import (
        CNNSpec,
        KNNSpec,
        LinearSpec,
        LogisticSpec,
        MLPRegressorSpec,
        MLPSpec,
        ModelSpec,
        PolynomialSpec,
        RowPredictor,
        SupervisedEnsemble,
        SupervisedModel,
        SupervisedRecipe,
        ThresholdedSpec,
    )
    from lawful.recipes.text import (
        AutoTokenizerSpec,
        BPETokenizerSpec,
        ByteTokenizerSpec,
        CharTokenizerSpec,
        GenerationRequest,
        TextData,
        TextGenerator,
        TextRecipe,
        language_model_claims,
        ngram_baseline,
    )
    from lawful.recipes.transformer import TransformerConfig, as_decoder
    from lawful.recipes.translate import TranslateRecipe, TranslationData, Translator
    from lawful.recipes.vae import CategoricalLatentSpec, CNNVAESpec, GaussianLatentSpec, MLPVAESpec, VAERecipe
    from lawful.training.registry import RECIPES, RecipeRegistry, load, recipe_of

_LOCATIONS = {
    "attack": ("AttackRecipe",),
    "autoencode": (
        "AutoencodeRecipe",
        "CNNAutoencoderSpec",
        "GaussianCorruptionSpec",
        "MLPAutoencoderSpec",
        "MaskingCorruptionSpec",
        "NoCorruptionSpec",
    ),
    "classify": (
        "AdversarialConfig",
        "AugmentationConfig",
        "ClassifyRecipe",
    ),
    "classify_text": (
        "ClassifyTextRecipe",
        "LabeledTextData",
        "TextSpec",
    ),
    "data": (
        "DataConfig",
        "DataSpec",
        "DataSplits",
        "ExampleSpec",
        "GenerativeDataConfig",
        "GenerativeSplits",
        "NewData",
        "SupervisedDataConfig",
    ),
    "diffusion": (
        "AutoNetworkSpec",
        "DiffusionConfig",
        "DiffusionRecipe",
        "DiscreteTimeSpec",
        "LogNormalLevelsSpec",
        "LogUniformLevelsSpec",
        "PatchTransformerSpec",
        "TimeMLPSpec",
        "UNetSpec",
        "UniformTimeSpec",
    ),
    "double_descent": (
        "DoubleDescentRecipe",
        "NoisySplits",
    ),
    "flow": (
        "AutoFlowSpec",
        "AutoregressiveFlowSpec",
        "ContinuousFlowSpec",
        "DiscretizedFlowSpec",
        "FlowRecipe",
        "NICESpec",
        "RealNVPSpec",
        "SplineFlowSpec",
    ),
    "forecast": ("ForecastRecipe",),
    "gan": (
        "CNNGANSpec",
        "GANRecipe",
        "MLPGANSpec",
    ),
    "generate": (
        "LoadedModel",
        "ScoreTable",
        "SupportsInpaint",
        "draw_samples",
        "generate_from_run",
        "inpaint",
        "inpaint_with_model",
        "load_generative_model",
        "load_tokenizer",
        "sample_from_run",
        "samples_csv",
        "save_image",
        "save_samples",
        "score",
    ),
    "generative": ("GenerativeRecipe",),
    "modular": (
        "FormulaTask",
        "ModularData",
        "ModularRecipe",
    ),
    "optimization": (
        "EvaluationConfig",
        "LearningRates",
        "OptimizationConfig",
        "RegularizationConfig",
        "TransformerOptimizationConfig",
    ),
    "pca": (
        "ExactPCASpec",
        "IncrementalPCASpec",
        "PCARecipe",
        "RandomizedPCASpec",
    ),
    "predict": (
        "Predictions",
        "predictions",
    ),
    "regress": ("RegressRecipe",),
    "supervised": (
        "CNNSpec",
        "KNNSpec",
        "LinearSpec",
        "LogisticSpec",
        "MLPRegressorSpec",
        "MLPSpec",
        "ModelSpec",
        "PolynomialSpec",
        "RowPredictor",
        "SupervisedEnsemble",
        "SupervisedModel",
        "SupervisedRecipe",
        "ThresholdedSpec",
    ),
    "text": (
        "AutoTokenizerSpec",
        "BPETokenizerSpec",
        "ByteTokenizerSpec",
        "CharTokenizerSpec",
        "GenerationRequest",
        "TextData",
        "TextGenerator",
        "TextRecipe",
        "language_model_claims",
        "ngram_baseline",
    ),
    "transformer": (
        "TransformerConfig",
        "as_decoder",
    ),
    "translate": (
        "TranslateRecipe",
        "TranslationData",
        "Translator",
    ),
    "vae": (
        "CNNVAESpec",
        "CategoricalLatentSpec",
        "GaussianLatentSpec",
        "MLPVAESpec",
        "VAERecipe",
    ),
}
_MODULES = {name: f"lawful.recipes.{module}" for module, names in _LOCATIONS.items() for name in names} | dict.fromkeys(
    ("RECIPES", "RecipeRegistry", "load", "recipe_of"), "lawful.training.registry"
)

__all__ = [
    "RECIPES",
    "AdversarialConfig",
    "AttackRecipe",
    "AugmentationConfig",
    "AutoFlowSpec",
    "AutoNetworkSpec",
    "AutoTokenizerSpec",
    "AutoencodeRecipe",
    "AutoregressiveFlowSpec",
    "BPETokenizerSpec",
    "ByteTokenizerSpec",
    "CNNAutoencoderSpec",
    "CNNGANSpec",
    "CNNSpec",
    "CNNVAESpec",
    "CategoricalLatentSpec",
    "CharTokenizerSpec",
    "ClassifyRecipe",
    "ClassifyTextRecipe",
    "ContinuousFlowSpec",
    "DataConfig",
    "DataSpec",
    "DataSplits",
    "DiffusionConfig",
    "DiffusionRecipe",
    "DiscreteTimeSpec",
    "DiscretizedFlowSpec",
    "DoubleDescentRecipe",
    "EvaluationConfig",
    "ExactPCASpec",
    "ExampleSpec",
    "FlowRecipe",
    "ForecastRecipe",
    "FormulaTask",
    "GANRecipe",
    "GaussianCorruptionSpec",
    "GaussianLatentSpec",
    "GenerationRequest",
    "GenerativeDataConfig",
    "GenerativeRecipe",
    "GenerativeSplits",
    "IncrementalPCASpec",
    "KNNSpec",
    "LabeledTextData",
    "LearningRates",
    "LinearSpec",
    "LoadedModel",
    "LogNormalLevelsSpec",
    "LogUniformLevelsSpec",
    "LogisticSpec",
    "MLPAutoencoderSpec",
    "MLPGANSpec",
    "MLPRegressorSpec",
    "MLPSpec",
    "MLPVAESpec",
    "MaskingCorruptionSpec",
    "ModelSpec",
    "ModularData",
    "ModularRecipe",
    "NICESpec",
    "NewData",
    "NoCorruptionSpec",
    "NoisySplits",
    "OptimizationConfig",
    "PCARecipe",
    "PatchTransformerSpec",
    "PolynomialSpec",
    "Predictions",
    "RandomizedPCASpec",
    "RealNVPSpec",
    "RecipeRegistry",
    "RegressRecipe",
    "RegularizationConfig",
    "RowPredictor",
    "ScoreTable",
    "SplineFlowSpec",
    "SupervisedDataConfig",
    "SupervisedEnsemble",
    "SupervisedModel",
    "SupervisedRecipe",
    "SupportsInpaint",
    "TextData",
    "TextGenerator",
    "TextRecipe",
    "TextSpec",
    "ThresholdedSpec",
    "TimeMLPSpec",
    "TransformerConfig",
    "TransformerOptimizationConfig",
    "TranslateRecipe",
    "TranslationData",
    "Translator",
    "UNetSpec",
    "UniformTimeSpec",
    "VAERecipe",
    "as_decoder",
    "draw_samples",
    "generate_from_run",
    "inpaint",
    "inpaint_with_model",
    "language_model_claims",
    "load",
    "load_generative_model",
    "load_tokenizer",
    "ngram_baseline",
    "predictions",
    "recipe_of",
    "sample_from_run",
    "samples_csv",
    "save_image",
    "save_samples",
    "score",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'lawful.recipes' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
