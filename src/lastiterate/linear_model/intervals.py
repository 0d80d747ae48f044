r"""Confidence intervals of the coefficients of a fitted model.

They follow from sums over all examples that are published with noise:

=============================  ====================================================
gradient                       :math:`r_i x_i`, at most cR long
Hessian                        :math:`r'_i x_i x_i^T`, of Frobenius norm at most hR^2
covariance of the gradient     :math:`r_i^2 x_i x_i^T`, at most (cR)^2
=============================  ====================================================

(r the clipped residual, r' its slope, x the row, which ends in a constant of half the bound on
features.)  Sums are published twice: of gradients and Hessians at the published
parameters :math:`w_0`, and of gradients and their covariance at a point :math:`w_1` that the
first sums lead to.  With the penalty's own part, a step of Newton's method from :math:`w_1`, by
the Hessian at :math:`w_0`, leads to the optimum of the clipped, penalised loss.

**Why two.** The Hessian H changes along a step, so after one step from :math:`w_0` an error of
the order of the step's square is left, which no interval knows of, and it does not shrink as
intervals do.  Let :math:`\hat w` be the optimum of the sample, E the noise of the Hessian,
:math:`\nu` that of the second gradient, and H' the mean Hessian from :math:`\hat w` to
:math:`w_1`.  The second step ends at

.. math:: w_2 - \hat w = (H + E)^{-1} \big((H + E - H')(w_1 - \hat w) - \nu\big),

where the noise of the first gradient is in :math:`w_1` alone, times how much Hessians differ.  So
its share is small.  The point :math:`w_1` is published, and may be any: the first step is
shortened by the part of its gradient's square that noise is expected to have (James and Stein),
since a longer step would lead away where there is little but noise.

**Covariance** of the estimate :math:`w_2`, between two inverse noisy Hessians:

- what sampling leaves: the covariance of gradients over n;
- the noise of the second gradient;
- the noise of the Hessian, times the length of the second step.

All three are known, and no part of this needs the training to have converged.  What is left out
is :math:`(H - H')(w_1 - \hat w)`, a product of both distances.  The intervals are for the optimum
of that loss over the population that examples are drawn from, not for the coefficients of a loss
without clip and penalty.

**Sensitivity.** In units of their bounds all parts have norm at most 1.  Two matrices
:math:`ss^T` of norm at most 1 are at most :math:`\sqrt2` apart.  Gradients have shares
:math:`a_1, a_2` of squares and matrices :math:`b_1, b_2`, all adding up to 1.  At any point an
example moves the vector of release k by at most :math:`\sqrt{a_k + b_k}`, or by
:math:`\sqrt{4a_k + 2b_k}` if it is another.  The second point depends on the first release alone,
and Gaussian mechanisms compose adaptively as if at once: squares add up, to 1, or to
:math:`4(a_1 + a_2) + 2(b_1 + b_2)`.  Each row is cut to whole units beforehand, so sums are exact
and a row adds its own part alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from scipy.special import ndtri

from lastiterate import _check
from lastiterate._numerics.rounding import Array, up
from lastiterate.errors import InvalidParameter, warn
from lastiterate.other_releases import INTERVAL_SHARES, Release
from lastiterate.train.data import MEASURED, Examples
from lastiterate.train.noise import Randomness, noisy
from lastiterate.train.noisy_descent import dense_rows
from lastiterate.train.objectives import Objective
from lastiterate.train.rows import inner_products

_INFINITE = "no coefficient has a finite confidence interval"

_BASELINE = (
    'a "baseline" in the entry of the column, as in {"values": ["a", "b"], "baseline": "a"}, or '
    'PrivateSchema(.., baseline="first")'
)

_REMEDIES = (
    "The noise hides how much some combination of features matters. If columns are coded one-hot "
    f"with a feature for every value, and none is left out, add {_BASELINE}; leave out declared "
    "values that hardly any row has; or take more examples (of a rare label above all), a larger "
    "epsilon or fewer features. A penalty (l2) makes "
    "them finite, but for other coefficients than the usual ones, even of another sign"
)

_MOST_NAMES = 8  # of features, in a warning
MOST_FEATURES = 200
_CONSTANT_FEATURE = 0.5  # of the statistics' intercept, in units of the bound on features
_ROW_BITS = 16  # of rows in products; sums over a block of those are exact
_ROWS_AT_ONCE = 1 << 13
_CLEAR_CURVATURE = 1.0  # the least curvature, in units of the noise of all
_NAMED_PART = 0.9  # of the squared length of a direction
_FARTHEST_OUTPUT = 1e100  # output of the second point, so that none overflows


class InfiniteIntervalsWarning(UserWarning):
    """Confidence intervals are, or will be, infinite.

    Examples
    --------
    >>> import warnings
    >>> from lastiterate.linear_model import InfiniteIntervalsWarning
    >>> warnings.simplefilter("error", InfiniteIntervalsWarning)  # refuses before epsilon is spent
    >>> warnings.simplefilter("default", InfiniteIntervalsWarning)
    """


def warn_of_collinear_columns(columns: Sequence[str], *, l2: float, fit_intercept: bool) -> None:
    """Warn, before anything is spent, of columns in which every value has a feature."""
    if l2 > 0.0 or len(columns) <= (not fit_intercept):
        return
    warn(
        f"confidence intervals will be infinite: the features of {_list_names(columns)} add up to "
        f"a constant, which the intercept is, too. Add {_BASELINE}; or, if the other values are "
        'compared with cells of no declared value, "baseline": null',
        InfiniteIntervalsWarning,
    )


def warn_of_flat_parameters(flat: Sequence[int], names: Sequence[str], features: int) -> None:
    """Warn of the parameters whose curvature noise hides; by index, or by public names."""
    if not flat:
        return
    named = names if len(names) == features else [f"feature {k}" for k in range(features)]
    found = [named[k] if k < features else "the intercept" for k in flat]
    which = "every one" if len(flat) > features else _list_names(found)
    warn(
        f"{_INFINITE}, because of a combination of these features: {which}. {_REMEDIES}",
        InfiniteIntervalsWarning,
    )


def _list_names(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:_MOST_NAMES]))
    return shown if len(names) <= _MOST_NAMES else f"{shown} and {len(names) - _MOST_NAMES} more"


class IntervalsMixin:
    """The method that gives confidence intervals, and the check of the setting for them."""

    intervals: bool
    _has_intervals = False
    _in_process: bool

    def conf_int(self, level: float = 0.95) -> Array:
        """Confidence intervals of the coefficients, and of the intercept last if there is one.

        They are for the optimum of the clipped, penalised loss over the population that examples
        were drawn from independently, and hold as sampling and all noise for privacy are about
        normal.  They lie around `interval_estimate_`, two steps of Newton's method from the
        published model.  Needs `intervals=True` when fitting; nothing more is spent.

        Parameters
        ----------
        level : float
            The share of such intervals that cover.

        Returns
        -------
        ndarray, shape (coefficients, 2)
            The ends of each interval; all infinite, with an `InfiniteIntervalsWarning`, where the
            noise hides how much some combination of features matters.

        Raises
        ------
        InvalidParameter
            If the model was fitted without `intervals=True`, or the level is outside (0, 1).

        Examples
        --------
        >>> import numpy as np
        >>> from lastiterate.linear_model import PrivateRidge
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-0.5, 0.5, size=(20_000, 2))
        >>> y = X[:, 0] + 0.1 * rng.normal(size=20_000)
        >>> model = PrivateRidge(epsilon=2.0, target_bound=1.0, intervals=True).fit(X, y)
        >>> low, high = model.conf_int(level=0.999)[0]
        >>> bool(low < 1.0 < high), bool(high - low < 0.5)
        (True, True)
        """
        estimate, covariance = (vars(self).get(name) for name in MEASURED)
        if estimate is None or covariance is None:
            must_be = "fitted with intervals=True, which spends half of mu on them"
            raise InvalidParameter("model", must_be=must_be, found="one without intervals")
        level = _check.number("level", level, above=0.0, below=1.0)
        if not np.isfinite(covariance).all():
            warn(f"{_INFINITE}. {_REMEDIES}", InfiniteIntervalsWarning)
        reach = ndtri(0.5 + level / 2.0) * np.sqrt(np.diag(covariance))
        return np.column_stack([estimate - reach, estimate + reach])

    def _refuse_intervals(self, outputs: int, features: int) -> None:
        if not self.intervals:
            return
        if not (self._has_intervals and self._in_process) or outputs > 1:
            must_be = (
                "False unless PrivateLogisticRegression of two classes, PrivateRidge or "
                "PrivateHuberRegressor of lastiterate.linear_model is fitted"
            )
            raise InvalidParameter("intervals", True, must_be=must_be)
        if features > MOST_FEATURES:
            must_be = f"False for more than {MOST_FEATURES} features"
            raise InvalidParameter("intervals", must_be=must_be, found=f"{features} features")

    def _interval_units(self, offset: Array | None) -> tuple[float, float]:
        """The factor of estimates, and the number that is then added to the intercept."""
        return 1.0, 0.0 if offset is None else float(offset[0])


def measured_attributes(found: tuple[Array, Array] | None) -> dict[str, Any]:
    """The fitted attributes that intervals follow from."""
    return dict(zip(MEASURED, (None, None) if found is None else found, strict=True))


# The sums, published with noise, and the estimate that they lead to.


class Matrices(Enum):
    """Which matrices a release has; the value is the place of its shares."""

    HESSIANS = 0
    COVARIANCES = 1

    @property
    def shares(self) -> tuple[float, float]:
        """The shares of squares of the gradient and of the matrix."""
        return INTERVAL_SHARES[self.value]


@dataclass(frozen=True)
class Moments:
    """Noisy means of gradients and of matrices, and the noise of each."""

    gradient: Array
    matrix: Array
    noise: tuple[float, float]  # standard deviations; of matrices, on their diagonals


@dataclass(frozen=True)
class Scale:
    """The units of rows, residuals and slopes, and the constant that rows end in."""

    radius: float
    residual: float
    slope: float
    constant: float

    @classmethod
    def of(cls, examples: Examples, objective: Objective) -> Scale:
        constant = _CONSTANT_FEATURE * examples.feature_bound if examples.intercept else 0.0
        radius = up(math.hypot(examples.feature_bound, constant), 1e-12)
        return cls(radius, objective.residual_bound, objective.curvature, constant)

    def units(self, matrices: Matrices) -> tuple[float, float]:
        """The bounds on gradients and on these matrices, in which sums are counted."""
        gradient = self.residual * self.radius
        if matrices is Matrices.COVARIANCES:
            return gradient, gradient**2
        return gradient, self.slope * self.radius**2


def published_estimate(
    examples: Examples,
    objective: Objective,
    parameters: Array,
    l2: float,
    release: Release,
    source: Randomness,
) -> tuple[Array, Array, list[int]]:
    """The optimum near the published parameters, and the covariance of its error.

    Both are of coefficients, and of the intercept last if there is one.  Where noise hides the
    curvature the covariance is infinite, and the second sums are not published.  The last result
    is the indices of the parameters along which it does.
    """

    def published(at: Array, matrices: Matrices) -> Moments:
        return published_moments(examples, objective, at, matrices, release, source)

    first = published(parameters, Matrices.HESSIANS)
    point = second_point(first, examples, parameters, l2)
    if point is None:
        scaling = _Coordinates.of(examples, parameters).coefficients
        flat = flat_parameters(first, examples, parameters, l2)
        return parameters[0] * scaling, np.full(2 * scaling.shape, math.inf), flat
    second = published(point, Matrices.COVARIANCES)
    return *estimate_and_covariance(first, second, examples, point, l2), []


def published_moments(
    examples: Examples,
    objective: Objective,
    parameters: Array,
    matrices: Matrices,
    release: Release,
    source: Randomness,
) -> Moments:
    """The moments of examples at public parameters, with the noise of the release."""
    scale, many = Scale.of(examples, objective), len(examples)
    sums = exact_sums(examples, objective, parameters, scale, matrices)
    exact = packed(*sums, matrices)
    found = noisy(exact, release.noise_std, source, largest=2.0 * many) / many
    width = parameters.shape[1]
    of_gradient, of_matrix = (
        unit / math.sqrt(share)
        for unit, share in zip(scale.units(matrices), matrices.shares, strict=True)
    )
    noise = release.noise_std / many
    return Moments(
        found[:width] * of_gradient,
        _unpack_half(found[width:], width) * of_matrix,
        (noise * of_gradient, noise * of_matrix),
    )


def exact_sums(
    examples: Examples,
    objective: Objective,
    parameters: Array,
    scale: Scale,
    matrices: Matrices,
) -> tuple[Array, Array]:
    """Sums of gradients and of matrices, in units of their bounds."""
    width = parameters.shape[1]
    gradient, matrix = np.zeros(width, np.int64), np.zeros((width, width), np.int64)
    unit = 2.0**-_ROW_BITS
    for start in range(0, len(examples), _ROWS_AT_ONCE):
        # Factors are to be those of memory that nobody else writes to.
        own = examples.read(slice(start, start + _ROWS_AT_ONCE)).own()
        dense = dense_rows(own)
        # Rounded by each row's own values: at a clip the last bit decides whether a slope counts,
        # and how many rows are longer than the bound must not decide it for others.
        outputs = inner_products(dense, parameters[0, : dense.shape[1]])
        if examples.intercept:
            outputs += examples.intercept * parameters[0, -1]
            dense = np.column_stack([dense, np.full(len(dense), scale.constant)])
        if examples.offset is not None:
            outputs += examples.offset[0]
        residual = objective.residual(outputs[np.newaxis], own.targets)[0] / scale.residual
        weights = np.ones(len(dense)) if own.weights is None else own.weights
        if own.silent is not None:
            weights = np.where(own.silent, 0.0, weights)
        residual = np.clip(weights * residual, -1.0, 1.0)
        factor = np.abs(residual)
        if matrices is Matrices.HESSIANS:
            slope = objective.slopes(outputs, own.targets) / scale.slope
            factor = np.sqrt(np.clip(weights * slope, 0.0, 1.0))
        rows = dense / (scale.radius * unit)
        # Sums over a block are exact, and are added up exactly, of however many there are.
        gradient += np.trunc(residual[:, np.newaxis] * rows).sum(axis=0).astype(np.int64)
        roots = np.trunc(factor[:, np.newaxis] * rows)
        matrix += (roots.T @ roots).astype(np.int64)
    return gradient.astype(np.float64) * unit, matrix.astype(np.float64) * unit**2


def packed(gradient: Array, matrix: Array, matrices: Matrices) -> Array:
    """The vector that noise is added to: a matrix counts by its Frobenius norm."""
    of_gradient, of_matrix = np.sqrt(matrices.shares)
    return np.concatenate([of_gradient * gradient, of_matrix * _pack_half(matrix)])


def _pack_half(matrix: Array) -> Array:
    upper = np.triu_indices(len(matrix))
    return matrix[upper] * np.where(upper[0] == upper[1], 1.0, math.sqrt(2.0))


def _unpack_half(half: Array, width: int) -> Array:
    upper = np.triu_indices(width)
    matrix = np.zeros((width, width))
    matrix[upper] = half / np.where(upper[0] == upper[1], 1.0, math.sqrt(2.0))
    return matrix + np.triu(matrix, 1).T


@dataclass(frozen=True)
class _Coordinates:
    """The factors that lead from parameters to coefficients and to the moments' coordinates."""

    coefficients: Array
    moments: Array

    @classmethod
    def of(cls, examples: Examples, parameters: Array) -> _Coordinates:
        coefficients, moments = np.ones(parameters.shape[1]), np.ones(parameters.shape[1])
        if examples.intercept:
            coefficients[-1] = examples.intercept
            moments[-1] = examples.intercept / (_CONSTANT_FEATURE * examples.feature_bound)
        return cls(coefficients, moments)

    def penalised(
        self, first: Moments, at: Moments, parameters: Array, l2: float
    ) -> tuple[Array, Array]:
        """The gradient at the parameters and the first Hessian, with the penalty's part."""
        penalty = l2 / self.moments**2
        gradient = at.gradient + penalty * self.moments * parameters[0]
        return gradient, first.matrix + np.diag(penalty)


def flat_parameters(first: Moments, examples: Examples, parameters: Array, l2: float) -> list[int]:
    """The indices of the parameters in the directions whose curvature noise may hide.

    For each direction these are the fewest parameters that have most of its length.  They follow
    from published sums.
    """
    coordinates = _Coordinates.of(examples, parameters)
    _, hessian = coordinates.penalised(first, first, parameters, l2)
    found: set[int] = set()
    for curvature, direction in zip(*_directions(hessian), strict=True):
        if not curvature > _least_curvature(first):
            order = np.argsort(-np.abs(direction))
            needed = np.searchsorted(np.cumsum(direction[order] ** 2), _NAMED_PART) + 1
            found |= set(order[:needed].tolist())
    return sorted(found)


def _directions(hessian: Array) -> tuple[Array, Array]:
    """The curvatures, and the direction of each."""
    values, vectors = np.linalg.eigh(hessian)
    return values, vectors.T


def _least_curvature(first: Moments) -> float:
    """The curvature that noise alone does not make."""
    return _CLEAR_CURVATURE * first.noise[1] * math.sqrt(2.0 * len(first.gradient))


def second_point(first: Moments, examples: Examples, parameters: Array, l2: float) -> Array | None:
    """Parameters nearer to the optimum; None where noise may hide the smallest curvature."""
    coordinates, width = _Coordinates.of(examples, parameters), parameters.shape[1]
    gradient, hessian = coordinates.penalised(first, first, parameters, l2)
    of_gradient = first.noise[0]
    if not float(np.linalg.eigvalsh(hessian)[0]) > _least_curvature(first):
        return None
    squares = float(gradient @ gradient)
    if not squares > width * of_gradient**2:
        return parameters
    step = (1.0 - width * of_gradient**2 / squares) * np.linalg.solve(hessian, gradient)
    point: Array = parameters - step / coordinates.moments
    reach = math.hypot(examples.feature_bound, examples.intercept)
    return point if float(np.linalg.norm(point)) * reach < _FARTHEST_OUTPUT else parameters


def estimate_and_covariance(
    first: Moments, second: Moments, examples: Examples, point: Array, l2: float
) -> tuple[Array, Array]:
    """The optimum that the moments at the second point lead to, and the covariance of its error.

    Both are of coefficients, and of the intercept last if there is one.
    """
    coordinates, width = _Coordinates.of(examples, point), point.shape[1]
    gradient, hessian = coordinates.penalised(first, second, point, l2)
    inverse = np.linalg.inv(hessian)
    step = inverse @ gradient
    of_gradient, of_hessian = second.noise[0], first.noise[1]
    between = of_gradient**2 * np.eye(width) + _positive_part(second.matrix) / len(examples)
    between += of_hessian**2 * (float(step @ step) * np.eye(width) + np.outer(step, step)) / 2.0
    scaling = coordinates.coefficients / coordinates.moments
    estimate = coordinates.coefficients * point[0] - scaling * step
    return estimate, inverse @ between @ inverse * np.outer(scaling, scaling)


def _positive_part(matrix: Array) -> Array:
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)
