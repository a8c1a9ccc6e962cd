"""A watched folder, for plain code."""

from __future__ import annotations

from .. import _native
from .._config import ConnectionConfig
from .._convert import event_of
from .._models import FilesystemEvent
from .._runtime import client, drive
from ..exceptions import SandboxException


class WatchHandle:
    """A watched folder: the sandbox collects its changes until they are asked for."""

    def __init__(self, address: _native.Sandbox, config: ConnectionConfig, watcher_id: str, user: str | None) -> None:
        self._address = address
        self._config = config
        self._id = watcher_id
        self._user = user
        self._stopped = False

    def get_new_events(self, request_timeout: float | None = None) -> list[FilesystemEvent]:
        """The changes since the last time. Raises SandboxException after `stop`."""
        if self._stopped:
            raise SandboxException("the watch was stopped")
        call = drive(
            _native.watcher_get_events(client(self._config.native), self._address, self._id, self._user, request_timeout)
        )
        return [event for event in map(event_of, call.result()) if event is not None]

    def stop(self, request_timeout: float | None = None) -> None:
        """Ends the watch. Once is enough; further calls do nothing."""
        if self._stopped:
            return
        drive(
            _native.watcher_remove(client(self._config.native), self._address, self._id, self._user, request_timeout)
        ).result()
        self._stopped = True
