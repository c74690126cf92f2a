"""Every option of every recipe changes the weights, the results or the files of a run, or is refused.

Each option is changed to another valid value, in a run of three steps on tiny data. An option that declares what it
needs is changed where its needs are met; elsewhere it must be refused.
"""

import dataclasses
import hashlib
import inspect
import json
import random
import types
import typing
from contextlib import contextmanager
from datetime import date, timedelta
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image

import lawful.probe
from lawful._files import write_file
from lawful._json import Excludes, Range, Requires, field_types, union_members
from lawful.blocks.modes import eval_mode
from lawful.recipes import RECIPES
from lawful.training import Run, TrainerConfig, TrainingFailed, seed_everything, train
from lawful.training.distributed import _SingleProcess
from lawful.training.loop import _Progress, _StopRequest, _TrainingLoop
from lawful.training.precision import _Precision
from lawful.training.trainer import _OPTIONS_OF_STEPS, EMA

STEPS = 3
TRAINER = {field.name for field in dataclasses.fields(TrainerConfig)} - {"seed"}
"""Options of the trainer: their effect is on the files of a run."""

# ---------------------------------------------------------------- tiny data and tiny recipes


class Base(NamedTuple):
    """A recipe with options under which it takes milliseconds."""

    recipe: str
    options: dict[str, Any]
    only: frozenset[str] | None = None
    """Options to change; None for all."""


SPLIT = {"test_fraction": 0.25, "validation_fraction": 0.25}
TABLE = {"data": "numbers.csv", "drop_missing": True, **SPLIT}
LABELED = {**TABLE, "label_column": "kind"}
QUICK = {"steps": STEPS, "batch_size": 4, "threads": 1, "law_cases": 0}
TRANSFORMER = {"dim": 8, "ngram_dim": 4, "num_layers": 2, "num_heads": 2, "ngram_rows": 16, "ngrams": (2, 3), **QUICK}
SAMPLING = {"sampling_steps": 2, "num_scored": 2}
FORECAST = {
    "target": "sales",
    "horizon": 3,
    "history": 12,
    "digits": 2,
    "num_samples": 1,
    "test_horizons": 2,
    "calibration_horizons": 2,
}
MODEL = {"hidden_dims": (4,)}
GRAPH = {"dim": 4, "num_layers": 1, "validation_fraction": 0.25}
BASES = {
    "modular": Base("modular", {"num_examples": 6, **MODEL, "swap_every": 1, **QUICK}),
    "modular without swaps": Base(  # swaps need complete weights
        "modular", {"num_examples": 6, **MODEL, "swap_every": 0, **QUICK}, only=frozenset({"parallel"})
    ),
    "classify": Base("classify", {"data": "table.csv", "target": "kind", "model": "mlp", **MODEL, **SPLIT, **QUICK}),
    "classify images": Base(
        "classify",
        {"data": "images", "model": "cnn", "channels": 2, "num_layers": 1, **SPLIT, **QUICK},
        only=frozenset(
            {
                "resize",
                "data",
                "random_shift",
                "random_flip",
                "cutout",
                "noise_std",
                "channels",
                "num_layers",
                "kernel_size",
                "dropout",
            }
        ),
    ),
    "regress": Base("regress", {"data": "table.csv", "target": "size", "model": "mlp", **MODEL, **SPLIT, **QUICK}),
    "text": Base("text", {"data": "words.txt", "context_length": 8, **TRANSFORMER}),
    "translate": Base("translate", {"data": "pairs.tsv", **TRANSFORMER}),
    "classify-text": Base(
        "classify-text", {"data": "texts.csv", "context_length": 12, "layer_pattern": "(sf)*", **TRANSFORMER}
    ),
    "classify-sequence": Base(
        "classify-sequence",
        {
            "data": "waves.csv",
            "drop_missing": True,
            "model": "state-space",
            "dim": 4,
            "num_layers": 1,
            "state_dim": 4,
            **SPLIT,
            **QUICK,
        },
    ),
    "forecast": Base("forecast", {"data": "series.csv", **FORECAST, **TRANSFORMER}),
    "forecast state space": Base(
        "forecast",
        {"data": "series.csv", "layer_pattern": "(mf)*", "state_dim": 4, **FORECAST, **TRANSFORMER},
        only=frozenset({"layer_pattern", "state_space", "state_dim"}),
    ),
    "memory": Base("memory", {"data": "series.csv", "target": "sales", "length": 12, "sizes": (2, 4), **QUICK}),
    "memory band-limited": Base(
        "memory",
        {"length": 12, "sizes": (2, 4), "max_frequency": 2.0, **QUICK},
        only=frozenset({"data", "max_frequency"}),
    ),
    "nbody": Base(
        "nbody",
        {
            "data": "motion.npz",
            "input_frame": 0,
            "horizon": 1,
            "validation_fraction": 0.5,
            "dim": 4,
            "num_layers": 1,
            **QUICK,
        },
    ),
    "node-classify": Base(
        "node-classify", {"data": "edges.csv", "nodes": "nodes.csv", **GRAPH, "test_fraction": 0.3, **QUICK}
    ),
    "node-classify karate": Base("node-classify", {"data": "karate", **GRAPH, **QUICK}, only=frozenset({"data"})),
    "graph-classify": Base(
        "graph-classify",
        {"data": "graphs.csv", "labels": "labels.csv", "nodes": "atoms.csv", **GRAPH, "walk_length": 2, **QUICK},
    ),
    "molecules": Base(
        "molecules", {"data": "clusters.xyz", "dim": 4, "num_layers": 1, "num_radial": 3, **SPLIT, **QUICK}
    ),
    "symmetry": Base(
        "symmetry",
        {"data": "translated-images", "num_pairs": 120, "image_size": 5, "amount": 0.4, "threads": 1, "law_cases": 0},
    ),
    "symmetry of pairs": Base(
        "symmetry", {"data": "pairs.npz", "threads": 1, "law_cases": 0}, only=frozenset({"data"})
    ),
    "pca": Base("pca", {**TABLE, "ignore_columns": (), "threads": 1, "law_cases": 0}),
    "pca levels": Base("pca", {"data": "levels.csv", "threads": 1, "law_cases": 0}, only=frozenset({"data_levels"})),
    "autoencode": Base("autoencode", {**TABLE, "latent_dim": 2, **MODEL, **QUICK}),
    "autoencode images": Base(
        "autoencode",
        {"data": "images", "model": "cnn", "channels": 2, "num_downsamples": 1, **SPLIT, **QUICK},
        only=frozenset({"resize", "data", "channels", "num_downsamples"}),
    ),
    "vae": Base("vae", {**LABELED, "latent_dim": 2, **MODEL, **QUICK}),
    "vae images": Base(
        "vae",
        {"data": "images", "model": "cnn", "channels": 2, "num_downsamples": 1, **SPLIT, **QUICK},
        only=frozenset({"resize", "data", "channels", "num_downsamples", "conditional"}),
    ),
    "flow": Base("flow", {**LABELED, "model": "spline", "num_bins": 3, **MODEL, **QUICK}),
    "flow images": Base(
        "flow",
        {"data": "images", "model": "discretized", **MODEL, **SPLIT, **QUICK},
        only=frozenset({"resize", "data", "hidden_dims", "dropout"}),
    ),
    "flow ring": Base(
        "flow",
        {"data": "ring", "num_samples": 40, "model": "spline", **MODEL, **SPLIT, **QUICK},
        only=frozenset({"data", "num_samples"}),
    ),
    "diffusion": Base("diffusion", {**LABELED, "model": "mlp", "dim": 4, "num_layers": 1, **SAMPLING, **QUICK}),
    "diffusion images": Base(
        "diffusion",
        {
            "data": "images",
            "model": "transformer",
            "conditional": True,
            "dim": 4,
            "num_layers": 1,
            **SPLIT,
            **SAMPLING,
            **QUICK,
        },
        only=frozenset({"resize", "data", "patch_size", "guidance_scale", "label_dropout"}),
    ),
    "gan": Base("gan", {**LABELED, "latent_dim": 2, **MODEL, **QUICK}),
    "gan images": Base(
        "gan",
        {"data": "images", "model": "cnn", "channels": 2, **SPLIT, **QUICK},
        only=frozenset({"resize", "data", "channels", "conditional"}),
    ),
    "attack": Base(  # perturbations that fool no model: an attack stops as soon as it succeeds
        "attack",
        {
            "data": "images",
            "model": "cnn",
            "channels": 2,
            "num_layers": 1,
            "attack_steps": 2,
            "eps": (1e-3,),
            **SPLIT,
            **QUICK,
        },
    ),
    "double-descent": Base("double-descent", {"num_examples": 40, "num_sizes": 2, "largest": 16, **QUICK}),
}
"""Options of each recipe; some have a second base for options that need other data."""


@pytest.fixture(scope="module", autouse=True)
def data(tmp_path_factory):
    """Changes to a folder with tiny tables, texts, pairs, a series and images."""
    folder = tmp_path_factory.mktemp("options")
    for name, seed in (("", 0), ("other_", 1)):
        first = date(2020 + seed, 1, 1)
        draw, pixels, kinds = random.Random(seed), np.random.default_rng(seed), ["cat", "dog"] * 20
        numbers = [f"{draw.gauss(0, 1):.3f},{draw.gauss(i % 2, 1) if i != 5 else ''}" for i in range(40)]
        rows = [
            f"{x},{i % 3},{draw.random():.9f}x,{kind}" for i, (x, kind) in enumerate(zip(numbers, kinds, strict=True))
        ]
        tables = {
            "numbers.csv": [
                "size,weight,height,id,kind",
                *(",".join((*r.split(",")[:2], f"{draw.gauss(0, 1):.3f}", *r.split(",")[3:])) for r in rows),
            ],
            "table.csv": ["size,weight,code,id,kind", *rows],
            "waves.csv": [
                "a,b,c,d,e,kind",
                *(",".join([*(f"{draw.gauss(i % 2, 1):.3f}" for _ in range(5)), kinds[i]]) for i in range(40)),
                ",1,2,3,4,cat",
            ],
            "levels.csv": ["a,b", *(f"{draw.randrange(7)},{draw.randrange(7)}" for _ in range(40)), "0,6", "6,0"],
            "words.txt": [
                " ".join(draw.sample(["the", "cat", "sat", "on", "a", "mat", "and", "dog"], 6)) for _ in range(20)
            ],
            "pairs.tsv": [f"{(n := draw.randrange(10**6)):06d}\t{str(n)[::-1]}" for _ in range(30)],
            "texts.csv": [
                "note,text,topic",
                *(f"{'xy'[i % 2]},The {kind} {i + seed},{kind}" for i, kind in enumerate(kinds)),
            ],
            "series.csv": [
                "day,billed,sales,visits",
                *(f"{first + timedelta(i)},{first + timedelta(7 * i)},{draw.random():.3f},{i % 7}" for i in range(120)),
            ],
        }
        links = [(i, j) for i in range(40) for j in range(i) if draw.random() < 0.1 + 0.2 * (kinds[i] == kinds[j])]
        tables |= {
            "edges.csv": ["source,target,weight", *(f"n{i},n{j},{draw.random() + 0.5:.3f}" for i, j in links)],
            "nodes.csv": [
                "id,other,weight,size,code,code_id,kind",
                *(
                    f"n{i},n{(i + 1) % 40},{draw.random():.3f},{draw.random():.3f},{i % 2},{i},{kinds[i] if i else ''}"
                    for i in range(40)
                ),
            ],
        }
        rings = [(g, i, (i + 1) % (5 + g % 3)) for g in range(30) for i in range(5 + g % 3 - (g + seed) % 2)]
        atoms = [(g, i) for g in range(30) for i in range(5 + g % 3)]
        clusters = [[("HC"[i % 2], [draw.gauss(0, 1) for _ in range(3)]) for i in range(2 + g % 3)] for g in range(24)]
        tables |= {
            "clusters.xyz": [
                line
                for cluster in clusters
                for line in (
                    str(len(cluster)),
                    f"energy={draw.gauss(len(cluster), 1):.4f} gap={draw.random():.4f}",
                    *(f"{element} {' '.join(f'{v:.4f}' for v in xyz)}" for element, xyz in cluster),
                )
            ],
            "graphs.csv": [
                "graph,source,target,weight",
                *(f"g{g},{i},{j},{draw.random() + 1:.3f}" for g, i, j in rings),
            ],
            "labels.csv": ["graph,code,kind", *(f"g{g},{g // 2 % 2},{'ab'[(g + seed) % 2]}" for g in range(30))],
            "atoms.csv": [
                "graph,node,weight,code_id",
                *(f"g{g},{i},{draw.random():.3f},{k}" for k, (g, i) in enumerate(atoms)),
            ],
        }
        for table, lines in tables.items():
            (folder / f"{name}{table}").write_text("\n".join(lines) + "\n")
        motion = pixels.normal(size=(2, 24, 6, 3, 2))
        np.savez(
            folder / f"{name}pairs.npz", x=motion[0, ..., 0, :].reshape(-1, 2), y=motion[1, ..., 0, :].reshape(-1, 2)
        )
        np.savez(folder / f"{name}motion.npz", positions=motion[0], velocities=motion[1])
        for i in range(24):
            path = folder / f"{name}images" / f"class{i % 2}" / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels.integers(0, 255, (6, 6), dtype=np.uint8)).save(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield folder


# ---------------------------------------------------------------- another value of an option

OTHER_VALUES: dict[str, Any] = {
    "target": {
        "regress": "weight",
        "classify-text": "note",
        "forecast": "visits",
        "memory": "visits",
        "molecules": "gap",
        "*": "code",
    },
    "text": "note",
    "num_components": 2,
    "num_examples": {"attack": 3, "double-descent": 60, "modular": 7},
    "label_dropout": 0.9,
    "dropout": 0.6,
    "standardize": False,
    "attack": "momentum",
    "attack_steps": 1,
    "adversarial_steps": 1,  # two and more steps end in the same corner of the cube if the model is linear
    "guidance_scale": 100.0,  # visible in samples of 8 bits after three steps
    "num_scored": 3,
    "swap_candidates": 1,
    "num_evals": 1,
    "vocab_size": 258,
    "grad_clip_norm": 1e-3,
    "dim": 12,
    "num_heads": {"node-classify": 2, "graph-classify": 2, "*": 4},
    "date_column": "billed",
    "ignore_columns": ("weight",),
    "keep_columns": {"node-classify": ("code_id",), "graph-classify": ("code_id",), "*": ("id",)},
    "categorical_columns": ("code",),
    "resize": (4, 4),
    "threshold": 0.99999,
    "value_range": (-0.1, 0.1),
    "data_levels": 7,
    "penalty_params": {"attack": "*head.weight", "classify-sequence": "*head.weight", "*": "*1.weight"},
    "max_norm_params": {"attack": "*head.weight", "classify-sequence": "*head.weight", "*": "*1.weight"},
    "layer_pattern": "(fs)*",
    "run": "nowhere",
    "betas": (0.5, 0.6),
    "ngrams": (2,),
    "hidden_dims": (3, 3),
    "eps": (0.3,),
    "history": 14,
    "season": 3,
    "device": "cuda",
    "warmup_ratio": 0.5,
    "momentum_warmup_ratio": 0.5,
    "ema_decay": 0.5,
    "context_length": {"classify-text": 3, "*": 9},  # 3: the first token, since a word may be one
    "head_dim": 6,
    "state_dim": 6,
    "sizes": (2, 6),
    "operators": ("legs", "legt"),
    "nodes": {"node-classify": "other_nodes.csv", "graph-classify": "other_atoms.csv"},
    "labels": "other_labels.csv",
    "id_column": "other",
    "checkpoint_every": 2,
    "checkpoint_minutes": 1e-9,
    "keep_checkpoints": 1,
    "noise_level_mean": 0.5,
    "likelihood": "heteroscedastic",
}
"""Other values where the type does not give one; a dictionary has one for each recipe, `*` for all others."""
SMALL_MEMBERS = {
    "auto": {"num_folds": 2},
    "incremental": {  # for up to num_components + 10 features or rows, the result is exact for every batch size
        "batch_size": 7,
        "num_components": 1,
        "data": "images",
        "test_fraction": 0.1,
        "validation_fraction": 0.1,
        "drop_missing": False,
        "standardize": True,
    },
    "maf": {"num_layers": 1},
    "nice": {"num_layers": 2},
    "real-nvp": {"num_layers": 2},
    "state-space": {"dim": 4, "num_layers": 1, "state_dim": 4},
    "unet": {"channels": 4},
}
"""Options for members of unions that have other sizes than those of the base."""
NEAR_WORDS = ("images or series", "missing value", "expected", "no parameter matches", "no weight matches", "no column")
"""Words of refusals that name the reason instead of the option."""
UNFIT = ("images or series", "discrete data", "attacks need gradients")
"""What the data lack for a member of a union."""
SAME_RESULT = {"auto", "incremental", "randomized"}
"""Members of unions that may give the result of another member: `auto` chooses one, and the singular value
decompositions of tiny data agree to the last digit on some processors."""
ALWAYS_REFUSED = (
    {"device", "run", "value_range", "epochs of forecast", "batch_size of pca"}
    | {"tolerance"}
    | {f"{name} of {recipe}" for name in _OPTIONS_OF_STEPS for recipe in ("pca", "symmetry")}
)
"""Options without an effect here: there is no other device and no other run, a range is only checked, and PCA has no
training steps."""


def other_value(recipe, name, hint, value):
    """Another valid value of an option."""
    if name == "data":
        named = {"ring": "moons", "band-limited": "series.csv", "karate": "blocks"}
        return named.get(value, f"other_{value}")
    if name == "label_column":
        return None if value else "kind"
    if name in OTHER_VALUES:
        found = OTHER_VALUES[name]
        return found.get(recipe, found.get("*")) if isinstance(found, dict) else found
    bare, bounds = hint, [Range(-1e9, 1e9)]
    while True:
        if typing.get_origin(bare) is Annotated:
            bounds = [m for m in bare.__metadata__ if isinstance(m, Range)] or bounds
            bare = typing.get_args(bare)[0]
        elif isinstance(bare, types.UnionType) or typing.get_origin(bare) is typing.Union:
            bare = next(option for option in typing.get_args(bare) if option is not type(None))
        else:
            break
    low, high = bounds[0].low, bounds[0].high
    if bare is bool:
        return not value
    if typing.get_origin(bare) is Literal:
        choices = typing.get_args(bare)
        for better in ("sgd", "linear"):  # differ from the others even in three steps
            if better in choices and value != better:
                return better
        return choices[(choices.index(value) + 1) % len(choices)]
    if bare is int:
        start = 1 if value is None else value
        return start + 1 if start + 1 <= high else start - 1
    if bare is float:
        return value / 2 if value and value / 2 >= low else min(high, max(low, 0.3 if not value else 2 * value))
    raise NotImplementedError(f"add another value of {name} to OTHER_VALUES: its type is {hint}")


class Option(NamedTuple):
    """An option of a recipe, or of a member of one of its unions."""

    name: str
    hint: Any
    value: Any
    """Value in the base."""
    context: dict[str, Any]
    """Options that it needs, beside those of the base."""
    excluded: frozenset[str]
    """Options of the base that it excludes."""


@cache
def unions_of(kind):
    found = {field.name: union_members(field_types(kind)[field.name]) for field in dataclasses.fields(kind)}
    return {name: members for name, members in found.items() if len(members) > 1}


def context_of(recipe, owner, hint):
    """The options that an option needs and that its owner does not have yet."""
    context = {}
    for rule in getattr(hint, "__metadata__", ()):
        for name, needed in rule.conditions.items() if isinstance(rule, Requires) else ():
            if not hasattr(owner, name):
                continue
            value, own_hint = getattr(owner, name), field_types(type(owner))[name]
            value = getattr(value, "name", value)
            match needed:
                case tuple() if value not in needed:
                    context[name] = needed[0]
                case Range() if not needed.low <= value <= needed.high:
                    context[name] = int(needed.low)
                case str() if not set(needed) & set(value):
                    context[name] = value.replace("(", f"({needed[0]}", 1)
                case True if not value:
                    context |= {name: other_value(recipe, name, own_hint, value), **context_of(recipe, owner, own_hint)}
    return context


def options_of(base):
    """All options of a base: of the recipe and of the chosen members of its unions."""
    recipe = lawful.training.build_recipe(base.recipe, base.options)
    unions = unions_of(type(recipe))
    for owner in (recipe, *(getattr(recipe, name) for name in unions)):
        for field in dataclasses.fields(owner):
            if field.name not in unions:
                hint = field_types(type(owner))[field.name]
                excluded = {name for name in base.options if excludes(owner, name, field.name)}
                context = context_of(base.recipe, owner, hint)
                yield Option(field.name, hint, getattr(owner, field.name), context, frozenset(excluded))


def excludes(owner, name, other):
    rules = getattr(field_types(type(owner)).get(name), "__metadata__", ())
    return any(isinstance(rule, Excludes) and rule.name == other for rule in rules)


# ---------------------------------------------------------------- the effect of an option


class Plots:
    """Stands for the figures: a figure is a hash of what it shows."""

    def __getattr__(self, name):
        return lambda *values, **named: digest((name, values, named))

    @staticmethod
    def save(figure, path, *, root=None):
        write_file(path, digest(figure), root=root)


def digest(value):
    """A hash of nested values; functions and other objects count by their type only."""

    def describe(value):
        if isinstance(value, torch.Tensor):
            value = torch.view_as_real(value) if value.is_complex() else value
            return str(value.shape) + hashlib.sha256(value.detach().cpu().double().numpy().tobytes()).hexdigest()
        if isinstance(value, np.ndarray):
            return describe(torch.from_numpy(np.ascontiguousarray(value)))
        if isinstance(value, dict):
            return {str(key): describe(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [describe(item) for item in value]
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return describe(vars(value))
        return repr(value) if isinstance(value, str | int | float | None) else type(value).__name__

    return hashlib.sha256(json.dumps(describe(value)).encode()).hexdigest()


@contextmanager
def plain_figures():
    with pytest.MonkeyPatch.context() as patch:
        for name in RECIPES:
            module = typing.cast(Any, __import__(RECIPES[name].__module__, fromlist=["figures"]))
            if hasattr(module, "figures"):
                patch.setattr(module, "figures", Plots())
        patch.setattr("lawful.recipes.generative.figures", Plots())
        patch.setattr(lawful.probe, "figures", Plots())
        yield


class Trained(NamedTuple):
    """A recipe after a few steps."""

    recipe: Any
    setup: Any
    metrics: list[Any]
    effect: str
    """Hash of the weights, the metrics and the plain values of the setup."""


def train_few_steps(base, changes):
    """Sets a recipe up and trains it for three steps, without a run folder."""
    recipe = lawful.training.build_recipe(base.recipe, base.options | changes)
    seed_everything(recipe.seed)
    setup = recipe.setup()
    plain = [value for value in vars(setup).values() if isinstance(value, str | int | float | None)]
    notes, members = [list(setup.warnings), setup.model_config], len(recipe.ensemble_members())
    setup = dataclasses.replace(setup, steps=min(setup.steps, STEPS))
    metrics = []
    loop = _TrainingLoop(setup, progress=_Progress(), precision=_Precision(recipe, print), processes=_SingleProcess())
    if setup.ema_decay:
        loop.ema = EMA(setup.model, decay=setup.ema_decay)
    loop.run(log=lambda *line: metrics.append(line), save=lambda due: None, checkpoint_every=99, stop=_StopRequest())
    state = setup.model.state_dict()
    return Trained(recipe, setup, metrics, digest((plain, notes, members, metrics, state)))


def finish(trained, folder):
    """Returns a hash of the results and files that a recipe writes at the end."""
    recipe, setup = trained.recipe, trained.setup
    run = Run.create(folder, "run", {})
    run.save_metrics([{"step": step, **metrics} for step, metrics in trained.metrics])
    if recipe.ensemble_members():
        other = recipe.ensemble_members()[1].setup().model
        setup = dataclasses.replace(setup, model=recipe.combine([setup.model, other]))
    with eval_mode(setup.model), plain_figures():
        results = recipe.finish(run, setup)
    return digest((results, files_of(run.path), setup.model.state_dict()))


def files_of(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes().hex() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def train_in_a_folder(base, changes, folder):
    """Returns what a complete run leaves: the names of its files, its weights, metrics and the facts of its log."""
    with plain_figures():
        run = train(base.recipe, output_dir=folder, **(base.options | changes))
    metrics = [{name: value for name, value in line.items() if name != "seconds"} for line in run.metrics]
    names = sorted(str(path.relative_to(run.path)).partition("events.")[0] for path in run.path.rglob("*"))
    lines = [line.partition("  ")[2] for line in run.log.read_text().splitlines()]  # without the time
    log = [line for line in lines if line.startswith(("warning", "compile"))]
    laws = "laws of the trained model:" in lines
    return digest((names, run.weights(), metrics, run.config["threads"], log, laws))


def with_member(base, recipe, union, member):
    """The base with another member of a union, or None if the data do not fit it."""
    own = {field.name for field in dataclasses.fields(getattr(recipe, union))}
    small = {k: v for k, v in base.options.items() if k not in own or hasattr(member, k)}
    if getattr(member, "closed_form", False):  # bagging makes it random
        random = {"bagging": True} if hasattr(recipe, "bagging") else {}
        small = {k: v for k, v in small.items() if k not in ("steps", "batch_size")} | random
    sizes = {k: v for k, v in SMALL_MEMBERS.get(member.name, {}).items() if hasattr(member, k) or hasattr(recipe, k)}
    if base.options.get("data") == "images":  # folds need a table
        sizes.pop("num_folds", None)
    if "num_folds" in sizes:  # the folds are the validation data
        small.pop("validation_fraction", None)
    other = Base(base.recipe, small | {union: member.name} | sizes)
    try:
        train_few_steps(other, {})
    except ValueError as error:
        if not any(reason in str(error) for reason in UNFIT):
            raise
        return None
    return other


class Comparison:
    """Changes options of a base one by one and collects those without an effect."""

    def __init__(self, base, folder):
        self.base, self.folder = base, folder
        self.silent, self.effective, self.refused = [], set(), {}
        self.baseline = cache(lambda key: train_few_steps(base, dict(key)))
        self.finished = cache(lambda key: finish(self.baseline(key), folder))
        self.trained = cache(lambda key: train_in_a_folder(base, dict(key), folder))

    def change(self, label, changes, context, excluded=()):
        """Compares the base in a context with the same base and one more option."""
        key = tuple(context.items())
        base = Base(self.base.recipe, {k: v for k, v in self.base.options.items() if k not in excluded})
        try:
            if label in TRAINER:
                full = {"checkpoint_every": 1} if label == "keep_checkpoints" else {}
                other = train_in_a_folder(base, full | context | changes, self.folder)
                same = other == self.trained((*full.items(), *key))
            else:
                before, after = self.baseline(key), train_few_steps(base, context | changes)
                same = before.effect == after.effect and self.finished(key) == finish(after, self.folder)
        except (ValueError, OSError, TrainingFailed) as error:
            self.refused[label] = str(error)
            if context and f"{label} needs" in str(error):
                self.silent.append(f"{self.base.recipe} {label}: refused although it has {context}: {error}")
            elif not context and not any(word in str(error) for word in (label, str(changes[label]), *NEAR_WORDS)):
                self.silent.append(f"{self.base.recipe} {label}: the refusal does not name the option: {error}")
            return
        if same:
            self.silent.append(f"{self.base.recipe} {label}: {changes} has no effect with {context}")
        else:
            self.effective.add(label)

    def must_refuse(self, option, value):
        try:
            lawful.training.build_recipe(self.base.recipe, self.base.options | {option.name: value})
        except ValueError as error:
            if option.name in str(error):
                return
        self.silent.append(f"{self.base.recipe} {option.name}: {value} is not refused without {option.context}")

    def change_all(self, names):
        """Changes the named options of the base."""
        for option in options_of(self.base):
            if option.name not in names:
                continue
            value = other_value(self.base.recipe, option.name, option.hint, option.value)
            if option.context:
                self.must_refuse(option, value)
            self.change(option.name, {option.name: value}, option.context, option.excluded)

    def change_members(self, known=frozenset()):
        """Changes the member of each union, and the options of each member, except for the known ones."""
        recipe = lawful.training.build_recipe(self.base.recipe, self.base.options)
        for union, members in unions_of(type(recipe)).items():
            for member in members:
                if isinstance(getattr(recipe, union), member) or member in known:
                    continue
                if (base := with_member(self.base, recipe, union, member)) is None:
                    continue
                other = Comparison(base, self.folder)
                same_result = {member.name, getattr(recipe, union).name} & SAME_RESULT
                if other.baseline(()).effect == self.baseline(()).effect and not same_result:
                    self.silent.append(f"{self.base.recipe} {union}={member.name} has no effect")
                self.effective.add(f"{union}={member.name}")
                other.change_all({field.name for field in dataclasses.fields(member)})
                self.silent += other.silent
                self.effective |= {f"{union}={member.name} {name}" for name in other.effective}


def owner_of(kind, name):
    """The class that introduces an option."""
    return [base for base in kind.__mro__ if name in inspect.get_annotations(base)][-1]


def own_options(base, *, fast):
    """The options of a base to change. Fast: those that no base before it has from the same class."""
    if base.only is not None:
        return base.only
    names = {option.name for option in options_of(base)}
    if not fast:
        return names
    known, kind = set(), RECIPES[base.recipe]
    for before in BASES.values():
        if before is base:
            break
        if before.only is None:
            known |= {(owner_of(RECIPES[before.recipe], f.name), f.name) for f in fields_of(before)}
    return {name for name in names if not hasattr(kind, name) or (owner_of(kind, name), name) not in known}


def fields_of(base):
    return dataclasses.fields(RECIPES[base.recipe])


def compare(base, folder, *, fast):
    comparison = Comparison(base, folder)
    comparison.change_all(own_options(base, fast=fast))
    if base.only is None:
        comparison.change_members(known_members(base) if fast else frozenset())
    return comparison


def known_members(base):
    """The members of unions of the bases before."""
    before = list(BASES.values())[: list(BASES.values()).index(base)]
    unions = [unions_of(RECIPES[other.recipe]) for other in before if other.only is None]
    return {member for union in unions for members in union.values() for member in members}


@pytest.fixture(autouse=True)
def _compiling_is_a_line_of_the_log(monkeypatch):
    monkeypatch.setattr("lawful.training.trainer._compile", lambda model, step, say: say("compile"))


@pytest.mark.parametrize("recipe", [name for name, kind in RECIPES.items() if kind.__module__.startswith("lawful.")])
def test_an_overridden_option_keeps_its_conditions(recipe):
    """A subclass that changes the default of an option repeats its `Requires` and `Excludes`."""
    kind = RECIPES[recipe]
    for field in dataclasses.fields(kind):
        for base in kind.__mro__:
            if field.name in inspect.get_annotations(base):
                lost = conditions(field_types(base)[field.name]) - conditions(field_types(kind)[field.name])
                assert not lost, f"{recipe} {field.name}: {base.__name__} has the conditions {lost}"


def conditions(hint):
    """The names of the options that an option requires or excludes."""
    rules = [rule for rule in getattr(hint, "__metadata__", ()) if isinstance(rule, Requires | Excludes)]
    return {name for rule in rules for name in (rule.conditions if isinstance(rule, Requires) else (rule.name,))}


@pytest.mark.parametrize("name", BASES)
def test_options_have_an_effect(name, tmp_path):
    """Each option where it is declared, for three steps."""
    comparison = compare(BASES[name], tmp_path, fast=True)
    assert not comparison.silent, "\n".join(comparison.silent)


@pytest.mark.long
@pytest.mark.parametrize("recipe", RECIPES)
def test_every_option_of_every_recipe_has_an_effect(recipe, tmp_path):
    """All options in every recipe that has them. Each has an effect in one of the recipe's bases."""
    found = [compare(base, tmp_path, fast=False) for base in BASES.values() if base.recipe == recipe]
    silent = [line for comparison in found for line in comparison.silent]
    effective = set().union(*(comparison.effective for comparison in found))
    options = {option.name for comparison in found for option in options_of(comparison.base)}
    unused = {name for name in options - effective if not {name, f"{name} of {recipe}"} & ALWAYS_REFUSED}
    shared = {name for name in unused if name in SHARED_DATA_OPTIONS}
    assert not silent, "\n".join(silent)
    assert not unused - shared, {name: [c.refused.get(name) for c in found] for name in unused - shared}


DEPENDENT = {
    "optimizer": (
        "learning_rate",
        "weight_decay",
        "betas",
        "momentum",
        "nesterov",
        "momentum_warmup_ratio",
        "adam_learning_rate",
        "ngram_learning_rate",
        "head_learning_rate",
    ),
    "schedule": ("learning_rate", "warmup_steps", "warmup_ratio", "min_lr_ratio"),
    "penalty": ("penalty_weight", "l1_ratio", "penalty_params"),
    "attack": ("attack_steps", "norm", "eps", "seed"),
    "path": ("prediction", "sampling_steps", "noise_level_mean", "noise_level_std"),
    "gan_loss": ("gradient_penalty", "spectral_norm", "critic_learning_rate"),
    "likelihood": ("beta", "free_bits", "num_importance_samples"),
    "positions": ("num_heads", "context_length", "attention_window", "qk_norm"),
    "layout": ("layer_gap", "distance_order", "locality_penalty"),
}
"""Choices, and the options that may depend on them."""
NEEDS = {"attack": {"norm": "l2", "eps": (0.5,)}}
"""Options under which they do. In a small cube of linf, one step reaches the corner that two steps reach."""
TESTED_ELSEWHERE = {("deepfool", "attack_steps"), ("carlini-wagner", "attack_steps")}
"""These attacks change an example only if they fool the model; test_attack.py counts their steps."""


@pytest.mark.long
@pytest.mark.parametrize(
    ("choice", "name"),
    [
        (choice, name)
        for choice in DEPENDENT
        for name, base in BASES.items()
        if base.only is None and hasattr(RECIPES[base.recipe], choice)
    ],
)
def test_options_have_an_effect_with_every_choice(choice, name, tmp_path):
    """The options that may depend on a choice, such as the optimizer, with each of its values."""
    base, silent = BASES[name], []
    for value in typing.get_args(field_types(RECIPES[base.recipe])[choice]):
        try:
            other = Base(base.recipe, base.options | NEEDS.get(choice, {}) | {choice: value})
            comparison = Comparison(other, tmp_path)
            comparison.baseline(())
        except ValueError as error:
            if not any(word in str(error) for word in (choice, *NEAR_WORDS)):
                raise
            continue
        comparison.change_all({option for option in DEPENDENT[choice] if (value, option) not in TESTED_ELSEWHERE})
        silent += [f"{choice}={value}: {line}" for line in comparison.silent]
    assert not silent, "\n".join(silent)


SHARED_DATA_OPTIONS = {"data_levels", "num_samples", "drop_missing", "resize", "keep_columns", "ignore_columns"} | {
    "label_column",
    "categorical_columns",
    "target",
    "random_shift",
}
"""Options that a base refuses for its kind of data; `test_options_have_an_effect` covers them in another recipe."""


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name, base in BASES.items() if base.only is None])
def test_every_option_has_an_effect_with_every_model(name, tmp_path):
    """All options with each member of the unions: an effect, or a refusal that names the option."""
    base = BASES[name]
    recipe = lawful.training.build_recipe(base.recipe, base.options)
    silent = []
    for union, members in unions_of(type(recipe)).items():
        for member in members:
            if (other := with_member(base, recipe, union, member)) is None:
                continue
            comparison = Comparison(other, tmp_path)
            comparison.change_all({option.name for option in options_of(other)} - TRAINER)
            silent += [f"{union}={member.name}: {line}" for line in comparison.silent]
    assert not silent, "\n".join(silent)
