"""Which exception stands for which error of libabx: the one place that decides."""

from __future__ import annotations

from . import _native, exceptions as e

_BY_REASON: dict[int, type[Exception]] = {
    _native.REASON_DISK_FULL: e.NotEnoughSpaceException,
    _native.REASON_RATE_LIMITED: e.RateLimitException,
    _native.REASON_SANDBOX_GONE: e.TimeoutException,
    _native.REASON_SANDBOX_NOT_FOUND: e.SandboxNotFoundException,
    _native.REASON_FILE_NOT_FOUND: e.FileNotFoundException,
    _native.REASON_TEMPLATE_NOT_FOUND: e.NotFoundException,
    _native.REASON_TEMPLATE_TOO_OLD: e.TemplateException,
    _native.REASON_NO_CREDENTIALS: e.AuthenticationException,
    _native.REASON_REQUEST_TIMEOUT: e.TimeoutException,
    _native.REASON_COMMAND_TIMEOUT: e.TimeoutException,
    _native.REASON_TOO_LARGE: e.SandboxException,
    # No connection: nothing was lost that more time would bring back.
    _native.REASON_NAME: e.SandboxException,
    _native.REASON_CONNECT: e.SandboxException,
    _native.REASON_TLS: e.SandboxException,
    _native.REASON_DISCONNECTED: e.SandboxException,
}

_BY_CODE: dict[int, type[Exception]] = {
    _native.CANCELED: e.TimeoutException,
    _native.INVALID_ARGUMENT: e.InvalidArgumentException,
    _native.DEADLINE_EXCEEDED: e.TimeoutException,
    _native.NOT_FOUND: e.NotFoundException,
    _native.RESOURCE_EXHAUSTED: e.RateLimitException,
    _native.UNAVAILABLE: e.TimeoutException,
    _native.UNAUTHENTICATED: e.AuthenticationException,
}

# What to do next, where the caller can do something.
_HINTS: dict[int, str] = {
    _native.REASON_SANDBOX_GONE: "killed, or its time was over, which timeout of Sandbox.create and set_timeout set",
    _native.REASON_COMMAND_TIMEOUT: "timeout sets another limit, in seconds (0: none)",
    _native.REASON_REQUEST_TIMEOUT: "request_timeout sets another limit, in seconds (0: none)",
}


def make(code: int, reason: int, http_status: int, message: str, error_code: str) -> Exception:
    """The exception for an error of libabx: by its reason, else by its code."""
    cls = _BY_REASON.get(reason) or _BY_CODE.get(code) or e.SandboxException
    hint = _HINTS.get(reason)
    error = cls(f"{message}; {hint}" if hint else message)
    error.code = _native.error_name(code)  # type: ignore[attr-defined]
    error.http_status = http_status  # type: ignore[attr-defined]
    error.error_code = error_code  # type: ignore[attr-defined]
    return error


# As the status of an answer, of which libabx makes the others.
_BY_STATUS: dict[int, type[Exception]] = {
    401: e.AuthenticationException,
    404: e.NotFoundException,
    429: e.RateLimitException,
}


def of_status(status: int, message: str) -> Exception:
    """The exception for one part of an answer that failed by itself, with the status that it would have had alone."""
    error = _BY_STATUS.get(status, e.SandboxException)(f"{status}: {message}")
    error.http_status = status  # type: ignore[attr-defined]
    return error


_native.set_error_maker(make)
