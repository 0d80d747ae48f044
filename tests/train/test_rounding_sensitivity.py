"""Errors of computed residuals are charged enough, and hardly anything."""

import numpy as np
import pytest

import lastiterate as li
from lastiterate.bounds.subsampling import tail_split
from lastiterate.errors import InvalidParameter
from lastiterate.train.objectives import Logistic, Softmax
from lastiterate.train.rounding_sensitivity import LEAST_REST, charged_sensitivity

from .problems import RULES, examples, run_of

DATA = examples()
SOFT = Softmax(classes=3)


class Sloppy(Softmax, abstract=True):
    """With an error that can be seen."""

    residual_error = 1e-7


def least_mu(run, *, position, error, diameter=np.inf):
    """The engine's own answer where every step from the first participation on adds `error`."""
    length, steps = run.batches.batches_per_epoch, run.steps
    seen = (np.arange(steps) % length) == position
    arrival = run.step_size * run.sensitivity / run.batches.batch_size * seen
    extra = np.where(np.arange(steps) >= position, error, 0.0)
    c = 1 - min(run.step_size * run.loss.strong_convexity, 1.0)
    return li.optimal_shifts(
        contraction=np.append(np.full(steps, c), 1.0),
        sensitivity=np.append(arrival + extra, 0.0),
        noise=np.append(np.full(steps, run.step_size * run.noise_std), run.release_noise_std),
        diameter=diameter,
    ).mu


class TestSoundness:
    @pytest.mark.parametrize("release", [0.0, 0.05, 1.0])
    @pytest.mark.parametrize("l2", [0.0, 0.05])
    @pytest.mark.parametrize("size", [50, 20, 7])
    def test_covers_an_error_in_every_step(self, release, l2, size):
        objective = Sloppy(classes=3)
        run = run_of(
            DATA, li.Cyclic(103, size), objective=objective, l2=l2, steps=41,
            release_noise_std=release,
        )  # fmt: skip
        exact = objective.sensitivity(radius=DATA.radius, adjacency="replace")
        run = run.replace(sensitivity=exact)
        charged = charged_sensitivity(run, objective, radius=DATA.radius)
        error = 2 * run.step_size * objective.residual_error * DATA.radius
        for position in range(run.batches.batches_per_epoch):
            true = least_mu(run, position=position, error=error)
            stated = least_mu(run.replace(sensitivity=charged), position=position, error=0.0)
            assert least_mu(run, position=position, error=0.0) < true <= stated

    def test_covers_errors_charged_at_a_hidden_end(self):
        """With a share of the noise left in the last steps, for an example that came before."""
        assert 1.0 - max(tail_split._SHARES) >= LEAST_REST
        objective, steps = Sloppy(classes=3), 25
        rule = li.SampledWithoutReplacement(103, 20)
        run = run_of(DATA, rule, objective=objective, steps=steps)
        exact = objective.sensitivity(radius=DATA.radius, adjacency="replace")
        run = run.replace(sensitivity=exact)
        charged = charged_sensitivity(run, objective, radius=DATA.radius)
        error = 2 * run.step_size * objective.residual_error * DATA.radius
        for end in (1, 5, 20):
            noise = np.full(steps, run.step_size * run.noise_std)
            noise[-end:] *= LEAST_REST**0.5
            for first in range(0, steps - end, 7):
                after = np.arange(steps) >= first
                mus = [
                    li.optimal_shifts(
                        contraction=np.ones(steps),
                        sensitivity=(np.arange(steps) == first) * (run.step_size * sensitivity / 20)
                        + extra * after,
                        noise=noise,
                    ).mu
                    for sensitivity, extra in ((exact, error), (charged, 0.0))
                ]
                assert mus[0] <= mus[1]

    def test_no_sensitivity_covers_errors_under_a_cap(self):
        # What one participation brings is cut to the diameter, whatever it is; errors are not.
        run = run_of(DATA, li.Cyclic(103, 20), objective=Sloppy(classes=3), steps=5)
        capped = run.step_size * run.sensitivity / 20 / 2
        alone = [
            least_mu(run.replace(sensitivity=L), position=0, error=0.0, diameter=capped)
            for L in (run.sensitivity, 2 * run.sensitivity)
        ]
        assert alone[0] == alone[1] < least_mu(run, position=0, error=1e-7, diameter=capped)


class TestTightness:
    @pytest.mark.parametrize("name", RULES)
    def test_the_envelope_costs_next_to_nothing(self, name):
        run = run_of(DATA, RULES[name], objective=SOFT, steps=1_000)
        exact = SOFT.sensitivity(radius=DATA.radius, adjacency="replace")
        assert exact < charged_sensitivity(run, SOFT, radius=DATA.radius) < exact * (1 + 2e-5)

    def test_exact_residuals_cost_nothing(self):
        run = run_of(DATA, RULES["once"])
        exact = Logistic().sensitivity(radius=DATA.radius, adjacency="replace")
        assert charged_sensitivity(run, Logistic(), radius=DATA.radius) == exact


class TestRefusals:
    def test_errors_that_would_dominate(self):
        # Where steps contract fast and batches are sampled, an old error outweighs what is left.
        run = run_of(DATA, RULES["sampled"], objective=SOFT, steps=1_000, l2=0.5)
        with pytest.raises(InvalidParameter, match="'margin' for this run"):
            charged_sensitivity(run, SOFT, radius=DATA.radius)

    @pytest.mark.parametrize("name", [name for name in RULES if name != "full"])
    def test_bounded_domains(self, name):
        run = run_of(DATA, RULES[name], objective=SOFT, domain=li.Ball(1.0))
        with pytest.raises(InvalidParameter, match="'margin' for batches on a bounded domain"):
            charged_sensitivity(run, SOFT, radius=DATA.radius)

    def test_steps_that_may_expand(self):
        run = run_of(DATA, RULES["cyclic"], objective=SOFT)
        longer = run.replace(step_size=2.01 / run.loss.smoothness)
        with pytest.raises(InvalidParameter, match="'margin' for steps above 2/smoothness"):
            charged_sensitivity(longer, SOFT, radius=DATA.radius)

    def test_bounded_domains_but_for_full_batches(self):
        run = run_of(DATA, RULES["full"], objective=SOFT, domain=li.Ball(1.0))
        exact = SOFT.sensitivity(radius=DATA.radius, adjacency="replace")
        assert charged_sensitivity(run, SOFT, radius=DATA.radius) > exact
