# Made by python/make_sync.py of agent_sandbox/_async/sandbox.py; never edited.
"""Sandboxes: making, finding and ending them."""

from __future__ import annotations

import builtins
import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

from .. import _native
from .._base import SandboxBase, call_options, limit_of, seconds_of
from .._config import ApiParams, ConnectionConfig, check_config_options, config_of
from .._convert import forks_of, info_of, metrics_of, snapshot_of
from .._dual import dual
from .._models import SandboxInfo, SandboxMetrics, SandboxQuery, SnapshotInfo
from .._network import SandboxLifecycle, SandboxNetworkOpts, SandboxNetworkUpdate, lifecycle_flags, network_json
from ..exceptions import SandboxException
from .commands import Commands, Pty
from .files import Filesystem
from .run import client, connect_form, drive

if TYPE_CHECKING:
    import logging

    from typing_extensions import Self, Unpack

    from .._mcp import McpServer
    from .git import Git
    from .volume import Volume


class SandboxPaginator:
    """Sandboxes, page by page."""

    def __init__(
        self,
        query: SandboxQuery | None = None,
        limit: int | None = None,
        next_token: str | None = None,
        **opts: Unpack[ApiParams],
    ) -> None:
        self.query = query
        self.limit = limit
        check_config_options(opts)
        self._opts: dict[str, Any] = dict(opts)
        self._has_next = True
        self._next_token = next_token

    @property
    def has_next(self) -> bool:
        """Is there another page?"""
        return self._has_next

    @property
    def next_token(self) -> str | None:
        """Token of the next page; None before the first and after the last one."""
        return self._next_token

    def next_items(self, **opts: Unpack[ApiParams]) -> list[SandboxInfo]:
        """The next page. Raises an exception when there is none."""
        if not self._has_next:
            raise SandboxException("there are no more pages: look at has_next first")
        config = config_of({**self._opts, **opts})
        query = self.query or SandboxQuery()
        states = None if query.state is None else ",".join(str(getattr(s, "value", s)) for s in query.state)
        call = _native.sandbox_list(
            client(config.native), config.native, query.metadata, states, limit_of(self.limit), self._next_token, None
        )
        found = [info_of(s) for s in (drive(call)).result()]
        self._next_token = call.next_token()
        self._has_next = self._next_token is not None
        return found


class SnapshotPaginator:
    """Snapshots, page by page."""

    def __init__(
        self,
        sandbox_id: str | None = None,
        limit: int | None = None,
        next_token: str | None = None,
        name: str | None = None,
        **opts: Unpack[ApiParams],
    ) -> None:
        self.sandbox_id = sandbox_id
        self.name = name
        self.limit = limit
        check_config_options(opts)
        self._opts: dict[str, Any] = dict(opts)
        self._has_next = True
        self._next_token = next_token

    @property
    def has_next(self) -> bool:
        """Is there another page?"""
        return self._has_next

    @property
    def next_token(self) -> str | None:
        """Token of the next page; None before the first and after the last one."""
        return self._next_token

    def next_items(self, **opts: Unpack[ApiParams]) -> list[SnapshotInfo]:
        """The next page. Raises an exception when there is none."""
        if not self._has_next:
            raise SandboxException("there are no more pages: look at has_next first")
        config = config_of({**self._opts, **opts})
        call = _native.snapshot_list(
            client(config.native), config.native, self.sandbox_id, self.name, limit_of(self.limit), self._next_token, None
        )
        found = [snapshot_of(s) for s in (drive(call)).result()]
        self._next_token = call.next_token()
        self._has_next = self._next_token is not None
        return found


def _kill(config: ConnectionConfig, sandbox_id: str, timeout: float | None) -> bool:
    if config.debug:
        return True
    call = _native.sandbox_kill(client(config.native), config.native, sandbox_id, timeout)
    return bool((drive(call)).result())


def _set_timeout(config: ConnectionConfig, sandbox_id: str, seconds: int, timeout: float | None) -> None:
    if not config.debug:
        call = _native.sandbox_set_timeout(client(config.native), config.native, sandbox_id, seconds, timeout)
        (drive(call)).result()


def _update_network(
    config: ConnectionConfig, sandbox_id: str, network: SandboxNetworkUpdate, timeout: float | None
) -> None:
    call = _native.sandbox_update_network(client(config.native), config.native, sandbox_id, network_json(network), timeout)
    (drive(call)).result()


def _get_info(config: ConnectionConfig, sandbox_id: str, timeout: float | None) -> SandboxInfo:
    call = _native.sandbox_get_info(client(config.native), config.native, sandbox_id, timeout)
    return info_of((drive(call)).result()[0])


def _get_metrics(
    config: ConnectionConfig,
    sandbox_id: str,
    start: datetime | None,
    end: datetime | None,
    timeout: float | None,
) -> list[SandboxMetrics]:
    if config.debug:
        return []
    call = _native.sandbox_get_metrics(
        client(config.native), config.native, sandbox_id, seconds_of(start), seconds_of(end), timeout
    )
    return [metrics_of(m) for m in (drive(call)).result()]


def _pause(config: ConnectionConfig, sandbox_id: str, keep_memory: bool, strict: bool, timeout: float | None) -> bool:
    start = _native.sandbox_pause_strict if strict else _native.sandbox_pause
    call = start(client(config.native), config.native, sandbox_id, keep_memory, timeout)
    return bool((drive(call)).result())


def _create_snapshot(
    config: ConnectionConfig, sandbox_id: str, name: str | None, timeout: float | None
) -> SnapshotInfo:
    call = _native.snapshot_create(client(config.native), config.native, sandbox_id, name, timeout)
    return snapshot_of((drive(call)).result()[0])


def _rollback(config: ConnectionConfig, sandbox_id: str, snapshot_id: str, timeout: float | None) -> SandboxInfo:
    call = _native.sandbox_rollback(client(config.native), config.native, sandbox_id, snapshot_id, timeout)
    return info_of((drive(call)).result()[0])


def _fork(
    config: ConnectionConfig, sandbox_id: str, count: int | None, seconds: int | None, timeout: float | None
) -> list[_native.Sandbox | Exception]:
    call = _native.sandbox_fork(
        client(config.native), config.native, sandbox_id, 1 if count is None else count, seconds, timeout
    )
    return forks_of((drive(call)).result(), config.native)


def _connect(config: ConnectionConfig, sandbox_id: str, seconds: int | None, timeout: float | None) -> _native.Sandbox:
    call = _native.sandbox_connect(client(config.native), config.native, sandbox_id, seconds or 300, timeout)
    address: _native.Sandbox = (drive(call)).result()
    return address


class Sandbox(SandboxBase):
    """A sandbox: a computer of its own, with files, commands, terminals and git.

    Made by `create` or found by `connect`. `with` kills it at the end. Methods that ask the service about a sandbox
    can be called on the class too, with its id first. Their options are those of `ApiParams`; times are in seconds. Errors:
    AuthenticationException (no valid key), SandboxNotFoundException, RateLimitException, TimeoutException (time ran out, or
    the sandbox does not run any more), InvalidArgumentException; SandboxException for all others.
    """

    def _bind(self) -> None:
        self._files = Filesystem(self._address, self._config)
        self._commands = Commands(self._address, self._config)
        self._pty = Pty(self._address, self._config)
        self._git: Git | None = None

    @property
    def files(self) -> Filesystem:
        """Its files."""
        return self._files

    @property
    def commands(self) -> Commands:
        """Its commands."""
        return self._commands

    @property
    def pty(self) -> Pty:
        """Its pseudo terminals."""
        return self._pty

    @property
    def git(self) -> Git:
        """Git in it."""
        if self._git is None:
            from .git import Git

            self._git = Git(self._commands)
        return self._git

    @classmethod
    def create(
        cls,
        template: str | None = None,
        timeout: int | None = None,
        metadata: dict[str, str] | None = None,
        envs: dict[str, str] | None = None,
        secure: bool = True,
        allow_internet_access: bool = True,
        mcp: McpServer | None = None,
        network: SandboxNetworkOpts | None = None,
        lifecycle: SandboxLifecycle | None = None,
        volume_mounts: dict[str, Volume | str] | None = None,
        logger: logging.Logger | None = None,
        **opts: Unpack[ApiParams],
    ) -> Self:
        """Makes a sandbox of `template` (default: the configured one, "base"; with `mcp` "mcp-gateway").

        It ends after `timeout` seconds (default 300), as `lifecycle` says: killed or paused. `metadata` is for finding it,
        `envs` is the environment of all its commands. `secure` protects its interface by a token. `network` says what it may
        reach, `mcp` which MCP servers run in it, `volume_mounts` which volume (or its name) is at which path. Raises
        NotFoundException when there is no such template.
        """
        config = config_of(opts, logger=logger)
        if config.debug:
            return cls._of(
                _native.Sandbox(config.native, "debug_sandbox_id", None, "99.99.99", None, None, None, None), config
            )
        pause, keep_memory, resume = lifecycle_flags(lifecycle)
        mounts = [(getattr(volume, "name", volume), path) for path, volume in (volume_mounts or {}).items()]
        call = _native.sandbox_create(
            client(config.native), config.native, cls._template(template, mcp is not None),
            cls.default_sandbox_timeout if timeout is None else timeout, metadata, envs, secure, allow_internet_access,
            pause, keep_memory, resume, None if network is None else network_json(network),
            None if mcp is None else json.dumps(mcp), mounts, None,
        )  # fmt: skip
        sandbox = cls._of((drive(call)).result(), config)
        if mcp is not None:
            sandbox._start_mcp(mcp)
        return sandbox

    def _start_mcp(self, mcp: McpServer) -> None:
        import shlex
        import uuid

        self._mcp_token = str(uuid.uuid4())
        self.commands.run(
            "mcp-gateway --config " + shlex.quote(json.dumps(mcp)),
            user="root",
            envs={"GATEWAY_ACCESS_TOKEN": self._mcp_token},
        )

    def _connect_again(self, timeout: int | None = None, **opts: Unpack[ApiParams]) -> Self:
        """Resumes the sandbox if it is paused; it ends `timeout` seconds from now at the earliest (default 300)."""
        config, request_timeout = call_options(self._config, opts)
        if not config.debug:
            self._address = _connect(config, self.sandbox_id, timeout, request_timeout)
            self._bind()
        return self

    @classmethod
    def _connect_by_id(
        cls,
        sandbox_id: str,
        timeout: int | None = None,
        logger: logging.Logger | None = None,
        **opts: Unpack[ApiParams],
    ) -> Self:
        config = config_of(opts, logger=logger)
        if config.debug:
            return cls._of(_native.Sandbox(config.native, sandbox_id, None, "99.99.99", None, None, None, None), config)
        return cls._of(_connect(config, sandbox_id, timeout, None), config)

    connect = connect_form(_connect_again, _connect_by_id)

    def _kill(self, **opts: Unpack[ApiParams]) -> bool:
        """Ends the sandbox. False: there was none."""
        config, request_timeout = call_options(self._config, opts)
        return _kill(config, self.sandbox_id, request_timeout)

    def _kill_by_id(cls, sandbox_id: str, **opts: Unpack[ApiParams]) -> bool:  # noqa: N805
        return _kill(config_of(opts), sandbox_id, None)

    kill = dual(_kill, _kill_by_id)

    def _set_timeout(self, timeout: int, **opts: Unpack[ApiParams]) -> None:
        """The sandbox ends `timeout` seconds from now; this may be sooner than before, with 0 or less at once."""
        config, request_timeout = call_options(self._config, opts)
        _set_timeout(config, self.sandbox_id, timeout, request_timeout)

    def _set_timeout_by_id(cls, sandbox_id: str, timeout: int, **opts: Unpack[ApiParams]) -> None:  # noqa: N805
        _set_timeout(config_of(opts), sandbox_id, timeout, None)

    set_timeout = dual(_set_timeout, _set_timeout_by_id)

    def _update_network(self, network: SandboxNetworkUpdate, **opts: Unpack[ApiParams]) -> None:
        """Replaces what the sandbox may reach."""
        config, request_timeout = call_options(self._config, opts)
        _update_network(config, self.sandbox_id, network, request_timeout)

    def _update_network_by_id(
        cls,  # noqa: N805
        sandbox_id: str,
        network: SandboxNetworkUpdate,
        **opts: Unpack[ApiParams],
    ) -> None:
        _update_network(config_of(opts), sandbox_id, network, None)

    update_network = dual(_update_network, _update_network_by_id)

    def _get_info(self, **opts: Unpack[ApiParams]) -> SandboxInfo:
        """What the service knows about the sandbox."""
        config, request_timeout = call_options(self._config, opts)
        return _get_info(config, self.sandbox_id, request_timeout)

    def _get_info_by_id(cls, sandbox_id: str, **opts: Unpack[ApiParams]) -> SandboxInfo:  # noqa: N805
        return _get_info(config_of(opts), sandbox_id, None)

    get_info = dual(_get_info, _get_info_by_id)

    def _get_metrics(
        self, start: datetime | None = None, end: datetime | None = None, **opts: Unpack[ApiParams]
    ) -> builtins.list[SandboxMetrics]:
        """Use of processor, memory and disk between two times (default: all that is kept)."""
        self._need_envd("metrics", 0, 1, 5)
        config, request_timeout = call_options(self._config, opts)
        return _get_metrics(config, self.sandbox_id, start, end, request_timeout)

    def _get_metrics_by_id(
        cls,  # noqa: N805
        sandbox_id: str,
        start: datetime | None = None,
        end: datetime | None = None,
        **opts: Unpack[ApiParams],
    ) -> builtins.list[SandboxMetrics]:
        return _get_metrics(config_of(opts), sandbox_id, start, end, None)

    get_metrics = dual(_get_metrics, _get_metrics_by_id)

    def _pause(self, keep_memory: bool = True, *, strict: bool = False, **opts: Unpack[ApiParams]) -> bool:
        """Pauses the sandbox; `connect` resumes it. Without `keep_memory` only its files are kept. False: it was paused.

        `strict`: only if its daemon answers that it is well; else this fails and the sandbox runs on.
        """
        config, request_timeout = call_options(self._config, opts)
        return _pause(config, self.sandbox_id, keep_memory, strict, request_timeout)

    def _pause_by_id(
        cls,  # noqa: N805
        sandbox_id: str,
        keep_memory: bool = True,
        *,
        strict: bool = False,
        **opts: Unpack[ApiParams],
    ) -> bool:
        return _pause(config_of(opts), sandbox_id, keep_memory, strict, None)

    pause = dual(_pause, _pause_by_id)
    beta_pause = dual(_pause, _pause_by_id)

    def _create_snapshot(self, name: str | None = None, **opts: Unpack[ApiParams]) -> SnapshotInfo:
        """Keeps the sandbox as it is now, as a template for others. Its id is made up when there is no `name`."""
        config, request_timeout = call_options(self._config, opts)
        return _create_snapshot(config, self.sandbox_id, name, request_timeout)

    def _create_snapshot_by_id(
        cls,  # noqa: N805
        sandbox_id: str,
        name: str | None = None,
        **opts: Unpack[ApiParams],
    ) -> SnapshotInfo:
        return _create_snapshot(config_of(opts), sandbox_id, name, None)

    create_snapshot = dual(_create_snapshot, _create_snapshot_by_id)

    def _rollback(self, snapshot_id: str, **opts: Unpack[ApiParams]) -> SandboxInfo:
        """Gives the sandbox the files that a snapshot has (its id or name), of this or another sandbox of the template.

        Id, tokens, remaining time, network rules and metadata stay. Its processes end, and it starts anew with those
        files; a paused sandbox stays paused. When it fails, the sandbox goes on as it was; but if it has the files and
        cannot be started with them, it is paused with them, which the exception says: connect() starts it. Raises
        NotFoundException when there is no such sandbox or snapshot. Servers other than Agent Sandbox do not have this.
        """
        config, request_timeout = call_options(self._config, opts)
        return _rollback(config, self.sandbox_id, snapshot_id, request_timeout)

    def _rollback_by_id(
        cls,  # noqa: N805
        sandbox_id: str,
        snapshot_id: str,
        **opts: Unpack[ApiParams],
    ) -> SandboxInfo:
        return _rollback(config_of(opts), sandbox_id, snapshot_id, None)

    rollback = dual(_rollback, _rollback_by_id)

    def _fork(
        self, timeout: int | None = None, count: int | None = None, **opts: Unpack[ApiParams]
    ) -> builtins.list[Self | Exception]:
        """Makes `count` (1 to 100, default 1) sandboxes that begin with the files of this one, which goes on meanwhile.

        Each has an id, tokens and `timeout` seconds (default: the service's) of its own. One that cannot be made is an
        exception in the list, in place of its sandbox. Raises SandboxNotFoundException, and SandboxException with
        `http_status` 409 when the sandbox is paused. Memory goes along where the service has checkpoints of processes.
        """
        config, request_timeout = call_options(self._config, opts)
        made = _fork(config, self.sandbox_id, count, timeout, request_timeout)
        return [one if isinstance(one, Exception) else self._of(one, config) for one in made]

    def _fork_by_id(
        cls,  # noqa: N805
        sandbox_id: str,
        timeout: int | None = None,
        count: int | None = None,
        logger: logging.Logger | None = None,
        **opts: Unpack[ApiParams],
    ) -> builtins.list[Self | Exception]:
        config = config_of(opts, logger=logger)
        made = _fork(config, sandbox_id, count, timeout, None)
        return [one if isinstance(one, Exception) else cls._of(one, config) for one in made]

    fork = dual(_fork, _fork_by_id)

    def _list_snapshots(
        self,
        limit: int | None = None,
        next_token: str | None = None,
        name: str | None = None,
        **opts: Unpack[ApiParams],
    ) -> SnapshotPaginator:
        """The snapshots of this sandbox (on the class: of all), `limit` on a page (1 to 100)."""
        check_config_options(opts)
        params = self._config.get_api_params(**opts)
        return SnapshotPaginator(self.sandbox_id, limit, next_token, name, **params)

    def _list_all_snapshots(
        cls,  # noqa: N805
        sandbox_id: str | None = None,
        limit: int | None = None,
        next_token: str | None = None,
        name: str | None = None,
        **opts: Unpack[ApiParams],
    ) -> SnapshotPaginator:
        return SnapshotPaginator(sandbox_id, limit, next_token, name, **opts)

    list_snapshots = dual(_list_snapshots, _list_all_snapshots)

    @staticmethod
    def delete_snapshot(snapshot_id: str, **opts: Unpack[ApiParams]) -> bool:
        """Removes a snapshot. False: there was none."""
        config = config_of(opts)
        call = _native.snapshot_delete(client(config.native), config.native, snapshot_id, None)
        return bool((drive(call)).result())

    @staticmethod
    def list(
        query: SandboxQuery | None = None,
        limit: int | None = None,
        next_token: str | None = None,
        **opts: Unpack[ApiParams],
    ) -> SandboxPaginator:
        """The sandboxes that match, `limit` on a page (1 to 100)."""
        return SandboxPaginator(query, limit, next_token, **opts)

    def is_running(self, request_timeout: float | None = None) -> bool:
        """Does the sandbox run? Asks the sandbox itself."""
        call = _native.sandbox_is_running(client(self._config.native), self._address, request_timeout)
        return bool((drive(call)).result())

    def get_mcp_token(self) -> str | None:
        """Token for `get_mcp_url`."""
        if not self._mcp_token:
            self._mcp_token = self.files.read("/etc/mcp-gateway/.token", user="root")
        return self._mcp_token

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
