r"""Bounds for the limits of Langevin chains and for the exponential mechanism.

A chain x' = x - eta grad F(x) + N(0, 2 eta) is full-batch descent on one loss with noise
sigma = sqrt(2/eta).  F and F', of adjacent data sets, are convex and smooth, and F - F' is
L-Lipschitz: L is the sensitivity of this library.  (Where the source asks that F and F' be
L_BSA-Lipschitz each, L = 2 L_BSA.)
"""

import math

from lastiterate._numerics.rounding import at_least
from lastiterate.bounds import quantities
from lastiterate.errors import InvalidParameter
from lastiterate.profile.best import BestProfile
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.profile.privacy_profile import PrivacyProfile
from lastiterate.profile.pure import PureProfile
from lastiterate.run.domain import Ball, Domain
from lastiterate.run.training_run import TrainingRun

_NO_LAW = "above 0 on an unbounded domain: there is no law to draw from otherwise"


def stationary(run: TrainingRun) -> GaussianProfile:
    r"""The law that the chain tends to as it runs for ever.

    **Bound.** :math:`\mu^2 = \frac{1+c}{1-c}\frac{\eta L^2}{2}`, which is
    :math:`\frac{2-\eta m}{2}\frac{L^2}{m}` for :math:`\eta \le 2/(M+m)`; on a domain of diameter D
    also :math:`2LD + \eta L^2/2`.

    **Holds when.** F is m-strongly convex or the domain bounded, and no step exceeds 2/M.

    **Tight.** The first exactly, for quadratics.

    **Source.** Bok, Su and Altschuler 2024, Proposition 5.1, Corollaries 5.2 and 5.4.

    **Computed as** printed; rounded up.
    """
    eta, L, gap = quantities.unit(run), run.sensitivity, quantities.constant_gap(run)
    squares = [] if not gap > 0.0 else [(2.0 - gap) / gap * eta * L * L / 2.0]
    if isinstance(run.domain, Ball):
        squares.append(2.0 * L * run.domain.diameter + eta * L * L / 2.0)
    if not squares:
        raise InvalidParameter("strong_convexity", run.loss.strong_convexity, must_be=_NO_LAW)
    return GaussianProfile(at_least(math.sqrt(min(squares)), ulps=16))


def exponential_mechanism(
    *, sensitivity: float, strong_convexity: float, domain: Domain
) -> PrivacyProfile:
    r"""One exact draw from the density proportional to e^-F, on the domain.

    **Bound.** :math:`\mu = L/\sqrt m`; on a domain of diameter D also :math:`\sqrt{2LD}`, and
    (LD, 0)-DP, which is the better while LD < 1.353.

    **Holds when.** F is m-strongly convex, or convex on a bounded domain; L-Lipschitz differences.

    **Tight.** The first exactly, for quadratics.

    **Source.** Bok, Su and Altschuler 2024, Corollaries 5.2 and 5.4, section D.4; McSherry and
    Talwar 2007.

    **Computed as** printed; rounded up.
    """
    profiles: list[PrivacyProfile] = []
    if strong_convexity > 0.0:
        mu = sensitivity / math.sqrt(strong_convexity)
        profiles.append(GaussianProfile(at_least(mu, ulps=8)))
    if isinstance(domain, Ball):
        reach = at_least(sensitivity * domain.diameter, ulps=4)
        profiles += [GaussianProfile(at_least(math.sqrt(2.0 * reach), ulps=8)), PureProfile(reach)]
    if not profiles:
        raise InvalidParameter("strong_convexity", strong_convexity, must_be=_NO_LAW)
    return profiles[0] if len(profiles) == 1 else BestProfile(profiles)
