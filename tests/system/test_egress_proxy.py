"""Proxies that stop amid their answer, and what was sent through one with TLS before either side failed."""

import os
import queue
import signal
import socket
import ssl
import struct
import textwrap
import threading
import time

import pytest
from egress_kit import (  # noqa: F401 (fixtures)
    RESET,
    WEB,
    Box,
    Talking,
    assert_woken_for_nothing,
    cpu_seconds,
    lab,
    names,
    service,
    unsent,
    wake_for_nothing,
)
from http_fakes import make_certificates
from service import Service
from waiting import until

PROXY = "198.51.100.97"
NAME = "last-proxy.example"
NOW = struct.pack("ii", 1, 0)


@pytest.fixture(scope="module")
def at(lab):  # noqa: F811
    lab.address(PROXY)
    ports = iter(range(2000, 2100))

    def serve(handle, buffer=None):
        """Where handle(connection) is a proxy from now on, which takes so much before it reads."""
        port = next(ports)
        listening = lab.serve(PROXY, port, handle)
        if buffer:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        return f"{PROXY}:{port}"

    return serve


def read(connection, n):
    """Exactly so many bytes; fewer at the end."""
    got = b""
    while len(got) < n and (piece := connection.recv(n - len(got))):
        got += piece
    return got


def socks(connection, pieces=False):
    """Answers as a SOCKS5 proxy that has made the connection itself; byte by byte where that is wanted."""
    for question, answer in ((3, b"\5\0"), (10, b"\5\0\0\1" + bytes(6))):
        assert len(read(connection, question)) == question
        for piece in [bytes([x]) for x in answer] if pieces else [answer]:
            connection.sendall(piece)
            if pieces:
                time.sleep(0.05)  # they would be one segment else


def test_one_that_ends_amid_its_answer(service, at):  # noqa: F811
    """What it said before its end is no reason to be looked at without end."""

    def half(connection):
        connection.recv(3)
        connection.sendall(b"\5")
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(100):
            pass

    with Box(service, network={"egressProxy": {"address": at(half)}}) as box:
        assert box.dial(f"{WEB}=7")[f"{WEB}=7"] == RESET
        until(lambda: box.denials("the proxy ends the connection"))


def test_one_that_answers_in_pieces_while_the_kernel_is_short_of_memory(lab, at, build_dir, base_template, tmp_path):  # noqa: F811
    """It wakes then for bytes that were looked at already: that keeps nobody busy, and what comes later is seen."""
    waits, go_on = threading.Semaphore(0), threading.Event()

    def slow(connection):
        connection.recv(1, socket.MSG_PEEK)
        connection.sendall(b"\5")
        waits.release()
        go_on.wait(60)
        connection.sendall(b"\0")
        read(connection, 3 + 10)
        connection.sendall(b"\5\0\0\1" + bytes(6) + b"hello\n")
        while connection.recv(100):
            pass

    service = Service(build_dir, "--gateways", "1")  # noqa: F811
    wake_for_nothing(service, tmp_path)
    with service, Box(service, network={"egressProxy": {"address": at(slow)}}) as box:
        program = f"""
            import socket
            for s in [socket.create_connection(("{WEB}", 7), 60) for _ in range(4)]:
                print(s.makefile().readline().strip(), flush=True)
        """
        talking = Talking(box, textwrap.dedent(program))
        for _ in range(4):
            assert waits.acquire(timeout=60)
        assert_woken_for_nothing(service)
        (pid,) = service.roles()["abx-egress"]
        time.sleep(0.2)  # whatever that set off
        before = cpu_seconds(pid)
        time.sleep(2)
        used = cpu_seconds(pid) - before
        go_on.set()
        assert [talking.hear() for _ in range(4)] == ["hello"] * 4
        assert used < 0.5


# ---- with TLS ----


@pytest.fixture(scope="module")
def tls(at, names, tmp_path_factory):  # noqa: F811
    """tls(handle): the network of a sandbox whose proxy is that, behind TLS."""
    names.names[NAME] = [PROXY]
    certificates = make_certificates(tmp_path_factory.mktemp("tls"), NAME)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / f"{NAME}.pem", certificates / f"{NAME}.key")

    def network(handle, buffer=None):
        def inside(connection):
            with context.wrap_socket(connection, server_side=True, suppress_ragged_eofs=False) as secret:
                socks(secret)
                handle(secret)

        port = at(inside, buffer).rpartition(":")[2]
        trust = {"enabled": True, "caCert": (certificates / "ca.pem").read_text()}
        return {"egressProxy": {"address": f"{NAME}:{port}", "tls": trust}}

    return network


READ_ALL = f"""
import socket, sys
s = socket.create_connection(("{WEB}", 7), 60)
s.sendall(b"x")
print("sent", flush=True)
sys.stdin.readline()
n, end = 0, "EOF"
try:
    while got := s.recv(65536):
        n += len(got)
except ConnectionResetError:
    end = "reset"
print(n, end, flush=True)
"""


@pytest.mark.parametrize("is_much", [False, True])
def test_what_came_before_a_reset_arrives(service, tls, is_much):  # noqa: F811
    """Few bytes, of which egress learns together with the reset; and so many that they wait in egress and before it
    when the reset comes, which keeps nobody busy."""
    (pid,) = service.roles()["abx-egress"]
    asked, go, arrived = threading.Event(), threading.Event(), queue.SimpleQueue()

    def answer(secret):
        secret.recv(1)
        asked.set()
        go.wait(60)
        secret.settimeout(3)
        n = 0
        try:
            while n < 40_000 or is_much:
                n += secret.send(b"a" * 10_000)
        except TimeoutError:  # everything is full
            pass
        until(lambda: is_much or unsent(secret) == 0)
        n -= unsent(secret)
        secret.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NOW)
        secret.close()
        arrived.put(n)

    with Box(service, network=tls(answer)) as box:
        program = Talking(box, READ_ALL)
        assert program.hear() == "sent" and asked.wait(60)
        if not is_much:
            os.kill(pid, signal.SIGSTOP)
        try:
            go.set()
            n = arrived.get(timeout=60)
        finally:
            os.kill(pid, signal.SIGCONT)
        if is_much:
            assert n > 500_000
            time.sleep(0.2)  # whatever the reset sets off
            before = cpu_seconds(pid)
            time.sleep(2)
            assert cpu_seconds(pid) - before < 0.5
        program.tell()
        got, end = program.hear().split()
        # One record may have come in part only.
        assert (end, int(got) >= n - (10_000 if is_much else 0)) == ("reset", True), (got, n)


SEND_AND_RESET = f"""
import fcntl, socket, struct, termios, time
s = socket.create_connection(("{WEB}", 7), 60)
s.recv(1)
s.sendall(b"y" * 60_000)
while any(fcntl.ioctl(s, termios.TIOCOUTQ, bytes(4))):
    time.sleep(0.01)
s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
s.close()
print("reset", flush=True)
"""


def test_what_the_sandbox_sent_before_a_reset_arrives(service, tls):  # noqa: F811
    """The proxy is slow: it waits in TLS and in the kernel when the sandbox has failed."""
    heard, go = queue.SimpleQueue(), threading.Event()

    def listen(secret):
        secret.sendall(b"x")
        go.wait(60)
        n, end = 0, "EOF"
        try:
            while got := secret.recv(1000):
                n += len(got)
        except OSError as e:
            end = type(e).__name__
        heard.put((n, end))

    with Box(service, network=tls(listen, buffer=4096)) as box:
        program = Talking(box, SEND_AND_RESET)
        assert program.hear() == "reset"
        time.sleep(1)  # egress has had time to do it wrong
        go.set()
        n, end = heard.get(timeout=60)
        assert (n, end in ("SSLEOFError", "ConnectionResetError")) == (60_000, True), end
