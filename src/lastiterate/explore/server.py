"""The server of the page on this computer: questions as JSON, and answers from workers.

Nothing is written anywhere.

Requests must come from this computer and page, hold the token and be small.  A page of another site
that is open in the same browser can send requests to this computer.  It cannot send them with this
Host (DNS rebinding changes that), this Origin or the token.
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import json
import secrets
import socket
import sys
import threading
import webbrowser
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs

import lastiterate
from lastiterate import _check
from lastiterate.accounting import USUAL_DELTA
from lastiterate.errors import InvalidParameter, MissingExtra
from lastiterate.explore.answers import QUESTIONS
from lastiterate.explore.page_runs import MODELS
from lastiterate.explore.worker_pool import NotComputed, WorkerPool
from lastiterate.run.batch_rules.base import RULES, Resampling
from lastiterate.run.description import NAMES
from lastiterate.run.serialise import parsed
from lastiterate.run.training_run import IN_WORDS

try:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route
except ModuleNotFoundError as error:
    raise MissingExtra("the page", "starlette and uvicorn", extra="explore") from error

_LOOPBACK = "127.0.0.1"
_ANY_FREE_PORT = 0
_MIN_TOKEN_LENGTH = 16
_MAX_CACHED_ANSWERS = 1_000
_MAX_CACHED_BYTES = 100_000  # bytes of one answer
_MAX_LANE_LENGTH = 100
_FIRST = "account"
_URGENT = ("account", "code")
_NOT_CACHED = ("verify", "report")
_TYPES = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}
LARGEST_BODY = 1_000_000
TOKEN_HEADER = b"x-lastiterate-token"
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; object-src 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]
PRESETS: dict[str, dict[str, Any]] = {
    "MNIST softmax": {
        "examples": 60_000,
        "batch_size": 1_500,
        "batches": "shuffled-once",
        "epochs": 50,
        "step_size": 0.05,
        "noise_std": 0.01,
        "sensitivity": 10.0,
        "model": "stated",
        "smoothness": 32.502,
        "strong_convexity": 0.002,
        "adjacency": "replace",
    },
    "Head on embeddings": {
        "examples": 25_000,
        "batch_size": 500,
        "batches": "shuffled-each-epoch",
        "epochs": 20,
        "step_size": 1.0,
        "noise_multiplier": 2.0,
        "clip_norm": 1.0,
        "model": "logistic",
        "feature_norm": 1.0,
        "regulariser": 0.01,
        "adjacency": "zero-out",
    },
    "Million-row logistic": {
        "examples": 1_000_000,
        "batch_size": 10_000,
        "batches": "cyclic",
        "epochs": 30,
        "step_size": 0.5,
        "noise_multiplier": 4.0,
        "clip_norm": 1.0,
        "model": "logistic",
        "feature_norm": 1.0,
        "regulariser": 0.001,
        "adjacency": "zero-out",
    },
    "Opacus defaults": {
        "examples": 50_000,
        "batch_size": 512,
        "batches": "poisson",
        "epochs": 30,
        "noise_multiplier": 1.0,
        "clip_norm": 1.0,
        "model": "unknown",
        "adjacency": "zero-out",
    },
}
FIRST = "Million-row logistic"


def serve(
    run: Mapping[str, Any] | None = None,
    *,
    host: str = _LOOPBACK,
    port: int = _ANY_FREE_PORT,
    token: str | None = None,
    browser: bool = True,
) -> None:
    """Serve until interrupted; `run` is in the words of the page, and 0 is any free port.

    A host that others can reach needs a token that was chosen for it, since whoever has that
    can have this computer compute.
    """
    _check.count("port", port, at_least=0, at_most=65_535)
    if not _is_loopback(host) and token is None:
        must_be = "127.0.0.1, localhost or ::1; any other host needs a token (--token)"
        raise InvalidParameter("host", host, must_be=must_be)
    if token is not None and not (token.isascii() and len(token) >= _MIN_TOKEN_LENGTH):
        must_be = f"at least {_MIN_TOKEN_LENGTH} letters, digits and other plain characters"
        raise InvalidParameter("token", must_be=must_be, found="another")
    try:
        import uvicorn
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "uvicorn":
            raise
        raise MissingExtra("the page", "starlette and uvicorn", extra="explore") from None
    secret = secrets.token_urlsafe(24) if token is None else token
    listening = socket.create_server((host, port), family=_family(host))
    bound = listening.getsockname()[1]
    name = f"[{host}]" if ":" in host else host
    names = {name, "127.0.0.1", "localhost", "[::1]"} if _is_loopback(host) else {name}
    app = application(hosts=frozenset(f"{one}:{bound}" for one in names), token=secret, run=run)
    address = f"http://{name}:{bound}/?token={secret}"
    print(f"open {address}\nCtrl-C ends it", flush=True)
    if not _is_loopback(host):
        print(
            "warning: other computers can reach this server, and the connection is not encrypted",
            file=sys.stderr,
        )
    if browser:
        threading.Timer(0.5, webbrowser.open, [address]).start()
    config = uvicorn.Config(
        app, log_level="critical", access_log=False, server_header=False, ws="none"
    )
    with listening:
        uvicorn.Server(config).run(sockets=[listening])


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


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
            return _error_response(404, f"there is no such question as {question[:40]!r}")
        record = await _record(request)
        if isinstance(record, Response):
            return record
        lane = record.pop("lane", None)
        if lane is not None and not (isinstance(lane, str) and len(lane) <= _MAX_LANE_LENGTH):
            return _error_response(
                400, f"lane must be a string of at most {_MAX_LANE_LENGTH} characters"
            )
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
            return _error_response(error.status, error.message)
        body = _json(reply)
        if status == 200 and question not in _NOT_CACHED and len(body) <= _MAX_CACHED_BYTES:
            cache[key] = body
            while len(cache) > _MAX_CACHED_ANSWERS:
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
            return _error_response(413, f"a question may have {LARGEST_BODY:,} bytes")
    try:
        record = parsed("JSON", body.decode("utf-8"))
    except (InvalidParameter, UnicodeDecodeError) as error:
        return _error_response(400, str(error))
    if not isinstance(record, dict):
        return _error_response(400, "a question must be a JSON object")
    return record


def _file(name: str) -> Response:
    """One of the files beside this module, and no other."""
    folder = files("lastiterate.explore") / "page"
    if name not in {entry.name for entry in folder.iterdir()}:
        return _error_response(404, "there is no such file")
    kind = _TYPES.get(name.rpartition(".")[2], "application/octet-stream")
    return Response((folder / name).read_bytes(), media_type=kind)


def _error_response(status: int, message: str) -> Response:
    return Response(_json({"error": message}), status_code=status, media_type="application/json")


def _json(record: Any) -> bytes:
    return json.dumps(record, allow_nan=False).encode()


@dataclass(frozen=True)
class Guard:
    """Refuses what does not come from the page; `hosts` are the names it may be called by."""

    app: App
    hosts: frozenset[str]
    token: str

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            await _refuse(send, *refusal)
            return
        await self.app(scope, receive, _with_headers(send))

    def _refusal(self, scope: Message) -> tuple[int, str] | None:
        headers: Mapping[bytes, bytes] = dict(scope["headers"])
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1 or hosts[0].decode("latin-1").lower() not in self.hosts:
            return 421, "this server answers to its own address only"
        origin = headers.get(b"origin")
        if origin is not None and not self._is_own(origin.decode("latin-1")):
            return 403, "another site asks"
        if _is_open(scope["path"]):
            return None
        if not self._knows_token(scope, headers):
            return 403, "open the address that `lastiterate explore` printed, with its token"
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length[:20]) > LARGEST_BODY:
            return 413, f"a question may have {LARGEST_BODY:,} bytes"
        return None

    def _is_own(self, origin: str) -> bool:
        return origin.lower() in {f"http://{host}" for host in self.hosts}

    def _knows_token(self, scope: Message, headers: Mapping[bytes, bytes]) -> bool:
        if scope["path"].startswith("/api/"):
            said = headers.get(TOKEN_HEADER, b"")
        else:  # the page itself, which cannot be asked for with a header of ours
            query = parse_qs(scope["query_string"].decode("latin-1"))
            said = query.get("token", [""])[0].encode()
        return hmac.compare_digest(said, self.token.encode())


def _is_open(path: str) -> bool:
    """The page's own files, which say nothing."""
    return path.startswith("/page/")


async def _refuse(send: Send, status: int, message: str) -> None:
    headers = {**HEADERS, "Content-Type": "text/plain; charset=utf-8", "Connection": "close"}
    listed = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": listed})
    await send({"type": "http.response.body", "body": message.encode()})


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            more = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
            message = {**message, "headers": [*message.get("headers", ()), *more]}
        await send(message)

    return sending


def usual_delta(examples: int) -> float:
    """The usual delta, or a smaller power of ten that is at most a tenth of 1/examples.

    >>> usual_delta(50_000), usual_delta(1_000_000)
    (1e-05, 1e-07)
    """
    if USUAL_DELTA * examples < 1.0:
        return USUAL_DELTA
    return float(f"1e-{len(str(examples - 1)) + 1}")


def page_options(run: Mapping[str, Any] | None) -> dict[str, Any]:
    """Everything that the page's controls offer, and the run to begin with."""
    first = PRESETS[FIRST] if run is None else dict(run)
    return {
        "version": lastiterate.__version__,
        "delta": usual_delta(first["examples"]),
        "presets": PRESETS,
        "deltas": {name: usual_delta(one["examples"]) for name, one in PRESETS.items()},
        "run": first,
        "batches": {
            name: {
                "says": RULES[name].in_words,
                "sized": RULES[name].ordered,
                "drafted": RULES[name].resampling in (Resampling.ONCE, Resampling.EACH_EPOCH),
            }
            for name in NAMES
        },
        "adjacencies": IN_WORDS,
        "models": {
            model.name: {
                "name": model.in_words,
                "says": model.says,
                "by_feature_norm": model.by_feature_norm,
            }
            for model in MODELS.values()
        },
    }
