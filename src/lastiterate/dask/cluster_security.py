"""The check that rows are sent only over encrypted connections or on this machine."""

from __future__ import annotations

import ipaddress
from typing import Any

from distributed import Client, get_client

from lastiterate.errors import InvalidParameter, InvalidType

_CONNECTED = "connected to a scheduler: create another, dask.distributed.Client(..)"
_ENCRYPTED = ("tls", "wss", "inproc")  # or never on a network


def checked_client(client: Any, *, allow_insecure: bool) -> Client:
    """The given or current client; raises unless its connections are encrypted or local."""
    if client is None:
        try:
            client = get_client()
        except ValueError:
            must_be = "given, or created before: dask.distributed.Client(..)"
            raise InvalidParameter("client", must_be=must_be, found="none") from None
    if not isinstance(client, Client):
        must_be = "a dask.distributed.Client, as in Client(address)"
        raise InvalidType("client", must_be=must_be, found=f"a {type(client).__name__}")
    if client.asynchronous:
        must_be = "synchronous: fit waits for the cluster"
        raise InvalidParameter("client", must_be=must_be, found="asynchronous=True")
    if client.status != "running":
        found = f"one that is {client.status}"
        raise InvalidParameter("client", must_be=_CONNECTED, found=found)
    try:
        addresses = (client.scheduler.address, *workers_of(client))
    except OSError:
        found = "one whose scheduler does not answer"
        raise InvalidParameter("client", must_be=_CONNECTED, found=found) from None
    if not allow_insecure:
        for address in addresses:
            if not is_secure(address):
                must_be = (
                    "of a cluster with TLS, or on this machine: rows and iterates would cross a "
                    "network unencrypted (allow_insecure=True permits that)"
                )
                raise InvalidParameter("client", must_be=must_be, found=address)
    return client


def is_secure(address: str) -> bool:
    """Whether data sent to this address are encrypted or stay on this machine."""
    return address.partition("://")[0] in _ENCRYPTED or is_on_this_machine(address)


def is_on_this_machine(address: str) -> bool:
    """Whether data sent to this address stay on this machine."""
    protocol, _, rest = address.partition("://")
    if protocol == "inproc":
        return True
    host = rest.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def workers_of(client: Client) -> dict[str, dict[str, Any]]:
    """The scheduler's record of each worker, by address; raises OSError if it does not answer."""
    try:
        return dict(client.scheduler_info(n_workers=-1)["workers"])
    except (AttributeError, KeyError):  # of a client that has lost its scheduler
        raise OSError("the scheduler does not answer") from None
