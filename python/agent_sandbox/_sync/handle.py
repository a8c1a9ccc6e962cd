"""A running command, for plain code."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from typing import TypeVar

from .. import _native
from .._models import CommandExitException, CommandResult, PtyOutput, Stderr, Stdout
from ..exceptions import SandboxException

T = TypeVar("T")
OutputHandler = Callable[[T], None]
"""Function that is called with each piece of output."""


class CommandHandle:
    """A running command: iterate over it for its output, or `wait` for its end.

    Each element is (stdout, stderr, pty), of which one is not None. Nothing is read while nobody iterates or waits; the
    command is made to wait then, once 4 MiB of output wait. Another thread than the one that started it may wait too.
    """

    def __init__(
        self,
        pid: int,
        call: _native.Call,
        handle_kill: Callable[[], bool],
        handle_send_stdin: Callable[[str | bytes, float | None], None],
        handle_close_stdin: Callable[[float | None], None],
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
        self._is_disconnected = False
        self._taken = 0
        self._decoders = {
            stream: codecs.getincrementaldecoder("utf-8")("replace") for stream in (_native.STDOUT, _native.STDERR)
        }

    @property
    def pid(self) -> int:
        """Process id in the sandbox."""
        return self._pid

    @property
    def output_offset(self) -> int | None:
        """Where the output stands, in bytes of all streams together, behind what came here. None: another service."""
        begin = self._call.output_offset()
        return None if begin is None else begin + self._taken

    def __iter__(self) -> Iterator[tuple[Stdout | None, Stderr | None, PtyOutput | None]]:
        """The output as it arrives: (stdout, stderr, pty), of which one is not None. Raises as `wait` does for streams."""
        call = self._call
        while not call.done():
            event = call.next()
            if event is None:
                call.wait(None)
            elif event[0] == _native.EVENT_OUTPUT:
                self._taken += len(event[6])
                decoder = self._decoders.get(event[1])
                if decoder is None:
                    yield None, None, event[6]
                else:
                    yield from self._text(event[1], decoder.decode(event[6]))
        if self._result is not None or self._is_disconnected:
            return
        for stream, decoder in self._decoders.items():
            yield from self._text(stream, decoder.decode(b"", True))
        call.result()
        told = call.command()
        self._result = CommandResult("".join(self._stderr), "".join(self._stdout), told[2], told[5])

    def _text(self, stream: int, text: str) -> Iterator[tuple[Stdout | None, Stderr | None, None]]:
        if text and stream == _native.STDOUT:
            self._stdout.append(text)
            yield text, None, None
        elif text:
            self._stderr.append(text)
            yield None, text, None

    def wait(
        self,
        on_pty: Callable[[PtyOutput], None] | None = None,
        on_stdout: Callable[[str], None] | None = None,
        on_stderr: Callable[[str], None] | None = None,
    ) -> CommandResult:
        """Returns when the command has ended; output on the way goes to the callbacks.

        Raises CommandExitException for another exit code than 0, TimeoutException when the time of the stream is over or
        the sandbox is gone, and what a callback raised.
        """
        on_pty, on_stdout, on_stderr = on_pty or self._on_pty, on_stdout or self._on_stdout, on_stderr or self._on_stderr
        for stdout, stderr, pty in self:
            if stdout is not None and on_stdout is not None:
                on_stdout(stdout)
            elif stderr is not None and on_stderr is not None:
                on_stderr(stderr)
            elif pty is not None and on_pty is not None:
                on_pty(pty)
        r = self._result
        if r is None:
            raise SandboxException("the command was disconnected from: connect to it again by its pid")
        if r.exit_code != 0:
            raise CommandExitException(stderr=r.stderr, stdout=r.stdout, exit_code=r.exit_code, error=r.error)
        return r

    def kill(self) -> bool:
        """Kills the command (SIGKILL). False: it had ended."""
        return self._kill()

    def send_stdin(self, data: str | bytes, request_timeout: float | None = None) -> None:
        """Sends to the command's standard input; it has to be started with `stdin=True`."""
        self._send_stdin(data, request_timeout)

    def close_stdin(self, request_timeout: float | None = None) -> None:
        """Closes the command's standard input. Raises TemplateException when the sandbox is too old for it."""
        self._close_stdin(request_timeout)

    def disconnect(self) -> None:
        """Stops listening. The command goes on; `commands.connect` listens again."""
        self._is_disconnected = True
        self._call.cancel()
