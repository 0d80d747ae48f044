import asyncio

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
