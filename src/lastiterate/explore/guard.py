"""Access control: requests must come from this computer and page, hold the token and be small.

A page of another site that is open in the same browser can send requests to this computer.  It
cannot send them with this Host (DNS rebinding changes that), this Origin or the token.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

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
