"""What the README and the pages for users say in numbers."""

import json
import math
import tomllib
from importlib.util import module_from_spec, spec_from_file_location

import numpy as np
import pytest

import lastiterate as li
from lastiterate.linear_model.classifiers import PrivateLogisticRegression
from lastiterate.reproduce import chien_li as unlearning_figures
from lastiterate.tables import encoder as file_encoding
from lastiterate.train.defaults import default_run, gaussian_parameter
from lastiterate.train.noise import SharedBits
from lastiterate.train.objectives import Huber, Logistic, Softmax
from lastiterate.train.settings import RunSettings
from tests.readme_run import accounted, readme_run

from .claims import RUN, claim, text_of, value
from .pages import ROOT

R, LAM = 7.0, 0.1  # any


def constants(objective):
    """Smoothness, the bound on gradients, and the sensitivity under replacement."""
    return pytest.approx(
        (
            objective.loss(radius=R, l2=LAM).smoothness,
            objective.gradient_bound(radius=R),
            objective.sensitivity(radius=R, adjacency="replace"),
        ),
        rel=1e-12,
    )


LOGISTIC, SOFTMAX = Logistic(clip=1.0), Softmax(classes=3, clip=2**0.5)  # never clipped


@claim("README.md", r"Both need only Python ([\d.]+)\+ and make")
@claim("docs/index.md", r"\nPython ([\d.]+) or newer\.")
def python_version(least):
    project = tomllib.loads(text_of("pyproject.toml"))["project"]
    assert project["requires-python"] == f">={least}"


@claim(
    "docs/tables.md",
    r"(\d+) bytes for each feature of a row, so about ([\d.]+) GB for ([\d,]+) rows of (\d+)",
)
def memory_of_rows(each, in_all, rows, features):
    assert int(each) == file_encoding._COPIES * np.dtype(np.float32).itemsize
    size = int(each) * int(rows.replace(",", "")) * int(features) / 1e9
    assert round(size, 1) == float(in_all)


@claim(
    "README.md",
    r"L2 penalty of ([\d.]+) and delta ([\de-]+), the last one ([\d.]+) and ([\de-]+)",
)
def the_table(*said):
    """Whose rows tests/test_examples.py compares with what the example prints."""
    example = text_of("examples/epsilon_by_epochs.py")
    small = f"{said[1]}, *SMALL, 30, {said[0]})"
    assert small in example
    assert small.replace("30", "300", 1) in example
    assert f"{said[3]}, *LARGE, 100, {said[2]})" in example


@claim(
    "README.md",
    r"At epsilon (\d) models reach ([\d.]+) % test accuracy on Adult and ([\d.]+) % on MNIST; "
    r"\[fixed features\]\(docs/features.md\) cost no privacy and give ([\d.]+) % on MNIST, "
    r"([\d.]+) % on CIFAR-10 \(with mirrored images\). Without such features the best "
    r"other libraries reach ([\d.]+) % and ([\d.]+) %, tuned \*on the test set\*, which favours "
    r"them",
)
def accuracy_on_real_data(epsilon, *told):
    results = json.loads(text_of("benchmarks/utility.json"))
    rivals = {key.split("|")[3] for key in results} - {"DP-SGD as in Opacus"}

    def mean(data, method, kind):
        return np.mean(results[f"{data}|20|{epsilon}|{method}"][kind])

    ours = [mean(data, "ours, untuned", "default") for data in ("adult", "mnist")]
    tuned = [
        max(
            mean(data, one, "tuned")
            for one in rivals
            if "tuned" in results.get(f"{data}|20|{epsilon}|{one}", ())
        )
        for data in ("adult", "mnist")
    ]
    kept = json.loads(text_of("benchmarks/features.json"))
    with_features = [
        np.mean([kept[f"{rows}/replace/{epsilon}/{seed}"]["accuracy"] for seed in range(5)])
        for rows in ("mnist/scattering", "cifar/mirrored")
    ]
    expected = [*ours, *with_features, *tuned]
    assert [f"{one:.1f}" for one in expected] == list(told)


@claim("docs/choosing.md", r"here they have epsilon ([\d.]+) where composition has ([\d.]+)")
def sampled_batches(ours, composed):
    report = accounted(readme_run(li.SampledWithoutReplacement))
    assert f"{report.epsilon(1e-5):.2f}" == ours
    assert f"{report.all['composition/sampled'].epsilon(1e-5):.2f}" == composed


def planned(objective):
    return default_run(objective, RunSettings(epsilon=1.0, delta=1e-5), examples=5_000, radius=1.0)


@claim("docs/choosing.md", r"at most `2/smoothness`; the trainers take it \|[^|]*: half of it")
def step_sizes():
    for objective, product in ((Logistic(), 2.0), (Softmax(classes=3), 2.0), (Huber(clip=1.0), 1)):
        run = planned(objective)
        assert run.step_size * run.loss.smoothness == pytest.approx(product, rel=1e-12)


@claim("docs/choosing.md", r"worth half an epoch: `([^`]+)`")
def release_noise(formula):
    run = planned(Logistic())
    names = {
        "step_size": run.step_size,
        "noise_std": run.noise_std,
        "batches_per_epoch": run.batches.batches_per_epoch,
    }
    assert run.release_noise_std == pytest.approx(value(formula, **names), rel=1e-9)


@claim("docs/choosing.md", r"\| batches \| `(\w+)`")
def batches_of_the_trainers(rule):
    assert type(planned(Logistic()).batches).__name__ == rule


@claim("docs/choosing.md", r"\| penalty \(l2\) \| (\d) if you stop early")
def penalty_of_the_trainers(l2):
    assert PrivateLogisticRegression().l2 == float(l2)


@claim("docs/choosing.md", r"\| delta \| below 1/examples, ([\de-]+) or less")
def delta_of_the_trainers(delta):
    assert PrivateLogisticRegression().delta == float(delta)


@claim("docs/choosing.md", r"after about `([^`]+)` passes")
def when_a_ball_matters(formula):
    ball = li.Ball(diameter=0.3)
    passes = value(formula, diameter=0.3, batch_size=1_500, step_size=0.05, sensitivity=10.0)
    for share, helps in ((0.95, False), (1.05, True)):
        flat = RUN.replace(loss=li.Loss(smoothness=32.5), steps=round(share * passes) * 40)
        free, held = (
            li.account(one, bounds="fixed-order").gdp() for one in (flat, flat.replace(domain=ball))
        )
        assert (held < free * (1 - 1e-9)) == helps


@claim("docs/dp-sgd.md", r"gradients of norm at most (R) \(two classes\) or `([^`]+)` \(more\)")
def gradients(two, more):
    for formula, objective in ((two, LOGISTIC), (more, SOFTMAX)):
        assert value(formula, R=R) == pytest.approx(objective.gradient_bound(radius=R), rel=1e-12)


@claim(
    "docs/dp-sgd.md",
    r"are ([\d,]+) rows of norm(?s:.*?)# ([\d.]+); (?s:.*?)shuffles, and has ([\d.]+);",
)
def numbers_of_the_loop(rows, drawn, shuffled):
    """The loop itself is run in tests/opacus."""
    examples, settings = int(rows.replace(",", "")), {"clip_norm": 1.0, "noise_multiplier": 1.0}
    loss = li.Loss(smoothness=0.26, regulariser=0.01, lipschitz=1.0, outputs=1)
    rules = (
        (li.PoissonSampled(examples, examples // 98, sample_rate=1 / 98), drawn),
        (li.ShuffledEachEpoch(examples, 512), shuffled),
    )
    for rule, said in rules:
        run = li.TrainingRun.from_dp_sgd(
            batches=rule, epochs=30, step_size=0.5, loss=loss, **settings
        )
        assert li.account(run).epsilon(1e-5) == pytest.approx(float(said), abs=0.005)


@claim(
    "docs/dp-sgd.md",
    r"For ([\d,]+) examples, batches of (512), (30) epochs, noise multiplier (1) and delta (1e-5), "
    r"(?s:.*?)`BallsAndBinsSampler\(dataset, 512\)` (?s:.*?)\| ([\d.]+) \|(?s:.*?)"
    r"`BalancedSampler\(dataset, 512, epochs=30\)` (?s:.*?)\| ([\d.]+) \|(?s:.*?)"
    r"`PoissonSampler\(dataset, 512\)` (?s:.*?)\| ([\d.]+) \|(?s:.*?)"
    r"a fixed order is proved, which has ([\d.]+)\.",
)
def samplers(rows, size, epochs, noise, delta, bins, balanced, poisson, fixed):
    examples, size = int(rows.replace(",", "")), int(size)
    rules = {
        "composition/balls-and-bins": (li.BallsAndBinsEachEpoch(examples, size), bins),
        "composition/balanced": (li.BalancedSampled(examples, size, int(epochs)), balanced),
        "composition/sampled": (li.PoissonSampled(examples, size), poisson),
        "composition/fixed-order": (li.ShuffledEachEpoch(examples, size), fixed),
    }
    for bound, (rule, said) in rules.items():
        run = li.TrainingRun.from_dp_sgd(
            batches=rule,
            steps=int(epochs) * (examples // size),
            clip_norm=1.0,
            noise_multiplier=float(noise),
        )
        report = li.account(run)
        assert report.bound == bound
        assert said == f"{math.ceil(100 * report.epsilon(float(delta))) / 100:.2f}"


@claim("docs/dp-sgd.md", r"the same (32) secret bytes as `shared_key`")
def bytes_of_a_key(count):
    SharedBits(bytes(int(count)))
    with pytest.raises(li.InvalidParameter):
        SharedBits(bytes(int(count) - 1))


def most_rightly_said(epsilon, wrongly, delta):
    """From the definition, for the event and for its complement."""
    return min(math.exp(epsilon) * wrongly + delta, 1 - math.exp(-epsilon) * (1 - wrongly - delta))


@claim(
    "docs/privacy-officer.md",
    r"For epsilon (1) the factor is ([\d.]+), and the constant is delta, by default one in a "
    r"hundred thousand: (?s:.*?) about (\d) in 100 rows, the odds that a \"used\" is right are at "
    r"most ([\d.]+) to 1",
)
def odds(epsilon, factor, wrongly, most):
    assert PrivateLogisticRegression().delta == 1e-5
    assert factor == f"{math.ceil(100 * math.exp(float(epsilon))) / 100:.2f}"
    share = float(wrongly) / 100
    assert most_rightly_said(float(epsilon), share, 1e-5) / share <= float(most)


@claim("docs/linear-models.md", r"This takes ([\d.]+) of mu")
def centring_share(share):
    rows = np.random.default_rng(0).normal(size=(2_000, 3))
    model = PrivateLogisticRegression(epsilon=1.0).fit(rows, rows[:, 0] > 0)
    assert model.privacy_.other_releases[0].mu == pytest.approx(
        float(share) * gaussian_parameter(1.0, 1e-5), rel=1e-6
    )


@claim(
    "docs/notation.md",
    r"\| logistic, two classes \| \$R\^2/4 \+ \\lambda\$ \| \$R\$ \| \$2R\$ \|\n"
    r"\| softmax, three or more \| \$R\^2/2 \+ \\lambda\$ \| \$\\sqrt 2 R\$ \| \$2\\sqrt 2 R\$ \|\n"
    r"\| squared error, residuals clipped to \$c\$ \| \$R\^2 \+ \\lambda\$ \| \$cR\$ \| \$2cR\$ \|",
)
def common_losses():
    root, c = 2**0.5, 3.0
    assert constants(LOGISTIC) == (R**2 / 4 + LAM, R, 2 * R)
    assert (R**2 / 2 + LAM, root * R, 2 * root * R) == constants(SOFTMAX)
    assert (R**2 + LAM, c * R, 2 * c * R) == constants(Huber(clip=c))


SELECTIONS = json.loads(text_of("benchmarks/private_selection.json"))


@claim(
    "docs/ledger.md",
    r"of epsilon (\d) at delta (\S+), with ([\d,]+) examples and a grid of (\d+) settings",
)
def tuned_models(epsilon, delta, examples, settings):
    (_, *_, least) = sorted(one["epsilon"] for one in SELECTIONS)
    assert 0.99 * float(epsilon) < least <= float(epsilon)
    assert {one["examples"] for one in SELECTIONS} == {int(examples.replace(",", ""))}
    source = text_of("benchmarks/private_selection.py")
    assert f"DELTA = {delta}" in source
    assert f"1e3, {settings})" in source


@claim(
    "docs/ledger.md",
    r"One try has epsilon ([\d.]+); (\d+) of them, composed, would have ([\d.]+)\.",
)
def tries_composed(one_try, many, together):
    for one in SELECTIONS:
        assert float(one_try) == pytest.approx(one["epsilon of one try"], abs=0.005)
        assert float(together) == pytest.approx(
            one[f"epsilon of {many} tries, composed"], abs=0.005
        )


@claim(
    "docs/errata.md",
    r"written out: ([\d.]+) on MNIST for epsilon ([\d.]+), and ([\d.]+) on CIFAR-10 "
    r"\(n = ([\d,]+)\) for epsilon (\d)\. Both lack a factor of a hundred",
)
def noise_that_is_too_small(first, epsilon, second, examples, other):
    many = int(examples.replace(",", ""))
    for steps in (2, 5):
        for wanted, told, given in (
            (epsilon, unlearning_figures.FULL, first),
            (other, many, second),
        ):
            found = unlearning_figures.langevin_epsilon(
                100 * float(given), examples=told, extra_steps=steps
            )
            assert found == pytest.approx(float(wanted), rel=0.01)


def benchmark_of(name):
    spec = spec_from_file_location(name, ROOT / f"benchmarks/{name}.py")
    module = module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        spec.loader.exec_module(module)
    return module, json.loads(text_of(f"benchmarks/{name}.json"))


@claim(
    "docs/unlearning.md",
    r"for epsilon 1 in ([\d,]+) steps, accuracy ([\d.]+) %\), removing one row at epsilon ([\d.]+) "
    r"takes one extra step",
)
def accuracy_before_unlearning(steps, accuracy, epsilon):
    found = benchmark_of("unlearning")[1]["3 against 8"]
    assert (f"{found['steps']:.0f}", f"{found['accuracy']:.1f}") == (steps, accuracy)
    assert found[f"1 {epsilon} 1.0"]["steps"] == 1


@claim("docs/unlearning.md", r"epsilon 1 becomes ([\d.]+) after a request of one step and ([\d.]+)")
def epsilon_of_those_who_stay(one, fourteen):
    found = benchmark_of("unlearning")[1]["3 against 8"]
    assert [f"{found[k]['staying']:.2f}" for k in ("1 1.0 1.0", "1 0.1 1.0")] == [one, fourteen]
    assert [found[k]["steps"] for k in ("1 1.0 1.0", "1 0.1 1.0")] == [1, 14]
