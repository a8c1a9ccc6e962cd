"""WebSockets through the real abx-gateway: PyPI websockets on both sides, and raw peers for the ends of connections."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from gateway_fakes import Client, World
from gateway_kit import GONE, Raw, client, expect_reset, fds, memory_kib, needs_root, send_until_stuck, to, world
from waiting import BUSY_S, until

pytestmark = needs_root
HERE = Path(__file__).parent
__all__ = ["client", "world"]


@pytest.fixture(scope="module")
def python(tools_dir):
    return next(tools_dir.glob("agent-sandbox-client-*/bin/python"))


class Peer:
    """A WebSocket server inside a sandbox."""

    def __init__(self, python, sandbox, port):
        listener = sandbox.listen(port)
        self.process = subprocess.Popen([python, HERE / "websocket_peer.py", str(listener.fileno())],
                                        pass_fds=[listener.fileno()], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert int(self.process.stdout.readline()) == port

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(BUSY_S) == 0


def start(python, world, scenario, url="ws://3000-ia.sbx.test", *more):
    env = {**os.environ, "PEER_ADDRESS": f"127.0.0.1:{world.port}"}
    return subprocess.Popen([python, HERE / "websocket_client.py", scenario, url, *more], env=env, text=True,
                            stdout=subprocess.PIPE)


def result(process):
    out, _ = process.communicate(timeout=3 * BUSY_S)
    assert process.returncode == 0
    return json.loads(out.splitlines()[-1])


@pytest.fixture
def peer(python, world):
    peer = Peer(python, world.sandbox("ia"), 3000)
    yield peer
    peer.close()


@pytest.mark.parametrize(("scenario", "want"), [
    ("echo", {"code": 1000}),
    ("close", {"code": 4321, "reason": "enough \u00fc"}),
    ("cut", {"first": "first", "code": 1006}),
    ("refuse", {"status": 401, "body": "who are you?"}),
    ("flood", {"messages": 2000}),
    ("many", {"messages": 2000}),
])
def test_scenarios(python, world, peer, scenario, want):
    assert result(start(python, world, scenario)) == want


def test_subprotocols_and_headers_pass(python, world, peer):
    got = result(start(python, world, "subprotocol"))
    assert got["chosen"] == "two"
    headers = dict(got["headers"])
    assert headers["host"] == "3000-ia.sbx.test" and headers["upgrade"].lower() == "websocket"
    assert headers["x-forwarded-for"] == "127.0.0.1" and headers["abx-request-id"]


def test_envds_port_takes_them_too(python, world):
    peer = Peer(python, world.sandbox("ib"), 49983)
    assert result(start(python, world, "echo", "ws://49983-ib.sbx.test")) == {"code": 1000}
    peer.close()


def test_nothing_is_left_of_many(python, world, peer):
    result(start(python, world, "many"))
    before, kib = fds(world), memory_kib(world)
    for _ in range(5):
        result(start(python, world, "many"))
    until(lambda: fds(world) <= before, lambda: f"{before} descriptors, has {fds(world)}")
    assert memory_kib(world) - kib < 2048


def test_the_end_of_the_sandbox_cuts_them(python, world, peer):
    holders = [start(python, world, "hold") for _ in range(3)]
    for holder in holders:
        assert holder.stdout.readline() == "open\n"
    world.kill(world.sandboxes[0])
    for holder in holders:
        assert result(holder) == {"code": 1006}
    other = Client(world)
    assert other.request("GET", "/", host="3000-ia.sbx.test").json() == {"sandboxId": "ia", **GONE}
    other.close()


def test_they_count_as_connections_into_the_sandbox(python, build_dir, tmp_path):
    world = World(build_dir, tmp_path, "--max-sandbox-connections", "2")
    peer = Peer(python, world.sandbox("ia"), 3000)
    holders = [start(python, world, "hold") for _ in range(2)]
    for holder in holders:
        assert holder.stdout.readline() == "open\n"
    third = Client(world)
    assert third.request("GET", "/", to("ia", 3000)).status == 429
    third.close()
    world.kill(world.sandboxes[0])
    for holder in holders:
        result(holder)
    peer.close()
    assert world.close() == 0


UPGRADE = {"Connection": "keep-alive, Upgrade", "Upgrade": "example/1"}


def upgrade(world, client, name="ia"):
    raw = Raw(world.sandbox(name), 3000)
    client.send("GET", "/", {**to(name, 3000), **UPGRADE})
    conn, head = raw.accept()
    assert b"\r\nUpgrade: example/1\r\n" in head
    conn.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: example/1\r\n\r\n")
    assert client.head().status == 101
    return conn


def test_either_side_may_close_first_and_still_be_answered(world, client):
    conn = upgrade(world, client)
    client.sock.sendall(b"last words")
    client.sock.shutdown(1)
    got = b""
    while data := conn.recv(100):
        got += data
    assert got == b"last words"
    conn.sendall(b"understood")
    conn.close()
    assert client.take(10) == b"understood" and client.sock.recv(1) == b""

    second = Client(world)
    conn = upgrade(world, second, "ib")
    conn.sendall(b"bye")
    conn.shutdown(1)
    assert second.take(3) == b"bye" and second.sock.recv(1) == b""
    second.sock.sendall(b"one more")
    second.close()
    got = b""
    while data := conn.recv(100):
        got += data
    assert got == b"one more"


def test_slow_readers_push_back_and_memory_stays(world, client):
    conn = upgrade(world, client)
    before = memory_kib(world)
    assert send_until_stuck(conn) < 32 << 20
    assert send_until_stuck(client.sock) < 32 << 20
    assert memory_kib(world) - before < 4096


def test_a_reset_reaches_the_other_side(world, client):
    conn = upgrade(world, client)
    conn.setsockopt(1, 13, b"\x01\0\0\0\0\0\0\0")  # SO_LINGER: close with a reset
    conn.close()
    expect_reset(client.sock)
    second = Client(world)
    conn = upgrade(world, second, "ib")
    second.sock.setsockopt(1, 13, b"\x01\0\0\0\0\0\0\0")
    second.close()
    expect_reset(conn)


@pytest.mark.parametrize(("framing", "body"), [
    (b"Content-Length: 2", b"{}"),
    (b"Transfer-Encoding: chunked", b"2\r\n{}\r\n0\r\n\r\n"),
    (b"Transfer-Encoding: chunked", b"0\r\n\r\n"),
])  # fmt: skip
def test_a_request_with_a_body_may_switch_too(world, client, framing, body):
    """As Docker's API does. What the client sent then ended the gateway, and with it everyone's connections."""
    raw = Raw(world.sandbox("ia"), 3000)
    client.sock.sendall(b"POST /exec HTTP/1.1\r\nHost: h\r\nE2b-Sandbox-Id: ia\r\nE2b-Sandbox-Port: 3000\r\n"
                        b"Connection: upgrade\r\nUpgrade: example/1\r\n" + framing + b"\r\n\r\n" + body)
    conn, head = raw.accept()
    while not head.endswith(body):
        head += conn.recv(100)
    conn.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: example/1\r\n\r\n")
    assert client.head().status == 101
    for text in (b"one", b"two"):
        client.sock.sendall(text)
        assert conn.recv(100) == text
        conn.sendall(text)
        assert client.take(3) == text
    client.sock.shutdown(1)
    assert conn.recv(1) == b""
    conn.sendall(b"last")
    conn.close()
    assert client.take(4) == b"last" and client.sock.recv(1) == b""
    assert world.process.poll() is None


def test_a_server_that_does_not_upgrade_answers(world, client):
    world.sandbox("ia").echo(3000)
    got = client.request("GET", "/", {**to("ia", 3000), **UPGRADE})
    assert got.status == 200
    assert client.request("GET", "/again", to("ia", 3000)).json()["path"] == "/again"
