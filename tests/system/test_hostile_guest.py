"""A daemon replaced by root of its sandbox (hostile_guest.py) costs only that sandbox.

Whatever it answers, the gateway says 502, breaks off or passes it on; requests to a neighbour are answered all the time;
no process of the service is started again, none grows; and the sandbox can be killed.
"""

import platform
import socket
import threading
import time
from pathlib import Path
from urllib.parse import quote

import hostile_guest
import pytest
from remote import Remote, usage
from service import Service
from test_faults_process import abort
from waiting import BUSY_S, until

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="hostile_guest.py writes registers of x86-64")
LIMIT = 1 << 20  # what a client of these tests reads at most


@pytest.fixture(scope="module")
def service(build_dir, base_template):
    with Service(build_dir, disk="4G") as s:
        yield s


class Neighbour(threading.Thread):
    """Asks another sandbox again and again; an answer that is wrong or late is kept."""

    def __init__(self, service):
        super().__init__(daemon=True)
        self.box = Remote(service)
        self.count, self.wrong, self.slowest = 0, [], 0
        self.is_over = threading.Event()

    def run(self):
        while not self.is_over.is_set():
            began = time.monotonic()
            try:
                assert self.box.http("GET", "/health")[0] == 204
                assert self.box.sh("echo hi")["stdout"] == b"hi\n"
            except Exception as e:  # noqa: BLE001
                self.wrong.append(repr(e))
            took = time.monotonic() - began
            self.slowest = max(self.slowest, took)
            if took > BUSY_S:
                self.wrong.append(f"took {took} s")
            self.count += 1

    def stop(self):
        self.is_over.set()
        self.join(2 * BUSY_S)
        self.box.close()


@pytest.fixture(scope="module")
def neighbour(service):
    n = Neighbour(service)
    n.start()
    yield n
    n.stop()


@pytest.fixture(scope="module")
def hostile(service):
    """A sandbox whose daemon is ours."""
    box = Remote(service)
    body = Path(hostile_guest.__file__).read_bytes()
    assert box.http("POST", "/files?path=/tmp/hostile.py&username=root", body, {"Content-Type": "application/octet-stream"})[0] == 200
    box.sh_start("exec python3 /tmp/hostile.py", user="root").close()
    until(lambda: choose(box, "") is not None)
    yield box
    box.close()


def choose(box, mode):
    """Tells the hostile daemon what to do; None when it is not there."""
    connection = box.connection()
    connection.request("GET", "/" + quote(mode), headers=box.headers() | {"E2b-Sandbox-Port": "3000"})
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return body.decode().rpartition(" ") if response.status == 200 else None


def ask(box, wait=BUSY_S, method="GET", path="/envs", body=b"", left=LIMIT):
    """(status or None, bytes of the answer, how it ended: closed, reset, open, full) of one request on its own connection."""
    sock = socket.create_connection(("127.0.0.1", box.port), timeout=wait)
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n"
    sock.sendall((head + "".join(f"{k}: {v}\r\n" for k, v in box.headers().items()) + "\r\n").encode() + body)
    got, end = bytearray(), "closed"
    try:
        while part := sock.recv(65536):
            got += part
            if len(got) > left:
                end = "full"
                break
    except ConnectionResetError:
        end = "reset"
    except TimeoutError:
        end = "open"
    abort(sock)
    status = int(got.split(b" ", 2)[1]) if got.startswith(b"HTTP/1.1 ") and b"\r\n\r\n" in got else None
    return status, bytes(got), end


BROKEN_BODY = [m for m in hostile_guest.ONCE if m in (
    "bad chunk", "endless chunk size", "overflowing chunk", "chunk without end", "body too short", "cut in a chunk", "bad trailers")]
WHOLE = ["bomb", "more than said", "body of a 204", "last poison"]
REFUSED = [m for m in hostile_guest.ONCE if m not in BROKEN_BODY + WHOLE]
NO_ANSWER = ["close at accept", "reset at accept", "reset after the request", "reset in the head"]


@pytest.mark.parametrize("mode", REFUSED + NO_ANSWER)
def test_what_is_no_answer_is_502(hostile, neighbour, mode):
    assert choose(hostile, mode)[0] == mode
    for method, body in (("GET", b""), ("POST", b"x" * 1000)):
        status, got, end = ask(hostile, method=method, body=body)
        assert (status, end) == (502, "closed"), (mode, status, got[:300], end)
        assert b'"code":502' in got and b"poison" not in got
        if method == "POST" and mode.endswith("at accept"):  # the connection may have ended before a byte of the request went
            assert b"Should-Retry: false" in got or b"Should-Retry: true" in got
        elif method == "POST":
            assert b"Should-Retry: false" in got


@pytest.mark.parametrize("mode", BROKEN_BODY + ["reset in the body"])
def test_what_breaks_off_is_not_taken_for_whole(hostile, neighbour, mode):
    assert choose(hostile, mode)[0] == mode
    status, got, end = ask(hostile)
    assert status == 502 or (status == 200 and end == "reset"), (mode, status, got[:300], end)


def test_a_bomb_is_passed_on_as_it_is(hostile, neighbour):
    assert choose(hostile, "bomb")[0] == "bomb"
    status, got, end = ask(hostile)
    assert (status, end) == (200, "closed")
    assert got.endswith(hostile_guest.BOMB) and b"Content-Encoding: gzip" in got


@pytest.mark.parametrize("mode", ["more than said", "body of a 204", "poison later"])
def test_no_answer_is_for_another_request(hostile, neighbour, mode):
    """Bytes that come unasked on a connection that could be used again are never the answer to the next request."""
    for _ in range(2):
        assert choose(hostile, mode)[0] == mode
        status, got, end = ask(hostile)
        assert status in (200, 204, 502) and b"poison" not in got, got
        assert choose(hostile, "last poison")[0] == "last poison"
        for _ in range(3):
            time.sleep(0.3)  # what is to come unasked has come
            status, got, end = ask(hostile)
            assert status in (200, 502) and b"poison" not in got, got


def test_floods_end(hostile, neighbour):
    """Of heads: soon, by 502. Of bodies: they stand when the client does not read, and end when it leaves."""
    for mode in hostile_guest.FLOODS:
        assert choose(hostile, mode)[0] == mode
        status, got, end = ask(hostile)
        if mode in ("body without end", "tiny chunks"):
            assert (status, end) == (200, "full"), mode
        elif mode in ("trailers without end", "chunk extension without end"):
            assert status == 502 or (status == 200 and end == "reset"), (mode, status, end)
        else:
            assert (status, end) == (502, "closed"), (mode, status, got[:300], end)


STALLS = ["stall", "stall at accept", "stall in the head", "stall in the body", "one byte a second", "accept nothing"]


def test_stalls_hold_nobody_else(service, hostile, neighbour):
    """A hundred clients wait for nothing, some with large uploads; they leave; nothing of them stays."""
    before = usage(service)
    for mode in STALLS:
        assert choose(hostile, mode)[0] == mode
        socks = []
        for i in range(20):
            sock = socket.create_connection(("127.0.0.1", hostile.port), timeout=BUSY_S)
            fields = "".join(f"{k}: {v}\r\n" for k, v in hostile.headers().items())
            length = 64 << 20 if i % 2 else 0
            sock.sendall(f"POST /files?path=x HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n{fields}\r\n".encode())
            sock.setblocking(False)
            try:
                while length:
                    length -= sock.send(bytes(min(length, 1 << 20)))
            except BlockingIOError:
                pass
            socks.append(sock)
        seen = neighbour.count
        until(lambda: neighbour.count > seen + 3)
        for sock in socks:
            abort(sock)
    choose(hostile, "last poison")
    until(lambda: usage(service)["abx-gateway"][1] <= before["abx-gateway"][1] + 32)


def test_an_upgrade_that_floods_waits_for_its_reader(service, hostile, neighbour):
    """Ten raw connections that neither side reads: they stand, cost little, and go with their clients."""
    assert choose(hostile, "upgrade and flood")[0] == "upgrade and flood"
    before = usage(service)
    fields = "".join(f"{k}: {v}\r\n" for k, v in hostile.headers().items())
    socks = []
    for _ in range(10):
        sock = socket.create_connection(("127.0.0.1", hostile.port), timeout=BUSY_S)
        sock.sendall(f"GET /x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n{fields}\r\n".encode())
        assert sock.recv(12) == b"HTTP/1.1 101"
        sock.setblocking(False)
        try:
            while True:
                sock.send(bytes(65536))
        except BlockingIOError:
            pass
        socks.append(sock)
    seen = neighbour.count
    until(lambda: neighbour.count > seen + 3)
    assert usage(service)["abx-gateway"][2] < before["abx-gateway"][2] + 16384
    for sock in socks:
        abort(sock)
    choose(hostile, "last poison")
    until(lambda: usage(service)["abx-gateway"][1] <= before["abx-gateway"][1] + 8)


@pytest.mark.parametrize("rounds", [1, pytest.param(20, marks=pytest.mark.long)])
def test_nothing_came_of_it(service, neighbour, rounds):
    """A whole round once more: the same processes, their memory and open files as before; every neighbour's answer was good."""
    before = usage(service)
    box = Remote(service)
    body = Path(hostile_guest.__file__).read_bytes()
    box.http("POST", "/files?path=/tmp/hostile.py&username=root", body, {"Content-Type": "application/octet-stream"})
    box.sh_start("exec python3 /tmp/hostile.py", user="root").close()
    until(lambda: choose(box, "") is not None)
    for mode in [*hostile_guest.ONCE, *hostile_guest.FLOODS, *NO_ANSWER] * rounds:
        choose(box, mode)
        threads = [threading.Thread(target=ask, args=(box, 2.0)) for _ in range(3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    box.close()
    until(lambda: usage(service)["abx-gateway"][1] <= before["abx-gateway"][1] + 8)
    after = usage(service)
    print("before", before, "after", after, "neighbour", neighbour.count, neighbour.slowest)
    for name in before:
        assert after[name][0] == before[name][0], f"{name} was started again"
        assert after[name][2] <= before[name][2] + 8192, (before, after)
    assert neighbour.count > 10 and neighbour.wrong == []
    service.until_clean()


def test_odd_packets_and_descriptors_cost_the_sandbox_alone(service, neighbour):
    """On the sockets between PID 1, the daemon and the engine. Its daemon may be lost; it can be killed."""
    before = usage(service)
    box = Remote(service)
    body = Path(hostile_guest.__file__).read_bytes()
    box.http("POST", "/files?path=/tmp/hostile.py&username=root", body, {"Content-Type": "application/octet-stream"})
    # From inside nobody is listened to on the control channel, whatever is passed.
    script = (
        "import sys; sys.path.insert(0, '/tmp')\nimport hostile, socket\n"
        "for i in range(50):\n s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        " s.connect('\\0abx-guest-control')\n hostile.packets(s)\n s.close()\nprint('sent')"
    )
    held = box.daemon_state()
    assert box.run("python3", "-c", script)["stdout"] == b"sent\n"
    until(lambda: box.daemon_state()[1] <= held[1] + 4)
    assert box.daemon_state()[0] == held[0]
    assert box.sh("echo $E2B_SANDBOX_ID")["stdout"].decode().strip() == box.id
    box.sh_start("exec python3 /tmp/hostile.py packets", user="root").close()
    until(lambda: not box.has_daemon(held[0]))
    box.close()
    after = usage(service)
    assert all(after[name][0] == before[name][0] for name in before)
    assert neighbour.wrong == []
    service.until_clean()
