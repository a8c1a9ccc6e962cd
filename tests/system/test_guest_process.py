"""abx-guest alone: process.Process and what every request has in common."""

import base64
import hashlib
import http.client
import json
import os
import signal
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from guest_kit import PORTS, error_of, fresh, guest  # noqa: F401 (fixtures)
from waiting import until

from guest import Guest, Process, RpcError, envelope, proto

OCTETS = {"Content-Type": "application/octet-stream"}


# --- claim, rights, routes ----------------------------------------------------------------------


def test_unclaimed_guest_answers_health_only(fresh):
    assert fresh.http("GET", "/health", token=False)[0] == 204
    for target in ("/envs", "/metrics", "/files?path=/etc/hostname", "/nothing"):
        assert fresh.http("GET", target)[0] == 503
    assert fresh.http("POST", "/process.Process/List", "{}", {"Content-Type": "application/json"})[0] == 503


def test_no_request_after_the_claim_is_refused(fresh):
    fresh.claim(envs={"COLOUR": "blue"})
    status, _, body = fresh.http("GET", "/envs")
    assert (status, json.loads(body)) == (200, {"COLOUR": "blue"})


def test_control_channel_obeys_nobody_inside(fresh):
    fresh.claim(access_token="", user="root")
    script = (
        "import socket, sys\ns = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        f"try:\n s.connect('\\0{fresh.name}')\n s.send(bytes.fromhex(sys.argv[1]))\n"
        " print(s.recv(1))\nexcept OSError: print('refused')"
    )
    evil = (proto(1, 1) + proto(2, proto(1, "evil") + proto(3, "x"))).hex()
    result = fresh.run("python3", "-c", script, evil)
    assert result["stdout"] in (b"refused\n", b"b''\n")
    assert fresh.sh("echo $E2B_SANDBOX_ID")["stdout"] == b"itest\n"


def test_token_is_asked_for(guest):
    text = "unauthorized access, please provide a valid access token or method signing if supported"
    for headers in ({}, {"X-Access-Token": "0" * 64}, {"X-Access-Token": ""}):
        for method, target in (("GET", "/envs"), ("GET", "/metrics"), ("POST", "/process.Process/List")):
            status, _, body = guest.http(method, target, "{}", headers | {"Content-Type": "application/json"}, token=False)
            assert (status, json.loads(body)) == (401, {"code": 401, "message": text})
    assert guest.http("GET", "/health", token=False)[0] == 204


def test_who_asks_is_said_once(guest):
    for name in ("X-Access-Token", "Authorization"):
        connection = guest.connection()
        connection.putrequest("GET", "/envs")
        for field, value in (*guest.headers(user="user").items(), (name, "Basic cm9vdDo=")):
            connection.putheader(field, value)
        connection.endheaders()
        response = connection.getresponse()
        assert response.status == 400
        assert json.loads(response.read()) == {"code": 400, "message": f"{name} must not be given more than once"}
        connection.close()


def test_guest_without_token_asks_for_none(fresh):
    fresh.claim(access_token="")
    assert fresh.http("GET", "/envs", token=False)[0] == 200


@pytest.mark.parametrize(
    "method, target, content_type, status",
    [
        ("GET", "/nothing", None, 404),
        ("POST", "/envs", "application/json", 405),
        ("PUT", "/files?path=x", None, 405),
        ("POST", "/init", "application/json", 404),
    ],
)
def test_what_does_not_exist_is_said_in_json(guest, method, target, content_type, status):
    got, headers, body = guest.http(method, target, "{}", {"Content-Type": content_type} if content_type else {})
    assert got == status
    assert headers["Content-Type"] == "application/json"
    assert json.loads(body)["code"] == status


@pytest.mark.parametrize(
    "method, target, fields, status, code",
    [
        ("POST", "/process.Process/Nothing", {"Content-Type": "application/json"}, 404, "unimplemented"),
        ("GET", "/process.Process/List", {}, 405, "unknown"),
        ("POST", "/process.Process/List", {"Content-Type": "text/plain"}, 415, "unknown"),
        ("POST", "/process.Process/List", {"Content-Type": "application/connect+json"}, 415, "unknown"),
        ("POST", "/process.Process/Start", {"Content-Type": "application/json"}, 415, "unknown"),
        ("POST", "/process.Process/List", {"Content-Type": "application/json", "Content-Encoding": "gzip"}, 501, "unimplemented"),
    ],
)
def test_what_a_service_does_not_do_is_said_in_its_own_way(guest, method, target, fields, status, code):
    got, headers, body = guest.http(method, target, "{}", fields)
    assert (got, headers["Content-Type"]) == (status, "application/json")
    assert json.loads(body)["code"] == code


@pytest.mark.parametrize(
    "target, body, fields, code",
    [
        ("Start", b"", {}, "unimplemented"),
        ("Start", envelope(b"{}") * 2, {}, "unimplemented"),
        ("Start", b"\1\0\0\0\2{}", {}, "internal"),
        ("StreamInput", b"\1\0\0\0\2{}", {}, "internal"),
        ("StreamInput", b"\4\0\0\0\2{}", {}, "invalid_argument"),
        ("Start", envelope(b"{}"), {"Connect-Content-Encoding": "gzip"}, "unimplemented"),
        ("StreamInput", envelope(b"{}"), {"Connect-Content-Encoding": "gzip"}, "unimplemented"),
    ],
)
def test_streams_that_cannot_be_served(guest, target, body, fields, code):
    status, _, answer = guest.http("POST", f"/process.Process/{target}", body, {"Content-Type": "application/connect+json", **fields})
    assert (status, answer[0]) == (200, 2)
    assert json.loads(answer[5:])["error"]["code"] == code


def test_malformed_requests(guest):
    status, _, body = guest.http("POST", "/process.Process/List", "{", {"Content-Type": "application/json"})
    assert (status, json.loads(body)["code"]) == (400, "invalid_argument")
    for body in (b"\0\0", b"\0\0\0\0\5{}", b"\4\0\0\0\2{}", envelope(b"[]")):
        status, _, answer = guest.http("POST", "/process.Process/Start", body, {"Content-Type": "application/connect+json"})
        assert (status, answer[0]) == (200, 2)
        assert json.loads(answer[5:])["error"]["code"] == "invalid_argument"
    assert error_of(guest.rpc, "SendInput", {"process": {"pid": 1}})[0] == "not_found"
    assert error_of(guest.rpc, "SendInput", {})[0] == "invalid_argument"


def test_preflight_and_cors(guest):
    status, headers, _ = guest.http("OPTIONS", "/files?path=x", None, {"Access-Control-Request-Headers": "x-abc"}, token=False)
    assert (status, headers["Access-Control-Allow-Origin"], headers["Access-Control-Allow-Headers"]) == (204, "*", "x-abc")
    assert guest.http("GET", "/health")[1]["Access-Control-Allow-Origin"] == "*"


def test_metrics(guest):
    first, begin = json.loads(guest.http("GET", "/metrics")[2]), time.time()
    guest.run("python3", "-c", "import time\nend = time.monotonic() + 0.4\nwhile time.monotonic() < end: pass")
    second = json.loads(guest.http("GET", "/metrics")[2])
    assert set(first) == set(
        "ts cpu_count cpu_used_pct mem_total mem_used mem_cache mem_total_mib mem_used_mib disk_used disk_total".split()
    )
    assert first["mem_total"] > first["mem_used"] > 0 and first["disk_total"] > first["disk_used"] > 0
    assert 0 <= second["cpu_used_pct"] <= 100 * second["cpu_count"]
    assert begin - 1 < second["ts"] < time.time() + 1


# --- start --------------------------------------------------------------------------------------


def test_echo(guest):
    result = guest.run("echo", "hello")
    assert result["stdout"] == b"hello\n"
    assert result["end"] == {"exited": True, "status": "exit status 0"}


def test_exit_codes_and_signals(guest):
    assert guest.sh("exit 3")["end"] == {"exitCode": 3, "exited": True, "status": "exit status 3", "error": "exit status 3"}
    killed = {"exitCode": -1, "status": "signal: killed", "error": "signal: killed"}
    assert guest.sh("kill -9 $$")["end"] == killed
    assert guest.sh("kill -15 $$")["end"]["status"] == "signal: terminated"
    assert guest.sh("kill -40 $$")["end"]["status"] == "signal: signal 40"


def test_streams_are_kept_apart_and_bytes_are_exact(guest):
    data = bytes(range(256)) * 3
    result = guest.run("python3", "-c", f"import os; os.write(1, {data!r}); os.write(2, {data[::-1]!r})")
    assert (result["stdout"], result["stderr"]) == (data, data[::-1])


def test_users(guest):
    assert guest.sh("id -un; id -G")["stdout"] == b"user\n1000 50 63\n"
    assert guest.sh("id -un; id -G; pwd", user="root")["stdout"] == b"root\n0\n/root\n"
    assert guest.sh("id -un; id -G; pwd", user="other")["stdout"] == b"other\n1001 50\n/home/other\n"
    assert error_of(guest.start, "true", user="nobody-here") == ("unauthenticated", "invalid username: 'nobody-here'")
    assert error_of(guest.rpc, "List", {}, user="x y")[0] == "unauthenticated"
    status, _, body = guest.http(
        "POST", "/process.Process/List", "{}", guest.headers("application/json") | {"Authorization": "Basic !!"}
    )
    assert (status, json.loads(body)["code"]) == (401, "unauthenticated")


def test_default_user_and_workdir_of_the_template(fresh):
    fresh.claim(user="other", workdir="/usr/share")
    assert fresh.sh("id -un; pwd")["stdout"] == b"other\n/usr/share\n"
    assert fresh.sh("pwd", cwd="")["stdout"] == b"/usr/share\n"


@pytest.mark.parametrize("cwd, expected", [("/usr/./lib/..", "/usr"), ("~", "/home/user"), (".", "/home/user"), ("/", "/")])
def test_cwd(guest, cwd, expected):
    assert guest.sh("pwd", cwd=cwd)["stdout"].decode() == expected + "\n"


def test_bad_cwd_and_bad_command(guest):
    assert error_of(guest.start, "true", cwd="/no/such") == ("invalid_argument", "cwd '/no/such' does not exist")
    assert error_of(guest.start, "true", cwd="/etc/hostname")[0] == "invalid_argument"
    guest.sh("mkdir -m 700 /home/closed", user="root")
    assert error_of(guest.start, "true", cwd="/home/closed")[0] == "permission_denied"
    assert error_of(guest.start, "true", cwd="~root")[0] == "invalid_argument"
    assert error_of(guest.start, "no-such-program")[0] == "invalid_argument"
    assert error_of(guest.start, "/etc/hostname")[0] == "invalid_argument"
    assert error_of(guest.start, "")[0] == "invalid_argument"
    assert guest.pids() == []


def test_environment_order(fresh):
    fresh.claim(envs={"A": "sandbox", "B": "sandbox", "HOME": "/tmp"})
    out = fresh.run("/usr/bin/env", envs={"B": "request", "C": "", "USER": "me"})["stdout"].decode()
    assert dict(line.split("=", 1) for line in out.splitlines()) == {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/tmp",
        "USER": "me",
        "LOGNAME": "user",
        "E2B_SANDBOX": "true",
        "E2B_SANDBOX_ID": "itest",
        "E2B_TEMPLATE_ID": "base",
        "A": "sandbox",
        "B": "request",
        "C": "",
    }
    assert error_of(fresh.start, "true", envs={"A=B": "x"})[0] == "invalid_argument"


def test_program_is_looked_up_in_the_requests_path(guest, tmp_path):
    os.chmod(tmp_path, 0o755)
    program = tmp_path / "only-here"
    program.write_text("#!/bin/sh\necho found\n")
    program.chmod(0o755)
    # /tmp itself is closed to other users below pytest's folder, so root runs it.
    assert guest.run("only-here", envs={"PATH": f"/no:{tmp_path}"}, user="root")["stdout"] == b"found\n"
    assert error_of(guest.start, "only-here", user="root")[0] == "invalid_argument"


def test_run_files_tell_who_the_sandbox_is(guest):
    until(lambda: guest.sh("cat /run/e2b/.E2B_SANDBOX /run/e2b/.E2B_SANDBOX_ID /run/e2b/.E2B_TEMPLATE_ID")["stdout"] == b"trueitestbase")


def test_command_begins_clean(guest):
    script = (
        "import os\nprint(sorted(os.listdir('/proc/self/fd'), key=int))\nprint(oct(os.umask(0)))\n"
        "print([l.split()[1] for l in open('/proc/self/status') if l.startswith(('SigBlk', 'SigIgn'))])\n"
        "print(os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid(), os.nice(0))\n"
        "print(open('/proc/self/oom_score_adj').read().strip())"
    )
    out = guest.run("python3", "-S", "-c", script)["stdout"].decode().splitlines()
    base = int(open("/proc/self/oom_score_adj").read())
    assert out[:2] == ["['0', '1', '2', '3']", "0o22"]  # 3 is listdir's own
    assert out[2] == str(["0" * 16, "0000000001001000"])  # Python itself ignores SIGPIPE and SIGXFSZ
    assert out[3:] == ["True True 0", str(min(1000, base + 100))]


def test_large_arguments_and_environment(guest):
    args = ["x" * 100000] * 12
    result = guest.run("python3", "-c", "import sys, os; print(len(sys.argv), sum(map(len, sys.argv[1:])), len(os.environ['E']))", *args, envs={"E": "y" * 120000})
    assert result["stdout"] == b"13 1200000 120000\n"
    code, _ = error_of(guest.start, "true", "x" * 200000)  # one argument over the kernel's 128 KiB
    assert code == "invalid_argument"


def test_tags(guest):
    process = guest.start("sleep", "100", tag="the-tag")
    assert guest.rpc("List", {})["processes"] == [{"config": {"cmd": "sleep", "args": ["100"]}, "pid": process.pid, "tag": "the-tag"}]
    again = Process(guest, "Connect", {"process": {"tag": "the-tag"}})
    assert again.pid == process.pid
    guest.rpc("SendSignal", {"process": {"tag": "the-tag"}, "signal": "SIGNAL_SIGTERM"})
    assert again.wait()["end"]["status"] == process.wait()["end"]["status"] == "signal: terminated"
    assert error_of(guest.rpc, "SendSignal", {"process": {"tag": "the-tag"}, "signal": 9}) == (
        "not_found",
        "process with tag the-tag not found",
    )
    assert error_of(guest.start, "true", tag="x" * 300)[0] == "invalid_argument"


def test_a_hundred_at_once(guest):
    with ThreadPoolExecutor(50) as pool:
        results = list(pool.map(lambda i: guest.sh(f"echo {i}; exit {i}"), range(100)))
    assert [(r["stdout"], r["code"]) for r in results] == [(b"%d\n" % i, i) for i in range(100)]
    assert guest.pids() == []
    until(lambda: len(guest.processes()) == 2)


# --- ends ---------------------------------------------------------------------------------------


def test_end_waits_for_a_grandchild_that_holds_the_pipe(guest):
    began = time.monotonic()
    result = guest.sh("(sleep 0.5; echo late) & echo early")
    assert result["stdout"] == b"early\nlate\n"
    assert time.monotonic() - began >= 0.5


def test_kill_ends_promptly_and_twice_is_not_found(guest):
    process = guest.sh_start("sleep 100 & echo ready; wait")
    process.until_output(b"ready\n")
    guest.rpc("SendSignal", {"process": {"pid": process.pid}, "signal": "SIGNAL_SIGKILL"})
    assert process.wait()["end"]["status"] == "signal: killed"
    assert error_of(guest.rpc, "SendSignal", {"process": {"pid": process.pid}, "signal": "SIGNAL_SIGKILL"}) == (
        "not_found",
        f"process with pid {process.pid} not found",
    )
    until(lambda: guest.names() == ["abx-guest", "abx-guest", "sleep"])  # signals go to the process alone, and nobody waited for it


def test_second_kill_is_not_found_before_the_process_is_reaped(guest):
    """Two kills in one packet: the second is read before anyone can have heard of the process's end."""
    process = guest.start("sleep", "600")
    body = json.dumps({"process": {"pid": process.pid}, "signal": "SIGNAL_SIGKILL"})
    fields = {**guest.headers("application/json"), "Host": "x", "Content-Length": len(body)}
    head = "POST /process.Process/SendSignal HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in fields.items())
    connection = guest.connection()
    connection.connect()
    connection.sock.sendall(f"{head}\r\n{body}{head}Connection: close\r\n\r\n{body}".encode())
    answers = b"".join(iter(lambda: connection.sock.recv(65536), b""))
    connection.close()
    assert answers.count(b"HTTP/1.1 200 ") == 1 and answers.count(b"HTTP/1.1 404 ") == 1, answers
    assert f'"process with pid {process.pid} not found"'.encode() in answers
    assert process.wait()["end"]["status"] == "signal: killed"


def test_kill_of_an_exited_command_ends_what_holds_its_pipes(guest):
    process = guest.sh_start("sleep 100 & echo ready")
    process.until_output(b"ready\n")
    until(lambda: "bash" not in guest.names())
    guest.rpc("SendSignal", {"process": {"pid": process.pid}, "signal": "SIGNAL_SIGKILL"})
    assert process.wait()["end"]["status"] == "exit status 0"
    until(lambda: "sleep" not in guest.names())


def test_other_signals_are_unimplemented(guest):
    process = guest.start("sleep", "100")
    assert error_of(guest.rpc, "SendSignal", {"process": {"pid": process.pid}, "signal": 0})[0] == "unimplemented"
    assert error_of(guest.rpc, "SendSignal", {"process": {"pid": process.pid}, "signal": 2})[0] == "unimplemented"


def test_deadline_kills_the_whole_tree(guest):
    script = (
        "setsid setsid sleep 1001 & (setsid sh -c 'sleep 1002 & sleep 1003 & wait' &) ; "
        "python3 -c 'import os, time\nif os.fork() == 0:\n os.setsid()\n if os.fork() == 0: time.sleep(1004)\n' ; sleep 1005"
    )
    began = time.monotonic()
    process = guest.sh_start(script, headers={"Connect-Timeout-Ms": "3000"}, envs={"PATH": os.environ["PATH"]})
    other = guest.connect(process.pid)
    with pytest.raises(RpcError) as e:
        process.wait()
    assert e.value.code == "deadline_exceeded"
    assert 3 <= time.monotonic() - began
    assert other.wait()["end"] == {"exitCode": -1, "status": "signal: killed", "error": "signal: killed"}
    until(lambda: guest.names() == ["abx-guest", "abx-guest"])


def test_deadline_ends_a_fork_bomb(guest):
    """Bounded to 120 processes of that user."""
    bomb = "ulimit -u 120; f() { f | f & f; }; f 2>/dev/null"
    try:
        result = guest.run("/bin/bash", "-c", bomb, user="other", headers={"Connect-Timeout-Ms": "800"})
        assert result["code"] == 254
    except RpcError as e:
        assert e.code == "deadline_exceeded"
    until(lambda: guest.names() == ["abx-guest", "abx-guest"])


def test_tree_of_one_command_is_not_that_of_another(guest):
    other = guest.sh_start("(setsid sleep 1001 &); echo ready; sleep 1002")
    other.until_output(b"ready\n")
    assert error_of(guest.sh, "sleep 1003", headers={"Connect-Timeout-Ms": "200"})[0] == "deadline_exceeded"
    until(lambda: guest.names().count("sleep") == 2)
    assert guest.pids() == [other.pid]


def test_what_a_command_leaves_running_stays(guest):
    guest.sh("setsid sleep 1001 >/dev/null 2>&1 </dev/null &")
    until(lambda: guest.names() == ["abx-guest", "abx-guest", "sleep"])


def test_disconnect_does_not_kill(guest):
    process = guest.start("sleep", "100")
    process.close()
    time.sleep(0.3)
    assert guest.pids() == [process.pid]


# --- input --------------------------------------------------------------------------------------


def test_stdin(guest):
    process = guest.sh_start("cat; read -t 0.3 <> <(:); exit 0", stdin=True)
    guest.send(process.pid, b"one\n")
    guest.send(process.pid, bytes(range(256)))
    guest.rpc("CloseStdin", {"process": {"pid": process.pid}})
    guest.rpc("CloseStdin", {"process": {"pid": process.pid}})
    assert process.wait()["stdout"] == b"one\n" + bytes(range(256))
    assert error_of(guest.send, process.pid, b"x") == ("not_found", f"process with pid {process.pid} not found")
    assert error_of(guest.rpc, "CloseStdin", {"process": {"pid": process.pid}})[0] == "not_found"


def test_stdin_off_and_default_on(guest):
    off = guest.sh_start("cat; sleep 100", stdin=False)
    assert error_of(guest.send, off.pid, b"x") == ("internal", "stdin not enabled or closed")
    assert error_of(guest.rpc, "CloseStdin", {"process": {"pid": off.pid}}) == ("internal", "stdin not enabled or closed")
    on = guest.start("head", "-c", "1")
    guest.send(on.pid, b"y")
    assert on.wait()["stdout"] == b"y"


def test_4_mib_of_input_in_one_call(guest):
    process = guest.start("sha256sum", stdin=True)
    data = os.urandom(4 << 20)
    guest.send(process.pid, data)
    guest.rpc("CloseStdin", {"process": {"pid": process.pid}})
    assert process.wait()["stdout"].split()[0].decode() == hashlib.sha256(data).hexdigest()


def test_input_waits_for_the_command(guest):
    process = guest.sh_start("read -n1 x; sleep 0.5; cat >/dev/null", stdin=True)
    began = time.monotonic()
    guest.send(process.pid, b"x" * (1 << 20))
    assert time.monotonic() - began >= 0.5
    guest.rpc("CloseStdin", {"process": {"pid": process.pid}})
    assert process.wait()["code"] == 0


def test_input_queue_is_bounded_and_ends_with_the_command(guest):
    process = guest.start("sleep", "100", stdin=True)
    with ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(guest.send, process.pid, bytes(4 << 20)) for _ in range(6)]
        until(lambda: sum(c.done() for c in calls) == 2)  # refused; the four others wait
        guest.rpc("SendSignal", {"process": {"pid": process.pid}, "signal": "SIGNAL_SIGKILL"})
        codes = sorted(c.exception().code for c in calls)
    assert set(codes) == {"internal", "resource_exhausted"}


def test_write_to_closed_stdin_is_an_error(guest):
    process = guest.sh_start("exec 0<&-; echo ready; sleep 100", stdin=True)
    process.until_output(b"ready\n")
    assert error_of(guest.send, process.pid, b"x" * 100000)[0] == "internal"


def test_stream_input(guest):
    process = guest.start("cat", stdin=True)
    messages = [{"start": {"process": {"pid": process.pid}}}, {"keepalive": {}}]
    messages += [{"data": {"input": {"stdin": base64.b64encode(b"%d\n" % i).decode()}}} for i in range(500)]
    body = b"".join(envelope(json.dumps(m).encode()) for m in messages)
    status, _, answer = guest.http("POST", "/process.Process/StreamInput", iter([body[:7], body[7:]]), {"Content-Type": "application/connect+json"})
    assert (status, answer) == (200, envelope(b"{}") + envelope(b"{}", 2))
    guest.rpc("CloseStdin", {"process": {"pid": process.pid}})
    assert process.wait()["stdout"] == b"".join(b"%d\n" % i for i in range(500))
    body = envelope(json.dumps({"start": {"process": {"pid": 999999}}}).encode())
    status, _, answer = guest.http("POST", "/process.Process/StreamInput", body, {"Content-Type": "application/connect+json"})
    assert json.loads(answer[5:])["error"]["code"] == "not_found"


def test_stream_input_of_very_many_messages(guest):
    process = guest.start("cat", stdin=True)
    messages = envelope(json.dumps({"start": {"process": {"pid": process.pid}}}).encode())
    messages += envelope(b'{"keepalive":{}}') * 20000  # many of them come with each read
    messages += envelope(json.dumps({"data": {"input": {"stdin": base64.b64encode(b"end").decode()}}}).encode())
    status, _, answer = guest.http("POST", "/process.Process/StreamInput", messages, {"Content-Type": "application/connect+json"})
    assert (status, answer) == (200, envelope(b"{}") + envelope(b"{}", 2))
    guest.rpc("CloseStdin", {"process": {"pid": process.pid}})
    assert process.wait()["stdout"] == b"end"


def test_a_call_that_waits_ends_at_its_time(guest):
    """SendInput to a command that does not read, StreamInput whose client says nothing more; what was sent before arrives."""
    process = guest.sh_start("while ! [ -e /mnt/go ]; do sleep 0.02; done; wc -c", stdin=True)
    body = json.dumps({"process": {"pid": process.pid}, "input": {"stdin": base64.b64encode(bytes(100000)).decode()}})
    limited = {"Content-Type": "application/json", "Connect-Timeout-Ms": "2000"}
    status, _, answer = guest.http("POST", "/process.Process/SendInput", body, limited)
    assert (status, json.loads(answer)["code"]) == (504, "deadline_exceeded")
    connection = guest.connection()
    connection.putrequest("POST", "/process.Process/StreamInput")
    for field in (guest.headers("application/connect+json") | {"Connect-Timeout-Ms": "2000", "Transfer-Encoding": "chunked"}).items():
        connection.putheader(*field)
    connection.endheaders()
    data = envelope(json.dumps({"start": {"process": {"pid": process.pid}}}).encode())
    data += envelope(json.dumps({"data": {"input": {"stdin": base64.b64encode(b"12345").decode()}}}).encode())
    connection.send(b"%x\r\n%s\r\n" % (len(data), data))
    response = connection.getresponse()
    answer = response.read()
    assert (response.status, answer[0], json.loads(answer[5:])["error"]["code"]) == (200, 2, "deadline_exceeded")
    connection.close()
    assert guest.pids() == [process.pid]
    guest.sh("touch /mnt/go", user="root")
    guest.rpc("CloseStdin", {"process": {"pid": process.pid}})
    assert process.wait()["stdout"].strip() == b"100005"
    bad = {"Content-Type": "application/json", "Connect-Timeout-Ms": "soon"}
    assert guest.http("POST", "/process.Process/List", "{}", bad)[0] == 400


# --- terminals ----------------------------------------------------------------------------------


def test_terminal(guest):
    config = {"pty": {"size": {"cols": 101, "rows": 33}}, "envs": {"TERM": "dumb", "PS1": "$ "}}
    process = guest.start("/bin/bash", "--norc", "-i", **config)
    type_ = lambda text: guest.rpc("SendInput", {"process": {"pid": process.pid}, "input": {"pty": base64.b64encode(text).decode()}})
    type_(b"stty size; tty; cat /proc/self/stat | cut -d' ' -f7\n")
    process.until_output(b"33 101\r\n", "pty")
    guest.rpc("Update", {"process": {"pid": process.pid}, "pty": {"size": {"cols": 40, "rows": 10}}})
    type_(b"stty size\n")
    process.until_output(b"10 40\r\n$ ", "pty")
    assert error_of(guest.send, process.pid, b"x")[0] == "internal"
    assert error_of(guest.rpc, "CloseStdin", {"process": {"pid": process.pid}})[0] == "failed_precondition"
    type_(b"\x04")
    assert process.wait()["code"] == 0
    plain = guest.start("sleep", "100")
    assert error_of(guest.rpc, "Update", {"process": {"pid": plain.pid}, "pty": {"size": {"cols": 1, "rows": 1}}})[0] == "internal"
    pty_input = {"process": {"pid": plain.pid}, "input": {"pty": "eA=="}}
    assert error_of(guest.rpc, "SendInput", pty_input)[0] == "internal"


def test_terminal_interrupt(guest):
    process = guest.start("/bin/sh", "-c", "echo ready; sleep 100", pty={"size": {"cols": 80, "rows": 24}})
    process.until_output(b"ready\r\n", "pty")
    until(lambda: "sleep" in guest.names())
    guest.rpc("SendInput", {"process": {"pid": process.pid}, "input": {"pty": base64.b64encode(b"\x03").decode()}})
    assert process.wait()["end"]["status"] in ("signal: interrupt", "exit status 130")


# --- protobuf -----------------------------------------------------------------------------------


def fields(data):
    """[(number, value)] of one protobuf message."""
    out, at = [], 0

    def varint():
        nonlocal at
        n = shift = 0
        while True:
            n |= (data[at] & 127) << shift
            shift += 7
            at += 1
            if not data[at - 1] & 128:
                return n

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            out.append((key >> 3, varint()))
        else:
            n = varint()
            out.append((key >> 3, data[at : at + n]))
            at += n
    return out


def test_protobuf_codec(guest):
    config = proto(1, "/bin/sh") + proto(2, "-c") + proto(2, "printf 'a\\0b'; exit 7") + proto(3, proto(1, "K") + proto(2, "V"))
    status, headers, answer = guest.http("POST", "/process.Process/Start", envelope(proto(1, config)), {"Content-Type": "application/connect+proto"})
    assert (status, headers["Content-Type"]) == (200, "application/connect+proto")
    events = []
    while answer[0] == 0:
        n = struct.unpack(">I", answer[1:5])[0]
        events.append(fields(fields(answer[5 : 5 + n])[0][1])[0])
        answer = answer[5 + n :]
    assert answer == envelope(b"{}", 2)
    assert [e[0] for e in events] == [1, 2, 3]
    assert fields(events[1][1]) == [(1, b"a\0b")]
    assert fields(events[2][1]) == [(1, 14), (2, 1), (3, b"exit status 7"), (4, b"exit status 7")]  # sint32: zigzag
    pid = fields(events[0][1])[0][1]
    status, headers, answer = guest.http("POST", "/process.Process/SendSignal", proto(1, proto(1, pid)) + proto(2, 9), {"Content-Type": "application/proto"})
    assert (status, headers["Content-Type"], json.loads(answer)["code"]) == (404, "application/json", "not_found")
    assert guest.http("POST", "/process.Process/List", b"", {"Content-Type": "application/proto"})[::2] == (200, b"")


# --- crashes ------------------------------------------------------------------------------------


def listed_or_none(guest):
    """The first answer of a daemon."""
    try:
        return guest.rpc("List", {}).get("processes", [])
    except (OSError, http.client.HTTPException):
        return None


def test_the_first_list_after_a_crash_is_whole(guest):
    """Also when PID 1 does not get to ask the supervisors for a while. What a command left running has one with nothing to say."""
    running = sorted(guest.start("sleep", "1000").pid for _ in range(40))
    guest.sh("setsid sleep 1001 >/dev/null 2>&1 </dev/null &")
    children = lambda: set(open(f"/proc/{guest.init_pid}/task/{guest.init_pid}/children").read().split())
    for _ in range(2):
        before = children()
        os.kill(guest.daemon(), signal.SIGKILL)
        while children() <= before:  # PID 1 goes in steps until it has forked the next one
            os.kill(guest.init_pid, signal.SIGCONT)
            time.sleep(0.0005)
            os.kill(guest.init_pid, signal.SIGSTOP)
        go_on = threading.Timer(0.3, os.kill, (guest.init_pid, signal.SIGCONT))
        go_on.start()
        try:
            assert sorted(p["pid"] for p in guest.rpc("List", {}).get("processes", [])) == running
        finally:
            go_on.join()


def test_a_supervisor_that_stands_still_does_not_hold_the_daemon_up(guest):
    process = guest.start("sleep", "1000")
    (supervisor,) = [host for pid, (name, host) in guest.processes().items() if name == "abx-supervisor"]
    os.kill(guest.daemon(), signal.SIGKILL)
    os.kill(supervisor, signal.SIGSTOP)  # PID 1 lets it go on as soon as it hears of that
    assert until(lambda: listed_or_none(guest) is not None)
    os.kill(supervisor, signal.SIGCONT)
    until(lambda: guest.pids() == [process.pid])


def test_commands_outlive_the_daemon(guest):
    script = "echo before; while ! [ -e /mnt/after ]; do sleep 0.05; done; echo after; exec sleep 1000"
    process = guest.start("/bin/sh", "-c", script, tag="keep")
    process.until_output(b"before\n")
    quick = guest.sh_start("sleep 1001")
    os.kill(guest.daemon(), signal.SIGKILL)
    with pytest.raises((AssertionError, OSError, http.client.HTTPException)):
        process.wait()
    listed = {p["pid"]: p for p in until(lambda: listed_or_none(guest))}
    assert sorted(listed) == sorted([process.pid, quick.pid])  # its first answer is whole
    assert listed[process.pid]["tag"] == "keep"
    assert listed[quick.pid]["config"]["cmd"] in ("/bin/bash", "sleep")
    again = guest.connect(process.pid)
    guest.sh("touch /mnt/after", user="root")
    again.until_output(b"after\n")
    for pid in (process.pid, quick.pid):
        guest.rpc("SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"})
    assert again.wait()["end"]["status"] == "signal: killed"
    until(lambda: guest.pids() == [])
    assert guest.sh("echo $E2B_SANDBOX_ID")["stdout"] == b"itest\n"  # and it knows who it is


def test_identity_outlives_a_crash_right_after_the_claim(build_dir, tmp_path):
    """PID 1 stands still until the daemon that told it the identity is dead."""
    guest = Guest(build_dir, tmp_path, next(PORTS))
    try:
        os.kill(guest.init_pid, signal.SIGSTOP)
        while len(guest.processes()) < 2:  # in steps until it has forked the daemon: hello and identity then wait for it
            os.kill(guest.init_pid, signal.SIGCONT)
            os.kill(guest.init_pid, signal.SIGSTOP)
        guest.claim()
        until(guest.answers)
        os.kill(guest.daemon(), signal.SIGKILL)
        os.kill(guest.init_pid, signal.SIGCONT)
        until(guest.answers)
        assert guest.sh("echo $E2B_SANDBOX_ID")["stdout"] == b"itest\n"
    finally:
        guest.stop()


def test_daemon_crashing_again_and_again_comes_back(guest):
    process = guest.start("sleep", "1000")
    for _ in range(4):
        os.kill(until(lambda: guest.daemon_or_none()), signal.SIGKILL)
        until(lambda: guest.answers())
    assert guest.pids() == [process.pid]


def test_killed_supervisor_does_not_hide_the_end(guest):
    process = guest.start("sleep", "3")
    (supervisor,) = [host for pid, (name, host) in guest.processes().items() if name == "abx-supervisor"]
    os.kill(supervisor, signal.SIGKILL)
    assert process.wait()["end"]["status"] == "exit status 0"


def test_kill_everything_as_root_leaves_a_working_sandbox(guest):
    guest.sh_start("sleep 1000")
    try:
        guest.sh("kill -9 -1", user="root")
    except (AssertionError, OSError, http.client.HTTPException):
        pass
    until(lambda: guest.answers())
    until(lambda: guest.names() == ["abx-guest", "abx-guest"])
    assert guest.run("echo", "alive")["stdout"] == b"alive\n"


# --- size ---------------------------------------------------------------------------------------


def test_idle_memory(guest):
    for _ in range(50):
        guest.run("true")
    guest.http("POST", "/files?path=x", b"x" * (1 << 20), OCTETS)
    guest.http("GET", "/files?path=x")
    assert guest.is_sanitized() or until(lambda: guest.daemon_memory() < 1 << 20)
