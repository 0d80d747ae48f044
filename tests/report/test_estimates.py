"""Estimates: beside the guarantee, plainly labelled, and never in what others rely on."""

import json
import math

import numpy as np
import pytest
from scipy.stats import norm

import lastiterate as li
from lastiterate.bounds.bound import Estimate
from lastiterate.bounds.published.steinke_et_al import PAPER
from lastiterate.cli import main
from lastiterate.linear_model import PrivateLogisticRegression
from lastiterate.report.text import NO_GUARANTEE, three_numbers
from tests.slow import slow

LINEAR = f"{PAPER}/linear-estimate"
DELTA = 1e-5
NETWORK = li.TrainingRun.from_dp_sgd(
    examples=1_000, batch_size=100, epochs=20, clip_norm=1.0, noise_multiplier=2.0, step_size=0.1
)


def forgetful(ratio, probability, steps):
    """A run whose last step alone counts: gradients theta - x, and steps of size 1.

    The iterate before is multiplied by 1 - 1 = 0, so that the last iterate is the mean of the last
    batch and its noise, whatever was before.
    """
    size = round(probability * 1_000)
    return li.TrainingRun(
        loss=li.Loss(smoothness=1.0, strong_convexity=1.0), sensitivity=1.0,
        batches=li.PoissonSampled(1_000, size), steps=steps, step_size=1.0,
        noise_std=1.0 / (ratio * size), adjacency="zero-out",
    )  # fmt: skip


def exact_epsilon(ratio, probability, delta):
    """Of one step: (1 - p) N(0, 1) + p N(r, 1) against N(0, 1), by bisection on its definition."""

    def leaked(epsilon):
        # The ratio of densities increases: above one threshold the mixture has more.
        at = (math.log((math.exp(epsilon) - 1.0 + probability) / probability)) / ratio + ratio / 2.0
        above = (1.0 - probability) * norm.sf(at) + probability * norm.sf(at - ratio)
        return above - math.exp(epsilon) * norm.sf(at)

    low, high = 0.0, 50.0
    for _ in range(200):
        middle = (low + high) / 2.0
        low, high = (middle, high) if leaked(middle) > delta else (low, middle)
    return low


class TestCounterexamples:
    @pytest.mark.parametrize("steps", [30, slow(300)])
    def test_it_may_be_far_below_what_leaks(self, steps):
        """Convex, smooth and exactly solvable; nothing of it is unusual but its contraction."""
        ratio, probability = 4.0, 0.01
        report = li.account(forgetful(ratio, probability, steps))
        estimate = report.estimates[LINEAR].epsilon_estimate(DELTA)
        leaks = exact_epsilon(ratio, probability, DELTA)
        assert leaks > 2.0 * estimate
        assert report.epsilon(DELTA) >= leaks

    def test_by_simulation(self):
        """A threshold on the last iterate tells more than the estimate would allow."""
        ratio, probability, runs = 4.0, 0.01, 200_000
        estimate = li.account(forgetful(ratio, probability, 100)).estimates[LINEAR]
        rng = np.random.default_rng(0)
        # Of all steps only the last one is left in the iterate.
        without = rng.normal(size=runs)
        with_ = rng.normal(size=runs) + ratio * (rng.random(runs) < probability)
        hit, false = np.mean(with_ > 4.0), np.mean(without > 4.0)
        epsilon = 3.0
        assert hit > math.exp(epsilon) * max(false, 1e-4) + 1e-3  # by far more than chance
        assert estimate.epsilon_estimate(1e-3) < epsilon

    def test_nor_is_it_a_lower_bound(self):
        """Full batches that contract: proved to leak less than linear losses do."""
        run = forgetful(1.0, 0.1, 100).replace(
            loss=li.Loss(smoothness=1.0, strong_convexity=0.5), adjacency="replace",
            batches=li.FullBatch(100), noise_std=0.05,
        )  # fmt: skip
        report = li.account(run)
        assert report.epsilon(DELTA) < 0.5 * report.estimates[LINEAR].epsilon_estimate(DELTA)


class TestEpsilonEstimate:
    def test_is_of_the_curve_at_every_delta(self):
        estimate = li.account(NETWORK).estimates[LINEAR]
        for delta in (1e-3, 1e-5, 1e-7):
            epsilon = estimate.epsilon_estimate(delta)
            assert estimate.deltas(epsilon) == pytest.approx(delta, rel=1e-3)

    def test_has_no_epsilon_and_cannot_be_composed(self):
        estimate = Estimate(1.0)
        assert not hasattr(estimate, "epsilon")
        with pytest.raises((TypeError, AttributeError, li.InvalidParameter)):
            li.compose(estimate, li.GaussianProfile(1.0))
        for bad in (0.0, 1.0, math.nan):
            with pytest.raises(li.InvalidParameter, match="delta must be"):
                estimate.epsilon_estimate(bad)


class TestShown:
    def test_in_a_table_with_its_label(self):
        report = li.account(NETWORK)
        lines = three_numbers(report, delta=DELTA, audited={"an attack": 0.5}).splitlines()
        (line,) = (line for line in lines if LINEAR in line)
        assert NO_GUARANTEE in line
        assert line.lstrip().startswith("about ")
        assert "0.5000  at least: an attack" in lines[1]
        assert "the guarantee" in lines[-1]

    def test_by_the_command(self, capsys):
        words = ["account", "--examples", "1000", "--batch-size", "100", "--epochs", "1"]
        words += ["--clip-norm", "1", "--noise-multiplier", "2"]
        assert main([*words, "--step-size", "0.1", "--estimate"]) == 0
        assert NO_GUARANTEE in capsys.readouterr().out
        assert main([*words, "--estimate"]) == 0
        assert "no estimate: " in capsys.readouterr().out
        assert main(words) == 0
        assert "estimate" not in capsys.readouterr().out
        assert main([*words, "--estimate", "--json"]) == 2


class TestKeptOut:
    """Of everything that somebody else relies on."""

    def test_reports_and_statements(self):
        report = li.account(NETWORK)
        assert LINEAR in report.estimates
        texts = [str(report), report.to_json(), report._repr_html_()]
        texts += [report.statement(format=f) for f in ("text", "markdown", "model-card")]
        for text in texts:
            assert "steinke" not in text
            assert "estimate" not in text.lower()
        assert all("estimate" not in id_ for id_ in [*report.all, *report.used, *report.unmet])

    def test_certificates(self):
        X = np.random.default_rng(0).normal(size=(300, 2))
        model = PrivateLogisticRegression(batches="full", epochs=2)
        model.fit(X, X[:, 0] > 0)
        assert "estimate" not in model.certificate_

    def test_ledgers(self, tmp_path):
        ledger = li.Ledger(tmp_path / "people.ledger", epsilon=2.0, delta=1e-5)
        with pytest.raises(li.InvalidParameter, match="release must be"):
            ledger.add(Estimate(0.1))
        ledger.add(li.account(NETWORK.replace(noise_std=10 * NETWORK.noise_std)))
        assert "estimate" not in json.dumps(ledger.entries())
