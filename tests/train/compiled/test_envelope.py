"""What the compiled solver certifies solves the envelope's equations; the rest is left."""

import mpmath
import numpy as np
import pytest

from lastiterate.errors import NumericalFailure
from lastiterate.train import envelope
from lastiterate.train import objectives as clipping
from lastiterate.train.compiled import envelope as compiled

from ..test_envelope import CLIPS, check


def logits(classes, *, scale, count=300, seed=0):
    rng = np.random.default_rng(seed)
    return scale * (rng.normal(size=(classes, count)) + 1.0), rng.integers(classes, size=count)


def wrong_part(x, y):
    """One column for each example, the label's row left out."""
    keep = np.arange(x.shape[0])[:, np.newaxis] != y
    return x.T[keep.T].reshape(x.shape[1], -1).T


def solved(u, y, c):
    """Certified residuals of clipped examples, and their logits less the label's."""
    found, left = compiled.clipped(u, y, c, envelope.CERTIFIED)
    plain = clipping.softmax_residual(u, y)
    long = np.linalg.norm(plain, axis=0) > c * (1 + 1e-9)
    long[left] = False
    v = wrong_part(u - u[y, np.arange(y.size)], y)
    return found, left, plain, long, v


@pytest.mark.parametrize("classes", [2, 3, 10, 70])
@pytest.mark.parametrize("clip", CLIPS)
@pytest.mark.parametrize("scale", [0.3, 3.0, 30.0, 1e4])
def test_solutions(classes, clip, scale):
    u, y = logits(classes, scale=scale)
    found, left, plain, long, v = solved(u, y, clip)
    if scale <= 3.0 and clip < 0.5:
        assert not left.size
    if long.any():
        check(np.maximum(v[:, long], -80.0), wrong_part(found, y)[:, long], clip)
    short = np.linalg.norm(plain, axis=0) < clip * (1 - 1e-9)
    np.testing.assert_allclose(found[:, short], plain[:, short], rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(found.sum(axis=0), 0.0, atol=1e-13)


@pytest.mark.parametrize("scale", [0.5, 4.0, 15.0])
@pytest.mark.parametrize("clip", [2**0.5 / 4, 0.9])
def test_against_multiprecision(clip, scale):
    u, y = logits(5, scale=scale, count=40, seed=3)
    found, _, _, long, v = solved(u, y, clip)
    for k in np.flatnonzero(long)[:8]:
        near = np.delete(found[:, k], y[k])
        error = near - in_multiprecision(np.maximum(v[:, k], -80.0), clip, near)
        assert np.hypot(np.linalg.norm(error), error.sum()) <= envelope.TOLERANCE


def in_multiprecision(v, c, near):
    """The equations' only root, by their own Newton method in 40 digits, from near it."""
    with mpmath.workdps(40):
        v = [mpmath.mpf(float(x)) for x in v]

        def equations(s, *logs):
            p = [mpmath.exp(x) for x in logs]
            m = sum(p)
            common = s * m - mpmath.log(1 - m)
            stationary = [x + s * q + common - w for x, q, w in zip(logs, p, v, strict=True)]
            return [*stationary, m**2 + sum(q**2 for q in p) - mpmath.mpf(c) ** 2]

        m = near.sum()
        s = (near * (np.array(v, float) - np.log(near) + np.log1p(-m))).sum() / (c * c)
        root = mpmath.findroot(equations, [s, *np.log(near)])  # raises unless it is one
        assert root[0] > 0
        return np.array([float(mpmath.exp(x)) for x in root[1:]])


@pytest.mark.parametrize("scale", [1e8, 1e30, 1e150, 1e299])
def test_what_is_left_is_solved_elsewhere(scale):
    u, y = logits(5, scale=scale)
    u[:2, :30] = scale  # with ties
    found = clipping.envelope_clipped_residual(u, y, 0.3)
    v = wrong_part(u - u[y, np.arange(y.size)], y)
    long = np.linalg.norm(clipping.softmax_residual(u, y), axis=0) > 0.3
    check(np.maximum(v[:, long], -80.0), wrong_part(found, y)[:, long], 0.3)


def test_too_few_rounds_certify_nothing(monkeypatch):
    u, y = logits(6, scale=2.0)
    expected, left = compiled.clipped(u, y, 0.3, envelope.CERTIFIED)
    assert not left.size
    monkeypatch.setattr(compiled, "_ROUNDS", (0,))
    _, left = compiled.clipped(u, y, 0.3, envelope.CERTIFIED)
    assert left.size > 250
    found = clipping.envelope_clipped_residual(u, y, 0.3)
    np.testing.assert_allclose(found, expected, atol=1e-11)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_logits_that_are_none_are_never_certified(bad):
    u, y = logits(4, scale=1.0)
    y[:] = 0
    u[:, 7] = bad, 0.0, 0.0, 0.0
    u[:, 8] = 0.0, bad, 0.0, bad
    _, left = compiled.clipped(u, y, 0.3, envelope.CERTIFIED)
    if bad == -np.inf:  # of a wrong class: probability 0
        assert left.tolist() == [7]
    else:
        assert left.tolist() == ([7, 8] if np.isnan(bad) else [8])
    if bad > 0 or np.isnan(bad):
        with pytest.raises(NumericalFailure):
            clipping.envelope_clipped_residual(u, y, 0.3)


@pytest.mark.parametrize("count", [1, 63, 64, 65, 500])
def test_blocks_may_be_partly_filled(count):
    u, y = logits(11, scale=2.0, count=count)
    found, left = compiled.clipped(u, y, 0.3, envelope.CERTIFIED)
    assert not left.size
    np.testing.assert_allclose(found, clipping._envelope_residual(u, y, 0.3), atol=1e-11)


@pytest.mark.parametrize("scale", [1.0, 6.0])
def test_a_residual_does_not_depend_on_the_others_of_its_block(scale):
    """Some need more rounds than others, which must not move those that are certified."""
    u, y = logits(10, scale=scale)
    together, left = compiled.clipped(u, y, 0.35, envelope.CERTIFIED)
    for k in np.setdiff1d(np.arange(60), left):
        found, _ = compiled.clipped(u[:, [k]], y[[k]], 0.35, envelope.CERTIFIED)
        np.testing.assert_array_equal(found[:, 0], together[:, k])
