"""Every exported function of libabx with every pointer missing, one at a time: an error or nothing, never a crash.

Each function has a process of its own. What has to be there (results' addresses, the client of its own descriptor) is
listed in NEEDED.
"""

import ctypes
import os
import re
import signal

import pytest
from cheaders import Headers

from libabx import ROOT

HEADERS = "\n".join(re.sub(r"/\*.*?\*/", " ", p.read_text(), flags=re.S) for p in sorted((ROOT / "include/abx").glob("*.h")))
DECLARED = {
    name: [a.strip() for a in arguments.split(",")]
    for name, arguments in re.findall(r"ABX_EXPORT\s+[\w\s]+?[\s*]+(\w+)\(([^;]*)\);", HEADERS)
}
NEEDED = ("**ret", "*ret", "*to")  # where a result goes
NEEDED_IN = {"abx_client_fd", "abx_client_wake"}  # these have no way to say anything
SKIPPED = {"abx_git_status_free"}  # frees what only abx_git_status_parse makes
URL = "http://127.0.0.1:9"


class World:
    """One valid object of each kind, none of which reaches a server."""

    def __init__(self, abx):
        self.abx, self.kept = abx, []
        self.client = abx.client()
        self.config = abx.config(api_url=URL, api_key="k" * 8)
        self.sandbox = abx.sandbox(
            self.config, sandbox_id="i1", envd_version="0.6.13", envd_access_token="t", envd_url=URL
        )
        self.server = ctypes.c_void_p()
        parts = abx.struct("abx_server_parts", base_url=URL, pty_url="ws://127.0.0.1:9")
        assert abx.c.abx_server_new(self.config, ctypes.byref(parts), ctypes.byref(self.server), None) == 0
        self.call = self.client.call("abx_http_request", self.config, abx.struct("abx_http_opts", url=URL)).handle

    def value(self, declared, kind):
        for name in ("client", "config", "sandbox", "server", "call"):
            if re.search(rf"\babx_{name} \*\w", declared):
                return self.client.handle if name == "client" else getattr(self, name)
        if kind is ctypes.c_char_p:
            return b"x"
        if kind in self.abx.headers.callbacks.values():
            return self.keep(kind(lambda *_: 0))
        if kind is ctypes.c_void_p:
            return ctypes.addressof(self.keep(ctypes.create_string_buffer(64)))
        if isinstance(kind, type) and issubclass(kind, ctypes.Structure):
            return self.abx.headers.new(kind.__name__)
        if isinstance(kind, type) and issubclass(kind, ctypes._Pointer):
            inner = kind._type_
            if inner is ctypes.c_char_p:
                return self.keep((ctypes.c_char_p * 4)(b"x", b"x", b"x", b"x"))
            made = self.abx.headers.new(inner.__name__) if issubclass(inner, ctypes.Structure) else inner()
            return ctypes.pointer(self.keep(made))
        return 1

    def keep(self, value):
        self.kept.append(value)
        return value

    def run(self, name, missing):
        function = getattr(self.abx.c, name)
        kinds = function.argtypes or []
        values = [None if i == missing else self.value(d, k) for i, (d, k) in enumerate(zip(DECLARED[name], kinds))]
        made = function(*values)
        if made and function.restype is ctypes.c_void_p and "abx_client *" in DECLARED[name][0]:
            self.finish(made)

    def finish(self, call):
        event = self.abx.headers.structs["abx_event"]()
        for _ in range(500):
            while self.abx.c.abx_call_next(call, ctypes.byref(event)):
                pass
            if self.abx.c.abx_call_is_done(call):
                break
            self.abx.c.abx_client_wait(self.client.handle, 20)
        assert self.abx.c.abx_call_is_done(call)
        self.abx.c.abx_call_free(call)


def in_a_child(function):
    """Wait status of a child that runs it."""
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(60)
            function()
            os._exit(0)
        except BaseException as e:  # nothing of pytest's may run in the child
            os.write(2, f"{type(e).__name__}: {e}\n".encode())
            os._exit(1)
    return os.waitpid(child, 0)[1]


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ABX_CONNECTION_RETRIES", "0")


@pytest.mark.parametrize("name", sorted(set(DECLARED) - SKIPPED))
def test_missing_arguments(abx, name):
    kinds = getattr(abx.c, name).argtypes or []
    for i, (declared, kind) in enumerate(zip(DECLARED[name], kinds)):
        is_pointer = "*" in declared
        if not is_pointer or re.search(r"\*(\w+)$", declared)[0] in NEEDED or name in NEEDED_IN:
            continue
        status = in_a_child(lambda i=i: World(abx).run(name, i))
        assert status == 0, f"{declared} missing: signal {status & 127}, exit {status >> 8}"


ARRAYS = [
    ("abx_sandbox_create", "config", "abx_create_opts", "metadata_count"),
    ("abx_sandbox_create", "config", "abx_create_opts", "env_count"),
    ("abx_sandbox_create", "config", "abx_create_opts", "mount_count"),
    ("abx_sandbox_list", "config", "abx_list_opts", "metadata_count"),
    ("abx_http_request", "config", "abx_http_opts", "header_count"),
    ("abx_http_request", "config", "abx_http_opts", "body_size"),
    ("abx_websocket_open", "config", "abx_websocket_opts", "header_count"),
    ("abx_command_start", "sandbox", "abx_command_opts", "env_count"),
    ("abx_code_run", "sandbox", "abx_code_opts", "env_count"),
    ("abx_files_write", "sandbox", "abx_write_opts", "metadata_count"),
]


@pytest.mark.parametrize("function,owner,opts,count", ARRAYS)
def test_counts_of_missing_arrays(abx, function, owner, opts, count):
    def run():
        w = World(abx)
        given = abx.struct(opts, **{count: 2})
        if "url" in dict(given._fields_):
            given.url = URL.replace("http", "ws").encode() if "websocket" in opts else URL.encode()
        more = {"abx_command_start": ["x"], "abx_code_run": ["1"], "abx_files_write": [None, 0]}.get(function, [])
        call = w.client.call(function, getattr(w, owner), *more, given)
        error = call.error()
        assert error and error.code == "INVALID_ARGUMENT", error
        assert count.removesuffix("_count").removesuffix("_size").rstrip("s") in error.message, error

    assert in_a_child(run) == 0


@pytest.mark.parametrize("name", sorted(n for n in Headers(ROOT / "include/abx").inits))
def test_every_options_struct_says_its_size(abx, name):
    """An options struct whose size was not set is refused, not read."""
    struct = name.removesuffix("_INIT").lower()
    users = [f for f, a in DECLARED.items() if any(re.search(rf"\bconst struct {struct} \*", x) for x in a)]
    assert users
    for function in users:

        def run(function=function):
            w = World(abx)
            kinds = getattr(abx.c, function).argtypes
            values = [w.value(d, k) for d, k in zip(DECLARED[function], kinds)]
            at = next(i for i, d in enumerate(DECLARED[function]) if f"struct {struct} *" in d)
            values[at].contents.size = 0
            error = abx.headers.structs["abx_error"]()
            values = [
                ctypes.pointer(error) if "abx_error *" in d else v for v, d in zip(values, DECLARED[function])
            ]
            made = getattr(abx.c, function)(*values)
            if getattr(abx.c, function).restype is ctypes.c_void_p:
                error = abx.c.abx_call_error(made).contents
            assert error.code == abx.constants["ABX_INVALID_ARGUMENT"], (function, error.message)
            assert b"size" in error.message, (function, error.message)

        assert in_a_child(run) == 0
