"""Every lower bound: its record, its gradients, and that no upper bound is below it."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

import lastiterate as li
from lastiterate.audit.exact import FAMILIES
from lastiterate.bounds.bound import Certainty
from lastiterate.bounds.catalogue import CATALOGUE
from lastiterate.lower_bounds.catalogue import LOWER_BOUNDS
from lastiterate.lower_bounds.quadratics import admitted
from lastiterate.run.loss import Gradients, linear_gradients
from tests.bounds.test_catalogue import runs
from tests.lower_bounds.example_runs import dp_sgd, square
from tests.reference import all_orders
from tests.reference.random_runs import random_run
from tests.slow import slow, slow_if

WALK = LOWER_BOUNDS["published/bok-su-altschuler/bounded-lower"]


class TestRecords:
    @pytest.mark.parametrize("bound", LOWER_BOUNDS.values(), ids=lambda bound: bound.id)
    def test_are_complete(self, bound):
        assert bound.certainty is Certainty.LOWER
        assert bound.id not in CATALOGUE
        assert bound.gives
        assert str(bound.source)
        for heading in ("Bound.**", "Holds when.**", "Tight", "Source.**", "Computed as**"):
            assert f"**{heading}" in bound.evaluate.__doc__

    def test_are_refused_as_upper_bounds(self):
        with pytest.raises(li.InvalidParameter, match="bounds must be"):
            li.account(square(), bounds="lower/quadratic")


class TestBelowEveryUpperBound:
    @pytest.mark.parametrize("count", [35, slow(300)])
    def test_each_upper_bound_by_itself(self, count):
        """Over runs of every kind, at several deltas."""
        compared = set()

        def epsilons(profile):
            return np.array([profile.epsilon(delta) for delta in (1e-6, 1e-2)])

        def check(run):
            lower = [b for b in LOWER_BOUNDS.values() if not b.unmet(run)]
            known = {b.id: epsilons(b.profile(run)) for b in lower}
            upper = [b for b in CATALOGUE.values() if b.certainty is Certainty.UPPER and known]
            for bound in upper:
                if bound.unmet(run) or "chien-li" in bound.id:  # which take long
                    continue
                certified = epsilons(bound.profile(run)) * (1 + 1e-12)
                for id_, least in known.items():
                    compared.add((bound.id, id_))
                    assert np.all(least <= certified), (bound.id, id_)

        settings(max_examples=count)(given(run=runs())(check))()
        for rule in (li.Cyclic, li.ShuffledOnce, li.SampledWithoutReplacement):
            check(square(rule(6, 2), noise_std=2.0, steps=4))
        assert {id_ for _, id_ in compared} >= {"lower/quadratic"}
        assert len({id_ for id_, _ in compared}) >= 12

    @pytest.mark.parametrize(
        "seed", slow_if(lambda seed: seed >= 30 or seed in (9, 24), range(1_000))
    )
    def test_their_least_for_admitted_gradients(self, seed):
        run = random_run(seed)
        lower = {one.id: one for one in LOWER_BOUNDS.values() if not one.unmet(run)}
        for one in lower.values():
            gradients = list(one.gradients(run))
            assert gradients
            assert all(each.not_admitted(run) is None for each in gradients)
        try:
            report = li.account(run) if lower else None
        except li.NoBoundApplies:
            return
        for id_, one in lower.items():
            profile = one.profile(run)
            for delta in (1e-2, 1e-6):
                assert profile.epsilon(delta) <= report.epsilon(delta) * (1 + 1e-9), id_

    def test_a_report_does_not_deny_its_own_certificate(self):
        """Where batches vary in size no other example makes up for half of the sensitivity."""
        run = dp_sgd(li.PoissonSampled(50_000, 500), steps=300, momentum=0.9)
        report = li.account(run)
        assert 0.5 < report.lower.epsilon(1e-5) / report.epsilon(1e-5) <= 1.0

    def test_one_step_is_told_exactly(self):
        """+1/2 and -1/2, each with the probability of the batch; no gradient of 1 against none."""
        run = dp_sgd(li.PoissonSampled(60, 10), steps=1, clip_norm=0.5, momentum=0.5)
        found, epsilons, chances = li.account(run).lower, (0.05, 0.3), np.array([1 / 6, 5 / 6])
        move = np.array([1.0, 0.0])
        exact = all_orders.hockey_sticks(move, -move, 1.0, epsilons, chances)
        for epsilon, leak in zip(epsilons, exact, strict=True):
            assert leak * (1 - 1e-4) <= found.delta(epsilon) <= leak * (1 + 1e-5)

    def test_reports_have_the_best_or_an_infinite_gap(self):
        bounded = li.account(square(loss=li.Loss(smoothness=1.0), domain=li.Ball(4.0), steps=100))
        assert 1.0 < bounded.ratio_to_lower_bound(1e-5) < math.inf
        assert bounded.lower.epsilon(1e-5) > 0.0
        none = li.account(square(li.PoissonSampled(40, 4)))
        assert none.ratio_to_lower_bound(1e-5) == math.inf


REPLACED = dp_sgd(li.Cyclic(12, 4))
LEFT_OUT = dp_sgd(li.Cyclic(12, 4), adjacency="zero-out")
POISSON = dp_sgd(li.PoissonSampled(12, 4))
FREE = REPLACED.replace(clip_norm=None, loss=li.Loss(smoothness=0.25))


class TestGradients:
    @pytest.mark.parametrize(
        "run, gradients, reason",
        [
            (REPLACED, Gradients(0.5, -0.5, (-0.5, 0.5)), None),
            (REPLACED, Gradients(1.0, 0.0), "gradients of 2.0"),
            (REPLACED.replace(sensitivity=1.0), Gradients(1.0, 0.0), None),
            (REPLACED.replace(sensitivity=1.0), Gradients(1.0, 0.0, (-0.1, 0.0)), "differ by 1.1"),
            (REPLACED, Gradients(0.5, -0.5, shared=True), "share"),
            (LEFT_OUT, Gradients(1.0, 0.0, (-1.0, 1.0)), None),
            (LEFT_OUT, Gradients(1.0, 0.0, (-1.1, 1.0)), "differ by 1.1"),
            (LEFT_OUT, Gradients(0.5, -0.5), "not left out"),
            (FREE, Gradients(0.5, -0.5, shared=True), None),
            (FREE, Gradients(0.6, -0.5), "differ"),
            (FREE, Gradients(math.nan, 0.0), "differ"),
            (FREE.replace(batches=POISSON.batches), Gradients(0.5, -0.5, shared=True), "share"),
            (FREE.replace(batches=POISSON.batches), Gradients(2.0, 1.0), "differ by 2.0"),
        ],
    )
    def test_what_a_description_admits(self, run, gradients, reason):
        found = gradients.not_admitted(run)
        assert found is None if reason is None else reason in found

    def test_a_bound_does_not_apply_where_its_are_not_admitted(self):
        quadratic = LOWER_BOUNDS["lower/quadratic"]
        bound = replace(quadratic, gradients=lambda run: [Gradients(1.0, 0.0)])
        assert not quadratic.unmet(POISSON)
        assert "gradients of 2.0" in str(bound.unmet(POISSON)[0])
        with pytest.raises(li.NoBoundApplies):
            bound.profile(POISSON)

    @pytest.mark.parametrize("run", [REPLACED, LEFT_OUT, POISSON, FREE])
    def test_linear_ones_are_admitted(self, run):
        assert linear_gradients(run)
        for one in linear_gradients(run):
            assert one.not_admitted(run) is None
            ours, theirs = one.moves(exact_size=run.batches.exact_size)
            assert ours - theirs == 1.0

    def test_searched_instances_have_them_too(self):
        """Of batches of random size the others cannot make up; a loose bound is not used up."""
        (first, second) = FAMILIES["quadratics"].pair(POISSON, {}).steps[0].takes
        shift = float(admitted(POISSON).shifts[0])
        assert (first.values[0], second.values[0]) == (-shift / 2, shift / 2)
        loose = li.Loss(smoothness=0.25, lipschitz=3.0)
        for run in (REPLACED, LEFT_OUT):
            found = admitted(run.replace(clip_norm=None, loss=loose))
            assert found.bound == run.sensitivity * (1.0 if run is LEFT_OUT else 0.5)


class TestPersons:
    RUN = square(
        li.Cyclic(24, 2), loss=li.Loss(smoothness=1.0), steps=24, step_size=1.0, noise_std=1.0,
        examples_per_person=6,
    )  # fmt: skip

    def test_a_batch_has_room_for_few_of_them(self):
        for run, bound in (
            (self.RUN, LOWER_BOUNDS["lower/drifting"]),
            (self.RUN.replace(domain=li.Ball(9.0)), WALK),
        ):
            of_two = bound.profile(run.replace(examples_per_person=2))
            assert bound.profile(run).epsilon(1e-5) == of_two.epsilon(1e-5)

    def test_others_in_the_batch_must_make_up_for_all_of_a_person_s(self):
        loss = li.Loss(smoothness=1.0, lipschitz=0.5)
        run = self.RUN.replace(domain=li.Ball(9.0), loss=loss, batches=li.Cyclic(24, 4))
        assert "4 of them of one person" in str(WALK.unmet(run)[0])
        assert not WALK.unmet(run.replace(examples_per_person=2))
