"""Proxies that stop amid their answer."""

import socket
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
    wake_for_nothing,
)
from guest import until
from service import Service

PROXY = "198.51.100.97"


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
        until(lambda: box.denials("the proxy ends the connection"), 60)


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
