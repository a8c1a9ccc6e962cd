# Made by python/make_sync.py of agent_sandbox/_async/commands.py; never edited.
"""Commands and pseudo terminals of a sandbox."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Literal, overload

from .. import _native
from .._convert import process_of, stdin_of
from .._models import CommandExitException, CommandResult, ProcessInfo, PtyOutput, PtySize
from .handle import CommandHandle, OutputHandler
from .run import client, drive, wait

if TYPE_CHECKING:
    from .._config import ConnectionConfig

_SIGKILL = 9


def _started(call: _native.Call) -> int:
    """The process id of a stream that begins; errors until then are raised, not told by the handle."""
    try:
        while True:
            event = call.next()
            if event is not None and event[0] == _native.EVENT_START:
                return event[2]
            if event is None and call.done():
                call.result()
                return call.command()[0]
            if event is None:
                wait(call)
    except BaseException:
        call.cancel()
        raise


class _Processes:
    """What commands and terminals have in common."""

    _is_pty = False

    def __init__(self, address: _native.Sandbox, config: ConnectionConfig) -> None:
        self._address = address
        self._config = config

    def kill(self, pid: int, request_timeout: float | None = None) -> bool:
        """Kills a process (SIGKILL). False: there is none with this id (any more)."""
        call = _native.process_signal(client(self._config.native), self._address, pid, _SIGKILL, request_timeout)
        return bool((drive(call)).result())

    def _send_stdin(self, pid: int, data: str | bytes, request_timeout: float | None = None) -> None:
        call = _native.process_send_stdin(
            client(self._config.native), self._address, pid, self._is_pty, stdin_of(data), request_timeout
        )
        (drive(call)).result()

    def _close_stdin(self, pid: int, request_timeout: float | None = None) -> None:
        call = _native.process_close_stdin(client(self._config.native), self._address, pid, request_timeout)
        (drive(call)).result()

    def _handle(
        self,
        call: _native.Call,
        on_stdout: OutputHandler[str] | None = None,
        on_stderr: OutputHandler[str] | None = None,
        on_pty: OutputHandler[PtyOutput] | None = None,
    ) -> CommandHandle:
        pid = _started(call)
        return CommandHandle(
            pid,
            call,
            lambda: self.kill(pid),
            lambda data, timeout: self._send_stdin(pid, data, timeout),
            lambda timeout: self._close_stdin(pid, timeout),
            on_stdout,
            on_stderr,
            on_pty,
        )


class Commands(_Processes):
    """Commands of a sandbox, run by a login shell (`/bin/bash -l -c`).

    `user` is who runs it (default: the template's), `cwd` its folder (default: the user's home). `timeout` is the time of a
    command in seconds (0 or None: none), `request_timeout` the time until it starts. Errors: TimeoutException (time ran out,
    or the sandbox does not run any more), InvalidArgumentException (no such user or folder), NotFoundException (no such
    process), AuthenticationException.
    """

    def list(self, request_timeout: float | None = None) -> builtins.list[ProcessInfo]:
        """All running commands and terminals."""
        call = _native.process_list(client(self._config.native), self._address, request_timeout)
        return [process_of(p) for p in (drive(call)).result()]

    def send_stdin(self, pid: int, data: str | bytes, request_timeout: float | None = None) -> None:
        """Sends to a command's standard input; it has to be started with `stdin=True`."""
        self._send_stdin(pid, data, request_timeout)

    def close_stdin(self, pid: int, request_timeout: float | None = None) -> None:
        """Closes a command's standard input. Raises TemplateException when the sandbox is too old for it."""
        self._close_stdin(pid, request_timeout)

    @overload
    def run(
        self, cmd: str, background: Literal[False] | None = None, envs: dict[str, str] | None = None,
        user: str | None = None, cwd: str | None = None, on_stdout: OutputHandler[str] | None = None,
        on_stderr: OutputHandler[str] | None = None, stdin: bool | None = None, timeout: float | None = 60,
        request_timeout: float | None = None,
    ) -> CommandResult: ...  # fmt: skip

    @overload
    def run(
        self, cmd: str, background: Literal[True], envs: dict[str, str] | None = None,
        user: str | None = None, cwd: str | None = None, on_stdout: OutputHandler[str] | None = None,
        on_stderr: OutputHandler[str] | None = None, stdin: bool | None = None, timeout: float | None = 60,
        request_timeout: float | None = None,
    ) -> CommandHandle: ...  # fmt: skip

    def run(
        self,
        cmd: str,
        background: bool | None = None,
        envs: dict[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        on_stdout: OutputHandler[str] | None = None,
        on_stderr: OutputHandler[str] | None = None,
        stdin: bool | None = None,
        timeout: float | None = 60,
        request_timeout: float | None = None,
    ) -> CommandResult | CommandHandle:
        """Runs a command and returns its result; with `background` a handle as soon as it runs.

        `envs` are added to its environment, `on_stdout` and `on_stderr` are called with pieces of output as they arrive (of
        a plain handle: while somebody waits), `stdin=True` leaves its standard input open for `send_stdin`. After `timeout`
        seconds (0 or None: no limit) it is killed: TimeoutException. Raises CommandExitException when it ends with another
        exit code than 0. Cancelling the wait (Ctrl-C, a cancelled task) cuts the connection; the command itself goes on.
        """
        started = (
            client(self._config.native), self._address, cmd, user, cwd, envs, bool(stdin), timeout or 0, request_timeout
        )  # fmt: skip
        if background or on_stdout is not None or on_stderr is not None:
            handle = self._handle(_native.command_start(*started), on_stdout, on_stderr)
            return handle if background else handle.wait()
        return _result(_native.command_run(*started))

    def connect(
        self,
        pid: int,
        timeout: float | None = 60,
        request_timeout: float | None = None,
        *,
        output_offset: int | None = None,
    ) -> CommandHandle:
        """Listens to a running command: what it writes from now on. Raises NotFoundException.

        `timeout` is the time of the stream in seconds (0 or None: none), not of the command.

        `output_offset` is the `output_offset` of a handle that lost its connection: what came since then comes first.
        """
        call = _native.process_connect(
            client(self._config.native), self._address, pid, timeout or 0, request_timeout, output_offset
        )
        return self._handle(call)



def _result(call: _native.Call) -> CommandResult:
    _, _, exit_code, _, _, error, stdout, stderr = (drive(call)).result()
    if exit_code != 0:
        raise CommandExitException(stderr=stderr, stdout=stdout, exit_code=exit_code, error=error)
    return CommandResult(stderr, stdout, exit_code, error)


class Pty(_Processes):
    """Pseudo terminals of a sandbox: a login shell each. Times and errors are those of `Commands`."""

    _is_pty = True

    def send_stdin(self, pid: int, data: bytes, request_timeout: float | None = None) -> None:
        """Types into the terminal."""
        self._send_stdin(pid, data, request_timeout)

    def resize(self, pid: int, size: PtySize, request_timeout: float | None = None) -> None:
        """Tells the terminal its new size."""
        call = _native.pty_resize(client(self._config.native), self._address, pid, size.cols, size.rows, request_timeout)
        (drive(call)).result()

    def create(
        self,
        size: PtySize,
        user: str | None = None,
        cwd: str | None = None,
        envs: dict[str, str] | None = None,
        timeout: float | None = 60,
        request_timeout: float | None = None,
    ) -> CommandHandle:
        """Starts a shell on a terminal; the handle has its output. `timeout` in seconds (0 or None: none).

        TERM, LANG and LC_ALL are set unless `envs` has them.
        """
        call = _native.pty_start(
            client(self._config.native), self._address, size.cols, size.rows, user, cwd, envs, None, timeout or 0,
            request_timeout,
        )  # fmt: skip
        return self._handle(call)

    def connect(
        self,
        pid: int,
        timeout: float | None = 60,
        request_timeout: float | None = None,
        *,
        output_offset: int | None = None,
    ) -> CommandHandle:
        """Listens to a running terminal. `timeout` is the time of the stream in seconds (0 or None: none)."""
        call = _native.process_connect(
            client(self._config.native), self._address, pid, timeout or 0, request_timeout, output_offset
        )
        return self._handle(call)

