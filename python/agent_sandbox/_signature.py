"""Signatures of file URLs."""

from __future__ import annotations

from typing import Literal, TypedDict

from . import (
    _errors as _errors,  # registers how errors become exceptions
    _native,
)


class Signature(TypedDict):
    """A signature, and the time (unix seconds) until which it is good: None = for ever."""

    signature: str
    expiration: int | None


def get_signature(
    path: str,
    operation: Literal["read", "write"],
    user: str | None,
    envd_access_token: str | None,
    expiration_in_seconds: int | None = None,
) -> Signature:
    """Signs a file URL: for reading or writing `path` as `user`, good for that many seconds (default: for ever).

    Raises ValueError without a token.
    """
    if not envd_access_token:
        raise ValueError("a signature needs the sandbox's access token: there is none")
    seconds = -1 if expiration_in_seconds is None else expiration_in_seconds
    text, expiration = _native.signature(path, operation, user, envd_access_token, seconds)
    return Signature(signature=text, expiration=None if expiration_in_seconds is None else expiration)
