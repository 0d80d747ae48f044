"""Runs from dp-accounting's events, and guarantees as such events."""

import math

import dp_accounting as da
import pytest
from dp_accounting import dp_event as events

import lastiterate as li
from lastiterate.dp_accounting import LastIterateAccountant, LastIterateDpEvent

LOSS = li.Loss(smoothness=1.05, regulariser=0.05, lipschitz=2.0)
SAID = {"clip_norm": 2.0, "step_size": 0.5, "loss": LOSS}
DELTA = 1e-5


def direct(batches, steps=30, **changes):
    said = {"noise_multiplier": 2.0, "steps": steps, "batches": batches}
    return li.TrainingRun.from_dp_sgd(**SAID | said | changes)


def relation(name):
    return da.NeighboringRelation[name]


class TestRunsFromEvents:
    def made(self, step, count=30, **said):
        event = events.SelfComposedDpEvent(step, count)
        return li.TrainingRun.from_dp_event(event, **SAID | said)

    def test_equal_the_direct_description(self):
        gaussian = events.GaussianDpEvent(2.0)
        poisson = events.PoissonSampledDpEvent(0.05, gaussian)
        assert self.made(poisson, examples=4_000) == direct(li.PoissonSampled(4_000, 200))
        without = events.SampledWithoutReplacementDpEvent(4_000, 200, gaussian)
        replaced = direct(li.SampledWithoutReplacement(4_000, 200), adjacency="replace")
        assert self.made(without, adjacency="replace") == replaced
        assert replaced.sensitivity == 4.0  # twice the clip
        assert self.made(gaussian, examples=4_000) == direct(li.FullBatch(4_000))
        truncated = events.TruncatedSubsampledGaussianDpEvent(4_000, 0.05, 260, 2.0)
        assert self.made(truncated) == direct(li.PoissonSampled(4_000, 200, 260))

    def test_schedules(self):
        steps = [events.GaussianDpEvent(z) for z in (1.0, 1.0, 3.0)]
        event = events.SelfComposedDpEvent(
            events.ComposedDpEvent([*steps, events.NoOpDpEvent()]), 2
        )
        run = li.TrainingRun.from_dp_event(event, examples=100, **SAID)
        assert run.noise_std == (0.02, 0.02, 0.06, 0.02, 0.02, 0.06)

    @pytest.mark.parametrize(
        "event, why",
        [
            (events.LaplaceDpEvent(1.0), "made of Gaussian events"),
            (events.PoissonSampledDpEvent(0.05, events.LaplaceDpEvent(1.0)), "made of Gaussian"),
            (events.SingleEpochTreeAggregationDpEvent(1.0, 8), "made of Gaussian events"),
            (events.NoOpDpEvent(), "at least one step"),
            (events.GaussianDpEvent(math.nan), "noise_multiplier must be"),
            (events.PoissonSampledDpEvent(0.051, events.GaussianDpEvent(1.0)), "sample_rate must"),
            (
                events.ComposedDpEvent(
                    [
                        events.GaussianDpEvent(1.0),
                        events.PoissonSampledDpEvent(0.05, events.GaussianDpEvent(1.0)),
                    ]
                ),
                "all drawn alike",
            ),
            ("gaussian", "made of Gaussian events"),
        ],
    )
    def test_refused(self, event, why):
        with pytest.raises(li.InvalidParameter, match=why):
            li.TrainingRun.from_dp_event(event, examples=100, **SAID)

    def test_what_is_said_twice_or_not_at_all(self):
        with pytest.raises(li.InvalidParameter, match="examples must be given"):
            li.TrainingRun.from_dp_event(events.GaussianDpEvent(1.0), **SAID)
        with pytest.raises(li.InvalidParameter, match="steps must be omitted"):
            li.TrainingRun.from_dp_event(events.GaussianDpEvent(1.0), examples=9, steps=3, **SAID)
        sampled = events.SampledWithoutReplacementDpEvent(40, 20, events.GaussianDpEvent(1.0))
        with pytest.raises(li.InvalidParameter, match="40, as the event has it"):
            li.TrainingRun.from_dp_event(sampled, examples=50, **SAID)


class TestGuaranteesAsEvents:
    def test_a_gaussian_one_is_known_to_all_accountants(self):
        report = li.account(direct(li.Cyclic(4_000, 200)))
        event = report.to_dp_event()
        assert 1.0 / event.noise_multiplier == pytest.approx(report.gdp(), rel=1e-12)
        assert event.noise_multiplier <= 1.0 / report.gdp()
        pld = da.pld.PLDAccountant(relation("REPLACE_SPECIAL")).compose(event)
        assert pld.get_epsilon(DELTA) == pytest.approx(report.epsilon(DELTA), rel=1e-3)

    def test_one_for_replaced_examples_is_not_known_to_renyi_accountants(self):
        """Which would charge half of it: google/differential-privacy#378."""
        report = li.account(direct(li.Cyclic(4_000, 200), adjacency="replace"))
        event = report.to_dp_event()
        assert not da.rdp.RdpAccountant(neighboring_relation=relation("REPLACE_ONE")).supports(
            event
        )
        own = LastIterateAccountant(relation("REPLACE_ONE")).compose(event)
        assert own.get_epsilon(DELTA) == pytest.approx(report.epsilon(DELTA), rel=1e-3)
        assert own.get_epsilon(DELTA) >= report.epsilon(DELTA) * (1 - 1e-9)
        assert own.get_delta(report.epsilon(DELTA)) == pytest.approx(DELTA, rel=1e-2)

    def test_losses(self):
        report = li.account(direct(li.Cyclic(4_000, 200)))
        pld = report.to_pld()
        assert pld.get_epsilon_for_delta(DELTA) >= report.epsilon(DELTA) * (1 - 1e-9)
        assert pld.get_epsilon_for_delta(DELTA) == pytest.approx(report.epsilon(DELTA), rel=1e-3)

    def test_composed_with_others_and_itself(self):
        run = direct(li.Cyclic(4_000, 200))
        mu = li.account(run).gdp()
        accountant = LastIterateAccountant(relation("REPLACE_SPECIAL"))
        accountant.compose(LastIterateDpEvent.of(run), 3).compose(events.GaussianDpEvent(2.0))
        exact = li.GaussianProfile(math.sqrt(3 * mu**2 + 0.25)).epsilon(DELTA)
        assert exact * (1 - 1e-9) <= accountant.get_epsilon(DELTA) <= exact * 1.002

    def test_relations(self):
        left_out = LastIterateDpEvent.of(direct(li.Cyclic(4_000, 200)))
        assert left_out.relations() == {"REPLACE_SPECIAL"}
        assert not LastIterateAccountant(relation("REPLACE_ONE")).supports(left_out)
        assert not LastIterateAccountant(relation("ADD_OR_REMOVE_ONE")).supports(left_out)
        poisson = LastIterateDpEvent.of(direct(li.PoissonSampled(4_000, 200)))
        assert LastIterateAccountant(relation("ADD_OR_REMOVE_ONE")).supports(poisson)
        replaced = LastIterateDpEvent.of(direct(li.Cyclic(4_000, 200), adjacency="replace"))
        assert replaced.relations() == {"REPLACE_ONE"}
        with pytest.raises(da.UnsupportedEventError, match="for REPLACE_ONE, this accountant"):
            LastIterateAccountant(relation("REPLACE_SPECIAL")).compose(replaced)

    def test_what_is_not_private_is_infinite(self):
        accountant = LastIterateAccountant(relation("REPLACE_SPECIAL"))
        accountant.compose(events.NonPrivateDpEvent())
        assert accountant.get_epsilon(DELTA) == math.inf
        assert accountant.get_delta(1.0) == 1.0

    def test_calibration_by_dp_accounting(self):
        run = direct(li.Cyclic(4_000, 200))
        found = da.calibrate_dp_mechanism(
            lambda: LastIterateAccountant(relation("REPLACE_SPECIAL"), 1e-3),
            lambda noise: LastIterateDpEvent.of(run.replace(noise_std=noise)),
            target_epsilon=1.0, target_delta=DELTA,
            bracket_interval=da.ExplicitBracketInterval(0.005, 0.5), tol=1e-3,
        )  # fmt: skip
        assert li.account(run.replace(noise_std=found)).epsilon(DELTA) <= 1.0
        assert found <= li.calibrate(run, epsilon=1.0, delta=DELTA).noise_std + 2e-3
