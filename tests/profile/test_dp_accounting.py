"""Another package's private parts: used in one file, which says what they are."""

import re
from pathlib import Path

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution

import lastiterate
from lastiterate.profile import pld as dp_accounting

PACKAGE = Path(lastiterate.__file__).parent
PRIVATE = re.compile(
    r"_pmf_(remove|add)|\._(discretization|lower_loss|probs|infinity_mass|pessimistic_estimate)\b"
    r"|import _compute|pld_pmf"
    r"|accountant\._|\._(pld|contains_non_dp_event|value_discretization_interval)\b"
)


def test_are_used_in_one_file():
    users = {file for file in PACKAGE.rglob("*.py") if PRIVATE.search(file.read_text())}
    assert users == {PACKAGE / "profile" / "dp_accounting.py"}


class TestLosses:
    @pytest.mark.parametrize("probability", [1.0, 0.1])
    def test_are_those_of_the_distribution(self, probability):
        pld = privacy_loss_distribution.from_gaussian_mechanism(2.0, sampling_prob=probability)
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
        pld = privacy_loss_distribution.from_gaussian_mechanism(2.0)
        (whole,) = dp_accounting.losses_of(dp_accounting.made_whole(pld))
        assert whole.masses.sum() + whole.infinite >= 1.0

    def test_what_is_no_upper_bound_is_known(self):
        make = privacy_loss_distribution.from_gaussian_mechanism
        assert dp_accounting.is_pessimistic(make(1.0))
        assert not dp_accounting.is_pessimistic(make(1.0, pessimistic_estimate=False))
        assert not dp_accounting.is_distribution("a distribution")
