"""Plans: they meet the target, and their risk is at least what is measured."""

import math

import numpy as np
import pytest

import lastiterate as li
from lastiterate.planning import excess_risk

SETTING = {
    "examples": 2_000, "dimension": 5, "lipschitz": 1.0, "smoothness": 1.0,
    "strong_convexity": 0.25, "epsilon": 1.0, "delta": 1e-5,
}  # fmt: skip


def measured(run, curvatures, minimiser, draws, seed):
    """Mean excess risk of projected descent on a quadratic with these curvatures."""
    rng = np.random.default_rng(seed)
    radius = run.domain.diameter / 2
    x = np.zeros((draws, curvatures.size))
    x[:, 0] = radius
    for _ in range(run.steps):
        noise = rng.normal(scale=run.noise_std, size=x.shape)
        x = x - run.step_size * ((x - minimiser) * curvatures + noise)
        norm = np.linalg.norm(x, axis=1, keepdims=True)
        x = x * np.minimum(1.0, radius / norm)
    return float((curvatures * (x - minimiser) ** 2).sum(axis=1).mean() / 2)


class TestPlan:
    FOUND = li.plan(**SETTING)

    def test_meets_the_target(self):
        for run in (self.FOUND.run, self.FOUND.published.run):
            assert li.account(run).epsilon(1e-5) <= 1.0

    def test_the_published_plan_is_that_of_theorem_4(self):
        run, log = self.FOUND.published.run, math.log(1e5)
        sigma = run.noise_std * math.sqrt(run.step_size / 2)
        assert sigma**2 == pytest.approx(8 * (1 + 2 * log) / (0.25 * 2000**2))
        assert run.step_size == 0.25 / 2
        assert run.steps == math.ceil(2 / 0.25**2 * math.log(2000**2 / (4 * log * 5)))
        theirs = 2 / 0.25**2 * math.exp(-0.25 * run.step_size * run.steps) + 2 * 5 * sigma**2 / 0.25
        assert self.FOUND.published.excess_risk == pytest.approx(theirs)

    def test_its_prediction_is_above_what_is_measured(self):
        curvatures = np.array([0.25, 0.25, 0.5, 1.0, 1.0])
        minimiser = np.array([-0.4, 0.2, 0.1, 0.0, -0.3])
        for one in (self.FOUND, self.FOUND.published):
            risk = measured(one.run, curvatures, minimiser, draws=2_000, seed=0)
            assert risk <= one.excess_risk
        ours = measured(self.FOUND.run, curvatures, minimiser, draws=2_000, seed=0)
        assert ours > 0.1 * self.FOUND.excess_risk  # and not far above

    def test_exact_for_the_stiffest_quadratic(self):
        """Curvature M in the objective and contraction m cannot meet: M = m is exact."""
        run = self.FOUND.run.replace(
            loss=li.Loss(smoothness=0.25, strong_convexity=0.25), domain=li.Ball(1e3)
        )
        stated = excess_risk(run.replace(steps=40), 5)
        risk = measured(run.replace(steps=40), np.full(5, 0.25), np.zeros(5), 4_000, seed=1)
        started = 0.25 / 2 * (1 - run.step_size * 0.25) ** 80 * (1e3**2 - 500.0**2)
        assert stated - started == pytest.approx(risk, rel=0.05)

    def test_is_better_than_published_and_with_more_data(self):
        assert self.FOUND.excess_risk < self.FOUND.published.excess_risk / 3
        more = li.plan(**{**SETTING, "examples": 8_000})
        assert more.excess_risk < self.FOUND.excess_risk / 8

    @pytest.mark.parametrize(
        "name, value",
        [
            ("examples", 0), ("dimension", 0), ("lipschitz", 0.0), ("smoothness", 0.1),
            ("strong_convexity", 0.0), ("epsilon", math.nan), ("epsilon", 1e9),
            ("delta", 1.0),
        ],
    )  # fmt: skip
    def test_refusals(self, name, value):
        with pytest.raises(li.InvalidParameter, match=f"{name} must be"):
            li.plan(**{**SETTING, name: value})

    def test_risk_is_refused_where_nothing_is_known(self):
        run = self.FOUND.run
        with pytest.raises(li.InvalidParameter, match="bounded domain"):
            excess_risk(run.replace(domain=li.Unbounded()), 5)
        with pytest.raises(li.InvalidParameter, match="step_size must be"):
            excess_risk(run.replace(step_size=1.9), 5)
