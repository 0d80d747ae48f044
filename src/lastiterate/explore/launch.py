"""Start of the server of the page on this computer."""

from __future__ import annotations

import ipaddress
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Mapping
from typing import Any

from lastiterate import _check
from lastiterate.errors import InvalidParameter, MissingExtra

_LOOPBACK = "127.0.0.1"
_ANY_FREE = 0
_SHORTEST_TOKEN = 16


def serve(
    run: Mapping[str, Any] | None = None,
    *,
    host: str = _LOOPBACK,
    port: int = _ANY_FREE,
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
    if token is not None and not (token.isascii() and len(token) >= _SHORTEST_TOKEN):
        must_be = f"at least {_SHORTEST_TOKEN} letters, digits and other plain characters"
        raise InvalidParameter("token", must_be=must_be, found="another")
    try:
        import uvicorn

        from lastiterate.explore.server import application
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn"):
            raise
        what = "the page"
        raise MissingExtra(what, "starlette and uvicorn", extra="explore") from None
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
