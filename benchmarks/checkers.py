"""Which checker finds which fault: the gallery under each public checker, and under lawful.

Run `python benchmarks/checkers.py`. Install the peers with `pip install pytest-torch torchtest2 e3nn egnn-pytorch`; a
missing one is named in the table. Every fault of `tests/gallery` is a broken layer and its corrected version. Each
checker runs on both, one after the other in the same process:

- lawful: the law and inputs of the fault, 100 cases.
- pytest-torch: its checks of any model (inference contract, memory layouts, finite gradients), and its own check of the
  law if it has one: padding, mask, permutation, reference, output specification, finite differences.
- torchtest2: its single call, with warnings as failures, and its options for ranges and finite differences.
- e3nn: `assert_equivariant` in float32 and float64, as its test fixture does, for layers with coordinates.
- egnn-pytorch: the method of its own test, for the same layers: one rotation and translation, `allclose` to 1e-6.

The first two peers also accept a relation from the user: a change of the inputs that must not change the outputs, or an
expected output. If their checks accept a broken layer, this script writes such a relation for its law, if possible. A
fault that only the relation finds counts as "found by hand".

Peers receive one example of the described inputs, in the sizes below or the largest described size. The last row of a
mask hides its last three positions, or all of them if the law is about a fully masked row. "Caught" means that the
broken layer is rejected and the corrected one is not, "missed" that both are accepted, "false alarm" that the corrected
one is rejected. Each round has its own seed for parameters, inputs and search; the outcome is that of most rounds.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import pkgutil
import statistics
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

import lawful
from lawful.laws import Law
from lawful.laws.inputs import BoolDomain, Input, TokenDomain

sys.path.insert(0, str(Path(__file__).parents[1]))

ROUNDS, CASES = 3, 100
SIZES = {"b": 2, "t": 8, "n": 16}
VOCABULARY = 16
Make = Callable[[], nn.Module]


class NotApplicable(Exception):
    """Raised with the reason if a checker does not support a layer."""


class ByHand(AssertionError):
    """Raised if only a relation written here rejects a layer."""


@contextmanager
def by_hand() -> Iterator[None]:
    try:
        yield
    except AssertionError as rejected:
        raise ByHand from rejected


# Inputs and targets of the peers.


def example(inputs: Any, empty_row: bool = False) -> Any:
    """Creates tensors of the described domain and shape."""
    if isinstance(inputs, Mapping):
        return {name: example(each, empty_row) for name, each in inputs.items()}
    if isinstance(inputs, tuple):
        return tuple(example(each, empty_row) for each in inputs)
    if not isinstance(inputs, Input):
        raise NotApplicable("no forward" if inputs is None else "drawn inputs")
    sizes = [axis.number or max(axis.options, default=SIZES.get(axis.letter, 4)) for axis in inputs.axes]
    if isinstance(inputs.domain, TokenDomain):
        return torch.randint(inputs.domain.vocab_size, sizes)
    if isinstance(inputs.domain, BoolDomain):
        there = torch.ones(sizes, dtype=torch.bool)
        there[-1, ..., 0 if empty_row else -3 :] = False
        return there
    return torch.randn(sizes)


def as_list(inputs: Any) -> list[Tensor]:
    return list(inputs.values() if isinstance(inputs, Mapping) else inputs if isinstance(inputs, tuple) else [inputs])


def on_first(change: Callable[[Tensor], Tensor]) -> Callable[[Any], Any]:
    """Changes the first input, which is the one a law is about."""

    def changed(inputs: Any) -> Any:
        head, *rest = as_list(inputs)
        if isinstance(inputs, Mapping):
            return dict(zip(inputs, [change(head), *rest], strict=True))
        return (change(head), *rest) if isinstance(inputs, tuple) else change(head)

    return changed


def as_invariance(law: Law, inputs: Any) -> tuple[Callable[[Any], Any], Callable[[Tensor], Tensor]] | None:
    """Writes a law as a change of the inputs and the part of the output that must not change, if possible."""
    x, *rest = as_list(inputs)
    if law.name == "causality":
        axis, past = law.values["time"], x.shape[law.values["time"]] // 2
        later = torch.arange(x.shape[axis]) >= past
        return (
            on_first(lambda x: x.movedim(axis, -1).masked_fill(later, 1).movedim(-1, axis)),
            lambda y: y.narrow(axis, 0, past),
        )
    if law.name in ("padding_invariance", "masked_positions_have_no_influence") and rest[0].dtype is torch.bool:
        hidden = (rest[0] != law.values["keep"]).unsqueeze(-1)
        return on_first(lambda x: x.masked_fill(hidden, 1)), lambda y: y.masked_fill(hidden, 0)
    if law.name == "permutation_invariance":
        return on_first(lambda x: x.flip(law.values["axis"])), lambda y: y
    if law.name == "invariance":
        g = element(law)
        return on_first(lambda x: law.values["act"](g, x)), lambda y: y
    return None


def element(law: Law) -> Any:
    """Draws an element of the group of a law."""
    return law.values["sample"](SimpleNamespace(normal=torch.randn, permutation=torch.randperm))


class Reader(nn.Module):
    """A text model around a layer: token embeddings, and an attention mask of ones and zeros."""

    def __init__(self, layer: nn.Module, width: int, keep: bool) -> None:
        super().__init__()
        self.embed, self.layer, self.keep = nn.Embedding(VOCABULARY, width), layer, keep

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Any:
        return self.layer(self.embed(input_ids), attention_mask.bool() == self.keep)


@dataclass(frozen=True)
class Geometry:
    """Irreps of the arguments and results of a layer, in the notation of e3nn."""

    takes: list[str]
    gives: list[str]
    call: Callable[..., Any] = lambda layer, *args: layer(*args)


GEOMETRIES = {
    "coordinates_in_place": Geometry(["4x0e", "cartesian_points"], ["cartesian_points"]),
    "pole_guard": Geometry(["cartesian_points"], ["1o"]),
    "swapped_coordinates": Geometry(
        ["cartesian_points", "3x0e"],
        ["cartesian_points", "3x0e"],
        lambda layer, points, features: layer(torch.cat([points, features], dim=-1)).split(3, dim=-1),
    ),
}


def geometry(fault: ModuleType) -> tuple[Geometry, list[Tensor]]:
    """Returns the irreps of a layer, and an example of its arguments."""
    if (turns := GEOMETRIES.get(short(fault))) is None:
        raise NotApplicable("no irreps" if fault.law.name in ("equivariance", "invariance") else "no coordinates")
    inputs = as_list(example(fault.inputs))
    return turns, inputs if len(inputs) == len(turns.takes) else list(inputs[0].split(3, dim=-1))


def short(fault: ModuleType) -> str:
    return fault.__name__.rpartition(".")[2]


# The checkers. Each raises an AssertionError to reject a layer.


def lawful_itself(fault: ModuleType, make: Make, seed: int) -> None:
    verdict = lawful.check(make(), fault.law, inputs=fault.inputs, cases=CASES, seed=seed).verdicts[0]
    if verdict.status in ("refuted", "error"):
        raise AssertionError(str(verdict))


def pytest_torch(fault: ModuleType, make: Make, seed: int) -> None:
    import pytest_torch as peer

    law, layer = fault.law, make().eval()
    inputs = example(fault.inputs, empty_row=law.name == "fully_masked_row_is_finite")
    own_check(peer, law, layer, inputs)
    peer.check_inference_contract(layer, inputs)
    peer.assert_layout_invariant(layer, inputs)
    if any(p.requires_grad for p in layer.parameters()):
        peer.assert_gradients_finite(copy.deepcopy(layer).train(), inputs, mean)
    with by_hand():
        if relation := as_invariance(law, inputs):
            change, unchanged = relation
            peer.assert_invariant(lambda *xs, **named: unchanged(layer(*xs, **named)), inputs, change)
        if law.name == "equivariance":
            g, act = element(law), law.values["act"]
            act_out = law.values["act_out"] or act
            peer.assert_equivariant(layer, inputs, on_first(lambda x: act(g, x)), lambda y: act_out(g, y))
        if law.name == "invertibility":
            inverse = getattr(layer, law.values["inverse"])
            peer.assert_matches_reference(lambda x: inverse(layer(x)), inputs, inputs)
        if law.name == "log_determinant":
            jacobian = torch.func.vmap(torch.func.jacrev(lambda x: layer(x[None])[0][0]))(inputs)
            log_det = law.values["log_det"]
            peer.assert_matches_reference(layer, jacobian.slogdet()[1], inputs, select=lambda y: y[log_det])


def own_check(peer: ModuleType, law: Law, layer: nn.Module, inputs: Any) -> None:
    """Runs the check of pytest-torch for a law."""
    match law.name:
        case "causality":
            # Zeros after the end change nothing before it.
            names = inspect.signature(layer.forward).parameters
            named = inputs if isinstance(inputs, Mapping) else dict(zip(names, as_list(inputs), strict=False))
            peer.assert_padding_invariant(layer, named, ids_key=next(iter(named)), seq_dim=law.values["time"])
        case "padding_invariance" | "masked_positions_have_no_influence":
            x, mask = as_list(inputs)
            text = {"input_ids": torch.randint(VOCABULARY, mask.shape), "attention_mask": mask.long()}
            reader = Reader(layer, x.shape[-1], law.values["keep"]).eval()
            peer.assert_padding_invariant(reader, text)
            peer.assert_mask_invariant(reader, text, vocab_size=VOCABULARY)
        case "permutation_equivariance":
            peer.assert_permutation_equivariant(layer, inputs, dim=law.values["axis"])
        case "permutation_invariance":
            peer.assert_permutation_invariant(layer, inputs, dim=law.values["axis"])
        case "agreement":
            peer.assert_matches_reference(layer, law.values["other"], inputs)
        case "gradient":
            peer.assert_gradcheck(layer, inputs)
        case "sums_to_one" | "non_negativity":
            output = layer(*as_list(inputs))
            spec = peer.Probabilities(dim=law.values["axis"]) if law.name == "sums_to_one" else peer.TensorSpec(min=0)
            peer.assert_output_spec(output if law.output is None else output[law.output], spec)


def mean(output: Any) -> Tensor:
    """A loss for a layer that has none."""
    return torch.stack([y.mean() for y in (output if isinstance(output, tuple) else (output,))]).sum()


# Checks of torchtest2 that a correct layer is not meant to pass, left out as its manual advises.
SKIPPED = {
    "causal_top_left": ["input_dependency"],  # It reads the newest query only.
    "negative_divergence": ["input_dependency"],  # A saturated probability has no gradient.
}


def torchtest2(fault: ModuleType, make: Make, seed: int) -> None:
    import torchtest2 as peer

    law, layer = fault.law, make()
    inputs = example(fault.inputs, empty_row=law.name == "fully_masked_row_is_finite")
    peer.assert_model_ok(
        layer,
        inputs,
        strict=True,
        output_range=(0, None) if law.name == "non_negativity" else None,
        gradcheck=law.name == "gradient",
        skip=SKIPPED.get(short(fault), ()),
        seed=seed,
    )
    with by_hand():
        if relation := as_invariance(law, inputs):
            peer.assert_invariance(layer, inputs, relation[0], output_fn=relation[1])


def e3nn(fault: ModuleType, make: Make, seed: int) -> None:
    from e3nn.util.test import assert_equivariant

    usual = torch.get_default_dtype()
    try:
        for dtype in (torch.float32, torch.float64):
            torch.set_default_dtype(dtype)
            (turns, inputs), layer = geometry(fault), make()
            assert_equivariant(lambda *xs: turns.call(layer, *xs), inputs, list(turns.takes), list(turns.gives))
    finally:
        torch.set_default_dtype(usual)


def egnn_pytorch(fault: ModuleType, make: Make, seed: int) -> None:
    from egnn_pytorch.utils import rot

    (turns, inputs), layer = geometry(fault), make()
    rotation, shift = rot(*torch.rand(3)), torch.randn(1, 1, 3)

    def move(kind: str, x: Tensor) -> Tensor:
        return x if kind.endswith("0e") else x @ rotation + (shift if kind == "cartesian_points" else 0)

    def outputs(*xs: Tensor) -> tuple[Tensor, ...]:
        y = turns.call(layer, *xs)
        return y if isinstance(y, tuple) else (y,)

    moved = outputs(*map(move, turns.takes, inputs))
    for kind, left, right in zip(turns.gives, moved, outputs(*inputs), strict=True):
        if not torch.allclose(left, move(kind, right), atol=1e-6):
            raise AssertionError(f"an output does not turn as {kind}")


# The comparison.


@dataclass
class Checker:
    """A checker, its package, and its outcomes and seconds for each fault and layer."""

    package: str
    rejects: Callable[[ModuleType, Make, int], None]
    outcomes: dict[str, list[str]] = field(default_factory=dict)
    seconds: dict[str, list[float]] = field(default_factory=dict)

    @property
    def installed(self) -> bool:
        try:
            importlib.import_module(self.package.replace("-", "_"))
        except ImportError:
            return False
        return True

    def judge(self, fault: ModuleType, seed: int) -> None:
        """Runs on the corrected and the broken layer, and records outcome and seconds."""
        try:
            fixed = self.rejection(fault, fault.Fixed, seed)
            broken = self.rejection(fault, fault.Broken, seed)
        except NotApplicable as reason:
            outcome = f"- ({reason})"
        else:
            if fixed.startswith("raised"):
                outcome = f"- ({fixed})"
            elif fixed:
                outcome = "false alarm"
            else:
                outcome = "caught" if broken.startswith("raised") else broken or "missed"
        self.outcomes.setdefault(short(fault), []).append(outcome)

    def rejection(self, fault: ModuleType, layer: Make, seed: int) -> str:
        """Returns how a layer was rejected, or an empty string."""
        torch.manual_seed(seed)
        start, how = time.perf_counter(), ""
        try:
            self.rejects(fault, layer, seed)
        except NotApplicable:
            raise
        except ByHand:
            how = "caught by hand"
        except AssertionError:
            how = "caught"
        except Exception as error:
            how = f"raised {type(error).__name__}"
        self.seconds.setdefault(short(fault), []).append(time.perf_counter() - start)
        return how

    def outcome(self, name: str) -> str:
        """The most frequent outcome."""
        return statistics.mode(self.outcomes[name])

    def cell(self, name: str) -> str:
        outcome, rounds = self.outcome(name), self.outcomes[name]
        if outcome.startswith("-"):
            return outcome
        agreed = "" if len(set(rounds)) == 1 else f" in {rounds.count(outcome)} of {len(rounds)}"
        return f"{outcome}{agreed}, {statistics.median(self.seconds[name]):.3f}"

    def row(self) -> str:
        if not self.outcomes:
            return f"| {self.package} | not installed |" + " - |" * 5
        counts = Counter(self.outcome(name) for name in self.outcomes)
        absent = sum(n for outcome, n in counts.items() if outcome.startswith("-"))
        middle = statistics.median(s for each in self.seconds.values() for s in each)
        numbers = (counts["caught"], counts["caught by hand"], counts["missed"], counts["false alarm"], absent)
        return f"| {self.package} {version(self.package)} | {' | '.join(map(str, numbers))} | {middle:.3f} |"


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    gallery = importlib.import_module("tests.gallery")
    names = sorted(found.name for found in pkgutil.iter_modules(gallery.__path__) if not found.name.startswith("test_"))
    faults = [importlib.import_module(f"tests.gallery.{name}") for name in names]
    checkers = [
        Checker("lawful", lawful_itself),
        Checker("pytest-torch", pytest_torch),
        Checker("torchtest2", torchtest2),
        Checker("e3nn", e3nn),
        Checker("egnn-pytorch", egnn_pytorch),
    ]
    present = [checker for checker in checkers if checker.installed]
    for seed in range(ROUNDS):
        for fault in faults:
            for checker in present:
                checker.judge(fault, seed)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} thread, {ROUNDS} rounds, {len(faults)} faults\n")
    print("| checker | caught | caught by hand | missed | false alarms | not applicable | s for a layer, median |")
    print("|---|---|---|---|---|---|---|")
    print("\n".join(checker.row() for checker in checkers))
    print(f"\n| fault | law | {' | '.join(checker.package for checker in present)} |")
    print("|---|---|" + "---|" * len(present))
    for name, fault in zip(names, faults, strict=True):
        print(f"| {name} | {fault.law.name} | {' | '.join(checker.cell(name) for checker in present)} |")


if __name__ == "__main__":
    main()
