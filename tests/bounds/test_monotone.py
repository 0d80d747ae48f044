"""More noise, fewer epochs and more noise on release never raise what is certified."""

from itertools import pairwise

import pytest

import lastiterate as li

RULES = [
    li.Cyclic,
    li.ShuffledOnce,
    li.ShuffledEachEpoch,
    li.BallsAndBins,
    li.BallsAndBinsEachEpoch,
    li.SampledWithoutReplacement,
    li.PoissonSampled,
]
ROUNDING = 1.0002  # of searches on grids, relative
SMOOTHNESS = 0.26


def epsilon(rule, adjacency, *, step_size=0.5, noise=1.0, epochs=10, released=0.0):
    run = li.TrainingRun.from_dp_sgd(
        batches=rule(examples=2_000, batch_size=80),
        steps=25 * epochs,
        step_size=step_size,
        clip_norm=1.0,
        noise_multiplier=noise,
        adjacency=adjacency,
        loss=li.Loss(smoothness=SMOOTHNESS, regulariser=0.01, lipschitz=1.0, outputs=1),
    )
    return li.account(run.replace(release_noise_std=released)).epsilon(1e-5)


def never_rises(epsilons):
    return all(after <= ROUNDING * before for before, after in pairwise(epsilons))


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
class TestEpsilon:
    def test_does_not_rise_with_noise(self, rule, adjacency):
        levels = (0.9, 1.0, 1.001, 1.01, 1.1, 1.5)
        found = [epsilon(rule, adjacency, noise=noise) for noise in levels]
        assert never_rises(found)
        assert found[-1] < 0.75 * found[0]

    def test_does_not_rise_with_fewer_epochs(self, rule, adjacency):
        found = [epsilon(rule, adjacency, epochs=epochs) for epochs in (40, 11, 10, 3)]
        assert never_rises(found)
        assert found[-1] < found[0]

    def test_does_not_rise_with_noise_on_release(self, rule, adjacency):
        found = [epsilon(rule, adjacency, released=one) for one in (0.0, 0.003, 0.02, 0.1)]
        assert never_rises(found)

    def test_hardly_jumps_where_steps_cease_to_be_short(self, rule, adjacency):
        """What remains: from there on earlier epochs are not averaged over if orders are new."""
        short, long = (
            epsilon(rule, adjacency, step_size=factor / SMOOTHNESS) for factor in (0.9999, 1.0001)
        )
        averaged = rule is li.ShuffledEachEpoch
        assert short <= ROUNDING * long <= (1.03 if averaged else 1.002) * short
