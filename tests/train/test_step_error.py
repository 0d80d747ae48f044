"""Every step of small runs again in 60 digits: no error is larger than what is charged for it."""

from dataclasses import replace

import mpmath as mp
import numpy as np
import pytest
from scipy import sparse

import lastiterate as li
from lastiterate.train import arithmetic, noisy_descent
from lastiterate.train import noisy_descent as counted_rows
from lastiterate.train import noisy_descent as gradient_sum
from lastiterate.train.arithmetic import chosen_grid, problem_of, release_error, step_errors
from lastiterate.train.centring import Centre
from lastiterate.train.data import FAST, bounded
from lastiterate.train.noise import Randomness, SeededBits
from lastiterate.train.objectives import Huber, Logistic, SmoothedHinge, Softmax

from ..reference import exact_step
from .problems import run_of

EXAMPLES, WIDTH, BOUND = 18, 5, 1.5


def hostile(dtype, *, seed=0, count=EXAMPLES, width=WIDTH):
    """Rows of all sizes that floats have, nearly parallel ones, and single entries."""
    rng = np.random.default_rng(seed)
    rows, most = rng.normal(size=(count, width)), 300 if dtype == np.float64 else 36
    rows[::6] *= 10.0 ** rng.uniform(0, most, size=rows[::6].shape)
    rows[1::6] *= 10.0 ** -rng.uniform(0, most, size=rows[1::6].shape)
    rows[2::6] = np.sign(rows[2::6]) * 1e8 + rng.normal(size=rows[2::6].shape)
    rows[3::6, 1:] = 0.0
    return rows.astype(dtype)


def exact_rows(batch):
    """The rows as they count, exactly; None for those that are silent."""
    rows = batch.rows if isinstance(batch.rows, np.ndarray) else batch.rows.toarray()
    for k, row in enumerate(rows):
        found = [mp.mpf(float(x)) for x in row]
        if batch.shifts is not None:
            shift = mp.mpf(float(batch.shifts[k]))
            found = [x - shift * mp.mpf(float(m)) for x, m in zip(found, batch.mean, strict=True)]
        silent = batch.silent is not None and batch.silent[k]
        yield None if silent else found


class Watched:
    """Notes where every step begins, what it sees and where it ends before noise."""

    def __init__(self, monkeypatch):
        self.starts, self.seen, self.ends = [], [], []
        move, step = noisy_descent.State.move_to, noisy_descent.State.step
        usual = noisy_descent.gradient_sum

        def moved(state, unit):
            whole, old = state._whole.tolist(), mp.mpf(state._unit)
            exact = [[mp.mpf(one) * old for one in row] for row in whole]
            first = [[mp.mpf(float(x)) for x in row] for row in state.parameters]
            self.starts.append(exact if state._unit else first)
            move(state, unit)

        def stepped(state, run, total, noise, step_size):
            step(state, run, total, noise, step_size)
            whole, unit = (state._whole - noise).tolist(), mp.mpf(state._unit)
            self.ends.append([[mp.mpf(one) * unit for one in row] for row in whole])

        def summed(objective, own, chosen, parameters):
            self.seen.append((own, chosen))
            return usual(objective, own, chosen, parameters)

        monkeypatch.setattr(noisy_descent.State, "move_to", moved)
        monkeypatch.setattr(noisy_descent.State, "step", stepped)
        monkeypatch.setattr(noisy_descent, "gradient_sum", summed)


def worst(monkeypatch, objective, data, run, *, start=None):
    """The largest error of a step over what is charged for it."""
    watched = Watched(monkeypatch)
    noisy_descent.noisy_descent(run, objective, data, Randomness(SeededBits(5)), start)
    problem = problem_of(objective, data)
    grid, limit = chosen_grid((run,), problem)
    charged = step_errors(run, problem, grid.sizes, grid.units, limit)
    loss = objective.as_record()
    loss["name"] = loss.pop("loss").replace("Rough", "Logistic")
    loss.pop("classes", None)
    offset = np.zeros(objective.outputs) if data.offset is None else data.offset
    found = []
    for k in range(run.steps):
        own, chosen = watched.seen[k]
        rows, targets = [], []
        for batch in counted_rows.counted_batches(own, chosen):
            rows += list(exact_rows(batch))
            targets += batch.targets.tolist()
        for row in rows:
            if row is not None:
                assert mp.sqrt(mp.fdot(row, row)) <= mp.mpf(data.feature_bound)
        here = np.array([[float(x) for x in row] for row in watched.starts[k]])
        ideal = exact_step.step(
            watched.starts[k], rows, targets, loss=loss, intercept=data.intercept, offset=offset,
            size=run.batches.batch_size, l2=run.loss.regulariser, eta=float(grid.sizes[k]),
            diameter=getattr(run.domain, "diameter", None),
            guesses=guesses(objective, here, rows, targets, data.intercept, offset, run),
        )  # fmt: skip
        assert np.linalg.norm(here) <= limit or isinstance(run.domain, li.Ball)
        found.append(float(exact_step.distance(watched.ends[k], ideal) / mp.mpf(charged[k])))
    return max(found)


def guesses(objective, here, rows, targets, intercept, offset, run):
    """The library's residuals, from which the exact ones are found."""
    if not isinstance(objective, Softmax):
        return [None] * len(rows)
    radius = getattr(run.domain, "diameter", np.inf) / 2
    here = here * min(1.0, radius / max(np.linalg.norm(here), 1e-300))
    found = []
    for row, target in zip(rows, targets, strict=True):
        x = np.zeros(here.shape[1])
        if row is not None:
            x[: len(row)] = [float(entry) for entry in row]
        x[-1] = intercept or x[-1]
        u = (here @ x + offset)[:, np.newaxis]
        found.append(objective.residual(u, np.array([target]))[:, 0])
    return found


OBJECTIVES = {
    "logistic": Logistic(),
    "unclipped logistic": Logistic(clip=1.0),
    "envelope": Softmax(classes=4),
    "wide envelope": Softmax(classes=3, clip=1.0),
    "margin": Softmax(classes=4, kind="margin"),
    "softmax": Softmax(classes=3, clip=2.0),
    "huber": Huber(clip=0.25),
    "hinge": SmoothedHinge(clip=0.5, width=0.5),
}


def problem(objective, dtype=np.float64, *, kind=np.asarray, seed=0, **changes):
    rng = np.random.default_rng(seed)
    rows = kind(hostile(dtype, seed=seed))
    if isinstance(objective, Huber):
        targets = rng.normal(size=EXAMPLES) * 10.0 ** rng.integers(-3, 4, size=EXAMPLES)
    else:
        targets = rng.integers(max(objective.outputs, 2), size=EXAMPLES)
    data = bounded(rows, targets, bound=BOUND, intercept=0.25)
    return replace(data, **changes)


CENTRE = Centre(np.array([0.3, -0.2, 0.5, 0.1, 0.0]), 0.2)
VARIANTS = {
    "plain": ({}, {}),
    "centred": ({"centre": CENTRE}, {}),
    "penalty": ({}, {"l2": 0.3}),
    "ball": ({}, {"domain": li.Ball(0.5)}),
    "centred ball and penalty": ({"centre": CENTRE}, {"domain": li.Ball(0.5), "l2": 0.3}),
    "schedule": ({}, {"step_size": [1.0, 0.5, 0.25], "noise_std": [0.3, 0.2, 0.1]}),
    "release": ({}, {"noise_std": 0.0, "release_noise_std": 0.2}),
    "silent": ({"silent": np.arange(EXAMPLES) % 4 == 0}, {}),
}


class TestOracle:
    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    @pytest.mark.parametrize("name", OBJECTIVES)
    def test_no_error_is_above_its_charge(self, monkeypatch, name, dtype):
        objective = OBJECTIVES[name]
        data = problem(objective, dtype)
        run = run_of(data, li.ShuffledOnce(EXAMPLES, 6), objective=objective, steps=3)
        assert worst(monkeypatch, objective, data, run) <= 1.0

    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    @pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
    @pytest.mark.parametrize("variant", VARIANTS)
    def test_in_all_variants(self, monkeypatch, variant, kind, dtype):
        of_data, of_run = VARIANTS[variant]
        data = problem(Logistic(), dtype, kind=kind, **of_data)
        run = run_of(data, li.FullBatch(EXAMPLES), **{"steps": 3} | of_run)
        assert worst(monkeypatch, Logistic(), data, run) <= 1.0

    @pytest.mark.parametrize("variant", ["centred", "ball", "schedule"])
    def test_of_the_envelope(self, monkeypatch, variant):
        objective = Softmax(classes=4)
        of_data, of_run = VARIANTS[variant]
        data = problem(objective, np.float32, seed=2, **of_data)
        run = run_of(data, li.Cyclic(EXAMPLES, 9), objective=objective, **{"steps": 3} | of_run)
        assert worst(monkeypatch, objective, data, run) <= 1.0

    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    def test_without_the_grid(self, monkeypatch, dtype):
        """On so fine a grid that only products and sums are left; rows in blocks; an offset."""
        monkeypatch.setattr(arithmetic, "BITS", 54)
        monkeypatch.setattr(counted_rows, "_ENTRIES_AT_ONCE", 2 * WIDTH)
        objective = Softmax(classes=3, kind="margin")
        data = problem(objective, dtype, offset=np.array([0.5, -3.0, 2.5]))
        run = run_of(data, li.FullBatch(EXAMPLES), objective=objective, steps=3, noise_std=1e-3)
        assert worst(monkeypatch, objective, data, run) <= 1.0

    def test_of_batches_of_random_size(self, monkeypatch):
        data = problem(Logistic())
        rule = li.PoissonSampled(EXAMPLES, 6)
        run = run_of(data, rule, steps=4, step_size=0.5)
        assert worst(monkeypatch, Logistic(), data, run) <= 1.0

    @pytest.mark.slow
    def test_of_many_classes(self, monkeypatch):
        objective = Softmax(classes=10_000, clip=2.0)
        data = problem(objective)
        run = run_of(data, li.FullBatch(EXAMPLES), objective=objective, steps=2, noise_std=1e-4)
        assert worst(monkeypatch, objective, data, run) <= 1.0


class Rough(Logistic, abstract=True):
    def residual(self, u, y):
        return np.rint(super().residual(u, y) * 2**36) / 2**36


class TestMutants:
    """Each of these is caught."""

    def worst(self, monkeypatch, objective=None, dtype=np.float64):
        objective = Logistic(clip=1.0) if objective is None else objective
        data = replace(
            bounded(
                np.random.default_rng(0).normal(size=(EXAMPLES, 30)).astype(dtype),
                np.arange(EXAMPLES) % 2,
                bound=1.0,
                intercept=0.125,
            )
        )
        run = run_of(data, li.FullBatch(EXAMPLES), objective=objective, steps=3, noise_std=0.01)
        return worst(monkeypatch, objective, data, run)

    def test_none(self, monkeypatch):
        assert self.worst(monkeypatch) <= 1.0

    def test_products_in_float32(self, monkeypatch):
        usual = noisy_descent.gradient_sum
        monkeypatch.setattr(
            noisy_descent,
            "gradient_sum",
            lambda objective, own, *rest: usual(objective, replace(own, arithmetic=FAST), *rest),
        )
        assert self.worst(monkeypatch, dtype=np.float32) > 100.0

    def test_a_sum_in_float32(self, monkeypatch):
        usual = noisy_descent.gradient_sum
        monkeypatch.setattr(
            noisy_descent, "gradient_sum", lambda *args: np.float64(np.float32(usual(*args)))
        )
        assert self.worst(monkeypatch) > 100.0

    def test_a_step_that_is_longer_by_a_billionth(self, monkeypatch):
        usual = noisy_descent.State.step
        monkeypatch.setattr(
            noisy_descent.State,
            "step",
            lambda self, run, total, noise, size: usual(self, run, total, noise, size * (1 + 1e-9)),
        )
        assert self.worst(monkeypatch) > 10.0

    def test_residuals_of_36_bits(self, monkeypatch):
        assert self.worst(monkeypatch, Rough(clip=1.0)) > 1.0

    def test_steps_on_a_coarser_grid(self, monkeypatch):
        usual = np.rint
        monkeypatch.setattr(noisy_descent, "compiled", lambda *_: None)
        monkeypatch.setattr(
            np, "rint", lambda x, out=None: np.multiply(usual(x / 64.0), 64.0, out=out)
        )
        assert self.worst(monkeypatch) > 1.0


class Counting:
    """A source of words that says how many were drawn."""

    provenance = "counted"

    def __init__(self):
        self._bits, self.drawn = SeededBits(1), 0

    def words(self, count):
        self.drawn += count
        return self._bits.words(count)


class TestOrder:
    @pytest.mark.parametrize("release", [0.0, 0.3])
    def test_noise_is_drawn_after_the_gradient_and_none_ahead(self, monkeypatch, release):
        """What rounds a gradient must not depend on noise that is yet to be added to it."""
        data, bits, before = problem(Logistic()), Counting(), []
        usual = noisy_descent.gradient_sum

        def summed(*args):
            before.append(bits.drawn)
            return usual(*args)

        monkeypatch.setattr(noisy_descent, "gradient_sum", summed)
        run = run_of(data, li.Cyclic(EXAMPLES, 6), steps=4, release_noise_std=release)
        noisy_descent.noisy_descent(run, Logistic(), data, Randomness(bits))
        each = 6 + 64  # numbers, and spare words, none of which is kept
        assert before == [0, each, 2 * each, 3 * each]
        assert bits.drawn == (4 + (release > 0)) * each

    def test_noise_is_added_to_what_is_on_the_grid_already(self):
        """So that what is published is shifted by the drawn numbers, exactly."""
        data, ends = problem(Logistic()), []

        class Fixed(Randomness):
            def __init__(self, drawn):
                super().__init__(SeededBits(0))
                self.fixed = drawn

            def rounded_normals(self, shape, bits):
                return np.full(shape, self.fixed)

        run = run_of(data, li.FullBatch(EXAMPLES), steps=1, step_size=1.0, noise_std=0.5)
        for drawn in (0, 2**20 + 1, -(2**30) - 7):
            end = noisy_descent.noisy_descent(run, Logistic(), data, Fixed(drawn))
            unit = np.nextafter(0.5, 1.0) * 2.0**-40
            ends.append(np.rint(end / unit).astype(np.int64) - drawn)
        np.testing.assert_array_equal(ends[0], ends[1])
        np.testing.assert_array_equal(ends[0], ends[2])

    @pytest.mark.parametrize("path", [None, "loops"])
    def test_no_rounding_of_a_step_depends_on_the_noise(self, path):
        """Not even noise of more bits than floats have, in whose sums with steps these would go."""
        fast = None if path is None else pytest.importorskip(f"lastiterate.train.compiled.{path}")
        rng, ends = np.random.default_rng(0), []
        run = run_of(problem(Logistic()), li.FullBatch(EXAMPLES))
        total = rng.normal(size=(3, 200))
        for drawn in (0, 2**54 + 1, -(2**55) - 3):
            state = noisy_descent.State(np.zeros(total.shape), run.domain, fast)
            state.move_to(2.0**-30)
            state.step(run, total.copy(), np.full(total.shape, drawn), 0.5)
            ends.append(state._whole - drawn)
        np.testing.assert_array_equal(ends[0], ends[1])
        np.testing.assert_array_equal(ends[0], ends[2])


class TestRelease:
    def test_moving_to_the_grid_of_the_release(self):
        data = problem(Logistic())
        run = run_of(data, li.FullBatch(EXAMPLES), domain=li.Ball(0.5), release_noise_std=0.2)
        state = noisy_descent.State(np.random.default_rng(0).normal(size=(1, 6)), run.domain)
        before = [[mp.mpf(float(x)) for x in row] for row in state.parameters]
        unit = 0.2 * 2.0**-40
        state.move_to(unit)
        ideal = exact_step.projected(before, 0.5)
        found = [[mp.mpf(int(one)) * mp.mpf(unit) for one in row] for row in state._whole]
        charged = release_error(run, problem_of(Logistic(), data), unit, 0.25)
        assert exact_step.distance(found, ideal) <= charged


class TestRowsThatCount:
    """Factors recomputed exactly from raw rows; each row by itself is the same to the bit."""

    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    @pytest.mark.parametrize("centre", [None, CENTRE])
    def test_are_the_rows_within_their_bounds(self, dtype, centre):
        rows = hostile(dtype, count=120, seed=4)
        data = replace(bounded(rows, np.zeros(120), bound=BOUND, intercept=0.0), centre=centre)
        (batch,) = counted_rows.counted_batches(data, slice(None))
        for row, found in zip(rows, batch.rows, strict=True):
            exact = [mp.mpf(float(x)) for x in row]
            norm = mp.sqrt(mp.fdot(exact, exact))
            exact = [x * min(1, mp.mpf(BOUND) / norm) if norm else x for x in exact]
            if centre is not None:
                exact = [x - mp.mpf(float(m)) for x, m in zip(exact, centre.mean, strict=True)]
                norm = mp.sqrt(mp.fdot(exact, exact))
                within = min(mp.mpf(1), mp.mpf(centre.bound) / norm) if norm else mp.mpf(1)
                exact = [x * within * mp.mpf(BOUND) / mp.mpf(centre.bound) for x in exact]
            counted = [mp.mpf(float(x)) for x in found]
            assert mp.sqrt(mp.fdot(counted, counted)) <= mp.mpf(BOUND)
            off = mp.sqrt(mp.fsum((a - b) ** 2 for a, b in zip(exact, counted, strict=True)))
            assert off <= BOUND * (1e-12 if dtype == np.float64 else 1e-5)

    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    @pytest.mark.parametrize("centre", [None, CENTRE])
    def test_depend_on_no_other_row(self, dtype, centre, monkeypatch):
        rows = hostile(dtype, count=40, seed=5)
        data = replace(bounded(rows, np.zeros(40), bound=BOUND, intercept=0.0), centre=centre)
        (batch,) = counted_rows.counted_batches(data, slice(None))
        together = batch.rows.copy()
        once = counted_rows.counted_once(data.own())
        (batch,) = counted_rows.counted_batches(once, slice(None))
        np.testing.assert_array_equal(batch.rows, together)
        monkeypatch.setattr(counted_rows, "_ENTRIES_AT_ONCE", 3 * WIDTH)
        blocks = [one.rows.copy() for one in counted_rows.counted_batches(data, slice(None))]
        np.testing.assert_array_equal(np.concatenate(blocks), together)
        for k in range(40):
            one = bounded(rows[k : k + 1].copy(), np.zeros(1), bound=BOUND, intercept=0.0)
            (alone,) = counted_rows.counted_batches(replace(one, centre=centre), slice(None))
            np.testing.assert_array_equal(alone.rows[0], together[k])

    def test_the_data_of_others_are_left_alone(self):
        rows = hostile(np.float64)
        kept = rows.copy()
        data = bounded(rows, np.zeros(EXAMPLES), bound=BOUND, intercept=0.0)
        run = run_of(data, li.FullBatch(EXAMPLES), steps=2)
        noisy_descent.noisy_descent(run, Logistic(), data, Randomness(SeededBits(1)))
        np.testing.assert_array_equal(rows, kept)
        assert data.arithmetic != gradient_sum.FAST
