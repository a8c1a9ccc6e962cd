"""Between the tuples of _native and the interface's classes."""

from __future__ import annotations

import json
from typing import IO, Any

from . import _errors, _native
from ._models import (
    EntryInfo,
    FilesystemEvent,
    FilesystemEventType,
    FileType,
    ProcessInfo,
    SandboxInfo,
    SandboxMetrics,
    SandboxState,
    SnapshotInfo,
    WriteInfo,
    time_of,
)
from ._network import SandboxInfoLifecycle, network_info
from .exceptions import InvalidArgumentException

_FILE_TYPES = {1: FileType.FILE, 2: FileType.DIR}
_EVENT_TYPES = {
    1: FilesystemEventType.CREATE,
    2: FilesystemEventType.WRITE,
    3: FilesystemEventType.REMOVE,
    4: FilesystemEventType.RENAME,
    5: FilesystemEventType.CHMOD,
}


def entry_of(e: _native.Entry) -> EntryInfo:
    """An entry of a folder. One of a kind that is not known here has type None."""
    name, kind, path, size, mode, permissions, owner, group, modified_us, target, metadata = e
    return EntryInfo(
        name, _FILE_TYPES.get(kind), path, size, mode, permissions or "", owner or "", group or "",
        time_of(modified_us), target, metadata=metadata or None,
    )  # fmt: skip


def write_info_of(e: _native.Entry) -> WriteInfo:
    """What a write answers."""
    return WriteInfo(e[0], _FILE_TYPES.get(e[1]), e[2], metadata=e[10] or None)


def event_of(e: _native.FsEvent) -> FilesystemEvent | None:
    """A change in a folder; None for a kind that is not known here."""
    kind = _EVENT_TYPES.get(e[1])
    return None if kind is None else FilesystemEvent(e[0], kind, None if e[2] is None else entry_of(e[2]))


def payload_of(data: str | bytes | bytearray | memoryview | IO[Any]) -> bytes | IO[Any]:
    """What a write sends: bytes, or a file object to read from."""
    if isinstance(data, bytes):
        return data
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, (bytearray, memoryview)):
        return bytes(data)
    if hasattr(data, "read"):
        return data
    raise InvalidArgumentException(f"data has to be str, bytes or a file object, not {type(data).__name__}")


def stdin_of(data: str | bytes) -> bytes:
    """What is sent to a command's standard input."""
    return data.encode() if isinstance(data, str) else bytes(data)


def process_of(p: _native.Process) -> ProcessInfo:
    """A running command."""
    return ProcessInfo(*p)


def info_of(s: _native.SandboxInfo) -> SandboxInfo:
    """What the service tells of a sandbox."""
    lifecycle: SandboxInfoLifecycle | None = None
    if s[14] is not None:
        lifecycle = {"on_timeout": "pause" if s[14] == "pause" else "kill", "auto_resume": bool(s[15])}
    return SandboxInfo(
        sandbox_id=s[0],
        sandbox_domain=s[4],
        template_id=s[1],
        name=s[2],
        metadata=s[17],
        started_at=time_of(s[8]),
        end_at=time_of(s[9]),
        state=SandboxState(s[3]),
        cpu_count=s[10],
        memory_mb=s[11],
        envd_version=s[5],
        allow_internet_access=s[13],
        network=network_info(s[16]),
        lifecycle=lifecycle,
        volume_mounts=s[18],
    )


def metrics_of(m: _native.Metrics) -> SandboxMetrics:
    """Use of a sandbox at one time."""
    time_us, cpu_used, cpu_count, mem_used, mem_total, mem_cache, disk_used, disk_total = m
    return SandboxMetrics(cpu_count, cpu_used, disk_total, disk_used, mem_total, mem_used, mem_cache, time_of(time_us))


def snapshot_of(s: _native.Snapshot) -> SnapshotInfo:
    """A snapshot."""
    return SnapshotInfo(s[0], s[1])


def json_of(call: _native.Call) -> Any:
    """The JSON that a finished call brought."""
    return json.loads(call.result())


def forks_of(answer: bytes, config: _native.Config) -> list[_native.Sandbox | Exception]:
    """The copies of a fork, in the order of the answer (e2b.md 1.2): where each is, or why there is none."""
    found: list[_native.Sandbox | Exception] = []
    for one in json.loads(answer):
        s = one.get("sandbox")
        if s is None:
            found.append(_errors.of_status(one["error"]["code"], one["error"]["message"]))
        else:
            keys = "templateID", "envdVersion", "envdAccessToken", "trafficAccessToken", "domain", "envdUrl"
            found.append(_native.Sandbox(config, s["sandboxID"], *(s.get(key) for key in keys)))
    return found
