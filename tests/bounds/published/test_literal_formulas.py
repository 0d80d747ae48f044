"""Every record of the five papers against its formula, written out in the paper's own symbols."""

import math

import numpy as np
import pytest

import lastiterate as li
from lastiterate.bounds.catalogue import APPROXIMATIONS, CATALOGUE
from lastiterate.bounds.published import PAPERS
from lastiterate.bounds.published import altschuler_talwar as weaker_assumptions
from lastiterate.bounds.published import chourasia_ye_shokri as diffusion_bounds
from lastiterate.bounds.published import chourasia_ye_shokri as risk_plans
from lastiterate.bounds.published.sampled_gaussian import largest_order, quadratic_bound
from lastiterate.bounds.published.ye_shokri import normalisation
from lastiterate.lower_bounds.catalogue import LOWER_BOUNDS
from lastiterate.reproduce import runs as conventions
from tests.bounds.runs import described
from tests.reference import bok_su_altschuler as bsa
from tests.reference import papers

HELD_ELSEWHERE = {  # literal formulas in other files of this folder, or of tests/lower_bounds
    "published/chien-li/smooth",
    "published/chien-li/hoelder",
    "published/chien-li/cyclic",
    "published/chien-li/shuffled",
    "published/altschuler-talwar/bounded-lower",
    "published/bok-su-altschuler/bounded-lower",
}
HELD = set(HELD_ELSEWHERE)


def held(*names):
    """Marks the records that a test is about."""
    HELD.update(f"published/{name}" for name in names)
    return lambda test: test


def profile(name, run):
    return CATALOGUE[f"published/{name}"].profile(run)


def full(*, c=1.0, T=7, L=0.4, n=3, sigma=1.7, eta=0.5, **changes):
    return li.TrainingRun(
        loss=li.Loss(smoothness=(1 - c) / eta or 1.0, strong_convexity=(1 - c) / eta),
        sensitivity=L, batches=changes.pop("batches", li.FullBatch(n)), steps=T, step_size=eta,
        noise_std=sigma, **changes,
    )  # fmt: skip


def cyclic(*, l=3, E=5, b=2, **changes):  # noqa: E741  # the paper's letter
    return full(T=l * E, batches=li.Cyclic(l * b, b), **changes)


SYMBOLS = {"L": 0.4, "sigma": 1.7}


@held(*(f"bok-su-altschuler/{what}" for what in (
    "full-batch-composition", "full-batch", "full-batch-bounded", "full-batch-bounded-from",
)))  # fmt: skip
@pytest.mark.parametrize("T, c, D", [(1, 0.3, 0.01), (7, 0.9, 0.12), (40, 0.99, 1.1)])
def test_full_batches_of_bok_su_altschuler(T, c, D):
    symbols = {**SYMBOLS, "n": 3}
    strong, flat = full(c=c, T=T), full(T=T, domain=li.Ball(D))
    name = "bok-su-altschuler/full-batch"
    expected = bsa.theorem_4_1(t=T, **symbols)
    assert profile(f"{name}-composition", strong).gdp() == pytest.approx(expected, rel=1e-12)
    expected = bsa.theorem_4_2(t=T, c=c, **symbols)
    assert profile(name, strong).gdp() == pytest.approx(expected, rel=1e-10)
    expected = bsa.theorem_c_7(t=T, eta=0.5, D=D, **symbols)
    assert profile(f"{name}-bounded-from", flat).gdp() == pytest.approx(expected, rel=1e-12)
    if T * 0.5 * 0.4 / 3 >= D:
        expected = bsa.theorem_4_3(eta=0.5, D=D, **symbols)
        assert profile(f"{name}-bounded", flat).gdp() == pytest.approx(expected, rel=1e-10)


@held(*(f"bok-su-altschuler/{what}" for what in (
    "cyclic-composition", "cyclic", "cyclic-bounded", "cyclic-lower",
)))  # fmt: skip
@pytest.mark.parametrize("l, E, c, D", [(2, 1, 0.4, 0.01), (3, 5, 0.9, 0.4), (7, 30, 0.99, 1.1)])
def test_cyclic_batches_of_bok_su_altschuler(l, E, c, D):  # noqa: E741
    symbols = {**SYMBOLS, "b": 2}
    run, name = cyclic(l=l, E=E, c=c), "bok-su-altschuler/cyclic"
    expected = bsa.theorem_4_4(E=E, **symbols)
    assert profile(f"{name}-composition", run).gdp() == pytest.approx(expected, rel=1e-12)
    expected = bsa.theorem_4_5(E=E, c=c, l=l, **symbols)
    assert profile(name, run).gdp() == pytest.approx(expected, rel=1e-9)
    expected = bsa.theorem_c_17(E=E, c=c, l=l, **symbols)
    lower = LOWER_BOUNDS["published/bok-su-altschuler/cyclic-lower"].profile(run).gdp()
    assert lower == pytest.approx(expected, rel=1e-8)
    flat = cyclic(l=l, E=E, domain=li.Ball(D))
    if E * 0.5 * 0.4 / 2 >= D:
        expected = bsa.theorem_4_6(l=l, eta=0.5, D=D, **symbols)
        assert profile(f"{name}-bounded", flat).gdp() == pytest.approx(expected, rel=1e-10)


def sampled(**changes):
    return full(batches=li.SampledWithoutReplacement(40, 4), L=2.0, sigma=1.0, **changes)


SAMPLED = {"L": 2.0, "b": 4, "sigma": 1.0}
ALPHAS = np.geomspace(1.005, 12.0, 40)


@held("bok-su-altschuler/sampled-composition")
@pytest.mark.parametrize("T, delta", [(1, 1e-2), (12, 1e-3), (200, 1e-5)])
def test_composition_of_sampled_batches(T, delta):
    """Theorem 4.8, with the curve of Proposition D.4."""
    expected = bsa.composed_epsilon(delta, gaussian=0.0, sampled=[((0.1, 0.5), T)])
    found = profile("bok-su-altschuler/sampled-composition", sampled(T=T)).epsilon(delta)
    assert found == pytest.approx(expected, abs=2e-3)


@held("bok-su-altschuler/sampled-strongly-convex", "bok-su-altschuler/sampled-shifts",
      "bok-su-altschuler/sampled-bounded-domain")  # fmt: skip
def test_sampled_batches_of_bok_su_altschuler():
    """The record's plan is the best by the central limit theorem; here every plan is composed."""
    c, T, delta = 0.7, 12, 1e-3
    plans = [
        bsa.theorem_4_9_plan(t=T, k=k, alpha=alpha, c=c, n=40, **SAMPLED)
        for k in (2, 4, 6, 8) for alpha in ALPHAS[8::6]
    ]  # fmt: skip
    least = min(bsa.composed_epsilon(delta, **plan) for plan in plans)
    found = profile("bok-su-altschuler/sampled-strongly-convex", sampled(c=c, T=T)).epsilon(delta)
    assert found == pytest.approx(least, rel=0.02)
    shifted = profile("bok-su-altschuler/sampled-shifts", sampled(c=c, T=T)).epsilon(delta)
    plans = [
        bsa.theorem_c_13_plan(t=T, k=k, alpha=alpha, share=share, c=c, n=40, **SAMPLED)
        for k in (4, 6, 8) for alpha in ALPHAS[2::6] for share in (0.8, 0.9, 1.0)
    ]  # fmt: skip
    least = min(bsa.composed_epsilon(delta, **plan) for plan in plans)
    assert shifted == pytest.approx(least, rel=0.02)
    assert shifted <= found * (1 + 1e-12)
    bounded = profile("bok-su-altschuler/sampled-bounded-domain", sampled(T=T, domain=li.Ball(0.5)))
    plans = [
        bsa.theorem_4_10_plan(k=k, alpha=alpha, eta=0.5, D=0.5, n=40, **SAMPLED)
        for k in (1, 2, 3, 4, 6, 8, 12) for alpha in ALPHAS[2::4]
    ]  # fmt: skip
    least = min(bsa.composed_epsilon(delta, **plan) for plan in plans)
    assert bounded.epsilon(delta) == pytest.approx(least, rel=0.02)


def test_the_literal_composition_is_the_exact_one():
    """Sampling with certainty is no sampling: three Gaussians and one more."""
    found = bsa.composed_epsilon(1e-3, gaussian=0.8, sampled=[((1 - 1e-12, 0.5), 3)])
    exact = li.GaussianProfile(math.sqrt(0.8**2 + 3 * 0.5**2)).epsilon(1e-3)
    assert found == pytest.approx(exact, abs=1e-5)


@held("bok-su-altschuler/sampled-composition-estimate", "bok-su-altschuler/sampled-estimate",
      "bok-su-altschuler/sampled-bounded-estimate")  # fmt: skip
@pytest.mark.parametrize("T", [3, 50, 700])
def test_estimates_of_bok_su_altschuler(T):
    def mu(what, run):
        return APPROXIMATIONS[f"published/bok-su-altschuler/{what}"].estimate(run).mu

    symbols = {"t": T, "p": 0.1, **SAMPLED}
    expected = bsa.lemma_a_5(**symbols)
    assert mu("sampled-composition-estimate", sampled(T=T)) == pytest.approx(expected, rel=1e-9)
    expected = bsa.proposition_c_14(c=0.9, **symbols)
    assert mu("sampled-estimate", sampled(c=0.9, T=T)) == pytest.approx(expected, rel=1e-9)
    expected = bsa.proposition_c_15(eta=0.5, D=0.3, **symbols)
    run = sampled(T=T, domain=li.Ball(0.3))
    assert mu("sampled-bounded-estimate", run) == pytest.approx(expected, rel=1e-9)


@held("altschuler-talwar/iteration", "altschuler-talwar/bounded",
      "altschuler-talwar/bounded-strongly-convex")  # fmt: skip
@pytest.mark.parametrize("l, E, c, D", [(1, 9, 0.8, 0.1), (3, 5, 0.9, 0.4), (5, 4, 0.6, 0.05)])
def test_amplification_by_iteration(l, E, c, D):  # noqa: E741
    s, alpha = 0.5 * 0.4 / 2, 3.0
    seen = [s if k % l == l - 1 else 0.0 for k in range(l * E)]
    symbols = {"alpha": alpha, "sensitivities": seen, "noise": 0.5 * 1.7}
    run = cyclic(l=l, E=E, c=c, domain=li.Ball(D)) if l > 1 else full(
        c=c, T=E, n=2, domain=li.Ball(D)
    )  # fmt: skip
    for name, more in (
        ("iteration", {}), ("bounded", {"D": D}), ("bounded-strongly-convex", {"D": D, "c": c}),
    ):  # fmt: skip
        found = profile(f"altschuler-talwar/{name}", run).renyi(alpha)
        assert found == pytest.approx(papers.at_by_iteration(**symbols, **more), rel=1e-9), name


@held("altschuler-talwar/sampled-bounded", "altschuler-talwar/sampled-strongly-convex")
def test_amplification_by_sampling():
    run = sampled(c=0.8, T=12, domain=li.Ball(0.4)).replace(
        loss=li.Loss(smoothness=0.4, regulariser=0.4, lipschitz=1.0)
    )
    symbols = {"D": 0.4, "L": 1.0, "b": 4, "n": 40, "eta": 0.5, "sigma": 1.0, "T": 12}
    for alpha in (2.0, 6.0):
        found = profile("altschuler-talwar/sampled-strongly-convex", run).renyi(alpha)
        expected = papers.at_5_3(alpha=alpha, c=0.8, **symbols)
        assert found == pytest.approx(expected, rel=5e-3)
        found = profile("altschuler-talwar/sampled-bounded", run).renyi(alpha)
        expected = papers.at_3_6(alpha=alpha, printed=False, **symbols)
        assert found == pytest.approx(expected, rel=5e-3)


@pytest.mark.parametrize("q, z", [(0.01, 10.0), (0.1, 5.0), (0.001, 40.0)])
def test_lemma_2_12(q, z):
    order = largest_order(q, z)
    assert order > 2.0
    assert order <= min(papers.at_conditions_of_2_12(order, q, z)) * (1 + 1e-9)
    for more in (1.0001, 1.5, 10.0, 1e4):
        assert order * more > min(papers.at_conditions_of_2_12(order * more, q, z))
    for alpha in (1.5, 4.0, order):
        stated = quadratic_bound(q, z, alpha)
        assert stated == pytest.approx(2 * alpha * q**2 / z**2, rel=1e-12)
        if alpha <= 6.0:
            assert papers.sampled_gaussian(alpha, q, z, printed=False) <= stated
    assert quadratic_bound(q, z, 1.01 * order) == math.inf
    assert quadratic_bound(0.2, z, 2.0) == quadratic_bound(q, 3.9, 2.0) == math.inf


class TestWeakerAssumptions:
    """On L |x|, which attains the constants."""

    X = np.linspace(-3.0, 3.0, 6_001)

    def test_gaussian_smoothing(self):
        loss = weaker_assumptions.gaussian_smoothed(lipschitz=2.0, width=0.3)
        gradient = 2.0 * np.array([math.erf(x / 0.3 / math.sqrt(2)) for x in self.X])
        steepest = np.max(np.diff(gradient) / np.diff(self.X))
        assert steepest <= loss.smoothness == pytest.approx(steepest, rel=1e-5)
        assert np.abs(gradient).max() <= loss.lipschitz == 2.0

    def test_moreau_envelope(self):
        loss = weaker_assumptions.moreau_smoothed(lipschitz=2.0, width=0.3)
        proximal = np.sign(self.X) * np.maximum(np.abs(self.X) - 2.0 * 0.3, 0.0)
        gradient = (self.X - proximal) / 0.3
        steepest = np.max(np.diff(gradient) / np.diff(self.X))
        assert steepest <= loss.smoothness * (1 + 1e-9)
        assert loss.smoothness == pytest.approx(steepest, rel=1e-9)
        assert np.abs(gradient).max() == pytest.approx(loss.lipschitz)
        envelope = 2.0 * np.abs(proximal) + (self.X - proximal) ** 2 / (2 * 0.3)
        assert np.max(2.0 * np.abs(self.X) - envelope) == pytest.approx(2.0**2 * 0.3 / 2)

    def test_smooth_losses_on_a_ball(self):
        """M x^2/2 with its minimum at one end of the ball."""
        assert weaker_assumptions.lipschitz_on_ball(smoothness=3.0, diameter=0.5) == 1.5
        with pytest.raises(li.InvalidParameter, match="diameter must be"):
            weaker_assumptions.lipschitz_on_ball(smoothness=3.0, diameter=0.0)


CYS = {"S_g": 4.0, "sigma": 0.3, "n": 20, "eta": 0.02}


def diffusion(K, lam=1.0, beta=4.0):
    return li.TrainingRun(
        loss=li.Loss(smoothness=beta, strong_convexity=lam),
        **conventions.ye_shokri(sigma=0.3, S_g=4.0, step_size=0.02),
        batches=li.FullBatch(20), steps=K, step_size=0.02,
    )  # fmt: skip


def test_without_curvature_ye_shokri_have_the_tight_bound_of_one_epoch():
    """What their appendix D.4 is said to show: r^2/(2 j), j the steps from the participation on."""
    run = full(c=1 - 1e-9, T=6, batches=li.Cyclic(12, 2))
    positions = CATALOGUE["published/ye-shokri/fixed-order"].by_position(run)
    for j, profile_ in enumerate(positions):
        seen = [0.5 * 0.4 / 2 if k == j else 0.0 for k in range(6)]
        tight = papers.at_by_iteration(alpha=1.0, sensitivities=seen, noise=0.5 * 1.7)
        assert profile_.renyi(2.0) / 2.0 == pytest.approx(tight, rel=1e-6)


def test_the_best_gamma_in_66():
    """K = 100 of their Figure 2: .00666 where gamma = 1/2 gives .00697."""
    run = li.TrainingRun(
        loss=li.Loss(smoothness=1.0, strong_convexity=1.0),
        **conventions.chourasia_ye_shokri(sigma=0.02, S_g=4.0, step_size=0.02),
        batches=li.FullBatch(5000), steps=100, step_size=0.02,
    )  # fmt: skip
    with_half = diffusion_bounds.log_sobolev(run, constant=(2 - 0.02) / (2 * 0.02**2))
    assert with_half.renyi(10.0) == pytest.approx(0.00697, abs=5e-6)
    free = min(
        diffusion_bounds.log_sobolev(
            run, constant=(2 - 0.02) / (2 * 0.02**2), balance=gamma
        ).renyi(10.0)
        for gamma in np.linspace(0.3, 0.9, 61)
    )  # fmt: skip
    assert free == pytest.approx(0.00666, abs=5e-6)


def test_theorem_4_for_a_renyi_target():
    symbols = {"alpha": 8.0, "epsilon": 0.5, "L": 1.0, "beta": 1.0, "lam": 0.1, "n": 500, "d": 3}
    variance, eta, K, risk = papers.cys_71(**symbols)
    description = full(c=0.95, eta=0.5, n=500, L=2.0).replace(
        loss=li.Loss(smoothness=1.0, strong_convexity=0.1)
    )
    run, found = risk_plans.plan_for_renyi(
        description, dimension=3, lipschitz=1.0, order=8.0, divergence=0.5
    )
    assert (run.steps, run.step_size) == (K, pytest.approx(eta))
    assert run.noise_std == pytest.approx(math.sqrt(2 * variance / eta))
    assert found == pytest.approx(risk, rel=1e-12)
    # Their Corollary 1, to which the noise is set, is met.
    assert profile("chourasia-ye-shokri/strongly-convex", run).renyi(8.0) <= 0.5 * (1 + 1e-9)


def test_normalisation():
    """Two releases of N(1, z^2) against N(0, z^2)."""
    assert normalisation(noise_multiplier=8.0, order=5.0) == pytest.approx(2 * 5.0 / (2 * 8.0**2))


@held("chien-li/sampled")
@pytest.mark.parametrize("kind, c", [("rough", None), ("convex", 1.0), ("strong", 0.9)])
def test_sampled_batches_of_chien_li(kind, c):
    known = {"smoothness": 1.0, "lipschitz": 1.0, "convex": kind != "rough"}
    if kind == "strong":
        known["strong_convexity"] = 0.5
    eta, T = 0.2, 30
    run = li.TrainingRun(
        loss=li.Loss(**known), **conventions.chien_li(sigma=0.3, K=1.0, step_size=eta),
        batches=li.SampledWithoutReplacement(40, 4), steps=T, step_size=eta, domain=li.Ball(0.02),
    )  # fmt: skip
    symbols = {"T": T, "D": 0.02, "K": 1.0, "L": 1.0, "b": 4, "n": 40, "eta": eta, "sigma": 0.3}
    for alpha in (2.0, 5.0):
        expected = papers.cl_3_12(alpha=alpha, c=c, **symbols)
        composed = T * papers.sampled_gaussian(alpha, 0.1, 0.3 * 4 / (2 * eta), printed=False)
        assert expected < 0.8 * composed
        assert profile("chien-li/sampled", run).renyi(alpha) == pytest.approx(expected, rel=0.02)


@held("ye-shokri/full-batch", "chourasia-ye-shokri/strongly-convex", "chourasia-ye-shokri/linear",
      "chourasia-ye-shokri/balanced", "chourasia-ye-shokri/squared-loss",
      "chourasia-ye-shokri/squared-lower")  # fmt: skip
@pytest.mark.parametrize("K", [1, 30, 2_000])
def test_full_batches_as_a_diffusion(K):
    alpha, run, squared = 7.0, diffusion(K), diffusion(K, beta=1.0)
    symbols = {"alpha": alpha, "K": K, **CYS}
    for name, one, expected in (
        ("ye-shokri/full-batch", run, papers.ys_full_batch(lam=1.0, **symbols)),
        ("chourasia-ye-shokri/strongly-convex", run, papers.cys_corollary_1(lam=1.0, **symbols)),
        ("chourasia-ye-shokri/linear", run, papers.cys_theorem_1(**symbols)),
        ("chourasia-ye-shokri/squared-loss", squared, papers.cys_corollary_2(**symbols)),
    ):
        assert profile(name, one).renyi(alpha) == pytest.approx(expected, rel=1e-9), name
    gammas, c = np.linspace(0.002, 0.998, 499), 1.0 / (2 * 0.3**2)
    least = min(papers.cys_66(c=c, gamma=gamma, **symbols) for gamma in gammas)
    least = min(least, papers.cys_theorem_1(**symbols))
    found = profile("chourasia-ye-shokri/balanced", run).renyi(alpha)
    assert found == pytest.approx(least, rel=2e-3)
    any_constant = diffusion_bounds.log_sobolev(run, constant=3.3, balance=0.8).renyi(alpha)
    assert any_constant == pytest.approx(papers.cys_66(c=3.3, gamma=0.8, **symbols), rel=1e-9)
    lower = LOWER_BOUNDS["published/chourasia-ye-shokri/squared-lower"].profile(squared).gdp()
    assert alpha * lower**2 / 2 == pytest.approx(papers.cys_theorem_3(**symbols), rel=1e-6)
    assert li.account(squared).renyi(alpha) == pytest.approx(papers.cys_exact(**symbols), rel=1e-9)


@held("ye-shokri/naive", "ye-shokri/fixed-order", "ye-shokri/shuffled", "ye-shokri/sampled",
      "ye-shokri/clipped-logistic")  # fmt: skip
@pytest.mark.parametrize("alpha, K", [(2.5, 1), (12.0, 9), (1.5, 200)])
def test_batches_of_ye_shokri(alpha, K):
    symbols = {"alpha": alpha, "eta": 0.02, "lam": 1.0, "S_g": 4.0, "sigma": 0.3, "b": 4, "K": K}
    noise = conventions.ye_shokri(sigma=0.3, S_g=4.0, step_size=0.02)

    def run(rule, **changes):
        loss = changes.pop("loss", li.Loss(smoothness=4.0, strong_convexity=1.0))
        return described(rule(20, 4), 5 * K, loss=loss, step_size=0.02, **noise, **changes)

    logistic = run(li.ShuffledOnce, loss=li.Loss(smoothness=4.0, regulariser=1.0), clip_norm=2.0)
    shuffled = papers.ys_shuffled(n=20, **symbols)
    for name, one, expected in (
        ("naive", run(li.Cyclic), papers.ys_naive(**symbols)),
        ("shuffled", run(li.ShuffledOnce), shuffled),
        ("clipped-logistic", logistic, shuffled),
        ("sampled", run(li.SampledWithoutReplacement), papers.ys_sampled(n=20, **symbols)),
    ):
        found = profile(f"ye-shokri/{name}", one).renyi(alpha)
        assert found == pytest.approx(expected, rel=1e-8), name
    bound = CATALOGUE["published/ye-shokri/fixed-order"]
    found = [one.renyi(alpha) for one in bound.by_position(run(li.Cyclic))]
    expected = [papers.ys_fixed_order(j, n=20, **symbols) for j in range(5)]
    assert found == pytest.approx(expected, rel=1e-9)
    # The last batch is charged.
    assert max(found) == found[-1] == bound.profile(run(li.Cyclic)).renyi(alpha)


def test_every_record_of_the_five_papers_is_held():
    five = {paper.__name__.rsplit(".", 1)[1].replace("_", "-") for paper in PAPERS}
    five &= {
        "bok-su-altschuler", "altschuler-talwar", "ye-shokri", "chien-li", "chourasia-ye-shokri",
    }  # fmt: skip
    assert len(five) == 5
    listed = {**CATALOGUE, **LOWER_BOUNDS, **APPROXIMATIONS}
    published = {id_ for id_ in listed if id_.split("/")[0] == "published"}
    mine = {id_ for id_ in published if id_.split("/")[1] in five}
    assert mine - HELD == set()
    assert HELD - mine == set()
