"""What the tests of the gateway share: fixtures (a world and a client), addresses, a server that the test plays."""

import os
import re
import time

import pytest
from gateway_fakes import ENVD, Client, World
from sanitizers import resident_kib
from waiting import BUSY_S

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")

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


class Raw:
    """A server in a sandbox that the test plays itself."""

    def __init__(self, sandbox, port=ENVD, **more):
        self.listener = sandbox.listen(port, **more)
        self.listener.settimeout(BUSY_S)

    def accept(self):
        conn, _ = self.listener.accept()
        conn.settimeout(BUSY_S)
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


def start_at_a_later_try(world, sandbox, start):
    """Starts a server when the gateway, refused before, asks the engine for sockets to try again."""
    make = sandbox.sockets

    def sockets(n):
        if len(world.engine.asked) == 5:
            start()
        return make(n)

    sandbox.sockets = sockets


def fds(world):
    return len(os.listdir(f"/proc/{world.process.pid}/fd"))


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
    sock.settimeout(BUSY_S)
    return sent


def memory_kib(world):
    return resident_kib(world.process.pid)
