# Made by python/make_sync.py of agent_sandbox/_async/files.py; never edited.
"""Files of a sandbox."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any, Literal, TypedDict, overload

from .. import _native
from .._convert import entry_of, payload_of, write_info_of
from .._models import EntryInfo, WriteInfo
from ..exceptions import InvalidArgumentException, SandboxException
from . import watch
from .run import client, drive, wait

if TYPE_CHECKING:
    from .._config import ConnectionConfig

_CHUNK = 256 * 1024


class WriteEntry(TypedDict):
    """A file to write: its path, and its content as text, bytes or a file object that is read."""

    path: str
    data: str | bytes | IO[Any]


class FileStreamReader(Iterator[bytes]):
    """Content of a file, piece by piece, as it arrives. Closing it (or leaving `with`) cuts the connection."""

    def __init__(self, call: _native.Call) -> None:
        self._call = call

    def __iter__(self) -> FileStreamReader:
        return self

    def __next__(self) -> bytes:
        while True:
            event = self._call.next()
            if event is not None:
                if event[0] == _native.EVENT_DATA:
                    return event[6]
            elif self._call.done():
                self._call.result()
                raise StopIteration
            else:
                wait(self._call)

    def close(self) -> None:
        """Stops reading. What did not arrive yet is lost."""
        self._call.cancel()

    def __enter__(self) -> FileStreamReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Filesystem:
    """Files of a sandbox.

    Paths are absolute, or relative to the user's home. `user` is the one in the sandbox who acts (default: the template's).
    `request_timeout` is in seconds (0 = no limit). Errors: FileNotFoundException (no such file or folder),
    InvalidArgumentException (a folder where a file is needed, or the other way round), NotEnoughSpaceException (disk full),
    TimeoutException (time ran out, or the sandbox does not run any more), AuthenticationException.
    """

    def __init__(self, address: _native.Sandbox, config: ConnectionConfig) -> None:
        self._address = address
        self._config = config

    @overload
    def read(
        self, path: str, format: Literal["text"] = "text", user: str | None = None,
        request_timeout: float | None = None, gzip: bool = False, stream_idle_timeout: float | None = None,
    ) -> str: ...  # fmt: skip

    @overload
    def read(
        self, path: str, format: Literal["bytes"], user: str | None = None,
        request_timeout: float | None = None, gzip: bool = False, stream_idle_timeout: float | None = None,
    ) -> bytearray: ...  # fmt: skip

    @overload
    def read(
        self, path: str, format: Literal["stream"], user: str | None = None,
        request_timeout: float | None = None, gzip: bool = False, stream_idle_timeout: float | None = None,
    ) -> FileStreamReader: ...  # fmt: skip

    def read(
        self,
        path: str,
        format: Literal["text", "bytes", "stream"] = "text",
        user: str | None = None,
        request_timeout: float | None = None,
        gzip: bool = False,
        stream_idle_timeout: float | None = None,
    ) -> str | bytearray | FileStreamReader:
        """Content of a file: as text (UTF-8, what is none is replaced), as bytes, or piece by piece.

        `gzip` compresses on the way. Of a stream, `request_timeout` counts until the first byte and `stream_idle_timeout`
        (seconds, 0 = no limit, default: as `request_timeout`) between pieces.
        """
        if format not in ("text", "bytes", "stream"):
            raise InvalidArgumentException(f'format has to be "text", "bytes" or "stream", not {format!r}')
        is_stream = format == "stream"
        call = _native.files_read(
            client(self._config.native), self._address, path, user, gzip, is_stream,
            request_timeout, stream_idle_timeout, format == "bytes",
        )  # fmt: skip
        if is_stream:
            reader = FileStreamReader(call)
            self._opened(call)
            return reader
        drive(call)
        return call.text() if format == "text" else call.bytearray()

    def _opened(self, call: _native.Call) -> None:
        # Errors of a stream that does not begin are told by read, not by the first piece.
        try:
            wait(call)
        except BaseException:
            call.cancel()
            raise
        if call.done():
            call.result()

    def write(
        self,
        path: str,
        data: str | bytes | IO[Any],
        user: str | None = None,
        request_timeout: float | None = None,
        gzip: bool = False,
        use_octet_stream: bool | None = None,
        metadata: dict[str, str] | None = None,
    ) -> WriteInfo:
        """Writes one file, replacing what was there; folders on the way are made.

        `data` is text (written as UTF-8), bytes, or a file object that is read to its end. `gzip` compresses on the way;
        `use_octet_stream` sends it as one body instead of a form; `metadata` is kept with the file (names are HTTP tokens,
        values printable ASCII; TemplateException when the sandbox is too old for it).
        """
        written = self.write_files(
            [WriteEntry(path=path, data=data)], user, request_timeout, gzip, use_octet_stream, metadata
        )
        if len(written) != 1:
            raise SandboxException(f"the sandbox told of {len(written)} written files where 1 was sent")
        return written[0]

    def write_files(
        self,
        files: builtins.list[WriteEntry],
        user: str | None = None,
        request_timeout: float | None = None,
        gzip: bool = False,
        use_octet_stream: bool | None = None,
        metadata: dict[str, str] | None = None,
    ) -> builtins.list[WriteInfo]:
        """Writes several files; see `write`. The answer is in the order of `files`. An empty list does nothing."""
        found: dict[int, WriteInfo] = {}
        items = [(file["path"], payload_of(file["data"])) for file in files]
        plain = [i for i, (_, data) in enumerate(items) if isinstance(data, bytes)]
        if plain:
            call = _native.files_write(
                client(self._config.native), self._address, [items[i] for i in plain], user, gzip,
                bool(use_octet_stream), metadata, request_timeout,
            )  # fmt: skip
            entries = (drive(call)).result()
            found.update(zip(plain, map(write_info_of, entries), strict=True))
        for i, (path, data) in enumerate(items):
            if not isinstance(data, bytes):
                call = _native.files_write(
                    client(self._config.native), self._address, [(path, None)], user, gzip, True, metadata, request_timeout
                )
                for entry in self._upload(call, data):
                    found[i] = write_info_of(entry)
        return [found[i] for i in sorted(found)]

    def _upload(self, call: _native.Call, source: IO[Any]) -> builtins.list[_native.Entry]:
        try:
            while not call.done():
                if call.wants_data():
                    piece = source.read(_CHUNK)
                    call.feed(piece.encode() if isinstance(piece, str) else bytes(piece))
                wait(call)
        except BaseException:
            call.cancel()
            raise
        found: builtins.list[_native.Entry] = call.result()
        return found

    def list(
        self,
        path: str,
        depth: int | None = 1,
        user: str | None = None,
        request_timeout: float | None = None,
    ) -> builtins.list[EntryInfo]:
        """What is in a folder, `depth` levels deep (1 or more)."""
        if depth is not None and depth < 1:
            raise InvalidArgumentException(f"depth has to be 1 or more, not {depth}")
        call = _native.files_list(client(self._config.native), self._address, path, depth, user, request_timeout)
        entries = map(entry_of, (drive(call)).result())
        return [entry for entry in entries if entry.type is not None]

    def exists(self, path: str, user: str | None = None, request_timeout: float | None = None) -> bool:
        """Is there a file or folder?"""
        call = _native.files_exists(client(self._config.native), self._address, path, user, request_timeout)
        return bool((drive(call)).result())

    def get_info(self, path: str, user: str | None = None, request_timeout: float | None = None) -> EntryInfo:
        """What is known about a file or folder."""
        call = _native.files_stat(client(self._config.native), self._address, path, user, request_timeout)
        return entry_of((drive(call)).result()[0])

    def remove(self, path: str, user: str | None = None, request_timeout: float | None = None) -> None:
        """Removes a file, or a folder with all that is in it."""
        call = _native.files_remove(client(self._config.native), self._address, path, user, request_timeout)
        (drive(call)).result()

    def rename(
        self, old_path: str, new_path: str, user: str | None = None, request_timeout: float | None = None
    ) -> EntryInfo:
        """Moves a file or folder."""
        call = _native.files_rename(client(self._config.native), self._address, old_path, new_path, user, request_timeout)
        return entry_of((drive(call)).result()[0])

    def make_dir(self, path: str, user: str | None = None, request_timeout: float | None = None) -> bool:
        """Makes a folder, and those on the way. False: it was there."""
        call = _native.files_make_dir(client(self._config.native), self._address, path, user, request_timeout)
        return bool((drive(call)).result())

    def watch_dir(
        self,
        path: str,
        user: str | None = None,
        request_timeout: float | None = None,
        recursive: bool = False,
        include_entry: bool = False,
        allow_network_mounts: bool = False,
    ) -> watch.WatchHandle:
        """Collects the changes in a folder from now on; `WatchHandle.get_new_events` tells them.

        `recursive` watches what is below too; `include_entry` tells about the changed file; `allow_network_mounts`
        accepts folders on network file systems (each raises TemplateException when the sandbox is too old).
        """
        call = _native.watcher_create(
            client(self._config.native), self._address, path, user, recursive, include_entry, allow_network_mounts,
            None, request_timeout,
        )  # fmt: skip
        return watch.WatchHandle(self._address, self._config, drive(call).result().decode(), user)

