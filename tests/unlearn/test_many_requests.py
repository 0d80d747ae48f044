"""A hundred requests, one after the other."""

import gc
import json
import tracemalloc

import numpy as np
import pytest

from lastiterate.certificate.verify import verified_certificate
from lastiterate.linear_model import PrivateLogisticRegression
from lastiterate.profile.rounded import gdp_but_for_failure

KEY = bytes(32)
TRACED = 15
X = np.random.default_rng(0).normal(size=(600, 3)) / 2
Y = X[:, 0] > 0.0


@pytest.mark.filterwarnings("ignore::lastiterate.errors.PrivacyWarning")
@pytest.mark.parametrize("many", [8, pytest.param(100, marks=pytest.mark.slow)])
def test_verify_are_reported_and_leave_nothing_but_certificates(many):
    model = PrivateLogisticRegression(
        epsilon=4.0, batches="cyclic", batch_size=100, epochs=4, l2=0.1, center=False, counting=0.0,
        random_state=1, classes=[False, True],
    ).fit(X, Y, key=KEY)  # fmt: skip
    sizes, held = [len(model.certificate_)], []
    try:
        for row in range(many):
            if 0 < row == many - TRACED:
                tracemalloc.start()  # which takes most of the time
            model = model.unlearn(X, Y, rows=[row], extra_steps=2, key=KEY)
            sizes.append(len(model.certificate_))
            if tracemalloc.is_tracing():
                gc.collect()
                held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    growth = np.diff(sizes)
    assert growth[1:].max() <= 1.05 * growth[1:].min()  # each adds as much as any other
    # By then the caches, of the last few, are full.
    assert not held or held[-1] - held[-5] <= 4 * (sizes[-1] - sizes[-5]) + 100_000
    found = verified_certificate(model.certificate_, parameters=model.parameters_)
    assert len(found.requests.done) == many
    each = [
        gdp_but_for_failure(found.requests.current_request_guarantee(k))
        for k in (0, many // 2, many - 1)
    ]
    assert each == sorted(each)  # those who went first are farthest away
    joint = gdp_but_for_failure(found.requests.joint_request_guarantee)
    assert each[-1] <= joint < many * each[-1]
    record = json.loads(model.certificate_)
    told = [one["unlearning"]["guarantee"]["epsilon"] for one in (*record["earlier"][1:], record)]
    assert len(told) == many
    assert np.isfinite(told).all()
