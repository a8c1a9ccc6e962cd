"""The client's HTTP over TLS and HTTP/2, and through proxies."""

import asyncio
import socket
import subprocess

import pytest
from http_fakes import (  # noqa: F401 (fixtures)
    REASON, H2Peer, Peer, answering, ask, exchange, loop, make_certificates, reply, server_tls,
)  # fmt: skip
from waiting import until


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("tls"), "127.0.0.1", "sandbox.test")


@pytest.fixture
def made():
    peers = []
    yield lambda p: peers.append(p) or p
    for p in peers:
        p.stop()


@pytest.fixture
def tls_peer(loop, made, certificates):
    def make(answer=None, name="127.0.0.1", **options):
        return made(Peer(loop, answer or answering(reply()), tls=server_tls(certificates, name), **options))

    return make


@pytest.fixture
def h2_peer(loop, made, certificates):
    return lambda **options: made(H2Peer(loop, certificates, **options))


# ---- TLS ----


def test_certificate_of_a_private_ca(build_dir, tls_peer, certificates):
    p = tls_peer()
    r = ask(build_dir, f"ca={certificates}/ca.pem", "count=3", p.url)
    assert [(c["status"], c["version"]) for c in r.calls.values()] == [(200, 11)] * 3 and p.connections == 1
    r = ask(build_dir, p.url, env={"SSL_CERT_FILE": f"{certificates}/ca.pem"})
    assert r[0]["status"] == 200


def test_certificate_of_an_unknown_ca(build_dir, tls_peer):
    p = tls_peer()
    r = ask(build_dir, "method=POST", "body=secret", p.url + "/?token=secret")
    assert (r[0]["name"], r[0]["reason"]) == ("unavailable", REASON["tls"]), r[0]
    assert r[0]["message"].startswith(f"127.0.0.1:{p.port}: TLS handshake: ") and "secret" not in r[0]["message"]
    assert "certificate" in r[0]["message"] and len(p.requests) == 0


def test_certificate_of_another_name(build_dir, tls_peer, certificates):
    p = tls_peer(name="sandbox.test")
    r = ask(build_dir, f"ca={certificates}/ca.pem", p.url)
    assert r[0]["reason"] == REASON["tls"] and len(p.requests) == 0


def test_ca_file_that_is_missing(build_dir, tls_peer):
    r = ask(build_dir, "ca=/nonexistent/ca.pem", tls_peer().url)
    assert r[0]["code"] != 0 and "/nonexistent/ca.pem" in r[0]["message"], r[0]


def test_tls_with_a_server_that_has_none(build_dir, loop):
    async def serve(reader, writer):
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = loop.run(asyncio.start_server(serve, "127.0.0.1", 0))
    r = ask(build_dir, f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    loop.loop.call_soon_threadsafe(server.close)
    assert r[0]["reason"] == REASON["tls"]


@pytest.mark.parametrize("what, reason", [("close", "tls"), ("stall", "timeout")])
def test_handshake_that_does_not_end(build_dir, loop, what, reason):
    async def serve(reader, writer):
        await reader.read(10)
        if what == "stall":
            await asyncio.sleep(60)
        writer.close()

    server = loop.run(asyncio.start_server(serve, "127.0.0.1", 0))
    port = server.sockets[0].getsockname()[1]
    r = ask(build_dir, "timeout_ms=2500", f"https://127.0.0.1:{port}")
    loop.loop.call_soon_threadsafe(server.close)
    assert r[0]["reason"] in (REASON[reason], REASON["connect"]), r[0]
    assert ": TLS handshake: " in r[0]["message"], r[0]


@pytest.mark.parametrize("data", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"])
def test_tls_connection_that_ends(build_dir, tls_peer, certificates, data):
    async def answer(request, reader, writer):
        writer.write(data)
        await writer.drain()
        return False

    p = tls_peer(answer)
    r = ask(build_dir, f"ca={certificates}/ca.pem", "method=POST", "count=2", p.url)
    assert {c["reason"] for c in r.calls.values()} == {REASON["disconnected"]} and p.count("POST") == 2


def test_kept_tls_connection_that_dies_sends_nothing_twice(build_dir, tls_peer, certificates):
    async def answer(request, reader, writer):
        if request.number == 2:
            writer.transport.abort()
            return False
        writer.write(reply())
        return True

    p = tls_peer(answer)
    r = ask(build_dir, f"ca={certificates}/ca.pem", "method=POST", "body=x", "count=2", p.url)
    assert r[1]["reason"] == REASON["disconnected"] and p.count("POST") == 2


def test_child_that_frees_says_no_goodbye(build_dir, tls_peer, certificates):
    """A TLS library would send close_notify on the parent's connections."""

    async def answer(request, reader, writer):
        while p.connections < 5:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        writer.write(reply())
        return True

    p = tls_peer(answer)
    r = ask(build_dir, f"ca={certificates}/ca.pem", "count=10", "concurrency=5", "fork_at=5", p.url)
    assert {c["status"] for c in r.calls.values()} == {200} and p.connections == 5


def test_server_that_closes_while_a_body_is_sent(build_dir, tls_peer, certificates):
    """No SIGPIPE, too."""

    async def answer(request, reader, writer):
        await reader.read(100000)
        writer.transport.abort()
        return False

    p = tls_peer(answer, reads_body=False)
    for what in (f"source_size={100 << 20}", f"body_size={20 << 20}"):
        r = ask(build_dir, f"ca={certificates}/ca.pem", "method=PUT", what, "count=5", p.url)
        assert {c["reason"] for c in r.calls.values()} == {REASON["disconnected"]}, r.calls
    assert p.count("PUT") == 10


# ---- HTTP/2 ----


@pytest.fixture
def nghttpd(certificates, tmp_path, request):
    """Its URL; parametrized with more arguments."""
    (tmp_path / "small").write_bytes(b"hello")
    (tmp_path / "large").write_bytes(b"x" * (8 << 20))
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    args = ["-a", "127.0.0.1", "-d", tmp_path, "--echo-upload", *getattr(request, "param", [])]
    keys = [certificates / "127.0.0.1.key", certificates / "127.0.0.1.pem"]
    with subprocess.Popen(
        ["nghttpd", *args, str(port), *keys], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:

        def listens():
            with socket.socket() as s:
                return s.connect_ex(("127.0.0.1", port)) == 0

        until(listens, "nghttpd")
        yield f"https://127.0.0.1:{port}"
        server.terminate()


def test_many_streams_of_nghttpd(build_dir, nghttpd, certificates):
    r = ask(build_dir, f"ca={certificates}/ca.pem", "count=3000", "concurrency=100", f"{nghttpd}/small")
    assert {(c["status"], c["version"], c["body"]) for c in r.calls.values()} == {(200, 20, "hello")}
    assert len(r.calls) == 3000
    assert r.run["descriptors"][1] - r.run["descriptors"][0] <= 6 + 2  # a hundred streams in one connection


def test_more_streams_than_connections_have(build_dir, nghttpd, certificates):
    r = ask(build_dir, f"ca={certificates}/ca.pem", "count=2000", "concurrency=400", "max_connections=3", f"{nghttpd}/small")
    assert {(c["status"], c["version"]) for c in r.calls.values()} == {(200, 20)} and len(r.calls) == 2000
    assert r.run["descriptors"][1] - r.run["descriptors"][0] <= 6 + 3


@pytest.mark.parametrize("nghttpd", [["-m", "4"]], indirect=True)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_server_with_few_streams(build_dir, nghttpd, certificates, method):
    """Of each connection's streams only one goes out before the server's settings are read."""
    ca = f"ca={certificates}/ca.pem"
    r = ask(build_dir, ca, f"method={method}", "count=100", "concurrency=40", f"{nghttpd}/small")
    assert {(c["status"], c["version"]) for c in r.calls.values()} == {(200, 20)}, r.calls


def test_large_bodies_of_nghttpd(build_dir, nghttpd, certificates):
    ca = f"ca={certificates}/ca.pem"
    r = ask(build_dir, ca, "stream=1", "count=8", "concurrency=4", f"{nghttpd}/large")
    assert {(c["code"], c["bytes"], c["version"]) for c in r.calls.values()} == {(0, 8 << 20, 20)}
    for how in ("body_size=3000000", "source_size=3000000"):
        r = ask(build_dir, ca, "method=POST", how, "count=20", "concurrency=5", f"{nghttpd}/small")
        assert {(c["code"], c["bytes"], c["version"]) for c in r.calls.values()} == {(0, 3000000, 20)}, how


def test_slow_stream_leaves_the_others_alone(build_dir, h2_peer, certificates):
    """One stream whose reader takes nothing; others in the same connection go on."""
    p = h2_peer()
    ca = f"ca={certificates}/ca.pem"
    slow = [f"{p.url}/size/{4 << 20}"] + [f"{p.url}/size/1000"] * 50
    r = ask(build_dir, ca, "stream=1", "slow_ms=600", f"slow_bytes={1 << 20}", "concurrency=51", *slow)
    assert [c["code"] for c in r.calls.values()] == [0] * 51 and p.connections == 1
    assert r[0]["bytes"] == 4 << 20 and r[0]["ms"] >= 1800
    assert max(r[i]["ms"] for i in range(1, 51)) < 1800


def test_refused_stream_goes_out_again(build_dir, h2_peer, certificates):
    """On a new connection libcurl tells that the stream was refused. On a kept one it does not: then nothing is sent again."""
    p = h2_peer()
    ca = f"ca={certificates}/ca.pem"
    r = ask(build_dir, ca, "method=POST", "body=x", f"{p.url}/refuse/1")
    assert r[0]["status"] == 200 and p.count("POST") == 2
    r = ask(build_dir, ca, "method=POST", "body=x", f"{p.url}/ok", f"{p.url}/ok", f"{p.url}/refuse")
    assert r[2]["reason"] == REASON["disconnected"] and p.count("POST") == 5


def test_first_requests_wait_for_the_settings(build_dir, h2_peer, certificates):
    """A server that allows few streams would refuse the others, and a refusal on a shared connection is not told."""
    p = h2_peer(settings_late=True)
    args = ["method=POST", "body=x", "count=30", "concurrency=30", f"{p.url}/ok"]
    r = ask(build_dir, f"ca={certificates}/ca.pem", *args)
    assert {(c["status"], c["version"]) for c in r.calls.values()} == {(200, 20)}, r.calls
    assert (p.count("POST"), p.connections) == (30, 1)


def test_first_answer_that_does_not_come_holds_the_others_for_a_moment(build_dir, h2_peer, certificates):
    p = h2_peer()
    urls = [f"{p.url}/stall"] + [f"{p.url}/ok"] * 5
    r = ask(build_dir, f"ca={certificates}/ca.pem", "concurrency=6", "timeout_ms=8000", *urls)
    assert [c["name"] for c in r.calls.values()] == ["ok"] * 5 + ["deadline_exceeded"] and p.connections == 1, r.calls


def test_refusal_is_not_remembered(build_dir, h2_peer, certificates):
    """libcurl keeps that a stream on a kept connection was refused, and would call the next loss a refusal."""
    p, other = h2_peer(), h2_peer()
    urls = [f"{p.url}/ok", f"{p.url}/refuse", f"{other.url}/cut"]
    r = ask(build_dir, f"ca={certificates}/ca.pem", "method=POST", "body=x", *urls)
    assert [c["reason"] for c in list(r.calls.values())[1:]] == [REASON["disconnected"]] * 2
    assert [path for _, path, _ in p.requests + other.requests] == ["/ok", "/refuse", "/cut"]


def test_stream_that_is_refused_for_ever(build_dir, h2_peer, certificates):
    p = h2_peer()
    r = ask(build_dir, f"ca={certificates}/ca.pem", "method=POST", "body=x", f"{p.url}/refuse")
    assert r[0]["reason"] == REASON["disconnected"] and 1 < p.count("POST") < 10


@pytest.mark.parametrize("how", ["reset", "die", "goaway"])
def test_stream_that_the_server_ends(build_dir, h2_peer, certificates, how):
    """Never twice, on the first connection and on a kept one."""
    p = h2_peer()
    r = ask(build_dir, f"ca={certificates}/ca.pem", "method=POST", "body=x", f"{p.url}/ok", f"{p.url}/{how}")
    assert r[0]["status"] == 200 and r[1]["reason"] == REASON["disconnected"], r[1]
    assert [q[:2] for q in p.requests].count(("POST", f"/{how}")) == 1
    r = ask(build_dir, f"ca={certificates}/ca.pem", "method=POST", "body=x", f"{p.url}/{how}")
    assert r[0]["reason"] == REASON["disconnected"], r[0]
    assert [q[:2] for q in p.requests].count(("POST", f"/{how}")) == 2


def test_streams_of_a_connection_that_dies(build_dir, h2_peer, certificates):
    p = h2_peer()
    urls = [f"{p.url}/stall"] * 20 + [f"{p.url}/die"]
    r = ask(build_dir, f"ca={certificates}/ca.pem", "method=POST", "body=x", "concurrency=21", *urls)
    assert {c["reason"] for c in r.calls.values()} == {REASON["disconnected"]}
    assert p.count("POST") <= 21


@pytest.fixture
def both_url(loop, made, certificates):
    """A server that speaks HTTP/1.1 and HTTP/2, as the client likes."""
    both = server_tls(certificates, "127.0.0.1", "h2", "http/1.1")

    async def serve(reader, writer):
        if writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2":
            await H2Peer.serve(h2, reader, writer)
        else:
            await Peer.serve(h1, reader, writer)

    h1, h2 = made(Peer(loop, answering(reply()))), made(H2Peer(loop, certificates))
    server = loop.run(asyncio.start_server(serve, "127.0.0.1", 0, ssl=both))
    yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/ok"
    loop.loop.call_soon_threadsafe(server.close)


def test_http1_only_beside_http2(build_dir, both_url, certificates):
    """A kept HTTP/2 connection is not taken for a request that wants HTTP/1.1."""
    r = exchange(build_dir, f"ca={certificates}/ca.pem", *[both_url, both_url + "#http1"] * 2)
    assert [(c["status"], c["version"]) for c in r] == [(200, 20), (200, 11)] * 2, r


def test_body_of_unknown_length_goes_by_http1(build_dir, both_url, certificates):
    args = ["method=POST", "source_size=300000", "count=20", "concurrency=5", both_url]
    r = ask(build_dir, f"ca={certificates}/ca.pem", *args)
    assert {(c["status"], c["version"]) for c in r.calls.values()} == {(200, 20)}
    r = ask(build_dir, f"ca={certificates}/ca.pem", "source_chunked=1", *args)
    assert {(c["status"], c["version"]) for c in r.calls.values()} == {(200, 11)}


def test_cancel_of_a_stream_leaves_the_connection(build_dir, h2_peer, certificates):
    p = h2_peer()
    urls = [f"{p.url}/stall", f"{p.url}/ok"]
    r = ask(build_dir, f"ca={certificates}/ca.pem", "count=5", "cancel_ms=1500", *urls)
    assert [c["name"] for c in r.calls.values()] == ["canceled", "ok"] * 5 and p.connections == 1


def test_stalled_stream_meets_the_deadline(build_dir, h2_peer, certificates):
    p = h2_peer()
    r = ask(build_dir, f"ca={certificates}/ca.pem", "timeout_ms=3000", f"{p.url}/stall", f"{p.url}/ok")
    assert r[0]["name"] == "deadline_exceeded" and r[1]["status"] == 200 and p.connections == 1


# ---- proxies ----


@pytest.fixture
def proxy(loop, made):
    """A proxy that sends every tunnel to `to` and answers plain requests itself."""

    def make(to=None, connect_answer=b"HTTP/1.1 200 Connection established\r\n\r\n"):
        async def answer(request, reader, writer):
            if request.method != "CONNECT":
                writer.write(reply(b"by the proxy"))
                return True
            writer.write(connect_answer)
            if b" 200 " not in connect_answer:
                await writer.drain()
                return False
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", to.port)

            async def copy(a, b):
                while data := await a.read(65536):
                    b.write(data)
                    await b.drain()
                b.close()

            await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer))
            return False

        return made(Peer(loop, answer, reads_body=False))

    return make


def test_plain_request_goes_through_the_proxy(build_dir, proxy):
    p = proxy()
    r = ask(build_dir, f"proxy={p.url}", "http://sandbox.test:81/a?b=c", "http://sandbox.test/")
    assert {c["body"] for c in r.calls.values()} == {"by the proxy"}
    assert [q.target for q in p.requests] == ["http://sandbox.test:81/a?b=c", "http://sandbox.test/"]


def test_tls_request_goes_through_a_tunnel(build_dir, proxy, h2_peer, tls_peer, certificates):
    far = tls_peer(name="sandbox.test")
    p = proxy(far)
    r = ask(build_dir, f"proxy={p.url}", f"ca={certificates}/ca.pem", "count=3", "method=POST", "https://sandbox.test/x")
    assert {c["status"] for c in r.calls.values()} == {200}
    assert [(q.method, q.target) for q in p.requests] == [("CONNECT", "sandbox.test:443")]
    assert far.count("POST") == 3 and far.requests[0].headers["host"] == "sandbox.test"
    p = proxy(h2_peer(name="sandbox.test"))
    r = ask(build_dir, f"proxy={p.url}", f"ca={certificates}/ca.pem", "https://sandbox.test/ok")
    assert (r[0]["status"], r[0]["version"], r[0]["headers"]) == (200, 20, {"content-length": "2"})


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "x.localhost", "127.1", "0x7f000001", "127.9.8.7"])
def test_loopback_never_goes_through_a_proxy(build_dir, proxy, loop, made, host):
    p = proxy()
    far = made(Peer(loop, answering(reply(b"direct"))))
    r = ask(build_dir, f"proxy={p.url}", "timeout_ms=20000", f"http://{host}:{far.port}/")
    assert p.connections == 0
    if host != "127.9.8.7":  # the server listens on one address
        assert r[0]["body"] == "direct", r[0]


@pytest.mark.parametrize("value", ["sandbox.test", ".test", "other,sandbox.test", "*"])
def test_no_proxy_is_honoured(build_dir, proxy, value):
    p = proxy()
    for name in ("NO_PROXY", "no_proxy"):
        r = ask(build_dir, f"proxy={p.url}", "timeout_ms=3000", "http://sandbox.test/", env={name: value})
        assert r[0]["reason"] in (REASON["name"], REASON["timeout"]) and p.connections == 0
    r = ask(build_dir, f"proxy={p.url}", "http://sandbox.test/", env={"NO_PROXY": "else.test"})
    assert r[0]["body"] == "by the proxy"


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"])
def test_environment_alone_makes_no_proxy(build_dir, proxy, name):
    p = proxy()
    r = ask(build_dir, "timeout_ms=3000", "http://sandbox.test/", env={name: p.url})
    assert r[0]["reason"] in (REASON["name"], REASON["timeout"]) and p.connections == 0


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 407 Who\r\nContent-Length: 0\r\n\r\n", b"", b"nonsense\r\n\r\n"]
)  # fmt: skip
def test_proxy_that_refuses(build_dir, proxy, tls_peer, answer):
    far = tls_peer(name="sandbox.test")
    p = proxy(far, answer)
    url = p.url.replace("://", "://user:hidden@")
    r = ask(build_dir, f"proxy={url}", "method=POST", "body=x", "https://sandbox.test/x")
    assert (r[0]["name"], r[0]["reason"]) == ("unavailable", REASON["connect"]), r[0]
    assert r[0]["message"].startswith("sandbox.test: connect: ") and "hidden" not in r[0]["message"]
    assert far.connections == 0


def test_proxy_that_is_not_there(build_dir):
    r = ask(build_dir, "proxy=http://user:hidden@127.0.0.1:1", "http://sandbox.test/x")
    assert r[0]["reason"] == REASON["connect"] and "hidden" not in r[0]["message"]
