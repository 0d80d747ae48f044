"""Requests to the application without a network, its processes running."""

import asyncio
import contextlib
import json
from dataclasses import dataclass

HOST, TOKEN = "127.0.0.1:8000", "a-token-of-the-tests"
USUAL = {"host": HOST, "x-lastiterate-token": TOKEN}


@dataclass
class Reply:
    status: int
    headers: dict
    body: bytes

    def json(self):
        return json.loads(self.body)


async def request(app, method, path, *, body=b"", headers=None, query="", chunk=None):
    """The reply; `headers` are all there are."""
    listed = USUAL if headers is None else headers
    parts = [body] if chunk is None else [body[i : i + chunk] for i in range(0, len(body), chunk)]
    waiting = [
        {"type": "http.request", "body": part, "more_body": i < len(parts) - 1}
        for i, part in enumerate(parts)
    ]
    taken, sent = 0, []

    async def receive():
        nonlocal taken
        if taken < len(waiting):
            taken += 1
            return waiting[taken - 1]
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(k.encode(), v.encode()) for k, v in listed.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8000),
    }
    await app(scope, receive, send)
    started = next(one for one in sent if one["type"] == "http.response.start")
    said = b"".join(one.get("body", b"") for one in sent if one["type"] == "http.response.body")
    fields = {k.decode().lower(): v.decode() for k, v in started["headers"]}
    return Reply(started["status"], fields, said)


@contextlib.asynccontextmanager
async def running(app):
    """Between startup and shutdown."""
    to_app, from_app = asyncio.Queue(), asyncio.Queue()
    task = asyncio.create_task(app({"type": "lifespan"}, to_app.get, from_app.put))
    await to_app.put({"type": "lifespan.startup"})
    assert (await from_app.get())["type"] == "lifespan.startup.complete"
    try:
        yield
    finally:
        await to_app.put({"type": "lifespan.shutdown"})
        await from_app.get()
        await task


@dataclass
class Client:
    """Asks from one thread, in the application's own loop."""

    app: object
    loop: asyncio.AbstractEventLoop

    def send(self, method, path, **options):
        return self.loop.run_until_complete(request(self.app, method, path, **options))

    def ask(self, question, record):
        return self.send("POST", f"/api/{question}", body=json.dumps(record).encode())
