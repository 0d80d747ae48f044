"""What every profile answers: trade-offs at many rates, in the shape they were asked."""

import numpy as np
import pytest

from lastiterate.errors import InvalidParameter
from lastiterate.profile import BestProfile, GaussianProfile, ZCDPProfile

PROFILES = {
    "gaussian": GaussianProfile(1.0),
    "zcdp": ZCDPProfile(0.5),
    "best": BestProfile([GaussianProfile(1.0), ZCDPProfile(0.1)]),
}


class TestTradeoffAtManyRates:
    RATES = np.array([[0.0, 0.05, 0.3], [0.5, 0.99, 1.0]])

    @pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
    def test_is_that_at_each_of_them_in_the_same_shape(self, profile):
        found = profile.tradeoff(self.RATES)
        assert found.shape == self.RATES.shape
        one_by_one = [profile.tradeoff(float(rate)) for rate in self.RATES.ravel()]
        assert found.ravel().tolist() == one_by_one
        assert profile.tradeoff([0.3]).tolist() == [profile.tradeoff(0.3)]
        assert profile.tradeoff(np.zeros((0, 2))).shape == (0, 2)
        assert isinstance(profile.tradeoff(np.float64(0.3)), float)
        assert isinstance(profile.tradeoff(np.array(0.3)), float)

    @pytest.mark.parametrize("wrong", [[0.1, 1.1], [0.1, np.nan], ["a"], [True], [0.1, None]])
    def test_refusals(self, wrong):
        with pytest.raises(InvalidParameter, match="fpr must be a number in"):
            GaussianProfile(1.0).tradeoff(wrong)
