"""A watched folder, for asyncio."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable

from .. import _native
from .._convert import event_of
from .._loops import spawn, wait
from .._models import FilesystemEvent

OnEvent = Callable[[FilesystemEvent], None] | Callable[[FilesystemEvent], Awaitable[None]]
OnExit = Callable[[Exception | None], None] | Callable[[Exception | None], Awaitable[None]]


class AsyncWatchHandle:
    """A watched folder: its changes go to the callback until `stop`, the end of the time, or an error."""

    def __init__(self, call: _native.Call, on_event: OnEvent, on_exit: OnExit | None = None) -> None:
        self._call = call
        self._on_event = on_event
        self._on_exit = on_exit
        self._is_stopped = False
        self._task = spawn(self._run())

    async def stop(self) -> None:
        """Ends the watch and returns when `on_exit` was called. From a callback: the watch ends behind it."""
        self._is_stopped = True
        self._call.cancel()
        if asyncio.current_task() is not self._task:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        error: Exception | None = None
        try:
            while not self._call.done() and not self._is_stopped:
                event = self._call.next()
                if event is None:
                    await wait(self._call)
                elif event[7] is not None:
                    change = event_of(event[7])
                    if change is not None:
                        told = self._on_event(change)
                        if inspect.isawaitable(told):
                            await told
            if not self._is_stopped:
                self._call.result()
        except asyncio.CancelledError:
            if not self._is_stopped:
                raise
        except Exception as e:
            error = e
        finally:
            self._call.cancel()
        if self._on_exit is not None:
            ended = self._on_exit(error)
            if inspect.isawaitable(ended):
                await ended
