"""The bounds of five papers: their symbols, their examples, and how they compare."""

import importlib
import math
import pkgutil
from collections import Counter
from itertools import product
from typing import ClassVar

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
from lastiterate.reproduce import runs as conventions
from tests.bounds.test_catalogue import runs
from tests.bounds.test_grid_oracle import contracting_run
from tests.reference import chien_li, papers

PUBLISHED = {id_: bound for id_, bound in CATALOGUE.items() if id_.startswith("published/")}


def grid(*values):
    return list(product(*values))


def rho(id_, run):
    return CATALOGUE[f"published/{id_}"].profile(run).rho


class TestYeShokri:
    """On the example of their Figures 1 and 2."""

    SYMBOLS: ClassVar = {"eta": 0.02, "lam": 1.0, "S_g": 4.0, "sigma": 2.0, "b": 2}
    N = 50

    def run(self, K, rule=li.Cyclic, **changes):
        return li.TrainingRun(
            loss=li.Loss(smoothness=4.0, strong_convexity=1.0),
            **conventions.ye_shokri(sigma=2.0, S_g=4.0, step_size=0.02),
            batches=rule(self.N, 2),
            steps=25 * K,
            step_size=0.02,
            **changes,
        )

    @pytest.mark.parametrize("alpha, K", grid([1.5, 10.0, 15.0], [1, 2, 30, 200]))
    def test_as_printed(self, alpha, K):
        cyclic, symbols = self.run(K), {"alpha": alpha, **self.SYMBOLS}
        naive = papers.ys_naive(K=K, **symbols)
        assert CATALOGUE["published/ye-shokri/naive"].profile(cyclic).renyi(alpha) == pytest.approx(
            naive, rel=1e-10
        )
        positions = CATALOGUE["published/ye-shokri/fixed-order"].by_position(cyclic)
        for j in (0, 11, 12, 24):
            printed = papers.ys_fixed_order(j, n=self.N, K=K, **symbols)
            assert positions[j].renyi(alpha) == pytest.approx(printed, rel=1e-9)
        shuffled = CATALOGUE["published/ye-shokri/shuffled"].profile(self.run(K, li.ShuffledOnce))
        printed = papers.ys_shuffled(n=self.N, K=K, **symbols)
        assert shuffled.renyi(alpha) == pytest.approx(printed, rel=1e-9)
        sampled = self.run(K, li.SampledWithoutReplacement)
        value = CATALOGUE["published/ye-shokri/sampled"].profile(sampled).renyi(alpha)
        assert value == pytest.approx(papers.ys_sampled(n=self.N, K=K, **symbols), rel=1e-8)

    def test_the_last_batch_is_charged(self):
        bound, run = CATALOGUE["published/ye-shokri/fixed-order"], self.run(5)
        rates = [profile.rho for profile in bound.by_position(run)]
        assert max(rates) == rates[-1] == bound.profile(run).rho

    def test_corollary_5_3_in_noise_multipliers(self):
        run = li.TrainingRun.from_dp_sgd(
            loss=li.Loss(smoothness=32.502, regulariser=0.002),
            batches=li.ShuffledOnce(60_000, 1_500),
            clip_norm=5.0,
            noise_multiplier=3.0,
            steps=400,
            step_size=0.05,
            adjacency="replace",
        )
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

    @pytest.mark.parametrize("steps, c, alpha", grid([1, 4, 7], [0.0, 0.5, 0.98], [1.5, 4.0]))
    def test_theorem_4_3_follows_from_the_shifts(self, steps, c, alpha):
        """The average over all batch sequences of what the shifts certify is below it."""
        r, q = 0.7, 0.2
        run = li.TrainingRun(
            loss=li.Loss(smoothness=1 - c, strong_convexity=1 - c),
            sensitivity=r,
            batches=li.SampledWithoutReplacement(5, 1),
            steps=steps,
            step_size=1.0,
            noise_std=1.0,
        )
        published = CATALOGUE["published/ye-shokri/sampled"].profile(run).renyi(alpha)
        total = 0.0
        for seen in product([0, 1], repeat=steps):
            plan = li.optimal_shifts(contraction=c, sensitivity=r * np.array(seen), noise=1.0)
            chance = q ** sum(seen) * (1 - q) ** (steps - sum(seen))
            total += chance * math.exp((alpha - 1) * alpha * plan.mu**2 / 2)
        assert math.log(total) / (alpha - 1) <= published * (1 + 1e-9)


class TestChourasiaYeShokri:
    """On the example of their Figure 2."""

    @pytest.mark.parametrize("alpha, K", grid([10.0, 30.0], [1, 50, 400]))
    def test_as_printed(self, alpha, K):
        symbols = {"alpha": alpha, "S_g": 4.0, "sigma": 0.02, "n": 5000, "eta": 0.02, "K": K}
        run = li.TrainingRun(
            loss=li.Loss(smoothness=1.0, strong_convexity=1.0),
            **conventions.chourasia_ye_shokri(sigma=0.02, S_g=4.0, step_size=0.02),
            batches=li.FullBatch(5000),
            steps=K,
            step_size=0.02,
        )

        def divergence(what):
            return CATALOGUE[f"published/chourasia-ye-shokri/{what}"].profile(run).renyi(alpha)

        expected = papers.cys_corollary_2(**symbols)
        assert divergence("squared-loss") == pytest.approx(expected, rel=1e-9)
        expected = papers.cys_corollary_1(lam=1.0, **symbols)
        assert divergence("strongly-convex") == pytest.approx(expected, rel=1e-9)
        composed = alpha * 16 / (4 * 5000**2 * 0.02**2) * 0.02 * K
        assert divergence("linear") == pytest.approx(composed, rel=1e-9)
        exact = papers.cys_exact(**symbols)
        assert li.account(run).renyi(alpha) == pytest.approx(exact, rel=1e-9)


class TestChienLi:
    """On the example of their Figure 1."""

    SYMBOLS: ClassVar = {"eta": 0.1, "K": 2.0, "n": 5, "sigma": 1.0, "D": 1.0}

    def run(self, T, loss, domain=None):
        return li.TrainingRun(
            loss=loss,
            **conventions.chien_li(sigma=1.0, K=2.0, step_size=0.1),
            batches=li.FullBatch(5),
            steps=T,
            step_size=0.1,
            domain=domain or li.Ball(1.0),
        )

    def test_steps_that_erase_everything(self):
        run = self.run(200, li.Loss(smoothness=1.0, strong_convexity=1.0)).replace(step_size=1.0)
        assert 0.0 < rho("chien-li/smooth", run) < math.inf
        assert rho("chien-li/smooth", run.replace(steps=2_000)) < math.inf

    def test_distances_beyond_all_numbers(self):
        """Then the first steps are composed, as without the theorem."""
        run = self.run(1_500, li.Loss(smoothness=1.0, convex=False), li.Unbounded())
        run = run.replace(step_size=1.0, clip_norm=None)
        composed = 1_500 * (run.sensitivity / 5 / run.noise_std) ** 2 / 2
        assert 0.0 < rho("chien-li/smooth", run) <= composed * (1 + 1e-9)

    @pytest.mark.parametrize("T", [1, 7, 60])
    def test_theorem_3_1(self, T):
        bounded = {"smoothness": 1.0, "lipschitz": 2.0}
        for loss, c in (
            (li.Loss(convex=False, **bounded), 1.1),
            (li.Loss(**bounded), 1.0),
            (li.Loss(strong_convexity=1.0, **bounded), 0.9),
        ):
            expected = chien_li.gdp_smooth(T=T, c=c, **self.SYMBOLS)
            value = math.sqrt(2 * rho("chien-li/smooth", self.run(T, loss)))
            assert value == pytest.approx(expected, rel=1e-3)
            assert value >= expected * (1 - 1e-9)

    @pytest.mark.parametrize("T, order", grid([3, 9], [0.5, 0.8]))
    def test_theorem_3_7(self, T, order):
        loss = li.Loss(convex=False, holder=(1.0, order), lipschitz=2.0)
        expected = chien_li.gdp_hoelder(T=T, L=1.0, lam=order, **self.SYMBOLS)
        value = math.sqrt(2 * rho("chien-li/hoelder", self.run(T, loss)))
        assert value == pytest.approx(expected, rel=0.01)

    def test_hoelder_of_order_one_is_smooth(self):
        for T in (1, 20, 90):
            loss = {"convex": False, "lipschitz": 2.0}
            smooth = rho("chien-li/smooth", self.run(T, li.Loss(smoothness=1.0, **loss)))
            hoelder = rho("chien-li/hoelder", self.run(T, li.Loss(holder=(1.0, 1.0), **loss)))
            assert hoelder == pytest.approx(smooth, rel=0.01)

    def test_one_batch_an_epoch_is_a_full_batch(self):
        loss = li.Loss(convex=False, holder=(1.0, 0.7), lipschitz=2.0)
        run = self.run(30, loss)
        cyclic = run.replace(batches=li.Cyclic(5, 5))
        shuffled = run.replace(batches=li.ShuffledOnce(5, 5))
        expected = rho("chien-li/hoelder", run)
        assert rho("chien-li/cyclic", cyclic) == pytest.approx(expected, rel=1e-9)
        average = CATALOGUE["published/chien-li/shuffled"].profile(shuffled)
        assert average.renyi(3.0) == pytest.approx(3.0 * expected, rel=0.01)


class TestAltschulerTalwar:
    SYMBOLS: ClassVar = {"D": 0.5, "L": 1.0, "b": 5, "n": 50, "eta": 0.1, "sigma": 2.0}

    def run(self, T, **changes):
        return li.TrainingRun(
            loss=li.Loss(smoothness=1.0, lipschitz=1.0),
            **conventions.altschuler_talwar(sigma=2.0, L=1.0),
            batches=changes.pop("batches", li.SampledWithoutReplacement(50, 5)),
            steps=T,
            step_size=0.1,
            domain=li.Ball(0.5),
            **changes,
        )

    @pytest.mark.parametrize("alpha, T", grid([2.0, 5.0], [1, 40]))
    def test_3_6_with_the_larger_direction(self, alpha, T):
        bound = CATALOGUE["published/altschuler-talwar/sampled-bounded"]
        assert bound.certainty is Certainty.AS_PUBLISHED
        value = bound.profile(self.run(T)).renyi(alpha)
        expected = papers.at_3_6(alpha=alpha, T=T, printed=False, **self.SYMBOLS)
        assert value == pytest.approx(expected, rel=5e-3)
        assert value >= papers.at_3_6(alpha=alpha, T=T, printed=True, **self.SYMBOLS)

    @pytest.mark.parametrize("T", [1, 30, 400])
    def test_proposition_3_2_by_hand(self, T):
        run = self.run(T, batches=li.FullBatch(5))
        s, D, noise = 0.1 * 2 / 5, 0.5, 0.2
        best = min((s * math.sqrt(R) + D / math.sqrt(R)) ** 2 for R in range(1, T + 1))
        assert rho("altschuler-talwar/bounded", run) == pytest.approx(best / noise**2 / 2)
        assert rho("altschuler-talwar/iteration", run) == pytest.approx(T * (s / noise) ** 2 / 2)

    def test_proposition_5_6_by_the_shifts(self):
        run = self.run(30, batches=li.FullBatch(5)).replace(
            loss=li.Loss(smoothness=1.0, strong_convexity=0.5, lipschitz=1.0)
        )
        mus = [
            li.optimal_shifts(
                contraction=np.full(R, 0.95), sensitivity=np.full(R, 0.04), noise=0.2, start=0.5
            ).mu
            for R in range(1, 31)
        ]
        expected = min(mus) ** 2 / 2
        assert rho("altschuler-talwar/bounded-strongly-convex", run) == pytest.approx(expected)

    @pytest.mark.parametrize("q, z, alpha", grid([0.01, 0.1], [1.0, 4.0], [2.0, 3.0, 9.0]))
    def test_sampled_gaussian_is_the_larger_direction(self, q, z, alpha):
        value = float(sampled_gaussian(q, z, np.array([alpha]))[0])
        exact = papers.sampled_gaussian(alpha, q, z, printed=False)
        assert value == pytest.approx(exact, rel=1e-6)
        assert exact > papers.sampled_gaussian(alpha, q, z, printed=True)


class TestBokSuAltschuler:
    def test_table_3_by_the_central_limit_theorem(self):
        for epochs, printed in {50: 1.03, 100: 1.45, 200: 2.05}.items():
            run = TestDominance.mnist(epochs).replace(
                batches=li.SampledWithoutReplacement(60_000, 1_500)
            )
            one = APPROXIMATIONS["published/bok-su-altschuler/sampled-composition-estimate"]
            estimate = one.estimate(run)
            assert round(estimate.mu, 2) == printed
            assert not hasattr(estimate, "epsilon")

    def test_small_ratios_do_not_cancel(self):
        run = TestDominance.mnist(1).replace(
            batches=li.SampledWithoutReplacement(60_000, 1_500), noise_std=1e5
        )
        estimate = APPROXIMATIONS["published/bok-su-altschuler/sampled-composition-estimate"]
        # The variance is about half the square of the ratio, so the estimate is linear in it.
        ratio = estimate.estimate(run).mu / estimate.estimate(run.replace(noise_std=1e4)).mu
        assert ratio == pytest.approx(0.1, rel=1e-3)


class TestDominance:
    @staticmethod
    def mnist(epochs, rule=li.Cyclic):
        return li.TrainingRun(
            loss=li.Loss(smoothness=32.502, strong_convexity=0.002),
            sensitivity=10.0,
            batches=rule(60_000, 1_500),
            steps=40 * epochs,
            step_size=0.05,
            noise_std=0.01,
        )

    @staticmethod
    @st.composite
    def cyclic(draw):
        batches, epochs = draw(st.integers(2, 30)), draw(st.integers(1, 60))
        smooth = draw(st.floats(0.1, 10.0))
        strong = smooth * 10 ** draw(st.floats(-5.0, 0.0))
        step = draw(st.floats(0.01, 0.99)) * 2 / (smooth + strong)
        return li.TrainingRun(
            loss=li.Loss(smoothness=smooth, strong_convexity=strong),
            sensitivity=1.0,
            batches=li.Cyclic(batches, 1),
            steps=batches * epochs,
            step_size=step,
            noise_std=10 ** draw(st.floats(-0.5, 1.0)),
        )

    @given(run=cyclic())
    @settings(max_examples=60)
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
        shuffled = run.replace(batches=li.ShuffledOnce(*_sizes(run)))
        ours = li.account(shuffled)
        theirs = CATALOGUE["published/ye-shokri/shuffled"].profile(shuffled)
        for delta in (1e-5, 1e-8):
            assert ours.epsilon(delta) <= theirs.epsilon(delta) * (1 + 1e-9)

    @given(run=cyclic(), diameter=st.floats(-2.0, 2.0))
    @settings(max_examples=25)
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
        assert ours**2 / 2 <= rho("chien-li/cyclic", rough) * (1 + 1e-6)


def _sizes(run):
    return run.batches.examples, run.batches.batch_size


class TestSelection:
    RUN = TestDominance.mnist(2, li.ShuffledOnce)

    def test_by_default_nothing_published_is_used(self):
        report = li.account(self.RUN)
        assert not [id_ for id_ in {**report.all, **report.unmet} if id_.startswith("published")]
        assert report.certainty is Certainty.UPPER

    def test_by_id(self):
        report = li.account(self.RUN, bounds="published/ye-shokri/shuffled")
        assert set(report.all) == {"published/ye-shokri/shuffled"}
        assert report.epsilon(1e-5) > li.account(self.RUN).epsilon(1e-5)

    def test_including_lists_them_and_changes_no_answer(self):
        clipped = self.RUN.replace(
            loss=li.Loss(smoothness=32.502, regulariser=0.002), clip_norm=5.0
        )
        plain, more = li.account(clipped), li.account(clipped, including="published")
        doubtful = "published/ye-shokri/clipped-logistic"
        assert doubtful in more.all
        assert more.all[doubtful].epsilon(1e-5) < plain.epsilon(1e-5)
        assert more.epsilon(1e-5) == plain.epsilon(1e-5)
        assert more.bound == plain.bound
        assert "as published" in str(more)

    def test_what_is_only_as_published_says_so(self):
        clipped = self.RUN.replace(
            loss=li.Loss(smoothness=32.502, regulariser=0.002), clip_norm=5.0
        )
        report = li.account(clipped, bounds="published/ye-shokri/clipped-logistic")
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
    @given(run=runs())
    @settings(max_examples=60)
    def test_each_covers_the_run_or_says_why_not(self, run):
        for bound in PUBLISHED.values():
            unmet = bound.unmet(run)
            if unmet:
                with pytest.raises(li.NoBoundApplies, match=bound.id):
                    bound.profile(run)
                assert all(reason.needs and reason.found and reason.remedy for reason in unmet)
                continue
            profile = bound.profile(run)
            assert isinstance(profile, li.PrivacyProfile)
            assert profile.epsilon(1e-5) >= 0.0
            assert not math.isnan(profile.renyi(3.0))

    @pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
    def test_more_noise_or_less_sensitivity_is_never_less_private(self, seed):
        rng, seen = np.random.default_rng(seed), Counter()
        for _ in range(15):
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
                if "sampled" in id_ and seen[id_] == 1:  # each takes a second
                    continue
                seen[id_] += 1
                before = bound.profile(run).epsilon(1e-3)
                for changed in (
                    run.replace(noise_std=1.7 * run.noise_std),
                    run.replace(sensitivity=0.6 * run.sensitivity),
                ):
                    if not bound.unmet(changed):
                        assert bound.profile(changed).epsilon(1e-3) <= before * (1 + 1e-3), id_
        assert len(seen) >= (20 if seed == 0 else 12)
