"""Fixed features of rows on a cluster: lazily, block by block, with the same certificate."""

import json

import dask.array as da
import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

import lastiterate as li
from lastiterate.dask.estimators import PrivateLogisticRegression
from lastiterate.features.transformers import RandomFourierFeatures, Scattering2D

ROWS = np.random.default_rng(0).random((400, 64))
LABELS = ROWS[:, 0] > 0.5


@pytest.mark.parametrize("features", [Scattering2D((8, 8), scales=1), RandomFourierFeatures(16)])
def test_a_pipeline_trains_predicts_and_verifies(client, features):
    rows, labels = da.from_array(ROWS, chunks=(100, 64)), da.from_array(LABELS, chunks=100)
    lazy = features.fit(rows).transform(rows)
    assert isinstance(lazy, da.Array)
    np.testing.assert_allclose(lazy.compute(), features.transform(ROWS), atol=1e-6)
    model = PrivateLogisticRegression(epsilon=4.0, epochs=2, counting=0, client=client)
    pipeline = make_pipeline(features, model).fit(rows, labels)
    assert pipeline[-1].feature_bound_ == 1.0
    record = json.loads(pipeline[-1].certificate_)
    assert record["feature maps"] == [features.feature_map(64).as_record()]
    li.verify(pipeline[-1].certificate_, parameters=pipeline[-1].parameters_)
    assert pipeline.predict(rows).compute().shape == (400,)
