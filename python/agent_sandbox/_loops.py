"""Calls in asyncio's loops; the other half of _runtime. See there."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from typing import Any
from weakref import WeakKeyDictionary

from ._native import Call, Client, Config
from ._runtime import new_client

# A loop that is closed or dropped without a word takes its client with it.
_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, Client] = WeakKeyDictionary()

# Tasks that nobody else holds while they wait, so that they are not collected.
_tasks: set[asyncio.Task[None]] = set()


def client(config: Config) -> Client:
    """The running loop's client."""
    loop = asyncio.get_running_loop()
    found = _clients.get(loop)
    if found is None:
        for task in [task for task in _tasks if task.get_loop().is_closed()]:
            _tasks.discard(task)
        found = new_client(config)
        loop.add_reader(found.fileno(), _process, found)
        _clients[loop] = found
    return found


def _process(running: Client) -> None:
    for waiter in running.process():
        if not waiter.done():
            waiter.set_result(None)


def spawn(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Runs `work` beside its caller, until it ends or its loop does."""
    task = asyncio.get_running_loop().create_task(work)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    return task


async def wait(call: Call) -> None:
    """Returns when something happened to the call: it is done, has events, or wants data."""
    waiter = asyncio.get_running_loop().create_future()
    if call.set_waiter(waiter):
        await waiter


async def drive(call: Call) -> Call:
    """Returns when the call is done. A task that is cancelled meanwhile cancels the call on the wire."""
    try:
        while not call.done():
            await wait(call)
    except BaseException:
        call.cancel()
        raise
    return call


def _after_fork() -> None:
    global _clients
    _clients = WeakKeyDictionary()
    _tasks.clear()


os.register_at_fork(after_in_child=_after_fork)
