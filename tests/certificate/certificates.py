"""Certificates of small models, and forgeries of them whose digests fit."""

import json

import numpy as np
from scipy import sparse

from lastiterate.certificate.fields import digest
from lastiterate.linear_model import PrivateLogisticRegression, PrivateSelection

X = np.random.default_rng(0).normal(size=(400, 3)) / 3.0
Y = X[:, 0] > 0.0
KEY = bytes(range(32))
QUICK = {"epsilon": 1.0, "batches": "cyclic", "batch_size": 100, "epochs": 2, "feature_bound": 1.0}


def certificates():
    """A record of each kind."""
    model = PrivateLogisticRegression(text_columns=(("education", 0, 2),), **QUICK)
    chain = PrivateLogisticRegression(**QUICK).fit(X, Y, key=KEY)
    for row in (1, 2):
        chain = chain.unlearn(X, Y, rows=[row], extra_steps=4, key=KEY)
    chosen = PrivateSelection(PrivateLogisticRegression(**QUICK), {"l2": [0.0, 0.1]}, tries=1.5)
    models = {
        "trained": model.fit(X, Y),
        "not centred": PrivateLogisticRegression(center=False, **QUICK).fit(X, Y),
        "sparse": PrivateLogisticRegression(**QUICK).fit(sparse.csr_array(X), Y),
        "unlearned": chain,
        "selected": chosen.fit(X, Y),
    }
    return {kind: json.loads(model.certificate_) for kind, model in models.items()}


def copied(record):
    return json.loads(json.dumps(record))


def sealed(record):
    """With digests and links as whoever forges a certificate would compute them again."""
    copy = copied(record)
    chain = [*copy.get("earlier", []), copy]
    for number, link in enumerate(chain):
        if number:
            link["unlearning"] |= {"follows": chain[number - 1]["digest"], "request": number}
        link["digest"] = digest(link)
    return json.dumps(copy)


def changed(record, path, value):
    """A copy with another value there; without any if it is None."""
    copy = copied(record)
    place = copy
    for key in path[:-1]:
        place = place[key]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return copy
