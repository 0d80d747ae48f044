"""The last iterate, and all iterates, of runs whose batches are drawn anew every step."""

import math

import numpy as np
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

from lastiterate._numerics.directed import ULP, at_least, at_most
from lastiterate._numerics.exact import Array
from lastiterate.bounds import hypotheses as need
from lastiterate.bounds import steps as terms
from lastiterate.bounds.bound import Bound, Certainty, Citation, Hypothesis
from lastiterate.bounds.composition import worst_order_composition
from lastiterate.bounds.random_order import SECRET_ORDER
from lastiterate.engine.leftover import leftover_law, spent
from lastiterate.engine.released import released_law
from lastiterate.engine.window import best_window, price
from lastiterate.profile.gaussian import gaussian_deltas
from lastiterate.profile.gaussian_mixture import GaussianMixtureProfile
from lastiterate.profile.loss_distribution import least_discretization, self_composed, to_pld
from lastiterate.profile.profile import PrivacyProfile
from lastiterate.run.batches import PoissonSampled, SampledWithoutReplacement
from lastiterate.run.training_run import TrainingRun

_LARGEST_RATIO = 20.0
_LARGEST_CELL = 50.0
_MOST_COMPOSED = 10_000_000
_CELLS = 8192


def sampled(run: TrainingRun) -> GaussianMixtureProfile:
    r"""A mixture over the participations of the differing example.

    **Bound.** :math:`\delta(\varepsilon) = E_V\,\delta_{\mu(V)}(\varepsilon)`, V independent
    Bernoulli(b/n), with :math:`\mu(V) \le r(\sqrt{q_R} + \kappa_R Z)`: :math:`q_R` is the
    least energy of the participations of the last R steps without contraction, Z what the
    earlier ones left (at most the diameter), and
    :math:`\kappa_R = c^R / \sqrt{1 + c^2 + .. + c^{2(R-1)}}` the price of paying it over those
    steps.  (The two payment plans are superposed.)  r = L/(b sigma).

    **Holds when.** every step draws its batch uniformly without replacement, independently and
    in secret; losses are convex and smooth, no step exceeds 2/smoothness, gradients are not
    changed by norm clipping; step size and noise are constant.  Noise on release is not used.

    **Tight.** For c = 1 and R = T the exact mixture but for the grid; contraction inside the
    window is not used.

    **Source.** Bok, Su and Altschuler 2024, Theorem C.3; the law of the faces of the convex
    minorant of an exchangeable walk, Abramson and Pitman 2011.

    **Computed as** the exact law by Fourier transforms, costs rounded up, what is cut charged
    delta = 1; Z by a law that dominates it.
    """
    gap = max(float(terms.gaps(run)[0]), 0.0)
    probability = run.batches.batch_size / run.batches.examples
    arrival, noise = float(terms.arrivals(run)[0]), float(terms.noises(run)[0])
    cap = terms.diameter(run) / arrival * (1.0 + 1e-12)
    worth = at_most((terms.release_noise(run) / noise) ** 2, ulps=8)
    length, payment = best_window(gap, run.steps, probability, cap, worth)
    law = released_law(length, probability, worth)
    earlier = run.steps - length
    left = leftover_law(gap=gap, steps=earlier, probability=probability, cap=cap, payment=payment)
    extra = price(gap, length, worth) * left.levels
    roots, masses = _added(np.sqrt(law.energies), law.masses, extra, left.chances)
    units = np.hypot(roots, math.sqrt(spent(gap, earlier, payment))) * (1.0 + 4 * ULP)
    mus = units * at_least(arrival / noise, ulps=terms.WIDENING)
    return GaussianMixtureProfile(masses, mus, lost=min(law.lost + left.lost, 1.0))


def _added(one: Array, chance: Array, other: Array, chance_of_other: Array) -> tuple[Array, Array]:
    """The law of the sum of two independent variables, rounded up to a grid."""
    if other.size == 1 and other[0] == 0.0:
        return one, chance
    cell = (one.max() + other.max()) / (_CELLS - 1)
    place = np.ceil((one + other[:, None]) / cell).astype(np.int64)
    weights = chance * chance_of_other[:, None]
    masses = np.zeros(int(place.max()) + 1)
    np.add.at(masses, place.ravel(), weights.ravel())
    return cell * np.arange(masses.size, dtype=np.float64) * (1.0 + 1e-12), masses


class _SubsampledGaussian(PrivacyProfile):
    """One step: delta(t) = p delta_r(log(1 + (e^t - 1)/p)) for t >= 0, in both directions."""

    def __init__(self, probability: float, ratio: float) -> None:
        self._probability, self._ratio = probability, ratio

    def deltas(self, epsilons: Array) -> Array:
        with np.errstate(over="ignore"):
            shifted = np.log1p(np.expm1(np.minimum(epsilons, 700.0)) / self._probability)
        shifted = np.minimum(shifted, 1e6) * (1.0 - 1e-15)
        deltas = gaussian_deltas(np.full(epsilons.shape, self._ratio), shifted)
        return np.asarray(np.minimum(self._probability * deltas * (1.0 + 1e-15), 1.0))

    def renyi(self, order: float) -> float:
        return math.inf

    def gdp(self) -> float:
        return math.inf


def sampled_composition(run: TrainingRun) -> PrivacyProfile:
    r"""All iterates, with the chance of taking part.

    **Bound.** :math:`C_p(G(r))^{\otimes T}`, p = b/n, r = L/(b sigma): every step is a Gaussian
    mechanism on a batch that has the differing example with probability p.

    For Poisson batches and an example being left out, the two directions of that step are
    composed separately.

    **Holds when.** every step draws its batch uniformly without replacement (and an example is
    replaced), or includes every example independently, never cut (and an example is left
    out), independently and in secret, and has noise.  What is released does not matter,
    except the order.

    **Tight** for one step, if nothing else is known of the losses.

    **Source.** Dong, Roth and Su 2022, Theorem 9; Bok, Su and Altschuler 2024, Theorem 4.8 and
    Proposition D.4.

    **Computed as** a pessimistic privacy loss distribution of one step, composed by Fourier
    transforms; a schedule of noise is charged its least.
    """
    probability = run.batches.batch_size / run.batches.examples
    noise = float(np.min(run.noise_std))
    ratio = at_least(run.sensitivity / run.batches.batch_size / noise, ulps=terms.WIDENING)
    one = _SubsampledGaussian(probability, ratio)
    cell = max(_cell(probability, ratio, run.steps), 1.1 * least_discretization(one))
    if cell > _LARGEST_CELL:
        return worst_order_composition(run)
    if isinstance(run.batches, PoissonSampled):
        pld = from_gaussian_mechanism(
            1.0 / ratio,
            sampling_prob=probability,
            value_discretization_interval=cell,
            use_connect_dots=True,
        )
    else:
        pld = to_pld(one, discretization=cell)
    return self_composed(pld, run.steps)


def _cell(probability: float, ratio: float, steps: int) -> float:
    """Fine enough for the sum of all losses, coarse enough to hold it."""
    spread = probability * math.sqrt(steps * math.expm1(min(ratio * ratio, 600.0)))
    mean = probability * steps
    most = min(mean + math.sqrt(60 * mean) + 30, steps)  # participations, but for e^-30
    reach = min(spread * spread / 2 + 10 * spread + 20 * ratio, most * ratio * (ratio / 2 + 10))
    return max(min(1e-4, probability * ratio / 5), reach / 400_000)


def _other_adjacency(run: TrainingRun) -> str | None:
    """A batch of fixed size without the example has another in its place.

    So the theorem compares the example with any other too, which zero-out sensitivity does
    not bound.
    """
    poisson = isinstance(run.batches, PoissonSampled)
    if run.adjacency != ("zero-out" if poisson else "replace"):
        return f"adjacency={run.adjacency!r}"
    cut = isinstance(run.batches, PoissonSampled) and run.batches.largest_batch
    return f"largest_batch={cut}" if cut and cut != run.batches.examples else None


def _loud_step(run: TrainingRun) -> str | None:
    least = float(np.min(run.noise_std))
    if not least > 0.0:
        return f"noise_std {least!r}"
    ratio = run.sensitivity / run.batches.batch_size / least
    return None if ratio <= _LARGEST_RATIO else f"sensitivity/(batch_size noise_std) = {ratio:.4g}"


def _too_many(run: TrainingRun) -> str | None:
    return None if run.steps <= _MOST_COMPOSED else f"steps={run.steps}"


def _varying(run: TrainingRun) -> str | None:
    return None if run.is_constant else "a schedule"


def _silent(run: TrainingRun) -> str | None:
    return None if np.min(run.noise_std) > 0.0 else f"noise_std {float(np.min(run.noise_std))!r}"


SAMPLED = Bound(
    id="random-order/sampled",
    gives="the average over the steps in which a secretly sampled example takes part",
    covers=(SampledWithoutReplacement,),
    needs=(
        SECRET_ORDER,
        *need.CONTRACTING,
        Hypothesis(
            "a constant step size and noise", _varying, "keep step_size and noise_std fixed"
        ),
        Hypothesis("noise in every step", _silent, "make noise_std positive"),
    ),
    certainty=Certainty.UPPER,
    source=Citation(
        "Bok, Su and Altschuler; Abramson and Pitman",
        2024,
        "Shifted interpolation; Concave majorants of random walks",
        "Theorem C.3 given the batches; joint convexity; the law of the faces",
    ),
    evaluate=sampled,
)

SAMPLED_COMPOSITION = Bound(
    id="composition/sampled",
    gives="all iterates together, with amplification by sampling",
    covers=(SampledWithoutReplacement, PoissonSampled),
    needs=(
        Hypothesis(
            "adjacency='replace' for batches of a fixed size; 'zero-out', never cut, for Poisson's",
            _other_adjacency,
            "state that adjacency and its sensitivity, and leave out largest_batch",
        ),
        Hypothesis(
            "batches that stay secret",
            lambda run: f"releases={run.releases!r}" if "order" in run.releases else None,
            "publish neither the batches nor their seed",
        ),
        Hypothesis(
            f"noise in every step, and sensitivity/(batch_size noise_std) <= {_LARGEST_RATIO:g}",
            _loud_step,
            "use more noise: below this, composition/fixed-order is as good",
        ),
        Hypothesis(
            f"at most {_MOST_COMPOSED} steps, beyond which rounding is not negligible",
            _too_many,
            "see random-order/sampled, which has no such limit",
        ),
    ),
    certainty=Certainty.UPPER,
    source=Citation("Dong, Roth and Su", 2022, "Gaussian differential privacy", "Theorem 9"),
    evaluate=sampled_composition,
)
