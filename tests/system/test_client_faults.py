"""libabx against an envd that breaks off, lies and stalls: a typed error within its deadline, nothing sent twice."""

import asyncio
import ctypes
import os
import socket
import time
from types import SimpleNamespace

import fake_envd as fake
import pytest
from client_kit import Box, Error, FakeService, Source, collect, fake_box as box, server  # noqa: F401 (fixtures)
from fake_envd import DONE, END, GONE, START, envelope, output
from waiting import until

PROTOCOL = ("INTERNAL", "PROTOCOL")
CUT = ("UNAVAILABLE", "DISCONNECTED")
LOST = ("DATA_LOSS", "NONE")


def error_of(call, *args, **kw):
    began = time.monotonic()
    with pytest.raises(Error) as e:
        call(*args, **kw)
    assert time.monotonic() - began < 30
    return e.value


def kind(e):
    return e.code, e.reason


# --- a command's stream ---

BROKEN = {
    "garbage": (START + envelope(b"{nonsense"), PROTOCOL, "malformed"),
    "wrong type": (START + envelope({"event": {"start": {"pid": "x"}}}), PROTOCOL, "pid"),
    "bad base64": (START + envelope({"event": {"data": {"stdout": "!!"}}}), PROTOCOL, "base64"),
    "not UTF-8": (START + envelope(b'{"event":{"end":{"status":"\xff"}}}'), PROTOCOL, "UTF-8"),
    "deep": (START + envelope(b'{"x":' * 100 + b"1" + b"}" * 100), PROTOCOL, "deep"),
    "oversized": (START + b"\0\xff\xff\xff\xff", PROTOCOL, "4 MiB"),
    "compressed": (START + envelope({}, 1), PROTOCOL, "flags"),
    "unknown flag": (START + envelope({}, 0x80), PROTOCOL, "flags"),
    "no start event": (output(b"x") + END + DONE, PROTOCOL, "start event"),
    "end without start": (END + DONE, PROTOCOL, "start event"),
    "nothing": (DONE, PROTOCOL, "start event"),
    "two starts": (START + START, PROTOCOL, "second start"),
    "no end event": (START + output(b"x") + DONE, LOST, "Command ended without an end event"),
    "clean end": (START, LOST, "Command ended without an end event"),
    "empty answer": (b"", LOST, "Command ended without an end event"),
    "cut message": (START + output(b"abcdef")[:-3], LOST, "inside a message"),
    "cut prefix": (START + b"\0\0", LOST, "inside a message"),
    "malformed end": (START + envelope(b"nonsense", 2), PROTOCOL, "end-of-stream"),
    "end without code": (START + envelope({"error": {"message": "x"}}, 2), PROTOCOL, "end-of-stream"),
    "error": (START + envelope({"error": {"code": "internal", "message": "boom"}}, 2), ("INTERNAL", "NONE"), "boom"),
    "unknown error": (envelope({"error": {"code": "odd", "message": "m"}}, 2), ("UNKNOWN", "NONE"), "m"),
    "error behind the end": (
        START + END + envelope({"error": {"code": "internal", "message": "late"}}, 2),
        ("INTERNAL", "NONE"),
        "late",
    ),
    "time over": (
        START + envelope({"error": {"code": "deadline_exceeded", "message": "t"}}, 2),
        ("DEADLINE_EXCEEDED", "COMMAND_TIMEOUT"),
        "t",
    ),
}


@pytest.mark.parametrize("whole", [True, False], ids=["at once", "byte by byte"])
@pytest.mark.parametrize("name", BROKEN)
def test_broken_streams(box, server, name, whole):
    data, expected, text = BROKEN[name]

    async def script(peer):
        await peer.head()
        for part in [data] if whole else [data[i : i + 1] for i in range(len(data))]:
            if part:
                await peer.chunk(part)
        await peer.end()

    server.script = script
    e = error_of(box.run, "x")
    assert kind(e) == expected and text in e.message, e
    if expected == PROTOCOL:
        assert f"127.0.0.1:{server.port}" in e.message and "process.Process/Start" in e.message
    assert len(server.requests) == 1


WHOLE = {
    "as it should be": START + output(b"out") + END + DONE,
    "keepalives": START + fake.event(keepalive={}) + output(b"out") + fake.event(keepalive={}) + END + DONE,
    "no end of the stream": START + output(b"out") + END,
    "empty end of the stream": START + output(b"out") + END + envelope(b"", 2),
    "events of the future": START + fake.event(later={"x": 1}) + envelope({"more": []}) + output(b"out") + END + DONE,
    "bytes behind the end": START + output(b"out") + END + DONE + b"\xff" * 100,
    "snake case and null": START
    + output(b"out")
    + envelope({"event": {"end": {"exit_code": None, "exited": True, "status": "exit status 0"}}})
    + DONE,
}


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("name", WHOLE)
def test_streams_that_are_good_enough(box, server, name, cut):
    async def script(peer):
        await peer.stream(WHOLE[name], end=not cut)

    server.script = script
    r = box.run("x")
    assert (r.stdout, r.exit_code, r.pid) == (b"out", 0, 7)
    assert server.health_checks == 0


PHASES = {
    "before the head": 0,
    "inside the head": 1,
    "behind the head": 2,
    "inside the start event": 3,
    "behind the start event": 4,
    "inside output": 5,
    "behind output": 6,
}


async def break_at(peer, phase):
    if phase >= 1:
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/connect+json\r\n")
    if phase >= 2:
        await peer.send(b"Transfer-Encoding: chunked\r\n\r\n")
    if phase >= 3:
        await peer.chunk(START[:8])
    if phase >= 4:
        await peer.chunk(START[8:])
    if phase >= 5:
        await peer.chunk(output(b"data")[:12])
    if phase >= 6:
        await peer.chunk(output(b"data")[12:])


@pytest.mark.parametrize("how", ["FIN", "RST"])
@pytest.mark.parametrize("gone", [True, False])
@pytest.mark.parametrize("phase", PHASES)
def test_a_server_that_closes_in_each_phase(box, server, phase, gone, how):
    async def script(peer):
        await break_at(peer, PHASES[phase])
        await asyncio.sleep(0.02)
        if how == "RST":
            peer.reset()

    server.script = script
    server.health = GONE if gone else (204, b"")
    e = error_of(box.run, "x")
    assert kind(e) == (("UNAVAILABLE", "SANDBOX_GONE") if gone else CUT), e
    assert len(server.requests) == 1 and server.health_checks == 1
    assert gone or f"127.0.0.1:{server.port}" in e.message


@pytest.mark.parametrize(
    "health, expected",
    [
        ((502, b"bad gateway"), "SANDBOX_GONE"),
        (fake.PORT_CLOSED, "DISCONNECTED"),
        ((500, b""), "DISCONNECTED"),
        ((200, b""), "DISCONNECTED"),
    ],
)
def test_what_health_says(box, server, health, expected):
    async def script(peer):
        await break_at(peer, 4)

    server.script, server.health = script, health
    assert error_of(box.run, "x").reason == expected


def test_health_has_a_deadline(box, server):
    async def script(peer):
        await break_at(peer, 4)

    server.script, server.health = script, None
    began = time.monotonic()
    assert kind(error_of(box.run, "x")) == CUT
    assert 4 < time.monotonic() - began


def test_the_deadline_ends_the_question_for_health_too(box, server):
    async def script(peer):
        await break_at(peer, 2)

    server.script, server.health = script, None
    began = time.monotonic()
    assert kind(error_of(box.run, "x", request_timeout_ms=500)) == CUT
    assert time.monotonic() - began < 4


@pytest.mark.parametrize("gone", [True, False])
def test_unavailable_said_by_the_stream(box, server, gone):
    async def script(peer):
        await peer.stream(START + envelope({"error": {"code": "unavailable", "message": "going away"}}, 2))

    server.script = script
    server.health = GONE if gone else (204, b"")
    e = error_of(box.run, "x")
    assert kind(e) == ("UNAVAILABLE", "SANDBOX_GONE" if gone else "NONE")


@pytest.mark.parametrize("phase", PHASES)
def test_stalls_end_at_the_deadline(box, server, phase):
    async def script(peer):
        await break_at(peer, PHASES[phase])
        await peer.stall()

    server.script = script
    began = time.monotonic()
    if PHASES[phase] < 4:  # no start event
        e = error_of(box.run, "x", request_timeout_ms=300)
        assert time.monotonic() - began < 5
    else:  # the command's time, and the client's grace behind it
        e = error_of(box.run, "x", timeout_ms=300)
        assert 5 < time.monotonic() - began
    assert kind(e) == ("DEADLINE_EXCEEDED", "REQUEST_TIMEOUT"), e
    assert f"127.0.0.1:{server.port}" in e.message
    assert len(server.requests) == 1


def test_an_answer_that_never_ends_does_not_hold_the_result(box, server):
    async def script(peer):
        await peer.stream(START + output(b"out") + END + DONE, end=False)
        await peer.stall()

    server.script = script
    assert box.run("x").stdout == b"out"


# --- errors before the stream, and of unary calls ---

ANSWERS = [
    (404, "application/json", b'{"code":"not_found","message":"none"}', ("NOT_FOUND", "NONE"), "none"),
    (401, "application/json", b'{"code":401,"message":"who?"}', ("UNAUTHENTICATED", "NONE"), "who?"),
    (500, "application/json", b'{"code":429,"message":"slow"}', ("RESOURCE_EXHAUSTED", "RATE_LIMITED"), "slow"),
    (400, "text/plain", b"plain words", ("INVALID_ARGUMENT", "NONE"), "plain words"),
    (502, "application/json", GONE[1], ("UNAVAILABLE", "SANDBOX_GONE"), "not found"),
    (502, "application/json", fake.PORT_CLOSED[1], ("UNAVAILABLE", "PORT_CLOSED"), "port"),
    (502, "text/html", b"<html>x</html>", ("UNAVAILABLE", "UPSTREAM"), "<html>"),
    (503, "text/plain", b"", ("UNAVAILABLE", "BUSY"), "503"),
    (507, "text/plain", b"full", ("RESOURCE_EXHAUSTED", "DISK_FULL"), "full"),
    (302, "text/plain", b"", ("UNKNOWN", "NONE"), "302"),
    (200, "text/html", b"<html>", PROTOCOL, "text/html"),
    (200, "application/proto", b"", PROTOCOL, "application/proto"),
    (204, "application/json", None, PROTOCOL, "204"),
]


@pytest.mark.parametrize("status, content_type, body, expected, text", ANSWERS)
def test_answers_that_are_errors(box, server, status, content_type, body, expected, text):
    async def script(peer):
        if body is None:
            head = b"HTTP/1.1 %d X\r\nConnection: close\r\nContent-Type: %s\r\n\r\n"
            await peer.send(head % (status, content_type.encode()))
        else:
            await peer.answer(body, status, content_type)

    server.script = script
    for call in (lambda: box.run("x"), lambda: box.resize(7, 80, 25)):
        e = error_of(call)
        assert kind(e) == expected and text in e.message, e
        assert e.http_status == status
    assert len(server.requests) == 2


def test_only_a_connect_error_means_that_there_is_none(box, server):
    async def coded(peer):
        await peer.answer({"code": "not_found", "message": "none"}, 404)

    async def plain(peer):
        await peer.answer({"code": 404, "message": "no such route"}, 404)

    server.script = coded
    assert box.signal(7, 9) is False and box.exists("/x") is False
    e = error_of(box.stat, "/x")
    assert (kind(e), e.http_status) == (("NOT_FOUND", "FILE_NOT_FOUND"), 404)
    server.script = plain
    assert kind(error_of(box.signal, 7, 9)) == ("NOT_FOUND", "NONE")
    assert kind(error_of(box.exists, "/x")) == ("NOT_FOUND", "NONE")

    async def exists(peer):
        await peer.answer({"code": "already_exists", "message": "there"}, 409)

    async def busy(peer):
        await peer.answer({"code": 409, "message": "The sandbox is still transitioning."}, 409)

    server.script = exists
    assert box.make_dir("/x") is False
    server.script = busy
    assert kind(error_of(box.make_dir, "/x")) == ("ALREADY_EXISTS", "CONFLICT")


@pytest.mark.parametrize("body, text", [(b"", "malformed"), (b"{", "malformed"), (b"[]", "malformed"), (b'{"processes":1}', "processes")])
def test_unary_answers_that_are_garbage(box, server, body, text):
    async def script(peer):
        await peer.answer(body)

    server.script = script
    e = error_of(box.processes)
    assert kind(e) == PROTOCOL and text in e.message and "process.Process/List" in e.message


def test_a_unary_answer_over_its_limit(box, server):
    async def script(peer):
        await peer.head(content_type="application/json")
        while True:
            await peer.chunk(b" " * (1 << 20))

    server.script = script
    e = error_of(box.signal, 7, 9)
    assert (kind(e), "64 MiB" in e.message) == (("RESOURCE_EXHAUSTED", "TOO_LARGE"), True)


@pytest.mark.parametrize("gone", [True, False])
def test_writes_are_not_sent_twice_reads_are(box, server, gone):
    async def script(peer):
        await asyncio.sleep(0.01)

    server.script = script
    server.health = GONE if gone else (204, b"")
    expected = ("UNAVAILABLE", "SANDBOX_GONE") if gone else CUT
    # fmt: off
    once = [
        lambda: box.run("x"), lambda: box.connect(pid=7), lambda: box.signal(7, 9), lambda: box.stdin(7, b"x"),
        lambda: box.close_stdin(7), lambda: box.resize(7, 1, 1), lambda: box.make_dir("/x"),
        lambda: box.rename("/x", "/y"), lambda: box.remove("/x"), lambda: box.write({"/x": b"y"}),
        lambda: box.write({"/x": b"y", "/y": b"z"}), lambda: box.write({"/x": Source(b"y" * 100000)}),
        lambda: box.client.run("abx_watcher_get_events", box.sandbox, "w", None),
        lambda: box.client.run("abx_watcher_create", box.sandbox, "/x", None),
        lambda: box.client.run("abx_watcher_remove", box.sandbox, "w", None),
        lambda: box.client.run("abx_files_watch", box.sandbox, "/x", None),
    ]
    # fmt: on
    for i, call in enumerate(once):
        server.requests.clear()
        assert kind(error_of(call)) == expected, i
        assert len(server.requests) == 1, (i, [r.path for r in server.requests])
    server.requests.clear()
    assert kind(error_of(box.stat, "/x")) == expected
    assert 1 < len(server.requests) <= 4


@pytest.mark.parametrize("should, count", [({}, 1), ({"Should_Retry": "false"}, 1), ({"Should_Retry": "true"}, 2)])
def test_a_sandbox_that_is_gone_is_not_asked_again(box, server, should, count):
    async def script(peer):
        if len(server.requests) == 1:
            await peer.answer(GONE[1], 502, **should)
        else:
            await peer.answer({})

    server.script = script
    if count == 1:
        assert error_of(box.processes).reason == "SANDBOX_GONE"
    else:
        assert box.processes() == []
    assert len(server.requests) == count


def test_a_read_that_finds_the_server_later(box, server):
    async def script(peer):
        if len(server.requests) == 1:
            return
        await peer.answer({"processes": [{"pid": 3, "config": {"cmd": "a", "args": ["b"], "envs": {"k": "v"}}, "tag": "t"}]})

    server.script = script
    assert box.processes() == [(3, b"t", "a", ["b"])]
    assert len(server.requests) == 2


@pytest.mark.parametrize("call", ["processes", "stat", "write", "read"])
def test_unary_calls_have_a_deadline(box, server, call):
    async def script(peer):
        await peer.stall()

    server.script = script
    quick = box.abx.struct("abx_files_opts", request_timeout_ms=300)
    started = {
        "processes": lambda: box.client.run("abx_process_list", box.sandbox, 300),
        "stat": lambda: box.client.run("abx_files_stat", box.sandbox, "/x", quick),
        "write": lambda: box.write({"/x": b"y"}, request_timeout_ms=300),
        "read": lambda: box.read("/x", request_timeout_ms=300),
    }[call]
    began = time.monotonic()
    e = error_of(started)
    assert kind(e) == ("DEADLINE_EXCEEDED", "REQUEST_TIMEOUT") and time.monotonic() - began < 20


def test_nobody_listens(abx):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        server = SimpleNamespace(port=free.getsockname()[1])
    made = {"sandboxID": "i1", "envdVersion": "0.6.13", "envdAccessToken": "token"}
    with abx.client() as client:
        b = Box(abx, client, FakeService(server), made, envd_url=f"http://127.0.0.1:{server.port}")
        for call in (lambda: b.run("x"), b.processes, lambda: b.read("/x"), lambda: b.write({"/x": b""})):
            e = error_of(call)
            assert kind(e) == ("UNAVAILABLE", "CONNECT") and f"127.0.0.1:{server.port}" in e.message
        b.close()


@pytest.mark.long
def test_silence_for_two_keepalive_intervals(box, server):
    async def script(peer):
        await break_at(peer, 4)
        await peer.stall()

    server.script = script
    began = time.monotonic()
    with pytest.raises(Error) as e:
        box.run("x", timeout_ms=0, wait=200)
    assert kind(e.value) == CUT and "100 s" in e.value.message
    assert 99 < time.monotonic() - began and server.health_checks == 1


@pytest.mark.parametrize("data, text", [(b"\xff", "malformed"), (b"\x0a\x05\x0a", "malformed"), (b"\x0a\x02\x1a\x00\x0a\x00", "twice")])
def test_garbage_in_the_other_codec(abx, server, data, text):
    async def script(peer):
        await peer.head(content_type="application/connect+proto")
        await peer.chunk(envelope(b"\x0a\x04\x0a\x02\x08\x07") + envelope(data))
        await peer.end()

    server.script = script
    made = {"sandboxID": "i1", "envdVersion": "0.6.13", "envdAccessToken": "token"}
    with abx.client() as client:
        b = Box(abx, client, FakeService(server), made, protobuf=True, envd_url=f"http://127.0.0.1:{server.port}")
        call = client.call("abx_command_run", b.sandbox, "x", None)
        e = error_of(call.wait)
        assert kind(e) == PROTOCOL and text in e.message
        assert call.command().pid == 7 and server.requests[0].headers["content-type"] == "application/connect+proto"
        b.close()


# --- files ---


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("gone", [True, False])
def test_a_read_that_is_cut(box, server, stream, gone):
    async def script(peer):
        await peer.head(content_type="application/octet-stream", length=1000)
        await peer.send(b"x" * 10)

    server.script = script
    server.health = GONE if gone else (204, b"")
    e = error_of(box.read_stream if stream else box.read, "/x")
    assert kind(e) == (("UNAVAILABLE", "SANDBOX_GONE") if gone else CUT)


def test_a_stream_that_stalls(box, server):
    async def script(peer):
        await peer.head(content_type="application/octet-stream", length=1000)
        await peer.send(b"x" * 10)
        await peer.stall()

    server.script = script
    call = box.client.call(
        "abx_files_read", box.sandbox, "/x", box.abx.struct("abx_read_opts", stream=1, idle_timeout_ms=300)
    )
    assert ctypes.string_at((first := call.next()).data, first.size) == b"x" * 10
    e = error_of(call.next)
    assert kind(e) == ("DEADLINE_EXCEEDED", "REQUEST_TIMEOUT")


@pytest.mark.parametrize(
    "body, text",
    [(b"", "malformed"), (b"{}", "no list"), (b"[]", "list of 1"), (b"[1]", "objects"), (b"[{},{}]", "list of 1"), (b"[" * 100, "malformed")],
)
def test_answers_to_writes_that_are_garbage(box, server, body, text):
    async def script(peer):
        await peer.answer(body)

    server.script = script
    e = error_of(box.write, {"/x": b"y"})
    assert kind(e) == PROTOCOL and text in e.message and "POST /files" in e.message


def test_a_write_that_is_refused_early(box, server):
    """The answer counts though the upload has not ended."""

    async def script(peer):
        await peer.answer(b"not enough disk space available", 507, "text/plain")
        await peer.stall()

    async def read_head_only(reader):
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        method, path, _ = head.split("\r\n")[0].split(" ")
        return fake.Request(method, path, {}, b"")

    server.script, server._read = script, read_head_only
    e = error_of(box.write, {"/x": os.urandom(20_000_000)})
    assert (kind(e), e.http_status) == (("RESOURCE_EXHAUSTED", "DISK_FULL"), 507)


# --- what goes over the wire ---


def test_headers_of_a_command(box, server):
    async def script(peer):
        await peer.stream(START + END + DONE)

    server.script = script
    box.run("echo x", user="root", envs={"A": "b"}, cwd="/d", tag="t")
    seen = server.requests[-1]
    assert (seen.method, seen.path) == ("POST", "/process.Process/Start")
    expected = {
        "content-type": "application/connect+json",
        "connect-protocol-version": "1",
        "connect-timeout-ms": "60000",
        "keepalive-ping-interval": "50",
        "authorization": "Basic cm9vdDo=",
        "x-access-token": "token",
        "e2b-sandbox-id": "i1",
        "e2b-sandbox-port": "49983",
    }
    assert {k: seen.headers.get(k) for k in expected} == expected
    assert seen.message() == {
        "process": {"cmd": "/bin/bash", "args": ["-l", "-c", "echo x"], "envs": {"A": "b"}, "cwd": "/d"},
        "tag": "t",
        "stdin": False,
    }
    box.run("echo x", timeout_ms=0, stdin_open=1)
    seen = server.requests[-1]
    assert "connect-timeout-ms" not in seen.headers and "authorization" not in seen.headers
    assert seen.message()["stdin"] is True


def test_requests_of_files(box, server):
    async def script(peer):
        await peer.answer([{"name": "x", "type": "file", "path": "/x"}])

    server.script = script
    box.write({"/a b/ü": b"data"}, user="me", metadata={"K": "v"})
    seen = server.requests[-1]
    assert seen.path == "/files?path=%2Fa%20b%2F%C3%BC&username=me" and seen.body == b"data"
    assert seen.headers["content-type"] == "application/octet-stream" and seen.headers["x-metadata-k"] == "v"
    assert "authorization" not in seen.headers and seen.headers["content-length"] == "4"


# --- watching (an envd that has it) ---


def test_a_watch(box, server):
    async def script(peer):
        await peer.stream(
            envelope({"start": {}}),
            envelope({"filesystem": {"name": "f", "type": "EVENT_TYPE_CREATE"}}),
            envelope({"keepalive": {}}),
            envelope({"filesystem": {"name": "f", "type": 99}}),
            envelope(
                {
                    "filesystem": {
                        "name": "d/g",
                        "type": "EVENT_TYPE_CHMOD",
                        "entry": {"name": "g", "type": "FILE_TYPE_FILE", "path": "/d/g", "size": "5", "mode": 420},
                    }
                }
            ),
            envelope({"error": {"code": "not_found", "message": "it went"}}, 2),
        )

    server.script = script
    opts = box.abx.struct("abx_watch_opts", recursive=1, include_entry=1, allow_network_mounts=1, user=b"u", timeout_ms=5000)
    call = box.client.call("abx_files_watch", box.sandbox, "/d", opts)
    assert call.next().kind == box.abx.constants["ABX_EVENT_START"]
    first = call.next().fs.contents
    assert (first.name, first.type, bool(first.entry)) == (b"f", 1, False)
    second = call.next().fs.contents
    assert (second.name, second.type, second.entry.contents.path, second.entry.contents.size) == (b"d/g", 5, b"/d/g", 5)
    e = error_of(call.next)
    assert (e.code, e.reason, e.message) == ("NOT_FOUND", "FILE_NOT_FOUND", "it went")
    seen = server.requests[-1]
    assert seen.message() == {"path": "/d", "recursive": True, "includeEntry": True, "allowNetworkMounts": True}
    assert seen.headers["connect-timeout-ms"] == "5000" and seen.headers["keepalive-ping-interval"] == "50"


def test_a_watch_that_just_ends(box, server):
    async def script(peer):
        await peer.stream(envelope({"start": {}}), *([DONE] if len(server.requests) == 1 else []))

    server.script = script
    call = box.client.call("abx_files_watch", box.sandbox, "/d", None)
    assert [e.kind for e in call.events()] == [box.abx.constants["ABX_EVENT_START"]]
    call = box.client.call("abx_files_watch", box.sandbox, "/d", None)
    call.next()
    assert kind(error_of(call.next)) == LOST


def test_watchers(box, server):
    async def script(peer):
        name, peer.keeps = peer.seen.path.rsplit("/", 1)[1], True
        await peer.answer(
            {
                "CreateWatcher": {"watcherId": "w1"},
                "GetWatcherEvents": {"events": [{"name": "f", "type": "EVENT_TYPE_WRITE"}, {"name": "g", "type": 77}]},
                "RemoveWatcher": {},
            }[name]
        )

    server.script = script
    assert box.client.run("abx_watcher_create", box.sandbox, "/d", None).bytes() == b"w1"
    assert server.requests[-1].headers["keepalive-ping-interval"] == "50"
    events = box.client.run("abx_watcher_get_events", box.sandbox, "w1", None).items("abx_call_fs_events")
    assert [(e.name, e.type) for e in events] == [(b"f", 2)]
    box.client.run("abx_watcher_remove", box.sandbox, "w1", None)
    assert [r.message() for r in server.requests[1:]] == [{"watcherId": "w1"}] * 2


# --- nothing is left ---


def test_no_descriptor_is_left(abx, server):
    async def script(peer):
        await break_at(peer, 4)

    server.script = script
    made = {"sandboxID": "i1", "envdVersion": "0.6.13", "envdAccessToken": "token"}
    count = lambda: len(os.listdir("/proc/self/fd"))
    for round in range(3):
        if round == 1:
            before = count()
        with abx.client() as client:
            b = Box(abx, client, FakeService(server), made, envd_url=f"http://127.0.0.1:{server.port}")
            calls = [client.call("abx_command_run", b.sandbox, "x", None) for _ in range(20)]
            running = client.call("abx_files_read", b.sandbox, "/x", None)
            for call in calls:
                error_of(call.wait)
            running.cancel()
            client.call("abx_command_run", b.sandbox, "x", None)  # runs when the client is freed
            b.close()
    until(lambda: count() <= before, lambda: f"{before} descriptors, has {count()}")  # the fake's side closes a moment later
