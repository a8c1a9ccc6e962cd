"""The real abx-gateway between raw clients and fakes: streams, back pressure, upgrades, and the connections that carry
them."""

import contextlib
import hashlib
import json
import os
import re
import socket
import threading

import pytest
from gateway_fakes import ENVD, Client, Sandbox, World
from gateway_kit import (  # noqa: F401
    GONE, Raw, begin_stream, client, expect_reset, fields_of, memory_kib, needs_root, send_until_stuck, to, world,
)
from waiting import BUSY_S, until

pytestmark = needs_root


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
        conn.settimeout(BUSY_S)
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
    with pytest.raises(ConnectionResetError):
        if not conn.recv(1):
            raise AssertionError("half-closed only")


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
    held[0].settimeout(BUSY_S)
    assert held[0].recv(100).startswith(b"GET")
    for c in clients:
        c.close()
    assert world.close() == 0


def test_too_many_connections_into_the_sandboxes_of_one_key(build_dir, tmp_path):
    world = World(build_dir, tmp_path, "--max-key-connections", "2")
    clients = [Client(world) for _ in range(3)]
    raws = [Raw(world.sandbox(name, key=key)) for name, key in (("ia", "k1"), ("ib", "k1"), ("ic", "k1"), ("id", "k2"))]
    held = []
    for c, raw, name in zip(clients, raws, ("ia", "ib")):
        c.send("GET", "/", to(name))
        held.append(raw.accept()[0])
    got = clients[2].request("GET", "/", to("ic"))
    assert (got.status, got.fields["should-retry"], got.fields["retry-after"]) == (429, "true", "1")
    assert got.json() == {"sandboxId": "ic", "message": "Too many connections to sandboxes of this API key", "code": 429}
    clients[2].send("GET", "/", to("id"))  # of another key
    held.append(raws[3].accept()[0])
    held[2].sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
    assert clients[2].response().status == 204
    clients[0].close()  # what a client gives up is free again
    expect_reset(held[0])
    clients[2].send("GET", "/", to("ic"))
    held.append(raws[2].accept()[0])
    for c in clients[1:]:
        c.close()
    world.kill(world.sandboxes[1])  # the end of a sandbox too, and its key goes with the last one
    assert world.close() == 0


def test_one_client_does_not_take_all_connections(build_dir, tmp_path):
    net = Sandbox("inet")  # a network in which clients have addresses that are not loopback's
    net.add_address("10.9.8.8")
    world = World(build_dir, tmp_path, "--max-client-connections", "3", listener=net.listen(0, "0.0.0.0"))

    def connect(source):
        def make():
            s = socket.socket()
            s.settimeout(BUSY_S)
            s.bind((source, 0))
            s.connect((source, world.port))
            return s

        return net.inside(make)

    def ask(s):
        try:
            s.sendall(b"OPTIONS / HTTP/1.1\r\nHost: h\r\n\r\n")
            return s.recv(65536)
        except OSError:
            return b""  # closed while it was sent

    held = [connect("10.9.8.8") for _ in range(3)]
    for s in held:
        assert ask(s).startswith(b"HTTP/1.1 204 ")
    over = connect("10.9.8.8")
    head, body = over.recv(65536).split(b"\r\n\r\n", 1)
    assert head.startswith(b"HTTP/1.1 429 ") and b"\r\nConnection: close" in head
    assert int(re.search(rb"Content-Length: (\d+)", head)[1]) == len(body)
    assert json.loads(body) == {"code": 429, "message": "Too many connections from this client address"}
    assert over.recv(1) == b""
    over.close()
    local = [connect("127.0.0.1") for _ in range(10)]
    for s in (*held, *local):  # neither those that it has nor others are touched
        assert ask(s).startswith(b"HTTP/1.1 204 ")
    held.pop().close()

    def is_let_in():
        with contextlib.closing(connect("10.9.8.8")) as again:
            answer = ask(again)
        assert answer == b"" or answer.startswith((b"HTTP/1.1 204 ", b"HTTP/1.1 429 "))
        return answer.startswith(b"HTTP/1.1 204 ")

    until(is_let_in, "that the gateway has seen that one is gone")
    [line] = [x for x in world.logged().splitlines() if "connections refused" in x]
    assert 'client="10.9.8.8" limit="3"' in line
    for s in (*held, *local):
        s.close()
    assert world.close() == 0
    net.close()


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
    c = Client(world)
    c.sock.sendall(head + b"Expect: x\r\nContent-Length: 3\r\n\r\n")
    got = c.response()
    assert got.status == 417 and got.json()["code"] == 417 and got.fields["connection"] == "close"
    c.close()
    assert world.control.http.seen == []


def test_two_fields_where_one_decides_are_refused_and_named(world):
    world.sandbox("ia").echo(3000)
    for name in ("E2b-Sandbox-Id", "E2b-Sandbox-Port", "E2b-Traffic-Access-Token", "X-Access-Token"):
        c = Client(world)
        lines = to("ia", 3000) if name != "X-Access-Token" else {}
        lines = [*lines.items(), *[(name, v) for v in (lines.get(name, "a"), "b")][name in lines:]]
        c.sock.sendall(b"GET /health HTTP/1.1\r\nHost: h\r\n" + "".join(f"{n}: {v}\r\n" for n, v in lines).encode() + b"\r\n")
        got = c.response()
        assert (got.status, got.json()["message"]) == (400, f"{name} must not be given more than once")
        c.close()
    assert world.control.http.seen == []
    c = Client(world)  # what a server in the sandbox reads is its to judge
    c.sock.sendall(b"GET / HTTP/1.1\r\nHost: h\r\nE2b-Sandbox-Id: ia\r\nE2b-Sandbox-Port: 3000\r\nX-API-Key: a\r\n"
                   b"X-API-Key: b\r\nAuthorization: c\r\nAuthorization: d\r\n\r\n")
    fields = fields_of(c.response())
    assert (fields["x-api-key"], fields["authorization"]) == (["a", "b"], ["c", "d"])
    c.close()
