"""A profile that is nothing but its curve."""

import math

from lastiterate.profile import PrivacyProfile


class Curve(PrivacyProfile):
    def __init__(self, curve):
        self.curve = curve

    def deltas(self, epsilons):
        return self.curve(epsilons)

    def renyi(self, order=2.0):
        return math.inf

    gdp = renyi
