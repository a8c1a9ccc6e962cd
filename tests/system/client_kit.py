"""A sandbox as tests of libabx see it: short forms of the calls, results as Python values; fixtures, real and fake."""

import ctypes

import pytest
from fake_envd import FakeEnvd

from libabx import Error, Library
from waiting import BUSY_S

STREAMS = {1: "stdout", 2: "stderr", 3: "pty"}


class Box:
    """One sandbox of `service`, through one client and codec."""

    def __init__(self, library, client, service, made, protobuf=False, config=None, **parts):
        self.abx, self.client = library, client
        self.id = made["sandboxID"]
        self.config = library.config(
            api_key=service.key, api_url=service.origin, protobuf=int(protobuf), **(config or {})
        )
        parts = {"envd_version": made["envdVersion"], "envd_access_token": made["envdAccessToken"], **parts}
        self.sandbox = library.sandbox(self.config, sandbox_id=self.id, **parts)

    def close(self):
        self.abx.c.abx_sandbox_unref(self.sandbox)
        self.abx.c.abx_config_unref(self.config)

    def opts(self, name, values):
        return self.abx.struct(name, **values) if values else None

    def process(self, pid=0, tag=None):
        return self.abx.struct("abx_process_ref", pid=pid, tag=tag)

    # --- commands ---

    def run(self, command, wait=BUSY_S, **opts):
        call = self.client.run("abx_command_run", self.sandbox, command, self.opts("abx_command_opts", opts), timeout=wait)
        return call.command()

    def start(self, command, **opts):
        """(call, pid) once the START event is there."""
        call = self.client.call("abx_command_start", self.sandbox, command, self.opts("abx_command_opts", opts))
        event = call.next()
        assert event.kind == self.abx.constants["ABX_EVENT_START"]
        return call, event.pid

    def connect(self, wait_start=True, pid=0, tag=None, **opts):
        call = self.client.call(
            "abx_process_connect", self.sandbox, self.process(pid, tag), self.opts("abx_connect_opts", opts)
        )
        return (call, call.next().pid) if wait_start else call

    def pty(self, cols, rows, **opts):
        call = self.client.call("abx_pty_start", self.sandbox, cols, rows, self.opts("abx_command_opts", opts))
        return call, call.next().pid

    def resize(self, pid, cols, rows):
        self.client.run("abx_pty_resize", self.sandbox, self.process(pid), cols, rows, -1)

    def signal(self, pid, number):
        return self.client.run("abx_process_signal", self.sandbox, self.process(pid), number, -1).bool()

    def stdin(self, pid, data, pty=0):
        self.client.run("abx_process_send_stdin", self.sandbox, self.process(pid), pty, data, len(data), -1)

    def close_stdin(self, pid):
        self.client.run("abx_process_close_stdin", self.sandbox, self.process(pid), -1)

    def processes(self):
        call = self.client.run("abx_process_list", self.sandbox, -1)
        return [
            (p.pid, p.tag, p.cmd.decode(), [p.args[i].decode() for i in range(p.arg_count)])
            for p in call.items("abx_call_processes")
        ]

    # --- files ---

    def write_call(self, files, opts=None):
        """`files`: {path: bytes or a Source}."""
        items = (self.abx.headers.structs["abx_write_item"] * max(len(files), 1))()
        kept = []
        for item, (path, data) in zip(items, files.items()):
            item.path = path.encode() if isinstance(path, str) else path
            if isinstance(data, bytes):
                buffer = ctypes.create_string_buffer(data, max(len(data), 1))
                item.data, item.size = ctypes.addressof(buffer), len(data)
                kept.append(buffer)
            else:
                item.source, item.source_size = data.callback(self.abx), data.size
                kept.append(item.source)
        call = self.client.call("abx_files_write", self.sandbox, items, len(files), self.opts("abx_write_opts", opts or {}))
        call.kept = (items, kept)
        return call

    def write(self, files, wait=BUSY_S, **opts):
        """Paths that the answer names, in order."""
        call = self.write_call(files, opts).wait(wait)
        return [e.path.decode() for e in call.items("abx_call_entries")]

    def read(self, path, wait=BUSY_S, **opts):
        return self.client.run("abx_files_read", self.sandbox, path, self.opts("abx_read_opts", opts), timeout=wait).bytes()

    def read_stream(self, path, **opts):
        call = self.client.call("abx_files_read", self.sandbox, path, self.opts("abx_read_opts", {"stream": 1, **opts}))
        return b"".join(ctypes.string_at(e.data, e.size) for e in call.events())

    def entries(self, function, *args, user=None):
        opts = self.abx.struct("abx_files_opts", user=user)
        return [entry(e) for e in self.client.run(function, self.sandbox, *args, opts).items("abx_call_entries")]

    def list(self, path, depth=1, user=None):
        return self.entries("abx_files_list", path, depth, user=user)

    def stat(self, path, user=None):
        return self.entries("abx_files_stat", path, user=user)[0]

    def rename(self, old, new):
        return self.entries("abx_files_rename", old, new)[0]

    def exists(self, path):
        return self.client.run("abx_files_exists", self.sandbox, path, None).bool()

    def make_dir(self, path):
        return self.client.run("abx_files_make_dir", self.sandbox, path, None).bool()

    def remove(self, path):
        self.client.run("abx_files_remove", self.sandbox, path, None)


def entry(e):
    """struct abx_entry as a dict; "type" is a word."""
    made = {k: getattr(e, k) for k, _ in e._fields_ if k not in ("metadata", "metadata_count", "type")}
    made = {k: v.decode() if isinstance(v, bytes) else v for k, v in made.items()}
    made["type"] = {0: "unknown", 1: "file", 2: "dir", 3: "symlink"}[e.type]
    made["metadata"] = {e.metadata[i].key.decode(): e.metadata[i].value.decode() for i in range(e.metadata_count)}
    return made


def collect(call, timeout=BUSY_S):
    """All that is left of a command's events: ({"stdout": .., "stderr": .., "pty": ..}, END event's fields)."""
    out, end = {"stdout": b"", "stderr": b"", "pty": b""}, None
    parts = {k: [] for k in out}
    for event in call.events(timeout):
        if event.kind == call.library.constants["ABX_EVENT_OUTPUT"]:
            parts[STREAMS[event.stream]].append(ctypes.string_at(event.data, event.size))
        elif event.kind == call.library.constants["ABX_EVENT_END"]:
            end = (event.exit_code, bool(event.exited), event.text.decode())
    return {k: b"".join(v) for k, v in parts.items()}, end


class Source:
    """Bytes of an upload, in pieces of at most `piece`; `size` -1 = not told before."""

    def __init__(self, data, size=-1, piece=1 << 20, fails=0):
        self.data, self.size, self.piece, self.fails, self.at = data, size, piece, fails, 0

    def callback(self, library):
        def read(_user, to, room):
            piece = self.data[self.at : self.at + min(room, self.piece)]
            self.at += len(piece)
            ctypes.memmove(to, piece, len(piece))
            return len(piece) if piece else self.fails

        return library.headers.callbacks["abx_source_fn"](read)


__all__ = ["Box", "Error", "Library", "Source", "collect", "entry"]


def error_of(call, *args, **kw):
    with pytest.raises(Error) as e:
        call(*args, **kw)
    return e.value


# --- fixtures ---


@pytest.fixture(scope="module")
def made(service):
    return service.create(timeout=3000)


@pytest.fixture(params=["json", "protobuf"])
def box(request, abx, client, service, made):
    """The sandbox through each codec, with an empty folder /tmp/t."""
    b = Box(abx, client, service, made, protobuf=request.param == "protobuf")
    b.run("rm -rf /tmp/t; mkdir /tmp/t")
    yield b
    b.close()


@pytest.fixture
def server():
    s = FakeEnvd()
    yield s
    s.close()


class FakeService:
    def __init__(self, server):
        self.key, self.origin = "key", f"http://127.0.0.1:{server.port}"


@pytest.fixture
def fake_box(abx, client, server):
    """A sandbox whose envd, and control plane, is the fake `server`."""
    made = {"sandboxID": "i1", "envdVersion": "0.6.13", "envdAccessToken": "token"}
    b = Box(abx, client, FakeService(server), made, envd_url=f"http://127.0.0.1:{server.port}")
    yield b
    b.close()
