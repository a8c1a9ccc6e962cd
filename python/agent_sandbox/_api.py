"""Requests to the control plane that no method stands for."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

from . import _native
from ._config import ConnectionConfig
from ._convert import json_of


class ApiClient:
    """The control plane's routes, with the configuration's address, credentials and errors.

    `path` begins with "/" and is percent-encoded; `query` and `body` are values that are encoded here. The result is the
    answer's JSON (None without a body). `request_timeout` is in seconds (0 = no limit). Errors as those of `Sandbox`.
    """

    def __init__(self, config: ConnectionConfig) -> None:
        self.config = config

    def _start(
        self, client: _native.Client, method: str, path: str, query: Any, body: Any, timeout: float | None
    ) -> _native.Call:
        return _native.control_request(
            client, self.config.native, method, path, urlencode(query) if query else None,
            None if body is None else json.dumps(body), timeout,
        )  # fmt: skip

    def request(
        self,
        method: str,
        path: str,
        query: dict[str, Any] | None = None,
        body: Any = None,
        request_timeout: float | None = None,
    ) -> Any:
        """One request, for plain code."""
        from ._runtime import client, drive

        return json_of(drive(self._start(client(self.config.native), method, path, query, body, request_timeout)))

    async def async_request(
        self,
        method: str,
        path: str,
        query: dict[str, Any] | None = None,
        body: Any = None,
        request_timeout: float | None = None,
    ) -> Any:
        """One request, for asyncio."""
        from ._loops import client, drive

        call = self._start(client(self.config.native), method, path, query, body, request_timeout)
        return json_of(await drive(call))
