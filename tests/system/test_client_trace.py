"""What libabx tells the owner of a config of its requests (abx_trace_fn): each try, answer, end and failure, and no secret."""

import asyncio

import pytest
from http_fakes import answering, loop, peer, reply, reset  # noqa: F401 (fixtures)

from libabx import Error, Library


@pytest.fixture
def traced(build_dir):
    """(client, config, steps): a step is (kind, method, url, status, is_stream, code of its error)."""
    abx = Library(build_dir)
    steps, freed = [], []
    kinds = {abx.constants[f"ABX_TRACE_{k}"]: k for k in ("REQUEST", "RESPONSE", "END", "FAILED")}

    def on_trace(user, trace):
        t = trace.contents
        assert t.duration_ms >= 0 and (t.kind != abx.constants["ABX_TRACE_REQUEST"] or t.duration_ms == 0)
        steps.append((kinds[t.kind], t.method.decode(), t.url.decode(), t.status, t.is_stream,
                      abx.code_name(t.error.contents.code) if t.error else None))

    kept = abx.headers.callbacks["abx_trace_fn"](on_trace), abx.headers.callbacks["abx_free_fn"](lambda user: freed.append(1))
    config = abx.config(trace=kept[0], trace_free=kept[1], api_key="k")
    with abx.client() as client:
        yield client, config, steps
        abx.c.abx_config_ref(config)
        abx.c.abx_config_unref(config)
        abx.c.abx_config_unref(config)
    assert freed == [1]  # once the client's last exchange has let go of it


def request(client, config, url, **opts):
    return client.call("abx_http_request", config, client.library.struct("abx_http_opts", url=url, **opts))


def test_answers_and_their_urls(traced, peer):
    client, config, steps = traced
    p = peer(answering(reply(status="404 Not Found")))
    request(client, config, f"{p.url}/files?signature=secret&path=/x", method="POST", body=None).wait()
    request(client, config, f"{p.url}?signature=secret").wait()
    assert steps == [("REQUEST", "POST", f"{p.url}/files", 0, 0, None), ("RESPONSE", "POST", f"{p.url}/files", 404, 0, None),
                     ("REQUEST", "GET", p.url, 0, 0, None), ("RESPONSE", "GET", p.url, 404, 0, None)]
    steps.clear()
    request(client, config, f"{p.url}/{'x' * 5000}").wait()
    assert len(steps) == 2 and all(len(s[2]) == 1023 for s in steps)


def test_each_try_is_told(traced, peer):
    client, config, steps = traced
    answers = [reply(status="503 Service Unavailable", headers=["Retry-After: 0"]), None, reply()]

    async def answer(r, reader, writer):
        data = answers.pop(0)
        if data is None:
            reset(writer)
            return False
        writer.write(data)
        await writer.drain()
        return True

    p = peer(answer)
    request(client, config, f"{p.url}/a", retry_reads=1).wait()
    told = [(kind, status, code) for kind, _, _, status, _, code in steps]
    assert told == [("REQUEST", 0, None), ("RESPONSE", 503, None), ("REQUEST", 0, None), ("FAILED", 0, "UNAVAILABLE"),
                    ("REQUEST", 0, None), ("RESPONSE", 200, None)]


def test_streams_have_a_head_and_an_end(traced, peer):
    client, config, steps = traced

    async def answer(r, reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
        await writer.drain()
        if "whole" in r.target:
            writer.write(b"0\r\n\r\n")
            await writer.drain()
            return True
        if "stall" in r.target:
            await asyncio.sleep(60)
        reset(writer)
        return False

    p = peer(answer)
    for way, end in (("whole", None), ("cut", "UNAVAILABLE"), ("stall", "CANCELED")):
        steps.clear()
        call = request(client, config, f"{p.url}/{way}", stream=1)
        event = call.next()
        assert event.size == 1
        assert steps[:2] == [("REQUEST", "GET", f"{p.url}/{way}", 0, 1, None), ("RESPONSE", "GET", f"{p.url}/{way}", 200, 1, None)]
        if way == "stall":
            call.cancel()
        try:
            assert call.next() is None
        except Error as e:
            assert e.code == end
        assert steps[2:] == [("END", "GET", f"{p.url}/{way}", 200, 1, end)]


def test_no_answer_is_a_failure(traced, peer):
    client, config, steps = traced

    async def stall(r, reader, writer):
        await asyncio.sleep(60)

    p = peer(stall)
    with pytest.raises(Error):
        request(client, config, f"{p.url}/late", request_timeout_ms=100).wait()
    call = request(client, config, f"{p.url}/given-up")
    call.cancel()
    with pytest.raises(Error):
        call.wait()
    with pytest.raises(Error):
        request(client, config, "http://127.0.0.1:1/", request_timeout_ms=2000).wait()
    with pytest.raises(Error):
        request(client, config, "ftp://127.0.0.1/").wait()  # nothing goes out
    ends = [(kind, url, code) for kind, _, url, _, _, code in steps if kind != "REQUEST"]
    assert ends[:2] == [("FAILED", f"{p.url}/late", "DEADLINE_EXCEEDED"), ("FAILED", f"{p.url}/given-up", "CANCELED")]
    assert set(ends[2:]) == {("FAILED", "http://127.0.0.1:1/", "UNAVAILABLE")}
