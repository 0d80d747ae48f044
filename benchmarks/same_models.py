"""What seeded models of every estimator publish, for `same_numbers.py`: rows of names and texts.

Parameters, certificates, what follows from them, later unlearning, and the entries of ledgers.
"""

import json
import tempfile
from hashlib import sha256
from itertools import product
from pathlib import Path

import numpy as np
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from scipy import sparse
from sklearn.pipeline import make_pipeline

import lastiterate as li
from lastiterate import features, linear_model

DELTAS = (1e-3, 1e-5, 1e-8)
ISSUED = "as issued"  # the text of a certificate, which is verified anew instead of compared
# What a clock, secret random bits or the version decide, and hashes of these.
PASSING = {"time", "id", "hash", "previous", "software", "digest", "follows"}


def public(module, having):
    """What a module offers to users, by name, as far as it has this attribute."""
    named = {name: getattr(module, name) for name in module.__all__}
    return {name: one for name, one in named.items() if hasattr(one, having)}


RULES = public(li, having="batches_per_epoch")
MODELS = public(linear_model, having="plan_unlearning")
ADJACENCIES = ("replace", "zero-out")
ROWS = np.random.default_rng(0).normal(size=(300, 3))
NUMBERS = ROWS @ [1.0, 0.5, 0.0] + np.random.default_rng(1).normal(size=300) / 4.0
CLASSES = np.digitize(NUMBERS, [-0.5, 0.5])
KEY = b"a key of at least 16 bytes"
SETTINGS = {
    "as it is": {},
    "persons": {"examples_per_person": 2},
    "intervals": {"intervals": True},
    "not centred": {"center": False, "counting": 0.0},
    "penalty": {"l2": 0.1},
    "noise": {"epsilon": None, "noise_std": 0.05},
    "fast": {"arithmetic": "fast"},
    "no intercept": {"fit_intercept": False},
    "clip": {"clip_norm": 0.3},
    "release": {"release_noise_std": 0.1, "batch_size": 30, "epsilon": 4.0},
}
OF_CLASSES = {
    "envelope": {"rate_matching": 0.1},
    "margin": {"clip": "margin"},
    "prior": {"class_prior": {0: 0.2, 1: 0.5, 2: 0.3}},
    "prior, matched": {"class_prior": {0: 0.2, 1: 0.5, 2: 0.3}, "rate_matching": 0.2},
    "fast": {"arithmetic": "fast", "l2": 0.01},
}
PUBLISHED = (
    *("parameters_", "coef_", "intercept_", "classes_", "n_iter_", "center_", "center_bound_"),
    *("feature_bound_", "target_bound_", "outliers_", "undeclared_", "rate_shift_"),
    *("interval_estimate_", "interval_covariance_", "best_params_", "best_score_"),
)


def said(function, *arguments):
    """What a function returns, as text; the kind of its error if it refuses."""
    try:
        found = function(*arguments)
    except li.LastIterateError as error:
        return f"raises {type(error).__name__}"
    return json.dumps(found, default=lambda array: np.asarray(array).tolist())


def epsilons(profile, name):
    for delta in DELTAS:
        yield f"{name} | epsilon at {delta:g}", said(profile.epsilon, delta)


def model_of(kind, **fields):
    """A seeded model of this name, and targets for it."""
    usual = {"random_state": 0, "epsilon": 2.0, "epochs": 4, "feature_bound": 3.0}
    if "target_bound" in MODELS[kind]().get_params():
        return MODELS[kind](**{**usual, "target_bound": 2.0, **fields}), NUMBERS
    return MODELS[kind](**{**usual, **fields}), NUMBERS > 0.0


def lasting(value):
    """A record without what changes from day to day."""
    if isinstance(value, dict):
        return {name: lasting(one) for name, one in value.items() if name not in PASSING}
    return [lasting(one) for one in value] if isinstance(value, list) else value


def of_certificate(text, name):
    record = json.loads(text)
    yield f"{name} | fields", json.dumps([*record])
    for field, value in lasting(record).items():
        yield f"{name} | {field}", json.dumps(value)
    yield f"{name} | {ISSUED}", text
    yield f"{name} | verified", said(lambda: li.verify(text).epsilon(1e-5))


def of_fit(name, model, X, y, **more):
    """What a fit publishes and certifies, and what would come after it."""
    try:
        model.fit(X, y, **more)
    except li.LastIterateError as error:
        yield f"{name} | refused", type(error).__name__
        return
    last = model[-1] if hasattr(model, "steps") else model
    for attribute in PUBLISHED:
        if hasattr(last, attribute):
            yield f"{name} | {attribute}", said(getattr, last, attribute)
    yield from of_certificate(last.certificate_, f"{name} | certificate")
    yield from epsilons(last.privacy_, name)
    for doing in ("predict", "predict_proba"):
        if hasattr(model, doing):
            yield f"{name} | {doing}", said(getattr(model, doing), X[:9])
    if getattr(last, "intervals", False):
        yield f"{name} | intervals", said(last.conf_int)
    if hasattr(last, "plan_unlearning"):
        plan = said(lambda: last.plan_unlearning(2, extra_steps=3).epsilon(1e-5))
        yield f"{name} | unlearning", plan


def fits():
    for kind, adjacency, (name, fields) in product(MODELS, ADJACENCIES, SETTINGS.items()):
        model, y = model_of(kind, adjacency=adjacency, **fields)
        yield from of_fit(f"fit | {kind} | {name}, {adjacency}", model, ROWS, y)
    for rule, adjacency in product(RULES.values(), ADJACENCIES):
        size = None if rule is li.FullBatch else 60
        model, y = model_of(
            "PrivateLogisticRegression", adjacency=adjacency, batches=rule.name, batch_size=size
        )
        yield from of_fit(f"fit | {rule.__name__} | {adjacency}", model, ROWS, y)
    for name, fields in OF_CLASSES.items():
        model, _ = model_of("PrivateLogisticRegression", **fields)
        yield from of_fit(f"fit | three classes | {name}", model, ROWS, CLASSES)
    for kind in MODELS:
        model, y = model_of(kind)
        weights = np.linspace(0.2, 1.0, 300)
        yield from of_fit(f"fit | {kind} | weights", model, ROWS, y, sample_weight=weights)
        rounded = sparse.csr_array(np.round(ROWS))
        yield from of_fit(f"fit | {kind} | sparse", model, rounded, y)
        yield from of_fit(f"fit | {kind} | float32", model, ROWS.astype(np.float32), y)
        yield from of_fit(f"fit | {kind} | key", model, ROWS, y, key=KEY)
        score = linear_model.PrivateScore.of(model, ROWS, y, epsilon=0.5, random_state=1)
        yield f"fit | {kind} | score", said(lambda of=score: [of.value, of.std])
        yield from epsilons(score.joint_report(model.privacy_), f"fit | {kind} | score")
        yield from _removals(model, y, f"fit | {kind}")
        yield from _selections(kind)
    yield from _pipelines()


def _removals(model, y, name):
    """Two requests to unlearn, one after the other."""
    for rows, how in (
        ([3], {"epsilon": 1.0, "at_any_cost": True}),
        ([5, 200], {"extra_steps": 4}),
    ):
        model = model.unlearn(ROWS, y, rows=rows, key=KEY, **how)
        each = f"{name} | without {rows}"
        yield f"{each} | parameters_", said(getattr, model, "parameters_")
        yield f"{each} | steps", said(lambda of=model: of.unlearning_.extra_steps)
        yield from epsilons(model.unlearning_, each)
        yield from epsilons(model.privacy_, f"{each} | all models")
        yield from epsilons(model.privacy_of_newest_, f"{each} | newest")
        yield from of_certificate(model.certificate_, f"{each} | certificate")


def _selections(kind):
    """The best of a few settings, by a noisy score and by one on public rows."""
    model, y = model_of(kind, batches="cyclic")
    grid = {"epochs": [2, 4], "l2": [0.0, 0.1]}
    for name, public in (("private", None), ("public", (ROWS[:50], y[:50]))):
        selection = linear_model.PrivateSelection(model, grid, epsilon=3.0, random_state=3)
        name = f"PrivateSelection | {kind}, {name}"
        yield from of_fit(name, selection, ROWS, y, public=public)


def _pipelines():
    """Models after each step that learns nothing, and one that is saved and loaded again."""
    images = np.random.default_rng(2).uniform(size=(300, 64))
    for name, step, X in (
        ("PrivateScaler", linear_model.PrivateScaler(low=-2.0, high=2.0), ROWS),
        ("PublicBins", features.PublicBins(low=-2.0, high=2.0, bins=4), ROWS),
        ("QuadraticSketch", features.QuadraticSketch(n_components=16, input_bound=3.0), ROWS),
        ("RandomFourierFeatures", features.RandomFourierFeatures(n_components=16), ROWS),
        ("Scattering2D", features.Scattering2D((8, 8), scales=1, angles=4), images),
    ):
        rows = np.asarray(step.fit_transform(X))
        yield f"{name} | rows", f"{rows[0][:8].tolist()} {sha256(rows.tobytes()).hexdigest()}"
        model, y = model_of("PrivateLogisticRegression", feature_bound=None)
        yield from of_fit(f"{name} | pipeline", make_pipeline(step, model), X, y)
    people = {"age": 40.0 + 10.0 * ROWS[:, 0], "job": np.array(["a", "b", "c"])[CLASSES]}
    schema = {"age": {"range": [20, 60]}, "job": {"values": ["a", "b"], "baseline": "a"}}
    encoder = linear_model.PrivateSchema(schema).fit(people)
    yield "PrivateSchema | rows", said(encoder.transform, people)
    ridge, y = model_of("PrivateRidge", intervals=True, text_columns=encoder.text_columns_)
    pipeline = make_pipeline(encoder, ridge).fit(people, y)
    for attribute in PUBLISHED:
        if hasattr(ridge, attribute):
            yield f"PrivateSchema | {attribute}", said(getattr, ridge, attribute)
    yield from of_certificate(ridge.certificate_, "PrivateSchema | certificate")
    yield "PrivateSchema | summary", said(linear_model.summary(pipeline).records)
    with tempfile.TemporaryDirectory() as folder:
        li.save(pipeline, folder, overwrite=True)
        for name, value in json.loads(Path(folder, "model.json").read_text()).items():
            yield f"saved | {name}", json.dumps(lasting(value))
        yield "saved | predictions", said(li.load(folder).predict, people)


def ledgers(reports):
    """The entries of ledgers of several kinds, without times, random ids and hashes of these."""
    model, y = model_of("PrivateLogisticRegression")
    model.fit(ROWS, y)
    releases = (
        GaussianDpEvent(8.0),
        PoissonSampledDpEvent(0.01, GaussianDpEvent(1.0)),
        (0.1, 1e-9),
        *reports,
        linear_model.PrivateScore.of(model, ROWS, y, epsilon=0.2, random_state=1),
        model.certificate_,
    )
    for name, fields in {
        "usual": {},
        "adaptive": {"adaptive": True},
        "left out": {"adjacency": "zero-out"},
        "persons": {"examples_per_person": 2},
    }.items():
        name = f"ledger | {name}"
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "ledger")
            ledger = li.Ledger(path, epsilon=30.0, delta=1e-5, allow_seeded=True, **fields)
            for number, release in enumerate(releases):
                done = said(lambda of=ledger, one=release: of.add(one, "about")["what"])
                yield f"{name} | release {number}", done
            ridge, _ = model_of("PrivateRidge", adjacency=ledger.adjacency)
            ridge.fit(ROWS, NUMBERS, ledger=ledger)
            for number, line in enumerate(path.read_text().splitlines()):
                yield f"{name} | line {number}", json.dumps(lasting(json.loads(line)))
            yield from epsilons(ledger.spent(), f"{name} | spent")
            yield from epsilons(ledger.guarantee(), f"{name} | guarantee")
            yield f"{name} | left", said(ledger.largest_epsilon)
            yield f"{name} | verified", said(lambda of=ledger: of.verify().epsilon(1e-5))
