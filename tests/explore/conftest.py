import asyncio

import numpy as np
import pytest

from .asgi import HOST, TOKEN, Client, running


@pytest.fixture(scope="module")
def client():
    """Of the application with its processes, where the extra `explore` is installed."""
    pytest.importorskip("starlette")
    from lastiterate.explore.server import application

    loop = asyncio.new_event_loop()
    app = application(hosts=frozenset({HOST}), token=TOKEN)
    whole = running(app)
    loop.run_until_complete(whole.__aenter__())
    yield Client(app, loop)
    loop.run_until_complete(whole.__aexit__(None, None, None))
    loop.close()


@pytest.fixture(scope="session")
def certificate():
    """Of a small model, quickly trained."""
    from lastiterate.linear_model import PrivateLogisticRegression

    X = np.random.default_rng(0).normal(size=(200, 3))
    model = PrivateLogisticRegression(batches="cyclic", batch_size=50, epochs=2)
    return model.fit(X, X[:, 0] > 0).certificate_
