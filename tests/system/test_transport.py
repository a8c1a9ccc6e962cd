"""The client's HTTP: answers that end early, never come or are no HTTP, and what is sent again after them."""

import asyncio
import email.utils
import gzip
import os
import socket
import time

import pytest
from http_fakes import REASON, answering, ask, exchange, loop, peer, reply, reset  # noqa: F401 (fixtures)
from waiting import BUSY_S


def raw(data, end="close"):
    """Sends these bytes and then closes, resets or says nothing more."""

    async def answer(request, reader, writer):
        writer.write(data)
        await writer.drain()
        if end == "stall":
            await asyncio.sleep(60)
        if end == "reset":
            await asyncio.sleep(0.05)  # what was written is to be read first
            reset(writer)
        return False

    return answer


# ---- plain requests ----


def test_head_of_a_request_has_only_what_was_asked(build_dir, peer):
    p = peer(answering(reply()))
    ask(build_dir, "method=POST", "body=hello", "header=X-Thing: a b", "header=X-Empty", f"{p.url}/a/../b?q=1")
    fields = p.requests[0].fields
    assert p.requests[0].target == "/a/../b?q=1"
    assert fields == [
        ("host", f"127.0.0.1:{p.port}"), ("x-thing", "a b"), ("x-empty", ""), ("content-length", "5"),
    ]  # fmt: skip


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE", "OPTIONS", "POST", "PUT", "PATCH"])
def test_methods_without_a_body(build_dir, peer, method):
    p = peer(answering(b"HTTP/1.1 204 No Content\r\n\r\n"))
    r = ask(build_dir, f"method={method}", "count=2", p.url)
    assert [c["status"] for c in r.calls.values()] == [204, 204]
    assert [q.method for q in p.requests] == [method, method] and p.connections == 1
    has_length = method in ("POST", "PUT", "PATCH")  # RFC 9110 8.6: a zero is said where a body is expected
    assert p.requests[0].headers.get("content-length") == ("0" if has_length else None)


@pytest.mark.parametrize("size", [1, 16384, 16385, 70000, 3000000])
@pytest.mark.parametrize("how", ["body_size", "source_size", "chunked"])
def test_bodies_arrive_whole_and_without_expect(build_dir, peer, size, how):
    p = peer(answering(reply()))
    args = [f"source_size={size}", "source_chunked=1"] if how == "chunked" else [f"{how}={size}"]
    r = ask(build_dir, "method=PUT", *args, "count=2", p.url)
    assert [c["status"] for c in r.calls.values()] == [200, 200]
    assert [(q.method, q.body_size) for q in p.requests] == [("PUT", size)] * 2
    assert not any("expect" in q.headers for q in p.requests)
    assert ("content-length" in p.requests[0].headers) == (how != "chunked")


def test_redirects_are_answers(build_dir, peer):
    p = peer(answering(reply(status="302 Found", headers=("Location: /other",))))
    r = ask(build_dir, p.url)
    assert r[0]["status"] == 302 and r[0]["headers"]["location"] == "/other" and len(p.requests) == 1


def test_interim_answers_are_passed_over(build_dir, peer):
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 3
    r = ask(build_dir, peer(answering(early + reply())).url)
    assert r[0]["status"] == 200 and r[0]["headers"] == {"content-length": "2"}


@pytest.mark.parametrize(
    "args, says",
    [
        (["header=X-A: b\r\nX-Evil: 1"], "header 'X-A'"),
        (["header=X-A: b\nX-Evil: 1"], "header 'X-A'"),
        (["header=X-A\r\nX-Evil: 1: b"], "header name"),
        (["header=X A: b"], "header name"),
        (["header=: b"], "header name"),
        (["header=Content-Length: 5"], "header 'content-length'"),
        (["header=Transfer-Encoding: chunked"], "header 'transfer-encoding'"),
        (["header=Expect: 100-continue"], "header 'expect'"),
        (["method=GET / HTTP/1.1\r\nX-Evil: 1"], "method"),
        (["method="], "method"),
        (["header=X: " + "v" * 70000], "64 KiB"),
        (["header=X: v"] * 101, "more than 100"),
        (["timeout_ms=-5"], "request_timeout_ms"),
    ],
)
def test_what_would_change_the_head_is_refused(build_dir, peer, args, says):
    p = peer(answering(reply()))
    r = ask(build_dir, *args, p.url)
    assert (r[0]["name"], p.connections) == ("invalid_argument", 0)
    assert says in r[0]["message"], r[0]


@pytest.mark.parametrize(
    "tail, says",
    [("/a b", "url: byte"), ("/a\r\nX-Evil: 1", "url: byte"), ("/\u00e4", "url: byte"), ("/" + "a" * 66000, "64 KiB")],
)
def test_urls_with_other_bytes_are_refused(build_dir, peer, tail, says):
    p = peer(answering(reply()))
    r = ask(build_dir, p.url + tail)
    assert (r[0]["name"], p.connections) == ("invalid_argument", 0)
    assert says in r[0]["message"]


@pytest.mark.parametrize("url", ["http://", "http:///x", "http://:80/", "httpx://h/", "http://u:secret@127.0.0.1/",
                                 "http://127.0.0.1:99999/", "http://127.0.0.1:x/", "http://[::1/"])  # fmt: skip
def test_urls_that_are_none_are_refused(build_dir, url):
    r = ask(build_dir, url)
    assert r[0]["name"] == "invalid_argument" and "url" in r[0]["message"] and "secret" not in r[0]["message"]


# ---- answers that end early ----

ENDS_EARLY = {
    "before the head": (b"", "wait for the answer"),
    "in the status line": (b"HTTP/1.1 20", None),
    "in a header": (b"HTTP/1.1 200 OK\r\nContent-Le", None),
    "behind the head": (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n", "body"),
    "in the body": (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", "body"),
    "in a chunk": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc", "body"),
    "between chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", "body"),
    "in the last chunk": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n", "body"),
}


@pytest.mark.parametrize("end", ["close", "reset"])
@pytest.mark.parametrize("where", ENDS_EARLY)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_answer_that_ends_early(build_dir, peer, where, end, method):
    data, phase = ENDS_EARLY[where]
    p = peer(raw(data, end))
    r = ask(build_dir, f"method={method}", p.url)
    assert (r[0]["name"], r[0]["reason"]) == ("unavailable", REASON["disconnected"]), r[0]
    assert r[0]["message"].startswith(f"127.0.0.1:{p.port}: {phase or ''}")
    assert p.count(method) == 1


def test_no_answer_but_a_close_on_accept(build_dir, loop):
    """The connection is there and ends: the request may have been read, so it is not sent again."""
    seen = []

    async def serve(reader, writer):
        seen.append(1)
        writer.close()

    server = loop.run(asyncio.start_server(serve, "127.0.0.1", 0))
    port = server.sockets[0].getsockname()[1]
    r = ask(build_dir, "method=POST", "body=x", f"http://127.0.0.1:{port}")
    loop.loop.call_soon_threadsafe(server.close)
    assert r[0]["reason"] == REASON["disconnected"] and len(seen) == 1


# ---- answers that are no HTTP ----

NOT_HTTP = {
    "garbage": b"\x16\x03\x01 garbage\r\n\r\n",
    "a page without a head": b"<html>hello</html>\r\n\r\n",
    "a status of letters": b"HTTP/1.1 abc OK\r\n\r\n",
    "another protocol's version": b"HTTP/3.7 200 OK\r\n\r\n",
    "a line without colon": b"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n",
    "a name with a space": b"HTTP/1.1 200 OK\r\nX A: b\r\nContent-Length: 0\r\n\r\n",
    "a folded line": b"HTTP/1.1 200 OK\r\nX-A: b\r\n c\r\nContent-Length: 0\r\n\r\n",
    "a NUL in a value": b"HTTP/1.1 200 OK\r\nX-A: b\0c\r\nContent-Length: 0\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
    "a negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nabc",
    "a length of letters": b"HTTP/1.1 200 OK\r\nContent-Length: ab\r\n\r\nabc",
    "a huge length": b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\nabc",
    "length and chunks": b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "a chunk size of letters": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n",
    "a huge chunk size": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nabc\r\n0\r\n\r\n",
    "a chunk longer than it says": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabcdef\r\n0\r\n\r\n",
    "a coding that we do not know": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: rot13\r\n\r\nabc",
    "101 headers": b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 101 + b"Content-Length: 0\r\n\r\n",
    "70 KiB of headers": b"HTTP/1.1 200 OK\r\n" + b"X-A: " + b"b" * 7000 + b"\r\n" + (b"X-B: " + b"b" * 7000 + b"\r\n") * 9,
    "one header of 200 KiB": b"HTTP/1.1 200 OK\r\nX-A: " + b"b" * 200000 + b"\r\nContent-Length: 0\r\n\r\n",
    "endless interim answers": b"HTTP/1.1 100 Continue\r\n\r\n" * 3 + b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
}


@pytest.mark.parametrize("what", NOT_HTTP)
def test_answer_that_is_no_http(build_dir, peer, what):
    p = peer(raw(NOT_HTTP[what], "stall"))
    r = ask(build_dir, "method=POST", "timeout_ms=30000", p.url)
    assert (r[0]["name"], r[0]["reason"]) == ("internal", REASON["protocol"]), r[0]
    assert r[0]["message"].startswith(f"127.0.0.1:{p.port}: ") and p.count("POST") == 1


def test_headers_at_the_limits(build_dir, peer):
    head = "".join(f"x-{i}: {'v' * 600}\r\n" for i in range(99))
    p = peer(answering(f"HTTP/1.1 200 OK\r\n{head}Content-Length: 2\r\n\r\nok".encode()))
    r = ask(build_dir, p.url)
    assert r[0]["status"] == 200 and len(r[0]["headers"]) == 100


def test_result_over_max_bytes(build_dir, peer):
    p = peer(answering(reply(b"x" * 100000)))
    r = ask(build_dir, "max_bytes=50000", p.url)
    assert (r[0]["name"], r[0]["reason"]) == ("resource_exhausted", REASON["too_large"]) and "50000" in r[0]["message"]


# ---- peers that say nothing ----


@pytest.mark.parametrize("where", ENDS_EARLY)
def test_stalled_answer_meets_the_deadline(build_dir, peer, where):
    data, phase = ENDS_EARLY[where]
    p = peer(raw(data, "stall"))
    r = ask(build_dir, "timeout_ms=2000", p.url)
    assert (r[0]["name"], r[0]["reason"]) == ("deadline_exceeded", REASON["timeout"])
    assert r[0]["message"] == f"127.0.0.1:{p.port}: {phase or 'wait for the answer'}: not done within 2000 ms"
    assert 2000 <= r[0]["ms"] < 20000


def test_stalled_stream_meets_the_idle_deadline(build_dir, peer):
    p = peer(raw(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", "stall"))
    r = ask(build_dir, "stream=1", "timeout_ms=20000", "idle_ms=600", p.url)
    assert (r[0]["name"], r[0]["reason"]) == ("deadline_exceeded", REASON["timeout"])
    assert "body: no bytes for 600 ms" in r[0]["message"] and r[0]["bytes"] == 3 and r[0]["ms"] >= 600


def test_slow_stream_is_not_idle(build_dir, peer):
    async def drip(request, reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n")
        for _ in range(10):
            await asyncio.sleep(0.4)
            writer.write(b"x")
        return True

    r = ask(build_dir, "stream=1", "timeout_ms=3000", "idle_ms=3000", peer(drip).url)
    assert r[0]["code"] == 0 and r[0]["bytes"] == 10 and r[0]["ms"] > 3000  # the request's own deadline ends at the head


def test_reader_that_takes_its_time_is_not_idle(build_dir, peer):
    """While the reader keeps the stream waiting, the idle time does not run."""
    size = 12 << 20
    p = peer(answering(reply(b"x" * size)))
    r = ask(build_dir, "stream=1", "timeout_ms=20000", "idle_ms=1500", "slow_ms=3000", f"slow_bytes={6 << 20}", p.url)
    assert (r[0]["code"], r[0]["bytes"]) == (0, size), r[0]


def test_connection_that_never_comes(build_dir):
    """A listener whose queue is full drops what else arrives."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen(0)
        fill = [socket.socket() for _ in range(4)]
        try:
            for f in fill:
                f.setblocking(False)
                f.connect_ex(s.getsockname())
            time.sleep(0.1)
            r = ask(build_dir, "timeout_ms=700", f"http://127.0.0.1:{s.getsockname()[1]}")
        finally:
            for f in fill:
                f.close()
    assert r[0]["name"] == "deadline_exceeded" and ": connect: not done within 700 ms" in r[0]["message"]


# ---- no connection ----


def test_refused_is_tried_four_times(build_dir):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
        r = ask(build_dir, "method=POST", "body=x", f"http://127.0.0.1:{port}/?token=secret")
    assert (r[0]["name"], r[0]["reason"]) == ("unavailable", REASON["connect"])
    assert r[0]["message"] == f"127.0.0.1:{port}: connect: Connection refused" and r[0]["ms"] >= 1500
    assert r[0]["sys"] == 111


def test_refused_until_the_server_is_there(build_dir, loop):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    seen = []

    async def serve(reader, writer):
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(reply())
        writer.close()

    async def later():
        await asyncio.sleep(0.3)
        return await asyncio.start_server(serve, "127.0.0.1", port)

    server = asyncio.run_coroutine_threadsafe(later(), loop.loop)
    r = ask(build_dir, "method=POST", "body=x", f"http://127.0.0.1:{port}")
    loop.loop.call_soon_threadsafe(server.result(BUSY_S).close)
    assert r[0]["status"] == 200 and len(seen) == 1


def test_name_that_does_not_exist(build_dir):
    r = ask(build_dir, "http://no-such-host.invalid/?token=secret")
    assert (r[0]["name"], r[0]["reason"]) == ("unavailable", REASON["name"])
    assert r[0]["message"].startswith("no-such-host.invalid: name resolution: ") and "secret" not in r[0]["message"]


# ---- what is sent again ----


@pytest.mark.parametrize("end", ["close", "reset"])
@pytest.mark.parametrize("size", [0, 1, 30000, 300000])
@pytest.mark.parametrize("method", ["POST", "GET"])
def test_kept_connection_that_dies_sends_nothing_twice(build_dir, peer, end, size, method):
    """libcurl by itself sends a request again when a kept connection ends without an answer."""

    async def answer(request, reader, writer):
        if request.number == 1 and request.connection == 1:
            writer.write(reply())
            return True
        if end == "reset":
            reset(writer)
        return False

    p = peer(answer)
    r = ask(build_dir, f"method={method}", f"body_size={size}", "count=2", p.url)
    assert r[0]["status"] == 200
    assert r[1]["reason"] == REASON["disconnected"] and "wait for the answer" in r[1]["message"], r[1]
    assert p.count(method) == 2


def test_kept_connection_that_was_closed_long_ago_is_not_used(build_dir, peer):
    """The end of an idle connection is seen before the next request: it goes out once, on a new one."""
    p = peer(answering(reply(), keep=False))
    r = ask(build_dir, "method=POST", "body=x", "count=20", "gap_ms=20", p.url)
    assert [c["status"] for c in r.calls.values()] == [200] * 20 and p.count("POST") == 20


def test_post_storm_over_dying_connections(build_dir, peer):
    """Many at once, a third of the connections dies under the request: each POST is seen at most once."""

    async def answer(request, reader, writer):
        if len(p.requests) % 3 == 0:
            reset(writer)
            return False
        writer.write(reply())
        await writer.drain()
        return True

    p = peer(answer)
    r = ask(build_dir, "method=POST", "body=x", "count=600", "concurrency=20", p.url)
    failed = [c for c in r.calls.values() if c["code"] != 0]
    assert p.count("POST") == 600 and len(failed) == 200
    assert {c["reason"] for c in failed} == {REASON["disconnected"]}


def test_read_is_sent_again_after_a_lost_connection(build_dir, peer):
    async def answer(request, reader, writer):
        if len(p.requests) == 1:
            return False
        writer.write(reply())
        return True

    p = peer(answer)
    r = ask(build_dir, "retry=1", p.url)
    assert r[0]["status"] == 200 and p.count("GET") == 2


def storm(answers):
    """Answers in turn, the last one for ever."""

    async def answer(request, reader, writer):
        storm_answers = answers[min(len(answer.seen), len(answers) - 1)]
        answer.seen.append(time.monotonic())
        writer.write(storm_answers)
        await writer.drain()
        return True

    answer.seen = []
    return answer


@pytest.mark.parametrize("status", ["429 Too Many Requests", "502 Bad Gateway", "503 Busy", "504 Late"])
def test_storm_ends_after_three_retries(build_dir, peer, status):
    answer = storm([reply(b"busy", status)])
    r = ask(build_dir, "retry=1", peer(answer).url)
    assert r[0]["status"] == int(status[:3]) and r[0]["body"] == "busy" and len(answer.seen) == 4
    assert answer.seen[3] - answer.seen[0] >= 3.5  # 0.5, 1, 2 s


@pytest.mark.parametrize("method", ["POST", "GET"])
def test_storm_without_retry_is_an_answer(build_dir, peer, method):
    answer = storm([reply(b"busy", "503 Busy", ("Should-Retry: true", "Retry-After: 0"))])
    args = ["retry=1"] if method == "POST" else []
    r = ask(build_dir, *args, f"method={method}", peer(answer).url)
    assert r[0]["status"] == 503 and len(answer.seen) == 1


def test_retry_after_seconds(build_dir, peer):
    answer = storm([reply(b"", "429 Slow", ("Retry-After: 1",)), reply()])
    r = ask(build_dir, "retry=1", peer(answer).url)
    assert r[0]["status"] == 200 and 1 <= answer.seen[1] - answer.seen[0]


def test_retry_after_date(build_dir, peer):
    seen = []

    async def answer(request, reader, writer):
        seen.append(time.monotonic())
        date = email.utils.formatdate(time.time() + 3, usegmt=True)
        writer.write(reply(b"", "503 Slow", (f"Retry-After: {date}",)) if len(seen) == 1 else reply())
        return True

    r = ask(build_dir, "retry=1", peer(answer).url)
    assert r[0]["status"] == 200 and 1.5 <= seen[1] - seen[0]


@pytest.mark.parametrize("header", ["Retry-After: 3600", "Should-Retry: false"])
def test_answers_that_forbid_a_retry(build_dir, peer, header):
    answer = storm([reply(b"", "503 Slow", (header,))])
    r = ask(build_dir, "retry=1", "timeout_ms=0", peer(answer).url)
    assert r[0]["status"] == 503 and len(answer.seen) == 1


def test_retry_that_would_pass_the_deadline_is_not_waited_for(build_dir, peer):
    answer = storm([reply(b"", "503 Slow", ("Retry-After: 30",))])
    r = ask(build_dir, "retry=1", "timeout_ms=10000", peer(answer).url)
    assert r[0]["status"] == 503 and len(answer.seen) == 1 and r[0]["ms"] < 5000


def test_should_retry_allows_another_status(build_dir, peer):
    answer = storm([reply(b"", "409 Wait", ("Should-Retry: true", "Retry-After: 0")), reply()])
    r = ask(build_dir, "retry=1", peer(answer).url)
    assert r[0]["status"] == 200 and len(answer.seen) == 2


def test_large_answer_that_is_retried_is_not_read(build_dir, peer):
    answer = storm([reply(b"x" * 5000000, "503 Busy", ("Retry-After: 0",)), reply()])
    p = peer(answer)
    r = ask(build_dir, "retry=1", p.url)
    assert r[0]["status"] == 200 and p.connections == 2


# ---- what only the layers above ask for ----


def test_gzip_only_when_asked(build_dir, peer):
    body = gzip.compress(b"x" * 1000000)
    p = peer(answering(reply(body, headers=("Content-Encoding: gzip",))))
    r = exchange(build_dir, "gzip=1", p.url, p.url)
    assert [(c["status"], c["bytes"], c["sum"]) for c in r] == [(200, 1000000, 1000000 * ord("x"))] * 2
    assert p.requests[0].headers["accept-encoding"] == "gzip"
    r = exchange(build_dir, p.url)  # unasked: as it came
    assert r[0]["bytes"] == len(body) and r[0]["encoding"] == "gzip"
    assert "accept-encoding" not in p.requests[2].headers


RANDOM = os.urandom(300000)
PACKED = gzip.compress(RANDOM)


@pytest.mark.parametrize(
    "body, want",
    [(PACKED, RANDOM), (PACKED + gzip.compress(b"more"), RANDOM + b"more"), (gzip.compress(b""), b""), (b"", b"")],
    ids=["one", "two members", "empty", "no body"],
)
@pytest.mark.parametrize("pause", [[], ["pause=1"]])
def test_gzip_in_pieces_and_with_pauses(build_dir, peer, body, want, pause):
    async def answer(request, reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n")
        for at in range(0, len(body), 7001):
            piece = body[at : at + 7001]
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        return True

    p = peer(answer)
    r = exchange(build_dir, "gzip=1", *pause, p.url, p.url)
    assert [(c["code"], c["bytes"], c["sum"]) for c in r] == [(0, len(want), sum(want))] * 2
    assert (r[0]["pauses"] > 0) == bool(pause and want)


DAMAGED = {
    "ends early": PACKED[:-3000], "ends in its check": PACKED[:-3], "wrong check": PACKED[:-8] + b"12345678",
    "none": b"no gzip at all" * 10, "more behind": PACKED + b"tail",
}  # fmt: skip


@pytest.mark.parametrize("what", DAMAGED)
def test_gzip_that_is_damaged(build_dir, peer, what):
    r = exchange(build_dir, "gzip=1", peer(answering(reply(DAMAGED[what], headers=("Content-Encoding: gzip",)))).url)
    assert r[0]["reason"] == REASON["protocol"] and "gzip" in r[0]["message"], r


def test_coding_that_was_not_asked_for(build_dir, peer):
    r = exchange(build_dir, "gzip=1", peer(answering(reply(b"x", headers=("Content-Encoding: br",)))).url)
    assert r[0]["reason"] == REASON["protocol"] and "content-encoding" in r[0]["message"]


def test_keyed_post_is_sent_again(build_dir, peer):
    async def answer(request, reader, writer):
        if len(p.requests) == 1:
            return False
        writer.write(reply(b"", "503 Busy", ("Retry-After: 0",)) if len(p.requests) == 2 else reply())
        return True

    p = peer(answer)
    r = exchange(build_dir, "keyed=1", "method=POST", "body=hello", p.url)
    assert r[0]["status"] == 200 and [(q.method, q.body_size) for q in p.requests] == [("POST", 5)] * 3


def test_gone_can_be_an_answer(build_dir, peer):
    p = peer(answering(reply(b"", "502 Gone")))
    assert exchange(build_dir, "keyed=1", "skip_502=1", p.url)[0]["status"] == 502 and len(p.requests) == 1
