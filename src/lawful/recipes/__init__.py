"""Recipes: complete trainings as dataclasses, from the data to the report.

Names are imported on first use, so that one recipe does not import the others.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lawful.recipes.attack import (
        AttackRecipe,
    )
    from lawful.recipes.autoencode import (
        AutoencodeRecipe,
        CNNAutoencoderSpec,
        GaussianCorruptionSpec,
        MaskingCorruptionSpec,
        MLPAutoencoderSpec,
        NoCorruptionSpec,
    )
    from lawful.recipes.classify import (
        ClassifyRecipe,
    )
    from lawful.recipes.classify_text import (
        ClassifyTextRecipe,
    )
    from lawful.recipes.diffusion import (
        AutoNetworkSpec,
        DiffusionRecipe,
        DiscreteTimeSpec,
        LogNormalLevelsSpec,
        LogUniformLevelsSpec,
        PatchTransformerSpec,
        TimeMLPSpec,
        UNetSpec,
        UniformTimeSpec,
    )
    from lawful.recipes.double_descent import (
        DoubleDescentRecipe,
    )
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
    from lawful.recipes.forecast import (
        ForecastRecipe,
    )
    from lawful.recipes.gan import (
        CNNGANSpec,
        GANRecipe,
        MLPGANSpec,
    )
    from lawful.recipes.generate import (
        generate_from_run,
        inpaint,
        load_tokenizer,
        sample_from_run,
        score,
    )
    from lawful.recipes.modular import (
        ModularRecipe,
    )
    from lawful.recipes.optimization import (
        OptimizationConfig,
        TransformerOptimizationConfig,
    )
    from lawful.recipes.pca import (
        ExactPCASpec,
        IncrementalPCASpec,
        PCARecipe,
        RandomizedPCASpec,
    )
    from lawful.recipes.predict import (
        Predictions,
        predictions,
    )
    from lawful.recipes.registry import (
        RECIPES,
        load,
        recipe_of,
    )
    from lawful.recipes.regress import (
        RegressRecipe,
    )
    from lawful.recipes.supervised import (
        CNNSpec,
        KNNSpec,
        LinearSpec,
        LogisticSpec,
        MLPRegressorSpec,
        MLPSpec,
        PolynomialSpec,
        ThresholdedSpec,
    )
    from lawful.recipes.text import (
        AutoTokenizerSpec,
        BPETokenizerSpec,
        ByteTokenizerSpec,
        CharTokenizerSpec,
        TextRecipe,
    )
    from lawful.recipes.transformer import (
        TransformerConfig,
    )
    from lawful.recipes.translate import (
        TranslateRecipe,
    )
    from lawful.recipes.vae import (
        CategoricalLatentSpec,
        CNNVAESpec,
        GaussianLatentSpec,
        MLPVAESpec,
        VAERecipe,
    )

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
    "classify": ("ClassifyRecipe",),
    "classify_text": ("ClassifyTextRecipe",),
    "diffusion": (
        "AutoNetworkSpec",
        "DiffusionRecipe",
        "DiscreteTimeSpec",
        "LogNormalLevelsSpec",
        "LogUniformLevelsSpec",
        "PatchTransformerSpec",
        "TimeMLPSpec",
        "UNetSpec",
        "UniformTimeSpec",
    ),
    "double_descent": ("DoubleDescentRecipe",),
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
    "gan": ("CNNGANSpec", "GANRecipe", "MLPGANSpec"),
    "generate": ("generate_from_run", "inpaint", "load_tokenizer", "sample_from_run", "score"),
    "modular": ("ModularRecipe",),
    "optimization": ("OptimizationConfig", "TransformerOptimizationConfig"),
    "pca": ("ExactPCASpec", "IncrementalPCASpec", "PCARecipe", "RandomizedPCASpec"),
    "predict": ("Predictions", "predictions"),
    "registry": ("RECIPES", "load", "recipe_of"),
    "regress": ("RegressRecipe",),
    "supervised": (
        "CNNSpec",
        "KNNSpec",
        "LinearSpec",
        "LogisticSpec",
        "MLPRegressorSpec",
        "MLPSpec",
        "PolynomialSpec",
        "ThresholdedSpec",
    ),
    "text": ("AutoTokenizerSpec", "BPETokenizerSpec", "ByteTokenizerSpec", "CharTokenizerSpec", "TextRecipe"),
    "transformer": ("TransformerConfig",),
    "translate": ("TranslateRecipe",),
    "vae": ("CNNVAESpec", "CategoricalLatentSpec", "GaussianLatentSpec", "MLPVAESpec", "VAERecipe"),
}
_MODULES = {name: module for module, names in _LOCATIONS.items() for name in names}

__all__ = [
    "RECIPES",
    "AttackRecipe",
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
    "DiffusionRecipe",
    "DiscreteTimeSpec",
    "DiscretizedFlowSpec",
    "DoubleDescentRecipe",
    "ExactPCASpec",
    "FlowRecipe",
    "ForecastRecipe",
    "GANRecipe",
    "GaussianCorruptionSpec",
    "GaussianLatentSpec",
    "IncrementalPCASpec",
    "KNNSpec",
    "LinearSpec",
    "LogNormalLevelsSpec",
    "LogUniformLevelsSpec",
    "LogisticSpec",
    "MLPAutoencoderSpec",
    "MLPGANSpec",
    "MLPRegressorSpec",
    "MLPSpec",
    "MLPVAESpec",
    "MaskingCorruptionSpec",
    "ModularRecipe",
    "NICESpec",
    "NoCorruptionSpec",
    "OptimizationConfig",
    "PCARecipe",
    "PatchTransformerSpec",
    "PolynomialSpec",
    "Predictions",
    "RandomizedPCASpec",
    "RealNVPSpec",
    "RegressRecipe",
    "SplineFlowSpec",
    "TextRecipe",
    "ThresholdedSpec",
    "TimeMLPSpec",
    "TransformerConfig",
    "TransformerOptimizationConfig",
    "TranslateRecipe",
    "UNetSpec",
    "UniformTimeSpec",
    "VAERecipe",
    "generate_from_run",
    "inpaint",
    "load",
    "load_tokenizer",
    "predictions",
    "recipe_of",
    "sample_from_run",
    "score",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'lawful.recipes' has no attribute {name!r}")
    return getattr(importlib.import_module(f"lawful.recipes.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
