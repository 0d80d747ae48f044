"""The bounds of five papers: their examples, how they compare, and how they are asked for."""

import importlib
import math
import pkgutil
from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lastiterate as li
from lastiterate.bounds import published
from lastiterate.bounds.bound import Certainty, Statement
from lastiterate.bounds.catalogue import APPROXIMATIONS, CATALOGUE
from lastiterate.bounds.published.sampled_gaussian import (
    sampled_gaussian,
)
from lastiterate.lower_bounds.catalogue import LOWER_BOUNDS
from lastiterate.profile.renyi import averaged_at_orders
from tests.bounds.runs import described, dp_sgd
from tests.bounds.test_grid_oracle import contracting_run
from tests.readme_run import readme_run
from tests.reference import papers

PUBLISHED = {id_: bound for id_, bound in CATALOGUE.items() if id_.startswith("published/")}


class TestYeShokri:
    def test_corollary_5_3_in_noise_multipliers(self):
        run = dp_sgd(
            li.ShuffledOnce(60_000, 1_500), 400, noise=3.0, clip_norm=5.0, step_size=0.05,
            loss=li.Loss(smoothness=32.502, regulariser=0.002), adjacency="replace",
        )  # fmt: skip
        bound = CATALOGUE["published/ye-shokri/clipped-logistic"]
        assert bound.certainty is Certainty.AS_PUBLISHED
        # Their sigma is sqrt(eta/2) sigma_mul S_g/(2 b).
        sigma = math.sqrt(0.05 / 2) * 3.0 * 10.0 / 2 / 1500
        printed = papers.ys_shuffled(
            n=60_000, K=10, alpha=4.0, eta=0.05, lam=0.002, S_g=10.0, sigma=sigma, b=1500
        )
        assert bound.profile(run).renyi(4.0) == pytest.approx(printed, rel=1e-9)
        first = papers.ys_eps0(1, alpha=4.0, eta=0.05, lam=0.002, S_g=10.0, sigma=sigma, b=1500)
        assert first == pytest.approx(2 * 4.0 / 3.0**2)

    def test_large_exponents_do_not_overflow(self):
        rates = np.array([0.0, 1.0, 5.0])
        orders = np.array([1.0, 1.0 + 1e-12, 2.0, 1e3, 1e6])
        values = averaged_at_orders(np.full(3, 1 / 3), rates, orders)
        assert values[0] == pytest.approx(2.0)
        assert values[1] == pytest.approx(2.0)
        assert values[2] == pytest.approx(math.log((1 + math.exp(2) + math.exp(10)) / 3))
        assert values[3] == pytest.approx(5e3 - math.log(3) / 999)
        assert np.all(np.isfinite(values))

    @pytest.mark.parametrize(
        "steps, c, alpha", list(product([1, 4, 7], [0.0, 0.5, 0.98], [1.5, 4.0]))
    )
    def test_theorem_4_3_follows_from_the_shifts(self, steps, c, alpha):
        """The average over all batch sequences of what the shifts certify is below it."""
        r, q = 0.7, 0.2
        loss = li.Loss(smoothness=1 - c, strong_convexity=1 - c)
        run = described(li.SampledWithoutReplacement(5, 1), steps, loss=loss, sensitivity=r)
        published = CATALOGUE["published/ye-shokri/sampled"].profile(run).renyi(alpha)
        total = 0.0
        for seen in product([0, 1], repeat=steps):
            plan = li.optimal_shifts(contraction=c, sensitivity=r * np.array(seen), noise=1.0)
            chance = q ** sum(seen) * (1 - q) ** (steps - sum(seen))
            total += chance * math.exp((alpha - 1) * alpha * plan.mu**2 / 2)
        assert math.log(total) / (alpha - 1) <= published * (1 + 1e-9)


@pytest.mark.parametrize("q, z, alpha", list(product([0.01, 0.1], [1.0, 4.0], [2.0, 3.0, 9.0])))
def test_sampled_gaussian_is_the_larger_direction(q, z, alpha):
    value = float(sampled_gaussian(q, z, np.array([alpha]))[0])
    exact = papers.sampled_gaussian(alpha, q, z, printed=False)
    assert value == pytest.approx(exact, rel=1e-6)
    assert exact > papers.sampled_gaussian(alpha, q, z, printed=True)


class TestBokSuAltschuler:
    def test_table_3_by_the_central_limit_theorem(self):
        for epochs, printed in {50: 1.03, 100: 1.45, 200: 2.05}.items():
            run = readme_run(li.SampledWithoutReplacement, epochs)
            one = APPROXIMATIONS["published/bok-su-altschuler/sampled-composition-estimate"]
            estimate = one.estimate(run)
            assert round(estimate.mu, 2) == printed
            assert not hasattr(estimate, "epsilon")

    def test_small_ratios_do_not_cancel(self):
        run = readme_run(li.SampledWithoutReplacement, 1).replace(noise_std=1e5)
        estimate = APPROXIMATIONS["published/bok-su-altschuler/sampled-composition-estimate"]
        # The variance is about half the square of the ratio, so the estimate is linear in it.
        ratio = estimate.estimate(run).mu / estimate.estimate(run.replace(noise_std=1e4)).mu
        assert ratio == pytest.approx(0.1, rel=1e-3)


class TestDominance:
    @staticmethod
    @st.composite
    def cyclic(draw):
        batches, epochs = draw(st.integers(2, 30)), draw(st.integers(1, 60))
        smooth = draw(st.floats(0.1, 10.0))
        strong = smooth * 10 ** draw(st.floats(-5.0, 0.0))
        step = draw(st.floats(0.01, 0.99)) * 2 / (smooth + strong)
        return described(
            li.Cyclic(batches, 1), batches * epochs, step_size=step,
            loss=li.Loss(smoothness=smooth, strong_convexity=strong),
            noise_std=10 ** draw(st.floats(-0.5, 1.0)),
        )  # fmt: skip

    @given(run=cyclic())
    @settings(max_examples=40)
    def test_engine_below_bok_below_ye(self, run):
        engine = li.account(run, bounds="fixed-order").gdp()
        bok = CATALOGUE["published/bok-su-altschuler/cyclic"].profile(run)
        ye = CATALOGUE["published/ye-shokri/fixed-order"].profile(run)
        naive = CATALOGUE["published/ye-shokri/naive"].profile(run)
        assert engine <= bok.mu * (1 + 1e-9)
        assert bok.mu**2 / 2 <= ye.rho * (1 + 1e-9)
        assert bok.mu**2 / 2 <= naive.rho * (1 + 1e-9)
        assert bok.epsilon(1e-5) <= ye.epsilon(1e-5)

    @pytest.mark.slow
    @given(run=cyclic())
    @settings(max_examples=25)
    def test_shuffled_once_below_ye(self, run):
        shuffled = run.replace(
            batches=li.ShuffledOnce(run.batches.examples, run.batches.batch_size)
        )
        ours = li.account(shuffled)
        theirs = CATALOGUE["published/ye-shokri/shuffled"].profile(shuffled)
        for delta in (1e-5, 1e-8):
            assert ours.epsilon(delta) <= theirs.epsilon(delta) * (1 + 1e-9)

    @given(run=cyclic(), diameter=st.floats(-2.0, 2.0))
    @settings(max_examples=15)
    def test_full_batches(self, run, diameter):
        full = run.replace(batches=li.FullBatch(1), steps=min(run.steps, 300))
        full = full.replace(domain=li.Ball(10**diameter))
        report = li.account(full, including="published")
        engine = report.all["fixed-order/convex"].gdp()
        for id_, profile in report.all.items():
            rate = profile.renyi(2.0)
            assert engine**2 <= rate * (1 + 1e-9), id_

    @given(run=cyclic(), clip=st.floats(0.5, 3.0))
    @settings(max_examples=15)
    def test_without_convexity(self, run, clip):
        rough = run.replace(
            loss=li.Loss(smoothness=run.loss.smoothness, convex=False, lipschitz=clip),
            domain=li.Ball(1.0),
            steps=min(run.steps, 120),
        )
        ours = li.account(rough, bounds="fixed-order/non-convex").gdp()
        assert ours**2 / 2 <= CATALOGUE["published/chien-li/cyclic"].profile(rough).rho * (1 + 1e-6)


class TestSelection:
    RUN = readme_run(li.ShuffledOnce, 2)
    CLIPPED = RUN.replace(loss=li.Loss(smoothness=32.502, regulariser=0.002), clip_norm=5.0)

    def test_by_default_nothing_published_is_used(self):
        report = li.account(self.RUN)
        assert not [id_ for id_ in {**report.all, **report.unmet} if id_.startswith("published")]
        assert report.certainty is Certainty.UPPER

    def test_by_id(self):
        report = li.account(self.RUN, bounds="published/ye-shokri/shuffled")
        assert set(report.all) == {"published/ye-shokri/shuffled"}
        assert report.epsilon(1e-5) > li.account(self.RUN).epsilon(1e-5)

    def test_including_lists_them_and_changes_no_answer(self):
        plain, more = li.account(self.CLIPPED), li.account(self.CLIPPED, including="published")
        doubtful = "published/ye-shokri/clipped-logistic"
        assert doubtful in more.all
        assert more.all[doubtful].epsilon(1e-5) < plain.epsilon(1e-5)
        assert more.epsilon(1e-5) == plain.epsilon(1e-5)
        assert more.bound == plain.bound
        assert "as published" in str(more)

    def test_what_is_only_as_published_says_so(self):
        report = li.account(self.CLIPPED, bounds="published/ye-shokri/clipped-logistic")
        assert report.certainty is Certainty.AS_PUBLISHED
        assert "not certified" in str(report)

    def test_every_statement_of_a_paper_is_found(self):
        listed = {**CATALOGUE, **LOWER_BOUNDS, **APPROXIMATIONS}
        stated = [
            one
            for module in pkgutil.walk_packages(published.__path__, f"{published.__name__}.")
            for value in vars(importlib.import_module(module.name)).values()
            if isinstance(value, tuple)
            for one in value
            if isinstance(one, Statement)
        ]
        assert len({one.id for one in stated}) > 30
        assert all(listed[one.id] is one for one in stated)

    def test_every_paper_is_there(self):
        found = {id_.split("/")[1] for id_ in PUBLISHED}
        assert found == {
            "bok-su-altschuler", "altschuler-talwar", "ye-shokri", "chien-li",
            "chourasia-ye-shokri", "feldman-mironov-talwar-thakurta",
        }  # fmt: skip
        doubtful = {id_ for id_, b in PUBLISHED.items() if b.certainty is Certainty.AS_PUBLISHED}
        assert doubtful == {
            "published/ye-shokri/clipped-logistic",
            "published/altschuler-talwar/sampled-bounded",
            "published/altschuler-talwar/sampled-strongly-convex",
            "published/chien-li/sampled",
        }


class TestContract:
    @pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
    def test_more_noise_or_less_sensitivity_is_never_less_private(self, seed):
        rng, seen = np.random.default_rng(seed), Counter()
        for _ in range(15 if seed else 8):
            run = contracting_run(rng)
            length = run.batches.batches_per_epoch
            rules = [run.batches]
            if length > 1:
                rules += [li.ShuffledOnce(length, 1), li.SampledWithoutReplacement(length, 1)]
            run = run.replace(
                batches=rules[rng.integers(len(rules))],
                steps=max(1, run.steps // length) * length,
            )
            for id_, bound in PUBLISHED.items():
                if bound.unmet(run) or bound.certainty is not Certainty.UPPER:
                    continue
                if "sampled" in id_ and seen[id_] == (seed > 0):  # each takes a second
                    continue
                seen[id_] += 1
                before = bound.profile(run).epsilon(1e-3)
                for changed in (
                    run.replace(noise_std=1.7 * run.noise_std),
                    run.replace(sensitivity=0.6 * run.sensitivity),
                ):
                    if not bound.unmet(changed):
                        assert bound.profile(changed).epsilon(1e-3) <= before * (1 + 1e-3), id_
        assert len(seen) >= (12)
