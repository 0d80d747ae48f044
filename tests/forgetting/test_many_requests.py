"""A hundred requests, one after the other."""

import gc
import json
import tracemalloc

import numpy as np
import pytest

from lastiterate.certificate.verify import verified
from lastiterate.linear_model import PrivateLogisticRegression

KEY = bytes(32)
X = np.random.default_rng(0).normal(size=(600, 3)) / 2
Y = X[:, 0] > 0.0


@pytest.mark.filterwarnings("ignore::lastiterate.errors.PrivacyWarning")
@pytest.mark.parametrize("many", [6, pytest.param(100, marks=pytest.mark.slow)])
def test_verify_are_reported_and_leave_nothing_but_certificates(many):
    model = PrivateLogisticRegression(
        epsilon=4.0, batches="cyclic", batch_size=100, epochs=4, l2=0.1, center=False, counting=0.0,
        random_state=1, classes=[False, True],
    ).fit(X, Y, key=KEY)  # fmt: skip
    sizes, held = [len(model.certificate_)], []
    tracemalloc.start()
    try:
        for row in range(many):
            model = model.unlearn(X, Y, rows=[row], extra_steps=2, key=KEY)
            sizes.append(len(model.certificate_))
            gc.collect()
            held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    growth = np.diff(sizes)
    assert growth[1:].max() <= 1.05 * growth[1:].min()  # each adds as much as any other
    half = many // 2
    certificates = sizes[-1] - sizes[half]
    # Caches hold the last few; records of requests, a few hundred bytes each in some forms.
    assert held[-1] - held[half] <= 4 * certificates + 100_000
    found = verified(model.certificate_, parameters=model.parameters_)
    assert len(found.requests.done) == many
    each = [found.requests.by_now(k).gdp() for k in (0, many // 2, many - 1)]
    assert each == sorted(each)  # those who went first are farthest away
    assert each[-1] <= found.requests.all_forgotten.gdp() < many * each[-1]
    record = json.loads(model.certificate_)
    told = [one["unlearning"]["guarantee"]["epsilon"] for one in (*record["earlier"][1:], record)]
    assert len(told) == many
    assert np.isfinite(told).all()
