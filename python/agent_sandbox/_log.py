"""Requests as lines of a logger that the program gave (`logger=`), as the published package writes them.

A request and its answer are INFO, an answer of 400 or more ERROR, as is a request without an answer; the end of a stream is
DEBUG. Lines have method, scheme, host and path, the status and the time that it took: no query (links of files are signed
there), headers or bodies.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from . import _native

Trace = Callable[[int, str, str, int, int, int, int, "str | None"], None]


def tracer(logger: logging.Logger | None) -> Trace | None:
    """What `Config` is to call for each step of a request; None = nobody wants to know."""
    if logger is None:
        return None

    def trace(kind: int, method: str, url: str, status: int, ms: int, is_stream: int, code: int, error: str | None) -> None:
        if kind == _native.TRACE_REQUEST:
            logger.info("Request %s %s", method, url)
        elif kind == _native.TRACE_RESPONSE:
            level = logging.ERROR if status >= 400 else logging.INFO
            logger.log(level, "Response%s %d %s %s (%d ms)", " stream" if is_stream else "", status, method, url, ms)
        elif kind == _native.TRACE_END:
            why = "" if error is None or code == _native.CANCELED else f": {error}"
            logger.debug("Response stream ended %s %s (%d ms)%s", method, url, ms, why)
        elif code == _native.CANCELED:
            logger.info("Request canceled %s %s (%d ms)", method, url, ms)
        else:
            logger.error("Request failed %s %s (%d ms): %s", method, url, ms, error)

    return trace
