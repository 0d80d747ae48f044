"""The exact oracle, and the search for the worst of the instances that a run admits."""

import math

import numpy as np
import pytest
from scipy.stats import binom, norm

import lastiterate as li
from lastiterate.audit import exact
from lastiterate.audit.exact import FAMILIES
from lastiterate.errors import InvalidParameter, NoInstanceApplies, NumericalFailure
from lastiterate.lower_bounds import line as quadrature
from lastiterate.lower_bounds.line import PiecewiseLinear, bent, linear
from lastiterate.lower_bounds.participation import AnyStep
from lastiterate.lower_bounds.quadratics import admitted, autoregression_lower_profile
from lastiterate.profile import GaussianProfile
from tests.reference.grid import exact_pair
from tests.reference.instances import random_instance
from tests.slow import slow, slow_if

EPSILONS = (0.0, 0.3, 1.0, 3.0)


def random_pair(rng):
    """A pair with kinks, projection or release noise, now and then; and the tests' own form."""
    slopes = np.sort(rng.uniform(-0.9, 1.05, 2))
    half = rng.choice([math.inf, rng.uniform(0.5, 6.0)])
    steps = int(rng.integers(1, 15))
    instance = random_instance(
        rng,
        steps=steps, slope_low=slopes[0], slope_high=slopes[1],
        sensitivity=10 ** rng.uniform(-1, 0.3),
        participations=range(steps, 0, -int(rng.integers(1, 5))),
        noise_std=10 ** rng.uniform(-0.5, 0.5, steps),
        domain=None if half == math.inf else (-half, half),
        release_noise_std=float(rng.choice([0.0, rng.uniform(0.2, 2.0)])),
    )  # fmt: skip
    return translated(instance), instance


def translated(instance):
    made = []
    for step in instance.steps:
        maps = [
            PiecewiseLinear(phi.knots, phi.values, phi.left_slope, phi.right_slope)
            for phi in (step.phi, step.phi_other)
        ]
        made.append(exact.Step(maps[0], tuple(maps), step.noise_std, step.clip))
    return exact.Pair(instance.start, made, release_noise_std=instance.release_noise_std)


def shifting(slope, shift, noise_std=1.0, domain=None):
    return exact.Step(linear(slope), (linear(slope), linear(slope, shift)), noise_std, domain)


class TestError:
    @pytest.mark.parametrize("seed", slow_if(lambda seed: seed != 1, range(4)))
    def test_halving_the_grid_changes_delta_by_less_than_the_error(self, seed):
        """12 instances a seed, on grids from coarse to the default."""
        rng = np.random.default_rng(seed)
        for number in range(12):
            pair, _ = random_pair(rng)
            width = (2.0, 4.0, 6.0)[number % 3]
            whole, half = exact.curve(pair, width=width), exact.curve(pair, width=width / 2)
            for epsilon in EPSILONS:
                one, other = whole.delta(epsilon), half.delta(epsilon)
                assert abs(one.middle - other.middle) <= one.error
                assert width > 2.0 or one.error < 1e-8

    def test_the_error_of_a_coarse_grid_is_not_idle(self):
        pair = exact.Pair(0.0, [shifting(1.0, 0.5)] * 6)
        truth = GaussianProfile(0.5 * math.sqrt(6.0)).delta(1.0)
        coarse = exact.curve(pair, width=12.0).delta(1.0)
        assert abs(coarse.middle - truth) > 1e-9
        assert coarse.lower <= truth <= coarse.upper

    def test_lebesgue_constant(self):
        nodes = quadrature.rule()[0]
        x = np.linspace(-1.0, 1.0, 20_001)
        basis = np.polynomial.legendre.legvander(x, nodes.size - 1) @ quadrature.to_legendre()
        assert np.abs(basis).sum(axis=1).max() <= 2 * math.sqrt(nodes.size)


class TestAgreement:
    @pytest.mark.parametrize("seed", range(2))
    def test_with_an_independent_oracle(self, seed):
        rng = np.random.default_rng(50 + seed)
        for _ in range(12):
            pair, instance = random_pair(rng)
            curve, other = exact.curve(pair), exact_pair(instance)
            for epsilon in EPSILONS:
                found = curve.delta(epsilon)
                assert abs(found.middle - other.delta(epsilon)) <= 1e-11 + found.error

    @pytest.mark.parametrize(
        "slope, release",
        [(0.0, 0.7), slow(0.7, 0.0), (0.7, 0.7), (-0.7, 0.0), slow(1.0, 0.0), (1.1, 0.7)],
    )
    def test_with_quadratics(self, slope, release):
        steps, shift = 15, 0.4
        reach = slope ** np.arange(steps - 1, -1.0, -1.0)
        mu = abs(shift * reach.sum()) / math.sqrt((reach**2).sum() + release**2)
        curve = exact.curve(exact.Pair(3.0, [shifting(slope, shift)] * steps, None, release))
        gaussian = GaussianProfile(mu)
        for epsilon in EPSILONS:
            found = curve.delta(epsilon)
            assert found.lower <= gaussian.delta(epsilon) <= found.upper + 1e-15
            assert found.error < 1e-9
        found = curve.epsilon(1e-5)
        assert found.lower <= gaussian.epsilon(1e-5) <= found.upper
        assert found.upper - found.lower < 1e-3
        found = curve.tradeoff(0.05)
        assert found.lower <= gaussian.tradeoff(0.05) + 1e-12
        assert gaussian.tradeoff(0.05) <= found.upper <= found.lower + 2e-3
        assert 0.995 < curve.renyi(3.0) / gaussian.renyi(3.0) <= 1.0
        assert 0.999 < curve.lower.gdp() / mu <= 1.0
        assert curve.lower.epsilon(1e-5) == curve.epsilon(1e-5).lower

    def test_noise_that_varies(self):
        noises, slopes = (0.3, 2.0, 0.5), (1.0, 0.2, -0.5)
        steps = [shifting(c, 1.0, n) for c, n in zip(slopes, noises, strict=True)]
        reach = np.array([slopes[1] * slopes[2], slopes[2], 1.0])
        mu = abs(reach.sum()) / math.sqrt(((reach * noises) ** 2).sum())
        found = exact.curve(exact.Pair(0.0, steps)).delta(0.5)
        assert found.lower <= GaussianProfile(mu).delta(0.5) <= found.upper + 1e-15

    def test_everything_on_one_end(self):
        step = shifting(1.0, 0.0, 1e-3, (0.0, 1.0))
        away = exact.Step(linear(1.0, 5.0), (linear(1.0, 5.0), linear(1.0, 6.0)), 1e-3, (0.0, 1.0))
        assert exact.curve(exact.Pair(0.5, [step, away])).delta(0.0).upper < 1e-9


class TestRefusals:
    @pytest.mark.parametrize("noise", [0.0, -1.0, math.nan])
    def test_noise(self, noise):
        with pytest.raises(InvalidParameter, match="noise_std must be"):
            shifting(1.0, 1.0, noise)

    def test_a_start_outside(self):
        with pytest.raises(InvalidParameter, match="start must be in the domain"):
            exact.Pair(2.0, [shifting(1.0, 1.0, domain=(0.0, 1.0))])

    def test_knots_that_do_not_increase(self):
        with pytest.raises(InvalidParameter, match="knots must be increasing"):
            PiecewiseLinear((1.0, 1.0), (0.0, 1.0), 1.0, 1.0)

    @pytest.mark.parametrize("epsilon", [-1.0, math.nan, math.inf])
    def test_epsilon(self, epsilon):
        with pytest.raises(InvalidParameter, match="epsilon must be"):
            exact.curve(exact.Pair(0.0, [shifting(1.0, 1.0)])).delta(epsilon)

    def test_an_explosion(self):
        with pytest.raises(NumericalFailure, match="too many"):
            exact.curve(exact.Pair(0.0, [shifting(30.0, 1.0)] * 9))

    def test_kinks_are_where_the_slope_changes(self):
        assert bent(0.5, 1.0, 2.0).kinks == (-2.0, 2.0)
        assert linear(0.5).kinks == ()


RULES = {
    "full": li.FullBatch(12),
    "cyclic": li.Cyclic(12, 4),
    "once": li.ShuffledOnce(13, 4),
    "each": li.ShuffledEachEpoch(13, 4),
    "sampled": li.SampledWithoutReplacement(12, 4),
}


def run_of(rule, **changes):
    settings = {
        "loss": li.Loss(smoothness=1.0, strong_convexity=0.1), "sensitivity": 3.0, "batches": rule,
        "steps": 12, "step_size": 1.0, "noise_std": 0.8,
    }  # fmt: skip
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
BY_GRID = ("projected", "projected and bounded", "bounded", "left out", "clipped")
QUICK = [  # every kind, and every rule
    *(("strongly convex", rule) for rule in RULES),
    *((kind, "each") for kind in ("released with noise", "short steps", "convex", "clipped")),
    *((kind, "cyclic") for kind in KINDS if kind != "strongly convex"),
]


class TestSearch:
    @pytest.mark.parametrize(
        "kind, rule",
        [
            (kind, rule) if (kind, rule) in QUICK else slow(kind, rule)
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
            sensitivity=1.0, batches=li.Cyclic(5 * length, 5),
            steps=length * int(rng.integers(1, 30)), step_size=eta,
            noise_std=10 ** rng.uniform(-1.0, 0.0),
            release_noise_std=float(rng.choice([0.0, rng.uniform(0.0, 1.0)])),
        )  # fmt: skip
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
        profile = autoregression_lower_profile(ones, shift * ones, ones, 0.0, AnyStep(chance))
        counts = np.arange(200)
        weights = binom.pmf(counts, steps, chance)
        means = shift * counts / math.sqrt(steps)
        for threshold, epsilon in ((1.0, 0.2), (2.5, 0.8)):
            power = weights @ norm.sf(threshold - means)
            gain = power - math.exp(epsilon) * norm.sf(threshold)
            assert profile.delta(epsilon) >= gain - 1e-6
        assert profile.delta(0.0) <= weights @ (2 * norm.cdf(means / 2) - 1) + 1e-9


POISSON = run_of(
    li.PoissonSampled(40, 4, 8), loss=li.Loss(smoothness=0.2, regulariser=0.1), adjacency="zero-out"
)


@pytest.mark.parametrize(
    "run",
    [
        POISSON,
        POISSON.replace(batches=li.BallsAndBins(13, 4)),
        POISSON.replace(batches=li.BallsAndBinsEachEpoch(13, 4), adjacency="replace"),
        slow(POISSON.replace(batches=li.BallsAndBins(13, 4), adjacency="replace")),
        slow(POISSON.replace(batches=li.BallsAndBinsEachEpoch(13, 4))),
    ],
)
def test_the_worst_instance_for_random_sizes_is_near_and_not_above(run):
    most = math.inf if run is POISSON else 1.5
    assert 1.0 <= exact.worst(run, delta=1e-3).ratio < most


class TestNothingToSearch:
    @pytest.mark.parametrize(
        "run, how, error, says",
        [
            (run_of(RULES["full"]), {"family": "cubics"}, InvalidParameter, "family must be one"),
            (run_of(RULES["full"]), {"delta": 0.0}, InvalidParameter, "delta must be"),
            (run_of(RULES["full"]), {"family": "linear-losses"}, NoInstanceApplies, "a bounded"),
            # Which does not say that no bound covers the run.
            (
                run_of(RULES["full"], domain=li.Ball(1.0)), {"family": "quadratics"},
                NoInstanceApplies, "no instance is known",
            ),
            (run_of(li.PoissonSampled(12, 4, 8)), {}, NoInstanceApplies, "may be linear"),
        ],
    )  # fmt: skip
    def test_says_why(self, run, how, error, says):
        with pytest.raises(error, match=says):
            exact.worst(run, **how)

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
