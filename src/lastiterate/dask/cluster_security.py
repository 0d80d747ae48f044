"""Which clusters rows are sent to: none that others on the network can listen to, unasked."""

from __future__ import annotations

import ipaddress
from typing import Any

from distributed import Client, get_client

from lastiterate.errors import InvalidParameter, InvalidType

_CONNECTED = "connected to a scheduler: make another, dask.distributed.Client(..)"
_ENCRYPTED = ("tls", "wss", "inproc")  # or never on a network


def the_client(client: Any, *, allow_insecure: bool) -> Client:
    """The given client, or the current one, of a cluster that nobody else can listen to."""
    if client is None:
        try:
            client = get_client()
        except ValueError:
            must_be = "given, or made before: dask.distributed.Client(..)"
            raise InvalidParameter("client", must_be=must_be, found="none") from None
    if not isinstance(client, Client):
        must_be = "a dask.distributed.Client, such as Client(address) makes"
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
                    "network in the clear (allow_insecure=True if nobody can listen to it)"
                )
                raise InvalidParameter("client", must_be=must_be, found=address)
    return client


def is_secure(address: str) -> bool:
    """Whether what is sent there is encrypted, or stays on this machine."""
    return address.partition("://")[0] in _ENCRYPTED or is_here(address)


def is_here(address: str) -> bool:
    """Whether what is sent there stays on this machine."""
    protocol, _, rest = address.partition("://")
    if protocol == "inproc":
        return True
    host = rest.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def workers_of(client: Client) -> dict[str, dict[str, Any]]:
    """The scheduler's record of each worker it has now, by address; an OSError if it has gone."""
    try:
        return dict(client.scheduler_info(n_workers=-1)["workers"])
    except (AttributeError, KeyError):  # of a client that has lost its scheduler
        raise OSError("the scheduler does not answer") from None
