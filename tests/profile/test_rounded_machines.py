"""Machines on the line whose privacy is known exactly never have less than the triangle says.

The exact run is one of linear maps, whose last iterate is Gaussian, or of piecewise linear ones,
whose densities are known.  The machine's maps are wrong by as much as is allowed, in whatever sense
an adversary likes, and its noise is a floor, cut off.
"""

import math
from dataclasses import dataclass

import numpy as np
import pytest

from lastiterate.profile import GaussianProfile, PrivacyProfile
from lastiterate.profile.compose import compose_with_gaussian
from lastiterate.profile.rounded import RoundedProfile, Rounding
from lastiterate.shifts.optimal_shifts import optimal_shifts
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

WHOLE = 11.0  # standard deviations at which noise is cut off, as good as none
DEPTHS = np.array([0.0, 0.5, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0])  # of epsilon, in units of mu


class KnownCurve(PrivacyProfile):
    """The exact curve of a pair of laws."""

    def __init__(self, pair):
        self.pair = pair

    def deltas(self, epsilons):
        found = [self.pair.delta(float(epsilon)) for epsilon in np.ravel(epsilons)]
        return np.minimum(np.reshape(found, np.shape(epsilons)) + self.pair.error, 1.0)

    def renyi(self, order):
        return math.inf

    def gdp(self):
        return math.inf


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
        steps=count,
        slope_low=float(rng.choice([0.0, 0.5])),
        slope_high=1.0,
        sensitivity=0.3,
        participations=[1, count],
        noise_std=1.0,
        kind="wild",
    )
    steps = tuple(RoundedStep((one.phi, one.phi_other), 1.0, 5, 0.1) for one in made.steps)
    kind = str(rng.choice([APART, TOGETHER, RANDOM]))
    exact = KnownCurve(exact_pair(made, lost_mass=1e-30))
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


class TestSoundness:
    def test_linear_maps(self):
        never_more_than_said(linear_machine, range(25))

    @pytest.mark.slow
    def test_two_thousand_linear_maps(self):
        never_more_than_said(linear_machine, range(1_000, 3_000))

    @pytest.mark.slow
    def test_piecewise_linear_maps(self):
        never_more_than_said(piecewise_machine, range(100))


class TestTightness:
    """What a careless derivation would leave out is seen."""

    def killed(self, profile_of, seeds=range(30), **settings):
        found = 0.0
        for seed in seeds:
            rng = np.random.default_rng(seed)
            machine = linear_machine(rng, **settings)
            found = max(found, excess(machine, profile_of(machine), rng)[0])
        return found > 1.01

    def test_rounding_is_seen_at_all(self):
        assert self.killed(lambda machine: machine.exact, kind=APART, cut=WHOLE)

    def test_half_of_the_distance_is_not_enough(self):
        def halved(machine):
            whole = machine.rounding()
            return RoundedProfile(machine.exact, Rounding(whole.mu / 2.0, whole.failure))

        assert self.killed(halved, kind=APART, cut=WHOLE)

    def test_nor_one_side_of_the_triangle(self):
        def one_side(machine):
            return GaussianProfile(machine.exact.gdp() + machine.rounding().mu)

        assert self.killed(one_side, kind=APART, cut=WHOLE)

    def test_nor_both_in_quadrature(self):
        def quadrature(machine):
            return compose_with_gaussian(machine.exact, 2.0 * machine.rounding().mu)

        assert self.killed(quadrature, kind=APART, cut=WHOLE)

    def test_what_is_cut_off_counts(self):
        def without_failures(machine):
            return RoundedProfile(machine.exact, Rounding(machine.rounding().mu, 0.0))

        assert self.killed(without_failures, cut=2.5)

    def test_it_counts_in_both_worlds(self):
        """A failure of the second world is multiplied by a power of epsilon."""

        def once(machine):
            whole = machine.rounding()
            rest = RoundedProfile(machine.exact, Rounding(whole.mu, 0.0))
            return _Raised(rest, whole.failure)

        assert not self.killed(triangle, cut=2.5)
        assert self.killed(once, cut=2.5)


class _Raised(PrivacyProfile):
    """A curve raised by a constant."""

    def __init__(self, profile, by):
        self.profile, self.by = profile, by

    def deltas(self, epsilons):
        return np.minimum(self.profile.deltas(epsilons) + self.by, 1.0)

    def renyi(self, order):
        return math.inf

    def gdp(self):
        return math.inf
