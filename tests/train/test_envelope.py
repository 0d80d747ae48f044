"""The envelope's equations are solved, whatever finite logits they have."""

import numpy as np
import pytest

from lastiterate.errors import NumericalFailure
from lastiterate.train import envelope
from lastiterate.train import envelope as envelope_exact
from lastiterate.train import envelope as envelope_step
from lastiterate.train import objectives as clipping

CLIPS = (0.01, 2**0.5 / 4, 0.9, 1.0)


def clipped_columns(classes, clip, *, scale, count=200, seed=0):
    """Wrong logits less the label's, where the softmax residual is longer than the clip."""
    rng = np.random.default_rng(seed)
    v = np.maximum(scale * (rng.normal(size=(classes - 1, count)) + rng.integers(2)), -80.0)
    return v[:, length(v) > clip]


def length(v):
    top = np.maximum(v.max(axis=0), 0.0)
    p = np.exp(v - top)
    p /= p.sum(axis=0) + np.exp(-top)
    return np.sqrt(p.sum(axis=0) ** 2 + (p**2).sum(axis=0))


def barely_clipped(classes, clip, *, by, count=60, seed=0):
    """Logits whose residual is longer than the clip by a share `by`."""
    q = np.exp(np.random.default_rng(seed).normal(size=(classes - 1, count)))
    q /= q.sum(axis=0)
    p = clip * (1 + by) / np.sqrt(1 + (q**2).sum(axis=0)) * q
    p = p[:, p.sum(axis=0) < 0.99]
    return np.log(p) - np.log1p(-p.sum(axis=0))


def check(v, p, c):
    """That p is on the sphere and stationary: multipliers from two classes agree."""
    m = p.sum(axis=0)
    np.testing.assert_allclose(m**2 + (p**2).sum(axis=0), c * c, rtol=1e-12)
    gradient = v - np.log(np.maximum(p, 1e-320)) + np.log1p(-m)
    present = p > 1e-20
    along = p + m
    s = (p * gradient).sum(axis=0) / (p * along).sum(axis=0)
    off = np.where(present, gradient - s * along, 0.0) / (2 + s / 2)
    assert np.abs(off).max() <= 3e-11
    assert (s >= -1e-9).all()


@pytest.mark.parametrize("classes", [2, 3, 10, 50])
@pytest.mark.parametrize("clip", CLIPS)
class TestSolutions:
    @pytest.mark.parametrize("scale", [0.3, 3.0, 30.0, 1e4, 1e8])
    def test_of_any_logits(self, classes, clip, scale):
        v = clipped_columns(classes, clip, scale=scale)
        if v.size:
            check(v, envelope.wrong_class_part(v.copy(), clip), clip)

    @pytest.mark.parametrize("by", [1e-15, 1e-12, 1e-9, 1e-6, 1e-3])
    def test_of_residuals_hardly_longer_than_the_clip(self, classes, clip, by):
        v = barely_clipped(classes, clip, by=by)
        check(v, envelope.wrong_class_part(v.copy(), clip), clip)


@pytest.mark.parametrize("scale", [0.3, 3.0, 30.0, 1e4, 1e12])
@pytest.mark.parametrize("classes", [2, 10])
def test_halving_alone_would_do(classes, scale):
    v = clipped_columns(classes, 0.3, scale=scale, count=20)
    with np.errstate(all="ignore"):
        p, failed = envelope._bisect(v, 0.3)
    assert not failed.size
    if scale < 1e10:
        np.testing.assert_allclose(p, envelope.wrong_class_part(v.copy(), 0.3), atol=1e-11)


@pytest.mark.parametrize("scale", [1e20, 1e60, 1e150, 1e300])
@pytest.mark.parametrize("clip", [0.01, 0.3, 1.0])
def test_no_finite_logits_are_too_large(clip, scale):
    v = clipped_columns(5, clip, scale=scale, count=20)
    v[:2, :5] = scale  # with ties
    check(v, envelope.wrong_class_part(v.copy(), clip), clip)


def test_a_step_that_is_not_small_is_taken_again():
    """Where a sum of four terms stands for the exponential, far steps would leave a wrong p."""
    v = clipped_columns(5, 0.3, scale=2.0, count=40)
    with np.errstate(all="ignore"):
        guess = envelope._approximate(envelope._softmax(v, np.float32), 0.3, rounds=0)
        p, left = envelope._refine(v, guess, 0.3)
    assert not left.size
    check(v, p, 0.3)


@pytest.mark.parametrize("step", [-1e-3, -1e-5, 1e-4, 1e-3])
def test_small_steps_are_exponentials(step):
    found = envelope_step.grown(np.array([step]), np.empty(1))
    assert abs(found[0] / np.exp(step) - 1.0) <= 4.5e-14


class TestWhoIsClipped:
    """A look in float32 decides where it is sure, and only there."""

    @pytest.mark.parametrize("by", [-1e-9, -1e-12, 1e-12, 1e-9, 1e-5])
    @pytest.mark.parametrize("clip", [1e-25, 1e-9, 1e-3, 0.35, 0.9])
    def test_near_the_clip(self, clip, by):
        v = barely_clipped(4, clip, by=by)
        softmax = envelope._exact_softmax(v)
        found = envelope.clipped_wrong_part(v.copy(), clip)
        np.testing.assert_allclose(found, softmax, rtol=4 * abs(by) + 1e-8)

    @pytest.mark.parametrize("scale", [0.1, 1.0, 10.0, 1e3, 1e30, 1e300])
    def test_anywhere(self, scale):
        rng = np.random.default_rng(1)
        v = scale * (rng.normal(size=(4, 200)) - 0.5)
        softmax = envelope._exact_softmax(v)
        short = np.hypot(softmax.sum(axis=0), np.linalg.norm(softmax, axis=0)) <= 0.35
        found = envelope.clipped_wrong_part(v.copy(), 0.35)
        np.testing.assert_array_equal(found[:, short], softmax[:, short])
        check(np.maximum(v[:, ~short], -80.0), found[:, ~short], 0.35)


def test_infinite_logits_are_not_certified():
    v = np.array([[np.inf, np.nan, 1.0], [0.0, 0.0, np.inf]])
    with pytest.raises(NumericalFailure, match="not finite"):
        envelope.wrong_class_part(v, 0.3)


def test_what_newton_cannot_certify_is_halved(monkeypatch):
    v = clipped_columns(5, 0.3, scale=2.0, count=30)
    expected = envelope.wrong_class_part(v.copy(), 0.3)
    stuck = lambda p, h, m, s, c, spare, *, small: (m, s, None)  # noqa: E731
    monkeypatch.setattr(envelope, "newton", stuck)
    found = envelope.wrong_class_part(v.copy(), 0.3)
    np.testing.assert_allclose(found, expected, atol=1e-11)


def test_the_label_may_be_any_class():
    rng = np.random.default_rng(0)
    u = rng.normal(size=(6, 400))
    y = rng.integers(6, size=400)
    turned = clipping.envelope_clipped_residual(np.roll(u, 1, axis=0), (y + 1) % 6, 0.3)
    straight = clipping.envelope_clipped_residual(u, y, 0.3)
    np.testing.assert_allclose(turned, np.roll(straight, 1, axis=0), atol=1e-11)
    np.testing.assert_allclose(straight.sum(axis=0), 0.0, atol=1e-14)
    assert (straight[y, np.arange(400)] < 0.0).all()


def test_a_column_far_off_the_sphere_moves_no_other():
    """Nor one of nan, as a start that overflowed leaves it."""
    rng = np.random.default_rng(0)
    v = rng.normal(size=(9, 40)) + 1.0
    start = np.exp(v)
    envelope_step.put_on_sphere(start, 0.35)
    scales = {"near": 1.0, "far": 1e-3, "none": np.nan}
    found = {}
    for name, scale in scales.items():
        p = start.copy()
        p[:, 0] *= scale
        h = v - np.log(p)
        s = np.full(40, 3.0)
        with np.errstate(all="ignore"):
            m, new, _ = envelope_step.newton(
                p, h, p.sum(axis=0), s, 0.35, np.empty((2, *p.shape)), small=False
            )
        found[name] = np.vstack([p, h, m, new])[:, 1:]
    np.testing.assert_array_equal(found["far"], found["near"])
    np.testing.assert_array_equal(found["none"], found["near"])


class TestManyDigits:
    """Where nothing else is certified, intervals are halved in many digits."""

    def test_as_floats_solve_it(self, monkeypatch):
        self.solved(monkeypatch, 0.3, 3.0, halvings=34, off=1e-7)

    @pytest.mark.slow
    @pytest.mark.parametrize("clip", [0.3, 1.0])
    @pytest.mark.parametrize("scale", [1.0, 30.0])
    def test_to_as_many_digits(self, monkeypatch, clip, scale):
        self.solved(monkeypatch, clip, scale, halvings=60, off=1e-11)

    def solved(self, monkeypatch, clip, scale, *, halvings, off):
        v = clipped_columns(3, clip, scale=scale, count=6)[:, :1]
        monkeypatch.setattr(envelope_exact, "_HALVINGS", halvings)
        found = envelope_exact.exact_wrong_part(v[:, 0].tolist(), clip)
        np.testing.assert_allclose(found, envelope.wrong_class_part(v, clip)[:, 0], atol=off)

    def test_shorter_residuals_are_left_alone(self):
        v = np.array([-3.0, -4.0])
        p = np.exp(v) / (1.0 + np.exp(v).sum())
        np.testing.assert_allclose(envelope_exact.exact_wrong_part(v.tolist(), 0.9), p, rtol=1e-15)

    @pytest.mark.slow
    @pytest.mark.parametrize("clip", [1e-7, 1e-9])
    def test_residuals_that_are_longer_by_rounding_alone(self, clip):
        v = barely_clipped(3, clip, by=1e-16, count=2)
        p = envelope.wrong_class_part(v.copy(), clip)
        m = p.sum(axis=0)
        np.testing.assert_allclose(np.sqrt(m**2 + (p**2).sum(axis=0)), clip, rtol=1e-10)

    @pytest.mark.slow
    def test_logits_as_large_as_floats(self):
        v = np.array([[1e299], [3e299]])
        p = envelope.wrong_class_part(v.copy(), 0.5)
        # All that may be is on the likeliest.
        np.testing.assert_allclose(p[:, 0], [0.0, 0.5 / 2**0.5], atol=1e-11)
