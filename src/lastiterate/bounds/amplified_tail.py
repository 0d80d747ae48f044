r"""Sampled batches: the mixture for most of a run, amplification by sampling for its last steps.

The mixture of `sampled` reveals in which steps the example took part.  That is dear at the end:
what the very last participation brings has no later noise to hide in.  Composition with sampling
never reveals it, but charges for every iterate.  Here the last R steps are charged as in
composition, with a share :math:`\theta` of their noise, while the rest of it pays what is left of
the distance.

**Proof.** Let z be the distance, after T - R steps and given the participations V so far, between
the run on one data set, x', and a third run, x~, as in `engine.shifts`; the run on the other data
set is x.  Write the noise of a later step as A + B, independent, of variance :math:`\theta` and
:math:`1 - \theta` of it.  From x~ the third run goes on with the same losses, batch S and noise as
x', plus a shift of length at most a towards that: the distance becomes at most :math:`cz - a`,
since both take the same step.  Compare it with x:

* :math:`\phi^S(x) + A` against :math:`\phi'^S(x) + A`, S secret, is a Gaussian mechanism on a
  sampled batch with noise A, whatever x is;
* given that result, B against B plus a shift that depends on S, x~ and x' is, by joint
  convexity, at most a shift of length a with noise B.

Adaptive composition gives both, and the step is the sum of the two.  So the steps are worth
:math:`C_p(G(r/\sqrt\theta))^{\otimes R}`, and the shifts are those of R more steps of the engine,
without arrivals and with noise B, which together are like noise on release.  The last steps are
independent of V, so averaging over V leaves for the whole run

.. math:: \Big(E_V\,\delta_{\mu(V)}\Big) \otimes C_p(G(r/\sqrt\theta))^{\otimes R} .

Projections are after the sum and bring nothing further apart.
"""

import math
from functools import lru_cache
from itertools import product

import numpy as np
import scipy

from lastiterate._numerics.arrays import Array
from lastiterate._numerics.geometric import (
    inverse_power,
    log_of,
    sum_of_inverse_powers,
    sums_of_powers,
)
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, down
from lastiterate._numerics.search import bracket
from lastiterate.bounds import quantities
from lastiterate.bounds.bound import Bound, Certainty, Citation
from lastiterate.bounds.sampled import POISSON, SAMPLED, at_worst, mixture
from lastiterate.bounds.sampled_composition import SAMPLED_COMPOSITION, composed_steps
from lastiterate.profile.best import BestProfile
from lastiterate.profile.compose import compose
from lastiterate.profile.gaussian import gaussian_deltas
from lastiterate.profile.gaussian_mixture import GaussianMixtureProfile
from lastiterate.profile.loss_distribution import (
    LossDistributionProfile,
    least_discretization,
    to_pld,
)
from lastiterate.profile.profile import PrivacyProfile
from lastiterate.run.batches import PoissonSampled, SampledWithoutReplacement
from lastiterate.run.training_run import TrainingRun

_CELL = 2e-3
_FEWER = 0.003  # parts of a mixture nearer to each other than this are made one
_DRAWS = 100
_MOST_ARRIVALS = 1_000
_USUAL_DELTA = 1e-5
_LATE_DELTA = 1e-3  # late losses add to early ones: it is not their tail that matters most
_LEAST_RATIO = 1e-6
_MOST_RELEASED = 1e6  # more noise on release, relative to a step's, is not used
_TRIED = 4
_HOPELESS = 30.0  # an epsilon that is not worth the time
_LASTS = (1, 2, 5, 10, 20, 40, 80, 120, 160, 320, 640)
_SHARES = (0.5, 0.7, 0.8, 0.87, 0.93)


def sampled_hidden_end(run: TrainingRun) -> PrivacyProfile:
    r"""A mixture over early participations, composed with last steps whose batches stay hidden.

    **Bound.** :math:`\big(E_V\,\delta_{\mu(V)}\big) \otimes C_p(G(r/\sqrt\theta))^{\otimes R}`: V
    are the participations before the last R steps, and :math:`\mu(V)` is the guarantee of
    `random-order/sampled` for these with :math:`(1-\theta)\sum_{j\le R}c^{-2j}` steps' noise on
    release.  p = b/n, r = L/(b sigma).

    **Holds when.** both `random-order/sampled` and `composition/sampled` do.

    **Tight.** Below `random-order/sampled` by a few per cent where the past lasts, by a factor
    where losses curve; the scoreboard in the docs has what is left.

    **Source.** This library; Bok, Su and Altschuler 2024, Theorem C.3; Dong, Roth and Su 2022,
    Theorem 9.

    **Computed as** its two parts are, composed as privacy loss distributions; R and
    :math:`\theta` are chosen by a simulation of V, and any choice is valid.
    """
    return _hidden_end(run, run)


def poisson_hidden_end(run: TrainingRun) -> PrivacyProfile:
    r"""The same for batches of random size.

    **Bound.** As for batches of a fixed size, with the contraction of `random-order/poisson` and
    the Gaussian mechanism on Poisson batches of `composition/sampled`.

    **Holds when.** both of these do.  Given which other examples each batch has, and that none is
    larger than K, the differing one takes part independently with probability p, or, where it
    would be one too many, not at all; the chance of larger ones in any step is charged
    delta = 1.

    **Tight.** As for batches of a fixed size.

    **Source.** This library; Bok, Su and Altschuler 2024, Theorem C.3; Zhu, Dong and Wang 2022.

    **Computed as** for batches of a fixed size.
    """
    fixed, lost = at_worst(run)
    return _hidden_end(run, fixed, lost)


def _hidden_end(sampling: TrainingRun, run: TrainingRun, lost: float = 0.0) -> PrivacyProfile:
    """With the batches of `sampling` and the contraction of `run`."""
    last, share = _best_split(sampling, run)
    late = _late_steps(sampling, last, share) if last else None
    if late is None:
        return mixture(run, lost)
    gap = float(quantities.gaps(run)[0])
    noise = float(quantities.noises(run)[0])
    log_square = 2.0 * _log_c(gap)
    paying = (1.0 - share) * sum_of_inverse_powers(log_square, last)
    paying = down(paying, MILLIONS_OF_ROUNDINGS)
    own = min(run.release_noise_std / (quantities.unit(run) * noise), _MOST_RELEASED)
    unshrunk = down(inverse_power(log_square, last), MILLIONS_OF_ROUNDINGS)
    worth = min(paying + own * own * unshrunk, 1e12)
    released = down(math.sqrt(worth) * quantities.unit(run) * noise, MILLIONS_OF_ROUNDINGS)
    early = mixture(run.replace(steps=run.steps - last, release_noise_std=released), lost)
    scale = min(max(early.epsilon(_USUAL_DELTA) / 10.0, 1.0), 100.0)  # large ones need fewer digits
    cell = max(_CELL * scale, 1.1 * least_discretization(late))
    coarse = LossDistributionProfile(to_pld(late, discretization=cell))
    return compose(_fewer_parts(early), coarse)


def _log_c(gap: float) -> float:
    """Of a contraction cut at a tenth, which only lowers what the last steps can pay."""
    return log_of(min(gap, 0.9))


def _fewer_parts(profile: PrivacyProfile) -> PrivacyProfile:
    """The least of several curves may be composed: each bounds the average over V of the best."""
    parts = profile.profiles if isinstance(profile, BestProfile) else (profile,)
    fewer = [p.coarser(_FEWER) if isinstance(p, GaussianMixtureProfile) else p for p in parts]
    return fewer[0] if len(fewer) == 1 else BestProfile(fewer)


def _best_split(sampling: TrainingRun, run: TrainingRun) -> tuple[int, float]:
    """How many steps to hide and which share of their noise hides them, by a rough simulation."""
    probability = run.batches.share
    gap, noise = float(quantities.gaps(run)[0]), float(quantities.noises(run)[0])
    ratio = float(quantities.arrivals(run)[0]) / noise
    if not _LEAST_RATIO < ratio < 1.0 / _LEAST_RATIO:
        return 0, 1.0
    ratio = math.exp(round(math.log(ratio) / 0.1) * 0.1)  # so that noise levels share a split
    rounded = sampling.replace(noise_std=run.sensitivity / run.batches.batch_size / ratio)
    own = min(run.release_noise_std / (quantities.unit(run) * noise), _MOST_RELEASED) ** 2
    ages = _ages(gap, run.steps, probability)

    def epsilon(last: int, share: float, hidden: float) -> float:
        worth = (1.0 - share) * sum_of_inverse_powers(2.0 * _log_c(gap), last) + own
        kept = [age[age < run.steps - last] for age in ages]
        return _rough_epsilon(kept, gap, worth, ratio, hidden)

    whole = epsilon(0, 1.0, 0.0)
    if whole > _HOPELESS:
        return 0, 1.0
    rough = {}
    for last, share in product(_LASTS, _SHARES):
        if last < run.steps and ratio * ratio / share <= 50.0:
            spread = probability * math.sqrt(last * math.expm1(ratio * ratio / share))
            # Their tails are heavier than a Gaussian's of that spread.
            rough[last, share] = epsilon(last, share, (1.0 + ratio) * spread * spread)
    found = {(0, 1.0): 0.99 * whole}  # less is not worth what composing costs
    for last, share in sorted(rough, key=rough.__getitem__)[:_TRIED]:
        found[last, share] = epsilon(last, share, _hidden_square(rounded, last, share))
    return min(found, key=found.__getitem__)


def _late_steps(run: TrainingRun, last: int, share: float) -> PrivacyProfile | None:
    """Their losses in cells of about half of what they are composed in, if they are not small."""
    ratio = run.sensitivity / run.batches.batch_size / float(np.min(run.noise_std))
    typical = run.batches.share * ratio
    return composed_steps(run, last, share=share, least_cell=min(_CELL / 2, typical / 5))


@lru_cache(maxsize=256)
def _hidden_square(run: TrainingRun, last: int, share: float) -> float:
    """The square of the mu of a Gaussian mechanism about as private as the last steps."""
    late = _late_steps(run, last, share)
    if late is None:
        return math.inf
    epsilon = late.epsilon(_LATE_DELTA)

    def below(mu: float) -> bool:
        return bool(gaussian_deltas(np.array([mu]), np.array([epsilon]))[0] < _LATE_DELTA)

    mu = bracket(below, 0.0, 100.0, apart=1e-10)[1]
    return mu * mu


def _ages(gap: float, steps: int, probability: float) -> list[Array]:
    """How long before the end an example took part, in some draws; only what may still matter."""
    rng = np.random.default_rng(0)
    span = int(min(steps, 10.0 / max(gap, 1e-12), _MOST_ARRIVALS / probability))
    counts = rng.binomial(span, probability, _DRAWS)
    return [np.unique(rng.integers(0, span, count))[::-1].astype(float) for count in counts]


def _rough_epsilon(
    ages: list[Array], gap: float, worth: float, ratio: float, hidden: float
) -> float:
    """Of the average over draws of Gaussian curves, with the square of one more mu."""
    energies = [_energy(age, gap, worth) for age in ages]
    mus = np.sqrt(ratio * ratio * np.array(energies) + hidden + 1e-12)

    def above(epsilon: float) -> bool:
        return float(np.mean(gaussian_deltas(mus, np.full(mus.size, epsilon)))) > _USUAL_DELTA

    return bracket(above, 0.0, 700.0, apart=1e-9)[1]


def _energy(age: Array, gap: float, worth: float) -> float:
    if not age.size:
        return 0.0
    log_c = _log_c(gap)
    since = -np.diff(age, append=-1.0)  # steps from each participation up to the next
    spread = since if gap < 1e-12 else sums_of_powers(2 * log_c, since)
    between = np.exp(2 * log_c * (age - since + 1.0)) * spread
    between[-1] += worth
    rates = scipy.optimize.isotonic_regression(np.exp(age * log_c) / between, weights=between).x
    return float(np.sum(between * np.square(rates)))


_SOURCE = Citation(
    "lastiterate",
    2026,
    "Hidden ends of sampled runs",
    "docs, tightness; after Bok, Su and Altschuler 2024 and Dong, Roth and Su 2022",
)

SAMPLED_HIDDEN_END = Bound(
    id="random-order/sampled-hidden-end",
    gives="that average for most steps, composed with the last ones, whose batches stay hidden",
    covers=(SampledWithoutReplacement,),
    needs=tuple(dict.fromkeys((*SAMPLED.needs, *SAMPLED_COMPOSITION.needs))),
    certainty=Certainty.UPPER,
    source=_SOURCE,
    evaluate=sampled_hidden_end,
)

POISSON_HIDDEN_END = Bound(
    id="random-order/poisson-hidden-end",
    gives="the same for batches of random size",
    covers=(PoissonSampled,),
    needs=tuple(dict.fromkeys((*POISSON.needs, *SAMPLED_COMPOSITION.needs))),
    certainty=Certainty.UPPER,
    source=_SOURCE,
    evaluate=poisson_hidden_end,
)
