"""The client's HTTP: flow in both directions, cancelling, connections kept and limited, forks."""

import asyncio
import hashlib
import socket

import pytest
import sanitizers
from http_fakes import REASON, answering, ask, loop, peer, reply, reset  # noqa: F401 (fixtures)
from waiting import until

GIB = 1 << 30
BLOCK = b"x" * (1 << 20)


def sending(size, chunked=False, sent=None):
    """An answer of `size` bytes; counts in `sent` what the client's side of the connection took."""

    async def answer(request, reader, writer):
        writer.transport.set_write_buffer_limits(1 << 20)
        how = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {size}"
        writer.write(f"HTTP/1.1 200 OK\r\n{how}\r\n\r\n".encode())
        left = size
        while left > 0:
            block = BLOCK[: min(left, len(BLOCK))]
            left -= len(block)
            writer.write(b"%x\r\n%s\r\n" % (len(block), block) if chunked else block)
            await writer.drain()
            if sent is not None:
                sent.append(len(block))
        writer.write(b"0\r\n\r\n" if chunked else b"")
        return True

    return answer


# ---- size and memory ----


def flat_kb(build_dir):
    """The program alone has 10 MB, with a sanitizer's shadow and quarantine much more."""
    return 600000 if sanitizers.of_build(build_dir) else 20000


@pytest.mark.slow
@pytest.mark.parametrize("chunked", [False, True])
def test_download_of_one_gib_in_flat_memory(build_dir, peer, chunked):
    r = ask(build_dir, "stream=1", "timeout_ms=20000", "idle_ms=20000", peer(sending(GIB, chunked)).url)
    assert (r[0]["code"], r[0]["bytes"]) == (0, GIB), r[0]
    assert r.run["peak_kb"] < flat_kb(build_dir)


@pytest.mark.slow
@pytest.mark.parametrize("how", [[], ["source_chunked=1"]])
def test_upload_of_one_gib_in_flat_memory(build_dir, peer, how):
    p = peer(answering(reply()))
    r = ask(build_dir, "method=PUT", f"source_size={GIB}", *how, "timeout_ms=100000", p.url)
    assert (r[0]["status"], r[0]["given"], p.requests[0].body_size) == (200, GIB, GIB)
    assert r.run["peak_kb"] < flat_kb(build_dir)


def test_slow_reader_holds_the_sender(build_dir, peer):
    """What the reader does not take stays with the sender, but for socket buffers and one queue."""
    sent = []
    p = peer(sending(200 << 20, sent=sent))
    r = ask(build_dir, "stream=1", "slow_ms=50", f"slow_bytes={1 << 20}", "cancel_ms=1500", p.url)
    assert r[0]["name"] == "canceled" and 1 << 20 < r[0]["bytes"] < 100 << 20
    assert sum(sent) - r[0]["bytes"] < 24 << 20
    assert r.run["peak_kb"] < flat_kb(build_dir)


def test_slow_reader_gets_everything(build_dir, peer):
    size = 30 << 20
    r = ask(build_dir, "stream=1", "slow_ms=20", f"slow_bytes={1 << 20}", peer(sending(size, True)).url)
    assert (r[0]["code"], r[0]["bytes"]) == (0, size)
    assert r[0]["sum"] == ord("x") * r[0]["sum"] // ord("x")


def test_source_that_has_nothing_for_a_while(build_dir, peer):
    p = peer(answering(reply()))
    for how in ([], ["source_chunked=1"]):
        r = ask(build_dir, "method=PUT", "source_size=400000", "source_stall_ms=300", *how, p.url)
        assert r[0]["status"] == 200 and r[0]["ms"] >= 300
    assert [q.body_size for q in p.requests] == [400000, 400000]


@pytest.mark.parametrize("fails, code, says", [(1, "data_loss", "gave up"), (2, "invalid_argument", "ended at byte")])
def test_source_that_fails(build_dir, peer, fails, code, says):
    p = peer(answering(reply()))
    r = ask(build_dir, "method=PUT", "source_size=4000000", f"source_fails={fails}", p.url)
    assert r[0]["name"] == code and says in r[0]["message"], r[0]


def test_source_is_not_sent_again(build_dir, peer):
    async def answer(request, reader, writer):
        return False

    p = peer(answer)
    r = ask(build_dir, "method=PUT", "source_size=100000", "retry=1", p.url)
    assert r[0]["reason"] == REASON["disconnected"] and p.count("PUT") == 1


# ---- bodies on their way ----

# From memory most of a body goes past libcurl (http_body.c), from a source all of it through libcurl.
HOW = pytest.mark.parametrize("how", ["body_size", "source_size"])
PERIOD = bytes((i * 2654435761 & 0xFFFFFFFF) >> 24 for i in range(65521))  # of http_tool's bodies


def body_of(size):
    return (PERIOD * (size // len(PERIOD) + 1))[:size]


def reading(p, status="200 OK", most=100_000):
    """Reads a body through a socket that holds little, so that the sender's is full most of the time; answers with what it
    was."""
    p.server.sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)

    async def answer(request, reader, writer):
        digest, left = hashlib.sha256(), int(request.headers["content-length"])
        while left > 0:
            data = await reader.read(min(left, most))
            if not data:
                return False
            digest.update(data)
            left -= len(data)
            await asyncio.sleep(0.001)
        writer.write(reply(digest.hexdigest().encode(), status))
        await writer.drain()
        return True

    p.answer = answer
    return p


def unread(peer):
    """A peer that leaves bodies to its answers."""
    return peer(None, reads_body=False)


@HOW
@pytest.mark.parametrize("size", [65535, 65536, 65537, 69632, 70000, 8_000_001])
def test_slow_readers_get_each_byte_in_its_place(build_dir, peer, how, size):
    """Several at once, the second ones on kept connections."""
    p = reading(unread(peer))
    r = ask(build_dir, "method=POST", f"{how}={size}", "count=6", "concurrency=3", p.url)
    assert {c.get("body") for c in r.calls.values()} == {hashlib.sha256(body_of(size)).hexdigest()}, r.calls
    assert p.connections == 3 and p.count("POST") == 6


@HOW
def test_bodies_through_a_proxy(build_dir, peer, how):
    p = reading(unread(peer))
    r = ask(build_dir, f"proxy={p.url}", "method=POST", f"{how}=3000000", "count=2", "http://sandbox.test/a")
    assert {c.get("body") for c in r.calls.values()} == {hashlib.sha256(body_of(3000000)).hexdigest()}, r.calls
    assert [q.target for q in p.requests] == ["http://sandbox.test/a"] * 2


@HOW
def test_error_after_the_whole_body(build_dir, peer, how):
    p = reading(unread(peer), status="507 Full")
    r = ask(build_dir, "method=POST", f"{how}=3000000", "count=3", p.url)
    assert {c.get("body") for c in r.calls.values()} == {hashlib.sha256(body_of(3000000)).hexdigest()}, r.calls
    assert {c["status"] for c in r.calls.values()} == {507} and p.count("POST") == 3


def test_body_goes_out_again_from_its_beginning(build_dir, peer):
    """The first connection ends in the middle of it, the second one asks for another try."""
    p = unread(peer)
    whole = reading(p).answer

    async def answer(request, reader, writer):
        if len(p.requests) == 1:
            await reader.readexactly(300_000)
            reset(writer)
            return False
        if len(p.requests) == 2:
            await reader.readexactly(3_000_000)
            writer.write(reply(b"later", "503 Busy", ("Retry-After: 0",)))
            await writer.drain()
            return True
        return await whole(request, reader, writer)

    p.answer = answer
    r = ask(build_dir, "method=GET", "retry=1", "body_size=3000000", p.url)
    assert r[0].get("body") == hashlib.sha256(body_of(3000000)).hexdigest(), r[0]
    assert p.count("GET") == 3


@HOW
def test_server_that_answers_before_the_body_is_sent(build_dir, peer, how):
    """413 at the head: the answer counts, the rest of the body is not sent."""
    took = []

    async def answer(request, reader, writer):
        writer.write(reply(b"too large", "413 Too Large", ("Connection: close",)))
        await writer.drain()
        while data := await reader.read(1 << 20):  # until the client gives up sending
            took.append(data)
        return False

    p = unread(peer)
    p.answer = answer
    r = ask(build_dir, "method=PUT", f"{how}={100 << 20}", p.url)
    assert r[0]["status"] == 413 and r[0]["body"] == "too large" and r[0]["given"] < 100 << 20
    took = b"".join(took)
    assert len(took) < 100 << 20 and took == body_of(len(took))


@HOW
def test_server_that_stops_reading_the_body(build_dir, peer, how):
    async def answer(request, reader, writer):
        await asyncio.sleep(60)

    p = unread(peer)
    p.answer = answer
    r = ask(build_dir, "method=PUT", f"{how}={100 << 20}", "timeout_ms=500", p.url)
    assert r[0]["name"] == "deadline_exceeded" and r[0]["given"] < 50 << 20


@HOW
def test_server_that_closes_while_the_body_is_sent(build_dir, peer, how):
    async def answer(request, reader, writer):
        await reader.read(100000)
        reset(writer)
        return False

    p = unread(peer)
    p.answer = answer
    r = ask(build_dir, "method=PUT", f"{how}={50 << 20}", "count=3", p.url)
    assert {c["reason"] for c in r.calls.values()} == {REASON["disconnected"]}, r.calls
    assert p.count("PUT") == 3


@HOW
def test_cancel_while_the_body_is_sent(build_dir, peer, how):
    """What arrived is the body's beginning and nothing else, on a connection that is cut."""
    took = []

    async def answer(request, reader, writer):
        took.append(await reader.readexactly(1_000_000))
        await asyncio.sleep(0.5)
        while data := await reader.read(1 << 20):
            took.append(data)
        return False

    p = unread(peer)
    p.answer = answer
    r = ask(build_dir, "method=PUT", f"{how}={100 << 20}", "cancel_ms=200", "linger_ms=100", p.url)
    assert (r[0]["name"], r[0]["message"]) == ("canceled", "canceled")
    until(lambda: p.requests and p.open == 0, "the end of its connection")
    took = b"".join(took)
    assert len(took) < 100 << 20 and took == body_of(len(took))


# ---- cancel ----

PHASES = {
    "before the answer": b"",
    "in the head": b"HTTP/1.1 200 OK\r\nX-A: ",
    "in the body": b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
}


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("stream", [0, 1])
def test_cancel_cuts_the_connection(build_dir, peer, phase, stream):
    async def answer(request, reader, writer):
        writer.write(PHASES[phase])
        await reader.read()  # returns when the client's side is gone
        answer.ended.append(1)
        return False

    answer.ended = []
    p = peer(answer)
    r = ask(build_dir, f"stream={stream}", "cancel_ms=150", "linger_ms=100", p.url)
    assert (r[0]["name"], r[0]["message"]) == ("canceled", "canceled")
    until(lambda: answer.ended and p.open == 0, "the end of its connection")


@pytest.mark.parametrize("at", ["start", "event", "source"])
def test_cancel_from_inside(build_dir, peer, at):
    args = ["method=PUT", "source_size=3000000"] if at == "source" else ["stream=1"]

    async def answer(request, reader, writer):
        writer.write(reply(b"x" * 100000)[:-10])
        await reader.read()
        return False

    p = peer(answer)
    r = ask(build_dir, f"cancel_at={at}", *args, "count=20", "concurrency=4", p.url)
    assert {c["name"] for c in r.calls.values()} == {"canceled"} and len(r.calls) == 20
    if at == "start":
        assert len(p.requests) == 0


def test_cancel_while_connecting_and_resolving(build_dir):
    r = ask(build_dir, "cancel_ms=100", "http://127.0.0.1:1/", "http://no-such-host.invalid/")
    assert {c["name"] for c in r.calls.values()} == {"canceled"} and max(c["ms"] for c in r.calls.values()) < 5000


def test_client_freed_while_requests_run(build_dir, peer):
    p = peer(answering(b""))  # never answers
    r = ask(build_dir, "count=30", "concurrency=30", "free_running=30", p.url)
    assert len(r.calls) == 30 and {c["name"] for c in r.calls.values()} == {"canceled"}


# ---- connections ----


def test_sequential_requests_share_a_connection(build_dir, peer):
    p = peer(answering(reply()))
    ask(build_dir, "count=200", "quiet=1", p.url)
    assert (p.connections, len(p.requests)) == (1, 200)


@pytest.mark.parametrize("by", ["option", "configuration", "both"])
def test_connections_are_limited(build_dir, peer, by):
    async def answer(request, reader, writer):
        await asyncio.sleep(0.01)
        writer.write(reply())
        return True

    p = peer(answer)
    args = [] if by == "configuration" else ["max_connections=5"]
    env = {"ABX_MAX_CONNECTIONS": {"option": "", "configuration": "5", "both": "40"}[by]}
    r = ask(build_dir, "count=100", "concurrency=50", *args, p.url, env=env)
    assert {c["status"] for c in r.calls.values()} == {200} and p.most_open <= 5 and len(r.calls) == 100


def test_waiting_for_a_connection_meets_the_deadline(build_dir, peer):
    async def answer(request, reader, writer):
        await asyncio.sleep(60)

    r = ask(build_dir, "count=4", "concurrency=4", "max_connections=1", "timeout_ms=300", peer(answer).url)
    assert {c["name"] for c in r.calls.values()} == {"deadline_exceeded"}
    assert sum(": wait for a connection: " in c["message"] for c in r.calls.values()) >= 1


def test_thousands_at_once_wait_in_order(build_dir, peer):
    p = peer(answering(reply()))
    r = ask(build_dir, "count=4000", "concurrency=4000", "max_connections=4", "timeout_ms=60000", "quiet=1", p.url)
    assert r.calls == {} and r.run["completed"] == 4000
    assert len(p.requests) == 4000 and p.connections == 4


@pytest.mark.parametrize("end", [["free_running=200"], ["cancel_ms=150"]])
def test_waiting_requests_end_with_the_client_or_by_cancel(build_dir, peer, end):
    async def answer(request, reader, writer):
        await reader.read()

    p = peer(answer)
    r = ask(build_dir, "count=200", "concurrency=200", "max_connections=2", *end, p.url)
    assert len(r.calls) == 200 and {c["name"] for c in r.calls.values()} == {"canceled"}


def test_idle_connections_are_limited_and_end(build_dir, peer):
    async def answer(request, reader, writer):
        while p.most_open < 20:
            await asyncio.sleep(0.01)
        writer.write(reply())
        return True

    p = peer(answer)
    r = ask(build_dir, "count=20", "concurrency=20", "max_idle=3", "linger_ms=300", p.url)
    idle = r.run["descriptors"][1] - r.run["descriptors"][0]
    assert p.most_open == 20 and idle <= 3 + 6  # the client's own: epoll, timer, wake, libcurl's wake-up pair
    r = ask(build_dir, "count=20", "concurrency=20", "linger_ms=1000", p.url, env={"ABX_KEEPALIVE_EXPIRY": "0.2"})
    assert r.run["descriptors"][1] - r.run["descriptors"][0] <= 6
    until(lambda: p.open == 0, "the end of its connections")


def test_request_after_the_idle_time_makes_a_new_connection(build_dir, peer):
    p = peer(answering(reply()))
    r = ask(build_dir, "count=3", "gap_ms=600", "idle_connection_ms=200", p.url)
    assert {c["status"] for c in r.calls.values()} == {200} and p.connections == 3


def test_other_hosts_have_their_own_connections(build_dir, peer):
    a, b = peer(answering(reply(b"a"))), peer(answering(reply(b"b")))
    r = ask(build_dir, "count=10", "concurrency=4", a.url, b.url)
    assert [r[i]["body"] for i in range(20)] == ["a", "b"] * 10


def test_child_that_frees_leaves_the_parent_alone(build_dir, peer):
    """fork() while requests run: the child closes its copies and no request of the parent notices."""

    async def answer(request, reader, writer):
        while p.connections < 10:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        writer.write(reply())
        return True

    p = peer(answer)
    r = ask(build_dir, "count=20", "concurrency=10", "fork_at=10", p.url)
    assert {c["status"] for c in r.calls.values()} == {200} and len(r.calls) == 20
    assert p.connections == 10
