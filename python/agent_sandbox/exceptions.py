"""Exceptions of the standard interface.

Errors of sandboxes derive from `SandboxException`. Three families stand beside it: `AuthenticationException`
(no valid key), `BuildException` (building a template) and `VolumeException`. Exceptions that a server or the
transport caused have `code` (name of the Connect code, such as "not_found"), `http_status` (0 when no answer
said so) and `error_code` (the control plane's own word for it, often none: "") besides their message.
"""

from __future__ import annotations

__all__ = [
    "AuthenticationException",
    "BuildException",
    "FileNotFoundException",
    "FileUploadException",
    "GitAuthException",
    "GitUpstreamException",
    "InvalidArgumentException",
    "NotEnoughSpaceException",
    "NotFoundException",
    "RateLimitException",
    "SandboxException",
    "SandboxNotFoundException",
    "TemplateException",
    "TimeoutException",
    "VolumeException",
    "format_request_timeout_error",
    "format_sandbox_timeout_exception",
]


class _Cause:
    """What the transport knows about an error; defaults for exceptions that Python code raises."""

    code: str = "unknown"
    http_status: int = 0
    error_code: str = ""


class SandboxException(_Cause, Exception):
    """Something about a sandbox failed; base of most errors."""


class TimeoutException(SandboxException):
    """Time ran out, or the sandbox does not run any more.

    Deadlines of a request, of a command, of a stream; a sandbox whose own time is over; a connection that broke.
    The message says which.
    """


class InvalidArgumentException(SandboxException):
    """An argument is not acceptable; the message names it."""

    code = "invalid_argument"


class NotEnoughSpaceException(SandboxException):
    """The sandbox's disk is full."""


class NotFoundException(SandboxException):
    """What was asked for does not exist."""

    code = "not_found"


class FileNotFoundException(NotFoundException):
    """No such file or folder in the sandbox."""


class SandboxNotFoundException(NotFoundException):
    """No such sandbox (any more)."""


class AuthenticationException(_Cause, Exception):
    """There is no API key, or the server refuses it."""

    code = "unauthenticated"


class GitAuthException(AuthenticationException):
    """The git server wants other credentials."""


class GitUpstreamException(SandboxException):
    """The branch has no upstream to push to or pull from."""


class TemplateException(SandboxException):
    """The template does not fit: too old for what was asked, or unusable."""


class RateLimitException(SandboxException):
    """The server asks to slow down, or a quota is used up."""


class BuildException(_Cause, Exception):
    """A template could not be built."""


class FileUploadException(BuildException):
    """A file for a template build could not be uploaded."""


class VolumeException(_Cause, Exception):
    """Something about a volume failed."""


def format_sandbox_timeout_exception(message: str) -> TimeoutException:
    """A `TimeoutException` for a sandbox that ended: `message`, and what to do."""
    return TimeoutException(f"{message}: the sandbox does not run any more; give it more time with set_timeout")


def format_request_timeout_error() -> TimeoutException:
    """A `TimeoutException` for a request that took longer than `request_timeout`."""
    return TimeoutException("the request took too long; request_timeout sets another limit, in seconds (0: none)")
