"""Faults that users of other systems reported, commands: lost and doubled output, orphans, hangs. See docs/faults.md."""

import base64
import json
import random
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from remote import Remote, box, usage  # noqa: F401 (fixtures)
from service import Service
from waiting import until

from guest import Process, RpcError, envelope


@pytest.fixture(scope="module")
def service(build_dir, base_template):
    with Service(build_dir, disk="4G") as s:
        yield s


def code_of(call, *args, **kw):
    with pytest.raises(RpcError) as e:
        call(*args, **kw)
    return e.value.code


# --- found again, asked in vain -----------------------------------------------------------------


@pytest.mark.parametrize("seconds", [1, pytest.param(240, marks=pytest.mark.long)])
def test_a_background_process_is_found_again(box, seconds):
    """Started without a deadline, its stream lost, other commands in between."""
    lost = box.sh_start("echo first; read x; echo got $x; read y", stdin=True, tag="in the background")
    lost.until_output(b"first\n")
    lost.close()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert box.sh("echo between")["stdout"] == b"between\n"
        time.sleep(min(0.2, seconds / 100))
    listed = {p["pid"]: p for p in box.rpc("List", {})["processes"]}
    assert listed[lost.pid]["tag"] == "in the background"
    again = Process(box, "Connect", {"process": {"tag": "in the background"}})
    assert again.pid == lost.pid
    box.send(lost.pid, b"word\n")
    again.until_output(b"got word\n")
    other = box.connect(lost.pid)
    box.send(lost.pid, b"\n")
    assert other.wait()["code"] == again.wait()["code"] == 0


def test_calls_for_a_process_that_is_not_there_are_answered(box):
    gone = box.sh_start("exit 3", stdin=True, tag="gone")
    gone.wait()
    selectors = [{"pid": gone.pid}, {"tag": "gone"}, {"pid": 999999}, {"pid": 4294967295}, {"pid": 1}, {"pid": 2}, {"tag": "none"}]
    for process in selectors:
        which = f"pid {process['pid']}" if "pid" in process else f"tag {process['tag']}"
        for method, more in (
            ("SendInput", {"input": {"stdin": "eA=="}}),
            ("SendInput", {"input": {"pty": "eA=="}}),
            ("CloseStdin", {}),
            ("SendSignal", {"signal": "SIGNAL_SIGKILL"}),
            ("Update", {"pty": {"size": {"cols": 8, "rows": 8}}}),
        ):
            with pytest.raises(RpcError) as e:
                box.rpc(method, {"process": process} | more)
            assert (e.value.status, e.value.code, e.value.message) == (404, "not_found", f"process with {which} not found")
        body = envelope(json.dumps({"start": {"process": process}}).encode())
        _, _, answer = box.http("POST", "/process.Process/StreamInput", body, {"Content-Type": "application/connect+json"})
        assert json.loads(answer[5:])["error"]["code"] == "not_found"
    for process in ({}, {"pid": 0}):
        assert code_of(box.rpc, "SendInput", {"process": process, "input": {"stdin": "eA=="}}) in ("invalid_argument", "not_found")


def open_input(box, process):
    """A StreamInput whose body stays open; returns its socket."""
    sock = socket.create_connection(("127.0.0.1", box.port), timeout=60)
    head = "POST /process.Process/StreamInput HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
    fields = box.headers("application/connect+json")
    sock.sendall((head + "".join(f"{k}: {v}\r\n" for k, v in fields.items()) + "\r\n").encode())
    send_message(sock, {"start": {"process": process}})
    return sock


def send_message(sock, message):
    data = envelope(json.dumps(message).encode())
    sock.sendall(b"%x\r\n%s\r\n" % (len(data), data))


def read_until(sock, text):
    got = b""
    while text not in got:
        part = sock.recv(65536)
        assert part, got
        got += part
    return got


@pytest.mark.parametrize("when", ["idle", "sending", "full"])
def test_input_that_is_open_ends_with_the_command(box, when):
    """The client neither closes its side nor sends anything more."""
    process = box.start("sleep", "100", stdin=True)
    sock = open_input(box, {"pid": process.pid})
    data = {"data": {"input": {"stdin": base64.b64encode(bytes(60000)).decode()}}}
    for _ in range({"idle": 0, "sending": 1, "full": 4}[when]):
        send_message(sock, data)
    box.rpc("SendSignal", {"process": {"pid": process.pid}, "signal": "SIGNAL_SIGKILL"})
    assert process.wait()["end"]["status"] == "signal: killed"
    if when != "full":  # what it sends next tells it
        send_message(sock, data)
    answer = read_until(sock, b'"code"')
    assert b'"not_found"' in answer or b'"internal"' in answer, answer
    sock.close()


def test_calls_are_answered_while_user_code_takes_all(service):
    box = Remote(service)
    hog = box.sh_start(
        "for i in 1 2 3 4 5 6; do (while :; do :; done) & done; "
        "python3 -c 'x = []\nwhile 1:\n x.append(bytearray(1 << 24))' & "
        "echo ready; while :; do python3 -c 'x = [bytearray(1 << 20) for i in range(3000)]'; done"
    )
    hog.until_output(b"ready\n")
    for i in range(5):
        assert hog.pid in box.pids()
        assert box.rpc("Stat", {"path": "/etc/hostname"})["entry"]["name"] == "hostname"
        assert box.http("GET", "/files?path=/etc/hostname")[0] == 200
        assert box.http("GET", "/health")[0] == 204
        assert box.http("GET", "/metrics")[0] == 200
    box.rpc("SendSignal", {"process": {"pid": hog.pid}, "signal": "SIGNAL_SIGKILL"})
    assert hog.pid not in until(lambda: [p for p in [box.pids()] if hog.pid not in p])[0]
    hog.close()
    box.close()


# --- output -------------------------------------------------------------------------------------

BYTES = {
    "blank lines": b"\n\n\na\n\n\nb\n\n",
    "no newline at the end": b"one\ntwo",
    "one byte": b"x",
    "only a newline": b"\n",
    "carriage returns": b"a\r\nb\rc\n\rd\r\n",
    "NUL bytes": b"\0a\0\0b\n\0",
    "control characters": bytes(range(32)) + b"\x7f\x1b[31mred\x1b[0m\x1b]0;title\x07",
    "not UTF-8": bytes(range(128, 256)) + b"\xc3\x28\xed\xa0\x80\xf4\x90\x80\x80\xc0\x80",
    "separators of Unicode": "\u2028\u2029\u0085\ufeff".encode(),
    "exactly a buffer": b"b" * 32768,
    "one more": b"b" * 32769,
    "two and a tail": b"b" * 65535 + b"\n",
}


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_every_byte_of_output_comes(box, stream):
    for name, data in BYTES.items():
        script = f"import os; d = {data!r}\nwhile d: d = d[os.write({1 if stream == 'stdout' else 2}, d):]"
        result = box.run("python3", "-c", script)
        assert result[stream] == data, name
        assert result["code"] == 0


def test_tails_come_before_the_end(box):
    """Of commands that end at once, in parallel, their last line without a newline."""
    script = "printf 'a\\n\\nlast %s' {0}; printf 'bad %s' {0} >&2; exit {0}"
    with ThreadPoolExecutor(16) as pool:
        results = list(pool.map(lambda i: box.sh(script.format(i)), range(60)))
    for i, r in enumerate(results):
        assert (r["stdout"], r["stderr"], r["code"]) == (b"a\n\nlast %d" % i, b"bad %d" % i, i)


def test_the_tail_of_a_pipeline_comes(box):
    assert box.sh("seq 1 20000 | tail -n 1; (sleep 0.2; printf late) &")["stdout"] == b"20000\nlate"


class Reader:
    """Joins a command, reads some lines of it and leaves, again and again; `gaps` says what was wrong."""

    def __init__(self, box, pid, seed):
        self.box, self.pid, self.random = box, pid, random.Random(seed)
        self.visits, self.lines, self.gaps = 0, 0, []

    def visit(self):
        """False once the command has ended."""
        stream = self.box.connect(self.pid)
        left, rest, last = self.random.randint(1, 40), None, None
        try:
            for message in stream:
                event = message["event"]
                if "end" in event:
                    return False
                if "data" not in event:
                    continue
                data = base64.b64decode(event["data"]["stdout"])
                rest = data.partition(b"\n")[2] if rest is None else rest + data  # joined within a line
                *lines, rest = rest.split(b"\n")
                for number in map(int, lines):
                    if last is not None and number != last + 1:
                        self.gaps.append((last, number))
                    last = number
                self.lines += len(lines)
                left -= 1
                if left == 0:
                    return True
            return False
        finally:
            stream.close()

    def __call__(self):
        try:
            while self.visit():
                self.visits += 1
        except RpcError as e:
            self.gaps.append(str(e))


@pytest.mark.parametrize("count", [30000, pytest.param(1000000, marks=pytest.mark.long)])
def test_readers_that_leave_take_nothing_from_others(service, box, count):
    warm_up(box)
    before = usage(service)
    script = (
        "import sys, time\nsys.stdin.readline()\n"
        f"for i in range(0, {count}, 250):\n"
        " sys.stdout.write(''.join('%d\\n' % n for n in range(i, i + 250)))\n sys.stdout.flush()\n time.sleep(0.001)\n"
    )
    whole = box.start("python3", "-c", script, stdin=True)
    readers = [Reader(box, whole.pid, seed) for seed in range(5)]
    threads = [threading.Thread(target=r) for r in readers]
    for t in threads:
        t.start()
    box.send(whole.pid, b"\n")
    got = whole.wait()
    for t in threads:
        t.join(60)
        assert not t.is_alive()
    assert got["code"] == 0
    assert got["stdout"] == b"".join(b"%d\n" % n for n in range(count))
    assert [r.gaps for r in readers] == [[]] * 5
    assert all(r.lines > 0 for r in readers) and sum(r.visits for r in readers) >= 5
    print("visits", [r.visits for r in readers], "lines", [r.lines for r in readers])
    nothing_left(service, before)


def warm_up(box):
    """Connections that are kept, buffers and caches are there."""
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda i: box.sh("sleep 0.1; seq 1 30000"), range(24)))


def nothing_left(service, before, kib=4096):
    """The same processes, no more open files, hardly more memory."""
    last = {}

    def is_small():
        last.update(after := usage(service))
        assert {name: u[0] for name, u in after.items()} == {name: u[0] for name, u in before.items()}
        return all(after[name][1] <= u[1] + 16 and after[name][2] <= u[2] + kib for name, u in before.items())

    try:
        until(is_small)  # what is still on its way ends
    finally:
        print("before", before, "after", last)


def daemon_has_nothing_left(box, before):
    """The same daemon with no more open files (but the gateway's idle connections) and memory.

    Ended commands and what they said last are kept for 30 s.
    """

    def is_small():
        print(after := box.daemon_state())
        assert after[0] == before[0], "the daemon was started again"
        return after[1] <= before[1] + 16 and after[3] <= before[3] + 4096

    print("inside", before)
    until(is_small)


def test_a_reader_that_is_gone_blocks_nobody(box):
    """Three readers that never read and then vanish without a word; the command goes on."""
    before = box.daemon_state()
    process = box.start(
        "python3", "-c", "import sys\nsys.stdin.readline()\nfor i in range(24): sys.stdout.write('x' * (1 << 20))\nopen('/tmp/done', 'w')",
        stdin=True, rcvbuf=4096,
    )
    stuck = [process] + [box.connect(process.pid, rcvbuf=4096) for _ in range(2)]
    box.send(process.pid, b"\n")
    assert process.pid in box.pids()
    for s in stuck:
        abort(s.connection.sock)
        s.response.close()  # which holds the socket, too
    until(lambda: process.pid not in box.pids())
    assert box.sh("ls /tmp/done")["code"] == 0
    after = box.daemon_state()
    assert after[0] == before[0]
    assert after[3] < before[3] + (16 << 10)


# --- streams that break off ---------------------------------------------------------------------


def abort(sock):
    """A reset, as of a client that was killed."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def start_and_abort(box, seed):
    """One Start whose client leaves at any point."""
    r = random.Random(seed)
    message = envelope(json.dumps({"process": {"cmd": "/bin/sh", "args": ["-c", "echo one; sleep 0.02; seq 1 3000"]}}).encode())
    head = f"POST /process.Process/Start HTTP/1.1\r\nHost: x\r\nContent-Length: {len(message)}\r\n"
    head += "".join(f"{k}: {v}\r\n" for k, v in box.headers("application/connect+json").items()) + "\r\n"
    request = head.encode() + message
    sock = socket.create_connection(("127.0.0.1", box.port), timeout=60)
    how = r.choice(["request", "sent", "head", "event", "output", "end"])
    sock.sendall(request[: r.randrange(len(request))] if how == "request" else request)
    if how == "head":
        sock.recv(1)
    elif how == "event":
        read_until(sock, b'"start"')
    elif how == "output":
        read_until(sock, b'"stdout"')
    elif how == "end":
        read_until(sock, b'"end"')
    if r.random() < 0.7:
        abort(sock)
    else:
        sock.close()


@pytest.mark.parametrize("rounds", [100, pytest.param(2000, marks=pytest.mark.long)])
def test_starts_whose_client_leaves(service, box, rounds):
    with ThreadPoolExecutor(8) as pool:
        warm_up(box)
        list(pool.map(lambda i: start_and_abort(box, i), range(60)))
        until(lambda: box.pids() == [])
        before, inside = usage(service), box.daemon_state()
        list(pool.map(lambda i: start_and_abort(box, i), range(rounds)))
    until(lambda: box.pids() == [])
    assert box.sh("echo alive")["stdout"] == b"alive\n"
    daemon_has_nothing_left(box, inside)
    nothing_left(service, before)


# --- orphans ------------------------------------------------------------------------------------

ORPHANS = {
    "jobs": "sleep 1001 & sleep 1002 & wait",
    "job control": "set -m; sleep 1001 & sleep 1002 & fg %1",
    "pipeline": "sleep 1001 | sleep 1002 | cat",
    "disowned": "sleep 1001 & disown; nohup sleep 1002 >/dev/null 2>&1 & sleep 1003",
    "new session": "setsid sleep 1001 & setsid -f sleep 1002; sleep 1003",
    "double fork": (
        "python3 -c 'import os, time\nif os.fork() == 0:\n os.setsid()\n if os.fork() == 0:\n  os.closerange(0, 99); time.sleep(1001)\n"
        " os._exit(0)\nos.wait()'; sleep 1002"),
    "ignores signals": "trap '' TERM HUP INT; sleep 1001 & while :; do sleep 0.2; done",
    "of another user": "sudo -n sleep 1001 & sudo -n setsid -f sleep 1002; sleep 1003",
    "stopped": "sleep 1001 & kill -STOP $!; sleep 1002 & kill -STOP $$",
    "forks on": "f() { sleep 0.05; f & }; f; sleep 1001",
}


@pytest.mark.parametrize("kind", ["pipes", "terminal", "left"])
def test_nothing_outlives_the_deadline(box, kind):
    """Also when the client has long gone, and of a terminal."""
    streams = []
    for name, script in ORPHANS.items():
        more = {"pty": {"size": {"cols": 80, "rows": 24}}} if kind == "terminal" else {}
        streams.append((name, box.sh_start(script, headers={"Connect-Timeout-Ms": "3000"}, **more)))
    for name, stream in streams:
        if kind == "left":
            stream.close()
            continue
        with pytest.raises(RpcError) as e:
            stream.wait()
        assert e.value.code == "deadline_exceeded", name
    until(lambda: box.names() == [])
    assert box.pids() == []
