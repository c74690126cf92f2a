"""The first lines that a user of PyTorch, scikit-learn and Hugging Face types, by topic, and how many files run."""

import ast
import collections
import copy
import importlib.metadata
import inspect
import pickle
import random
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from torch import nn
from torch.nn import functional as F

import lawful
from lawful.blocks import HeadSpec, MultiHeadAttention
from lawful.cli import main
from lawful.cli.train import parse_recipe
from lawful.functions import CAUSAL, NO_MASK, Mask
from lawful.groups import SO3
from lawful.laws import batch_independence, causality, equivariance, masked_positions_have_no_influence
from lawful.models import GPT2, DiffusionModel, TimeMLP, gpt, mlp_vae
from lawful.recipes import RECIPES, ClassifyRecipe

SOURCE = Path(inspect.getfile(lawful)).parent
TRAINING = {"law_cases": 0, "threads": 1}
QUICK = ["--law-cases", "0", "--threads", "1"]


def names(module, words):
    """One case for each name of a module."""
    return [pytest.param(module, name, id=f"{module}.{name}") for name in words.replace(",", " ").split()]


@pytest.mark.parametrize(
    ("module", "name"),
    [
        *names("lawful", "check discover shape tokens mask train load export Recipe Run TrainingSetup TrainerConfig"),
        *names(
            "lawful", "laws blocks models groups functions solvers optim training recipes probe testing data losses"
        ),
        *names(
            "laws",
            "causality, batch_independence, permutation_equivariance, equivariance, invariance, gradient, "
            "invertibility, log_determinant, linearity, determinism",
        ),
        *names("testing", "assert_lawful"),
        *names(
            "blocks",
            "MultiHeadAttention, RotaryEmbedding, ALiBi, LearnedPositions, SinusoidalPositions, KVCache, "
            "GatedFeedForward, AdaNorm, StochasticDepth, HeadSpec, CAUSAL, Mask",
        ),
        *names(
            "models",
            "gpt, GPT2, encoder, encoder_decoder, MLP, CNN, VAE, GAN, PCA, UNet, Flow, DiffusionModel, spline_flow, "
            "nice, real_nvp, maf",
        ),
        *names("groups", "SO2, SO3, SE2, SE3, UnitQuaternions, SymmetricGroup, Cyclic, Dihedral, Euclidean"),
        *names(
            "functions",
            "sliding_window_attention, chunked_attention, linear_attention, whiten, pca_whitening, zca_whitening, "
            "kl_divergence, js_divergence, total_variation",
        ),
        *names("solvers", "gauss_newton, levenberg_marquardt, odeint"),
        *names("optim", "Lion, Muon, cosine_schedule, EMA"),
        *names("training", "TrainingSetup, TrainerConfig"),
        *names("recipes", "TextRecipe, ClassifyRecipe"),
        *names(
            "probe",
            "record, patch, logit_lens, attention_patterns, ablate_heads, activation_patching, find_induction_heads",
        ),
    ],
)
def test_name(module, name):
    """Submodules are there after `import lawful`."""
    package = lawful if module == "lawful" else getattr(lawful, module)
    assert hasattr(package, name)
    assert name in dir(package)


def test_package():
    assert lawful.__version__ == importlib.metadata.version("lawful")
    assert all(hasattr(lawful, name) for name in dir(lawful))
    assert {name for name in dir(lawful) if not name.startswith("__")} == {*lawful.__all__} - {"__version__"}


# ---------------------------------------------------------------- checking


class Leaky(nn.Module):
    """Attention without a mask, and a mask that is used."""

    def __init__(self):
        super().__init__()
        self.attention = MultiHeadAttention(16, num_heads=2)

    def forward(self, x, mask=None):
        return self.attention(x, mask=NO_MASK if mask is None else Mask(padding=mask))


@pytest.fixture(scope="module")
def report():
    laws = causality(time=1), batch_independence()
    return lawful.check(Leaky(), *laws, inputs=lawful.shape("b t 16"), cases=5)


def test_report(report):
    assert report.passed is False
    assert report.failures == (report["causality"],)
    assert len(report) == 2
    assert "refuted" in str(report)
    assert "1 held, 1 refuted" in repr(report)
    with pytest.raises(lawful.LawRefuted, match="causality"):
        report.raise_for_refuted()
    with pytest.raises(KeyError, match=r"matches 0 verdicts of: causality\(time=1\), batch_independence"):
        report["linearity"]


def test_verdict(report):
    verdict = report["causality"]
    assert verdict.status == "refuted"
    assert verdict.counterexample.inputs[0].name == "x"
    assert verdict.counterexample.left != verdict.counterexample.right
    assert verdict.seconds > 0
    assert "import torch" in verdict.script()


@pytest.mark.parametrize(
    ("layer", "law", "inputs"),
    [
        pytest.param(Leaky(), causality(time=1), torch.randn(2, 5, 16), id="example"),
        pytest.param(
            Leaky(),
            masked_positions_have_no_influence(),
            {"x": lawful.shape("b t 16"), "mask": lawful.mask("b t")},
            id="dict",
        ),
        pytest.param(
            lambda x: x * x.norm(dim=-1, keepdim=True),
            equivariance(group=SO3(), axis=-1),
            lawful.shape("n 3"),
            id="group",
        ),
    ],
)
def test_inputs_of_a_check(layer, law, inputs):
    (verdict,) = lawful.check(layer, law, inputs=inputs, cases=5)
    assert verdict.status == ("refuted" if law.name == "causality" else "held"), verdict


def test_discover(monkeypatch):
    """The laws are few, so that the test is short."""
    module = sys.modules[lawful.discover.__module__]
    laws = [causality(time=1), batch_independence()]
    candidates = module.candidate_laws
    kept = {law.name for law in laws}
    monkeypatch.setattr(
        module, "candidate_laws", lambda *args, **options: [c for c in candidates(*args, **options) if c.name in kept]
    )
    found = lawful.discover(MultiHeadAttention(16, num_heads=2), inputs=lawful.shape("b t 16"), cases=3)
    assert [row.verdict.law for row in found.held] == ["batch_independence(batch=0)"]
    assert "causality(time=1)" in [row.verdict.law for row in found.refuted]


# ---------------------------------------------------------------- blocks and models


def test_attention():
    x, context = torch.randn(2, 5, 64), torch.randn(2, 7, 64)
    attention = MultiHeadAttention(
        dim=64, num_heads=4, num_kv_heads=2, head_dim=16, qk_norm=True, dropout=0.1, bias=False
    ).eval()
    assert attention(x).shape == attention(x, context).shape == x.shape
    assert torch.equal(attention(x, mask=CAUSAL), attention(x, is_causal=True))
    cache = attention.cache()
    assert attention(x, cache=cache).shape == x.shape
    assert cache.length == 5
    mixed = MultiHeadAttention(dim=64, heads=[HeadSpec(key=8), HeadSpec(key=32, value=16)])
    assert mixed(x).shape == x.shape
    assert "64, num_heads=4, num_kv_heads=2, head_dim=16, dropout=0.1" in repr(attention)
    assert "heads=[1 of key 8, value 8; 1 of key 32, value 16]" in repr(mixed)
    assert repr(cache) == "KVCache(length=5)"


@pytest.fixture(scope="module")
def model():
    return gpt(vocab_size=65, dim=16, num_layers=1, num_heads=4, context_length=64, dropout=0.0)


@pytest.fixture(scope="module")
def tokens():
    return torch.randint(65, (2, 8))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.compile
def test_language_model(model, tokens):
    logits = model(tokens)
    F.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
    assert model.generate(tokens, max_new_tokens=5, temperature=0.8, top_k=40).shape == (2, 5)
    other = copy.deepcopy(model)
    model.load_state_dict(other.state_dict())
    assert torch.equal(pickle.loads(pickle.dumps(model))(tokens), model(tokens))
    assert isinstance(torch.compile(model), nn.Module)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.compile
def test_compiled_model(model, tokens):
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    for length in (8, 5, 3):  # the second one makes the length dynamic
        torch.testing.assert_close(compiled(tokens[:, :length]), model(tokens[:, :length]))


def test_torch_export(model, tokens):
    exported = torch.export.export(model.eval(), (tokens,))
    assert torch.allclose(exported.module()(tokens), model(tokens), atol=1e-5)


def test_pretrained(tmp_path, tokens):
    """tests/models/test_gpt2_weights.py compares with Hugging Face's model."""
    config = transformers.GPT2Config(vocab_size=65, n_embd=16, n_layer=1, n_head=2, n_positions=16, eos_token_id=0)
    theirs = transformers.GPT2LMHeadModel(config).eval()
    model = GPT2.from_pretrained(theirs)
    model.save_pretrained(tmp_path)
    for again in (GPT2.from_pretrained(tmp_path), transformers.GPT2LMHeadModel.from_pretrained(tmp_path)):
        y = again(tokens)
        torch.testing.assert_close(getattr(y, "logits", y), theirs(tokens).logits)


def test_flow():
    flow = lawful.models.spline_flow(dim=2, hidden_dims=[8])
    x = 0.1 * torch.randn(50, 2) + 1
    optimizer, before = torch.optim.Adam(flow.parameters(), lr=0.005), flow.log_prob(x).mean()
    for _ in range(5):
        optimizer.zero_grad()
        (-flow.log_prob(x).mean()).backward()
        optimizer.step()
    assert flow.log_prob(x).mean() > before
    assert flow.sample(100).shape == flow.sample((100,)).shape == (100, 2)
    assert not flow.sample(100).requires_grad
    samples = flow.rsample((100,))
    assert samples.shape == (100, 2)
    samples.mean().backward()


def test_vae():
    vae, x = mlp_vae(6, latent_dim=2), torch.rand(3, 6)
    z = vae.encode(x)
    assert vae.elbo(x).shape == (3,)
    assert z.shape == (3, 2)
    assert vae.sample(16).shape == (16, 6)
    assert len(vae.decode(z)) == 3


def test_pca():
    x = torch.randn(50, 10)
    pca = lawful.models.PCA(n_components=8).fit(x)
    z = pca.transform(x)
    assert z.shape == (50, 8)
    assert pca.inverse_transform(z).shape == x.shape
    assert pca.explained_variance_ratio.shape == (8,)


def test_diffusion():
    diffusion = DiffusionModel(TimeMLP((2,), dim=8, num_classes=3), shape=(2,), num_classes=3)
    y = torch.randint(3, (16,))
    assert diffusion.sample(16, steps=18, guidance_scale=2.0, labels=y).shape == (16, 2)
    assert diffusion.log_prob_estimate(torch.zeros(4, 2)).value.shape == (4,)


# ---------------------------------------------------------------- groups, functions, solvers, activations


def test_group():
    group, v = SO3(), torch.randn(10, 3)
    a, b = group.sample(10), group.exp(v)
    assert group.log(b).shape == v.shape
    assert group.compose(a, b).shape == group.inverse(b).shape == (10, 3, 3)
    assert group.act(b, v).shape == v.shape
    assert repr(group) == "SO3()"
    with pytest.raises(ValueError, match="expected rotation matrices"):
        group.log(-b)


def test_functions():
    q, x = torch.randn(2, 4, 8, 16), torch.randn(50, 3)
    assert lawful.functions.sliding_window_attention(q, q, q, window=4).shape == q.shape
    assert lawful.functions.chunked_attention(q, q, q).shape == q.shape
    assert lawful.functions.linear_attention(q, q, q).shape == q.shape
    assert torch.allclose(lawful.functions.whiten(x).T.cov(correction=0), torch.eye(3), atol=1e-3)
    p, r = torch.rand(2, 3, 4).softmax(-1)
    for divergence in ("kl_divergence", "js_divergence", "total_variation"):
        assert getattr(lawful.functions, divergence)(p, r).shape == (3,)


def test_solvers():
    def residual(x):
        return x**2 - 2

    for solve in (lawful.solvers.gauss_newton, lawful.solvers.levenberg_marquardt):
        assert torch.allclose(solve(residual, torch.ones(1)).x, torch.tensor(2.0).sqrt())
    y = lawful.solvers.odeint(lambda t, y: -y, torch.ones(2), torch.linspace(0, 1, 5))  # f(t, y), as torchdiffeq
    assert y.shape == (5, 2)
    assert torch.allclose(y[-1], torch.ones(2) / torch.e, atol=1e-4)


def test_record(model, tokens):
    with lawful.probe.record(model) as cache:
        model(tokens)
    assert cache["layers.0.attention.pattern"].shape == (2, 4, 8, 8)
    assert lawful.probe.attention_patterns(model, tokens).keys() == {"layers.0.attention.pattern"}
    assert lawful.probe.logit_lens(model, tokens).shape[-1] == 65
    assert "layers.1.feed_forward" in cache.keys()  # noqa: SIM118
    with pytest.raises(KeyError, match=r"did you mean layers\.0\.attention\.pattern"):
        cache["layers.0.attn.pattern"]


def test_probes(model, tokens):
    heads = lawful.probe.find_induction_heads(model, threshold=-1.0)
    assert {(name, head) for name, head, _ in heads} == {("layers.0.attention", head) for head in range(4)}
    with lawful.probe.ablate_heads(model, heads):
        ablated = model(tokens)
    assert not torch.allclose(ablated, model(tokens))
    effects = lawful.probe.activation_patching(
        model, tokens, tokens.flip(0), names="layers.*.attention", metric=lambda logits: logits[0, -1, 0]
    )
    assert effects["layers.0.attention"] != 0


# ---------------------------------------------------------------- training and the command line


TRAIN = {
    "text": "train text --data book.txt --steps 500 --batch-size 32 --learning-rate 3e-4 --weight-decay 0.1 "
    "--warmup-steps 100 --num-layers 4 --num-heads 4 --dim 128 --context-length 64 --dropout 0.1 --optimizer adamw "
    "--seed 1 --device cpu --precision bfloat16 --output-dir runs",
    "classify": "train classify --data flowers.csv --target species --epochs 20 --batch-size 64 --learning-rate 1e-3 "
    "--hidden-dims 64 64 --dropout 0.1 --label-smoothing 0.1 --patience 5",
    "vae": "train vae --data images/ --latent-dim 8 --beta 1.0",
    "diffusion": "train diffusion --data images/ --steps 2000",
}
SIZES = {
    "text": "--steps 2 --warmup-steps 1 --batch-size 2 --dim 16 --num-layers 1 --context-length 8 --ngram-dim 0",
    "classify": "--epochs 1",
    "vae": "--steps 2 --num-importance-samples 1",
    "diffusion": "--steps 2 --conditional --num-scored 1 --sampling-steps 2 --model unet --channels 4",
}
"""The last value of an option counts, so that these make the lines quick."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a text, tables, images and the runs of the lines in `TRAIN`, and of a flow."""
    folder, draw = tmp_path_factory.mktemp("api"), random.Random(0)
    (folder / "book.txt").write_text("Once upon a time the cat sat on the mat.\n" * 30)
    rows = [(f"{draw.gauss(i % 3, 0.3):.3f},{draw.gauss(-(i % 3), 0.3):.3f}", "abc"[i % 3]) for i in range(45)]
    (folder / "flowers.csv").write_text("x,y,species\n" + "".join(f"{row},{name}\n" for row, name in rows))
    (folder / "new.csv").write_text("x,y\n" + "".join(f"{row}\n" for row, _ in rows))
    numbers = np.random.default_rng(0)
    for i in range(10):
        label = folder / "images" / "37"[i % 2]
        label.mkdir(parents=True, exist_ok=True)
        Image.fromarray(numbers.integers(0, 255, (8, 8), dtype=np.uint8)).save(label / f"{i}.png")
    Image.fromarray(numbers.integers(0, 255, (8, 8), dtype=np.uint8)).save(folder / "image.png")
    Image.fromarray(np.full((8, 8), [255, 0] * 4, dtype=np.uint8)).save(folder / "mask.png")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys.modules["lawful.probe.figures"], "save", lambda *arguments, **options: None)
        for name, line in TRAIN.items():
            assert main([*shlex.split(line), *SIZES[name].split(), *QUICK]) == 0, name
        lawful.train("flow", data="new.csv", steps=2, lr=1e-3, **TRAINING)
    return folder


@pytest.fixture
def work_dir(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "80")
    return folder


def test_run(work_dir):
    run = lawful.Run("runs/text-001")
    assert [line["step"] for line in run.metrics][-1] == 2
    assert run.results["validation"]["loss"] > 0
    assert run.path == Path("runs/text-001")
    assert run.report.is_file()
    assert repr(run).startswith("<Run runs/text-001: text, finished")
    assert 'href="runs/text-001/report.html"' in run._repr_html_()


def test_load(work_dir):
    model = lawful.load("runs/text-001")
    text = model.generate("Once upon", max_new_tokens=5)
    assert isinstance(text, str)
    assert len(text) == 5
    assert model.generate(model.tokenizer.encode("Once upon"), max_new_tokens=5).shape == (1, 5)
    both = model.generate(["Once upon", "On"], max_new_tokens=5, temperature=0.0)
    assert both == [model.generate(prompt, max_new_tokens=5, temperature=0.0) for prompt in ("Once upon", "On")]
    classifier = lawful.load("runs/classify-001")
    assert lawful.inference.predict(classifier, torch.zeros(4, 2)).shape == (4, 3)
    assert len(classifier.predict([{"x": 0.0, "y": 1.0}])) == 1


@pytest.mark.parametrize("name", TRAIN)
def test_options_of_a_line(name):
    """The options as they stand in the line, without those that make the fixture quick."""
    _, _, *arguments = shlex.split(TRAIN[name])
    recipe, output_dir = parse_recipe(RECIPES[name], arguments)
    assert recipe.data == arguments[1]
    assert output_dir == Path("runs")


def test_lawful_train_with_a_recipe(work_dir):
    recipe = ClassifyRecipe(data="flowers.csv", target="species", epochs=1, **TRAINING)
    assert lawful.train(recipe, output_dir="others").path == Path("others/classify-001")


@pytest.mark.parametrize(
    "line",
    [
        'generate runs/text-001 --prompt "Once" --max-new-tokens 5 --temperature 0.8 --top-k 40 --top-p 0.9 --seed 0',
        'generate runs/text-001 --prompt "Once" --max-new-tokens 5 --temperature 0.8 --top-k 40 --top-p 0.9 '
        "--num-beams 4 --seed 0",
        "train --resume runs/text-001",
        "sample runs/flow-001 -n 4 --output samples.csv",
        "sample runs/diffusion-001 -n 16 --output samples.png --label 3 --guidance-scale 2",
        "inpaint runs/diffusion-001 image.png --mask mask.png",
        "predict runs/classify-001 new.csv --output predictions.csv",
        "score runs/flow-001 new.csv",
        "export runs/text-001 --format safetensors --output model.safetensors",
        pytest.param("export runs/text-001 --format onnx --output model.onnx", marks=pytest.mark.long),
        "runs",
        "laws",
        "laws causality",
        "--version",
        "train --help",
        "train text --help",
    ],
)
def test_command(line, work_dir, capsys):
    assert main(shlex.split(line)) == 0
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flag", "option", "value"),
    [
        ("--lr 0.1", "learning_rate", 0.1),
        ("--layers 3", "num_layers", 3),
        ("--heads 2", "num_heads", 2),
        ("--d-model 64", "dim", 64),
        ("--block-size 32", "context_length", 32),
        ("--bs 3", "batch_size", 3),
        ("--wd 0.5", "weight_decay", 0.5),
        ("--max-steps 7", "steps", 7),
        ("--grad-clip 0.5", "grad_clip_norm", 0.5),
        ("--ema 0.9", "ema_decay", 0.9),
    ],
)
def test_other_names_of_flags(flag, option, value):
    recipe, _ = parse_recipe(RECIPES["text"], ["--data", "book.txt", *flag.split()])
    assert getattr(recipe, option) == value


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("train text --test-size 0.1", "--validation-fraction"),
        ("train text --eval-every 10", "--num-evals"),
        ("train text --name mine", "--output-dir"),
        ("export runs/text-001 --format onnx --output model.txt", "output must end with .onnx"),
        ("export runs/text-001 --output model.pt2 --method encode", "method must be one of forward for"),
        ("sample runs/flow-001 --label 3 --guidance-scale 2", "guidance_scale"),
        ("inpaint runs/flow-001 image.png --mask mask.png", "does not inpaint"),
    ],
)
def test_command_names_the_remedy(line, message, work_dir, capsys):
    assert main(shlex.split(line)) == 4
    shown = capsys.readouterr()
    assert message in shown.out + shown.err


def test_check(work_dir, capsys, monkeypatch):
    """The parsed request of `lawful check`; tests/test_cli.py runs it."""
    requests = []
    monkeypatch.setattr(
        sys.modules["lawful.cli.check"], "_run_with_progress", lambda request, *_: requests.append(request)
    )
    main(["check", "layer.py:MyAttention", "--law", "causality:time=1", "--input", "b t 16"])
    (request,) = requests
    assert (request.target, request.laws, request.inputs) == ("layer.py:MyAttention", ["causality:time=1"], ["b t 16"])


# ---------------------------------------------------------------- the size of the library


def executed_files(function):
    """The files of the library, without `__init__`, that a call executes."""
    files = set()

    def profile(frame, event, argument):
        if event == "call":
            files.add(frame.f_code.co_filename)

    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
    inside = (Path(file) for file in files if file.startswith(str(SOURCE)))
    return {str(file.relative_to(SOURCE)) for file in inside if file.name != "__init__.py"}


def test_forward_executes_few_files(model, tokens):
    assert len(executed_files(lambda: model(tokens))) <= 9


def test_generate_executes_few_files(work_dir):
    line = ["generate", "runs/text-001", "--prompt", "Once", "--max-new-tokens", "5"]
    assert main(line) == 0
    assert len(executed_files(lambda: main(line))) <= 25


def definitions(path):
    """The names that a module defines at its top level."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (x.id for target in targets for x in ast.walk(target) if isinstance(x, ast.Name))


def test_class_names_are_unique():
    found = collections.defaultdict(list)
    for path in SOURCE.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(path.relative_to(SOURCE)))
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


@pytest.mark.parametrize(
    "package", [p.parent for p in sorted(SOURCE.rglob("__init__.py"))], ids=lambda path: str(path.relative_to(SOURCE))
)
def test_public_names_are_exported(package):
    """Every top-level name without underscore is in `__all__` of its package; the command line has no Python API."""
    if package in (SOURCE, SOURCE / "cli"):
        pytest.skip("no modules, or no Python API")
    module = ".".join(("lawful", *package.relative_to(SOURCE).parts))
    exported = {"claims", *getattr(importlib.import_module(module), "__all__", ())}
    missing = {
        f"{path.stem}.{name}"
        for path in package.glob("[!_]*.py")
        for name in definitions(path)
        if not name.startswith(("_", "pytest_")) and name not in exported
    }
    assert missing == set()
