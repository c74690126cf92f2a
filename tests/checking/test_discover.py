"""`discover` finds the known laws of well-known layers, and no others."""

import ast
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import lawful
from lawful import mask, shape, tokens
from lawful.blocks import GramMLP, PrincipalAxes, Symmetrized
from lawful.checking.check import SearchBudget, judge_law
from lawful.checking.discover import _write_claims, candidate_laws
from lawful.groups import Cyclic, Euclidean
from lawful.laws.implications import implied_laws
from lawful.models import EGNN

BTD, BC, BCT = shape("b t 8"), shape("b 8"), shape("b 4 t")


class Attention(nn.Module):
    """Self-attention: causal or not, with a learned embedding of positions or without."""

    def __init__(self, causal=False, positions=False):
        super().__init__()
        self.qkv, self.out, self.causal = nn.Linear(8, 24), nn.Linear(8, 8), causal
        self.positions = nn.Parameter(torch.randn(128, 8)) if positions else None

    def forward(self, x):
        x = x if self.positions is None else x + self.positions[: x.shape[1]]
        q, k, v = self.qkv(x).chunk(3, -1)
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=self.causal))


def batch_norm():
    norm = nn.BatchNorm1d(4)
    norm(torch.randn(16, 4, 8) * 2 + 1)
    return norm.eval()


def gru():
    cell = nn.GRU(8, 8, batch_first=True)
    return lambda x: cell(x)[0]


def hygiene(axis=0):
    """Laws of all of them: module hygiene and batch independence."""
    return {
        "determinism()",
        "statelessness()",
        "no_mutation()",
        f"batch_independence(batch={axis})",
        "layout_independence()",
    }


LAYERS = {
    "layer norm": (
        lambda: nn.LayerNorm(8),
        BTD,
        {"shift_invariance(axis=2)", "locality(radius=0, axis=1)", "permutation_equivariance(axis=1)"},
        {"scale_invariance(axis=2)", "shift_invariance(axis=1)", "linearity()", "permutation_equivariance(axis=2)"},
    ),
    "batch norm in evaluation": (
        batch_norm,
        BCT,
        {"locality(radius=0, axis=1)", "locality(radius=0, axis=2)", "permutation_equivariance(axis=2)"},
        {"linearity()", "permutation_equivariance(axis=1)", "shift_invariance(axis=2)"},
    ),
    "softmax": (
        lambda: nn.Softmax(dim=-1),
        BTD,
        {
            "sums_to_one(axis=2)",
            "boundedness(low=0.0, high=1.0)",
            "non_negativity()",
            "shift_invariance(axis=2)",
            "permutation_equivariance(axis=2)",
            "locality(radius=0, axis=1)",
            "lipschitz(constant=1.0)",
        },
        {"sums_to_one(axis=1)", "shift_invariance(axis=1)", "scale_invariance(axis=2)", "linearity()", "convexity()"},
    ),
    "causal attention": (
        lambda: Attention(causal=True),
        BTD,
        {"causality(time=1)", "every_parameter_receives_a_gradient()"},
        {"permutation_equivariance(axis=1)", "reversal_equivariance(axis=1)", "locality(radius=4, axis=1)"},
    ),
    "attention": (
        Attention,
        BTD,
        {"permutation_equivariance(axis=1)", "translation_equivariance(axis=1, border=0)"},
        {"causality(time=1)", "locality(radius=4, axis=1)", "linearity()", "permutation_invariance(axis=1)"},
    ),
    "attention with positions": (
        lambda: Attention(positions=True),
        BTD,
        {"every_parameter_receives_a_gradient()"},
        {"permutation_equivariance(axis=1)", "translation_equivariance(axis=1, border=4)", "causality(time=1)"},
    ),
    "convolution, zeros around": (
        lambda: nn.Conv1d(4, 4, 3, padding=1, bias=False),
        BCT,
        {"linearity()", "locality(radius=1, axis=2)", "translation_equivariance(axis=2, border=1)"},
        {"translation_equivariance(axis=2, border=0)", "locality(radius=0, axis=2)", "causality(time=2)"},
    ),
    "convolution, circular": (
        lambda: nn.Conv1d(4, 4, 3, padding=1, padding_mode="circular", bias=False),
        shape("b 4 t:3..20"),
        {"linearity()", "translation_equivariance(axis=2, border=0)"},
        {"locality(radius=1, axis=2)", "permutation_equivariance(axis=2)", "causality(time=2)"},
    ),
    "GRU": (
        gru,
        BTD,
        {"causality(time=1)", "boundedness(low=-1.0, high=1.0)"},
        {
            "permutation_equivariance(axis=1)",
            "translation_equivariance(axis=1, border=4)",
            "locality(radius=4, axis=1)",
        },
    ),
    "average pool": (
        lambda: lambda x: x.mean(1),
        BTD,
        {
            "linearity()",
            "permutation_invariance(axis=1)",
            "reversal_invariance(axis=1)",
            "monotonicity(decreasing=False)",
        },
        {"permutation_invariance(axis=2)", "shift_invariance(axis=1)", "evenness()"},
    ),
    "linear map": (
        lambda: nn.Linear(8, 8, bias=False),
        BTD,
        {"linearity()", "additivity()", "oddness()", "locality(radius=0, axis=1)", "permutation_equivariance(axis=1)"},
        {"permutation_equivariance(axis=2)", "evenness()", "idempotence()", "non_negativity()"},
    ),
    "ReLU": (
        nn.ReLU,
        BC,
        {
            "idempotence()",
            "homogeneity(degree=1.0)",
            "convexity()",
            "monotonicity(decreasing=False)",
            "non_negativity()",
            "lipschitz(constant=1.0)",
            "locality(radius=0, axis=1)",
            "permutation_equivariance(axis=1)",
        },
        {"oddness()", "linearity()", "involution()", "homogeneity(degree=2.0)", "boundedness(low=0.0, high=1.0)"},
    ),
    "sorting": (
        lambda: lambda x: x.sort(dim=-1).values,
        BC,
        {
            "idempotence()",
            "permutation_invariance(axis=1)",
            "monotonicity(decreasing=False)",
            "homogeneity(degree=1.0)",
        },
        {"permutation_equivariance(axis=1)", "linearity()", "oddness()", "causality(time=1)"},
    ),
}


@pytest.mark.parametrize(("build", "inputs", "true", "false"), LAYERS.values(), ids=LAYERS)
def test_known_laws_of_layers(build, inputs, true, false):
    torch.manual_seed(0)
    layer, budget = build(), SearchBudget(cases=20, shrinks=0)
    laws = [law for law in candidate_laws(inputs) if str(law) in true | false | hygiene()]
    statuses = {str(law): judge_law(law, layer, inputs, "layer", budget).status for law in laws}
    assert statuses == dict.fromkeys(true | hygiene(), "held") | dict.fromkeys(false, "refuted")


@pytest.mark.parametrize(
    ("build", "inputs", "true", "false"),
    [pytest.param(*LAYERS[name], id=name, marks=[] if name == "ReLU" else pytest.mark.long) for name in LAYERS],
)
def test_discover_reports_known_laws_of_layers(build, inputs, true, false):
    torch.manual_seed(0)
    found = lawful.discover(build(), inputs=inputs, cases=20)
    held = {law for row in found.held for law in (row.verdict.law, *row.implied)}
    refuted = {law for row in found.refuted for law in (row.verdict.law, *row.implied)}
    assert true | hygiene() <= held, (true | hygiene()) - held
    assert false <= refuted, false - refuted
    assert all(row.verdict.counterexample is not None or row.verdict.reason for row in found.refuted)


POINTS = shape("b 5 3")


def point_mlp():
    hidden = nn.Linear(15, 8), nn.Tanh(), nn.Linear(8, 15)
    return nn.Sequential(nn.Flatten(-2), *hidden, nn.Unflatten(-1, (5, 3)))


def vector_mlp(out_dim=6):
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, out_dim))


def symmetric_points():
    return Symmetrized(point_mlp(), Euclidean(3), output="equivariant", frame=PrincipalAxes(Euclidean(3)))


def gram():
    layer = GramMLP(5, out_vectors=5)
    return lambda x: layer(x)[0]


SYMMETRIC = {
    "EGNN": (
        lambda: EGNN(4, dim=4, num_layers=1),
        (shape("b n 4"), shape("b n 3")),
        {
            "equivariance(group=Euclidean(3), axis=-1, input=1, output=1)",
            "invariance(group=Euclidean(3), axis=-1, input=1)",
            "permutation_equivariance(axis=1)",
        },
    ),
    "plane EGNN": (
        lambda: EGNN(4, dim=4, num_layers=1),
        (shape("b n 4"), shape("b n 2")),
        {
            "equivariance(group=Euclidean(2), axis=-1, input=1, output=1)",
            "invariance(group=Euclidean(2), axis=-1, input=1)",
            "permutation_equivariance(axis=1)",
        },
    ),
    "Gram": (gram, POINTS, {"equivariance(group=Orthogonal(3), axis=-1)", "permutation_equivariance(axis=2)"}),
    "cross product": (
        lambda: lambda x: torch.linalg.cross(x[..., :1, :], x[..., 1:2, :]).expand_as(x),
        POINTS,
        {"equivariance(group=SO3(), axis=-1)", "translation_equivariance(axis=2, border=0)"},
    ),
    "symmetrized MLP": (
        symmetric_points,
        POINTS,
        {"equivariance(group=Euclidean(3), axis=-1)", "permutation_equivariance(axis=2)"},
    ),
    "cyclic, invariant": (
        lambda: Symmetrized(vector_mlp(), Cyclic(6)),
        shape("b 6"),
        {"translation_invariance(axis=1)"},
    ),
    "cyclic, equivariant": (
        lambda: Symmetrized(vector_mlp(), Cyclic(6), output="equivariant"),
        shape("b 6"),
        {"translation_equivariance(axis=1, border=0)"},
    ),
    "differences": (
        lambda: lambda x: x - x.mean(1, keepdim=True) @ torch.ones(3, 3).to(x),
        shape("b n 3"),
        {"permutation_equivariance(axis=1)", "permutation_equivariance(axis=2)"},
    ),
    "MLP on points": (point_mlp, POINTS, set()),
    "MLP on vectors": (vector_mlp, shape("b 6"), set()),
    "MLP on the plane": (lambda: nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2)), shape("b 2"), set()),
}
"""Maps with the strongest symmetries of their points and vectors."""


def is_symmetry(law):
    names = "equivariance(", "invariance(", "permutation_", "translation_", "reversal_"
    return law.startswith(names) and "axis=0" not in law


SLOW = ("symmetrized MLP", "plane EGNN", "Gram", "cross product", "differences", "cyclic, equivariant")


@pytest.mark.parametrize(
    ("build", "inputs", "expected"),
    [pytest.param(*SYMMETRIC[name], id=name, marks=[pytest.mark.long] if name in SLOW else []) for name in SYMMETRIC],
)
def test_symmetries_of_points(build, inputs, expected, monkeypatch):
    torch.manual_seed(0)
    module = sys.modules[candidate_laws.__module__]
    laws = [law for law in candidate_laws(inputs) if is_symmetry(str(law))]
    monkeypatch.setattr(module, "candidate_laws", lambda inputs: laws)
    found = lawful.discover(build(), inputs=inputs, cases=6)
    assert {row.verdict.law for row in found.held} == expected
    assert not [row for row in found.not_applicable if row.verdict.status == "error"]


@pytest.mark.long
@pytest.mark.parametrize("name", ["EGNN", "Gram", "symmetrized MLP", "cyclic, invariant", "MLP on points"])
def test_discover_names_the_symmetries_of_points(name):
    """All laws, with the default number of cases."""
    torch.manual_seed(0)
    build, inputs, expected = SYMMETRIC[name]
    found = lawful.discover(build(), inputs=inputs)
    assert {row.verdict.law for row in found.held if is_symmetry(row.verdict.law)} == expected


def test_motions_are_tried_on_coordinates_only():
    def groups(*inputs):
        return [str(law) for law in candidate_laws(inputs) if "group" in law.parameters]

    assert groups(BTD) == groups(tokens("b 3", 9)) == groups(mask("b 3")) == groups(torch.zeros(5, 3).long()) == []
    assert groups(BTD, shape("b n 3"))[:2] == [
        "equivariance(group=Euclidean(3), axis=-1, input=1, output=1)",
        "invariance(group=Euclidean(3), axis=-1, input=1)",
    ]
    assert groups(torch.zeros(5, 2))[-2:] == [
        "equivariance(group=Translation(2), axis=-1)",
        "invariance(group=Translation(2), axis=-1)",
    ]


def test_claims_import_the_groups(monkeypatch):
    found = discover_laws(monkeypatch, gram(), POINTS, "equivariance")
    assert "from lawful.groups import Orthogonal\n" in found.claims
    assert "        equivariance(group=Orthogonal(3), axis=-1),\n" in found.claims


@pytest.fixture(scope="module")
def relu():
    return lawful.discover(nn.ReLU, inputs=BC, cases=15)


def test_implied_laws_are_grouped(relu):
    heads = {row.verdict.law: row.implied for row in relu.held}
    assert {"permutation_equivariance(axis=1)", "reversal_equivariance(axis=1)"} <= set(
        heads["chunk_consistency(axis=1)"]
    )
    assert "reversal_equivariance(axis=1)" not in heads
    assert {"locality(radius=0, axis=1)", "causality(time=1)"} <= set(heads["chunk_consistency(axis=1)"])
    broken = {row.verdict.law: row.implied for row in relu.refuted}
    assert "linearity()" in broken["oddness()"]
    assert "linearity()" not in broken


def test_reasons_of_inapplicable_laws(relu):
    reasons = {row.verdict.law: row.verdict.reason for row in relu.not_applicable}
    assert reasons["commutativity()"] == "needs 2 inputs, got 1"
    assert "has no method 'inverse'" in reasons["invertibility(inverse='inverse')"]


def test_candidate_laws():
    laws = {str(law) for law in candidate_laws(BTD)}
    assert {f"permutation_equivariance(axis={n})" for n in range(3)} <= laws
    assert {"causality(time=1)", "causality(time=2)", "batch_independence(batch=0)"} <= laws
    assert {"causality(time=0)", "batch_independence(batch=1)"}.isdisjoint(laws)


def test_implications():
    laws = {str(law): law for law in candidate_laws(BTD)}
    for law in laws.values():
        assert str(law) not in implied_laws(law)
    for stronger in ("linearity()", "permutation_equivariance(axis=1)", "locality(radius=0, axis=1)"):
        assert implied_laws(laws[stronger]) & laws.keys()


def test_table(relu):
    text = str(relu)
    assert text.startswith("ReLU, tested in training and eval mode\n")
    assert "held     idempotence()" in text
    assert "permutation_equivariance(axis=1), reversal_equivariance(axis=1)" in text
    assert "not applicable in" in text
    again = lawful.Discovery.from_json(relu.to_json())
    assert (again.rows(), again.rows(all=True), str(again)) == (relu.rows(), relu.rows(all=True), text)


def test_refuted_laws_that_no_layer_must_satisfy_share_a_row(relu):
    rows = relu.rows()
    assert [status for status, _, _ in rows] == ["held"] * len(relu.held) + ["refuted", "n/a"]
    assert rows[-2][1].startswith("involution, boundedness(low=-1.0, high=1.0), monotonicity(decreasing=True)")
    every = [(status, law) for status, law, _ in relu.rows(all=True)]
    assert ("refuted", "involution()") in every
    assert "refuted  involution()" in relu.table(all=True)


def discover_laws(monkeypatch, target, inputs, *names):
    module = sys.modules[candidate_laws.__module__]
    laws = [law for law in candidate_laws(inputs) if law.name in names]
    monkeypatch.setattr(module, "candidate_laws", lambda inputs: laws)
    return lawful.discover(target, inputs=inputs, cases=10)


def test_laws_of_these_weights_come_after_laws_of_any_weights(monkeypatch):
    """A new layer norm is odd, because its bias is zero; it is invariant to shifts for any weights."""
    found = discover_laws(monkeypatch, nn.LayerNorm(8), BC, "oddness", "shift_invariance", "no_mutation")
    rows = [(law, details) for status, law, details in found.rows() if status == "held"]
    assert rows == [
        ("shift_invariance(axis=1)", ""),
        ("no_mutation()", ""),
        ("oddness()", "for these weights only"),
    ]


def test_a_refuted_law_that_any_layer_should_satisfy_has_its_own_row(monkeypatch):
    def leaky(x):
        return x.cumsum(0)

    found = discover_laws(monkeypatch, leaky, BC, "batch_independence", "evenness")
    (first, second) = (row for row in found.rows() if row[0] == "refuted")
    assert first[1] == "batch_independence(batch=0)"
    assert "≠" in first[2]
    assert second == ("refuted", "evenness", "")


def test_the_mode_is_on_the_screen(monkeypatch):
    module = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5))
    found = discover_laws(monkeypatch, module, BC, "chunk_consistency")
    assert found.heading == "Sequential, tested in training and eval mode"
    assert "in eval mode only" in found.rows()[0][2]
    assert discover_laws(monkeypatch, module.eval(), BC, "chunk_consistency").heading.endswith("tested in eval mode")
    assert discover_laws(monkeypatch, torch.neg, BC, "oddness").heading == "neg"


def test_claims_run(relu, tmp_path, monkeypatch):
    (tmp_path / "relu_claims.py").write_text(relu.claims)
    monkeypatch.syspath_prepend(tmp_path)
    module = __import__("relu_claims")
    claims = list(module.claims())
    assert {c.law.name for c in claims} >= {"idempotence", "convexity"}
    assert {row.verdict.law for row in relu.held} == {str(c.law) for c in claims}
    assert all(isinstance(c.target, nn.ReLU) and c.label == "ReLU" for c in claims)
    sys.modules.pop("relu_claims")


def test_masks_and_several_inputs(few_laws):
    def attention(x, keep):
        scores = (x @ x.mT).masked_fill(~keep[:, None, :], -torch.inf)
        return scores.softmax(-1) @ x

    found = lawful.discover(attention, inputs=(shape("b t 4"), mask("b t")), cases=20)
    held = {law for row in found.held for law in (row.verdict.law, *row.implied)}
    assert "masked_positions_have_no_influence(time=1, keep=True)" in held
    assert "fully_masked_row_is_finite(keep=True)" in {row.verdict.law for row in found.refuted}
    assert 'shape("b t 4"), mask("b t")' in found.claims


def test_an_error_ends_the_search():
    found = lawful.discover(nn.Linear(3, 3), inputs=BC)
    assert not found.held
    assert [row.verdict.law for row in found.not_applicable if row.verdict.status == "error"] == ["determinism()"]


class Gain(nn.Module):
    def __init__(self, d, gain=2.0):
        super().__init__()
        self.gain = nn.Parameter(torch.full((d,), gain))

    def forward(self, x):
        return self.gain * x


@pytest.mark.parametrize(
    ("target", "inputs"),
    [
        (Gain(3), shape("b 3")),
        (lambda x: -x, shape("b 3")),
        (torch.neg, torch.randn(2, 3)),
        (nn.Sequential(nn.Linear(3, 3)), {"input": shape("b 3")}),
        (torch.neg, lambda draw: draw.normal(2, 3)),
    ],
    ids=["arguments", "a lambda", "an example", "keywords", "a function"],
)
def test_claims_of_any_target(few_laws, target, inputs):
    text = lawful.discover(target, inputs=inputs, cases=2).claims
    compile(text, "claims", "exec")
    assert "yield Claim(law, module, inputs" in text


def test_a_linear_layer_with_bias_is_affine(monkeypatch):
    names = ("linearity", "affinity", "convexity")
    module = sys.modules[candidate_laws.__module__]
    monkeypatch.setattr(
        module, "candidate_laws", lambda inputs: [law for law in candidate_laws(inputs) if law.name in names]
    )
    found = lawful.discover(nn.Linear(8, 3), inputs=BC)
    assert [(row.verdict.law, row.implied) for row in found.held] == [("affinity()", ("convexity()",))]
    assert [row.verdict.law for row in found.refuted] == ["linearity()"]


@pytest.mark.parametrize("name", ["Layer", "\U00020000", "a\x7fb", 'a"b\\'])
def test_the_claims_have_the_name(name):
    text = _write_claims([lawful.laws.causality(time=1)], name, "Layer()", "layers", shape("b t 4"))
    (call,) = (c for c in ast.walk(ast.parse(text)) if isinstance(c, ast.Call) and getattr(c.func, "id", "") == "Claim")
    assert [ast.literal_eval(k.value) for k in call.keywords] == [name]
    assert all(c.isprintable() or c == "\n" for c in text)
