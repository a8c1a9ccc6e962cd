"""Which client runs a call: one per thread for plain calls, one per running event loop for `await`.

A client is a libabx loop with its connections; it has no thread. A plain call drives its thread's client until it
is done, with the GIL released. In an event loop the client's descriptor is one more reader.
"""

from __future__ import annotations

import os
from _thread import _local

from . import _errors as _errors  # registers how errors become exceptions
from ._native import Call, Client, Config

# Streams of commands hold a connection each, so the limit that a program did not set itself is high.
_MAX_CONNECTIONS = 2000

_threads = _local()


def new_client(config: Config) -> Client:
    """A client with the limits that `config` sets."""
    limit, origin = config.get("max_connections")
    idle, _ = config.get("max_keepalive_connections")
    expiry, _ = config.get("keepalive_expiry")
    return Client(
        max_connections=int(limit) if limit and origin != "default" else _MAX_CONNECTIONS,
        max_idle_connections=int(idle or 0),
        idle_timeout_ms=int(float(expiry or 0) * 1000),
    )


def client(config: Config) -> Client:
    """This thread's client."""
    try:
        found: Client = _threads.client
    except AttributeError:
        found = _threads.client = new_client(config)
    return found


def drive(call: Call) -> Call:
    """Waits until the call is done. Ctrl-C and other signal handlers that raise end the wait and the call."""
    try:
        call.wait(None)
    except BaseException:
        call.cancel()
        raise
    return call


def _after_fork() -> None:
    # The sockets are the parent's too: the child starts anew.
    global _threads
    _threads = _local()


os.register_at_fork(after_in_child=_after_fork)
