"""libabx for Python. Functions named like an operation start it: values by position, None = default, times in seconds."""

from collections.abc import Callable
from typing import Any

VERSION: str

EVENT_START: int
EVENT_OUTPUT: int
EVENT_END: int
EVENT_FILE: int
EVENT_DATA: int
TRACE_REQUEST: int
TRACE_RESPONSE: int
TRACE_END: int
TRACE_FAILED: int
STDOUT: int
STDERR: int
PTY: int

CANCELED: int
INVALID_ARGUMENT: int
DEADLINE_EXCEEDED: int
NOT_FOUND: int
RESOURCE_EXHAUSTED: int
UNIMPLEMENTED: int
UNAVAILABLE: int
DATA_LOSS: int
UNAUTHENTICATED: int
REASON_DISK_FULL: int
REASON_TOO_LARGE: int
REASON_RATE_LIMITED: int
REASON_SANDBOX_GONE: int
REASON_SANDBOX_NOT_FOUND: int
REASON_FILE_NOT_FOUND: int
REASON_TEMPLATE_NOT_FOUND: int
REASON_TEMPLATE_TOO_OLD: int
REASON_NO_CREDENTIALS: int
REASON_REQUEST_TIMEOUT: int
REASON_COMMAND_TIMEOUT: int
REASON_NAME: int
REASON_CONNECT: int
REASON_TLS: int
REASON_DISCONNECTED: int

# name, type (1 file, 2 folder, 3 link), path, size, mode, permissions, owner, group, modified (us), link target, metadata
Entry = tuple[str, int, str, int, int, str | None, str | None, str | None, int, str | None, dict[str, str]]
# name, type (1 create, 2 write, 3 remove, 4 rename, 5 chmod), entry
FsEvent = tuple[str, int, Entry | None]
# kind, stream, pid, exit code, exited, text, data, change of a file
Event = tuple[int, int, int, int, bool, str | None, bytes, FsEvent | None]
# pid, tag, cmd, args, envs, cwd
Process = tuple[int, str | None, str, list[str], dict[str, str], str | None]
# pid, is ended, exit code, exited, status, error, stdout, stderr
Command = tuple[int, bool, int, bool, str | None, str, str, str]
# id, template, alias, state, domain, envd version, envd token, envd url, started (us), end (us), cpus, memory (MiB), disk
# (MiB), internet access, on timeout, auto resume, network (JSON), metadata, mounts
SandboxInfo = tuple[
    str, str, str | None, str, str | None, str, str | None, str | None, int, int, int, int, int,
    bool | None, str | None, bool | None, str | None, dict[str, str], list[dict[str, str]],
]  # fmt: skip
# time (us), cpu used (%), cpus, mem used, mem total, mem cache, disk used, disk total (bytes)
Metrics = tuple[int, float, int, int, int, int, int, int]
# id, names
Snapshot = tuple[str, list[str]]
# status, version (11, 20), headers, body
Http = tuple[int, int, dict[str, str], bytes]

class Client:
    def __new__(cls, max_connections: int = 0, max_idle_connections: int = 0, idle_timeout_ms: int = 0) -> Client: ...
    def fileno(self) -> int: ...
    def process(self) -> list[Any]: ...
    def wake(self) -> None: ...

class Config:
    def __new__(
        cls,
        *,
        profile: str | None = None,
        api_key: str | None = None,
        access_token: str | None = None,
        access_key_id: str | None = None,
        access_key_secret: str | None = None,
        security_token: str | None = None,
        api_url: str | None = None,
        domain: str | None = None,
        sandbox_url: str | None = None,
        volume_url: str | None = None,
        proxy: str | None = None,
        ca_file: str | None = None,
        headers: dict[str, str] | None = None,
        sandbox_headers: dict[str, str] | None = None,
        request_timeout: float | None = None,
        bearer: bool | None = None,
        protobuf: bool | None = None,
        debug: bool | None = None,
        integration: str | None = None,
        user_agent: str | None = None,
        trace: Callable[[int, str, str, int, int, int, int, str | None], None] | None = None,
    ) -> Config: ...
    def get(self, key: str, reveal: bool = False) -> tuple[str | None, str | None]: ...

class Sandbox:
    def __new__(
        cls,
        config: Config,
        sandbox_id: str,
        template_id: str | None,
        envd_version: str | None,
        envd_access_token: str | None,
        traffic_access_token: str | None,
        domain: str | None,
        envd_url: str | None,
        /,
    ) -> Sandbox: ...
    @property
    def id(self) -> str: ...
    @property
    def template_id(self) -> str | None: ...
    @property
    def envd_version(self) -> str | None: ...
    @property
    def domain(self) -> str | None: ...
    @property
    def access_token(self) -> str | None: ...
    @property
    def traffic_token(self) -> str | None: ...
    @property
    def envd_url(self) -> str: ...
    @property
    def envd_direct_url(self) -> str: ...
    def host(self, port: int, /) -> str: ...
    def file_url(self, path: str, operation: str, user: str | None, expires_in: int, /) -> str: ...

class Call:
    def wait(self, timeout: float | None, /) -> bool: ...
    def set_waiter(self, waiter: object, /) -> bool: ...
    def done(self) -> bool: ...
    def next(self) -> Event | None: ...
    def cancel(self) -> None: ...
    def wants_data(self) -> bool: ...
    def feed(self, data: bytes, /) -> None: ...
    def result(self) -> Any: ...
    def text(self) -> str: ...
    def bytearray(self) -> bytearray: ...
    def next_token(self) -> str | None: ...
    def command(self) -> Command: ...
    def output_offset(self) -> int | None: ...
    def http_status(self) -> int: ...

def set_error_maker(maker: Callable[[int, int, int, str, str], BaseException], /) -> None: ...
def error_name(code: int, /) -> str: ...
def signature(path: str, operation: str, user: str | None, token: str, expires_in: int, /) -> tuple[str, int]: ...
def sandbox_create(
    client: Client, config: Config, template: str | None, timeout: int | None, metadata: dict[str, str] | None,
    envs: dict[str, str] | None, secure: bool | None, allow_internet_access: bool | None, auto_pause: bool | None,
    auto_pause_memory: bool | None, auto_resume: bool | None, network: str | None, mcp: str | None,
    volume_mounts: list[tuple[Any, str]] | None, request_timeout: float | None, /
) -> Call: ...  # fmt: skip
def sandbox_connect(
    client: Client, config: Config, sandbox_id: str, timeout: int | None, request_timeout: float | None, /
) -> Call: ...
def sandbox_kill(client: Client, config: Config, sandbox_id: str, request_timeout: float | None, /) -> Call: ...
def sandbox_get_info(client: Client, config: Config, sandbox_id: str, request_timeout: float | None, /) -> Call: ...
def sandbox_set_timeout(
    client: Client, config: Config, sandbox_id: str, timeout: int | None, request_timeout: float | None, /
) -> Call: ...
def sandbox_pause(
    client: Client, config: Config, sandbox_id: str, keep_memory: bool | None, request_timeout: float | None, /
) -> Call: ...
def sandbox_pause_strict(
    client: Client, config: Config, sandbox_id: str, keep_memory: bool | None, request_timeout: float | None, /
) -> Call: ...
def sandbox_rollback(
    client: Client, config: Config, sandbox_id: str, snapshot_id: str, request_timeout: float | None, /
) -> Call: ...
def sandbox_fork(
    client: Client, config: Config, sandbox_id: str, count: int, timeout: int | None, request_timeout: float | None, /
) -> Call: ...
def sandbox_update_network(
    client: Client, config: Config, sandbox_id: str, network: str, request_timeout: float | None, /
) -> Call: ...
def sandbox_list(
    client: Client, config: Config, metadata: dict[str, str] | None, state: str | None, limit: int | None,
    next_token: str | None, request_timeout: float | None, /
) -> Call: ...  # fmt: skip
def sandbox_get_metrics(
    client: Client, config: Config, sandbox_id: str, start: int | None, end: int | None,
    request_timeout: float | None, /
) -> Call: ...  # fmt: skip
def snapshot_create(
    client: Client, config: Config, sandbox_id: str, name: str | None, request_timeout: float | None, /
) -> Call: ...
def snapshot_list(
    client: Client, config: Config, sandbox_id: str | None, name: str | None, limit: int | None,
    next_token: str | None, request_timeout: float | None, /
) -> Call: ...  # fmt: skip
def snapshot_delete(client: Client, config: Config, snapshot_id: str, request_timeout: float | None, /) -> Call: ...
def control_request(
    client: Client, config: Config, method: str, path: str, query: str | None, body: str | None,
    request_timeout: float | None, /
) -> Call: ...  # fmt: skip
def http_request(
    client: Client, config: Config, method: str, url: str, headers: dict[str, str] | None, body: bytes | None,
    stream: bool | None, max_bytes: int | None, request_timeout: float | None, idle_timeout: float | None, /
) -> Call: ...  # fmt: skip
def sandbox_is_running(client: Client, sandbox: Sandbox, request_timeout: float | None, /) -> Call: ...
def files_read(
    client: Client, sandbox: Sandbox, path: str, user: str | None, gzip: bool | None, stream: bool | None,
    request_timeout: float | None, stream_idle_timeout: float | None, into_bytearray: bool | None, /
) -> Call: ...  # fmt: skip
def files_write(
    client: Client, sandbox: Sandbox, files: list[tuple[str, Any]], user: str | None, gzip: bool | None,
    use_octet_stream: bool | None, metadata: dict[str, str] | None, request_timeout: float | None, /
) -> Call: ...  # fmt: skip
def files_list(
    client: Client, sandbox: Sandbox, path: str, depth: int | None, user: str | None, request_timeout: float | None, /
) -> Call: ...
def files_stat(client: Client, sandbox: Sandbox, path: str, user: str | None, request_timeout: float | None, /) -> Call: ...
def files_exists(
    client: Client, sandbox: Sandbox, path: str, user: str | None, request_timeout: float | None, /
) -> Call: ...
def files_make_dir(
    client: Client, sandbox: Sandbox, path: str, user: str | None, request_timeout: float | None, /
) -> Call: ...
def files_rename(
    client: Client, sandbox: Sandbox, old_path: str, new_path: str, user: str | None, request_timeout: float | None, /
) -> Call: ...
def files_remove(
    client: Client, sandbox: Sandbox, path: str, user: str | None, request_timeout: float | None, /
) -> Call: ...
def files_watch(
    client: Client, sandbox: Sandbox, path: str, user: str | None, recursive: bool | None, include_entry: bool | None,
    allow_network_mounts: bool | None, timeout: float | None, request_timeout: float | None, /
) -> Call: ...  # fmt: skip
def watcher_create(
    client: Client, sandbox: Sandbox, path: str, user: str | None, recursive: bool | None, include_entry: bool | None,
    allow_network_mounts: bool | None, timeout: float | None, request_timeout: float | None, /
) -> Call: ...  # fmt: skip
def watcher_get_events(
    client: Client, sandbox: Sandbox, watcher_id: str, user: str | None, request_timeout: float | None, /
) -> Call: ...
def watcher_remove(
    client: Client, sandbox: Sandbox, watcher_id: str, user: str | None, request_timeout: float | None, /
) -> Call: ...
def command_run(
    client: Client, sandbox: Sandbox, cmd: str, user: str | None, cwd: str | None, envs: dict[str, str] | None,
    stdin: bool | None, timeout: float | None, request_timeout: float | None, /
) -> Call: ...  # fmt: skip
def command_start(
    client: Client, sandbox: Sandbox, cmd: str, user: str | None, cwd: str | None, envs: dict[str, str] | None,
    stdin: bool | None, timeout: float | None, request_timeout: float | None, /
) -> Call: ...  # fmt: skip
def pty_start(
    client: Client, sandbox: Sandbox, cols: int, rows: int, user: str | None, cwd: str | None,
    envs: dict[str, str] | None, stdin: bool | None, timeout: float | None, request_timeout: float | None, /
) -> Call: ...  # fmt: skip
def process_connect(
    client: Client, sandbox: Sandbox, pid: int, timeout: float | None, request_timeout: float | None,
    output_offset: int | None, /
) -> Call: ...  # fmt: skip
def process_list(client: Client, sandbox: Sandbox, request_timeout: float | None, /) -> Call: ...
def process_signal(client: Client, sandbox: Sandbox, pid: int, signal: int, request_timeout: float | None, /) -> Call: ...
def process_send_stdin(
    client: Client, sandbox: Sandbox, pid: int, pty: bool | None, data: bytes, request_timeout: float | None, /
) -> Call: ...
def process_close_stdin(client: Client, sandbox: Sandbox, pid: int, request_timeout: float | None, /) -> Call: ...
def pty_resize(
    client: Client, sandbox: Sandbox, pid: int, cols: int, rows: int, request_timeout: float | None, /
) -> Call: ...
def code_run(
    client: Client, sandbox: Sandbox, code: str, language: str | None, context: str | None,
    envs: dict[str, str] | None, timeout: float | None, request_timeout: float | None, /
) -> Call: ...  # fmt: skip
def code_context_create(
    client: Client, sandbox: Sandbox, language: str | None, cwd: str | None, request_timeout: float | None, /
) -> Call: ...
def code_context_list(client: Client, sandbox: Sandbox, request_timeout: float | None, /) -> Call: ...
def code_context_restart(client: Client, sandbox: Sandbox, context: str, request_timeout: float | None, /) -> Call: ...
def code_context_remove(client: Client, sandbox: Sandbox, context: str, request_timeout: float | None, /) -> Call: ...
def git_command(path: str | None, words: list[str], /) -> str: ...
def git_url(url: str, username: str | None, password: str | None, /) -> str: ...
def git_status(text: str, /) -> tuple[str | None, str | None, int, int, bool, list[tuple[str, str | None, str, str]]]: ...
def git_failure(stdout: str, stderr: str, /) -> int: ...
