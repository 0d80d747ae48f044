"""What every bound in the catalogue promises, whatever it is."""

import dataclasses
import math
from importlib import import_module
from itertools import product
from pkgutil import walk_packages

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import lastiterate as li
from lastiterate import bounds, lower_bounds
from lastiterate.bounds import conditions
from lastiterate.bounds.bound import Approximation, Bound, Certainty, LowerBound, StagedBound
from lastiterate.bounds.catalogue import APPROXIMATIONS, CATALOGUE, RECORDS
from lastiterate.errors import NoBoundApplies
from lastiterate.lower_bounds.catalogue import LOWER_BOUNDS
from lastiterate.profile import PrivacyProfile
from lastiterate.run.batch_rules.base import RULES, Resampling
from tests.bounds.runs import described
from tests.slow import slow, slow_if

BOUNDS = list(RECORDS.values())
ROUNDING = 1e-3  # of epsilon where it comes from a grid
CHOICE = {  # another noise may be given another window, or another split
    "random-order/sampled/average": 0.03,
    "random-order/sampled/average-non-convex": 0.03,
    "random-order/poisson/average-non-convex": 0.03,
    "random-order/poisson/average": 0.03,
    "random-order/poisson": 0.03,
    "random-order/sampled": 0.1,
    "random-order/sampled/amplified-tail": 0.1,
    "random-order/poisson/hidden-participations": 0.01,
    "fixed-order/momentum": 0.01,  # a search that stops early
    "random-order/shuffled/momentum": 0.01,
}
# The library's own; tests/bounds/published/test_published.py has the papers'.
OWN = [bound for bound in BOUNDS if not bound.id.startswith("published/")]
LISTED = [bound for bound in OWN if bound.id in CATALOGUE]
STAGED = [bound.id for bound in OWN if isinstance(bound, StagedBound)]
UPPER = [bound for bound in OWN if bound.certainty is Certainty.UPPER]
# Of batches drawn anew every step: an evaluation takes up to a second.
COSTLY = [
    bound
    for bound in UPPER
    if all(rule.resampling is Resampling.EACH_STEP for rule in bound.covers)
]
SECONDS_A_RUN = {"composition/balanced", "composition/balls-and-bins"}
QUICK = [bound for bound in UPPER if bound not in COSTLY and not bound.id.endswith("momentum")]
OPTIMIZERS = (
    {"momentum": 0.9},
    {"momentum": 0.5, "nesterov": True},
    {"momentum": 0.8, "dampening": 0.5},
    {"average": li.ExponentialAverage(0.9)},
)


def batch_rule(kind, examples, size, steps):
    if kind.from_sizes:
        return kind.of_sizes(examples, size if kind.ordered else None)
    return kind(examples, size, range(1, steps + 1, 3))


def batch_rules(steps, kinds):
    for kind, (examples, size) in product(kinds, [(60, 10), (61, 10), (10, 10), (7, 1)]):
        yield batch_rule(kind, examples, size, steps)


SHORT = ("short-steps", "early-transport", "early-mixture")  # bounds for steps below 1/smoothness


@st.composite
def runs(draw, bound="any"):
    """Runs of every kind, or mostly of the kind that a bound covers."""
    contracting = bound.startswith(("fixed-order", "random-order")) and "non" not in bound
    amplified = bound in ("composition/balls-and-bins", "composition/balanced")
    secret = bound.startswith("random-order") or bound == "composition/sampled" or amplified
    kinds = RECORDS[bound].covers if bound in RECORDS else RULES.values()
    steps = draw(st.integers(1, 60))
    if bound.endswith(SHORT):
        smoothness = draw(st.sampled_from([0.5, 2.0]))
    else:
        smoothness = draw(st.sampled_from([0.5, 5.0] if contracting else [None, 0.5, 10.0]))
    strong = draw(st.sampled_from([0.0, 0.01, 0.5])) if smoothness else 0.0
    convex = contracting or draw(st.booleans())
    lipschitz = draw(st.sampled_from([*([] if amplified else [None]), 1.0, 5.0]))
    clip = None if contracting else draw(st.sampled_from([None, 0.5]))
    gradients = min(x for x in (lipschitz, clip, math.inf) if x is not None)
    step_size = draw(st.sampled_from([0.01, 0.1, 0.3]))
    noise_std = draw(st.sampled_from([1.0, 0.1] if secret else [1.0, 1e-3]))
    short = bound.endswith(SHORT)
    anew = ("random-order/sampled", "random-order/poisson", "random-order/balanced")
    constant = short or bound.startswith(anew)
    if not constant and draw(st.booleans()):
        step_size = list(np.linspace(step_size, step_size / 2, steps))
        noise_std = list(np.linspace(noise_std / 2, noise_std, steps))
    held = bound.endswith("domain") or (constant and "non-convex" in bound)
    domains = [li.Ball(0.3)] if held else [li.Ball(0.3), li.Unbounded()]
    domains = [li.Unbounded()] if short else domains
    optimizer = {}
    if bound.endswith("momentum") or (bound == "any" and draw(st.booleans())):
        domains = [li.Unbounded()]
        optimizer = draw(st.sampled_from(OPTIMIZERS))
    releases = ["last-iterate"] if secret else ["last-iterate", "last-iterate-and-order"]
    releases += ["every-iterate"] if bound == "any" else []
    return li.TrainingRun(
        loss=li.Loss(
            smoothness=smoothness,
            strong_convexity=strong if convex else 0.0,
            convex=convex,
            lipschitz=lipschitz,
            holder=draw(st.sampled_from([None, (1.0, 0.5)])),
            outputs=draw(st.sampled_from([1, 10] if short else [None, 1])),
        ),
        sensitivity=min(2.0, 2 * gradients),
        batches=draw(st.sampled_from(list(batch_rules(steps, kinds)))),
        steps=steps,
        step_size=step_size,
        noise_std=noise_std,
        release_noise_std=draw(st.sampled_from([0.0, 1e-3])),
        domain=draw(st.sampled_from(domains)),
        clip_norm=clip,
        releases=draw(st.sampled_from(releases)),
        **optimizer,
    )


def changed(run, **factors):
    values = {}
    for name, factor in factors.items():
        value = np.array(getattr(run, name)) * factor
        values[name] = float(value) if value.ndim == 0 else value
    return run.replace(**values)


def of_each(bounds):
    return pytest.mark.parametrize("bound", bounds, ids=lambda bound: bound.id)


@of_each(BOUNDS)
def test_a_record_is_complete(bound):
    family, condition = bound.id.split("/", 1)
    assert family
    assert condition
    assert RECORDS[bound.id] is bound
    assert bound.gives
    assert str(bound.source)
    assert all(hypothesis.needs and hypothesis.remedy for hypothesis in bound.needs)
    said = "**Bound.**", "**Holds when.**", "**Tight", "**Source.**", "**Computed as**"
    assert all(heading in bound.evaluate.__doc__ for heading in said)
    if bound in OWN:
        assert bound.charges
        filled = bound.charges.format(counts="counts on", fading="later noise")
        assert not set("{}") & set(filled)


def declared(kind):
    """Every record of a kind that a module of bounds or lower_bounds holds, alone or in a list."""
    for package in (bounds, lower_bounds):
        for found in walk_packages(package.__path__, f"{package.__name__}."):
            for value in vars(import_module(found.name)).values():
                held = value if isinstance(value, (tuple, list)) else [value]
                yield from (one for one in held if isinstance(one, kind))


@pytest.mark.parametrize(
    "kind, listed",
    [(Bound, RECORDS), (LowerBound, LOWER_BOUNDS), (Approximation, APPROXIMATIONS)],
)
def test_what_is_declared_is_listed(kind, listed):
    records = list(declared(kind))
    assert records
    assert [one.id for one in records if listed.get(one.id) is not one] == []


@of_each(LISTED)
def test_a_line_has_a_colour_of_its_family_and_a_style_of_its_own(bound):
    assert bound.line_style is not None
    sharing = [other for other in LISTED if other.line_style.colour == bound.line_style.colour]
    assert {other.id.split("/")[0] for other in sharing} == {bound.id.split("/")[0]}
    others = [one for one in LISTED if one is not bound and set(one.covers) & set(bound.covers)]
    assert bound.line_style not in [other.line_style for other in others]


CONTRACTING = described(
    li.Cyclic(60, 10), 20, step_size=0.1,
    loss=li.Loss(smoothness=1.0, strong_convexity=0.1, regulariser=0.1, lipschitz=1.0),
)  # fmt: skip


def covered_by(bound):
    """The run above with batches that the bound is about, on a ball if it needs one."""
    rule = next(batch_rules(CONTRACTING.steps, bound.covers))
    run = CONTRACTING.replace(batches=rule)
    if bound.id.endswith("momentum"):
        run = run.replace(momentum=0.9)
    if bound.id.endswith(SHORT):
        run = run.replace(loss=dataclasses.replace(run.loss, outputs=1))
    return run.replace(domain=li.Ball(1.0)) if bound.id.endswith("domain") else run


class TestBasis:
    """What a bound rests on is asked of the bound."""

    @of_each([bound for bound in OWN if "non-" not in bound.id])
    def test_contracting_steps_that_hide_need_what_fixed_orders_need(self, bound):
        run = covered_by(bound)
        assert not bound.unmet(run)
        expected = set(bound.needs)
        basis = "momentum" if bound.id.endswith("momentum") else "convex"
        if not bound.id.startswith("composition"):
            expected |= set(CATALOGUE[f"fixed-order/{basis}"].needs)
        for stage in bound.applying(run) if bound.id in STAGED else ():
            expected |= set(stage.needs)
        assert set(bound.all_needs(run)) == expected

    @of_each(OWN)
    @given(data=st.data())
    @settings(max_examples=8)
    def test_holds_wherever_the_bound_does(self, bound, data):
        run = data.draw(runs(bound.id))
        assume(not bound.unmet(run))
        assert bool(bound.basis(run)) == (not bound.id.startswith(("composition", "fixed-order")))
        assert not any(one.check(run) for one in bound.all_needs(run))

    def test_of_a_shuffled_run_depends_on_the_run(self):
        shuffled = RECORDS["random-order/shuffled/average-once"]
        run = CONTRACTING.replace(batches=li.ShuffledOnce(60, 10))

        def basis(**changes):
            return [bound.id for bound in shuffled.basis(run.replace(**changes))]

        assert basis() == ["fixed-order/convex"]
        assert basis(domain=li.Ball(1.0)) == ["fixed-order/convex"]
        expanding = li.Loss(smoothness=1.0, convex=False)
        assert basis(loss=expanding) == ["fixed-order/non-convex"]
        assert conditions.CONVEX in shuffled.all_needs(run)
        assert conditions.CONVEX not in shuffled.all_needs(run.replace(loss=expanding))


def chosen_runs(bound):
    """One step and many; batches of one and of all; c = 1 and far below; all that is optional."""
    for steps, examples, size, smoothness, strong, noise, release, domain in [
        (1, 60, 10, 0.5, 0.0, 1.0, 0.0, li.Unbounded()),
        (9, 10, 10, 5.0, 0.5, 0.1, 1e-3, li.Ball(0.3)),
        (60, 61, 10, 5.0, 0.01, 1.0, 0.0, li.Unbounded()),
        (60, 7, 1, 0.5, 0.0, 0.1, 1e-3, li.Ball(0.3)),
    ]:
        expands = "non-convex" in bound.id
        loss = li.Loss(smoothness=smoothness, strong_convexity=strong, lipschitz=1.0)
        yield li.TrainingRun(
            loss=li.Loss(smoothness=smoothness, convex=False) if expands else loss,
            sensitivity=2.0,
            batches=batch_rule(bound.covers[0], examples, size, steps),
            steps=steps,
            step_size=0.1,
            noise_std=noise,
            release_noise_std=release,
            domain=li.Ball(0.3) if expands else domain,
        )


def never_less_private(bound, run, more_private):
    before = bound.profile(run).epsilon(1e-3)
    for other, slack in more_private:
        after = bound.profile(other).epsilon(1e-3)
        assert after <= before * (1 + CHOICE.get(bound.id, slack)) + ROUNDING


def noisier(run, noise, sensitivity, release):
    """Three runs that should be more private, and how far each may be from it."""
    yield changed(run, noise_std=noise), 1e-6
    yield changed(run, sensitivity=sensitivity), 1e-6
    yield run.replace(release_noise_std=run.release_noise_std + release), 1e-9


def check_any_run(bound, how_many):
    @settings(max_examples=how_many)
    @given(runs(bound.id), st.floats(1.0, 3.0), st.floats(0.3, 1.0), st.floats(0.0, 10.0))
    def check(run, noise, sensitivity, release):
        assume(not bound.unmet(run))
        never_less_private(bound, run, noisier(run, noise, sensitivity, release))

    check()


class TestMonotonicity:
    """More noise, of either kind, or less sensitivity is never less private."""

    @of_each(slow_if(lambda bound: bound.id in SECONDS_A_RUN, QUICK))
    def test_of_any_run(self, bound):
        check_any_run(bound, 4)

    @pytest.mark.slow
    @of_each(UPPER)
    def test_of_many_runs(self, bound):
        check_any_run(bound, 20)

    @pytest.mark.parametrize("which", slow_if(lambda which: which > 1, range(4)))
    @of_each(COSTLY)
    def test_of_chosen_runs_with_batches_drawn_anew(self, bound, which):
        run = list(chosen_runs(bound))[which]
        assert not bound.unmet(run)
        never_less_private(bound, run, noisier(run, 1.5, 0.5, 0.05))


class TestContract:
    @given(run=runs())
    @settings(max_examples=12)
    def test_either_covers_the_run_or_says_why_not(self, run):
        for bound in BOUNDS:
            unmet = bound.unmet(run)
            if unmet:
                with pytest.raises(NoBoundApplies, match=bound.id):
                    bound.profile(run)
                assert all(reason.needs and reason.found and reason.remedy for reason in unmet)
            else:
                profile = bound.profile(run)
                assert isinstance(profile, PrivacyProfile)
                assert profile.epsilon(1e-5) >= 0.0
                assert not math.isnan(profile.gdp())
                assert not math.isnan(profile.renyi(3.0))

    @of_each(
        slow_if(
            lambda bound: bound.id.endswith("momentum"),
            [bound for bound in UPPER if bound.by_position is not None],
        )
    )
    @given(data=st.data())
    @settings(max_examples=6)
    def test_the_worst_position_is_the_one_charged(self, bound, data):
        run = data.draw(runs(bound.id))
        assume(not bound.unmet(run))
        mus = [profile.epsilon(1e-5) for profile in bound.by_position(run)]
        assert bound.profile(run).epsilon(1e-5) == pytest.approx(max(mus), rel=1e-6)


class TestTogether:
    @pytest.mark.parametrize("count", [8, slow(300)])
    def test_every_run_with_noise_is_accounted_for(self, count):
        settings(max_examples=count)(given(run=runs())(self.check))()

    def check(self, run):
        report = li.account(run)
        composed = report.all["composition/fixed-order"].gdp()
        assert report.all.keys() | report.unmet.keys() >= {bound.id for bound in LISTED}
        assert not report.all.keys() & report.unmet.keys()
        assert report.gdp() <= composed
        assert math.isfinite(report.epsilon(1e-5))
        # A last-iterate bound never exceeds composition, and a bounded domain only helps.
        if "fixed-order/convex" in report.all:
            held = report.all["fixed-order/convex"].gdp()
            free = CATALOGUE["fixed-order/convex"].profile(run.replace(domain=li.Unbounded()))
            assert held <= min(free.gdp(), composed) * (1 + 1e-9)

    def test_releasing_every_iterate_leaves_composition(self):
        run = described(li.Cyclic(10, 1), 50, step_size=0.1, releases="every-iterate")
        report = li.account(run)
        assert set(report.all) == {"composition/fixed-order"}
        assert "every-iterate" in str(report.unmet["fixed-order/convex"][0])


SHORT_STEPS = described(
    li.ShuffledOnce(50_000, 250), 4_000, sensitivity=2.0, noise_std=0.02,
    loss=li.Loss(smoothness=0.25, regulariser=0.01, lipschitz=1.0, outputs=1),
)  # fmt: skip
LITTLE_GAIN = described(
    li.BallsAndBins(645_616, 4_258), 20_838, sensitivity=6790.0,
    loss=li.Loss(
        smoothness=0.723, strong_convexity=4.2e-6, regulariser=4.2e-6, lipschitz=3395.0, outputs=1
    ),
)  # fmt: skip
FEW_CHANCES = SHORT_STEPS.replace(steps=400, batches=li.PoissonSampled(1_000, 10), noise_std=0.2)


@pytest.mark.parametrize(
    "run",
    [
        SHORT_STEPS,
        SHORT_STEPS.replace(batches=li.ShuffledEachEpoch(50_000, 250)),
        slow(SHORT_STEPS.replace(batches=li.BallsAndBinsEachEpoch(50_000, 250))),
        LITTLE_GAIN,
        FEW_CHANCES,
        FEW_CHANCES.replace(batches=li.SampledWithoutReplacement(1_000, 10)),
    ],
    ids=lambda run: run.batches.name,
)
def test_a_bound_of_stages_is_the_least_whichever_it_evaluates_first(run):
    (whole,) = [
        bound for bound in LISTED if isinstance(bound, StagedBound) and not bound.unmet(run)
    ]
    least = whole.profile(run).epsilon(1e-5)
    for stage in whole.stages:
        if not stage.unmet(run):
            assert stage.profile(run).epsilon(1e-5) >= least, stage.id
