"""The run that happens is the run that was accounted, and floats leave no trace in it."""

import math

import numpy as np
import pytest
from scipy import sparse, stats

import lastiterate as li
from lastiterate._progress import listen
from lastiterate.errors import InvalidParameter
from lastiterate.train.data import bounded
from lastiterate.train.noise import Randomness, SeededBits
from lastiterate.train.noisy_descent import _weighted_sum, noisy_descent
from lastiterate.train.objectives import Huber, Logistic, SmoothedHinge, Softmax
from tests.reference.precision_attack import difference, recognised
from tests.train.problems import RULES, examples, run_of


class Recorder(Randomness):
    """Notes what is drawn; `silent` replaces noise by zeros."""

    def __init__(self, seed=0, *, silent=False):
        super().__init__(SeededBits(seed))
        self.silent, self.drawn = silent, []

    def rounded_normals(self, shape, bits):
        drawn = super().rounded_normals(shape, bits)
        self.drawn.append(drawn * 2.0**-bits)
        return np.zeros_like(drawn) if self.silent else drawn


class Noted(Logistic, abstract=True):
    """Notes which examples each step sees; targets are the examples' numbers."""

    def admits(self, y):
        return True  # numbers of the examples

    def residual(self, u, y):
        self.seen.append(np.array(y))
        return super().residual(u, y % 2)

    @property
    def seen(self):
        return self.__dict__.setdefault("_seen", [])


def observed(rule, *, steps=17, seed=0):
    data = examples()
    data = type(data)(data.rows, np.arange(len(data)), 1.0, data.intercept)
    objective, source = Noted(), Recorder(seed)
    run = run_of(data, rule, objective=objective, steps=steps, release_noise_std=0.3)
    noisy_descent(run, objective, data, source)
    return run, objective.seen, source


class TestWhatRanIsWhatWasAccounted:
    @pytest.mark.parametrize("name", RULES)
    def test_one_batch_and_one_draw_of_noise_a_step(self, name):
        run, seen, source = observed(RULES[name])
        assert len(seen) == run.steps == len(source.drawn) - 1  # and one for the release
        if run.batches.exact_size:
            assert {batch.size for batch in seen} == {run.batches.batch_size}
        for batch in seen:
            assert np.unique(batch).size == batch.size
        together = np.concatenate([drawn.ravel() for drawn in source.drawn])
        assert together.size == (run.steps + 1) * 5
        assert np.unique(together).size == together.size  # nothing is used twice

    @pytest.mark.parametrize("name", ["cyclic", "once", "each"])
    def test_every_epoch_has_each_example_once_and_leaves_the_remainder_out(self, name):
        _, seen, _ = observed(RULES[name], steps=15)
        epochs = [np.concatenate(seen[start : start + 5]) for start in (0, 5, 10)]
        for epoch in epochs:
            assert np.unique(epoch).size == 100
        same = [np.array_equal(epochs[0], epoch) for epoch in epochs[1:]]
        assert same == ([False, False] if name == "each" else [True, True])
        if name == "cyclic":
            assert epochs[0].tolist() == list(range(100))

    def test_full_batches_have_everyone(self):
        _, seen, _ = observed(RULES["full"])
        assert all(batch.tolist() == list(range(103)) for batch in seen)

    @pytest.mark.parametrize("name", ["once", "each", "sampled", "poisson", "bins", "bins each"])
    def test_positions_are_uniform(self, name):
        rule = RULES[name]
        visits = np.zeros((5, 103))
        for seed in range(200):
            _, seen, _ = observed(rule, steps=5, seed=seed)
            for step, batch in enumerate(seen):
                visits[step, batch] += 1
        # Each example at each step with probability 20/103.
        expected = 200 * 20 / 103
        z = (visits - expected) / np.sqrt(expected * (1 - 20 / 103))
        assert abs(z.mean()) < 4 / z.size**0.5 + (0.1 if name == "poisson" else 0)
        assert np.abs(z).max() < 5

    @pytest.mark.parametrize("name", ["bins", "bins each"])
    def test_every_example_picks_one_batch_of_an_epoch_or_none(self, name):
        _, seen, _ = observed(RULES[name], steps=15)
        epochs = [np.concatenate(seen[start : start + 5]) for start in (0, 5, 10)]
        for epoch in epochs:
            assert 90 < np.unique(epoch).size == epoch.size <= 103
        same = [np.array_equal(epochs[0], epoch) for epoch in epochs[1:]]
        assert same == ([False, False] if name == "bins each" else [True, True])
        assert len({batch.size for batch in seen}) > 1

    def test_poisson_batches_are_cut(self):
        sizes = [b.size for seed in range(30) for b in observed(RULES["poisson"], seed=seed)[1]]
        assert max(sizes) == 25
        assert min(sizes) < 15

    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    def test_noise_has_the_stated_deviation_and_the_step_the_stated_size(self, dtype):
        """One step with noise less one without: step size times noise, to the last bit."""
        data = examples(width=400, dtype=dtype)
        run = run_of(data, li.FullBatch(103), steps=1, step_size=0.25, noise_std=0.7)
        quiet = noisy_descent(run, Logistic(), data, Recorder(silent=True))
        loud = noisy_descent(run, Logistic(), data, Recorder())
        noise = (loud - quiet) / (0.25 * 0.7)
        drawn = Recorder().rounded_normals((1, 401), 40) * 2.0**-40
        np.testing.assert_allclose(noise, drawn, atol=1e-10)
        assert stats.kstest(noise.ravel(), "norm").pvalue > 1e-3

    def test_release_noise(self):
        data = examples(width=400)
        run = run_of(data, li.FullBatch(103), steps=1, release_noise_std=3.0)
        bare = noisy_descent(run.replace(release_noise_std=0.0), Logistic(), data, Recorder())
        source = Recorder()
        noise = (noisy_descent(run, Logistic(), data, source) - bare) / 3.0
        np.testing.assert_allclose(noise, source.drawn[-1], atol=1e-10)

    def test_schedules(self):
        data = examples()
        sizes, noises = np.linspace(1.0, 0.1, 6), np.linspace(0.3, 0.2, 6)
        run = run_of(data, li.FullBatch(103), steps=6, step_size=sizes, noise_std=noises)
        source = Recorder(5)
        end = noisy_descent(run, Logistic(), data, source)
        expected = np.zeros((1, 5))
        for size, noise, drawn in zip(sizes, noises, source.drawn, strict=True):
            expected -= size * (literal_gradient(data, expected) - noise * drawn)
        np.testing.assert_allclose(end, expected, atol=1e-10)


def literal_gradient(data, parameters, clip=0.25):
    """Example by example, as the mathematics has it."""
    total = np.zeros_like(parameters)
    for row, label in zip(np.asarray(data.rows, dtype=float), data.targets, strict=True):
        row = row * min(1.0, data.feature_bound / np.linalg.norm(row))
        row = np.append(row, data.intercept) if data.intercept else row
        output = parameters @ row
        residual = np.clip(1 / (1 + np.exp(-output)) - label, -clip, clip)
        total += np.outer(residual, row)
    return total / len(data)


class TestGradient:
    @pytest.mark.parametrize("intercept", [0.0, 0.5])
    @pytest.mark.parametrize("dtype, off", [(np.float64, 1e-7), (np.float32, 3e-6)])
    def test_against_a_loop_over_examples(self, intercept, dtype, off):
        data = examples(intercept=intercept, dtype=dtype)
        run = run_of(data, li.FullBatch(103), steps=8, l2=0.3)
        end = noisy_descent(run, Logistic(), data, Recorder(silent=True))
        x = np.zeros_like(end)
        for _ in range(8):
            x = x - run.step_size * (literal_gradient(data, x) + 0.3 * x)
        np.testing.assert_allclose(end, x, atol=off)

    def test_the_penalty_is_on_the_intercept_too(self):
        data = examples()
        run = run_of(data, li.FullBatch(103), steps=3_000, l2=50.0)
        end = noisy_descent(run, Logistic(), data, Recorder(silent=True))
        np.testing.assert_allclose(50.0 * end, -literal_gradient(data, end), atol=1e-4)

    def test_sparse_rows_give_the_same_model(self):
        data = examples()
        thin = type(data)(sparse.csr_array(data.rows), data.targets, 1.0, data.intercept)
        for rule in RULES.values():
            ends = [
                noisy_descent(run_of(data, rule), Logistic(), each, Recorder(3))
                for each in (data, thin)
            ]
            np.testing.assert_allclose(*ends, atol=1e-7)

    @pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
    def test_an_example_hardly_changes_how_the_others_are_rounded(self, kind):
        rng = np.random.default_rng(0)
        rows = (rng.normal(size=(100_000, 8)) + 0.5).astype(np.float32)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        residual = rng.uniform(0.0, 0.5, size=(1, 100_000))
        other = residual.copy()
        other[0, 5] = -0.5
        moved = _weighted_sum(other, kind(rows)) - _weighted_sum(residual, kind(rows))
        own = (other - residual)[0, 5] * rows[5].astype(float)
        assert np.linalg.norm(moved - own) <= 5e-5

    def test_softmax_of_two_classes_descends_as_logistic_does(self):
        """With u = (-w/2, w/2) both have the same probabilities; no clip is active here."""
        data = examples()
        soft = Softmax(classes=2, clip=2.0)
        run = run_of(data, li.FullBatch(103), steps=5, objective=soft)
        both = noisy_descent(run, soft, data, Recorder(silent=True))
        np.testing.assert_allclose(both[0], -both[1], atol=1e-7)
        # The difference of the two rows moves twice as far as the one row of the logistic loss.
        plain = Logistic(clip=1.0)
        half = run_of(
            data, li.FullBatch(103), steps=5, objective=plain, step_size=2 * run.step_size
        )
        one = noisy_descent(half, plain, data, Recorder(silent=True))
        np.testing.assert_allclose(both[1] - both[0], one[0], atol=1e-6)


class TestContraction:
    """Two models trained with the same noise never drift apart by more than their batches allow."""

    @pytest.mark.parametrize(
        "objective", [Logistic(), Softmax(classes=3), Huber(clip=0.3)], ids=repr
    )
    def test_one_step_apart(self, objective):
        """Replacing one example moves one step by at most step_size * sensitivity / batch_size."""
        rng = np.random.default_rng(0)
        data = examples()
        for trial in range(20):
            rows = data.rows.copy()
            targets = rng.integers(objective.outputs if objective.outputs > 1 else 2, size=103)
            changed, others = rows.copy(), targets.copy()
            changed[7] = 100 * rng.normal(size=4)
            others[7] = (targets[7] + 1) % max(objective.outputs, 2)
            ends = [
                noisy_descent(
                    run_of(data, li.FullBatch(103), objective=objective, steps=1, step_size=0.9),
                    objective,
                    bounded(x, y, bound=1.0, intercept=0.5),
                    Recorder(trial, silent=True),
                )
                for x, y in ((rows, targets), (changed, others))
            ]
            run = run_of(data, li.FullBatch(103), objective=objective)
            assert np.linalg.norm(ends[0] - ends[1]) <= 0.9 * run.sensitivity / 103 + 1e-7


class TestDomain:
    def test_iterates_and_the_release_stay_inside(self):
        data = examples()
        run = run_of(data, li.FullBatch(103), domain=li.Ball(0.2), noise_std=5.0)
        for release in (0.0, 3.0):
            end = noisy_descent(run.replace(release_noise_std=release), Logistic(), data)
            assert np.linalg.norm(end) <= 0.1 + 1e-5  # the grid


class TestRelease:
    @pytest.mark.parametrize("release, noise", [(0.3, 0.3), (0.0, 0.9 * 0.35)])
    def test_is_on_the_grid_of_its_noise(self, release, noise):
        data = examples()
        run = run_of(data, li.FullBatch(103), step_size=0.9, noise_std=0.35)
        end = noisy_descent(run.replace(release_noise_std=release), Logistic(), data, Recorder())
        units = end / np.nextafter(noise, 1.0) * 2.0**40
        np.testing.assert_allclose(units, np.rint(units), atol=1e-2)
        assert (np.rint(units) % 2).any()

    def test_progress_tells_steps_only(self):
        data, heard = examples(), []
        with listen(lambda *said: heard.append(said)):
            noisy_descent(run_of(data, li.FullBatch(103)), Logistic(), data)
        assert [name for name, _ in heard] == ["training"] * 18
        np.testing.assert_allclose([share for _, share in heard], np.arange(18) / 17)


class TestRefusals:
    def refused(self, match, *, objective=None, rule=None, **changes):
        data = examples()
        objective = Logistic() if objective is None else objective
        run = run_of(data, rule or li.FullBatch(103), objective=objective).replace(**changes)
        with pytest.raises(InvalidParameter, match=match):
            noisy_descent(run, objective, data, Recorder())

    def test_runs_that_promise_too_much(self):
        self.refused("run.sensitivity must be at least", sensitivity=0.1)
        self.refused("run.loss.smoothness must be at least", loss=li.Loss(smoothness=0.1))
        self.refused(
            "strong_convexity must be at most", loss=li.Loss(smoothness=9.0, strong_convexity=0.1)
        )
        self.refused("clip_norm must be None", clip_norm=5.0)
        self.refused("convex must be True", loss=li.Loss(smoothness=9.0, convex=False))

    def test_other_numbers_of_examples(self):
        self.refused("batches.examples must be 103", rule=li.FullBatch(102))

    def test_orders_that_are_not_told(self):
        self.refused("batches must be", rule=li.FixedOrder(103, 20, positions=(1, 4)))


class TestPromises:
    def run(self, objective, **loss):
        stated = objective.loss(radius=1.0, l2=0.0)
        return li.TrainingRun(
            loss=li.Loss(smoothness=stated.smoothness, **loss),
            sensitivity=objective.sensitivity(radius=1.0, adjacency="replace"),
            batches=li.FullBatch(20),
            steps=3,
            step_size=0.1,
            noise_std=1.0,
        )

    def examples(self, targets):
        return bounded(np.ones((20, 1)), targets, bound=1.0, intercept=0.0)

    @pytest.mark.parametrize("objective", [Logistic(), SmoothedHinge()])
    @pytest.mark.parametrize("target", [-1.0, 0.5, 2.0])
    def test_targets_that_the_constants_do_not_hold_for(self, objective, target):
        examples = self.examples(np.full(20, target))
        with pytest.raises(InvalidParameter, match="targets"):
            noisy_descent(self.run(objective), objective, examples)

    def test_claims_that_no_trainer_keeps(self):
        run = self.run(Logistic(), holder=(1e-12, 1.0))
        with pytest.raises(InvalidParameter, match="holder"):
            noisy_descent(run, Logistic(), self.examples(np.zeros(20)))

    def test_fewer_outputs_than_the_model_has(self):
        objective = Softmax(classes=3)
        run = self.run(objective, outputs=2)
        with pytest.raises(InvalidParameter, match="outputs"):
            noisy_descent(run, objective, self.examples(np.zeros(20)))


WIDTH, EXAMPLES, SIZE, RUNS = 50_000, 2, 8.0, 20
LOSS = Logistic()
STEP = SIZE * LOSS.residual_bound / EXAMPLES / math.sqrt(WIDTH)


@pytest.fixture(scope="module")
def run():
    uncalibrated = li.TrainingRun(
        loss=LOSS.loss(radius=1.0, l2=0.0),
        sensitivity=LOSS.sensitivity(radius=1.0, adjacency="replace"),
        batches=li.FullBatch(EXAMPLES),
        steps=1,
        step_size=SIZE,
        noise_std=1.0,
    )
    return li.calibrate(uncalibrated, epsilon=1.0, delta=1e-5)


@pytest.fixture(scope="module")
def noise_std(run):
    return SIZE * run.noise_std


@pytest.fixture(scope="module")
def published(run):
    """What the trainer publishes, for either data set."""
    worlds, bits = [], SeededBits(0)
    for entry in (0.0, 1.0 / math.sqrt(WIDTH)):
        rows = np.zeros((EXAMPLES, WIDTH))
        rows[0] = entry
        worlds.append(bounded(rows, np.ones(EXAMPLES, np.intp), bound=1.0, intercept=0.0))
    return lambda world: noisy_descent(run, LOSS, worlds[world], Randomness(bits)).ravel()


@pytest.fixture
def in_floats(noise_std):
    """Float noise, rounded to a type, added to a float step of that type."""
    rng = np.random.default_rng(0)

    def release_in(dtype):
        def release(world):
            noise = (noise_std * rng.standard_normal(WIDTH)).astype(dtype)
            return dtype(world * STEP) + noise

        return release

    return release_in


def test_little_may_be_told_apart(run):
    report = li.account(run)
    assert 0.99 < report.epsilon(1e-5) <= 1.0
    assert report.advantage() < 0.108


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_floats_are_told_apart_with_certainty(in_floats, dtype):
    true, false = recognised(in_floats(dtype), STEP, RUNS)
    assert true == 1.0
    assert false <= 0.1
    assert difference(in_floats(dtype), STEP, RUNS) > 10.0


def test_what_is_published_is_not(published):
    true, false = recognised(published, STEP, RUNS)
    assert abs(true - false) <= 0.1
    assert abs(difference(published, STEP, 2 * RUNS)) < 5.0


def test_the_attacked_step_is_taken(published, noise_std):
    """It shows in the mean, as it may; else the attacker would look in the wrong place."""
    means = [np.mean([published(world).mean() for _ in range(RUNS)]) for world in (0, 1)]
    error = noise_std / math.sqrt(RUNS * WIDTH)
    assert abs(means[0]) < 5.0 * error
    assert abs(means[1] - STEP) < 5.0 * error


def test_whoever_knows_the_grid_sees_all_its_bits_alike(published, noise_std):
    unit = noise_std * 2.0**-40
    for world in (0, 1):
        whole = np.rint(published(world) / unit).astype(np.int64)
        for bit in range(8):
            ones = int((whole >> bit & 1).sum())
            assert abs(ones - WIDTH / 2) < 5.0 * math.sqrt(WIDTH) / 2
