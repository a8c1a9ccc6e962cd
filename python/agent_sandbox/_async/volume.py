"""Volumes: folders that outlive sandboxes."""

from __future__ import annotations

import builtins
import json
from collections.abc import AsyncIterator
from typing import IO, TYPE_CHECKING, Any, Literal, overload
from urllib.parse import quote

from .. import _native
from .._config import (
    ApiParams,
    ConnectionConfig,
    ProxyTypes,
    VolumeApiParams,
    VolumeConnectionConfig,
    config_of,
    volume_config_of,
)
from .._convert import json_of, payload_of
from .._dual import dual
from .._volume import (
    VolumeAndToken,
    VolumeEntryStat,
    VolumeInfo,
    check,
    content_headers,
    content_url,
    json_check,
    stat_of,
)
from ..exceptions import InvalidArgumentException, NotFoundException, SandboxException, VolumeException
from .files import AsyncFileStreamReader
from .run import client, drive, wait

if TYPE_CHECKING:
    from typing_extensions import Unpack

_FILE_TIMEOUT = 3600.0


async def _control(config: ConnectionConfig, method: str, path: str, body: Any = None) -> Any:
    call = _native.control_request(
        client(config.native), config.native, method, path, None, None if body is None else json.dumps(body), None
    )
    try:
        return json_of(await drive(call))
    except NotFoundException:
        raise
    except SandboxException as e:
        if type(e) is SandboxException:
            error = VolumeException(str(e))
            error.code, error.http_status, error.error_code = e.code, e.http_status, e.error_code
            raise error from None
        raise


def _path(volume_id: str) -> str:
    return "/volumes/" + quote(volume_id, safe="")


class AsyncVolume:
    """A volume: `create` or `connect`, then read and write its content, or mount it into sandboxes (`volume_mounts`).

    `request_timeout` is in seconds (0 = no limit; default 60, for whole files an hour). Errors: NotFoundException (no such
    volume, file or folder), AuthenticationException, RateLimitException; VolumeException for all others, also when the
    service has no volumes.
    """

    def __init__(
        self,
        volume_id: str,
        name: str,
        token: str | None = None,
        domain: str | None = None,
        debug: bool | None = None,
        proxy: ProxyTypes | None = None,
    ) -> None:
        self._volume_id = volume_id
        self._name = name
        self._token = token
        self._domain = domain
        self._debug = debug
        self._proxy = proxy

    @property
    def volume_id(self) -> str:
        """Its id."""
        return self._volume_id

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    @property
    def token(self) -> str | None:
        """Token for its content."""
        return self._token

    @classmethod
    def _of(cls, told: dict[str, Any], opts: Any) -> AsyncVolume:
        return cls(
            told["volumeID"], told["name"], told.get("token"), opts.get("domain"), opts.get("debug"), opts.get("proxy")
        )

    @classmethod
    async def create(cls, name: str, **opts: Unpack[ApiParams]) -> AsyncVolume:
        """Makes a volume."""
        return cls._of(await _control(config_of(opts), "POST", "/volumes", {"name": name}), opts)

    @classmethod
    async def connect(cls, volume_id: str, **opts: Unpack[ApiParams]) -> AsyncVolume:
        """Finds a volume by its id."""
        return cls._of(await _control(config_of(opts), "GET", _path(volume_id)), opts)

    @staticmethod
    async def destroy(volume_id: str, **opts: Unpack[ApiParams]) -> bool:
        """Removes a volume with all that is in it. False: there was none."""
        try:
            await _control(config_of(opts), "DELETE", _path(volume_id))
        except NotFoundException:
            return False
        return True

    # ---- content ----

    def _config(self, opts: Any) -> VolumeConnectionConfig:
        return volume_config_of(opts, domain=self._domain, debug=self._debug, proxy=self._proxy, token=self._token)

    async def _http(
        self, opts: Any, method: str, kind: str, body: bytes | None = None, json_body: Any = None, **query: Any
    ) -> tuple[int, bytes]:
        config = self._config(opts)
        headers = content_headers(config, config.token)
        if json_body is not None:
            body = json.dumps(json_body).encode()
            headers["Content-Type"] = "application/json"
        elif body is not None:
            headers["Content-Type"] = "application/octet-stream"
        timeout = opts.get("request_timeout")
        if timeout is None and kind == "file":
            timeout = _FILE_TIMEOUT
        call = _native.http_request(
            client(config.native), config.native, method, content_url(config, self._volume_id, kind, **query), headers,
            body, None, 1 << 40, timeout, None,
        )  # fmt: skip
        status, _, _, answer = (await drive(call)).result()
        return status, answer

    async def _list_dir(
        self, path: str, depth: int | None = None, **opts: Unpack[VolumeApiParams]
    ) -> builtins.list[VolumeEntryStat]:
        """What is in a folder of the volume, `depth` levels deep (on the class, without arguments: all volumes)."""
        return [stat_of(o) for o in json_check(*await self._http(opts, "GET", "dir", path=path, depth=depth))]

    async def _list_volumes(cls, **opts: Unpack[ApiParams]) -> builtins.list[VolumeInfo]:  # noqa: N805
        told = await _control(config_of(opts), "GET", "/volumes")
        return [VolumeInfo(o["volumeID"], o["name"]) for o in told]

    list = dual(_list_dir, _list_volumes)

    async def _get_entry(self, path: str, **opts: Unpack[VolumeApiParams]) -> VolumeEntryStat:
        """What is known about a file or folder of the volume (on the class, with an id: about a volume)."""
        return stat_of(json_check(*await self._http(opts, "GET", "path", path=path)))

    async def _get_volume(cls, volume_id: str, **opts: Unpack[ApiParams]) -> VolumeAndToken:  # noqa: N805
        told = await _control(config_of(opts), "GET", _path(volume_id))
        return VolumeAndToken(told["volumeID"], told["name"], told["token"])

    get_info = dual(_get_entry, _get_volume)

    async def make_dir(
        self,
        path: str,
        uid: int | None = None,
        gid: int | None = None,
        mode: int | None = None,
        force: bool | None = None,
        **opts: Unpack[VolumeApiParams],
    ) -> VolumeEntryStat:
        """Makes a folder; with `force` those on the way too, and it is no error when it is there."""
        status, body = await self._http(opts, "POST", "dir", path=path, uid=uid, gid=gid, mode=mode, force=force)
        return stat_of(json_check(status, body))

    async def exists(self, path: str, **opts: Unpack[VolumeApiParams]) -> bool:
        """Is there a file or folder?"""
        status, body = await self._http(opts, "GET", "path", path=path)
        if status == 404:
            return False
        check(status, body)
        return True

    async def update_metadata(
        self,
        path: str,
        uid: int | None = None,
        gid: int | None = None,
        mode: int | None = None,
        **opts: Unpack[VolumeApiParams],
    ) -> VolumeEntryStat:
        """Changes owner, group or mode."""
        change = {k: v for k, v in (("uid", uid), ("gid", gid), ("mode", mode)) if v is not None}
        return stat_of(json_check(*await self._http(opts, "PATCH", "path", json_body=change, path=path)))

    @overload
    async def read_file(
        self, path: str, format: Literal["text"] = "text", stream_idle_timeout: float | None = None,
        **opts: Unpack[VolumeApiParams],
    ) -> str: ...  # fmt: skip

    @overload
    async def read_file(
        self, path: str, format: Literal["bytes"], stream_idle_timeout: float | None = None,
        **opts: Unpack[VolumeApiParams],
    ) -> bytes: ...  # fmt: skip

    @overload
    async def read_file(
        self, path: str, format: Literal["stream"], stream_idle_timeout: float | None = None,
        **opts: Unpack[VolumeApiParams],
    ) -> AsyncIterator[bytes]: ...  # fmt: skip

    async def read_file(
        self,
        path: str,
        format: Literal["text", "bytes", "stream"] = "text",
        stream_idle_timeout: float | None = None,
        **opts: Unpack[VolumeApiParams],
    ) -> str | bytes | AsyncIterator[bytes]:
        """Content of a file: as text (UTF-8), as bytes, or piece by piece, `stream_idle_timeout` seconds apart at most."""
        if format not in ("text", "bytes", "stream"):
            raise InvalidArgumentException(f'format has to be "text", "bytes" or "stream", not {format!r}')
        if format != "stream":
            body = check(*await self._http(opts, "GET", "file", path=path))
            return body.decode("utf-8", "replace") if format == "text" else body
        config = self._config(opts)
        call = _native.http_request(
            client(config.native), config.native, "GET", content_url(config, self._volume_id, "file", path=path),
            content_headers(config, config.token), None, True, None, opts.get("request_timeout"),
            _FILE_TIMEOUT if stream_idle_timeout is None else stream_idle_timeout,
        )  # fmt: skip
        try:
            await wait(call)
        except BaseException:
            call.cancel()
            raise
        status = call.http_status()
        if 200 <= status < 300:
            return AsyncFileStreamReader(call)
        pieces = [piece async for piece in AsyncFileStreamReader(call)]
        check(status, b"".join(pieces))
        raise VolumeException(f"{status}: the answer has no content")

    async def write_file(
        self,
        path: str,
        data: str | bytes | IO[Any],
        uid: int | None = None,
        gid: int | None = None,
        mode: int | None = None,
        force: bool | None = None,
        **opts: Unpack[VolumeApiParams],
    ) -> VolumeEntryStat:
        """Writes a file; with `force` folders on the way are made. A file object is read to its end first."""
        payload = payload_of(data)
        if not isinstance(payload, bytes):
            content = payload.read()
            payload = content.encode() if isinstance(content, str) else bytes(content)
        status, body = await self._http(opts, "PUT", "file", payload, path=path, uid=uid, gid=gid, mode=mode, force=force)
        return stat_of(json_check(status, body))

    async def remove(self, path: str, **opts: Unpack[VolumeApiParams]) -> None:
        """Removes a file, or a folder with all that is in it."""
        check(*await self._http(opts, "DELETE", "path", path=path))
