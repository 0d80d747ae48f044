"""What the errata name, and laws behind them; most demonstrations are doctests."""

import math
import re
from collections import Counter
from itertools import combinations, product
from pathlib import Path

import mpmath
import numpy as np
import pytest
from scipy.special import ndtr

import lastiterate as li
from lastiterate.bounds.catalogue import CATALOGUE
from lastiterate.bounds.published.altschuler_talwar import renyi_rate
from lastiterate.reproduce import chien_li
from lastiterate.reproduce.coverage import (
    altschuler_talwar_3_6,
    chien_li_3_12_one_step,
    larger_direction,
    smaller_direction,
)
from tests.slow import slow

PAGE = Path(__file__).parents[2] / "docs" / "research.md"


def test_every_id_exists():
    ids = re.findall(r"published/[a-z-]+/[a-z-]+", PAGE.read_text())
    assert ids
    assert set(ids) <= set(CATALOGUE)


@pytest.mark.parametrize("name", ["altschuler_talwar_3_6", "chien_li_3_12", "footnote_4"])
def test_false_forms_are_nowhere_but_under_reproduce(name):
    source = PAGE.parent.parent / "src" / "lastiterate"
    holders = {
        path.parent.name
        for path in source.rglob("*.py")
        if re.search(rf"def \w*{name}", path.read_text())
    }
    assert holders == {"reproduce"}


class TestOneStepOfChienAndLi:
    """The law of the step from all batches, in 30 digits, without any formula of the page."""

    @staticmethod
    def law(others, own, batch):
        """The mean of the step for each batch, with its probability; 2 eta K/(b sigma) is 1."""
        gradients = [own, *[others] * (10 * batch - 1)]
        batches = list(combinations(gradients, batch))
        return {
            mean: mpmath.mpf(times) / len(batches)
            for mean, times in Counter(-sum(one) / batch for one in batches).items()
        }

    @staticmethod
    def divergence(order, one, other, noise):
        def density(law, x):
            return mpmath.fsum(p * mpmath.npdf(x, mean, noise) for mean, p in law.items())

        def integrand(x):
            return density(one, x) ** order * density(other, x) ** (1 - order)

        return mpmath.log(mpmath.quad(integrand, range(-80, 81, 8))) / (order - 1)

    @pytest.mark.parametrize("batch", [1, slow(2)])
    @pytest.mark.parametrize("order, others, true", [
        (2, 1, 0.0170), (8, 1, 1.3784), (2, 0, 0.0098), (8, 0, 0.0411)
    ])  # fmt: skip
    def test_true_divergence(self, order, others, true, batch):
        one, other = (self.law(others, own, batch) for own in (1, -1))
        noise = mpmath.mpf(2) / batch
        found = max(
            self.divergence(order, one, other, noise), self.divergence(order, other, one, noise)
        )
        assert round(float(found), 4) == true
        printed = chien_li_3_12_one_step(order, q=0.1, shift=1.0)
        assert (found > printed) == (others == 1 or order == 8)


def test_lemma_2_12_covers_the_larger_direction():
    """Altschuler and Talwar's range: q < 1/5, noise at least 4, orders up to alpha*."""
    for q, noise in product((1e-3, 0.02, 0.1, 0.19), (4.0, 8.0, 20.0)):
        for order in (1.1, 5.0, 20.0):
            log = math.log1p(1 / (q * (order - 1)))
            below = log + math.log(q * order) + 1 / (2 * noise**2)
            far = (log**2 * noise**2 / 2 - math.log(5 * noise**2)) / below
            if order > log * noise**2 / 2 - math.log(noise**2) or order > far:
                continue
            larger = larger_direction(order, q, noise)
            if larger > 1e-6:  # or rounding counts
                assert larger <= 2 * order * q**2 / noise**2
                assert smaller_direction(order, q, noise) >= 0.93 * larger


@pytest.mark.parametrize("order, n, sigma, diameter, holds", [
    (2, 10, 0.5, 0.01, False),
    (8, 2, 11.5, 0.01, True),
])  # fmt: skip
def test_one_step_of_altschuler_and_talwar(order, n, sigma, diameter, holds):
    """Others push left by 1, the differing example left or right; cells only lower the divergence.

    (3.6) as printed is exceeded below sigma = 8 sqrt(2) L/b alone, where Theorem 3.1 begins.
    """
    printed = altschuler_talwar_3_6(
        float(order), T=1, D=diameter, L=1.0, b=1, n=n, eta=1.0, sigma=sigma
    )
    ends = np.concatenate([[-np.inf], np.linspace(-diameter / 2, diameter / 2, 41), [np.inf]])
    left, right = (np.diff(ndtr((ends - mean) / sigma)) for mean in (-1.0, 1.0))
    mixture = (1 - 1 / n) * left + right / n
    exact = math.log((mixture**order * left ** (1.0 - order)).sum()) / (order - 1)
    assert (sigma > 8 * math.sqrt(2)) == holds
    assert (0.0 < exact <= printed) == holds


def test_clipped_steps_of_two_classes_do_not_expand():
    for logit in np.linspace(-8, 8, 161):
        p = 1 / (1 + math.exp(-logit))
        curvature = np.array([[1, -1], [-1, 1]]) * p * (1 - p)
        if (1 - p) * math.sqrt(2 * 65) > 5.0:  # the residual points along (-1, 1)
            curvature = 0 * curvature
        step = (1 - 0.05 * 0.002) * np.eye(2) - 0.05 * 65 * curvature
        assert np.linalg.norm(step, 2) <= 1 - 0.05 * 0.002 + 1e-12


class TestTheorem46:
    RUN = li.TrainingRun(
        loss=li.Loss(smoothness=1.0),
        sensitivity=0.25,
        batches=li.Cyclic(10, 1),
        steps=1_000,
        step_size=0.04,
        noise_std=3.0,
        domain=li.Ball(1.0),
    )
    BOUND = CATALOGUE["published/bok-su-altschuler/cyclic-bounded"]

    def test_begins_at_k_epochs_and_its_value_holds_before(self):
        assert not self.BOUND.unmet(self.RUN)
        assert self.BOUND.unmet(self.RUN.replace(steps=990))
        whole = self.BOUND.profile(self.RUN).gdp()
        for epochs in (1, 30, 60, 99):
            shorter = self.RUN.replace(steps=10 * epochs)
            assert li.account(shorter, bounds="fixed-order/convex").gdp() <= whole

    def test_composition_crosses_it_at_1_plus_4_k_over_l_epochs(self):
        def composed(epochs):
            run = self.RUN.replace(steps=10 * epochs)
            return li.account(run, bounds="composition/fixed-order").gdp()

        whole = self.BOUND.profile(self.RUN.replace(steps=10_000)).gdp()
        assert composed(40) < whole <= composed(41) * (1 + 1e-9)


def test_theorem_4_1_of_altschuler_and_talwar():
    """The rate printed grows without limit as noise falls; what is proved does not."""
    run = li.TrainingRun(
        loss=li.Loss(smoothness=1.0),
        sensitivity=1.0,
        batches=li.SampledWithoutReplacement(20, 2),
        steps=15_000,
        step_size=1.0,
        noise_std=0.25,
        domain=li.Ball(1e3),
    )
    much, little = renyi_rate(run), renyi_rate(run.replace(noise_std=0.01))
    assert round(much.printed, 12) == round(1e-5 * 15_000 / (20 * 0.25) ** 2, 12)
    assert little.printed > 1.0 > little.proved == much.proved
    # At the largest noise, sigma^2 = 1e-3 D^2/(eta^2 Tbar) with Tbar = .75 D n/(eta L).
    assert 1e-5 * 0.75**2 / 1e-3 >= 0.005
    assert f"{ndtr(0.1 / math.sqrt(0.001)):.5f}" == "0.99922"


def test_noise_in_the_code_of_langevin_unlearning_is_a_hundredth_of_the_papers():
    for noise, epsilon, examples in ((0.000189, 0.5, chien_li.FULL), (0.000124, 1.0, 10_000)):
        for steps in (2, 5):
            found = chien_li.langevin_epsilon(100 * noise, examples=examples, extra_steps=steps)
            assert found == pytest.approx(epsilon, rel=0.01)
