"""What volumes are made of: shared by both sides."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any
from urllib.parse import quote, urlencode

from ._config import VolumeConnectionConfig
from .exceptions import AuthenticationException, NotFoundException, RateLimitException, VolumeException


class VolumeFileType(str, Enum):
    """Kind of an entry of a volume."""

    DIRECTORY = "directory"
    FILE = "file"
    SYMLINK = "symlink"
    UNKNOWN = "unknown"

    def __str__(self) -> str:
        return self.value


@dataclass
class VolumeInfo:
    """A volume."""

    volume_id: str
    name: str


@dataclass
class VolumeAndToken(VolumeInfo):
    """A volume, and the token for its content."""

    token: str


@dataclass
class VolumeEntryStat:
    """A file or folder of a volume: size in bytes, mode as permission bits, `target` of a link."""

    name: str
    type: VolumeFileType
    path: str
    size: int
    mode: int
    uid: int
    gid: int
    atime: datetime
    mtime: datetime
    ctime: datetime
    target: str | None = None


def _time(text: str) -> datetime:
    # fromisoformat of 3.10 knows neither "Z" nor other than 3 or 6 digits.
    text = text.replace("Z", "+00:00")
    head, dot, tail = text.partition(".")
    if dot:
        digits = len(tail) - len(tail.lstrip("0123456789"))
        text = f"{head}.{tail[:digits][:6].ljust(6, '0')}{tail[digits:]}"
    return datetime.fromisoformat(text)


def stat_of(o: dict[str, Any]) -> VolumeEntryStat:
    """From the service's JSON object."""
    kinds = {kind.value: kind for kind in VolumeFileType}
    return VolumeEntryStat(
        o["name"], kinds.get(o["type"], VolumeFileType.UNKNOWN), o["path"], o["size"], o["mode"], o["uid"], o["gid"],
        _time(o["atime"]), _time(o["mtime"]), _time(o["ctime"]), o.get("target"),
    )  # fmt: skip


def content_url(config: VolumeConnectionConfig, volume_id: str, kind: str, **query: Any) -> str:
    """URL of a volume's content: kind "dir", "file" or "path"."""
    values = {k: ("true" if v is True else "false" if v is False else v) for k, v in query.items() if v is not None}
    return f"{config.api_url}/volumecontent/{quote(volume_id, safe='')}/{kind}?{urlencode(values)}"


def content_headers(config: VolumeConnectionConfig, token: str | None) -> dict[str, str]:
    """Headers of a request for content."""
    if not token:
        raise AuthenticationException("the volume's content needs its token: Volume.connect gets it")
    return {**config.headers, "Authorization": f"Bearer {token}"}


def check(status: int, body: bytes) -> bytes:
    """The body of a good answer; raises what a bad one says."""
    if 200 <= status < 300:
        return body
    text = body.decode("utf-8", "replace")
    try:
        told = json.loads(text)
    except ValueError:
        told = None
    message = told.get("message", text) if isinstance(told, dict) else text
    classes: dict[int, type[AuthenticationException | NotFoundException | RateLimitException]] = {
        401: AuthenticationException,
        404: NotFoundException,
        429: RateLimitException,
    }
    error = classes.get(status, VolumeException)(f"{status}: {message}")
    error.http_status = status
    raise error


def json_check(status: int, body: bytes) -> Any:
    """The JSON of a good answer."""
    good = check(status, body)
    try:
        return json.loads(good)
    except ValueError:
        raise VolumeException(f"{status}: the answer is not JSON") from None
