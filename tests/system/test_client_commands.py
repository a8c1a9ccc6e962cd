"""libabx on a real service: commands, processes, pseudo terminals, with both codecs."""

import ctypes
import hashlib
import os
import time

import pytest
from client_kit import Box, Error, box, collect, error_of, made  # noqa: F401 (fixtures)
from service import Service
from waiting import until


@pytest.fixture(scope="module")
def service(build_dir):
    with Service(build_dir) as s:
        yield s


def memory_kib():
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))


@pytest.mark.parametrize("code", [0, 1, 2, 127, 255])
def test_exit_codes(box, code):
    r = box.run(f"echo out; echo err >&2; exit {code}")
    assert (r.exit_code, r.exited, r.is_ended) == (code, 1, 1)
    assert (r.stdout, r.stderr) == (b"out\n", b"err\n")
    assert r.status.decode() == f"exit status {code}"
    assert r.error.decode() == (f"exit status {code}" if code else "")


def test_end_by_a_signal(box):
    r = box.run("kill -9 $$")
    assert (r.exit_code, r.exited, r.status) == (-1, 0, b"signal: killed")


def test_output_is_bytes(box):
    every = bytes(range(256))
    r = box.run(r"printf 'a\r\nb\0c\377\n'; for i in $(seq 0 255); do printf \\x$(printf %02x $i); done >&2")
    assert r.stdout == b"a\r\nb\0c\xff\n"
    assert r.stderr == every


def test_environment_folder_and_user(box):
    r = box.run('echo "$A|$B"; pwd; id -un', envs={"A": "ü x", "B": "$HOME\n"}, cwd="/usr/lib", user="root")
    assert r.stdout.decode() == "ü x|$HOME\n\n/usr/lib\nroot\n"
    assert box.run("id -un; pwd").stdout == b"user\n/home/user\n"
    assert error_of(box.run, "true", user="nobody-such").code == "UNAUTHENTICATED"
    e = error_of(box.run, "true", cwd="/no/such/folder")
    assert (e.code, e.message) == ("INVALID_ARGUMENT", "cwd '/no/such/folder' does not exist")


def test_programs_without_a_shell(box):
    assert box.run(None, argv=["/bin/echo", "$HOME", "a b"]).stdout == b"$HOME a b\n"
    assert error_of(box.run, None, argv=["/no/such/program"]).code == "INVALID_ARGUMENT"


def test_the_tail_is_never_lost(box):
    want = b"".join(b"%d\n" % i for i in range(1, 20001))
    for _ in range(10):
        assert box.run("seq 1 20000").stdout == want


def test_a_timeout_kills_the_command(box):
    e = error_of(box.run, "echo before; sleep 77.25", timeout_ms=1000)
    assert (e.code, e.reason) == ("DEADLINE_EXCEEDED", "COMMAND_TIMEOUT")
    # What it wrote before stays known.
    call = box.client.call("abx_command_run", box.sandbox, "echo before; sleep 77.25", box.opts("abx_command_opts", {"timeout_ms": 500}))
    error_of(call.wait)
    assert call.command().stdout == b"before\n" and not call.command().is_ended
    until(lambda: box.run("pgrep -f 'sleep 77[.]25'").exit_code != 0, "the end of the command")


def test_no_timeout(box):
    assert box.run("sleep 0.2; echo done", timeout_ms=0, request_timeout_ms=0).stdout == b"done\n"


@pytest.mark.parametrize("collected", [False, True])
def test_events_come_while_it_runs(box, collected):
    call, pid = box.start("echo one; read line; echo two-$line; exit 4", stdin_open=1, collect=int(collected))
    assert ctypes.string_at(call.next().data, 4) == b"one\n"
    assert not call.is_done() and call.command().pid == pid
    box.stdin(pid, b"x\n")
    out, end = collect(call)
    assert out["stdout"] == b"two-x\n" and end == (4, True, "exit status 4")
    assert call.command().stdout == (b"one\ntwo-x\n" if collected else b"")
    assert call.command().exit_code == 4


def test_a_disconnect_leaves_it_running(box):
    call, pid = box.start("while ! [ -e /tmp/go ]; do sleep 0.05; done; echo went; rm /tmp/go", tag="tagged")
    call.cancel()
    assert call.error().code == "CANCELED"
    again, other = box.connect(pid=pid)
    by_tag, third = box.connect(tag="tagged", collect=1)
    assert pid == other == third
    assert (pid, b"tagged") in [(p, t) for p, t, _, _ in box.processes()]
    box.run("touch /tmp/go")
    assert collect(again) == ({"stdout": b"went\n", "stderr": b"", "pty": b""}, (0, True, "exit status 0"))
    collect(by_tag)
    assert by_tag.command().stdout == b"went\n"
    e = error_of(box.connect, pid=99999)
    assert (e.code, e.message) == ("NOT_FOUND", "process with pid 99999 not found")
    assert error_of(box.connect, tag="none").code == "NOT_FOUND"


def test_a_connection_ends_at_its_time(box):
    _, pid = box.start("sleep 30")
    call, _ = box.connect(pid=pid, timeout_ms=300)
    assert error_of(collect, call).code == "DEADLINE_EXCEEDED"
    assert box.signal(pid, 9)


@pytest.mark.parametrize("number, text", [(15, "terminated"), (9, "killed")])
def test_signals(box, number, text):
    # A shell that waits would not be the one that dies of the signal.
    call, pid = box.start("exec sleep 30")
    assert box.signal(pid, number) is True
    assert collect(call)[1] == (-1, False, f"signal: {text}")
    assert box.signal(99999, number) is False
    e = error_of(box.signal, pid, 2)
    assert e.code == "INVALID_ARGUMENT" and "signal 2" in e.message


def test_input_of_any_size_in_order(box):
    data = os.urandom((5 << 19) + 7)  # three requests
    call, pid = box.start("sha256sum", stdin_open=1)
    box.stdin(pid, b"")
    box.stdin(pid, data)
    box.close_stdin(pid)
    out, end = collect(call)
    assert out["stdout"].split()[0].decode() == hashlib.sha256(data).hexdigest() and end[0] == 0
    assert error_of(box.stdin, pid + 5000, b"x").code == "NOT_FOUND"


def test_input_is_refused_without_stdin(box):
    call, pid = box.start("cat; sleep 5")
    assert error_of(box.stdin, pid, b"x").code == "INTERNAL"
    assert box.signal(pid, 9)
    collect(call)


def test_a_terminal(box):
    call, pid = box.pty(81, 25, envs={"PS1": "", "LANG": "C"})
    box.stdin(pid, b"stty size; echo $TERM-$LANG-$LC_ALL; tty -s && echo is-a-''tty\n", pty=1)
    seen = b""
    while b"is-a-tty\r" not in seen:
        event = call.next()
        assert event.stream == box.abx.constants["ABX_PTY"]
        seen += ctypes.string_at(event.data, event.size)
    assert b"25 81\r\n" in seen and b"xterm-256color-C-C.UTF-8\r\n" in seen
    box.resize(pid, 132, 50)
    box.stdin(pid, b"stty size; exit 6\n", pty=1)
    out, end = collect(call)
    assert b"50 132\r\n" in out["pty"] and out["stdout"] == b"" and end[0] == 6
    assert error_of(box.resize, 99999, 1, 1).code == "NOT_FOUND"
    assert error_of(box.resize, pid, 0, 1).code == "INVALID_ARGUMENT"
    assert error_of(box.pty, 80, 0).code == "INVALID_ARGUMENT"


def test_what_a_lost_connection_missed(box):
    call, pid = box.start("read x; printf one; printf two >&2; read x; printf three; read x; exit 3", stdin_open=1)
    begin = ctypes.c_uint64(99)
    assert box.abx.c.abx_call_output_offset(call.handle, ctypes.byref(begin)) == 1 and begin.value == 0
    box.stdin(pid, b"\n")
    taken = 0
    while taken < 6:
        taken += call.next().size
    call.cancel()
    box.stdin(pid, b"\n")
    again, _ = box.connect(pid=pid, output_offset=taken)
    assert box.abx.c.abx_call_output_offset(again.handle, ctypes.byref(begin)) == 1 and begin.value == 6
    box.stdin(pid, b"\n")
    out, end = collect(again)
    assert (out["stdout"], out["stderr"], end[0]) == (b"three", b"", 3)
    whole, _ = box.connect(pid=pid, output_offset=0)
    out, end = collect(whole)
    assert (out["stdout"], out["stderr"], end[0]) == (b"onethree", b"two", 3)
    with pytest.raises(Error) as caught:
        box.connect(pid=pid, output_offset=12)
    assert caught.value.code == "OUT_OF_RANGE"
    with pytest.raises(Error) as caught:
        box.connect(pid=pid, output_offset=-2)
    assert caught.value.code == "INVALID_ARGUMENT"


def test_a_terminal_over_a_websocket(box):
    """GET /terminal through the gateway; the end tells how the shell ended."""
    kinds = {box.abx.constants["ABX_EVENT_" + name]: name for name in ("START", "DATA", "END")}
    call = box.client.call("abx_terminal_open", box.sandbox, 91, 19, "root", -1)
    assert kinds[call.next().kind] == "START"

    def send(text):
        assert box.abx.c.abx_websocket_send(call.handle, text, len(text), 1, None) == 0

    def read_until(text):
        seen = b""
        while text not in seen:
            event = call.next()
            assert kinds[event.kind] == "DATA", (event.text, seen)
            seen += ctypes.string_at(event.data, event.size)

    send(b"echo \"<$(stty size)|$(id -un)|$PWD>\"\n")
    read_until(b"<19 91|root|/home/user>")  # the template's folder, whoever asks
    assert box.abx.c.abx_terminal_resize(call.handle, 132, 50, None) == 0
    send(b"echo \"<$(stty size)>\"; exit 5\n")
    read_until(b"<50 132>")
    while kinds[(event := call.next()).kind] == "DATA":
        pass
    assert (kinds[event.kind], event.exit_code, event.text) == ("END", 1000, b"exit status 5")


def test_a_large_output(box):
    cpu = time.process_time()
    r = box.run("head -c 100000000 /dev/zero", wait=200)
    assert len(r.stdout) == 100_000_000 and r.stdout.count(0) == 100_000_000
    assert time.process_time() - cpu < 30


def test_output_over_its_limit(box):
    e = error_of(box.run, "head -c 300000 /dev/zero", max_output_bytes=200000)
    assert (e.code, e.reason) == ("RESOURCE_EXHAUSTED", "TOO_LARGE") and "200000" in e.message
    assert len(box.run("head -c 200000 /dev/zero", max_output_bytes=200000).stdout) == 200000


def test_events_that_nobody_takes_hold_the_sender_back(box):
    before = memory_kib()
    call, _ = box.start("head -c 60000000 /dev/zero | tr '\\0' x; echo end >&2")
    for _ in range(20):  # the client runs, nobody takes
        box.abx.c.abx_client_wait(box.client.handle, 50)
    grown = memory_kib() - before
    out, end = collect(call)
    assert len(out["stdout"]) == 60_000_000 and set(out["stdout"]) == {ord("x")} and end[0] == 0
    assert out["stderr"] == b"end\n"
    assert grown < 20_000


@pytest.mark.parametrize(
    "opts, word",
    [
        ({"cwd": b"\xff"}, "cwd"),
        ({"user": b"\xff"}, "user"),
        ({"tag": b"\xff"}, "tag"),
        ({"envs": {"": "x"}}, "envs"),
        ({"envs": {"A=B": "x"}}, "envs"),
        ({"envs": {"A": b"\xff"}}, "envs"),
        ({"argv": []}, "argv"),
        ({"timeout_ms": -2}, "timeout_ms"),
        ({"request_timeout_ms": -2}, "request_timeout_ms"),
        ({"timeout_ms": 10**10}, "timeout_ms is over 9999999999"),
        ({"request_timeout_ms": 2**62}, "request_timeout_ms"),
        ({"size": 0}, "size"),
    ],
)
def test_wrong_arguments_are_named(box, opts, word):
    e = error_of(box.run, "true", **opts)
    assert e.code == "INVALID_ARGUMENT" and word in e.message


def test_wrong_commands_are_named(box):
    assert "command is missing" in error_of(box.run, None).message
    assert "not UTF-8" in error_of(box.run, b"\xff").message
    assert "pid" in error_of(box.connect, pid=0).message
    assert error_of(box.run, "x" * (5 << 20)).reason == "TOO_LARGE"


def test_many_at_once(box):
    calls = [box.client.call("abx_command_run", box.sandbox, f"echo {i}", None) for i in range(20)]
    assert [c.wait().command().stdout for c in calls] == [b"%d\n" % i for i in range(20)]


def test_a_client_that_ends_tells_its_calls(abx, service, made):
    with abx.client() as client:
        box = Box(abx, client, service, made)
        running, _ = box.start("sleep 30; echo x")
        finished = client.run("abx_command_run", box.sandbox, "true", None)
    assert running.handle is None and finished.handle is None
    box.close()


def test_older_envd(abx, client, service, made):
    old = Box(abx, client, service, made, envd_version="0.2.0")
    call, pid = old.start("id -un; cat")  # no field `stdin`: it is open; "user" has to be named
    assert ctypes.string_at(call.next().data, 5) == b"user\n"
    e = error_of(old.close_stdin, pid)
    assert (e.code, e.reason) == ("FAILED_PRECONDITION", "TEMPLATE_TOO_OLD")
    assert "0.5.2" in e.message and "0.2.0" in e.message
    old.stdin(pid, b"still open")
    assert ctypes.string_at(call.next().data, 10) == b"still open"
    assert old.signal(pid, 9)
    old.close()


@pytest.mark.parametrize("protobuf", [False, True])
def test_a_kill_during_a_command(abx, client, service, protobuf):
    made = service.create()
    box = Box(abx, client, service, made, protobuf=protobuf)
    call, pid = box.start("echo up; sleep 300", timeout_ms=0)
    call.next()
    assert service.kill(box.id) == 204
    e = error_of(collect, call)
    assert (e.code, e.reason) == ("UNAVAILABLE", "SANDBOX_GONE")
    for late in (lambda: box.run("true"), lambda: box.signal(pid, 9), box.processes, lambda: box.read("/etc/passwd")):
        assert error_of(late).reason == "SANDBOX_GONE"
    box.close()
