"""The server of the page: questions as JSON, answers from `Workers`, nothing written anywhere."""

from __future__ import annotations

import contextlib
import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lastiterate.errors import InvalidParameter
from lastiterate.explore.answers import QUESTIONS
from lastiterate.explore.guard import LARGEST_BODY, App, Guard
from lastiterate.explore.page_options import page_options
from lastiterate.explore.worker_pool import NotComputed, WorkerPool
from lastiterate.run.serialise import parsed

_MOST_CACHED = 1_000
_LARGEST_CACHED = 100_000  # bytes of one answer
_LONGEST_LANE = 100
_FIRST = "account"
_URGENT = ("account", "code")
_NOT_CACHED = ("verify", "report")
_TYPES = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}


def application(
    *,
    hosts: frozenset[str],
    token: str,
    run: Mapping[str, Any] | None = None,
    workers: WorkerPool | None = None,
) -> App:
    """The page and its questions, guarded; `run` is what the page begins with."""
    pool = WorkerPool() if workers is None else workers
    cache: OrderedDict[str, bytes] = OrderedDict()
    options = _json(page_options(run))

    async def page(request: Request) -> Response:
        return _file("index.html")

    async def file(request: Request) -> Response:
        return _file(request.path_params["name"])

    async def begin(request: Request) -> Response:
        return Response(options, media_type="application/json")

    async def progress(request: Request) -> Response:
        record = await _record(request)
        lane = record.get("lane") if isinstance(record, dict) else None
        state = pool.progress(lane) if isinstance(lane, str) else None
        reply = None if state is None else {"what": state[0], "share": state[1]}
        return Response(_json({"progress": reply}), media_type="application/json")

    async def answer(request: Request) -> Response:
        question = request.path_params["question"]
        if question not in QUESTIONS:
            return _refused(404, f"there is no such question as {question[:40]!r}")
        record = await _record(request)
        if isinstance(record, Response):
            return record
        lane = record.pop("lane", None)
        if lane is not None and not (isinstance(lane, str) and len(lane) <= _LONGEST_LANE):
            return _refused(400, f"lane must be a string of at most {_LONGEST_LANE} characters")
        draft = record.get("draft") is True
        if lane is not None and question == _FIRST and not draft:
            client = lane.partition("/")[0]  # the page begins anew, perhaps with drafts
            pool.cancel(f"{client}/", but=f"{client}/draft")
        key = json.dumps([question, record], sort_keys=True)
        if key in cache:
            cache.move_to_end(key)
            return Response(cache[key], media_type="application/json")
        try:
            urgent = draft or question in _URGENT
            status, reply = await pool.ask(question, record, lane=lane, urgent=urgent)
        except NotComputed as error:
            return _refused(error.status, error.message)
        body = _json(reply)
        if status == 200 and question not in _NOT_CACHED and len(body) <= _LARGEST_CACHED:
            cache[key] = body
            while len(cache) > _MOST_CACHED:
                cache.popitem(last=False)
        return Response(body, status_code=status, media_type="application/json")

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await pool.start()
        yield
        await pool.stop()

    routes = [
        Route("/", page),
        Route("/page/{name}", file),
        Route("/api/begin", begin),
        Route("/api/progress", progress, methods=["POST"]),
        Route("/api/{question}", answer, methods=["POST"]),
    ]
    return Guard(Starlette(routes=routes, lifespan=lifespan), hosts, token)


async def _record(request: Request) -> dict[str, Any] | Response:
    """The JSON object in the body; a refusal where the body is too large or holds none."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > LARGEST_BODY:
            return _refused(413, f"a question may have {LARGEST_BODY:,} bytes")
    try:
        record = parsed("JSON", body.decode("utf-8"))
    except (InvalidParameter, UnicodeDecodeError) as error:
        return _refused(400, str(error))
    if not isinstance(record, dict):
        return _refused(400, "a question must be a JSON object")
    return record


def _file(name: str) -> Response:
    """One of the files beside this module, and no other."""
    folder = files("lastiterate.explore") / "page"
    if name not in {entry.name for entry in folder.iterdir()}:
        return _refused(404, "there is no such file")
    kind = _TYPES.get(name.rpartition(".")[2], "application/octet-stream")
    return Response((folder / name).read_bytes(), media_type=kind)


def _refused(status: int, message: str) -> Response:
    return Response(_json({"error": message}), status_code=status, media_type="application/json")


def _json(record: Any) -> bytes:
    return json.dumps(record, allow_nan=False).encode()
