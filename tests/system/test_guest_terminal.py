"""abx-guest alone: GET /terminal, a shell over WebSocket."""

import base64
import hashlib
import json
import os
import signal
import socket
import struct
import subprocess
from pathlib import Path

import pytest
from guest_kit import PORTS, fresh, guest  # noqa: F401 (fixtures)
from waiting import BUSY_S, until

from guest import Guest

KEY = base64.b64encode(bytes(range(16))).decode()
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


class Terminal:
    """A client that says exactly what a test wants. Masks with zeros."""

    def __init__(self, guest, user=None, headers=None, rcvbuf=None):
        self.sock = socket.socket()
        if rcvbuf:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        self.sock.settimeout(60)
        self.sock.connect(("127.0.0.1", guest.port))
        fields = {"Host": "x", "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
                  "Sec-WebSocket-Key": KEY, **guest.headers(user=user), **(headers or {})}
        head = "".join(f"{k}: {v}\r\n" for k, v in fields.items() if v is not None)
        self.sock.sendall(f"GET /terminal HTTP/1.1\r\n{head}\r\n".encode())
        self.file = self.sock.makefile("rb")
        self.status = int(self.file.readline().split()[1])
        self.fields = {}
        while line := self.file.readline().decode().strip():
            name, _, value = line.partition(": ")
            self.fields[name.lower()] = value
        self.body = self.file.read(int(self.fields.get("content-length", 0)))
        self.output, self.closed, self.pongs = b"", None, []

    def send(self, data, opcode=TEXT, final=True):
        data = data.encode() if isinstance(data, str) else data
        n = len(data)
        size = bytes([128 | n]) if n < 126 else bytes([254]) + struct.pack(">H", n) if n < 65536 else bytes([255]) + struct.pack(">Q", n)
        self.sock.sendall(bytes([opcode | (128 if final else 0)]) + size + bytes(4) + data)

    def resize(self, cols, rows):
        self.send(json.dumps({"type": "resize", "cols": cols, "rows": rows}))

    def receive(self):
        """One frame into output, pongs or closed; False at the end of the connection."""
        head = self.file.read(2)
        if len(head) < 2:
            return False
        opcode, n = head[0] & 15, head[1]
        if n > 125:
            n = int.from_bytes(self.file.read(2 if n == 126 else 8), "big")
        data = self.file.read(n)
        if opcode == BINARY:
            self.output += data
        elif opcode == PONG:
            self.pongs.append(data)
        elif opcode == CLOSE:
            self.closed = (int.from_bytes(data[:2], "big") if data else None, data[2:].decode())
        return True

    def until(self, text):
        while text not in self.output:
            assert self.receive(), self.output
        before, _, self.output = self.output.partition(text)
        return before

    def close_frame(self):
        while self.closed is None:
            assert self.receive(), self.output
        return self.closed

    def cut(self):
        self.file.close()
        self.sock.close()


def shells(guest):
    return [p["pid"] for p in guest.rpc("List", {}).get("processes", []) if p["config"]["args"] == ["-i", "-l"]]


def test_handshake(guest):
    terminal = Terminal(guest)
    want = base64.b64encode(hashlib.sha1((KEY + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()
    assert (terminal.status, terminal.fields["sec-websocket-accept"], terminal.fields["upgrade"]) == (101, want, "websocket")
    terminal.cut()


@pytest.mark.parametrize("headers, status", [
    ({"X-Access-Token": None}, 401),
    ({"X-Access-Token": "0" * 64}, 401),
    ({"Upgrade": None, "Connection": None}, 400),
    ({"Upgrade": "other"}, 400),
    ({"Sec-WebSocket-Version": "8"}, 400),
    ({"Sec-WebSocket-Key": None}, 400),
    ({"Sec-WebSocket-Key": "short"}, 400),
    ({"Authorization": "Basic bm9ib2R5LWhlcmU6"}, 401),
])
def test_refused(guest, headers, status):
    terminal = Terminal(guest, headers=headers)
    assert (terminal.status, json.loads(terminal.body)["code"]) == (status, status)
    if status == 400 and "Key" not in str(headers):
        assert terminal.fields["sec-websocket-version"] == "13"
    terminal.cut()
    assert shells(guest) == []


def test_other_methods(guest):
    assert guest.http("POST", "/terminal", b"")[0] == 405
    assert guest.http("GET", "/terminal")[0] == 400
    assert guest.http("OPTIONS", "/terminal", token=False)[0] == 204


def test_size_input_and_exit(guest):
    terminal = Terminal(guest)
    terminal.resize(101, 33)
    terminal.send("echo \"<$(stty size)|$(id -un)|$PWD|$TERM|$LANG|$(tty | cut -c1-9)>\"\n")
    terminal.until(b"<33 101|user|/home/user|xterm-256color|C.UTF-8|/dev/pts/>")
    for cols, rows in ((1, 1), (1000, 500), (65535, 65535), (0, 0)):
        terminal.resize(cols, rows)
        terminal.send(f"stty size; echo mark$(({cols}+{rows}))\n".encode(), BINARY)
        assert f"{rows} {cols}\r\n".encode() in terminal.until(f"mark{cols + rows}\r\n".encode())
    terminal.send("exit 7\n")
    assert terminal.close_frame() == (1000, "exit status 7")
    terminal.send(struct.pack(">H", 1000), CLOSE)
    assert not terminal.receive()
    terminal.cut()
    assert shells(guest) == []


def test_the_shell_starts_without_a_word(guest):
    terminal = Terminal(guest)
    assert terminal.receive() and terminal.output  # its prompt
    terminal.send("echo \"<$(stty size)>\"\n")
    terminal.until(b"<24 80>")
    terminal.cut()


def test_user_and_folder_of_the_template(build_dir, tmp_path):
    guest = Guest(build_dir, tmp_path, next(PORTS))
    try:
        guest.claim(user="other", workdir="/usr/share", envs={"COLOUR": "blue"})
        for user, name in ((None, b"other"), ("user", b"user"), ("root", b"root")):
            terminal = Terminal(guest, user=user)
            terminal.send("echo \"<$(id -un)|$(id -G)|$PWD|$COLOUR|$E2B_SANDBOX>\"; exit\n")
            want = {b"other": b"1001 50", b"user": b"1000 50 63", b"root": b"0"}[name]
            terminal.until(b"<" + name + b"|" + want + b"|/usr/share|blue|true>")
            terminal.cut()
    finally:
        guest.stop()


def test_pings_fragments_and_a_character_in_two_frames(guest):
    terminal = Terminal(guest)
    terminal.send("stty -echo; cat\n")
    terminal.send("ö".encode()[:1], BINARY)
    terminal.send("ö".encode()[1:] + "漢".encode()[:2], BINARY, final=False)
    terminal.send(b"are you there", PING)
    terminal.send("漢".encode()[2:] + b"\n", 0)
    terminal.until("ö漢\r\n".encode())
    assert terminal.pongs == [b"are you there"]
    terminal.cut()


@pytest.mark.parametrize("text", ['{"type":"resize"', '{"type":"other","cols":1}', '["resize"]', '{"cols":1,"rows":1}'])
def test_what_is_no_resize_is_input(guest, text):
    terminal = Terminal(guest)
    terminal.send("stty -echo; printf 'rea''dy\\n'; read -r x; printf 'got%s\\n' \"$x\"\n")
    terminal.until(b"ready\r\n")
    terminal.send(text + "\n")
    terminal.until(b"got" + text.encode() + b"\r\n")
    terminal.cut()


@pytest.mark.parametrize("cols, rows", [(65536, 1), (1, -1), ("x", 1), (1.5, 1)])
def test_bad_sizes_are_told(guest, cols, rows):
    terminal = Terminal(guest)
    terminal.resize(cols, rows)
    assert terminal.close_frame() == (1008, "resize: cols and rows are numbers from 0 to 65535")
    terminal.cut()


def test_breaches_of_the_protocol_end_it(guest):
    for frame, code in ((b"\x81\x01x", 1002), (b"\xc1\x80" + bytes(4), 1002), (b"\x81\x81" + bytes(4) + b"\xff", 1007),
                        (b"\x82\xff" + struct.pack(">Q", 1 << 30) + bytes(4), 1009)):
        terminal = Terminal(guest)
        terminal.send("x")
        terminal.sock.sendall(frame)
        assert terminal.close_frame()[0] == code
        terminal.cut()
    until(lambda: shells(guest) == [])


@pytest.mark.parametrize("how", ["close", "half", "cut"])
def test_the_shell_is_hung_up_with_its_client(guest, how):
    """And what it runs in the foreground; what was started with nohup stays."""
    terminal = Terminal(guest)
    terminal.send("nohup sleep 1001 >/dev/null 2>&1 & sleep 1002; echo not reached\n")
    until(lambda: guest.names().count("sleep") == 2)
    if how == "close":
        terminal.send(struct.pack(">H", 4000) + b"bye", CLOSE)
        assert terminal.close_frame() == (4000, "")
        assert not terminal.receive()
    elif how == "half":
        terminal.sock.shutdown(socket.SHUT_WR)
        assert terminal.close_frame()[0] == 1001
        assert not terminal.receive()
    terminal.cut()
    until(lambda: shells(guest) == [] and guest.names().count("sleep") == 1)
    guest.sh("pkill -9 sleep; true")


def test_a_shell_that_ignores_the_hangup_is_killed(guest):
    terminal = Terminal(guest)
    terminal.send("trap '' HUP; echo rea''dy; exec sleep 1002\n")
    terminal.until(b"ready\r\n")
    until(lambda: "sleep" in guest.names())
    terminal.cut()
    until(lambda: guest.names() == ["abx-guest", "abx-guest"])


def test_the_shell_goes_with_the_daemon(guest):
    terminal = Terminal(guest)
    terminal.send("trap '' HUP; echo rea''dy; sleep 1002\n")
    terminal.until(b"ready\r\n")
    assert [p["tag"] for p in guest.rpc("List", {})["processes"]] == ["abx-terminal"]
    other = guest.start("sleep", "1003", tag="other", pty={})
    os.kill(guest.daemon(), signal.SIGKILL)
    terminal.cut()
    until(guest.answers)
    until(lambda: guest.pids() == [other.pid])


def test_a_client_that_goes_before_the_shell_is_there(guest):
    for i in range(50):
        terminal = Terminal(guest)
        if i % 2:
            terminal.send("x")
        terminal.cut()
    until(lambda: shells(guest) == [] and guest.names() == ["abx-guest", "abx-guest"])
    assert guest.sh("echo alive")["stdout"] == b"alive\n"


def test_10_mb_pasted(guest):
    """Larger than any buffer on the way; the shell reads slower than it comes."""
    terminal = Terminal(guest)
    terminal.send("stty raw -echo; printf 'rea''dy'; head -c 10000000 | sha256sum\n")
    terminal.until(b"ready")
    data = os.urandom(10_000_000)
    for i in range(0, len(data), 500_000):
        terminal.send(data[i : i + 500_000], BINARY)
    terminal.until(hashlib.sha256(data).hexdigest().encode())
    terminal.cut()


def test_much_output_to_a_slow_reader(guest):
    terminal = Terminal(guest, rcvbuf=4096)
    terminal.send("stty -opost -echo; seq 1 400000; exit\n")
    got = b""
    while terminal.closed is None:
        assert terminal.receive()
        got, terminal.output = got + terminal.output, b""
    lines = got.split(b"\n")
    begin = lines.index(b"1000")
    assert lines[begin : begin + 399001] == [b"%d" % i for i in range(1000, 400001)]
    assert terminal.closed == (1000, "exit status 0")
    assert guest.is_sanitized() or guest.daemon_memory() < 24 << 20
    terminal.cut()


@pytest.mark.parametrize("scenario, want", [
    ("pypi", {"sizes": [True, True], "code": 1000, "reason": "exit status 7"}),
    ("published", {"first": True, "second": True}),
])
def test_clients_that_others_wrote(guest, tools_dir, scenario, want):
    python = next(tools_dir.glob("agent-sandbox-client-*/bin/python"))
    command = [python, Path(__file__).with_name("terminal_client.py"), scenario, f"http://127.0.0.1:{guest.port}", guest.token]
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=3 * BUSY_S, text=True)
    assert done.returncode == 0 and json.loads(done.stdout) == want
