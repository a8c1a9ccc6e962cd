"""Faults that users of other systems reported, terminals. See docs/faults.md."""

import base64
import hashlib
import json
import threading

import pytest
from remote import Remote, box  # noqa: F401 (fixtures)
from service import Service
from waiting import BUSY_S, until

from guest import RpcError

SIZE = {"cols": 80, "rows": 24}
SDK_ENVS = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}  # what the official clients send


@pytest.fixture(scope="module")
def service(build_dir, base_template):
    with Service(build_dir, disk="2G") as s:
        yield s


class Terminal:
    """A program on a terminal; what it shows is kept until expect() has found its text."""

    def __init__(self, box, *argv, size=SIZE, **more):
        self.box, self.shown = box, b""
        self.process = box.start(*argv, pty={"size": size}, **more)
        self.selector = {"process": {"pid": self.process.pid}}

    def type(self, data):
        self.box.rpc("SendInput", self.selector | {"input": {"pty": base64.b64encode(data).decode()}})

    def resize(self, cols, rows):
        return self.box.rpc("Update", self.selector | {"pty": {"size": {"cols": cols, "rows": rows}}})

    def expect(self, text):
        """Everything up to the text and with it."""
        while text not in self.shown:
            event = next(self.process)["event"]
            if "data" in event:
                self.shown += base64.b64decode(event["data"]["pty"])
            assert "end" not in event, (event, self.shown)
        head, self.shown = self.shown.split(text, 1)
        return head + text

    def wait(self):
        result = self.process.wait()
        return self.shown + result["pty"], result

    def kill(self):
        self.box.rpc("SendSignal", self.selector | {"signal": "SIGNAL_SIGKILL"})
        return self.wait()


def bash(box, **more):
    t = Terminal(box, "/bin/bash", "--norc", "--noprofile", "-i", envs=SDK_ENVS | {"PS1": "@ "}, **more)
    t.expect(b"@ ")
    return t


# --- text and environment -----------------------------------------------------------------------


def test_text_of_any_script(box):
    text = "äß 漢字 🎉 e\u0301 ﷽ \u202eabc"
    t = bash(box)
    t.type(f"echo '{text}' | wc -m; locale charmap; printf '%s\\n' '<{text}>' \"$TERM\"\n".encode())
    shown = t.expect(b"\r\nxterm-256color\r\n").decode()
    assert f"\r{len(text) + 1}\r\nUTF-8\r\n<{text}>" in shown, shown
    t.expect(b"@ ")
    t.type(b"\xf0\x9f\x8e")  # a character in two calls
    t.type(b"\x89\x7fx\n")  # and it goes whole with one backspace
    t.expect(b"x: command not found\r\n")
    t.expect(b"@ ")
    t.type("echo r''eads; read x; echo \"[$x]\"\n".encode())
    t.expect(b"reads\r\n")  # the terminal edits the line from here on, not the shell
    t.type("ä漢\x7f\n".encode())
    assert "[ä]" in t.expect("[ä]".encode()).decode(errors="replace")
    t.kill()


def test_a_terminal_without_environment_has_one(box):
    """No envs at all: what a program on a terminal needs is there, and text is UTF-8."""
    script = "import os, locale, json; print('<' + json.dumps([dict(os.environ), locale.getencoding(), os.getcwd(), os.isatty(0), os.ttyname(2)]) + '>')"
    t = Terminal(box, "python3", "-c", script, size={"cols": 4000, "rows": 24})
    shown, result = t.wait()
    environment, encoding, cwd, is_tty, tty = json.loads(shown[shown.index(b"<") + 1 : shown.rindex(b">")])
    assert {k: environment.get(k) for k in ("HOME", "USER", "LOGNAME")} == {"HOME": "/home/user", "USER": "user", "LOGNAME": "user"}
    assert environment["PATH"] and environment["E2B_SANDBOX_ID"] == box.id
    assert (encoding.lower(), cwd, is_tty) == ("utf-8", "/home/user", True)
    assert tty.startswith("/dev/pts/")
    assert result["code"] == 0


def test_a_terminal_is_a_whole_one(box):
    """Controlling terminal, foreground group, /dev/tty, the owner, no descriptors of the service."""
    t = bash(box)
    t.type(b"ps -o tty= -p $$; echo hi >/dev/tty; ls -1 /proc/$$/fd | tr '\\n' ' '; stat -c %U $(tty); echo by name >$(tty); set -o | grep monitor\n")
    shown = t.expect(b"monitor").decode() + t.expect(b"monitor ").decode() + t.expect(b"@ ").decode()
    assert "pts/" in shown and "\r\nhi\r\n" in shown and "0 1 2 255 user\r\nby name\r\n" in shown, shown
    t.kill()


# --- sizes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("cols, rows", [(1, 1), (1000, 500), (0, 0), (65535, 65535), (0, 24)])
def test_sizes(box, cols, rows):
    """At the start and later. 0 is no error: a terminal begins with 80x24 then, later it means "unknown", as on a serial line."""
    t = Terminal(box, "/bin/sh", "-c", "stty size; trap 'stty size' WINCH; echo ready; while :; do read x; done", size={"cols": cols, "rows": rows})
    first = f"{rows} {cols}\r\n" if cols and rows else "24 80\r\n"
    assert t.expect(b"ready\r\n").startswith(first.encode())
    t.resize(81, 25)
    t.type(b"\n")
    t.expect(b"25 81\r\n")
    t.resize(cols, rows)
    t.type(b"\n")
    t.expect(f"{rows} {cols}\r\n".encode())
    t.kill()


@pytest.mark.parametrize("size", [{"cols": 65536, "rows": 24}, {"cols": 80, "rows": 4294967295}])
def test_sizes_over_what_a_terminal_can_have_are_refused(box, size):
    t = bash(box)
    t.resize(70, 20)
    with pytest.raises(RpcError) as e:
        t.resize(**size)
    assert e.value.code == "invalid_argument" and "65535" in e.value.message, e.value
    with pytest.raises(RpcError) as e:
        Terminal(box, "true", size=size)
    assert e.value.code == "invalid_argument" and "65535" in e.value.message, e.value
    t.type(b"stty size\n")
    t.expect(b"20 70\r\n")
    t.kill()


def test_many_resizes(box):
    t = bash(box)
    for i in range(1, 200):
        t.resize(i, 300 - i)
    t.type(b"stty size\n")
    t.expect(b"101 199\r\n")
    t.kill()


def test_a_resize_of_a_terminal_that_is_gone(box):
    t = Terminal(box, "true")
    t.wait()
    with pytest.raises(RpcError) as e:
        t.resize(80, 24)
    assert e.value.code == "not_found"


# --- ends ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("read", ["at once", "late"])
def test_output_that_is_pending_comes_before_the_end(box, read):
    """The program ends while the client has read nothing of 3 MB."""
    t = Terminal(box, "/bin/sh", "-c", "seq 1 400000; printf last; exit 7")
    if read == "late":
        until(lambda: box.daemon_state()[0])
    shown, result = t.wait()
    assert shown == b"".join(b"%d\r\n" % i for i in range(1, 400001)) + b"last"
    assert result["end"] == {"exitCode": 7, "exited": True, "status": "exit status 7", "error": "exit status 7"}


def test_short_lives(box):
    for i in range(40):
        shown, result = Terminal(box, "/bin/sh", "-c", f"printf 'x{i}'; exit {i}").wait()
        assert (shown, result["code"]) == (b"x%d" % i, i)


# --- input --------------------------------------------------------------------------------------


def paste(t, data):
    for at in range(0, len(data), 1 << 20):
        t.type(data[at : at + (1 << 20)])


def test_a_paste_of_10_mb(box):
    """Every byte arrives, in order, when the program takes bytes as they come."""
    data = bytes(i * 7 % 251 for i in range(1 << 20)) * 10
    t = Terminal(box, "/bin/sh", "-c", f"stty raw -echo; echo ready; head -c {len(data)} | sha256sum; exit 3")
    t.expect(b"ready")
    paste(t, data)
    shown, result = t.wait()
    assert hashlib.sha256(data).hexdigest().encode() in shown
    assert result["code"] == 3


def test_a_paste_of_lines(box):
    """2 MB into a terminal that edits lines (as all do) and echoes them."""
    data = b"".join(b"line %07d of a paste\n" % i for i in range(90000))
    t = Terminal(box, "/bin/sh", "-c", "echo ready; cat > /tmp/pasted; sha256sum < /tmp/pasted")
    t.expect(b"ready\r\n")
    got = []
    thread = threading.Thread(target=lambda: got.append(t.wait()))
    thread.start()
    paste(t, data + b"\x04")
    thread.join(BUSY_S)
    shown, result = got[0]
    assert hashlib.sha256(data).hexdigest().encode() in shown
    assert shown.startswith(data[:1000].replace(b"\n", b"\r\n"))
    assert result["code"] == 0


@pytest.mark.parametrize("key, signal, code", [(b"\x03", "interrupt", 130), (b"\x1c", "quit", 131)])
def test_keys_that_signal(box, key, signal, code):
    t = bash(box)
    t.type(b"sleep 1000\n")
    until(lambda: "sleep" in box.names())
    t.type(key)
    t.expect(b"@ ")
    t.type(b"echo co''de $?\n")
    t.expect(b"code %d\r\n" % code)  # the shell goes on
    t.expect(b"@ ")
    t.type(b"exit 9\n")
    assert t.wait()[1]["code"] == 9
    t = Terminal(box, "sleep", "1000")
    until(lambda: "sleep" in box.names())
    t.type(key)
    assert t.wait()[1]["end"]["status"].startswith(f"signal: {signal}")
    until(lambda: "sleep" not in box.names())


def test_ctrl_c_reaches_a_pipeline_and_stops_output(box):
    t = bash(box)
    t.type(b"yes | cat\n")
    t.expect(b"y\r\ny\r\ny\r\n")
    t.type(b"\x03")
    t.expect(b"@ ")
    t.type(b"echo co''de $?\n")
    t.expect(b"code 130\r\n")
    until(lambda: not {"yes", "cat"} & set(box.names()))
    t.expect(b"@ ")
    t.type(b"sleep 1000\n")
    until(lambda: "sleep" in box.names())
    t.type(b"\x1a")
    t.expect(b"Stopped")
    t.type(b"kill %1; wait; echo do''ne\n")
    t.expect(b"done\r\n")
    t.expect(b"@ ")  # an end of file that comes before the shell reads from its line editor is lost, on every terminal
    t.type(b"\x04")
    assert t.wait()[1]["end"]["exited"]


def test_the_end_of_the_shell_hangs_up_on_what_runs_in_front(box):
    """A killed shell: what runs in front gets SIGHUP from the kernel, a job in the background lives on."""
    t = bash(box)
    t.type(b"sleep 1001 & sleep 1002\n")
    until(lambda: box.names().count("sleep") == 2)
    t.kill()
    until(lambda: box.names().count("sleep") == 1)
    assert "1001" in box.inside("pgrep -a sleep; pkill sleep")
