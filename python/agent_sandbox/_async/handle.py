"""A running command, for asyncio."""

from __future__ import annotations

import asyncio
import codecs
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from .. import _native
from .._loops import spawn, wait
from .._models import CommandExitException, CommandResult, PtyOutput
from ..exceptions import SandboxException

T = TypeVar("T")
OutputHandler = Callable[[T], None] | Callable[[T], Awaitable[None]]
"""Function, plain or async, that is called with each piece of output."""


class AsyncCommandHandle:
    """A running command: its output goes to the callbacks as it arrives, `wait` tells how it ended.

    A task of the loop reads the output; what callbacks raise ends it and comes out of `wait`.
    """

    def __init__(
        self,
        pid: int,
        call: _native.Call,
        handle_kill: Callable[[], Coroutine[Any, Any, bool]],
        handle_send_stdin: Callable[[str | bytes, float | None], Coroutine[Any, Any, None]],
        handle_close_stdin: Callable[[float | None], Coroutine[Any, Any, None]],
        on_stdout: OutputHandler[str] | None = None,
        on_stderr: OutputHandler[str] | None = None,
        on_pty: OutputHandler[PtyOutput] | None = None,
    ) -> None:
        self._pid = pid
        self._call = call
        self._kill = handle_kill
        self._send_stdin = handle_send_stdin
        self._close_stdin = handle_close_stdin
        self._on_stdout = on_stdout
        self._on_stderr = on_stderr
        self._on_pty = on_pty
        self._stdout: list[str] = []
        self._stderr: list[str] = []
        self._result: CommandResult | None = None
        self._failure: BaseException | None = None
        self._is_disconnected = False
        self._taken = 0
        self._task = spawn(self._read())

    @property
    def pid(self) -> int:
        """Process id in the sandbox."""
        return self._pid

    @property
    def output_offset(self) -> int | None:
        """Where the output stands, in bytes of all streams together, behind what came here. None: another service."""
        begin = self._call.output_offset()
        return None if begin is None else begin + self._taken

    @property
    def stdout(self) -> str:
        """Standard output so far."""
        return "".join(self._stdout)

    @property
    def stderr(self) -> str:
        """Standard error so far."""
        return "".join(self._stderr)

    @property
    def error(self) -> str | None:
        """What the sandbox says about a failure; None while the command runs."""
        return None if self._result is None else self._result.error

    @property
    def exit_code(self) -> int | None:
        """Exit code; None while the command runs."""
        return None if self._result is None else self._result.exit_code

    async def wait(self) -> CommandResult:
        """Returns when the command has ended.

        Raises CommandExitException for another exit code than 0, TimeoutException when the time of the stream is over or
        the sandbox is gone, and what a callback raised. Cancelling it cuts the stream; the command goes on.
        """
        try:
            await asyncio.wait([self._task])
        except asyncio.CancelledError:
            self._call.cancel()
            self._task.cancel()
            raise
        if self._task.cancelled() and not self._is_disconnected:
            raise asyncio.CancelledError
        if self._failure is not None:
            raise self._failure
        if self._result is None:
            raise SandboxException("the command was disconnected from: connect to it again by its pid")
        r = self._result
        if r.exit_code != 0:
            raise CommandExitException(stderr=r.stderr, stdout=r.stdout, exit_code=r.exit_code, error=r.error)
        return r

    async def kill(self) -> bool:
        """Kills the command (SIGKILL). False: it had ended."""
        return await self._kill()

    async def send_stdin(self, data: str | bytes, request_timeout: float | None = None) -> None:
        """Sends to the command's standard input; it has to be started with `stdin=True`."""
        await self._send_stdin(data, request_timeout)

    async def close_stdin(self, request_timeout: float | None = None) -> None:
        """Closes the command's standard input. Raises TemplateException when the sandbox is too old for it."""
        await self._close_stdin(request_timeout)

    async def disconnect(self) -> None:
        """Stops listening. The command goes on; `commands.connect` listens again."""
        self._is_disconnected = True
        self._call.cancel()
        self._task.cancel()

    async def _read(self) -> None:
        decoders = {stream: codecs.getincrementaldecoder("utf-8")("replace") for stream in (_native.STDOUT, _native.STDERR)}
        call = self._call
        try:
            while not call.done():
                event = call.next()
                if event is None:
                    await wait(call)
                elif event[0] == _native.EVENT_OUTPUT:
                    self._taken += len(event[6])
                    decoder = decoders.get(event[1])
                    if decoder is None:
                        await _tell(self._on_pty, event[6])
                    else:
                        await self._text(event[1], decoder.decode(event[6]))
            for stream, decoder in decoders.items():
                await self._text(stream, decoder.decode(b"", True))
            call.result()
            told = call.command()
            self._result = CommandResult(self.stderr, self.stdout, told[2], told[5])
        except Exception as e:
            if not self._is_disconnected:
                self._failure = e
        finally:
            call.cancel()

    async def _text(self, stream: int, text: str) -> None:
        if not text:
            return
        if stream == _native.STDOUT:
            self._stdout.append(text)
            await _tell(self._on_stdout, text)
        else:
            self._stderr.append(text)
            await _tell(self._on_stderr, text)


async def _tell(handler: OutputHandler[T] | None, piece: T) -> None:
    if handler is not None:
        told = handler(piece)
        if inspect.isawaitable(told):
            await told
