"""The real abx-gateway between raw clients and fakes of control, engine and sandboxes."""

import base64
import hashlib
import os
import re
import socket
import struct
import threading
import time

import pytest
from gateway_fakes import CREATING, ENVD, KILLING, PAUSED, Client, World

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")

GONE = {"message": "The sandbox was not found", "code": 502}
CLOSED = {"message": "The sandbox is running but port is not open", "code": 502}


@pytest.fixture
def world(build_dir, tmp_path):
    w = World(build_dir, tmp_path)
    yield w
    assert w.close() == 0


@pytest.fixture
def client(world):
    c = Client(world)
    yield c
    c.close()


def to(name, port=ENVD, **more):
    return {"E2b-Sandbox-Id": name, "E2b-Sandbox-Port": str(port), **more}


def fields_of(response):
    out = {}
    for name, value in response.json()["fields"]:
        out.setdefault(name, []).append(value)
    return out


def expect_reset(sock):
    """Reads on; the connection has to be reset, not closed."""
    got = b""
    with pytest.raises(ConnectionResetError):
        while data := sock.recv(65536):
            got += data
        raise AssertionError(f"closed cleanly after {got!r}")
    return got


# --- where requests go ---------------------------------------------------------------------------------------------


def test_both_headers_choose_sandbox_and_port(world, client):
    for name in ("ia", "ib"):
        sandbox = world.sandbox(name)
        sandbox.echo()
        sandbox.echo(3000)
    assert client.request("GET", "/x", to("ia")).json()["who"] == f"ia:{ENVD}"
    assert client.request("GET", "/x", to("ib", 3000)).json()["who"] == "ib:3000"
    assert client.request("GET", "/x", to("ib-0f1e2d", 3000)).json()["who"] == "ib:3000"
    assert client.request("POST", "/sandboxes", to("ib", 3000), b"{}").json()["who"] == "ib:3000"


def test_host_chooses_sandbox_and_port(world, client):
    world.sandbox("ia").echo(3000)
    for host in ("3000-ia.sbx.test", "3000-IA.SBX.test:8080", "3000-ia.sbx.test.", "3000-ia.sbx.test.:80"):
        got = client.request("GET", "/sandboxes", host=host)
        assert got.json()["who"] == "ia:3000", host
        assert fields_of(got)["host"] == [host]


def test_the_rest_is_the_control_planes(world, client):
    world.sandbox("ia").echo()
    for path in ("/health", "/sandboxes?limit=1", "/v2/sandboxes", "/files", "/any/thing", "/"):
        got = client.request("GET", path)
        assert (got.json()["who"], got.json()["path"]) == ("control", path)
    # Older SDKs send the headers with calls of the control plane.
    for path in ("/sandboxes/ia", "/v2/sandboxes", "/v3/templates", "/snapshots", "/volumes", "/secrets/x"):
        assert client.request("POST", path, to("ia"), b"{}").json()["who"] == "control"
    got = client.request("GET", "/sandboxes", host="sbx.test")
    assert got.json()["who"] == "control"


@pytest.mark.parametrize(
    "headers, host",
    [
        ({"E2b-Sandbox-Id": "ia"}, "h"),
        ({"E2b-Sandbox-Port": "3000"}, "h"),
        (to("i_a"), "h"),
        (to(""), "h"),
        (to("IA"), "h"),
        (to("ia", 0), "h"),
        (to("ia", 65536), "h"),
        (to("ia", "80x"), "h"),
        ({}, "0-ia.sbx.test"),
        ({}, "65536-ia.sbx.test"),
        ({}, "3000-i_a.sbx.test"),
    ],
)
def test_bad_addresses_are_400(world, client, headers, host):
    world.sandbox("ia").echo()
    got = client.request("GET", "/x", headers, host=host)
    assert got.status == 400
    assert got.json()["code"] == 400 and got.json()["message"]
    assert "should-retry" not in got.fields


@pytest.mark.parametrize("path", ["/init", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw", "/upgrade",
                                  "/init/", "/%69nit", "//init", "/init?x=1"])
def test_reserved_endpoints_of_envd_are_404(world, client, path):
    sandbox = world.sandbox("ia")
    server = sandbox.echo()
    sandbox.echo(3000)
    for got in (client.request("POST", path, to("ia")),
                client.request("POST", path, host=f"{ENVD}-ia.sbx.test")):
        assert got.status == 404
        assert got.json() == {
            "sandboxId": "ia",
            "message": "This endpoint is reserved for the E2B control plane and is not reachable through the "
            "sandbox URL",
            "code": 404,
        }
    assert server.seen == []
    assert client.request("POST", path, to("ia", 3000)).json()["who"] == "ia:3000"


def signature(path, operation, user, token, expiration=None):
    text = f"{path}:{operation}:{user}:{token}" + (f":{expiration}" if expiration is not None else "")
    return "v1_" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def test_tokens_and_signatures_find_their_sandbox(world, client):
    for name in ("ia", "ib", "ic"):
        world.sandbox(name, access_token="" if name == "ic" else "token-" + name).echo()
    ask = client.request
    assert ask("GET", "/health", {"X-Access-Token": "token-ib"}).json()["who"] == f"ib:{ENVD}"
    assert ask("POST", "/process.Process/List", {"X-Access-Token": "token-ia"}).json()["who"] == f"ia:{ENVD}"
    assert ask("GET", "/health", {"X-Access-Token": "token-none"}).json()["who"] == "control"
    assert ask("GET", "/sandboxes", {"X-Access-Token": "token-ia"}).json()["who"] == "control"
    from urllib.parse import urlencode

    def signed(method, name, wrong="", **query):
        operation = "write" if method == "POST" else "read"
        sig = signature(query["path"], operation, query.get("username", ""), "token-" + name,
                        query.get("signature_expiration"))
        return ask(method, "/files?" + urlencode({**query, "signature": sig + wrong})).json()["who"]

    assert signed("GET", "ia", path="/home/user/a b+ü.txt", username="user") == f"ia:{ENVD}"
    assert signed("POST", "ib", path="x", signature_expiration=1700000000) == f"ib:{ENVD}"
    assert signed("GET", "ia", path="x", wrong="A") == "control"


def test_options_is_answered_anywhere(world, client):
    server = world.sandbox("ia").echo(3000)
    for headers in ({}, to("ia", 3000), to("inone")):
        got = client.request("OPTIONS", "/x", {**headers, "Access-Control-Request-Headers": "authorization, x-y"})
        assert got.status == 204
        assert got.fields["access-control-allow-origin"] == "*"
        assert "PATCH" in got.fields["access-control-allow-methods"]
        assert got.fields["access-control-allow-headers"] == "authorization, x-y"
    assert server.seen == []


# --- what arrives --------------------------------------------------------------------------------------------------


def test_fields_upstream(world, client):
    world.sandbox("ia").echo()
    got = client.request("POST", "/p?q=1", to("ia", **{
        "Connection": "keep-alive, X-Secret-Hop", "X-Secret-Hop": "1", "TE": "trailers", "Keep-Alive": "5",
        "X-Access-Token": "t", "Authorization": "Basic dXNlcjo=", "X-Dup": "1", "Abx-Request-Id": "req-1.2_3"}), b"hi")
    fields = fields_of(got)
    assert got.json()["body"] == "hi" and got.json()["path"] == "/p?q=1"
    for dropped in ("connection", "x-secret-hop", "te", "keep-alive"):
        assert dropped not in fields
    assert fields["e2b-sandbox-id"] == ["ia"] and fields["e2b-sandbox-port"] == [str(ENVD)]
    assert fields["x-access-token"] == ["t"] and fields["authorization"] == ["Basic dXNlcjo="]
    assert fields["x-forwarded-for"] == ["127.0.0.1"]
    assert fields["x-forwarded-proto"] == ["http"] and fields["x-forwarded-host"] == ["127.0.0.1"]
    assert fields["abx-request-id"] == ["req-1.2_3"]
    assert got.fields["abx-request-id"] == "req-1.2_3"
    assert got.fields["access-control-allow-origin"] == "*"
    assert "X-Next-Token" in got.fields["access-control-expose-headers"]
    assert "x-hop" not in got.fields and "connection" not in got.fields


def test_request_ids_are_made_when_missing_or_bad(world, client):
    seen = set()
    for headers in ({}, {"Abx-Request-Id": "a b"}, {"Abx-Request-Id": "x" * 200}):
        got = client.request("GET", "/sandboxes", headers)
        made = fields_of(got)["abx-request-id"]
        assert len(made) == 1 and re.fullmatch(r"[0-9a-f]{32}", made[0])
        assert got.fields["abx-request-id"] == made[0]
        seen.add(made[0])
    assert len(seen) == 3


def test_a_proxy_on_this_machine_is_believed(world, client):
    got = client.request("GET", "/sandboxes", {"X-Forwarded-For": "9.9.9.9", "X-Forwarded-Proto": "https",
                                                "X-Forwarded-Host": "api.example"})
    fields = fields_of(got)
    assert fields["x-forwarded-for"] == ["9.9.9.9, 127.0.0.1"]
    assert fields["x-forwarded-proto"] == ["https"] and fields["x-forwarded-host"] == ["api.example"]


def test_masked_host(world, client):
    sandbox = world.sandbox("ia", mask="localhost:${PORT}")
    sandbox.echo(3000)
    sandbox.echo()
    fields = fields_of(client.request("GET", "/", host="3000-ia.sbx.test"))
    assert fields["host"] == ["localhost:3000"] and fields["x-forwarded-host"] == ["localhost:3000"]
    assert fields_of(client.request("GET", "/", host=f"{ENVD}-ia.sbx.test"))["host"] == [f"{ENVD}-ia.sbx.test"]


def test_methods_and_bodies(world, client):
    world.sandbox("ia").echo()
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        got = client.request(method, "/", to("ia"), b"x" * 3 if method != "GET" else b"")
        assert got.json()["method"] == method
    head = client.request("HEAD", "/", to("ia"))
    assert head.status == 200 and int(head.fields["content-length"]) > 100
    client.sock.sendall(b"POST / HTTP/1.1\r\nHost: h\r\nE2b-Sandbox-Id: ia\r\nE2b-Sandbox-Port: 49983\r\n"
                        b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
    got = client.response()
    assert got.json()["body"] == "abcde"
    assert fields_of(got)["transfer-encoding"] == ["chunked"]
    assert client.request("CONNECT", "h:443", host="h:443").status == 405


def test_expect_is_answered_when_the_sandbox_is_reached(world, client):
    world.sandbox("ia").echo(3000)
    head = "POST / HTTP/1.1\r\nHost: h\r\nE2b-Sandbox-Id: ia\r\nE2b-Sandbox-Port: %d\r\nContent-Length: 3\r\n" \
           "Expect: 100-continue\r\n\r\n"
    client.sock.sendall((head % 3000).encode())
    assert client.head().status == 100
    client.sock.sendall(b"abc")
    got = client.response()
    assert got.json()["body"] == "abc" and "expect" not in fields_of(got)
    client.sock.sendall((head % 3001).encode())  # nobody listens: the body is never asked for
    got = client.response()
    assert got.status == 502 and got.fields["connection"] == "close"


def test_absolute_targets_become_paths(world, client):
    got = client.request("GET", "http://sbx.test/sandboxes?a=b", host="sbx.test")
    assert got.json()["path"] == "/sandboxes?a=b"


# --- sandboxes that are not there ------------------------------------------------------------------------------------


def test_unknown_sandboxes_are_gone_on_controls_word(world, client):
    for headers, host in ((to("inone"), "h"), ({}, "3000-inone.sbx.test")):
        got = client.request("GET", "/health", headers, host=host)
        assert got.status == 502
        assert got.json() == {"sandboxId": "inone", **GONE}
        assert got.fields["content-type"] == "application/json; charset=utf-8"
        assert got.fields["should-retry"] == "false"
        assert got.fields["access-control-allow-origin"] == "*"
    assert world.control.lookups == ["inone", "inone"]


def test_control_is_asked_about_rows_that_have_not_come(world, client):
    world.sandbox("ia", told=False).echo()
    assert client.request("GET", "/", to("ia")).status == 200
    assert client.request("GET", "/", to("ia")).status == 200
    assert world.control.lookups == ["ia"]


def test_paused_and_killing_sandboxes_answer_like_missing_ones(world, client):
    for state in (PAUSED, KILLING):
        world.sandbox("ia", state=state).echo()
        assert client.request("GET", "/health", to("ia")).json() == {"sandboxId": "ia", **GONE}


def test_sandboxes_being_killed_are_not_remembered(world, client):
    """Control does not tell again of an end that it has told of, so no row may stay."""
    world.sandbox("ia", state=KILLING, told=False).echo()
    for _ in range(2):
        assert client.request("GET", "/health", to("ia")).json() == {"sandboxId": "ia", **GONE}
    assert world.control.lookups == ["ia", "ia"]


def test_a_sandbox_in_creation_is_waited_for(world, client):
    sandbox = world.sandbox("ia", state=CREATING)
    sandbox.echo()
    client.send("GET", "/", to("ia"))
    client.sock.settimeout(0.3)
    with pytest.raises(TimeoutError):
        client.sock.recv(1)
    client.sock.settimeout(10)
    sandbox.state = 2
    world.control.put(sandbox)
    assert client.response().status == 200


def test_closed_ports(world, client):
    world.sandbox("ia")
    began = time.monotonic()
    got = client.request("POST", "/", to("ia", 3000), b"body")
    assert got.status == 502
    assert got.json() == {"sandboxId": "ia", "port": 3000, **CLOSED}
    assert got.fields["should-retry"] == "true"
    assert 1.0 < time.monotonic() - began < 3  # five more tries
    began = time.monotonic()
    got = client.request("GET", "/", to("ia"))
    assert got.json() == {"sandboxId": "ia", "port": ENVD, **CLOSED}
    assert time.monotonic() - began < 0.9
    got = client.request("GET", "/", to("ia", 9))
    assert got.json() == {"sandboxId": "ia", "port": 9, **CLOSED}
    assert got.fields["should-retry"] == "false"


def test_closed_ports_leave_no_descriptors(world, client):
    """Anybody may ask for one port of a sandbox after the other."""
    world.sandbox("ia").echo()
    assert client.request("GET", "/", to("ia")).status == 200
    clients = [Client(world) for _ in range(24)]
    assert [c.request("OPTIONS", "/").status for c in clients] == [204] * 24  # all are accepted
    before = fds(world)
    for n, c in enumerate(clients):
        c.send("GET", "/", to("ia", 5000 + n))
    assert [c.response().status for c in clients] == [502] * 24
    assert fds(world) <= before
    for c in clients:
        c.close()


def test_a_server_that_just_starts_is_reached_with_the_body(world, client):
    sandbox = world.sandbox("ia")
    timer = threading.Timer(0.4, lambda: sandbox.echo(3000))
    timer.start()
    got = client.request("POST", "/", to("ia", 3000), b"body")
    assert got.json()["body"] == "body"
    timer.join()


def test_servers_on_ipv6_loopback_only_are_reached(world, client):
    world.sandbox("ia").echo(3000, "::1")
    assert client.request("POST", "/", to("ia", 3000), b"b").json()["body"] == "b"


def test_traffic_token(world, client):
    sandbox = world.sandbox("ia", traffic_token="secret")
    sandbox.echo(3000)
    sandbox.echo()
    assert client.request("GET", "/", to("ia")).status == 200
    for wrong in ({}, {"E2B-Traffic-Access-Token": "secreT"}, {"E2B-Traffic-Access-Token": ""}):
        got = client.request("GET", "/", to("ia", 3000, **wrong))
        assert got.status == 403 and got.json()["sandboxId"] == "ia" and got.json()["code"] == 403
    assert client.request("GET", "/", to("ia", 3000, **{"E2B-Traffic-Access-Token": "secret"})).status == 200


# --- streams ---------------------------------------------------------------------------------------------------------


class Raw:
    """A server in a sandbox that the test plays itself."""

    def __init__(self, sandbox, port=ENVD, **more):
        self.listener = sandbox.listen(port, **more)
        self.listener.settimeout(5)

    def accept(self):
        conn, _ = self.listener.accept()
        conn.settimeout(10)
        got = b""
        while b"\r\n\r\n" not in got:
            got += conn.recv(65536)
        head, body = got.split(b"\r\n\r\n", 1)
        length = re.search(rb"(?i)content-length: (\d+)", head)
        while length and len(body) < int(length[1]) < 1000:
            body += conn.recv(65536)
        return conn, head + b"\r\n\r\n" + body


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def begin_stream(world, client, name="ia"):
    sandbox = world.sandbox(name)
    raw = Raw(sandbox)
    client.send("POST", "/process.Process/Start", to(name), b"{}")
    conn, _ = raw.accept()
    conn.sendall(CHUNKED + b"5\r\nhello\r\n")
    assert client.head().fields["transfer-encoding"] == "chunked"
    assert client.chunk() == b"hello"
    return sandbox, raw, conn


def test_streams_come_piece_by_piece(world, client):
    _, _, conn = begin_stream(world, client)
    for i in range(50):
        conn.sendall(b"2\r\n%02d\r\n" % i)
        assert client.chunk() == b"%02d" % i
    conn.sendall(b"0\r\n\r\n")
    assert client.chunk() == b""


def test_large_bodies_both_ways(world, client):
    raw = Raw(world.sandbox("ia"))
    size = 64 << 20
    got = {}

    def play():
        conn, head = raw.accept()
        n = len(head.split(b"\r\n\r\n", 1)[1])
        digest = hashlib.sha256(head.split(b"\r\n\r\n", 1)[1])
        while n < size:
            data = conn.recv(1 << 20)
            digest.update(data)
            n += len(data)
        got["up"] = digest.hexdigest()
        conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        conn.sendall(block * (size // len(block)))

    block = os.urandom(1 << 20)
    thread = threading.Thread(target=play)
    thread.start()
    client.sock.sendall(f"POST / HTTP/1.1\r\nHost: h\r\nE2b-Sandbox-Id: ia\r\nE2b-Sandbox-Port: {ENVD}\r\n"
                        f"Content-Length: {size}\r\n\r\n".encode())
    for _ in range(size // len(block)):
        client.sock.sendall(block)
    assert client.head().status == 200
    digest, left = hashlib.sha256(client.data), size - len(client.data)
    while left:
        data = client.sock.recv(1 << 20)
        digest.update(data)
        left -= len(data)
    thread.join()
    want = hashlib.sha256(block * (size // len(block))).hexdigest()
    assert got["up"] == want and digest.hexdigest() == want


def send_until_stuck(sock, limit=256 << 20):
    """How much goes into a direction that nobody reads."""
    sock.setblocking(False)
    sent, quiet = 0, 0
    while quiet < 10 and sent < limit:
        try:
            sent += sock.send(b"z" * 65536)
            quiet = 0
        except BlockingIOError:
            quiet += 1
            time.sleep(0.03)
    sock.settimeout(10)
    return sent


def memory_kib(world):
    status = open(f"/proc/{world.process.pid}/status").read()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1])


def test_slow_readers_push_back_and_memory_stays(world, client):
    raw = Raw(world.sandbox("ia"))
    client.send("GET", "/big", to("ia"))
    conn, _ = raw.accept()
    conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
    before = memory_kib(world)
    assert send_until_stuck(conn) < 32 << 20
    other = Client(world)
    other.sock.sendall(f"POST / HTTP/1.1\r\nHost: h\r\nE2b-Sandbox-Id: ia\r\nE2b-Sandbox-Port: {ENVD}\r\n"
                       "Content-Length: 1000000000\r\n\r\n".encode())
    conn2, _ = raw.accept()
    assert send_until_stuck(other.sock) < 32 << 20
    assert memory_kib(world) - before < 4096
    other.close()


def test_a_broken_upstream_resets_the_client(world, client):
    _, _, conn = begin_stream(world, client)
    conn.close()
    assert b"0\r\n\r\n" not in expect_reset(client.sock)


def test_a_broken_upstream_before_its_answer_is_502_and_not_repeated(world, client):
    raw = Raw(world.sandbox("ia"))
    client.send("POST", "/", to("ia"), b"{}")
    conn, _ = raw.accept()
    conn.close()
    got = client.response()
    assert got.status == 502 and got.fields["should-retry"] == "false"
    assert "was not found" not in got.json()["message"] and got.json()["sandboxId"] == "ia"
    assert world.control.lookups == ["ia"]
    raw.listener.settimeout(0.3)
    with pytest.raises(TimeoutError):
        raw.accept()


@pytest.mark.parametrize("is_told_by", ["control", "engine"])
def test_a_sandbox_that_ends_breaks_its_streams_and_is_gone(world, client, is_told_by):
    sandbox, _, conn = begin_stream(world, client)
    idle, other = Client(world), Client(world)
    waiting = Client(world)
    waiting.send("POST", "/x", to("ia"), b"{}")
    if is_told_by == "control":
        world.kill(sandbox)  # waits for RemoveDone
        conn.settimeout(5)
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            conn.recv(10)  # at RemoveDone it was closed
    else:
        world.control.rows.pop("ia")
        world.engine.died(sandbox)
    assert b"0\r\n\r\n" not in expect_reset(client.sock)
    for c in (idle, other):
        got = c.request("GET", "/health", to("ia"))
        assert got.status == 502 and got.json() == {"sandboxId": "ia", **GONE}
    got = waiting.response()
    assert got.status == 502 and got.json() == {"sandboxId": "ia", **GONE}
    for c in (idle, other, waiting):
        c.close()


def test_remove_closes_idle_connections_and_spares_others(world, client):
    ended, lives = world.sandbox("ia"), world.sandbox("ib")
    servers = ended.echo(), lives.echo()
    for name in ("ia", "ib"):
        assert client.request("GET", "/", to(name)).status == 200
    stream = Client(world)
    _, _, conn = begin_stream(world, stream, "ic")
    world.kill(ended)
    assert client.request("GET", "/", to("ib")).json()["who"].startswith("ib")
    assert servers[1].accepted == 1
    conn.sendall(b"2\r\nok\r\n")
    assert stream.chunk() == b"ok"
    world.control.remove(ended)  # once more: it is answered too
    stream.close()


def test_a_client_that_leaves_drops_the_upstream(world, client):
    _, _, conn = begin_stream(world, client)
    client.close()
    began = time.monotonic()
    with pytest.raises(ConnectionResetError):
        if not conn.recv(1):
            raise AssertionError("half-closed only")
    assert time.monotonic() - began < 3


def test_websockets(world, client):
    raw = Raw(world.sandbox("ia"), 3000)
    client.send("GET", "/ws", {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Key": "k"},
                host="3000-ia.sbx.test")
    conn, head = raw.accept()
    assert b"Upgrade: websocket\r\n" in head and b"Connection: Upgrade\r\n" in head
    conn.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                 b"Sec-WebSocket-Accept: a\r\n\r\nfirst")
    got = client.head()
    assert got.status == 101 and got.fields["upgrade"] == "websocket"
    assert client.take(5) == b"first"
    client.sock.sendall(b"to-server")
    assert conn.recv(100) == b"to-server"
    conn.sendall(b"to-client")
    assert client.take(9) == b"to-client"
    conn.close()
    assert client.sock.recv(1) == b""


def test_upgrades_to_the_control_plane_are_not_passed(world, client):
    got = client.request("GET", "/sandboxes", {"Connection": "Upgrade", "Upgrade": "h2c"})
    assert "upgrade" not in fields_of(got)


# --- connections -----------------------------------------------------------------------------------------------------


def test_upstream_connections_are_reused(world, client):
    server = world.sandbox("ia").echo()
    others = [Client(world) for _ in range(3)]
    for _ in range(10):
        for c in [client, *others]:
            assert c.request("POST", "/", to("ia"), b"x").status == 200
    assert server.accepted == 1
    assert len(world.engine.asked) == 1
    for _ in range(20):
        assert client.request("GET", "/sandboxes").status == 200
    assert world.control.http.accepted == 1
    for c in others:
        c.close()


def test_parallel_requests_get_a_connection_each(world):
    raw = Raw(world.sandbox("ia"))
    clients = [Client(world) for _ in range(40)]
    for i, c in enumerate(clients):
        c.send("POST", f"/{i}", to("ia"), b"x")
    conns = [raw.accept() for _ in clients]
    for conn, head in conns:
        path = head.split()[1]
        conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(path), path))
    for i, c in enumerate(clients):
        assert c.response().body == f"/{i}".encode()
        c.close()


def test_a_connection_that_the_server_closed_is_not_used(world, client):
    raw = Raw(world.sandbox("ia"), 3000)
    for _ in range(5):
        client.send("POST", "/", to("ia", 3000), b"x")
        conn, _ = raw.accept()
        conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        conn.close()
        assert client.response().body == b"ok"


def test_too_many_connections_into_one_sandbox(build_dir, tmp_path):
    world = World(build_dir, tmp_path, "--max-sandbox-connections", "2")
    clients = [Client(world) for _ in range(3)]
    raw = Raw(world.sandbox("ia"))
    held = []
    for c in clients[:2]:
        c.send("GET", "/", to("ia"))
        held.append(raw.accept()[0])
    got = clients[2].request("GET", "/", to("ia"))
    assert got.status == 429 and got.json()["code"] == 429 and got.json()["sandboxId"] == "ia"
    assert got.fields["should-retry"] == "true" and got.fields["retry-after"] == "1"
    held[0].sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
    assert clients[0].response().status == 204
    clients[2].send("GET", "/", to("ia"))
    held[0].settimeout(5)
    assert held[0].recv(100).startswith(b"GET")
    for c in clients:
        c.close()
    assert world.close() == 0


@pytest.mark.slow
def test_a_listener_that_does_not_accept_stalls_only_its_sandbox(world, client):
    sandbox = world.sandbox("ia")
    sandbox.listen(3000, backlog=0)
    world.sandbox("ib").echo()
    fill = sandbox.sockets(4)
    for s in fill:
        s.setblocking(False)
        s.connect_ex(("::ffff:127.0.0.1", 3000))
    client.send("GET", "/", to("ia", 3000))
    other = Client(world)
    for _ in range(20):
        assert other.request("GET", "/", to("ib")).status == 200
    got = client.response()
    assert got.status == 504 and got.fields["should-retry"] == "true"
    assert got.json()["sandboxId"] == "ia" and got.json()["code"] == 504
    for s in fill:
        s.close()
    other.close()


def test_pipelined_requests_are_answered_in_order(world, client):
    world.sandbox("ia").echo()
    for i in range(10):
        client.send("POST", f"/{i}", to("ia"), b"b%d" % i)
    for i in range(10):
        got = client.response().json()
        assert (got["path"], got["body"]) == (f"/{i}", f"b{i}")


def test_ambiguous_requests_are_refused(world):
    head = b"POST /sandboxes HTTP/1.1\r\nHost: h\r\n"
    for bad in (b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", b"Content-Length : 3\r\n\r\nabc",
                b"Transfer-Encoding: gzip, chunked\r\n\r\n", b"X: a\r\n b\r\n\r\n", b"Host: g\r\n\r\n",
                b"X: \x00\r\n\r\n"):
        c = Client(world)
        c.sock.sendall(head + bad)
        got = c.response()
        assert got.status == 400 and got.json()["code"] == 400, bad
        assert got.fields["connection"] == "close"
        c.close()
    assert world.control.http.seen == []


# --- roles that restart ----------------------------------------------------------------------------------------------


def test_requests_wait_for_control(world, client):
    world.sandbox("ia").echo()
    assert client.request("GET", "/", to("ia")).status == 200
    world.control.stop()
    # Known sandboxes are served meanwhile.
    assert client.request("GET", "/", to("ia")).status == 200
    late, lost = Client(world), Client(world)
    late.send("POST", "/sandboxes", {}, b"{}")
    lost.send("GET", "/health", to("inone"))
    late.sock.settimeout(0.4)
    with pytest.raises(TimeoutError):
        late.sock.recv(1)
    late.sock.settimeout(10)
    world.control.start()
    assert late.response().json()["who"] == "control"
    assert lost.response().json() == {"sandboxId": "inone", **GONE}
    assert client.request("GET", "/", to("ia")).status == 200
    late.close()
    lost.close()


def test_requests_wait_for_the_engine(world, client):
    world.sandbox("ia").echo()
    world.engine.link.stop()
    client.send("POST", "/", to("ia"), b"b")
    client.sock.settimeout(0.4)
    with pytest.raises(TimeoutError):
        client.sock.recv(1)
    client.sock.settimeout(10)
    world.engine.link.start()
    assert client.response().json()["body"] == "b"


def test_waiting_ends_with_503(build_dir, tmp_path):
    world = World(build_dir, tmp_path, "--wait-ms", "300")
    world.sandbox("ia").echo()
    world.engine.link.stop()
    client = Client(world)
    got = client.request("POST", "/", to("ia"), b"b")
    assert got.status == 503 and got.fields["should-retry"] == "true" and got.fields["retry-after"] == "1"
    assert got.json()["sandboxId"] == "ia" and got.json()["code"] == 503
    world.control.stop()
    for method, path, headers in (("POST", "/sandboxes", {}), ("GET", "/health", {}), ("GET", "/", to("inone"))):
        began = time.monotonic()
        got = client.request(method, path, headers)
        assert got.status == 503 and got.fields["should-retry"] == "true"
        assert got.json()["code"] == 503
        assert 0.25 < time.monotonic() - began < 2
    client.close()
    assert world.close() == 0


def test_a_live_sandbox_that_the_engine_does_not_know_is_not_called_gone(build_dir, tmp_path):
    world = World(build_dir, tmp_path, "--wait-ms", "500")
    sandbox = world.sandbox("ia")
    sandbox.echo()
    del world.engine.sandboxes["ia"]
    client = Client(world)
    got = client.request("GET", "/", to("ia"))
    assert got.status == 503 and got.fields["should-retry"] == "true"
    world.engine.sandboxes["ia"] = sandbox
    assert client.request("GET", "/", to("ia")).status == 200
    client.close()
    assert world.close() == 0


def test_rows_that_control_does_not_send_again_are_gone(world, client):
    world.sandbox("ia").echo()
    assert client.request("GET", "/", to("ia")).status == 200
    stream = Client(world)
    begin_stream(world, stream, "ib")
    world.control.stop()
    world.control.rows.clear()
    world.control.start()
    world.control.table.wait_peers()
    expect_reset(stream.sock)
    assert client.request("GET", "/", to("ia")).json() == {"sandboxId": "ia", **GONE}
    stream.close()


def test_control_breaking_off_is_not_repeated(build_dir, tmp_path):
    world = World(build_dir, tmp_path)
    world.control.http.close()
    path = tmp_path / "control.sock"
    path.unlink()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    client = Client(world)
    client.send("POST", "/sandboxes", {}, b"{}")
    listener.settimeout(5)
    conn, _ = listener.accept()
    assert conn.recv(1000)
    conn.close()
    got = client.response()
    assert got.status == 502 and got.fields["should-retry"] == "false" and got.json()["code"] == 502
    listener.settimeout(0.2)
    with pytest.raises(TimeoutError):
        listener.accept()
    listener.close()
    client.close()
    world.control.http = None
    assert world.close() == 0


# --- the process -----------------------------------------------------------------------------------------------------


def test_rights_are_given_up(build_dir, tmp_path):
    tmp_path.chmod(0o755)
    world = World.__new__(World)
    gateway_args = ("--uid", "1879000001", "--gid", "1879000001")
    for parent in tmp_path.parents:
        if parent.stat().st_uid == 0 and parent != parent.parent:
            parent.chmod(parent.stat().st_mode | 0o011)
    World.__init__(world, build_dir, tmp_path, *gateway_args)
    status = dict(line.split(":\t", 1) for line in open(f"/proc/{world.process.pid}/status").read().splitlines()
                  if ":\t" in line)
    assert set(status["Uid"].split()) == set(status["Gid"].split()) == {"1879000001"}
    assert status["Groups"].strip() == ""
    assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2"
    assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0
    world.sandbox("ia").echo()
    client = Client(world)
    assert client.request("GET", "/", to("ia")).status == 200
    assert client.request("GET", "/sandboxes").status == 200
    client.close()
    assert world.close() == 0


def test_sigterm_lets_requests_end(build_dir, tmp_path):
    world = World(build_dir, tmp_path)
    client = Client(world)
    _, _, conn = begin_stream(world, client)
    world.process.terminate()
    time.sleep(0.2)
    assert world.process.poll() is None
    conn.sendall(b"3\r\nend\r\n0\r\n\r\n")
    assert client.chunk() == b"end" and client.chunk() == b""
    client.close()
    assert world.process.wait(timeout=5) == 0
    assert world.close() == 0


def lines_of(world, request_id):
    return [line for line in world.logged().splitlines() if request_id in line]


def test_failures_are_logged_with_the_request_id_and_without_secrets(build_dir, tmp_path):
    world = World(build_dir, tmp_path, "--wait-ms", "100")
    client = Client(world)
    secret = {"X-Access-Token": "geheim", "Authorization": "geheim"}
    assert client.request("GET", "/x", to("inone", **{"Abx-Request-Id": "rid-gone"}, **secret)).status == 502
    world.control.stop()
    got = client.request("GET", "/files?signature=v1_geheim", to("inone", **{"Abx-Request-Id": "rid-503"}, **secret))
    assert got.status == 503
    client.close()
    assert world.close() == 0
    [line] = lines_of(world, "rid-503")
    assert "warn" in line and "503" in line and "inone" in line and "/files" in line
    assert lines_of(world, "rid-gone") == []
    assert "geheim" not in (tmp_path / "gateway.log").read_text()


def test_the_access_log_has_a_line_for_each_request(build_dir, tmp_path):
    world = World(build_dir, tmp_path, "--access-log")
    world.sandbox("ia").echo()
    client = Client(world)
    client.request("POST", "/p?q=geheim", to("ia", **{"Abx-Request-Id": "rid-1"}), b"x")
    client.request("GET", "/sandboxes", {"Abx-Request-Id": "rid-2"})
    client.close()
    assert world.close() == 0
    [one], [two] = lines_of(world, "rid-1"), lines_of(world, "rid-2")
    assert 'method="POST" path="/p" sandbox="ia" status="200"' in one
    assert 'method="GET" path="/sandboxes" sandbox="-" status="200"' in two
    assert "geheim" not in one


def fds(world):
    return len(os.listdir(f"/proc/{world.process.pid}/fd"))


@pytest.mark.slow
def test_after_a_storm_nothing_is_left(world):
    """Clients that come, stall and break off while sandboxes end and roles restart: the gateway lives, answers, and
    holds no more descriptors than before."""
    import random

    Client(world).close()
    before = fds(world)
    stop = time.monotonic() + 12
    names = [f"i{n}" for n in range(6)]
    sandboxes = {}
    failures = []

    def revive(name):
        sandboxes[name] = world.sandbox(name)
        sandboxes[name].echo()
        sandboxes[name].echo(3000)

    def client_storm(seed):
        rng = random.Random(seed)
        while time.monotonic() < stop:
            try:
                c = Client(world)
                c.sock.settimeout(8)
                for _ in range(rng.randrange(1, 6)):
                    headers = to(rng.choice(names + ["inone"]), rng.choice([ENVD, 3000, 3000, 3001]))
                    kind = rng.randrange(8)
                    if kind == 0:  # half a request
                        c.sock.sendall(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Le")
                        break
                    if kind == 1:  # half a body
                        c.sock.sendall(f"POST / HTTP/1.1\r\nHost: h\r\nE2b-Sandbox-Id: {headers['E2b-Sandbox-Id']}\r\n"
                                       f"E2b-Sandbox-Port: {headers['E2b-Sandbox-Port']}\r\n"
                                       "Content-Length: 100000\r\n\r\n".encode() + b"x" * rng.randrange(90000))
                        break
                    if kind == 2:  # leaves without waiting
                        c.send("GET", "/", headers)
                        break
                    if kind == 3:
                        c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        c.send("POST", "/", headers, b"x" * 1000)
                        break
                    got = c.request("POST", "/", headers if kind != 4 else {}, b"y" * rng.randrange(200000))
                    if got.status not in (200, 502, 503):
                        failures.append(got)
                c.close()
            except (ConnectionError, EOFError):
                pass  # a sandbox that ended took it along
            except Exception as e:
                failures.append(e)

    for name in names:
        revive(name)
    threads = [threading.Thread(target=client_storm, args=(n,)) for n in range(12)]
    for t in threads:
        t.start()
    rng = random.Random(1)
    while time.monotonic() < stop:
        time.sleep(rng.random() / 4)
        name = rng.choice(names)
        what = rng.randrange(8)
        if what < 4:
            world.kill(sandboxes[name])
            revive(name)
        elif what < 6:
            world.control.rows.pop(name)
            world.engine.died(sandboxes[name])
            revive(name)
        elif what == 6:
            world.engine.link.stop()
            time.sleep(0.1)
            world.engine.link.start()
            world.engine.link.wait_peers()
        else:
            world.control.stop()
            time.sleep(0.1)
            world.control.start()
            world.control.table.wait_peers()
    for t in threads:
        t.join(timeout=20)
        assert not t.is_alive()
    assert failures == []
    assert world.process.poll() is None
    for name in names:
        world.kill(sandboxes[name])
    world.control.stop()  # its idle connections
    world.control.start()
    world.control.table.wait_peers()
    deadline = time.monotonic() + 5
    while fds(world) > before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert fds(world) <= before
