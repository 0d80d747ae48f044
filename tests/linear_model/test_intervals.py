"""Confidence intervals: what is charged for them, what they are for, and how often they cover."""

import json
import math
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from scipy.special import ndtri

from lastiterate.errors import InvalidParameter
from lastiterate.linear_model import PrivateHuberRegressor, PrivateLogisticRegression, PrivateRidge
from lastiterate.linear_model import intervals as coefficient_moments
from lastiterate.linear_model.intervals import (
    Matrices,
    Moments,
    Scale,
    estimate_and_covariance,
    exact_sums,
    published_estimate,
    second_point,
)
from lastiterate.other_releases import INTERVALS, KINDS, Release, release_from_record
from lastiterate.train.data import bounded
from lastiterate.train.noise import randomness, released_size
from lastiterate.train.noisy_descent import gradient_sum
from lastiterate.train.objectives import Huber, Logistic
from tests.slow import slow
from tests.train.problems import ROWS, SIDES

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import interval_coverage

# Of a few rows, which are enough for most of these tests.
pytestmark = pytest.mark.filterwarnings("ignore::lastiterate.linear_model.InfiniteIntervalsWarning")

N = 24
OBJECTIVES = [Logistic(clip=1.0), Logistic(), Huber(clip=1.0), Huber(clip=0.25)]
RNG = np.random.default_rng(5)
HOSTILE = RNG.normal(size=(N, 3)) * RNG.choice([1e-7, 0.4, 1.0, 1e150], size=(N, 1))
MADE = {
    PrivateLogisticRegression: {},
    PrivateRidge: {"target_bound": 1.0},
    PrivateHuberRegressor: {"target_bound": 1.0},
}


def examples_of(objective, rows=HOSTILE, *, intercept=0.25, seed=0):
    rng = np.random.default_rng(seed)
    targets = rng.integers(0, 2, len(rows))
    if isinstance(objective, Huber):
        targets = rng.uniform(-1.0, 1.0, len(rows))
    return bounded(rows, targets, bound=1.0, intercept=intercept)


def packed(examples, objective, parameters, matrices):
    sums = exact_sums(examples, objective, parameters, Scale.of(examples, objective), matrices)
    return coefficient_moments.packed(*sums, matrices)


@pytest.mark.parametrize("matrices", Matrices)
def test_rows_that_others_write_to_meanwhile_stay_within_their_bounds(monkeypatch, matrices):
    objective, rows = Logistic(clip=1.0), np.full((3 * coefficient_moments._ROWS_AT_ONCE, 1), 0.5)
    examples = examples_of(objective, rows)
    before = packed(examples, objective, np.zeros((1, 2)), matrices)
    counted = coefficient_moments.dense_rows

    def written_to(*args):
        rows[2 * coefficient_moments._ROWS_AT_ONCE :] = (
            1e6  # by another thread, after the first block
        )
        return counted(*args)

    monkeypatch.setattr(coefficient_moments, "dense_rows", written_to)
    after = packed(examples, objective, np.zeros((1, 2)), matrices)
    changed = coefficient_moments._ROWS_AT_ONCE
    assert 0.05 * changed < np.linalg.norm(after - before) <= math.sqrt(3.0) * changed


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("matrices", Matrices)
def test_a_long_row_does_not_round_the_others_otherwise(order, matrices):
    """Targets are such that the last bit of an output decides whether its slope counts."""
    objective, count, rng = (
        Huber(clip=0.5),
        coefficient_moments._ROWS_AT_ONCE,
        np.random.default_rng(1),
    )
    row, parameters = rng.normal(size=200), rng.normal(size=(1, 200))
    rows = np.array(np.tile(0.9 * row / np.linalg.norm(row), (count, 1)), order=order)
    longer = rows.copy(order="K")
    longer[0] *= 10.0
    at = float(rows[0] @ parameters[0])
    for ulps in (-1, 0, 1):
        targets = np.full(count, at - objective.clip + ulps * math.ulp(at))
        sums = [
            packed(replace(one, silent=np.arange(count) == 0), objective, parameters, matrices)
            for one in (bounded(x, targets, bound=1.0, intercept=0.0) for x in (rows, longer))
        ]
        np.testing.assert_array_equal(*sums)


def farthest(parts):
    """The longest of these vectors, and the farthest two of them."""
    apart = np.linalg.norm(parts[:, np.newaxis] - parts, axis=2)
    return np.linalg.norm(parts, axis=1).max(), apart.max()


class TestSensitivity:
    """Of both releases together, each at the worst of several points: the second is adaptive."""

    @pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
    @pytest.mark.parametrize("weights", [None, RNG.uniform(0.01, 1.0, N)])
    def test_one_example_moves_the_sums_no_further_than_is_charged(self, objective, weights):
        examples = replace(examples_of(objective), weights=weights)
        squares = np.zeros(2)
        for matrices in Matrices:
            found = []
            for scale in (0.0, 0.3, 4.0, 1e90):
                parameters = scale * np.random.default_rng(1).normal(size=(1, 4))
                total = packed(examples, objective, parameters, matrices)
                alone = []
                for i in range(N):
                    rest = replace(examples, silent=np.arange(N) == i)
                    alone.append(total - packed(rest, objective, parameters, matrices))
                found.append(farthest(np.array(alone)))
            squares += np.max(found, axis=0) ** 2
        charged = [KINDS[INTERVALS].sensitivity(one) for one in ("zero-out", "replace")]
        assert (np.sqrt(squares) <= np.array(charged) + 1e-9).all()

    def test_no_pair_of_extreme_examples_exceeds_the_charge(self):
        """By the definitions alone: any direction, residual and slope at each of the points."""
        angles = np.linspace(0.0, 2.0 * math.pi, 24, endpoint=False)
        rows = np.column_stack([np.cos(angles), np.sin(angles)])
        squares = np.zeros(2)
        for gradient, matrix in ((0.1, 0.4), (0.4, 0.1)):  # as the certificate states them
            parts = np.array(
                [
                    np.append(
                        math.sqrt(gradient) * residual * row,
                        math.sqrt(matrix) * slope * np.outer(row, row).ravel(),
                    )
                    for row in rows
                    for residual in (-1.0, 0.0, 0.5, 1.0)
                    for slope in (0.0, 0.5, 1.0)
                ]
            )
            squares += np.square(farthest(parts))
        zeroed, replaced = np.sqrt(squares)
        assert KINDS[INTERVALS].sensitivity("zero-out") == pytest.approx(zeroed, rel=1e-12)
        assert replaced <= KINDS[INTERVALS].sensitivity("replace") <= 1.1 * replaced
        assert "shares of 0.1, 0.4, 0.4, 0.1" in KINDS[INTERVALS].words

    @pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
    def test_gaussian_mechanisms_compose_to_what_is_charged(self, adjacency):
        """The mu of each part that is published, at its own noise, in a sum of squares."""
        release = Release.of_mu(INTERVALS, 0.7, adjacency=adjacency)
        most = (2.0, math.sqrt(2.0)) if adjacency == "replace" else (1.0, 1.0)
        mus = [
            reach * math.sqrt(share) / release.noise_std
            for matrices in Matrices
            for reach, share in zip(most, matrices.shares, strict=True)
        ]
        assert len(mus) == 4
        assert math.hypot(*mus) == pytest.approx(0.7, rel=1e-12)
        assert math.hypot(*mus) <= release.mu * (1.0 + 1e-15)

    @pytest.mark.parametrize("matrices", Matrices)
    def test_the_charge_is_nearly_reached(self, matrices):
        """By the longest row with the largest residual that is not clipped yet."""
        objective = Huber(clip=1.0)
        examples = bounded(np.array([[1.0]]), np.array([1.0 - 1e-6]), bound=1.0, intercept=0.0)
        found = np.linalg.norm(packed(examples, objective, np.zeros((1, 1)), matrices))
        assert 0.999 < found / math.sqrt(sum(matrices.shares)) <= 1.0

    @pytest.mark.parametrize("matrices", Matrices)
    def test_sums_do_not_depend_on_how_rows_are_stored(self, matrices):
        objective, parameters = Logistic(clip=1.0), np.ones((1, 4))
        dense = examples_of(objective)
        thin = replace(dense, rows=sparse.csr_array(dense.rows))
        expected = packed(dense, objective, parameters, matrices)
        found = packed(thin, objective, parameters, matrices)
        np.testing.assert_allclose(found, expected, atol=1e-4)

    @pytest.mark.parametrize("matrices", Matrices)
    def test_sums_are_exact(self, matrices):
        """A sum over several blocks is, bit by bit, that of whole numbers, row by row."""
        objective = Huber(clip=1.0)
        rng = np.random.default_rng(7)
        rows = rng.uniform(-0.5, 0.5, size=(2 * coefficient_moments._ROWS_AT_ONCE + 77, 2))
        examples = examples_of(objective, rows)
        scale = Scale.of(examples, objective)
        parameters = np.array([[0.3, -0.2, 0.7]])
        gradient, matrix = exact_sums(examples, objective, parameters, scale, matrices)
        outputs = rows @ parameters[0, :2] + 0.25 * 0.7
        residual = np.clip(outputs - examples.targets, -1.0, 1.0)
        factor = np.abs(residual)
        if matrices is Matrices.HESSIANS:
            factor = (np.abs(outputs - examples.targets) < 1.0).astype(float)
        lengthened = np.column_stack([rows, np.full(len(rows), 0.5)]) / scale.radius * 2**16
        cut, roots = (np.trunc(one[:, np.newaxis] * lengthened) for one in (residual, factor))
        sums = [sum(map(int, cut[:, k])) for k in range(3)]
        products = [
            [sum(int(a) * int(b) for a, b in zip(roots[:, i], roots[:, j], strict=True))
             for j in range(3)]
            for i in range(3)
        ]  # fmt: skip
        # A product that rounds across a whole number may be cut to another.
        np.testing.assert_allclose(gradient * 2**16, sums, rtol=0, atol=3)
        np.testing.assert_allclose(matrix * 2**32, products, rtol=0, atol=3 * 2**17)
        assert (gradient * 2**16 == np.rint(gradient * 2**16)).all()
        assert (matrix * 2**32 == np.rint(matrix * 2**32)).all()
        order = rng.permutation(len(rows))
        shuffled = replace(examples, rows=rows[order], targets=examples.targets[order])
        again = exact_sums(shuffled, objective, parameters, scale, matrices)
        np.testing.assert_array_equal(again[0], gradient)
        np.testing.assert_array_equal(again[1], matrix)

    def test_what_is_published_is_what_certificates_state(self, monkeypatch):
        """One vector at the published parameters and one at the second point, with these shares,
        and no more numbers than rounding is charged for."""
        published = []

        def kept(values, *args, **named):
            published.append(values)
            return values

        monkeypatch.setattr(coefficient_moments, "noisy", kept)
        objective, start = Huber(clip=1.0), np.zeros((1, 4))
        rows = 0.2 + np.random.default_rng(2).normal(size=(4_000, 3)) / 3  # so that they correlate
        examples = examples_of(objective, rows)
        release = Release(INTERVALS, math.sqrt(3.0), 1e-3)
        published_estimate(examples, objective, start, 0.0, release, randomness(0))
        assert sum(map(np.size, published)) == released_size(INTERVALS, 3, 2)
        first = moments_of(examples, objective, start, Matrices.HESSIANS)
        point = second_point(first, examples, start, 0.0)
        expected = [(start, 0.1, 0.4), (point, 0.4, 0.1)]
        for matrices, (at, *shares), found in zip(Matrices, expected, published, strict=True):
            scale = Scale.of(examples, objective)
            gradient, matrix = exact_sums(examples, objective, at, scale, matrices)
            parts = [
                math.sqrt(share) * np.linalg.norm(one)
                for share, one in zip(shares, (gradient, matrix), strict=True)
            ]
            assert np.linalg.norm(found[:4]) == pytest.approx(parts[0], rel=1e-2)
            assert np.linalg.norm(found[4:]) == pytest.approx(parts[1], rel=1e-2)


class TestMoments:
    @pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
    def test_they_are_the_first_two_derivatives(self, objective):
        """The Hessian by differences of the trainer's own gradient."""
        rows = np.random.default_rng(2).normal(size=(400, 3)) / 3
        examples = examples_of(objective, rows)
        scale = Scale.of(examples, objective)
        parameters = np.array([[0.9, -0.4, 0.2, 1.1]])
        gradient, hessian = exact_sums(examples, objective, parameters, scale, Matrices.HESSIANS)
        same, covariance = exact_sums(examples, objective, parameters, scale, Matrices.COVARIANCES)
        np.testing.assert_array_equal(same, gradient)
        units = np.array([1.0, 1.0, 1.0, 0.25 / scale.constant])  # of the constant in training
        slope = np.zeros((4, 4))
        for k in range(4):
            step = np.zeros((1, 4))
            step[0, k] = 1e-5
            ends = [
                gradient_sum(objective, examples, slice(None), parameters + sign * step)[0]
                for sign in (1.0, -1.0)
            ]
            slope[k] = (ends[0] - ends[1]) / 2e-5
        own = gradient_sum(objective, examples, slice(None), parameters)[0]
        length = scale.residual * scale.radius
        np.testing.assert_allclose(length * gradient * units, own, atol=0.01)
        found = scale.slope * scale.radius**2 * hessian * np.outer(units, units)
        np.testing.assert_allclose(found, slope, atol=0.02)
        # Whoever is moved by no residual but the largest has the same of both.
        assert np.linalg.eigvalsh(covariance)[0] >= 0.0
        assert np.trace(covariance) * length**2 <= len(rows) * length**2


def moments_of(examples, objective, parameters, matrices, noise=(0.0, 0.0)):
    scale, many = Scale.of(examples, objective), len(examples)
    sums = exact_sums(examples, objective, parameters, scale, matrices)
    return Moments(*(f * s / many for f, s in zip(scale.units(matrices), sums, strict=True)), noise)


def without_noise(examples, objective, start, l2=0.0):
    first = moments_of(examples, objective, start, Matrices.HESSIANS)
    point = second_point(first, examples, start, l2)
    second = moments_of(examples, objective, point, Matrices.COVARIANCES)
    return first, point, second


class TestEstimates:
    @pytest.mark.parametrize("l2", [0.0, 0.1])
    @pytest.mark.parametrize("intercept", [0.0, 0.25])
    def test_without_noise_they_are_least_squares(self, l2, intercept):
        """From anywhere, while no residual is clipped; the penalty counts the intercept, too."""
        rng = np.random.default_rng(3)
        rows = rng.uniform(-0.5, 0.5, size=(500, 3))
        targets = rows @ [0.3, -0.2, 0.0] + 0.1 + 0.05 * rng.normal(size=500)
        examples = bounded(rows, targets, bound=1.0, intercept=intercept)
        width = 3 + (intercept > 0)
        start = np.full((1, width), 0.2)
        first, point, second = without_noise(examples, Huber(clip=4.0), start, l2)
        estimate, covariance = estimate_and_covariance(first, second, examples, point, l2)
        own = np.column_stack([rows, np.full(500, intercept)])[:, :width]
        hessian = own.T @ own / 500 + l2 * np.eye(width)
        expected = np.linalg.solve(hessian, own.T @ targets / 500)
        left = own * (own @ point[0] - targets)[:, np.newaxis]
        inverse = np.linalg.inv(hessian)
        sandwich = inverse @ (left.T @ left / 500) @ inverse / 500
        units = np.ones(width)
        if intercept:
            units[-1] = intercept
        np.testing.assert_allclose(point[0], expected, atol=2e-3)
        np.testing.assert_allclose(estimate, expected * units, atol=2e-3)
        np.testing.assert_allclose(covariance, sandwich * np.outer(units, units), rtol=0.02)

    def test_a_second_step_is_nearer_by_the_square(self):
        """Logistic regression without noise: at twice the distance of the start, the first step
        ends four times as far off the optimum, and the second eight times."""
        rng = np.random.default_rng(3)
        objective = Logistic(clip=1.0)
        rows = rng.uniform(-0.5, 0.5, size=(40_000, 2))
        labels = rng.random(40_000) < 1.0 / (1.0 + np.exp(-rows @ [3.0, -2.0]))
        examples = bounded(rows, labels.astype(int), bound=1.0, intercept=0.0)
        optimum = np.zeros(2)
        for _ in range(20):
            p = 1.0 / (1.0 + np.exp(-rows @ optimum))
            hessian = (rows * (p * (1.0 - p))[:, np.newaxis]).T @ rows
            optimum -= np.linalg.solve(hessian, rows.T @ (p - labels))
        errors = []
        for length in (0.5, 1.0):
            start = (optimum + length * np.array([0.8, -0.6]))[np.newaxis]
            first, point, second = without_noise(examples, objective, start)
            estimate, _ = estimate_and_covariance(first, second, examples, point, 0.0)
            errors.append([np.linalg.norm(one - optimum) for one in (point[0], estimate)])
        (near, nearest), (far, farther) = errors
        assert 3.0 < far / near < 5.5
        assert 6.0 < farther / nearest < 13.0
        assert nearest < 0.2 * near

    @pytest.mark.parametrize("noise", [0.0, 0.02])
    def test_noise_widens_them_by_what_it_adds(self, noise):
        """Noise of all sums, through the inverse Hessian, by simulation; that of the first
        gradient does not count."""
        rng = np.random.default_rng(4)
        rows = rng.uniform(-0.5, 0.5, size=(4_000, 2))
        examples = bounded(rows, rows @ [0.4, 0.1], bound=1.0, intercept=0.0)
        start, objective = np.zeros((1, 2)), Huber(clip=2.0)
        first = moments_of(examples, objective, start, Matrices.HESSIANS, (noise, 0.002))
        found, stated = [], []
        for _ in range(600):
            added = rng.normal(size=(2, 2)) * 0.002 / math.sqrt(2.0)
            drawn = replace(
                first,
                gradient=first.gradient + noise * rng.normal(size=2),
                matrix=first.matrix + (added + added.T) / math.sqrt(2.0),
            )
            point = second_point(drawn, examples, start, 0.0)
            exact = moments_of(examples, objective, point, Matrices.COVARIANCES, (0.01, 0.0))
            second = replace(
                exact, gradient=exact.gradient + 0.01 * rng.normal(size=2), matrix=np.zeros((2, 2))
            )
            estimate, covariance = estimate_and_covariance(drawn, second, examples, point, 0.0)
            found.append(estimate)
            stated.append(covariance)
        mean = np.mean(stated, axis=0)
        np.testing.assert_allclose(np.cov(np.transpose(found)), mean, rtol=0.25, atol=5e-4)

    def test_the_noise_of_the_hessian_counts_by_the_second_step(self):
        """From a point that is given: the product of the noisy Hessian and the step."""
        rng = np.random.default_rng(6)
        rows = rng.uniform(-0.5, 0.5, size=(4_000, 2))
        examples = bounded(rows, rows @ [0.4, 0.1], bound=1.0, intercept=0.0)
        point, objective = np.zeros((1, 2)), Huber(clip=2.0)
        first = moments_of(examples, objective, point, Matrices.HESSIANS, (0.0, 0.002))
        second = replace(
            moments_of(examples, objective, point, Matrices.COVARIANCES), matrix=np.zeros((2, 2))
        )
        found = []
        for _ in range(1_500):
            added = rng.normal(size=(2, 2)) * 0.002 / math.sqrt(2.0)
            drawn = replace(first, matrix=first.matrix + (added + added.T) / math.sqrt(2.0))
            found.append(estimate_and_covariance(drawn, second, examples, point, 0.0)[0])
        _, stated = estimate_and_covariance(first, second, examples, point, 0.0)
        scale = stated.max()
        np.testing.assert_allclose(np.cov(np.transpose(found)), stated, atol=0.15 * scale)

    def test_a_first_step_that_may_be_noise_alone_is_not_taken(self):
        examples = examples_of(Huber(clip=1.0))
        start = np.zeros((1, 4))
        first = moments_of(examples, Huber(clip=1.0), start, Matrices.HESSIANS)
        length = np.linalg.norm(first.gradient)
        assert (
            second_point(replace(first, noise=(0.51 * length, 0.0)), examples, start, 0.1) is start
        )
        shorter, longer = (
            np.linalg.norm(second_point(replace(first, noise=(x, 0.0)), examples, start, 0.1))
            for x in (0.25 * length, 0.0)
        )
        assert shorter == pytest.approx(0.75 * longer)  # four coordinates have a quarter of squares

    def test_a_curvature_that_noise_hides_gives_no_interval(self, monkeypatch):
        objective, start = Huber(clip=1.0), np.ones((1, 4))
        examples = examples_of(objective)
        release = Release(INTERVALS, math.sqrt(3.0), 1e4)
        calls = []
        real = coefficient_moments.noisy
        monkeypatch.setattr(
            coefficient_moments, "noisy", lambda *a, **k: calls.append(1) or real(*a, **k)
        )
        estimate, covariance, flat = published_estimate(
            examples, objective, start, 0.0, release, randomness(0)
        )
        assert flat == [0, 1, 2, 3]
        assert np.isposinf(covariance).all()
        np.testing.assert_array_equal(estimate, [1.0, 1.0, 1.0, 0.25])
        assert len(calls) == 1  # nothing more is published

    @pytest.mark.parametrize("bad", [1e101, math.inf, math.nan])
    def test_no_second_point_has_outputs_that_overflow(self, bad):
        examples = examples_of(Huber(clip=1.0))
        first = Moments(np.array([bad, 0.0, 0.0, 0.0]), np.eye(4), (0.0, 0.0))
        start = np.zeros((1, 4))
        assert second_point(first, examples, start, 0.0) is start


class TestCoverage:
    @pytest.mark.parametrize("sets, most", [(15, 100.0), slow(60, 99.0)])
    @pytest.mark.parametrize("kind", interval_coverage.MODELS)
    def test_most_intervals_cover(self, kind, sets, most):
        """Of some data sets times four coefficients; the benchmark has a thousand."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = interval_coverage.covered(kind, 2_000, 4.0, sets)
        assert found["infinite"] == 0
        assert 88.0 <= np.mean(found["covered"]) <= most
        assert min(found["covered"]) >= 73.0

    def test_kept_results_are_within_the_range(self):
        kept = json.loads(interval_coverage.KEPT.read_text())
        assert {cell.split(":")[0] for cell in kept} == set(interval_coverage.MODELS)
        for cell, one in kept.items():
            assert 93.0 <= np.mean(one["covered"]) <= 97.0, cell
            assert min(one["covered"]) >= 90.0
            assert one["sets"] >= 300


class TestFiles:
    def test_units_are_those_of_the_target(self):
        """Ten times the range, ten times the intervals."""
        found = [
            PrivateRidge(target_range=(0.0, 2.0 * unit), intervals=True, random_state=0)
            .fit(ROWS, unit * (1.0 + ROWS[:, 0] / 9.0))
            .conf_int(0.9)
            for unit in (1.0, 10.0)
        ]
        np.testing.assert_allclose(found[1], 10.0 * found[0], rtol=1e-6, atol=1e-6)

    def test_the_level_sets_the_width(self):
        model = PrivateRidge(target_bound=1.0, intervals=True, epsilon=4.0).fit(ROWS, SIDES)
        ends, wide = model.conf_int(), model.conf_int(level=0.999)
        ratio = (wide[:, 1] - wide[:, 0]) / (ends[:, 1] - ends[:, 0])
        np.testing.assert_allclose(ratio, ndtri(0.9995) / ndtri(0.975))
        np.testing.assert_allclose(ends.mean(axis=1), model.interval_estimate_)


class TestRefusals:
    def test_certificates_that_charge_less_or_state_another_release(self):
        record = Release.of_mu(INTERVALS, 0.5, adjacency="replace").as_record()
        release_from_record(record, adjacency="replace")
        with pytest.raises(InvalidParameter, match="sensitivity must be at least"):
            release_from_record({**record, "sensitivity": 1.7}, adjacency="replace")
        one_step = "the sums of gradients, of Hessians and of products of gradients"
        with pytest.raises(InvalidParameter, match="what must be"):
            release_from_record({**record, "what": one_step}, adjacency="replace")

    def test_a_model_without_them(self):
        with pytest.raises(InvalidParameter, match="fitted with intervals=True"):
            PrivateRidge(target_bound=1.0).fit(ROWS, SIDES).conf_int()

    def test_levels(self):
        model = PrivateRidge(target_bound=1.0, intervals=True).fit(ROWS, SIDES)
        for bad in (0.0, 1.0, 95, np.nan, -0.5):
            with pytest.raises(InvalidParameter, match="level must be"):
                model.conf_int(level=bad)
