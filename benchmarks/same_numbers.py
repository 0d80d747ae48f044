"""Every number that a change of form must leave alone, to the last digit, to be compared.

    python benchmarks/same_numbers.py before.json            # in one checkout
    python benchmarks/same_numbers.py after.json --than before.json

Rows are texts by name: epsilons of every bound, stage of a proof, lower bound and estimate over
batch rules and kinds of runs; calibration, unlearning, composition, the command; what seeded models
publish, and ledgers (`same_models.py`).  Exits with 1 and a list where two files differ, or where a
certificate of the first no longer holds.

Both checkouts run the newer program: it uses public names, but for the list of the lower bounds.
"""

import argparse
import json
import sys
import warnings
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from importlib import import_module
from io import StringIO
from itertools import product
from pathlib import Path
from random import Random

from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from rich.progress import track
from same_models import ISSUED, RULES, epsilons, fits, ledgers, public, said
from scoreboard import mnist, settings

import lastiterate as li
from lastiterate import features, linear_model
from lastiterate.cli import main as command

DRAWN = 20  # runs of each rule that combine what the regimes have
LONGER = ("strongly convex", "penalty, left out", "short steps", "ball", "not convex", "momentum")
HARD_TO_UNLEARN = ("BalancedSampled", "PoissonSampled", "SampledWithoutReplacement")
NOT_COVERED = {}  # names that no row is of, and why
STRONG = {"loss": li.Loss(smoothness=1.0, strong_convexity=0.1)}
CONVEX = {"loss": li.Loss(smoothness=1.0)}
BOUNDED = {"loss": li.Loss(smoothness=1.0, regulariser=0.1, lipschitz=0.6)}
LEFT_OUT = {"adjacency": "zero-out", "sensitivity": 0.5}
PENALTY = {"loss": li.Loss(smoothness=1.0, regulariser=0.1)} | LEFT_OUT
SHORT = {"loss": li.Loss(smoothness=0.2, regulariser=0.02, lipschitz=0.6, outputs=3)}
NON_CONVEX = {"loss": li.Loss(smoothness=0.3, convex=False)}
CLIPPED = {"loss": li.Loss(smoothness=0.1), "clip_norm": 0.5}
BALL = {"domain": li.Ball(1.0)}
PERSONS = {"examples_per_person": 2}
ORDER = {"releases": "last-iterate-and-order"}
ALL = {"releases": "every-iterate"}
MOMENTUM = {"momentum": 0.5, "step_size": 0.3}
EXPONENTIAL, TAIL = {"average": li.ExponentialAverage(0.8)}, {"average": li.TailAverage(2)}
SCHEDULES = {  # functions of the number of steps
    "step_size": lambda steps: [1.0 / (1.0 + k / 4.0) for k in range(steps)],
    "noise_std": lambda steps: [1.0 + k % 3 / 4.0 for k in range(steps)],
}
REGIMES = {
    "strongly convex": STRONG,
    "convex": CONVEX,
    "convex, left out": CONVEX | LEFT_OUT,
    "bounded gradients": BOUNDED,
    "penalty, left out": PENALTY,
    "not convex": NON_CONVEX,
    "not convex, ball": BALL | {"loss": li.Loss(smoothness=0.3, lipschitz=0.5, convex=False)},
    "Hoelder": {"loss": li.Loss(holder=(0.5, 0.5))},
    "Hoelder, ball": BALL | {"loss": li.Loss(holder=(0.5, 0.5))},
    "not smooth": {"loss": li.Loss(lipschitz=0.5)},
    "not smooth, ball": BALL | {"loss": li.Loss(lipschitz=0.5)},
    "ball": BALL | CONVEX,
    "ball, strongly convex": BALL | STRONG,
    "ball, bounded gradients": BALL | BOUNDED,
    "short steps": SHORT,
    "short steps, left out": SHORT | LEFT_OUT,
    "squares": {"loss": li.Loss(smoothness=0.8, strong_convexity=0.8)},
    "medium steps": STRONG | {"step_size": 0.5},
    "clipped": CLIPPED,
    "clipped, strongly convex": STRONG | {"clip_norm": 0.5},
    "momentum": STRONG | MOMENTUM,
    "momentum, Nesterov": CONVEX | MOMENTUM | {"nesterov": True},
    "momentum, dampened": CONVEX | MOMENTUM | {"dampening": 0.3},
    "momentum, reset": STRONG | MOMENTUM | {"buffer_resets": (2,)},
    "momentum, not convex": NON_CONVEX | MOMENTUM,
    "average, exponential": STRONG | EXPONENTIAL,
    "average, tail": CONVEX | TAIL,
    "persons": STRONG | PERSONS,
    "persons, left out": PENALTY | PERSONS,
    "release noise": STRONG | {"release_noise_std": 0.5},
    "order published": STRONG | ORDER,
    "every iterate": STRONG | ALL,
    "schedules": STRONG | SCHEDULES,
}
CHOICES = (  # what is listed more often is drawn more often
    (STRONG, CONVEX, BOUNDED, PENALTY, SHORT, NON_CONVEX, CLIPPED),
    ({}, {}, BALL, {"domain": li.Ball(5.0)}),
    ({}, {"adjacency": "replace"}, LEFT_OUT),
    ({}, {}, {}, PERSONS),
    ({}, {}, {"release_noise_std": 0.2}, {"release_noise_std": 1.0}),
    ({}, {}, {}, {}, ORDER, ALL),
    ({}, {}, {}, {}, {}, MOMENTUM, MOMENTUM | {"nesterov": True}, SCHEDULES, EXPONENTIAL, TAIL),
)


def upper_bounds():
    """The ids of all bounds, and of the stages of their proofs."""
    bounds = li.CATALOGUE.values()
    return [*li.CATALOGUE, *(one.id for bound in bounds for one in getattr(bound, "stages", ()))]


def lower_bounds():
    """All lower bounds by id, those that reports leave out among them."""
    for name in ("catalogue", "lower_catalogue"):
        try:
            return import_module(f"lastiterate.lower_bounds.{name}").LOWER_BOUNDS
        except ModuleNotFoundError:
            continue
    raise SystemExit("the list of the lower bounds has moved: name its module here")


def curve(profile, name):
    """A number of every other form of a guarantee."""
    yield f"{name} | delta at 1", said(profile.delta, 1.0)
    yield f"{name} | mu", said(profile.gdp)
    if hasattr(profile, "renyi"):  # lower bounds have none
        yield f"{name} | Renyi divergence of order 8", said(profile.renyi, 8.0)
        yield f"{name} | false negatives at 0.05", said(profile.tradeoff, 0.05)


def of_run(name, run, *, curves=False):
    """What each bound, stage, lower bound and estimate says of a run, and all bounds together."""
    name = f"account | {type(run.batches).__name__} | {name}"
    for id_ in [None, *upper_bounds()]:
        try:
            report = li.account(run, bounds=id_)
        except li.NoBoundApplies:
            continue
        each = f"{name} | {id_ or 'together'}"
        yield from epsilons(report, each)
        if id_ is None:
            yield f"{each} | bound", said(report.bound_at, 1e-5)
            for estimate, found in report.estimates.items():
                yield f"{name} | {estimate} | epsilon", said(found.epsilon_estimate, 1e-5)
        elif curves and not id_.startswith("published/"):
            yield from curve(report, each)
            yield f"{each} | by position", said(_positions, report)
    for id_, bound in lower_bounds().items():
        if not bound.unmet(run):
            profile = bound.profile(run)
            yield from epsilons(profile, f"{name} | {id_}")
            yield from curve(profile, f"{name} | {id_}")


def _positions(report):
    return [one.epsilon(1e-5) for one in report.by_position()]


def readme():
    """The runs behind the README's example and its table."""
    left_out = {"adjacency": "zero-out", "sensitivity": 5.0}
    penalty = {"loss": li.Loss(smoothness=32.502, regulariser=0.002)}
    yield "README, example, release noise", mnist(li.ShuffledOnce, release_noise_std=0.002)
    for epochs in (50, 200, 1_000, 10_000):
        steps = {"steps": 40 * epochs}
        yield f"README, shuffled once, {epochs}", mnist(li.ShuffledOnce, **steps)
        yield f"README, left out, {epochs}", mnist(li.ShuffledOnce, **steps, **left_out)
        poisson = mnist(li.PoissonSampled, clip_norm=5.0, **steps, **penalty)
        lipschitz = li.Loss(smoothness=32.502, regulariser=0.002, lipschitz=5.0)
        yield f"README, Poisson, {epochs}", poisson.replace(loss=lipschitz)
        yield (
            f"README, Poisson left out, {epochs}",
            mnist(li.PoissonSampled, **steps, **penalty, **left_out),
        )


def in_regimes():
    for (rule, made), (name, fields) in product(RULES.items(), REGIMES.items()):
        yield name, small_run(made, fields, Random(f"{rule}, {name}"))
        if name in LONGER and made is not li.FixedOrder:
            yield f"{name}, longer", usual_run(made, **{"steps": 200, **fields})
    # The constants of its theorem ask for a large domain and a long run.
    walk = CONVEX | LEFT_OUT | {"domain": li.Ball(1e3), "steps": 1_500, "sensitivity": 1.0}
    walk |= {"step_size": 1.0, "noise_std": 0.5}
    yield "random walk", li.TrainingRun(batches=li.SampledWithoutReplacement(2, 1), **walk)


def drawn():
    for (rule, made), number in product(RULES.items(), range(DRAWN)):
        source = Random(f"{rule}, {number}")
        fields = {}
        for choice in CHOICES:
            fields |= source.choice(choice)
        yield f"drawn, {number}", small_run(made, fields, source)


def small_run(rule, fields, source):
    """A run of a few batches and epochs; None if there are no such runs."""
    many, size, epochs = (source.choice(of) for of in ((2, 3, 5), (1, 2, 6), (1, 2, 3)))
    examples = many * size + source.choice((0, 0, min(1, size - 1)))
    steps = many * epochs + source.choice((0, 0, 1))
    noise = source.choice((1.0, 2.0, 4.0)) / (examples if rule is li.FullBatch else size)
    more = ()
    if rule is li.FixedOrder:
        more = (sorted(source.sample(range(1, steps + 1), epochs)),)
    elif rule is li.BalancedSampled:
        more = (source.choice((1, 2, 3)),)
    given = {"sensitivity": 1.0, "steps": steps, "step_size": 1.0, "noise_std": noise, **fields}
    given = {name: one(steps) if callable(one) else one for name, one in given.items()}
    try:
        batches = rule(examples) if rule is li.FullBatch else rule(examples, size, *more)
        return li.TrainingRun(batches=batches, **given)
    except li.InvalidParameter:
        return None


def usual_run(rule, **changes):
    """A run of three epochs of ten batches, near epsilon 1."""
    batches = rule(100) if rule is li.FullBatch else rule(100, 10)
    noise = 40.0 / batches.batch_size
    usual = {"sensitivity": 1.0, "steps": 30, "step_size": 1.0, "noise_std": noise}
    return li.TrainingRun(batches=batches, **{**STRONG, **usual, **changes})


def calibrated():
    for name, rule in RULES.items():
        if rule is li.FixedOrder:  # says which steps there are
            continue
        run, noisy = usual_run(rule), usual_run(rule, release_noise_std=1.0)
        quieter = run.replace(noise_std=2.0 * run.noise_std)
        for over, changed in {
            "noise_std": run,
            "release_noise_std": run,
            "noise": noisy,
            "steps": quieter,
        }.items():
            yield f"calibrate | {name} | {over}", said(_calibrated, changed, over)
        left_out = usual_run(rule, **PENALTY)
        yield f"calibrate | {name} | left out", said(_calibrated, left_out, "noise_std")


def _calibrated(run, over):
    found = li.calibrate(run, epsilon=1.0, delta=1e-5, over=over)
    return [found.noise_std, found.release_noise_std, found.steps]


def unlearned():
    target = {"epsilon": 0.5, "delta": 1e-5}
    for (name, rule), (adjacency, fields), (many, how) in product(
        RULES.items(),
        {"left out": PENALTY, "replaced": STRONG}.items(),
        ((1, {"extra_steps": 7}), (1, target), (3, {"extra_steps": 7}), (3, target)),
    ):
        hard = name in HARD_TO_UNLEARN and (many > 1 or how is target or fields is STRONG)
        if rule is li.FixedOrder or hard:
            continue
        run = usual_run(rule, release_noise_std=0.5, **fields)
        yield from _unlearned(f"unlearning | {name} | {many} {adjacency}, {[*how]}", run, many, how)
    kept = usual_run(li.ShuffledOnce, **PENALTY)
    yield from epsilons(li.unlearning(kept, extra_steps=9, order_kept=True), "unlearning | kept")


def _unlearned(name, run, many, how):
    try:
        found = li.unlearning(run, examples=many, **how)
    except li.LastIterateError as error:
        yield f"{name} | refused", type(error).__name__
        return
    yield f"{name} | steps", said(lambda: found.extra_steps)
    yield from epsilons(found, name)
    for other in ("before", "retained", "both_published"):
        yield f"{name} | {other}", said(lambda of=other: getattr(found, of).epsilon(1e-5))
    yield f"{name} | then", said(lambda: found.then(extra_steps=5).epsilon(1e-5))


def other_numbers():
    """Langevin sampling, plans, composition, shifts, imported runs, and the command."""
    for domain, strong in ((None, 1.0), (li.Ball(0.3), 0.0), (li.Ball(3.0), 0.5)):
        each = f"langevin | {domain}, {strong}"
        known = {"smoothness": 1.0, "strong_convexity": strong, "sensitivity": 0.5}
        chain = li.langevin(**known, step_size=0.1, steps=50, domain=domain)
        for name in ("privacy", "stationary", "exponential_mechanism"):
            yield from epsilons(getattr(chain, name), f"{each} | {name}")
        yield f"{each} | sample", said(partial(chain.sample, random_state=0), abs, [0.5, -1.0])
    known = {"lipschitz": 1.0, "smoothness": 1.0, "strong_convexity": 0.1}
    plan = li.plan(examples=1_000, dimension=5, epsilon=1.0, delta=1e-5, **known)
    risks = [plan.excess_risk, plan.published.excess_risk]
    yield "plan", said(lambda: [plan.run.to_json(), risks])
    shifts = li.optimal_shifts(
        contraction=0.9, sensitivity=[1.0, 0.0, 0.5, 0.0], noise=1.0, start=0.3, diameter=1.2
    )
    yield "optimal shifts", said(lambda: [shifts.mu, shifts.a, shifts.z])
    gaussian = li.GaussianProfile(1.0)
    cyclic, shuffled = (li.account(usual_run(rule)) for rule in (li.Cyclic, li.ShuffledOnce))
    for name, profile in {
        "Gaussian": gaussian,
        "reports": li.compose(cyclic, shuffled, gaussian),
        "losses": li.from_pld(gaussian.to_pld(discretization=1e-2)),
        "twice": li.compose(shuffled, shuffled),
    }.items():
        yield from (*epsilons(profile, f"profile | {name}"), *curve(profile, f"profile | {name}"))
    event = SelfComposedDpEvent(PoissonSampledDpEvent(0.01, GaussianDpEvent(2.0)), 30)
    imported = li.TrainingRun.from_dp_event(event, clip_norm=2.0, examples=1_000)
    yield "imported", said(imported.to_json)
    sgd = "--examples 6000 --batch-size 600 --epochs 3 --clip-norm 1 --noise-multiplier 2"
    known = f"{sgd} --step-size 0.5 --smoothness 1 --lipschitz 1 --regulariser 0.01"
    for words in (sgd, known, f"{known} --batches shuffled-once", f"{sgd} --batches sampled"):
        for doing in ("account", "calibrate"):
            answer = json.loads(_printed(doing, *words.split(), "--json"))
            named = {name: answer.get(name) for name in ("epsilon", "all", "run")}
            yield f"command | {doing} {words}", json.dumps(named)


def _printed(*words):
    with redirect_stdout(StringIO()) as printed, redirect_stderr(StringIO()):
        command(words)
    return printed.getvalue()


def measured():
    """All rows by name."""
    parts = [partial(of_run, *one) for one in readme()]
    parts += [partial(of_run, name, run) for name, run, _ in settings()]
    parts += [partial(of_run, *one, curves=True) for one in in_regimes() if one[1] is not None]
    parts += [partial(of_run, *one) for one in drawn() if one[1] is not None]
    charged = [li.account(usual_run(li.Cyclic)), li.account(usual_run(li.ShuffledOnce, **PENALTY))]
    parts += [calibrated, unlearned, other_numbers, fits, partial(ledgers, charged)]
    rows = [row for part in track(parts, "measuring") for row in part()]
    twice = [name for name, many in Counter(name for name, _ in rows).items() if many > 1]
    assert not twice, twice
    return dict(sorted(rows))


def not_covered(rows):
    """The bounds, stages, lower bounds, estimates, rules, models and features without a row."""
    listed = [line for line in _printed("bounds").split("\n") if line[:1].islower()]
    known = {*listed, *upper_bounds(), *lower_bounds(), *RULES, *features.__all__}
    known |= {*public(linear_model, having="fit")}
    return sorted(known - {part for name in rows for part in name.split(" | ")})


def differences(before, after):
    """Rows of both that differ, and how many rows of each subject only one of them has."""
    only = Counter()
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            only[_subject(name), old is None] += 1
        elif not name.endswith(ISSUED):
            if old != new:
                yield name, old, new
        elif (holds := said(lambda text=old: li.verify(text).epsilon(1e-5))).startswith("raises"):
            yield f"{name}, before", "verified", holds
    for (subject, is_new), many in sorted(only.items()):
        yield subject, *(("-", f"{many} rows") if is_new else (f"{many} rows", "-"))


def _subject(name):
    """The id of a bound in the name of a row; its first parts if there is none."""
    parts = name.split(" | ")
    return next((part for part in parts if "/" in part), " | ".join(parts[:2]))


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("out", type=Path)
    arguments.add_argument("--than", type=Path, help="what to compare with")
    options = arguments.parse_args()
    warnings.simplefilter("ignore")
    rows = measured()
    options.out.write_text(json.dumps(rows, indent=0) + "\n")
    print(f"{len(rows)} rows written to {options.out}")
    for name in not_covered(rows):
        print(f"not covered: {name}, {NOT_COVERED.get(name, 'for no stated reason')}")
    if options.than is None:
        return 0
    found = list(differences(json.loads(options.than.read_text()), rows))
    for name, old, new in found:
        print(f"{name}: {old} -> {new}")
    print(f"{len(found)} differences")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
