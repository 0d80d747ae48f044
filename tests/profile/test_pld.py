"""Loss distributions of dp-accounting: pessimistic, near, and its private parts in one file."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import (
    from_gaussian_mechanism,
    from_laplace_mechanism,
    from_two_probability_mass_functions,
)

import lastiterate as li
from lastiterate.errors import InvalidParameter
from lastiterate.profile import GaussianProfile
from lastiterate.profile import pld as dp_accounting
from tests.reference.gaussian import delta_of_gaussian

PACKAGE = Path(li.__file__).parent
PRIVATE = re.compile(
    r"_pmf_(remove|add)|\._(discretization|lower_loss|probs|infinity_mass|pessimistic_estimate)\b"
    r"|import _compute|pld_pmf"
    r"|accountant\._|\._(pld|contains_non_dp_event|value_discretization_interval)\b"
)


def test_are_used_in_one_file():
    users = {file for file in PACKAGE.rglob("*.py") if PRIVATE.search(file.read_text())}
    assert users == {PACKAGE / "profile" / "pld.py"}


class TestLosses:
    @pytest.mark.parametrize("probability", [1.0, 0.1])
    def test_are_those_of_the_distribution(self, probability):
        pld = from_gaussian_mechanism(2.0, sampling_prob=probability)
        found = dp_accounting.losses_of(pld)
        assert len(found) == (1 if probability == 1.0 else 2)
        assert max(losses.masses.size for losses in found) == dp_accounting.size_of(pld)
        for losses in found:
            assert losses.cell == dp_accounting.cell_of(pld)
            assert losses.masses.sum() + losses.infinite == pytest.approx(1.0, abs=1e-7)
        deltas = [
            np.maximum(
                -np.expm1(0.5 - losses.cell * (losses.first + np.arange(losses.masses.size))), 0
            )
            @ losses.masses
            + losses.infinite
            for losses in found
        ]
        assert max(deltas) == pytest.approx(pld.get_delta_for_epsilon(0.5), rel=1e-9)

    def test_missing_mass_becomes_infinite(self):
        pld = from_gaussian_mechanism(2.0)
        (whole,) = dp_accounting.losses_of(dp_accounting.made_whole(pld))
        assert whole.masses.sum() + whole.infinite >= 1.0

    def test_what_is_no_upper_bound_is_known(self):
        assert dp_accounting.is_pessimistic(from_gaussian_mechanism(1.0))
        optimistic = from_gaussian_mechanism(1.0, pessimistic_estimate=False)
        assert not dp_accounting.is_pessimistic(optimistic)
        assert not dp_accounting.is_distribution("a distribution")
        with pytest.raises(InvalidParameter, match="pessimistic_estimate=True"):
            li.from_pld(optimistic)
        with pytest.raises(InvalidParameter, match="pld must be"):
            li.from_pld(3.0)


class TestLossDistribution:
    @pytest.mark.parametrize("mu", [0.05, 0.3, 1.0, 3.0])
    def test_discretising_is_pessimistic_and_near(self, mu):
        profile = li.from_pld(GaussianProfile(mu).to_pld())
        for epsilon in np.linspace(0.0, 5 * mu, 12):
            exact = delta_of_gaussian(mu, epsilon)
            assert exact <= profile.delta(epsilon) <= exact * 1.01 + 1e-7
        assert profile.epsilon(1e-6) == pytest.approx(GaussianProfile(mu).epsilon(1e-6), rel=1e-2)

    def test_agrees_with_dp_accounting(self):
        pld = from_gaussian_mechanism(0.7)
        profile = li.from_pld(pld)
        for delta in (1e-2, 1e-5, 1e-7):
            assert profile.epsilon(delta) == pytest.approx(
                pld.get_epsilon_for_delta(delta), rel=1e-4
            )
            assert profile.delta(2.0) == pytest.approx(pld.get_delta_for_epsilon(2.0), rel=1e-8)

    def test_the_object_comes_back(self):
        pld = from_laplace_mechanism(1.0)
        assert li.from_pld(pld).to_pld() is pld
        assert li.from_pld(pld).pld is pld

    def test_both_directions_count(self):
        pld = from_gaussian_mechanism(1.0, sampling_prob=0.1)
        expected = max(pmf.get_delta_for_epsilon(0.5) for pmf in (pld._pmf_remove, pld._pmf_add))
        assert li.from_pld(pld).delta(0.5) == pytest.approx(expected, abs=1e-10)

    def test_divergence_of_randomised_response(self):
        pld = from_two_probability_mass_functions(
            {0: math.log(0.75), 1: math.log(0.25)},
            {0: math.log(0.25), 1: math.log(0.75)},
            value_discretization_interval=1e-4,
        )
        exact = math.log(0.75**3 / 0.25**2 + 0.25**3 / 0.75**2) / 2
        assert exact <= li.from_pld(pld).renyi(3.0) <= exact * 1.001
        kl = 0.75 * math.log(3) - 0.25 * math.log(3)
        assert kl <= li.from_pld(pld).renyi(1.0) <= kl * 1.001

    def test_below_its_rounding_it_promises_nothing(self):
        profile = li.from_pld(from_gaussian_mechanism(1.0))
        assert profile.epsilon(1e-25) == math.inf
        assert profile.gdp() == math.inf

    def test_refuses_cells_too_small_to_hold(self):
        with pytest.raises(InvalidParameter, match="discretization must be at least"):
            GaussianProfile(100.0).to_pld(discretization=1e-6)
