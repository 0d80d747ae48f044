"""Every objective is what it says: convex, as smooth as stated, with bounded gradients."""

import numpy as np
import pytest
from scipy.optimize import minimize

from lastiterate.errors import InvalidParameter, NumericalFailure
from lastiterate.train import objectives as clipping
from lastiterate.train import objectives as objective
from lastiterate.train.objectives import (
    OBJECTIVES,
    Huber,
    Logistic,
    Objective,
    SmoothedHinge,
    Softmax,
    from_record,
)

from .problems import instances, targets_for

PAIRS = 3_000
SCALES = (0.3, 3.0, 30.0)
EVERY = [objective for kind in OBJECTIVES.values() for objective in instances(kind)]


def pairs(objective, count=PAIRS, scale=1.0, seed=0):
    """Outputs, and others at distances from 1e-7 to 10 of them, with residuals at both."""
    rng = np.random.default_rng(seed)
    u = scale * rng.normal(size=(objective.outputs, count))
    change = rng.normal(size=u.shape) * 10.0 ** rng.uniform(-7, 1, size=count)
    y = targets_for(objective, count, rng)
    first, second = objective.residual(u.copy(), y), objective.residual(u + change, y)
    return u, change, first, second, y


@pytest.mark.parametrize("objective", EVERY, ids=repr)
@pytest.mark.parametrize("scale", SCALES)
class TestSoundness:
    def test_residuals_are_monotone_and_cocoercive(self, objective, scale):
        _, change, first, second, _ = pairs(objective, scale=scale)
        difference, distance = second - first, np.sqrt((change**2).sum(axis=0))
        along = (difference * change).sum(axis=0)
        needed = (difference**2).sum(axis=0) / objective.curvature
        # Each residual may be off by the error that is charged, and by rounding.
        slack = (2 * objective.residual_error + 1e-14 * (1 + scale)) * distance * 3
        assert (along >= -slack).all()
        assert (along >= needed - slack).all()

    def test_residuals_are_bounded(self, objective, scale):
        _, _, first, second, _ = pairs(objective, scale=scale)
        for residual in (first, second):
            norms = np.sqrt((residual**2).sum(axis=0))
            assert norms.max() <= objective.residual_bound * (1 + 1e-12)


@pytest.mark.parametrize("objective", EVERY, ids=repr)
class TestTightness:
    def test_the_clip_is_reached(self, objective):
        norms = [np.sqrt((pairs(objective, scale=s)[2] ** 2).sum(axis=0)).max() for s in (1.0, 3.0)]
        assert max(norms) >= 0.9 * min(objective.residual_bound, 1.2)

    def test_the_slope_is_reached_and_not_exceeded(self, objective):
        if objective.outputs == 1:
            u = np.linspace(-8.0, 8.0, 16_001)[np.newaxis]
            targets = np.unique(targets_for(objective, 50, np.random.default_rng(0)))
            residuals = [objective.residual(u.copy(), np.full(u.size, y)) for y in targets]
            slopes = np.diff(residuals, axis=-1) / 1e-3
            assert slopes.min() >= -1e-12
            assert 0.9 <= slopes.max() / objective.curvature <= 1.0 + 1e-9
        elif objective.outputs == 2:  # with more classes the steepest directions are rare
            _, change, first, second, _ = pairs(objective)
            squares = (change**2).sum(axis=0)
            near = squares < 1e-4
            slopes = np.sqrt(((second - first)[:, near] ** 2).sum(axis=0) / squares[near])
            assert slopes.max() >= 0.9 * objective.curvature


@pytest.mark.parametrize("objective", EVERY, ids=repr)
class TestFacts:
    def test_targets_that_expose_it(self, objective):
        """Their residuals at the start are at least as far apart as one may be long."""
        exposing = objective.exposing_targets
        assert objective.admits(exposing)
        first, second = objective.residual(np.zeros((objective.outputs, 2)), exposing).T
        unclipped = min(objective.residual_bound, 0.5)
        assert np.linalg.norm(second - first) >= unclipped

    def test_a_record_says_all_of_it(self, objective):
        assert from_record(objective.as_record()) == objective


class TestRegistry:
    def test_what_is_not_whole_cannot_be_defined_or_made(self, monkeypatch):
        monkeypatch.setattr(objective, "OBJECTIVES", dict(OBJECTIVES))
        with pytest.raises(TypeError, match="does not state output_unit, step_share"):
            type("Silent", (Objective,), {})
        stated = {"output_unit": 1.0, "step_share": 1.0}
        with pytest.raises(TypeError, match="called Logistic already"):
            type("Logistic", (Objective,), stated)
        with pytest.raises(TypeError, match="abstract"):
            type("Partial", (Objective,), stated)(clip=1.0)

    def test_unknown_ones_and_other_parameters_are_refused(self):
        with pytest.raises(InvalidParameter, match=r"objective\.loss must be one of Logistic"):
            from_record({"loss": "Absolute", "clip": 1.0})
        with pytest.raises(InvalidParameter, match="given by clip, width"):
            from_record({"loss": "SmoothedHinge", "clip": 1.0})


class TestUnclippedRegion:
    def test_small_residuals_are_those_of_the_loss(self):
        rng = np.random.default_rng(1)
        u, y = 6 * rng.normal(size=(5, 2_000)), rng.integers(5, size=2_000)
        exact = clipping.softmax_residual(u, y)
        small = np.sqrt((exact**2).sum(axis=0)) <= 0.3
        assert 50 < small.sum() < 1_950
        for clip in (clipping.envelope_clipped_residual, clipping.margin_clipped_residual):
            # The margin clip may already act where the wrong mass is above c/sqrt(2).
            c = 0.3 if clip is clipping.envelope_clipped_residual else 0.3 * 2**0.5
            np.testing.assert_allclose(clip(u, y, c)[:, small], exact[:, small], atol=1e-15)

    def test_softmax_residual_by_differences(self):
        rng = np.random.default_rng(2)
        u, y, h = rng.normal(size=(4, 50)), rng.integers(4, size=50), 1e-6

        def loss(v):
            return np.log(np.exp(v).sum(axis=0)) - v[y, np.arange(50)]

        for row in range(4):
            up, down = u.copy(), u.copy()
            up[row] += h
            down[row] -= h
            slope = (loss(up) - loss(down)) / (2 * h)
            np.testing.assert_allclose(
                clipping.softmax_residual(u, y)[row], slope, rtol=0, atol=1e-8
            )


class TestEnvelope:
    @pytest.mark.parametrize("c", [0.1, 2**0.5 / 4, 0.9])
    @pytest.mark.parametrize("scale", [0.5, 4.0])
    def test_against_a_general_purpose_solver(self, c, scale):
        rng = np.random.default_rng(3)
        u, y = scale * rng.normal(size=(4, 6)), rng.integers(4, size=6)
        residual = clipping.envelope_clipped_residual(u, y, c)
        for column, label in enumerate(y):
            corner = np.eye(4)[label]

            def negative(p, column=column):
                return -(u[:, column] @ p) + (p * np.log(p)).sum()

            inside = {
                "type": "ineq",
                "fun": lambda p, corner=corner: c**2 - ((p - corner) ** 2).sum(),
            }
            whole = {"type": "eq", "fun": lambda p: p.sum() - 1}
            start = 0.9 * corner + 0.025
            start = corner + (start - corner) * min(1.0, 0.9 * c / np.linalg.norm(start - corner))
            solved = minimize(
                negative, start, constraints=[inside, whole], bounds=[(1e-12, 1)] * 4,
                options={"ftol": 1e-15, "maxiter": 500},
            )  # fmt: skip
            np.testing.assert_allclose(residual[:, column] + corner, solved.x, rtol=0, atol=2e-5)

    def test_norm_clipping_would_fail_the_same_test(self):
        """The published recipe, at the settings at which it is known to fail."""
        u = np.array([[0.89], [1.68]] + [[-1.23]] * 8)
        y, c, radius = np.array([0]), 5 / 65**0.5, 65**0.5

        def clipped(v):
            residual = clipping.softmax_residual(v, y)
            return residual * min(1.0, c / np.linalg.norm(residual))

        def largest_stretch(residual):
            h, columns = 1e-6, []
            for row in range(10):
                step = np.zeros_like(u)
                step[row] = h
                columns.append((residual(u + step) - residual(u - step)).ravel() / (2 * h))
            update = np.eye(10) * (1 - 0.05 * 0.002) - 0.05 * radius**2 * np.array(columns).T
            return np.linalg.norm(update, 2)

        assert largest_stretch(clipped) > 1.02
        assert largest_stretch(lambda v: clipping.envelope_clipped_residual(v, y, c)) <= 1 + 1e-6
        assert largest_stretch(lambda v: clipping.margin_clipped_residual(v, y, c)) <= 1 + 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 3, 10, 50])
def test_a_million_pairs(classes):
    objective = Softmax(classes=classes)
    for seed in range(50):
        _, change, first, second, _ = pairs(objective, 20_000, scale=SCALES[seed % 3], seed=seed)
        difference, distance = second - first, np.sqrt((change**2).sum(axis=0))
        along = (difference * change).sum(axis=0)
        needed = (difference**2).sum(axis=0) / objective.curvature
        assert (needed - along <= 2 * objective.residual_error * distance).all()


class TestRefusals:
    @pytest.mark.parametrize("clip", [0.0, -1.0, np.nan, np.inf, "1"])
    @pytest.mark.parametrize("kind", [Logistic, Huber, SmoothedHinge])
    def test_clips(self, kind, clip):
        with pytest.raises(InvalidParameter, match="clip must be"):
            kind(clip=clip)

    def test_envelopes_of_more_than_one(self):
        with pytest.raises(InvalidParameter, match=r"at least sqrt\(2\)"):
            Softmax(classes=3, clip=1.2)

    def test_unknown_kinds(self):
        with pytest.raises(InvalidParameter, match="'envelope', 'margin'"):
            Softmax(classes=3, kind="norm")

    def test_logits_that_are_not_numbers(self):
        with np.errstate(invalid="ignore"), pytest.raises(NumericalFailure, match="not finite"):
            clipping.envelope_clipped_residual(np.full((3, 1), np.nan), np.array([0]), 0.3)
