# Made by python/make_sync.py of agent_sandbox/code_interpreter/_async/sandbox.py; never edited.
"""A sandbox that runs code."""

from __future__ import annotations

from ... import _native
from ..._sync.sandbox import Sandbox as BaseSandbox
from ..._convert import json_of
from ...exceptions import InvalidArgumentException
from ..models import (
    Context,
    Execution,
    ExecutionError,
    OutputHandler,
    OutputMessage,
    Result,
    RunCodeLanguage,
    take,
)
from .run import client, drive, tell, wait


class Sandbox(BaseSandbox):
    """A sandbox of the template "code-interpreter-v1" that runs code in contexts, which keep its variables.

    Errors besides those of every sandbox: NotFoundException (no such context), TimeoutException (the code took too long),
    and whatever says that the sandbox has no code interpreter. An exception of the code is no error: `Execution.error`.
    """

    default_template = "code-interpreter-v1"

    def run_code(
        self,
        code: str,
        language: RunCodeLanguage | None = None,
        context: Context | None = None,
        on_stdout: OutputHandler[OutputMessage] | None = None,
        on_stderr: OutputHandler[OutputMessage] | None = None,
        on_result: OutputHandler[Result] | None = None,
        on_error: OutputHandler[ExecutionError] | None = None,
        envs: dict[str, str] | None = None,
        timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> Execution:
        """Runs code in `context`, or in the default one of `language` ("python"); the two exclude each other.

        `timeout` is the longest time between two pieces of the answer in seconds (0 = no limit, default 300),
        `request_timeout` that until it begins. The callbacks are called with each piece as it arrives.
        """
        if language is not None and context is not None:
            raise InvalidArgumentException("language and context exclude each other: a context has a language")
        call = _native.code_run(
            client(self._config.native), self._address, code, language, None if context is None else context.id, envs,
            timeout, request_timeout,
        )  # fmt: skip
        execution = Execution()
        handlers = {"stdout": on_stdout, "stderr": on_stderr, "result": on_result, "error": on_error}
        try:
            while not call.done():
                event = call.next()
                if event is None:
                    wait(call)
                elif event[0] == _native.EVENT_DATA:
                    taken = take(execution, event[6])
                    if taken is not None:
                        tell(handlers[taken[0]], taken[1])
        except BaseException:
            call.cancel()
            raise
        call.result()
        return execution

    def create_code_context(
        self,
        cwd: str | None = None,
        language: RunCodeLanguage | None = None,
        request_timeout: float | None = None,
    ) -> Context:
        """Makes a context with variables of its own, in folder `cwd` (default "/home/user")."""
        call = _native.code_context_create(client(self._config.native), self._address, language, cwd, request_timeout)
        return Context.from_json(json_of(drive(call)))

    def list_code_contexts(self) -> list[Context]:
        """All contexts."""
        call = _native.code_context_list(client(self._config.native), self._address, None)
        return [Context.from_json(o) for o in json_of(drive(call))]

    def restart_code_context(self, context: Context | str) -> None:
        """Starts a context anew: its variables are gone."""
        name = context if isinstance(context, str) else context.id
        (drive(_native.code_context_restart(client(self._config.native), self._address, name, None))).result()

    def remove_code_context(self, context: Context | str) -> None:
        """Removes a context."""
        name = context if isinstance(context, str) else context.id
        (drive(_native.code_context_remove(client(self._config.native), self._address, name, None))).result()
