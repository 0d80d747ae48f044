"""Audits catch broken trainers with the power stated, and leave the honest one alone."""

import functools
import json
import math
import warnings
from dataclasses import dataclass
from types import MappingProxyType

import joblib
import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binom

import lastiterate as li
from lastiterate.audit import certified_trainers, empirical, exact
from lastiterate.audit.certified_trainers import (
    OwnTrainer,
    OwnUnlearner,
    certified_trainer,
    trainer_of_certificate,
)
from lastiterate.audit.empirical import Claim, Evidence, power, upper_limits
from lastiterate.audit.exact import quadratics
from lastiterate.cli import main
from lastiterate.errors import InvalidParameter
from lastiterate.linear_model import PrivateHuberRegressor, PrivateLogisticRegression, PrivateRidge
from lastiterate.profile import GaussianProfile
from lastiterate.train.objectives import Huber
from tests.slow import slow

EPOCHS, LENGTH, RUNS = 10, 3, 20_000
RUN = li.TrainingRun(
    loss=li.Loss(smoothness=1.0, lipschitz=1.0), sensitivity=2.0, batches=li.Cyclic(30, 10),
    steps=EPOCHS * LENGTH, step_size=1.0, noise_std=0.36, release_noise_std=0.36 * math.sqrt(2.0),
)  # fmt: skip
REPORT = li.account(RUN)


def simulated(world, seeds, *, noise=1.0, outlier=1.0, visits=1, same=False):
    """Clipped linear losses in one dimension: everyone is at -1, in world 1 one is at +1.

    All runs of a block at once.  `noise` and `outlier` multiply what they should be, the example
    is in `visits` batches of each epoch, and `same` noise is that of every run.
    """
    count = 1 if same else len(seeds)
    rng = np.random.default_rng(7 if same else seeds)
    size = RUN.batches.batch_size
    x = np.zeros(count)
    for k in range(RUN.steps):
        seen = k % LENGTH >= LENGTH - visits
        gradient = -1.0 + seen * world * (1.0 + outlier) / size
        x -= RUN.step_size * (gradient + noise * RUN.noise_std * rng.normal(size=count))
    x += noise * RUN.release_noise_std * rng.normal(size=count)
    return np.broadcast_to(x, len(seeds))


def true_mu(*, noise=1.0, outlier=1.0, visits=1):
    """Of these runs: two Gaussians with known means and variance."""
    gap = EPOCHS * visits * (1.0 + outlier) / RUN.batches.batch_size
    variance = RUN.steps * RUN.noise_std**2 + RUN.release_noise_std**2
    return gap / (noise * math.sqrt(variance))


def quieter(run, times):
    less = run.release_noise_std / times
    return run.replace(noise_std=run.noise_std / times, release_noise_std=less)


BROKEN = {
    "noise 20 % too small": {"noise": 0.8},
    "clipping switched off for an outlier": {"outlier": 3.0},
    "an example visited twice an epoch": {"visits": 2},
}


class TestBrokenTrainers:
    @pytest.mark.parametrize("what", BROKEN)
    def test_are_caught_with_this_power(self, what):
        rate = float(ndtr(-true_mu(**BROKEN[what]) / 2))
        assert power(rate, rate, REPORT, runs=RUNS // 2, confidence=0.99) > 0.999
        trainer = functools.partial(simulated, **BROKEN[what])
        verdict = empirical.audit(trainer, REPORT, runs=RUNS)
        assert verdict.refuted
        assert "REFUTED at 99" in str(verdict)
        assert REPORT.gdp() < verdict.gdp() < true_mu(**BROKEN[what])

    def test_the_same_noise_in_every_run_is_caught_for_certain(self):
        assert power(0.0, 0.0, REPORT, runs=100) == 1.0
        assert empirical.audit(functools.partial(simulated, same=True), REPORT, runs=200).refuted

    def test_a_claim_that_is_too_small_is_caught(self):
        claim = Claim(0.5, 1e-5)
        rate = float(ndtr(-true_mu() / 2))
        assert power(rate, rate, claim, runs=2_000) > 0.999
        assert empirical.audit(simulated, claim, runs=4_000).refuted

    def test_what_differs_in_one_of_many_directions(self):
        def trainer(world, seeds):
            noise = np.random.default_rng(seeds).normal(size=(len(seeds), 5))
            return noise @ np.diag([9.0, 1.0, 0.1, 1.0, 3.0]) + 0.2 * world * np.eye(5)[2]

        assert empirical.audit(trainer, GaussianProfile(1.5)).refuted
        assert not empirical.audit(trainer, GaussianProfile(2.0)).refuted


class TestHonestTrainer:
    def test_is_not_flagged_in_fifty_repetitions(self):
        """Held against exactly what it is, the least that is true of it."""
        true = GaussianProfile(true_mu())
        assert true_mu() < REPORT.gdp() < 1.04 * true_mu()
        for seed in range(50):
            verdict = empirical.audit(simulated, true, runs=2_000, seed=seed)
            assert not verdict.refuted
            assert verdict.gdp() < true_mu()

    def test_power_is_at_most_the_level_where_the_certificate_is_true(self):
        rate = float(ndtr(-0.5))
        assert power(rate, rate, GaussianProfile(1.0), runs=1_000) < 0.01


class TestEvidence:
    @pytest.mark.parametrize("rate", [0.001, 0.1, 0.5, 0.97])
    def test_limits_are_rarely_below_the_rate(self, rate):
        counts = np.arange(301.0)
        wrong = upper_limits(counts, 300, 0.99) < rate
        assert binom.pmf(counts, 300, rate)[wrong].sum() <= 0.01 + 1e-12

    def test_power_is_the_chance_of_a_refutation(self):
        certificate, runs = GaussianProfile(0.8), 60
        pmf = [binom.pmf(np.arange(runs + 1), runs, rate) for rate in (0.2, 0.3)]
        expected = sum(
            pmf[0][h] * pmf[1][m]
            for h in range(40)
            for m in range(45)
            if Evidence(runs, h, m, 0.99).limits[1]
            < certificate.tradeoff(Evidence(runs, h, m, 0.99).limits[0])
        )
        assert power(0.2, 0.3, certificate, runs=runs) == pytest.approx(expected, abs=1e-6)

    def test_no_runs_prove_nothing(self):
        assert Evidence(10, 10, 10, 0.99).lower.epsilon(0.0) == 0.0


class Interrupted(Exception):
    pass


def interrupted_after(blocks):
    """The trainer, and how many blocks it made, which end with an interruption."""
    made = []

    def trainer(world, seeds):
        if len(made) == blocks:
            raise Interrupted
        made.append((world, int(seeds[0])))
        return simulated(world, seeds)

    return trainer, made


class TestResuming:
    settings = MappingProxyType({"runs": 1_000, "block": 100, "name": "simulated"})

    @pytest.mark.parametrize("cut", [0, 1, 40])
    def test_a_killed_audit_gives_the_same_result(self, tmp_path, cut):
        """`cut`: how many characters of the last line were not written any more."""
        file = tmp_path / "audit.jsonl"
        whole = empirical.audit(simulated, REPORT, **self.settings)
        trainer, first = interrupted_after(7)
        with pytest.raises(Interrupted):
            empirical.audit(trainer, REPORT, file=file, **self.settings)
        text = file.read_text()
        file.write_text(text[: len(text) - cut])
        trainer, second = interrupted_after(100)
        assert empirical.audit(trainer, REPORT, file=file, **self.settings) == whole
        assert len(first) + len(second) == 20 + (cut > 0)
        again, made = interrupted_after(0)
        assert empirical.audit(again, REPORT, file=file, **self.settings) == whole
        assert not made

    # Processes are started anew, and import all.
    @pytest.mark.parametrize("kind", ["threading", pytest.param("loky", marks=pytest.mark.slow)])
    def test_workers_do_not_matter(self, tmp_path, kind):
        file = tmp_path / "audit.jsonl"
        whole = empirical.audit(simulated, REPORT, **self.settings)
        with joblib.parallel_config(backend=kind):
            assert empirical.audit(simulated, REPORT, jobs=2, file=file, **self.settings) == whole
        assert len(file.read_text().splitlines()) == 21

    @pytest.mark.parametrize("runs", [900, 1_150, 1_200, 330])
    def test_more_runs_go_on_from_there(self, tmp_path, runs):
        file = tmp_path / "audit.jsonl"
        empirical.audit(simulated, REPORT, file=file, **self.settings)
        settings = dict(self.settings, runs=runs)
        trainer, made = interrupted_after(100)
        found = empirical.audit(trainer, REPORT, file=file, **settings)
        assert found == empirical.audit(simulated, REPORT, **settings)
        missing = sum(k >= 10 or (k + 1) * 100 > runs for k in range(-(-runs // 100)))
        assert len(made) == 2 * missing

    @pytest.mark.parametrize("change", [{"block": 90}, {"seed": 1}, {"name": "other"}])
    def test_another_audit_is_refused(self, tmp_path, change):
        file = tmp_path / "audit.jsonl"
        empirical.audit(simulated, REPORT, file=file, **self.settings)
        with pytest.raises(InvalidParameter, match="same audit"):
            empirical.audit(simulated, REPORT, file=file, **dict(self.settings, **change))

    def test_a_file_of_something_else_is_refused(self, tmp_path):
        file = tmp_path / "audit.jsonl"
        file.write_text("hello\n")
        with pytest.raises(InvalidParameter, match="one JSON object a line"):
            empirical.audit(simulated, REPORT, file=file)
        assert file.read_text() == "hello\n"


class TestRefusals:
    @pytest.mark.parametrize(
        "trainer, certificate, how, says",
        [
            (lambda world, seeds: np.full(len(seeds), np.nan), REPORT, {}, "not finite"),
            (lambda world, seeds: np.zeros(len(seeds) + 1), REPORT, {}, "a row for each"),
            *((simulated, REPORT, {"confidence": c}, "confidence must") for c in (0, 1, math.nan)),
            (simulated, 1.0, {}, "certificate must be"),
        ],
    )
    def test_say_what_is_wrong(self, trainer, certificate, how, says):
        with pytest.raises(li.LastIterateError, match=says):
            empirical.audit(trainer, certificate, **how)


class TestTrainers:
    def test_estimators_are_fitted_on_their_worlds(self):
        rows = np.random.default_rng(0).normal(size=(60, 2))
        canary = rows.copy(), rows[:, 0].copy()
        canary[0][0], canary[1][0] = (0.0, 1.0), 100.0

        def make(seed):
            return PrivateRidge(
                epsilon=5.0, delta=1e-3, epochs=1, random_state=seed, target_bound=1.0
            )

        trainer = empirical.fits(make, (rows, rows[:, 0]), canary)
        seeds = np.array([5, 6], dtype=np.uint64)
        released = [trainer(world, seeds) for world in (0, 1)]
        direct = make(6).fit(*canary)
        assert released[1][1].tolist() == [*np.ravel(direct.coef_), direct.intercept_]
        assert released[0].shape == (2, 3)
        assert (released[0] != released[1]).any(axis=1).all()

    def test_one_at_a_time(self):
        trainer = empirical.one_at_a_time(lambda world, seed: [world, seed])
        assert trainer(1, np.array([5, 6], dtype=np.uint64)).tolist() == [[1, 5], [1, 6]]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    rows = np.random.default_rng(0).normal(size=(200, 2))
    model = PrivateLogisticRegression(
        epsilon=3.0, delta=1e-3, epochs=1, batches="cyclic", batch_size=100
    )
    file = tmp_path_factory.mktemp("model") / "certificate.json"
    file.write_text(model.fit(rows, rows[:, 0] > 0).certificate_)
    return file


class TestCommand:
    def test_the_librarys_trainer_is_not_refuted(self, capsys, tmp_path, certificate):
        record = tmp_path / "audit.jsonl"
        given = ["audit", "--certificate", str(certificate), "--runs", "40"]
        assert main([*given, "--record", str(record)]) == 0
        said = capsys.readouterr().out
        assert "not refuted" in said
        assert "mu < 0\n" not in said
        assert main([*given, "--record", str(record)]) == 0
        assert capsys.readouterr().out == said
        kept = [json.loads(line) for line in record.read_text().splitlines()]
        assert sum(len(one.get("outputs", ())) for one in kept) == 80

    def test_with_a_third_of_the_noise_it_is(self, capsys, monkeypatch, certificate):
        honest = certified_trainers.noisy_descent

        def quiet(run, *rest):
            return honest(quieter(run, 3), *rest)

        monkeypatch.setattr(certified_trainers, "noisy_descent", quiet)
        assert main(["audit", "--certificate", str(certificate), "--runs", "100"]) == 1
        assert "REFUTED" in capsys.readouterr().out

    @pytest.mark.parametrize(
        "given, message",
        [
            ([], "--certificate must be given; found neither"),
            (["--certificate", "missing.json"], "found 'missing.json', which is neither"),
            (["--model", "m.json", "--certificate", "c.json"], "found both"),
            (["--certificate", None, "--runs", "2"], "runs must be"),
        ],
    )
    def test_bad_input(self, capsys, certificate, given, message):
        assert main(["audit", *(str(word or certificate) for word in given)]) == 2
        assert message in capsys.readouterr().err

    @pytest.mark.parametrize("batches", [slow("balls-and-bins"), "balls-and-bins-each-epoch"])
    def test_examples_that_pick_their_batch(self, batches):
        """Not refuted as it is certified; with a tenth of the noise in truth, refuted."""
        rows = np.random.default_rng(0).normal(size=(40, 2))
        model = PrivateRidge(
            target_bound=1.0, epsilon=3.0, delta=1e-3, batches=batches, batch_size=20, epochs=1
        )
        trainer, report = certified_trainer(model.fit(rows, rows[:, 0]).certificate_)
        assert not empirical.audit(trainer, report, runs=50).refuted
        false = type(trainer)(quieter(trainer.run, 10), trainer.objective, trainer.radius)
        assert empirical.audit(false, report, runs=50).refuted

    @pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
    def test_the_pair_is_as_far_apart_as_the_run_says(self, adjacency):
        """The first step of a regression: the means differ by eta L / b."""
        rows = np.random.default_rng(0).normal(size=(50, 2))
        model = PrivateRidge(
            target_bound=1.0, epsilon=1.0, delta=1e-3, batches="full", adjacency=adjacency
        )
        trainer, report = certified_trainer(model.fit(rows, rows[:, 0]).certificate_)
        run = report.run.replace(steps=1)
        one = type(trainer)(run, trainer.objective, trainer.radius)
        seeds = np.arange(3, dtype=np.uint64)
        gap = np.abs(one(1, seeds) - one(0, seeds))
        expected = run.step_size * run.sensitivity / run.batches.batch_size
        assert gap == pytest.approx(expected, rel=1e-5)


HUBER = Huber(clip=1.0)
LOSS = HUBER.loss(radius=1.0, l2=1.0)
LEARNT = li.TrainingRun(
    loss=LOSS,
    sensitivity=HUBER.sensitivity(radius=1.0, adjacency="zero-out"),
    batches=li.Cyclic(4, 2), steps=4, step_size=0.5, noise_std=0.1, adjacency="zero-out",
)  # fmt: skip
PROMISED = li.unlearning(LEARNT, extra_steps=2)
HONEST = OwnUnlearner((LEARNT, LEARNT.replace(steps=2)), HUBER, 1.0)


@dataclass(frozen=True)
class KeepsTheRows(OwnUnlearner):
    """To the end, in world 1."""

    def __call__(self, world, seeds):
        data = [self.data(used=world == 1)] * len(self.stages)
        return np.array([self._released_numbers(data, int(seed)) for seed in seeds])


FORGETFUL = {
    "no extra steps": KeepsTheRows((LEARNT,), HUBER, 1.0),
    "half the noise": OwnUnlearner(tuple(quieter(run, 2) for run in HONEST.stages), HUBER, 1.0),
    "rows still used": KeepsTheRows(HONEST.stages, HUBER, 1.0),
}


class TestUnlearningExactly:
    def test_quadratics_attain_what_is_certified(self):
        for many, release in ((1, 0.0), (2, 0.0), (1, 0.2)):
            run = LEARNT.replace(batches=li.FullBatch(4), release_noise_std=release)
            found = li.unlearning(run, extra_steps=3, examples=many)
            true = exact.curve(quadratics(found)).epsilon(1e-5)
            assert true.upper <= found.epsilon(1e-5) * (1 + 1e-6)
            assert true.lower >= found.epsilon(1e-5) * (1 - 1e-6)

    def test_batches_are_bounded(self):
        true = exact.curve(quadratics(PROMISED)).epsilon(1e-5)
        assert 0.99 * PROMISED.epsilon(1e-5) <= true.upper <= PROMISED.epsilon(1e-5) * (1 + 1e-9)

    def test_the_broken_are_found_out(self):
        skipped = exact.curve(quadratics(li.unlearning(LEARNT, extra_steps=0)))
        assert skipped.epsilon(1e-5).lower > 1.5 * PROMISED.epsilon(1e-5)
        loud = exact.curve(quadratics(li.unlearning(quieter(LEARNT, 2), extra_steps=2)))
        assert loud.epsilon(1e-5).lower > 1.5 * PROMISED.epsilon(1e-5)


@pytest.mark.parametrize("what", FORGETFUL)
def test_broken_unlearners_are_caught_by_their_runs(what):
    verdict = empirical.audit(FORGETFUL[what], PROMISED, runs=250)
    assert verdict.refuted
    assert "REFUTED at 99" in str(verdict)


@pytest.mark.parametrize("repetitions, runs", [(1, 200), slow(50, 400)])
def test_the_honest_unlearner_is_not_flagged(repetitions, runs):
    for seed in range(repetitions):
        verdict = empirical.audit(HONEST, PROMISED, runs=runs, seed=seed)
        assert not verdict.refuted
        assert verdict.gdp() <= PROMISED.gdp()


@pytest.fixture(scope="module")
def models():
    X = np.random.default_rng(0).normal(size=(40, 1)) / 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = PrivateHuberRegressor(
            epsilon=3.0, batches="cyclic", batch_size=20, epochs=3, l2=0.5, center=False,
            counting=0.0, target_range=(-1, 1), random_state=0,
        ).fit(X, X[:, 0], key=bytes(32))  # fmt: skip
        first = model.unlearn(X, X[:, 0], rows=[3], extra_steps=1, key=bytes(32))
        return model, first.unlearn(X, X[:, 0], rows=[5, 6], extra_steps=2, key=bytes(32))


@pytest.mark.filterwarnings("ignore::lastiterate.errors.PrivacyWarning")
class TestUnlearningCertificates:
    def test_say_what_to_run(self, models):
        unlearner, promised = trainer_of_certificate(models[1].certificate_)
        assert [run.steps for run in unlearner.stages] == [models[0].n_iter_, 1, 2]
        assert (unlearner.examples, promised.extra_steps) == (2, 2)
        assert unlearner.data(used=False).silent.sum() == 2
        assert not empirical.audit(unlearner, promised, runs=60).refuted

    def test_of_a_training_are_of_the_trainer(self, models):
        trainer, promised = trainer_of_certificate(models[0].certificate_)
        assert isinstance(trainer, OwnTrainer)
        assert promised.gdp() == models[0].privacy_.gdp()

    def test_the_command_audits_what_was_done_last(self, models, tmp_path, capsys):
        path = tmp_path / "certificate.json"
        path.write_text(models[1].certificate_)
        assert main(["audit", "--certificate", str(path), "--runs", "40"]) == 0
        assert "never having seen" in capsys.readouterr().out
