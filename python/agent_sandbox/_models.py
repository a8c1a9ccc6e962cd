"""Plain data that the interface takes and returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from enum import Enum
from typing import Any

from ._network import SandboxInfoLifecycle, SandboxNetworkInfo
from .exceptions import SandboxException

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def time_of(microseconds: int) -> datetime:
    """A point in time (UTC) from microseconds since the epoch."""
    return _EPOCH + timedelta(microseconds=microseconds)


# ---- commands ----

Username = str
Stdout = str
Stderr = str
PtyOutput = bytes


@dataclass
class CommandResult:
    """What a command left behind: its output, its exit code, and what the sandbox says about a failure ("" = nothing)."""

    stderr: str
    stdout: str
    exit_code: int
    error: str | None


@dataclass
class CommandExitException(SandboxException, CommandResult):
    """A command ended with another exit code than 0. It is the command's result at the same time."""

    def __str__(self) -> str:
        return f"Command exited with code {self.exit_code} and error:\n{self.stderr}"


@dataclass
class ProcessInfo:
    """A running command. `tag` is the name it was started with, `cwd` its working folder where one was set."""

    pid: int
    tag: str | None
    cmd: str
    args: list[str]
    envs: dict[str, str]
    cwd: str | None


@dataclass
class PtySize:
    """Size of a pseudo terminal, in characters."""

    rows: int
    cols: int


# ---- files ----


class FileType(Enum):
    """Kind of an entry of a folder."""

    FILE = "file"
    DIR = "dir"


@dataclass
class WriteInfo:
    """A file that was written. `type` is None when the sandbox names a kind that is not known here."""

    name: str
    type: FileType | None
    path: str
    metadata: dict[str, str] | None = field(default=None, kw_only=True)

    @classmethod
    def from_dict(cls, payload: dict[str, Any]) -> WriteInfo:
        """From the sandbox's JSON object."""
        kinds: dict[Any, FileType] = {"file": FileType.FILE, "dir": FileType.DIR}
        return WriteInfo(payload["name"], kinds.get(payload.get("type")), payload["path"], metadata=payload.get("metadata"))


@dataclass
class EntryInfo(WriteInfo):
    """A file or folder: size in bytes, mode as permission bits, and when it was last changed (UTC)."""

    size: int
    mode: int
    permissions: str
    owner: str
    group: str
    modified_time: datetime
    symlink_target: str | None = None


class FilesystemEventType(Enum):
    """What happened to an entry of a watched folder."""

    CHMOD = "chmod"
    CREATE = "create"
    REMOVE = "remove"
    RENAME = "rename"
    WRITE = "write"


@dataclass
class FilesystemEvent:
    """A change in a watched folder. `name` is relative to it; `entry` is there with `include_entry`."""

    name: str
    type: FilesystemEventType
    entry: EntryInfo | None = None


# ---- sandboxes ----


class SandboxState(str, Enum):
    """What a sandbox is doing. A state that a newer service tells is a member of its own."""

    PAUSED = "paused"
    RUNNING = "running"
    SNAPSHOTTING = "snapshotting"
    SNAPSHOT_FAILED = "snapshot_failed"

    @classmethod
    def _missing_(cls, value: object) -> SandboxState | None:
        if not isinstance(value, str):
            return None
        member = str.__new__(cls, value)
        member._name_ = value.upper()
        member._value_ = value
        return member

    def __str__(self) -> str:
        return self.value


@dataclass
class SandboxInfo:
    """What the service knows about a sandbox. `name` is its template's alias; memory in MiB."""

    sandbox_id: str
    sandbox_domain: str | None
    template_id: str
    name: str | None
    metadata: dict[str, str]
    started_at: datetime
    end_at: datetime
    state: SandboxState
    cpu_count: int
    memory_mb: int
    envd_version: str
    allow_internet_access: bool | None = None
    network: SandboxNetworkInfo | None = None
    lifecycle: SandboxInfoLifecycle | None = None
    volume_mounts: list[dict[str, str]] = field(default_factory=list)


@dataclass
class SandboxQuery:
    """Which sandboxes to list: those with all of `metadata`, in one of the states."""

    metadata: dict[str, str] | None = None
    state: list[SandboxState] | None = None


@dataclass
class SandboxMetrics:
    """Use of a sandbox at one time: processor in percent of one, memory and disk in bytes."""

    cpu_count: int
    cpu_used_pct: float
    disk_total: int
    disk_used: int
    mem_total: int
    mem_used: int
    mem_cache: int
    timestamp: datetime


@dataclass
class SnapshotInfo:
    """A snapshot: usable as the template of a new sandbox."""

    snapshot_id: str
    names: list[str] = field(default_factory=list)
