"""Reports of every kind, and what a reader of each must be told beside its number."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import lastiterate as li
from lastiterate.accounting import PrivacyReport
from lastiterate.certificate.fields import CLUSTER
from lastiterate.certificate.issue import issue
from lastiterate.certificate.verify import verified_certificate
from lastiterate.errors import PrivacyWarning
from lastiterate.linear_model import PrivateLogisticRegression, PrivateScore, PrivateSelection
from lastiterate.train.data import bounded
from lastiterate.train.defaults import default_run
from lastiterate.train.noise import SECURE
from lastiterate.train.objectives import Logistic
from lastiterate.train.settings import RunSettings

X = np.random.default_rng(0).normal(size=(400, 3)) / 3.0
Y = X[:, 0] > 0.0
KEY = b"k" * 32
ALONE = {"center": False, "counting": 0.0}
RUN = li.TrainingRun(
    loss=li.Loss(smoothness=1.0, strong_convexity=0.1, lipschitz=1.0),
    sensitivity=2.0, batches=li.ShuffledOnce(examples=400, batch_size=100), steps=12, step_size=0.5,
    noise_std=0.2,
)  # fmt: skip
ORDER = "order of the batches"
PERSONS = "person, at most 3,"
SEED = "knows the seed"
COUNTS = "counts of"
SCORE = "accuracy|correct predictions"
REQUESTS = "2 unlearning requests followed"
TRIES = "the best of a secret number of tries"
SCALER = "StandardScaler"
ON_CLUSTER = "workers and scheduler saw rows"


@dataclass(frozen=True)
class Kind:
    """A report, what must be said of it, its certificate, and what its words are in a `repr`."""

    made: Callable[[], tuple[PrivacyReport, str | None]]
    said: tuple[str, ...] = ()
    in_short: tuple[str, ...] = ()

    @functools.cached_property
    def report(self) -> PrivacyReport:
        return self.made()[0]


def fitted(**settings):
    usual = {"epsilon": 1.0, "batches": "cyclic", "batch_size": 100, "epochs": 2}
    usual |= {"feature_bound": 1.0, "classes": [False, True]}
    return PrivateLogisticRegression(**usual | settings)


def of_run(run):
    return functools.cache(lambda: (li.account(run), None))


def left_out(run):
    return run.replace(adjacency="zero-out", sensitivity=1.0)


def of_model(**settings):
    def made():
        model = fitted(**settings).fit(X, Y)
        return model.privacy_, model.certificate_

    return functools.cache(made)


def behind_a_scaler(**settings):
    """As the last step of a pipeline whose first step learns from the same examples."""

    def made():
        model = fitted(**ALONE, **settings)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)
            make_pipeline(StandardScaler(), model).fit(X, Y)
        return model.privacy_, model.certificate_

    return functools.cache(made)


def unlearned(**settings):
    def made():
        model = fitted(**settings).fit(X, Y, key=KEY)
        for row in (3, 4):
            model = model.unlearn(X, Y, rows=[row], extra_steps=4, key=KEY)
        return model.privacy_, model.certificate_

    return functools.cache(made)


def selected(**settings):
    def made():
        grid = {"l2": [0.0, 0.1]}
        chosen = PrivateSelection(fitted(**settings), grid, epsilon=1.0, tries=1.5).fit(X, Y)
        return chosen.privacy_, chosen.certificate_

    return functools.cache(made)


def scored(made):
    """With a score that is published afterwards."""

    def more():
        model = fitted(**ALONE, examples_per_person=3).fit(X, Y)
        score = PrivateScore.of(model, X, Y, epsilon=0.5)
        return score.joint_report(made()[0]), None

    return functools.cache(more)


def on_cluster():
    """As a certificate of a cluster's training has it."""
    objective = Logistic()
    rows = bounded(X, Y.astype(float), bound=1.0, intercept=0.125)
    run = default_run(objective, RunSettings(), examples=400, radius=rows.radius)
    told = {"delta": 1e-5, "provenance": SECURE, "trusted": CLUSTER}
    text = issue(li.account(run), objective, rows, np.zeros((1, 4)), **told)
    return verified_certificate(text).report, text


def derived_again(made):
    """The report that follows from the certificate."""

    def again():
        report, certificate = made()
        found = verified_certificate(certificate).report
        assert found.epsilon(1e-5) >= report.epsilon(1e-5) * (1.0 - 1e-9)
        return found, certificate

    return functools.cache(again)


_ALONE, _BESIDE = of_model(**ALONE), of_model()
_SEEDED = of_model(random_state=1)
_GONE, _GONE_TOO = unlearned(**ALONE), unlearned(**ALONE, adjacency="zero-out")
_GONE_SHUFFLED = unlearned(batches="shuffled-once")
_GONE_PERSONS = unlearned(examples_per_person=3, random_state=1)
_CHOSEN, _CHOSEN_PERSONS = selected(), selected(examples_per_person=3)

_PREPROCESSED = behind_a_scaler()

SHORT_PERSONS = ("examples_per_person=3",)
DESCRIBED = {
    "plain": (RUN, ()),
    "order": (RUN.replace(releases="last-iterate-and-order"), (ORDER,)),
    "every iterate": (RUN.replace(releases="every-iterate"), ("after every step",)),
    "persons": (RUN.replace(examples_per_person=3), (PERSONS,), SHORT_PERSONS),
}
DESCRIBED |= {
    f"{name}, left out": (left_out(run), *said) for name, (run, *said) in DESCRIBED.items()
}
KINDS: dict[str, Kind] = {
    **{name: Kind(of_run(run), *said) for name, (run, *said) in DESCRIBED.items()},
    "trained": Kind(_ALONE),
    "trained, left out": Kind(of_model(**ALONE, adjacency="zero-out")),
    "other releases": Kind(_BESIDE, (COUNTS,), ("other_releases",)),
    "other releases, left out": Kind(
        of_model(adjacency="zero-out"), (COUNTS,), ("other_releases",)
    ),
    "other releases, verified": Kind(derived_again(_BESIDE), (COUNTS,), ("other_releases",)),
    "scored persons": Kind(
        scored(of_model(**ALONE, examples_per_person=3)), (SCORE, PERSONS), ("other_releases",)
    ),
    "seeded": Kind(_SEEDED, (SEED, COUNTS), ("seeded",)),
    "seeded, verified": Kind(derived_again(_SEEDED), (SEED, COUNTS), ("seeded",)),
    "cluster": Kind(on_cluster, (ON_CLUSTER,)),
    "unlearned": Kind(_GONE, (REQUESTS,), ("followed",)),
    "unlearned, left out": Kind(_GONE_TOO, (REQUESTS,), ("followed",)),
    "unlearned, verified": Kind(derived_again(_GONE), (REQUESTS,), ("followed",)),
    "unlearned, left out, verified": Kind(derived_again(_GONE_TOO), (REQUESTS,), ("followed",)),
    "unlearned, shuffled": Kind(_GONE_SHUFFLED, (REQUESTS, COUNTS), ("followed", "other_releases")),
    "unlearned, scored": Kind(scored(_GONE), (REQUESTS, SCORE), ("followed", "other_releases")),
    "unlearned persons, seeded": Kind(
        _GONE_PERSONS, (REQUESTS, PERSONS, SEED), ("followed", "seeded", *SHORT_PERSONS)
    ),
    "unlearned persons, seeded, verified": Kind(
        derived_again(_GONE_PERSONS), (REQUESTS, PERSONS, SEED), ("followed", "seeded")
    ),
    "selected": Kind(_CHOSEN, (TRIES, SCORE), ("selected",)),
    "selected, left out": Kind(selected(adjacency="zero-out"), (TRIES, SCORE), ("selected",)),
    "selected, verified": Kind(derived_again(_CHOSEN), (TRIES, SCORE), ("selected",)),
    "selected persons": Kind(_CHOSEN_PERSONS, (TRIES, PERSONS), ("selected",)),
    "preprocessed": Kind(_PREPROCESSED, (SCALER,), ("not including",)),
    "preprocessed, left out": Kind(
        behind_a_scaler(adjacency="zero-out"), (SCALER,), ("not including",)
    ),
    "preprocessed, verified": Kind(derived_again(_PREPROCESSED), (SCALER,), ("not including",)),
    "labels inferred": Kind(
        lambda: (replace(_ALONE()[0], caveats=("Labels inferred.",)), None), ("Labels inferred",)
    ),
}
# Each of these differs from another kind in one thing that is seen elsewhere, too.
SLOW_KINDS = {
    "plain", "order", "every iterate", "persons", "trained", "other releases", "seeded, verified",
    "other releases, left out", "unlearned, left out", "unlearned, verified", "unlearned, shuffled",
    "unlearned persons, seeded, verified", "selected", "selected, left out", "selected persons",
    "preprocessed", "preprocessed, left out",
}  # fmt: skip
