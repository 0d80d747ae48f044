"""Models that are made to forget: their certificates, and what is refused."""

import json
import math
import pickle
from dataclasses import replace

import numpy as np
import pytest

import lastiterate as li
from lastiterate.certificate.issue import with_digest
from lastiterate.certificate.verify import verified_certificate
from lastiterate.errors import BudgetExceeded, InvalidCertificate, PrivacyWarning
from lastiterate.linear_model import (
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
)
from lastiterate.linear_model import unlearn as unlearn_rows
from lastiterate.linear_model.unlearn import model_history
from lastiterate.profile.rounded import gdp_but_for_failure
from lastiterate.train.noise import randomness
from lastiterate.train.noisy_descent import Published, noisy_descent

KEY = bytes(range(32))
X = np.random.default_rng(0).normal(size=(600, 3)) / 2
Y = X[:, 0] > 0.0
QUICK = {"batches": "cyclic", "batch_size": 100, "epochs": 4, "l2": 0.1}
ALONE = {"center": False, "counting": 0.0}


def fitted(**others):
    settings = {"epsilon": 2.0, "random_state": 1, **QUICK, **ALONE, **others}
    return PrivateLogisticRegression(**settings).fit(X, Y, key=KEY)


@pytest.fixture(scope="module")
def model():
    return fitted()


@pytest.fixture(scope="module")
def forgotten(model):
    return model.unlearn(X, Y, rows=[17, 203], epsilon=0.5, key=KEY)


@pytest.fixture(scope="module")
def twice(forgotten):
    return forgotten.unlearn(X, Y, rows=[5], epsilon=0.5, key=KEY)


def changed(certificate, change):
    record = json.loads(certificate)
    change(record)
    return with_digest(record)


@pytest.mark.filterwarnings("ignore::lastiterate.errors.PrivacyWarning")
class TestAnUnlearnedModel:
    def test_has_what_its_steps_promise(self, model, forgotten):
        """By hand: one run in which the two rows take part in the first steps only."""
        run = model.privacy_.run
        steps = run.steps + forgotten.unlearning_.extra_steps
        last = range(run.batches.batches_per_epoch, run.steps + 1, run.batches.batches_per_epoch)
        order = li.FixedOrder(600, 100, positions=last)
        whole = run.replace(
            batches=order, steps=steps, adjacency="zero-out", sensitivity=run.sensitivity
        )
        # Two rows at half of what replacing one may move; the first release's noise is not used.
        certified = li.account(whole).epsilon(1e-5)
        assert forgotten.unlearning_.epsilon(1e-5) <= 0.5
        assert forgotten.unlearning_.epsilon(1e-5) <= certified

    def test_takes_the_fewest_steps(self, model, forgotten):
        steps = forgotten.unlearning_.extra_steps
        assert steps > 1
        fewer = model.plan_unlearning(2, extra_steps=steps - 1)
        assert fewer.epsilon(1e-5) > 0.5
        assert model.plan_unlearning([17, 203], epsilon=0.5).extra_steps == steps

    def test_leaves_the_first_as_it_was(self, model, forgotten):
        assert not np.array_equal(model.parameters_, forgotten.parameters_)
        assert not hasattr(model, "unlearning_")
        assert li.verify(model.certificate_, parameters=model.parameters_).followed is None

    def test_goes_on_from_what_was_published_without_the_removed(self, model, forgotten):
        """The removed rows' content is not used: others in their place change nothing but checks.

        Noise is seeded, so that the same steps give the same parameters.
        """
        other = X.copy()
        other[[17, 203]] = -9.0
        examples = model._fit_inputs(other, Y).examples
        silent = np.isin(np.arange(600), [17, 203])
        requests, after = (model_history(one).requests for one in (model, forgotten))
        seed = np.random.SeedSequence([1]).spawn(1)[-1].generate_state(1)[0]
        again = noisy_descent(
            after.extra_run(after.done[-1].taken),
            requests.objective,
            replace(examples, silent=silent),
            randomness(int(seed)),
            Published(model.parameters_, requests.run.steps),
        )
        assert np.array_equal(again, forgotten.parameters_)

    def test_charges_those_who_stay_for_every_model(self, model, forgotten, twice):
        told = [one.privacy_.epsilon(1e-5) for one in (model, forgotten, twice)]
        assert told == sorted(told)
        extra = model.privacy_.run.replace(steps=forgotten.unlearning_.extra_steps)
        worst = math.hypot(gdp_but_for_failure(model.privacy_), li.account(extra).gdp())
        before, after = map(gdp_but_for_failure, (model.privacy_, forgotten.privacy_))
        assert before <= after < worst
        assert "1 unlearning request" in str(forgotten.privacy_)

    def test_tells_those_who_hold_it_alone_no_more(self, forgotten, twice):
        for one in (forgotten, twice):
            alone, every = (p.epsilon(1e-5) for p in (one.privacy_of_newest_, one.privacy_))
            assert alone <= every

    def test_takes_fewer_steps_where_its_release_is_noisier(self, model):
        plain, noisier = (
            model.plan_unlearning(2, epsilon=0.1, noisier=times) for times in (1.0, 4.0)
        )
        assert noisier.extra_steps < plain.extra_steps
        assert noisier.epsilon(1e-5) <= 0.1
        new = model.unlearn(X, Y, rows=[17, 203], epsilon=0.1, noisier=4.0, key=KEY)
        found = verified_certificate(new.certificate_, parameters=new.parameters_).requests
        released = model.privacy_.run.release_noise_std
        assert found.done[-1].taken.release_noise_std == 4.0 * released > 0.0
        assert found.request_guarantee(0).epsilon(1e-5) == noisier.epsilon(1e-5)

    def test_of_every_kind(self):
        for kind, targets, more in (
            (PrivateLinearSVC, Y, {}),
            (PrivateRidge, X[:, 0], {"target_range": (-1, 1)}),
            (PrivateHuberRegressor, X[:, 0], {"target_range": (-1, 1)}),
            (PrivateLogisticRegression, np.digitize(X[:, 0], [-0.3, 0.3]), {"classes": [0, 1, 2]}),
        ):
            one = kind(**QUICK, **more).fit(X, targets, key=KEY)
            new = one.unlearn(X, targets, rows=[3], epsilon=0.9, key=KEY)
            assert li.verify(new.certificate_, parameters=new.parameters_).followed[1] == 1
            assert new.predict(X).shape == (600,)

    def test_what_stays_published_is_charged(self):
        model = PrivateLogisticRegression(**QUICK).fit(X, Y, key=KEY)
        assert [one.kind for one in model.privacy_.other_releases] == ["mean", "outliers"]
        floor = math.hypot(
            *(
                k / one.noise_std
                for k, one in zip((1.25**0.5, 2**0.5), model.privacy_.other_releases, strict=True)
            )
        )
        most = model.plan_unlearning(1, extra_steps=10**6)
        assert gdp_but_for_failure(most) == pytest.approx(floor, rel=1e-6)
        with pytest.raises(li.UnreachableTarget, match=r"mean and outliers.*stay published"):
            model.plan_unlearning(20, epsilon=0.5)


class TestChains:
    def test_are_checked_from_the_first_to_the_last(self, twice):
        found = verified_certificate(twice.certificate_, parameters=twice.parameters_)
        assert [one.examples for one in found.requests.done] == [2, 1]
        assert gdp_but_for_failure(
            found.requests.current_request_guarantee(0)
        ) < gdp_but_for_failure(found.requests.request_guarantee(0))
        each = [gdp_but_for_failure(found.requests.current_request_guarantee(k)) for k in (0, 1)]
        joint = gdp_but_for_failure(found.requests.joint_request_guarantee)
        assert joint == pytest.approx(sum(each))

    def test_never_hold_the_key_or_a_row_number(self, twice):
        record = json.loads(twice.certificate_)
        assert KEY.hex() not in twice.certificate_
        removed = [one["unlearning"]["removed"] for one in (record["earlier"][1], record)]
        assert [len(one) for one in removed] == [2, 1]
        assert KEY not in pickle.dumps(twice)

    @pytest.mark.parametrize(
        "change, reason",
        [
            (lambda r: r["earlier"].pop(0), "does not come with it"),
            (lambda r: r["earlier"].pop(1), "does not follow"),
            (lambda r: r["earlier"][1]["run"].update(steps=99), "digest of what request 2"),
            (lambda r: r["unlearning"]["guarantee"].update(epsilon=0.1), "states epsilon 0.1"),
            (lambda r: r["unlearning"]["guarantee"].update(examples=2), "number of examples"),
            (lambda r: r["unlearning"]["guarantee"].update(delta=1e-12), "steps give"),
            (lambda r: r["run"].update(noise_std=9.0), "unlike the training's"),
            (lambda r: r["guarantee"].update(epsilon=1.0), "states epsilon 1.0, but the run"),
            (lambda r: r["unlearning"].update(removed=[]), "removes no rows"),
            (
                lambda r: r["unlearning"].update(
                    removed=r["earlier"][1]["unlearning"]["removed"][:1]
                ),
                "some twice",
            ),
            (lambda r: r["unlearning"].update(promised="all"), "what is promised"),
            (lambda r: r.pop("data"), "another training"),
            (lambda r: r.pop("unlearning"), "not a training and its requests"),
            (lambda r: r["unlearning"]["guarantee"].update(epsilon=math.nan), "NaN is no number"),
        ],
    )
    def test_that_were_tampered_with_are_refused(self, twice, change, reason):
        with pytest.raises(InvalidCertificate, match=reason):
            li.verify(changed(twice.certificate_, change))

    def test_of_another_model(self, twice, forgotten):
        with pytest.raises(InvalidCertificate, match="another model"):
            li.verify(twice.certificate_, parameters=forgotten.parameters_)


class TestRefusals:
    """Each before anything is done; the model is as it was."""

    def refused(self, model, match, X=X, y=Y, error=li.InvalidParameter, **asked):
        before = model.certificate_
        given = {"rows": [4], "epsilon": 0.5, "key": KEY} | asked
        with pytest.raises(error, match=match):
            model.unlearn(X, y, **given)
        assert model.certificate_ == before

    def test_rows(self, model, forgotten):
        self.refused(model, r"rows must be .* \[0, 599\]; got rows=600", rows=[600])
        self.refused(model, "got rows=-1", rows=[-1])
        self.refused(model, "row 7 twice", rows=[7, 7])
        self.refused(model, "at least one", rows=[])
        self.refused(model, "sequence", rows="17")
        self.refused(model, "whole number", rows=[1.5])
        self.refused(model, "all rows that were left", rows=range(600))
        self.refused(forgotten, "row 203 .counted from 0., removed before", rows=[1, 203])

    def test_other_data(self, model):
        moved = X.copy()
        moved[9, 1] += 1e-12
        for rows, targets in (
            (moved, Y),
            (X[::-1], Y[::-1]),
            (X[:-1], Y[:-1]),
            (X, ~Y),
            (X.astype(np.float32), Y),
        ):
            self.refused(model, "data and key must be those of the training", X=rows, y=targets)

    def test_another_key(self, model):
        self.refused(model, "the same secret key", key=KEY[::-1])
        self.refused(model, "16 to 64 bytes", key=b"short")
        self.refused(model, "a secret of", key=17)

    def test_other_settings(self):
        model = fitted()
        model.set_params(feature_bound=2.0)
        self.refused(model, "settings and data")

    def test_targets(self, model):
        self.refused(model, "epsilon", epsilon=0.0)
        self.refused(model, "epsilon", epsilon=math.nan)
        self.refused(model, "delta", delta=1.0)
        self.refused(model, "both", extra_steps=3)
        self.refused(model, "neither", epsilon=None)
        self.refused(model, r"noisier must be .*1", noisier=0.5)

    @pytest.mark.filterwarnings("ignore:(too few examples for|no coefficient has)")
    @pytest.mark.parametrize(
        "settings, said",
        [
            ({"intervals": True}, "intervals=False"),
            ({"rate_matching": 0.1}, "rate_matching=0 and"),
            ({"batches": "balls-and-bins"}, "batches of one size"),
        ],
    )
    def test_models_with_other_settings(self, settings, said):
        one = PrivateLogisticRegression(**QUICK | ALONE | settings).fit(X, Y, key=KEY)
        self.refused(one, said)

    def test_weights_of_rows(self):
        with pytest.raises(li.InvalidParameter, match="key must be left out with sample_weight"):
            PrivateLogisticRegression().fit(X, Y, sample_weight=np.full(600, 0.5), key=KEY)

    def test_models_fitted_without_a_key(self):
        bare = PrivateLogisticRegression(**QUICK, **ALONE).fit(X, Y)
        self.refused(bare, "fitted with a key")

    def test_a_damaged_certificate(self):
        model = fitted()
        model.certificate_ = model.certificate_.replace('"delta": 1e-05', '"delta": 1e-06')
        self.refused(model, "digest", error=InvalidCertificate)

    @pytest.mark.filterwarnings("ignore::lastiterate.errors.PrivacyWarning")
    def test_a_label_that_only_they_have(self):
        labels = Y.astype(int)
        labels[4] = 7
        model = PrivateLogisticRegression(**QUICK, **ALONE).fit(X, labels, key=KEY)
        self.refused(model, "only they have", y=labels)


def test_a_ledger_is_charged_before_and_refuses(tmp_path):
    book = li.Ledger(tmp_path / "ledger", epsilon=1.6, delta=1e-5)
    model = PrivateLogisticRegression(**QUICK, **ALONE, ledger=book).fit(X, Y, key=KEY)
    before = book.spent().epsilon(1e-5)
    new = model.unlearn(X, Y, rows=[4], epsilon=0.9, key=KEY)
    assert book.spent().epsilon(1e-5) > before
    assert book.verify().epsilon(1e-5) == book.spent().epsilon(1e-5)
    with pytest.raises(li.InvalidParameter, match="unlearn"):
        book.add(new.certificate_)
    refused = 0
    for row in range(5, 50):
        try:
            new = new.unlearn(X, Y, rows=[row], epsilon=0.9, key=KEY)
        except BudgetExceeded:
            refused += 1
            break
    assert refused


def test_what_is_dearer_than_a_training_is_refused_before_any_step(tmp_path):
    book = li.Ledger(tmp_path / "ledger", epsilon=50.0, delta=1e-5)
    slow = fitted(l2=0.0, ledger=book, random_state=None)
    asked = {"rows": [17], "epsilon": 0.3, "key": KEY}
    assert slow.plan_unlearning(1, epsilon=0.3).share_of_training >= 1.0
    spent = book.spent().epsilon(1e-5)
    with pytest.raises(li.InvalidParameter, match=r"at_any_cost .*l2=0.01.*% of a training"):
        slow.unlearn(X, Y, **asked)
    assert book.spent().epsilon(1e-5) == spent
    with pytest.warns(PrivacyWarning, match="train again"):
        new = slow.unlearn(X, Y, **asked, at_any_cost=True)
    assert new.unlearning_.epsilon(1e-5) <= 0.3
    assert book.spent().epsilon(1e-5) > spent


def test_what_is_dearer_than_a_training_is_warned_of(model):
    with pytest.warns(PrivacyWarning, match=r"100 % of\s+a training.*train again"):
        model.unlearn(X, Y, rows=[17], extra_steps=model.n_iter_, key=KEY)


@pytest.mark.filterwarnings("ignore::lastiterate.errors.PrivacyWarning")
class TestArithmetic:
    @pytest.mark.parametrize("planned", [False, True])
    def test_is_in_every_guarantee_that_is_shown(self, model, forgotten, planned):
        """Of the training, of the new model alone, and of both."""
        found = model.plan_unlearning(2, epsilon=0.5) if planned else forgotten.unlearning_
        exact = li.unlearning(
            found.run,
            extra_steps=found.extra_steps,
            examples=2,
            release_noise_std=found.extra.release_noise_std,
            batches=found.run.batches,
        )
        mu = found.report.rounding.mu
        for name in ("before", "retained", "both_published"):
            computed, ideal = getattr(found, name), getattr(exact, name)
            assert computed.epsilon(1e-5) > ideal.epsilon(1e-5) + 6.0 * mu
            assert computed.epsilon(1e-40) == math.inf > ideal.epsilon(1e-40)
        assert "rounding of training and extra steps is included" in str(found)
        assert "rounding of floats is not included" in str(exact)

    @pytest.mark.parametrize("trained, now", [("proved", "fast"), ("fast", "proved")])
    def test_is_that_of_the_training_whatever_is_set_now(self, monkeypatch, trained, now):
        model, used = fitted(arithmetic=trained), []
        usual = unlearn_rows.noisy_descent

        def noted(run, objective, examples, *rest):
            used.append(examples.arithmetic)
            return usual(run, objective, examples, *rest)

        monkeypatch.setattr(unlearn_rows, "noisy_descent", noted)
        model.arithmetic = now
        gone = model.unlearn(X, Y, rows=[3], extra_steps=5, key=KEY)
        assert used == [trained]
        charged = json.loads(gone.certificate_)["arithmetic"]
        assert ("mu" in charged) == (trained == "proved")
        li.verify(gone.certificate_, parameters=gone.parameters_)
