"""Computed results: no guarantee of theirs is better than the triangle, nor much worse.

Nor do machines on the line, whose privacy is known exactly, ever have less than the triangle says.
Their exact run is one of linear maps, whose last iterate is Gaussian, or of piecewise linear ones,
whose densities are known.  The machine's maps are wrong by as much as is allowed, in whatever sense
an adversary likes, and its noise is a floor, cut off.
"""

import math
from dataclasses import dataclass

import mpmath
import numpy as np
import pytest

from lastiterate.errors import InvalidParameter
from lastiterate.profile import BestProfile, GaussianProfile, PrivacyProfile, PureProfile
from lastiterate.profile.compose import compose, compose_with_gaussian
from lastiterate.profile.group import for_group, for_pair
from lastiterate.profile.rounded import RoundedProfile, Rounding
from lastiterate.shifts.optimal_shifts import optimal_shifts
from tests.profile.curves import Curve
from tests.reference.grid import exact_pair
from tests.reference.instances import linear_map, random_instance
from tests.reference.rounded_line import (
    APART,
    COIN,
    RANDOM,
    TOGETHER,
    RoundedStep,
    aligned,
    hockey_stick,
    machine_law,
)

EPSILONS = np.array([0.0, 1e-7, 1e-3, 0.1, 1.0, 4.0, 20.0])


def gaussian_delta(mu, epsilon):
    """In many digits, at any epsilon."""
    mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
    upper = mpmath.ncdf(mu / 2 - epsilon / mu)
    return upper - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)


def triangle_delta(mu, kappa, between, failure, epsilon):
    left = mpmath.mpf(epsilon) - 2 * kappa
    return (
        mpmath.exp(kappa) * gaussian_delta(mu, left)
        + (1 + mpmath.exp(left + kappa)) * gaussian_delta(between, kappa)
        + (1 + mpmath.exp(left + 2 * kappa)) * failure
    )


class TestSoundness:
    @pytest.mark.parametrize("failure", [0.0, 1e-18, 1e-9])
    @pytest.mark.parametrize("between", [1e-8, 1e-2, 0.3])
    def test_never_below_the_least_of_all_triangles(self, between, failure):
        """Every kappa of a fine grid gives a valid bound; ours is one of them, rounded up."""
        mu = 0.3
        found = RoundedProfile(GaussianProfile(mu), Rounding(between, failure)).deltas(EPSILONS)
        for epsilon, delta in zip(EPSILONS, found, strict=True):
            # No true curve rises: far out, the bound at a smaller epsilon holds as well.
            places = [epsilon] if epsilon <= 16.0 else [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, epsilon]
            least = min(
                triangle_delta(mu, mpmath.mpf(k) / 8 * between, between, failure, place)
                for k in range(8, 100, 4)
                for place in places
            )
            # What is left of epsilon is rounded down, which is a bound at a smaller one.
            assert delta >= min(least, 1) * (1 - mpmath.mpf(10) ** -7)

    @pytest.mark.parametrize("between", [1e-6, 1e-3, 0.05])
    def test_never_below_what_gaussians_tell(self, between):
        """Of Gaussians that are computed as far apart as may be, the exact answer is known."""
        for mu in (0.05, 0.5, 2.0):
            found = RoundedProfile(GaussianProfile(mu), Rounding(between, 0.0)).deltas(EPSILONS)
            exact = [gaussian_delta(mu + 2 * between, epsilon) for epsilon in EPSILONS]
            assert all(a >= b for a, b in zip(found, exact, strict=True))

    def test_a_failure_is_part_of_every_delta(self):
        profile = RoundedProfile(PureProfile(0.5), Rounding(0.0, 1e-6))
        assert profile.delta(0.5) >= (1 + math.exp(0.5)) * 1e-6
        assert profile.delta(10.0) >= (1 + math.exp(10.0)) * 1e-6
        assert (1 + math.exp(0.5)) * 1e-6 <= profile.delta(1e4) < 1e-5
        assert profile.epsilon(1e-7) == math.inf
        assert profile.renyi(2.0) == math.inf
        assert profile.gdp() == math.inf


class TestGroups:
    COMPUTED = RoundedProfile(GaussianProfile(0.3), Rounding(1e-6, 1e-18))

    @pytest.mark.parametrize(
        "group", [for_group(COMPUTED, 3), for_group(BestProfile([COMPUTED]), 3), for_pair(COMPUTED)]
    )
    def test_keep_the_failure(self, group):
        assert group.renyi(2.0) == group.gdp() == math.inf
        for whole in (group, compose(group, BestProfile([GaussianProfile(0.1)]))):
            assert whole.delta(60.0) >= 1e-18
            assert whole.epsilon(1e-19) == math.inf

    def test_count_the_distance_once(self):
        exact = for_group(GaussianProfile(0.3), 3)
        assert for_group(self.COMPUTED, 3).epsilon(1e-5) <= exact.epsilon(1e-5) + 2e-5

    def test_losses_are_no_less(self):
        losses = self.COMPUTED.to_pld(discretization=1e-3)
        for epsilon in (0.0, 0.1, 1.0, 5.0, 60.0):
            assert losses.get_delta_for_epsilon(epsilon) >= 1e-18
        assert losses.get_epsilon_for_delta(1e-5) >= self.COMPUTED.epsilon(1e-5) - 1e-9


class TestTightness:
    @pytest.mark.parametrize("mu, between, rise", [(0.27, 7.4e-7, 1e-5), (0.27, 2e-8, 1e-6)])
    def test_costs_little(self, mu, between, rise):
        exact = GaussianProfile(mu)
        computed = RoundedProfile(exact, Rounding(between, 1e-17))
        assert exact.epsilon(1e-5) < computed.epsilon(1e-5) <= exact.epsilon(1e-5) + rise

    def test_nothing_is_nothing(self):
        exact = GaussianProfile(0.5)
        computed = RoundedProfile(exact, Rounding(0.0, 0.0))
        np.testing.assert_allclose(
            computed.deltas(EPSILONS), exact.deltas(EPSILONS), rtol=1e-8, atol=1e-300
        )
        assert computed.renyi(3.0) == exact.renyi(3.0)
        assert math.isclose(computed.gdp(), exact.gdp())


class TestComposition:
    def test_the_triangle_comes_last(self):
        one = RoundedProfile(GaussianProfile(0.3), Rounding(3e-6, 1e-18))
        other = RoundedProfile(GaussianProfile(0.4), Rounding(4e-6, 2e-18))
        for both in (compose(one, other), compose(BestProfile([one, one]), other)):
            assert isinstance(both, RoundedProfile)
            assert math.isclose(both.exact.gdp(), 0.5)
            assert math.isclose(both.rounding.mu, 5e-6)
            assert math.isclose(both.rounding.failure, 3e-18)

    def test_what_is_exact_adds_no_distance(self):
        one = RoundedProfile(GaussianProfile(0.3), Rounding(3e-6, 1e-18))
        for both in (compose(one, GaussianProfile(0.4)), compose_with_gaussian(one, 0.4)):
            assert math.isclose(both.exact.gdp(), 0.5)
            assert math.isclose(both.rounding.mu, 3e-6)


class TestLimits:
    def test_an_unknown_distance_promises_nothing(self):
        profile = RoundedProfile(GaussianProfile(0.1), Rounding(math.inf, 0.0))
        assert profile.deltas(EPSILONS).tolist() == [1.0] * EPSILONS.size
        assert profile.gdp() == math.inf

    def test_two_distances_are_hypotenuse_and_sum(self):
        both = Rounding(3e-6, 1e-18).beside(Rounding(4e-6, 2e-18))
        assert 5e-6 <= both.mu <= 5e-6 * (1 + 1e-12)
        assert 3e-18 <= both.failure <= 3e-18 * (1 + 1e-12)

    @pytest.mark.parametrize("mu, failure", [(-1.0, 0.0), (math.nan, 0.0), (0.0, 2.0)])
    def test_refusals(self, mu, failure):
        with pytest.raises(InvalidParameter):
            Rounding(mu, failure)

    def test_deltas_fall(self):
        found = RoundedProfile(GaussianProfile(0.4), Rounding(1e-4, 1e-12)).deltas(
            np.linspace(0.0, 5.0, 400)
        )
        # Until failures weigh more than what falls.
        assert (np.diff(found[found > 1e-9]) <= 0.0).all()


WHOLE = 11.0  # standard deviations at which noise is cut off, as good as none
DEPTHS = np.array([0.0, 0.5, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0])  # of epsilon, in units of mu


def known_curve(pair):
    """The exact curve of a pair of laws."""

    def deltas(epsilons):
        found = [pair.delta(float(epsilon)) for epsilon in np.ravel(epsilons)]
        return np.minimum(np.reshape(found, np.shape(epsilons)) + pair.error, 1.0)

    return Curve(deltas)


@dataclass(frozen=True)
class Machine:
    """Steps as a machine takes them, and the exact run's guarantee."""

    steps: tuple
    slopes: tuple  # Lipschitz constants of the exact maps
    exact: PrivacyProfile
    kind: str
    cut: float

    def rounding(self):
        before = [0.0, *(step.unit for step in self.steps[:-1])]
        errors = [
            step.error + slope * unit
            for step, slope, unit in zip(self.steps, self.slopes, before, strict=True)
        ]
        noises = [step.noise_std for step in self.steps]
        mu = optimal_shifts(contraction=self.slopes, sensitivity=errors, noise=noises).mu
        lost = math.erfc(self.cut / math.sqrt(2.0)) * len(self.steps)
        return Rounding(mu, min(lost * (1 + 1e-12), 1.0))

    def laws(self, rng):
        return aligned(*(machine_law(self.steps, w, self.kind, self.cut, rng) for w in (0, 1)))


def linear_machine(rng, kind=None, cut=None):
    """Linear maps, of which some are shifted in the second world."""
    count = int(rng.integers(1, 6))
    slopes = rng.choice([-0.8, 0.3, 0.7, 0.95, 1.0, 1.03], count)
    after = np.append(np.cumprod(slopes[:0:-1])[::-1], 1.0)  # of an earlier shift, what is left
    noises = rng.uniform(0.5, 2.0, count) if rng.random() < 0.5 else np.ones(count)
    moved = rng.random(count) < 0.7
    moved[rng.integers(count)] = True
    shifts = rng.uniform(0.02, 0.5) * noises.min() * moved * np.sign(after)
    errors = rng.choice([0.01, 0.1, 0.3]) * noises.min()
    bits = int(rng.integers(4, 7))
    steps = tuple(
        RoundedStep(
            (linear_map(slope), linear_map(slope, shift)),
            noise,
            bits,
            max(errors, 0.51 * noise * 2.0**-bits),
            math.copysign(1.0, left),
        )
        for slope, shift, noise, left in zip(slopes, shifts, noises, after, strict=True)
    )
    mu = abs(after @ shifts) / math.sqrt(after**2 @ noises**2)
    chosen = kind or str(rng.choice([APART, APART, TOGETHER, RANDOM, COIN]))
    off = cut or float(rng.choice([2.5, 4.0, WHOLE, WHOLE]))
    exact = GaussianProfile(max(mu * (1 + 1e-12), 1e-9))
    return Machine(steps, tuple(np.abs(slopes)), exact, chosen, off)


def piecewise_machine(rng):
    """Maps of several slopes, so that the exact laws are not Gaussian."""
    count = int(rng.integers(2, 4))
    made = random_instance(
        rng,
        steps=count, slope_low=float(rng.choice([0.0, 0.5])), slope_high=1.0, sensitivity=0.3,
        participations=[1, count], noise_std=1.0, kind="wild",
    )  # fmt: skip
    steps = tuple(RoundedStep((one.phi, one.phi_other), 1.0, 5, 0.1) for one in made.steps)
    kind = str(rng.choice([APART, TOGETHER, RANDOM]))
    exact = known_curve(exact_pair(made, lost_mass=1e-30))
    return Machine(steps, (1.0,) * count, exact, kind, WHOLE)


def epsilons_of(machine):
    """From 0 to where little is left of either curve."""
    mu = machine.exact.gdp() if math.isfinite(machine.exact.gdp()) else 0.6
    mu += 2.0 * machine.rounding().mu
    return np.minimum(DEPTHS * mu, 30.0)


def triangle(machine):
    return RoundedProfile(machine.exact, machine.rounding())


def excess(machine, profile, rng):
    """The largest ratio of the machine's delta to what the profile says."""
    laws, epsilons = machine.laws(rng), epsilons_of(machine)
    found = np.array([hockey_stick(laws, epsilon) for epsilon in epsilons])
    said = profile.deltas(epsilons)
    told = found > 1e-40  # below, the machine's law has no digits left
    return float((found[told] / said[told]).max(initial=0.0)), laws


def never_more_than_said(make, seeds):
    near = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        machine = make(rng)
        ratio, laws = excess(machine, triangle(machine), rng)
        assert ratio <= 1.0 + 1e-9, seed
        near += ratio > 0.1
        for delta in (1e-2, 1e-5):
            epsilon = triangle(machine).epsilon(delta)
            assert math.isinf(epsilon) or hockey_stick(laws, epsilon) <= delta, seed
    assert near > 0.2 * len(seeds)  # not all are far from what is said


def raised(profile, by):
    """A curve raised by a constant."""
    return Curve(lambda epsilons: np.minimum(profile.deltas(epsilons) + by, 1.0))


WRONG = {
    "exact": lambda m: m.exact,
    "half of the distance": lambda m: RoundedProfile(
        m.exact, Rounding(m.rounding().mu / 2.0, m.rounding().failure)
    ),
    "one side": lambda m: GaussianProfile(m.exact.gdp() + m.rounding().mu),
    "both in quadrature": lambda m: compose_with_gaussian(m.exact, 2.0 * m.rounding().mu),
    "no failures": lambda m: RoundedProfile(m.exact, Rounding(m.rounding().mu, 0.0)),
    "failures of one world": lambda m: raised(
        RoundedProfile(m.exact, Rounding(m.rounding().mu, 0.0)), m.rounding().failure
    ),
}


class TestMachines:
    def test_linear_maps(self):
        never_more_than_said(linear_machine, range(25))

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "make, seeds",
        [(linear_machine, range(1_000, 3_000)), (piecewise_machine, range(100))],
        ids=["linear", "piecewise"],
    )
    def test_many(self, make, seeds):
        never_more_than_said(make, seeds)

    @pytest.mark.parametrize("name", [*WRONG, None])
    def test_what_a_careless_derivation_would_leave_out_is_seen(self, name):
        cut = name is None or "failures" in name
        settings = {"cut": 2.5} if cut else {"kind": APART, "cut": WHOLE}
        found = 0.0
        for seed in range(30):
            rng = np.random.default_rng(seed)
            machine = linear_machine(rng, **settings)
            profile = (WRONG[name] if name else triangle)(machine)
            found = max(found, excess(machine, profile, rng)[0])
            if found > 1.01:
                break
        assert (found > 1.01) == (name is not None)
