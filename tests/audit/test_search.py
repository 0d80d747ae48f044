"""Witnesses obey the run they attack, never exceed what is proved, and come near it."""

import math

import numpy as np
import pytest

import lastiterate as li
from lastiterate.audit import exact
from lastiterate.audit.exact import FAMILIES
from lastiterate.errors import NoInstanceApplies
from lastiterate.lower_bounds import participation
from lastiterate.lower_bounds.quadratics import admitted, autoregression_lower_profile
from tests.slow import slow

RULES = {
    "full": li.FullBatch(12),
    "cyclic": li.Cyclic(12, 4),
    "once": li.ShuffledOnce(13, 4),
    "each": li.ShuffledEachEpoch(13, 4),
    "sampled": li.SampledWithoutReplacement(12, 4),
}


def run_of(rule, **changes):
    settings = {
        "loss": li.Loss(smoothness=1.0, strong_convexity=0.1),
        "sensitivity": 3.0,
        "batches": rule,
        "steps": 12,
        "step_size": 1.0,
        "noise_std": 0.8,
    }
    return li.TrainingRun(**(settings | changes))


KINDS = {
    "strongly convex": {},
    "released with noise": {"release_noise_std": 0.7},
    "short steps": {"step_size": 0.4},
    "convex": {"loss": li.Loss(smoothness=1.0)},
    "expanding": {"loss": li.Loss(smoothness=0.2, convex=False), "steps": 6},
    "projected": {"domain": li.Ball(3.0)},
    "projected and bounded": {
        "loss": li.Loss(smoothness=1.0, lipschitz=1.5, regulariser=0.1),
        "domain": li.Ball(3.0),
    },
    "bounded": {"loss": li.Loss(smoothness=1.0, lipschitz=2.0)},
    "left out": {"adjacency": "zero-out", "loss": li.Loss(smoothness=1.0, regulariser=0.1)},
    "clipped": {"loss": li.Loss(smoothness=0.3, convex=False), "clip_norm": 1.5, "steps": 6},
    "a schedule": {"step_size": tuple(np.linspace(1.0, 0.3, 12)), "noise_std": (0.8,) * 12},
}
SLOW_TO_SEARCH = ("convex", "released with noise", "short steps")
BY_GRID = ("projected", "projected and bounded", "bounded", "left out", "clipped")


class TestSoundness:
    @pytest.mark.parametrize(
        "kind, rule",
        [
            slow(kind, rule) if rule == "sampled" and kind in SLOW_TO_SEARCH else (kind, rule)
            for kind in KINDS
            for rule in RULES
            if kind not in BY_GRID or rule in ("cyclic", "each")
        ],
    )
    def test_no_ratio_is_below_one(self, kind, rule):
        witness = exact.worst(run_of(RULES[rule], **KINDS[kind]), delta=1e-4, tries=6)
        assert witness.ratio >= 1.0 - 1e-9
        assert witness.epsilon > 0.0

    @pytest.mark.parametrize("kind", KINDS)
    def test_maps_are_those_that_the_run_admits(self, kind):
        run = run_of(RULES["cyclic"], **KINDS[kind])
        rng = np.random.default_rng(0)
        for family in FAMILIES.values():
            if family.unmet(run) is not None:
                continue
            for _ in range(8):
                spans = family.spans(run)
                parameters = {name: float(rng.uniform(*span)) for name, span in spans.items()}
                obeys(run, family.pair(run, parameters), family.id)


def obeys(run, pair, family):
    """Slopes of smooth, convex losses; shifts within the sensitivity; gradients within bounds."""
    drifts = family == "drifting-quadratics"
    loss, size = run.loss, run.batches.batch_size
    etas = np.broadcast_to(run.step_size, run.steps)
    x = np.linspace(-5.0, 5.0, 101)
    for step, eta in zip(pair.steps, etas, strict=True):
        least = 1.0 - eta * loss.smoothness
        most = 1.0 - eta * loss.strong_convexity if loss.convex else 1.0 + eta * loss.smoothness
        for phi in step.maps:
            slopes = np.abs(phi.slopes) if drifts else np.array(phi.slopes)
            assert slopes.min() >= (max(least, 0.0) if drifts else least) - 1e-9
            assert slopes.max() <= max(most, abs(least) if drifts else most) + 1e-9
        apart = step.takes[1](x) - step.takes[0](x)
        assert np.abs(apart).max() <= eta * run.sensitivity / size * (1 + 1e-9)
        # Quadratics are seen from where the others are, so their gradients are not to be seen.
        bound = None if family == "quadratics" else run.gradient_bound
        if bound is not None:
            others = ((1.0 - eta * loss.regulariser) * x - step.still(x)) / eta
            assert np.abs(others).max() <= bound * (1 + 1e-9)
            for taken in step.takes:
                both = ((1.0 - eta * loss.regulariser) * x - taken(x)) / eta
                own = size * both - (size - 1) * others
                assert np.abs(own).max() <= bound * (1 + 1e-6)
        assert step.noise_std == pytest.approx(eta * 0.8)


class TestOneCurvature:
    """Gradients that differ by a constant: signs alternate in steps longer than 1/curvature."""

    RUN = run_of(
        RULES["full"],
        loss=li.Loss(smoothness=0.5, strong_convexity=0.5),
        step_size=3.0,
        noise_std=0.8,
    )

    def test_is_what_the_instance_shows(self):
        family = FAMILIES["quadratics"]
        assert FAMILIES["drifting-quadratics"].unmet(self.RUN) is not None
        weights = (-0.5) ** np.arange(self.RUN.steps)
        mu = abs(weights.sum()) * 3.0 / 12 / (0.8 * math.sqrt((weights**2).sum()))
        assert family.lower(self.RUN, {}).gdp() == pytest.approx(mu, rel=1e-6)
        assert exact.curve(family.pair(self.RUN, {})).lower.gdp() == pytest.approx(mu, rel=1e-3)

    def test_random_orders_that_cancel_tell_nothing(self):
        run = self.RUN.replace(batches=RULES["sampled"])
        assert FAMILIES["quadratics"].lower(run, {}).gdp() == 0.0


class TestTightness:
    @pytest.mark.parametrize("strong, step_size", [(0.2, 1.2), (0.5, 1.3), (0.0, 2.0), (0.9, 0.3)])
    def test_full_batches_of_quadratics_are_exact(self, strong, step_size):
        """Where eta <= 2/(M + m)."""
        loss = li.Loss(smoothness=1.0, strong_convexity=strong)
        assert step_size <= 2.0 / (1.0 + strong) or strong == 0.0
        witness = exact.worst(run_of(RULES["full"], loss=loss, step_size=step_size))
        assert witness.ratio == pytest.approx(1.0, abs=1e-6)

    @pytest.mark.parametrize("seed", range(10))
    def test_cyclic_runs_at_the_worst_position(self, seed):
        """Exact if eta M >= 1, strongly convex or not, with release noise or without."""
        rng = np.random.default_rng(seed)
        length, eta = int(rng.integers(2, 12)), rng.uniform(1.0, 1.9)
        run = li.TrainingRun(
            loss=li.Loss(smoothness=1.0, strong_convexity=float(rng.choice([0.0, 0.01, 0.3]))),
            sensitivity=1.0,
            batches=li.Cyclic(5 * length, 5),
            steps=length * int(rng.integers(1, 30)),
            step_size=eta,
            noise_std=10 ** rng.uniform(-1.0, 0.0),
            release_noise_std=float(rng.choice([0.0, rng.uniform(0.0, 1.0)])),
        )
        assert exact.worst(run).ratio == pytest.approx(1.0, abs=1e-6)

    @pytest.mark.parametrize("step_size, ratio", [(0.7, 1.05), (0.5, 1.15), (0.2, 1.5)])
    def test_shorter_steps_leave_a_gap(self, step_size, ratio):
        run = run_of(li.Cyclic(48, 4), step_size=step_size, steps=120)
        found = exact.worst(run)
        assert 1.0 < found.ratio < ratio
        assert found.family == "drifting-quadratics"
        plain = exact.worst(run, family="quadratics")
        assert found.ratio < plain.ratio


class TestClosedForms:
    @pytest.mark.parametrize("rule", RULES)
    @pytest.mark.parametrize("family", ["quadratics", "drifting-quadratics"])
    def test_agree_with_the_grid(self, rule, family):
        run = run_of(RULES[rule], steps=11, release_noise_std=0.3)
        one = FAMILIES[family]
        parameters = dict.fromkeys(one.spans(run), 0.4)
        curve, closed = exact.curve(one.pair(run, parameters)), one.lower(run, parameters)
        for delta in (1e-2, 1e-5):
            found = curve.epsilon(delta)
            assert closed.epsilon(delta) <= found.upper
            assert closed.epsilon(delta) == pytest.approx(found.lower, rel=1e-3)
        assert closed.delta(0.5) == pytest.approx(curve.delta(0.5).middle, rel=1e-3)
        assert closed.delta(0.5) <= curve.delta(0.5).upper

    def test_many_sampled_steps_of_linear_losses(self):
        """Bin(T, p) participations, in all 1,000 steps alike."""
        steps, chance, shift = 1_000, 0.02, 0.5
        ones = np.ones(steps)
        profile = autoregression_lower_profile(
            ones, shift * ones, ones, 0.0, participation.AnyStep(chance)
        )
        from scipy.stats import binom, norm

        counts = np.arange(200)
        weights = binom.pmf(counts, steps, chance)
        means = shift * counts / math.sqrt(steps)
        for threshold, epsilon in ((1.0, 0.2), (2.5, 0.8)):
            power = weights @ norm.sf(threshold - means)
            gain = power - math.exp(epsilon) * norm.sf(threshold)
            assert profile.delta(epsilon) >= gain - 1e-6
        assert profile.delta(0.0) <= weights @ (2 * norm.cdf(means / 2) - 1) + 1e-9


class TestPoisson:
    def run(self, largest):
        return run_of(
            li.PoissonSampled(40, 4, largest),
            loss=li.Loss(smoothness=0.2, regulariser=0.1),
            adjacency="zero-out",
        )

    def test_no_ratio_is_below_one(self):
        assert exact.worst(self.run(8)).ratio >= 1.0

    def test_a_cut_batch_sees_an_example_less_often(self):
        assert participation.participation(self.run(None)).probability == 0.1
        rng = np.random.default_rng(0)
        seen = 0
        for _ in range(20_000):
            drawn = np.flatnonzero(rng.random(40) < 0.1)
            seen += 0 in rng.permutation(drawn)[:4]
        found = participation.participation(self.run(4)).probability
        assert found == pytest.approx(seen / 20_000, abs=0.007)
        assert found < 0.095


class TestBallsAndBins:
    @pytest.mark.parametrize("rule", [li.BallsAndBins(13, 4), li.BallsAndBinsEachEpoch(13, 4)])
    @pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
    def test_the_worst_instance_is_near_and_not_above(self, rule, adjacency):
        loss = li.Loss(smoothness=0.2, regulariser=0.1)
        witness = exact.worst(run_of(rule, loss=loss, adjacency=adjacency), delta=1e-3)
        assert 1.0 <= witness.ratio < 1.5


class TestRefusals:
    def test_an_unknown_family(self):
        with pytest.raises(li.InvalidParameter, match="family must be one of"):
            exact.worst(run_of(RULES["full"]), family="cubics")

    def test_a_family_that_does_not_apply_says_why(self):
        with pytest.raises(NoInstanceApplies, match="a bounded domain"):
            exact.worst(run_of(RULES["full"]), family="linear-losses")

    def test_does_not_say_that_no_bound_covers_the_run(self):
        run = run_of(RULES["full"], domain=li.Ball(1.0))
        assert li.account(run).all
        with pytest.raises(NoInstanceApplies, match="no instance is known"):
            exact.worst(run, family="quadratics")

    def test_delta(self):
        with pytest.raises(li.InvalidParameter, match="delta must be"):
            exact.worst(run_of(RULES["full"]), delta=0.0)

    def test_losses_of_no_curvature_for_batches_of_unknown_size(self):
        curved = li.Loss(smoothness=1.0, strong_convexity=0.1)
        run = run_of(li.PoissonSampled(12, 4, 8), loss=curved)
        with pytest.raises(NoInstanceApplies, match="may be linear"):
            exact.worst(run)

    @pytest.mark.parametrize(
        "loss, curvatures",
        [
            (li.Loss(), (0.0, 1.0)),
            (li.Loss(holder=(0.3, 1.0), convex=False), (-0.3, 0.3)),
            (li.Loss(holder=(0.3, 0.5), smoothness=2.0), (0.0, 0.0)),
            (li.Loss(smoothness=0.7, regulariser=0.2, lipschitz=2.0), (0.2, 0.7)),
        ],
    )
    def test_curvatures_are_those_of_the_lower_bounds(self, loss, curvatures):
        may = admitted(run_of(RULES["full"], loss=loss))
        assert may.steepest[0] == pytest.approx(1.0 - curvatures[0])
        assert may.gentlest[0] == pytest.approx(1.0 - curvatures[1])

    def test_free_runs_only_may_drift(self):
        assert admitted(run_of(RULES["full"])).is_free
        assert not admitted(run_of(RULES["full"], domain=li.Ball(1.0))).is_free
