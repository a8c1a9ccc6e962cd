"""libabx against servers that mean harm and callers that make mistakes: bounded, typed, never a crash."""

import contextlib
import ctypes
import os
import resource
import select
import socket
import threading
import time
import zlib

import fake_envd as fake
import hostile_guest
import pytest
from client_kit import Box, Error, FakeService, Library, fake_box as box, server  # noqa: F401 (fixtures)
from fake_envd import END, START, output
from waiting import BUSY_S, until

INT64_MAX = 2**63 - 1
LONGEST_MS = 9_999_999_999  # what Connect-Timeout-Ms can say


@pytest.fixture
def config(abx):
    c = abx.config(api_url="http://127.0.0.1:1", api_key="key")
    yield c
    abx.c.abx_config_unref(c)


class Raw:
    """A server of plain sockets: `serve(sock)` in a thread for each connection."""

    def __init__(self, serve):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.serve, self.count = serve, 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            self.count += 1
            threading.Thread(target=self._one, args=(sock,), daemon=True).start()

    def _one(self, sock):
        try:
            self.serve(sock)
        except OSError:
            pass
        finally:
            sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


def head_of(sock):
    data = b""
    while b"\r\n\r\n" not in data:
        got = sock.recv(65536)
        if not got:
            raise OSError("closed")
        data += got
    return data


def http(abx, client, config, url, **opts):
    return client.call("abx_http_request", config, abx.struct("abx_http_opts", url=url, **opts))


def error_of(call, timeout=BUSY_S):
    with pytest.raises(Error) as e:
        call.wait(timeout)
    return e.value


# --- what headers promise ---


@pytest.mark.parametrize("size", [1, 255, 256, 4096, 65536])
def test_a_nul_stands_behind_the_bytes(abx, box, server, size):
    async def script(peer):
        await peer.head(200, "application/octet-stream", size)
        await peer.send(b"x" * size)

    server.script = script
    call = box.client.run("abx_files_read", box.sandbox, "/f", None)
    n = ctypes.c_size_t()
    data = abx.c.abx_call_bytes(call.handle, ctypes.byref(n))
    assert ctypes.string_at(data, n.value + 1) == b"x" * size + b"\0"


@pytest.mark.parametrize("way", ["end", "output", "start"])
def test_nothing_comes_behind_the_end_event(abx, box, server, way):
    async def script(peer):
        await peer.head()
        await peer.chunk(START)
        while True:
            await peer.chunk(END)
            await peer.chunk({"end": END, "output": output(b"late"), "start": START}[way])
            await fake.asyncio.sleep(0.2)

    server.script = script
    call = box.client.call("abx_command_start", box.sandbox, "x", None)
    kinds = []
    with pytest.raises(Error) as e:
        for event in call.events():
            kinds.append(event.kind)
            assert len(kinds) < 100
    assert e.value.reason == "PROTOCOL"
    assert kinds == [abx.constants["ABX_EVENT_START"], abx.constants["ABX_EVENT_END"]]


def test_the_longest_timeouts(abx, client, config):
    def serve(sock):
        head_of(sock)
        sock.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\n")
        time.sleep(0.3)
        sock.sendall(b"body")

    with Raw(serve) as s:
        for stream in (0, 1):
            call = http(abx, client, config, s.url, stream=stream, request_timeout_ms=LONGEST_MS, idle_timeout_ms=LONGEST_MS)
            while stream and call.next() is not None:
                pass
            assert abx.c.abx_call_wait(call.handle, INT64_MAX, None) == 0


# --- callbacks ---


def test_a_callback_of_free_may_use_the_client(abx, config):
    """While abx_client_free completes its calls, a callback frees, drives and uses the client."""
    with Raw(lambda sock: time.sleep(5)) as s:
        client, error = ctypes.c_void_p(), abx.headers.structs["abx_error"]()
        abx.c.abx_client_new(None, ctypes.byref(client), ctypes.byref(error))
        opts = abx.struct("abx_http_opts", url=s.url)
        calls = [ctypes.c_void_p(abx.c.abx_http_request(client, config, ctypes.byref(opts))) for _ in range(3)]
        told = []

        def done(_user, call):
            told.append(abx.c.abx_client_process(client))
            told.append(abx.c.abx_client_wait(client, 0))
            abx.c.abx_client_free(client)
            abx.c.abx_call_free(call)

        fn = abx.headers.callbacks["abx_call_fn"](done)
        for call in calls:
            abx.c.abx_call_on_done(call, fn, None)
        abx.c.abx_client_free(client)
        assert told == [abx.constants["ABX_FAILED_PRECONDITION"]] * 6


def test_a_callback_may_free_the_call_that_is_waited_for(abx, client, config):
    def serve(sock):
        head_of(sock)
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    with Raw(serve) as s:
        for cancels in (False, True):
            call = http(abx, client, config, s.url)
            handle, call.handle = call.handle, None

            def done(_user, call):
                abx.c.abx_call_free(call)

            fn = abx.headers.callbacks["abx_call_fn"](done)
            abx.c.abx_call_on_done(handle, fn, None)
            if cancels:
                abx.c.abx_call_cancel(handle)
            error = abx.headers.structs["abx_error"]()
            code = abx.c.abx_call_wait(handle, 5000, ctypes.byref(error))
            assert code == error.code == (abx.constants["ABX_CANCELED"] if cancels else 0)
            if cancels:  # told at once, its callback runs with the next process
                abx.c.abx_client_process(client.handle)


@pytest.mark.parametrize("way", ["abx_call_free", "abx_call_cancel"])
@pytest.mark.parametrize("place", ["file", "files", "packed", "http", "room"])
def test_a_source_may_end_its_call(abx, client, config, box, server, place, way):
    """Callbacks in the middle of an operation end it; the memory that they were given is still there."""

    async def script(peer):
        await peer.head(200, "application/octet-stream", 5)
        await peer.send(b"bytes")

    server.script = script
    told = []

    def end():
        if not told:
            told.append(getattr(abx.c, way)(handle))

    def source(_user, to, size):
        end()
        ctypes.memset(to, 120, size)
        return size

    def room(_user, size):
        end()
        return ctypes.addressof(memory)

    memory = ctypes.create_string_buffer(16)
    given = abx.headers.callbacks["abx_source_fn"](source)
    made = abx.headers.callbacks["abx_room_fn"](room)
    if place == "room":
        call = client.call("abx_files_read", box.sandbox, "/f", abx.struct("abx_read_opts", room=made))
    elif place == "http":
        call = http(abx, client, config, f"http://127.0.0.1:{server.port}/", method="PUT", source=given)
    else:
        count = 2 if place == "files" else 1
        items = (abx.headers.structs["abx_write_item"] * count)()
        for item in items:
            item.path, item.source, item.source_size = b"/f", given, -1
        opts = abx.struct("abx_write_opts", gzip=1) if place == "packed" else None
        call = client.call("abx_files_write", box.sandbox, items, count, opts)
    handle = call.handle
    if way == "abx_call_free":
        call.handle = None
        until(lambda: told or abx.c.abx_client_wait(client.handle, 100) and told, "the callback", step=0)
        for _ in range(5):
            abx.c.abx_client_process(client.handle)
    else:
        assert error_of(call).code == "CANCELED"
    assert told


# --- servers ---


def flood(kind):
    def serve(sock):
        head_of(sock)
        if kind == "trailers":
            sock.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n")
        elif kind == "headers":
            sock.sendall(b"HTTP/1.1 200 OK\r\n")
        piece = b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\n" if kind == "informational" else b"X-A: %s\r\n" % (b"y" * 500)
        while True:
            sock.sendall(piece * 20)

    return serve


@pytest.mark.parametrize("kind", ["informational", "headers", "trailers"])
def test_floods_end_and_keep_nothing(abx, client, config, kind):
    with Raw(flood(kind)) as s:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        e = error_of(http(abx, client, config, s.url, request_timeout_ms=2000))
        assert e.reason in ("REQUEST_TIMEOUT", "PROTOCOL", "DISCONNECTED")
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


def test_what_a_hostile_daemon_answers(abx, client, config):
    """Everything that hostile_guest.py knows, straight to libabx: each call ends, typed; nothing cut is taken for whole."""

    def server_of(mode):
        def serve(sock):
            head_of(sock)
            hostile_guest.answer(sock, mode)

        return Raw(serve)

    modes = [*hostile_guest.ONCE, *hostile_guest.FLOODS, "reset after the request", "reset in the head", "reset in the body"]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with contextlib.ExitStack() as stack:
        calls = {}
        for mode in modes:
            url = stack.enter_context(server_of(mode)).url
            calls[mode] = http(abx, client, config, url, request_timeout_ms=60000 if mode in WHOLE else 3000, max_bytes=1 << 20)
        for mode, call in calls.items():
            try:
                call.wait()
            except Error as e:
                assert e.code in ("UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "INTERNAL"), (mode, e)
                assert mode not in WHOLE, e
                continue
            result = abx.headers.structs["abx_http_result"]()
            abx.c.abx_call_http(call.handle, ctypes.byref(result))
            body = ctypes.string_at(result.body, result.body_size)
            assert b"poison" not in body
            assert mode not in CUT, (mode, body)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 128 << 10


# Answers that are whole.
WHOLE = ("more than said", "last poison")

# Heads and bodies that break off or contradict themselves.
CUT = (
    "garbage", "zeros", "no head", "a request", "HTTP/2", "half a head", "huge length", "unasked upgrade", "1,000 fields", "a long field",
    "bad chunk", "overflowing chunk", "chunk without end", "body too short", "cut in a chunk", "nothing", "reset in the body",
    "length and chunks", "two lengths", *hostile_guest.FLOODS,
)


@pytest.mark.parametrize("close", [False, True])
@pytest.mark.parametrize("drives", [False, True])
def test_what_comes_unasked_is_no_answer(abx, client, config, close, drives):
    """A second answer on an idle connection (408, split answers) is not taken for the next request's."""

    def serve(sock):
        head_of(sock)
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood")
        time.sleep(0.2)
        sock.sendall(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 4\r\n\r\nevil")
        if not close:
            time.sleep(5)

    with Raw(serve) as s:
        for _ in range(3):
            for method in ("GET", "POST"):
                call = http(abx, client, config, s.url, method=method).wait()
                result = abx.headers.structs["abx_http_result"]()
                abx.c.abx_call_http(call.handle, ctypes.byref(result))
                assert ctypes.string_at(result.body, result.body_size) == b"good"
                end = time.monotonic() + 0.4
                while time.monotonic() < end:
                    if drives:
                        abx.c.abx_client_wait(client.handle, 50)
                    else:
                        time.sleep(0.05)


def test_an_idle_client_sleeps(abx, client, config):
    """Nothing to do: its descriptor is not readable, whatever servers send meanwhile."""

    def serve(sock):
        head_of(sock)
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood")
        for _ in range(20):
            time.sleep(0.05)
            sock.sendall(b"x")

    with Raw(serve) as s:
        http(abx, client, config, s.url).wait()
        turns = 0
        end = time.monotonic() + 1.5
        fd = abx.c.abx_client_fd(client.handle)
        while time.monotonic() < end:
            if select.select([fd], [], [], 0.1)[0]:
                abx.c.abx_client_process(client.handle)
                turns += 1
        assert turns < 10


def test_a_stream_that_nobody_takes_sleeps(abx, client, config):
    def serve(sock):
        head_of(sock)
        sock.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        sock.setblocking(True)
        sock.settimeout(1)
        while True:
            sock.sendall(b"x" * 65536)

    with Raw(serve) as s:
        call = http(abx, client, config, s.url, stream=1)
        turns = 0
        fd = abx.c.abx_client_fd(client.handle)
        end = time.monotonic() + 3
        while time.monotonic() < end:
            if select.select([fd], [], [], 0.1)[0]:
                abx.c.abx_client_process(client.handle)
                turns += time.monotonic() > end - 1.5
        assert turns < 20
        call.cancel()


def test_a_gzip_bomb_stops_at_the_limit(abx, client, config, box, server):
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    zeros = b"\0" * (1 << 20)
    bomb = b"".join(packer.compress(zeros) for _ in range(512)) + packer.flush()

    async def script(peer):
        await peer.head(200, "application/octet-stream", len(bomb), Content_Encoding="gzip")
        await peer.send(bomb)

    server.script = script
    opts = abx.struct("abx_read_opts", gzip=1, max_bytes=1 << 20)
    e = error_of(client.call("abx_files_read", box.sandbox, "/f", opts))
    assert e.reason == "TOO_LARGE"
    call = client.call("abx_files_read", box.sandbox, "/f", abx.struct("abx_read_opts", gzip=1, stream=1))
    total = sum(event.size for event in call.events())
    assert total == 512 << 20


@pytest.mark.parametrize(
    "rest,target",
    [("", "/"), ("?a=/b", "/?a=/b"), ("/p?a=1", "/p?a=1"), ("/p#frag", "/p"), ("#frag", "/"), ("/?x=/y#/z", "/?x=/y")],
)
def test_targets_of_websockets(abx, client, config, rest, target):
    seen = []

    def serve(sock):
        seen.append(head_of(sock).decode())
        sock.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")

    with Raw(serve) as s:
        url = f"ws://127.0.0.1:{s.port}{rest}"
        error_of(client.call("abx_websocket_open", config, abx.struct("abx_websocket_opts", url=url)))
    assert seen[0].startswith(f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{s.port}\r\n")


@pytest.mark.parametrize("name", ["Host", "content-length", "Transfer-Encoding", "Connection", "Upgrade", "Sec-WebSocket-Key"])
def test_headers_of_the_handshake_are_ours(abx, client, config, name):
    opts = abx.struct("abx_websocket_opts", url="ws://127.0.0.1:1", headers={name: "5"})
    e = error_of(client.call("abx_websocket_open", config, opts))
    assert e.code == "INVALID_ARGUMENT" and name.lower() in e.message.lower()


def test_a_head_request_has_no_body(abx, client, config):
    e = error_of(http(abx, client, config, "http://127.0.0.1:1", method="HEAD", body=ctypes.cast(b"x", ctypes.c_void_p), body_size=1))
    assert e.code == "INVALID_ARGUMENT"


URLS = [
    "http://a@127.0.0.1:{}/",
    "http://127.0.0.1:{}\\@x/",
    "http://127.0.0.1:{}\t/",
    "http://[fe80::1%25lo]@127.0.0.1:{}/",
    "http://user:pass@127.0.0.1:{}",
    "http://%31%32%37.0.0.1%40x:{}/",
    "http:/\\127.0.0.1:{}/",
    "http:127.0.0.1:{}",
    "http:///127.0.0.1:{}",
    "ftp://127.0.0.1:{}/",
    "file:///etc/passwd",
    "http://127.0.0.1:{}:80/",
    "http://127.0.0.1:{}x/",
    "http://127.0.0.1 :{}/",
]


@pytest.mark.parametrize("url", URLS)
def test_urls_that_two_could_read_differently(abx, client, config, url):
    def serve(sock):
        head_of(sock)
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    with Raw(serve) as s:
        e = error_of(http(abx, client, config, url.format(s.port), request_timeout_ms=5000))
        assert e.code == "INVALID_ARGUMENT", e
        assert s.count == 0


@pytest.mark.parametrize("ms", [-5, LONGEST_MS + 1, INT64_MAX, -(2**63)])
def test_timeouts_out_of_range_are_named(abx, client, config, box, ms):
    sandbox = box.sandbox
    calls = [
        http(abx, client, config, "http://127.0.0.1:1", request_timeout_ms=ms),
        client.call("abx_websocket_open", config, abx.struct("abx_websocket_opts", url="ws://127.0.0.1:1", request_timeout_ms=ms)),
        client.call("abx_sandbox_kill", config, "i1", ms),
        client.call("abx_sandbox_list", config, abx.struct("abx_list_opts", request_timeout_ms=ms)),
        client.call("abx_sandbox_is_running", sandbox, ms),
        client.call("abx_code_run", sandbox, "1", abx.struct("abx_code_opts", request_timeout_ms=ms)),
        client.call("abx_code_run", sandbox, "1", abx.struct("abx_code_opts", timeout_ms=ms)),
        client.call("abx_code_context_list", sandbox, ms),
        client.call("abx_terminal_open", sandbox, 80, 24, None, ms),
        client.call("abx_process_list", sandbox, ms),
    ]
    for call in calls:
        e = error_of(call)
        assert e.code == "INVALID_ARGUMENT" and "timeout" in e.message, e


# --- many ---


def test_a_thousand_calls_at_once(abx, client, config):
    def serve(sock):
        while True:
            for _ in range(head_of(sock).count(b"\r\n\r\n")):
                sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    fds = len(os.listdir("/proc/self/fd"))
    with Raw(serve) as s:
        calls = [http(abx, client, config, s.url + f"/{i}") for i in range(1000)]
        for i, call in enumerate(calls):
            if i % 7 == 3:
                call.cancel()
        for i, call in enumerate(calls):
            if i % 7 != 3:
                call.wait(60)
            else:
                assert error_of(call).code == "CANCELED"
            call.free()
    assert len(os.listdir("/proc/self/fd")) < fds + 300
