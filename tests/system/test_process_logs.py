"""Which processes clients start and how they end, as lines of the sandbox's logs: on a real service, by plain HTTP and by the
official command line; what a hostile sandbox can say there."""

import json
import os
import subprocess
import threading

import pytest
from cli_kit import Cli
from envd import Envd, EnvdError
from pause_kit import service  # noqa: F401 (fixtures)
from test_observe import client_env, e2b_cli, logs
from waiting import until


def lines(service, box, event=None, **fields):
    """Lines about processes, oldest first; of one kind and with some fields alone."""
    found = [e for e in logs(service, box)["logs"] if e["fields"]["logger"] == "process"]
    return [e for e in found if (event is None or e["fields"]["event"] == event)
            and all(e["fields"].get(k) == v for k, v in fields.items())]


def one(service, box, event, **fields):
    return until(lambda: lines(service, box, event, **fields))[0]


def started(service, box, script):
    """The line of `/bin/bash -c script`."""
    return until(lambda: [x for x in lines(service, box, "process.start") if json.loads(x["fields"]["args"]) == ["-c", script]])[0]


def test_start_and_end(service):
    box = service.create(timeout=600, envVars={"OF_THE_SANDBOX": "hidden-value"})
    envd = Envd(service, box)
    script = "exit 3 # https://user:password@host.example/x"
    assert envd.run(script, envs={"OF_THE_COMMAND": "hidden-value"})[0] == 3
    begun = one(service, box, "process.start")
    ended = one(service, box, "process.end")
    shown = "exit 3 # https://***@host.example/x"
    pid = begun["fields"]["pid"]
    assert begun["fields"] == {"logger": "process", "origin": "sandbox", "event": "process.start", "pid": pid, "cmd": "/bin/bash",
                               "args": f'["-c","{shown}"]', "user": "user"}
    assert begun["level"] == "info" and begun["message"] == f"Process {pid} started: /bin/bash -c {shown}"
    assert int(pid) > 1 and int(ended["fields"].pop("duration_ms")) < 30000
    assert ended["fields"] == {"logger": "process", "origin": "sandbox", "event": "process.end", "pid": pid, "cmd": "/bin/bash",
                               "exit_code": "3", "status": "exit status 3"}
    assert ended["message"] == f"Process {pid} ended: exit status 3"
    assert "hidden" not in json.dumps(logs(service, box)) and "password" not in json.dumps(logs(service, box))
    # The first version has the same, as JSON text.
    first = [json.loads(x["line"]) for x in logs(service, box, version="")["logs"]]
    assert any(x["logger"] == "process" and x["event"] == "process.end" and x["level"] == "info" and x["pid"] == pid for x in first)

    # Another user, a long command line, one over several lines with what a terminal would obey.
    Envd(service, box, user="root").sh("true")
    assert one(service, box, "process.start", user="root")
    envd.run("x" * 50000)
    long = until(lambda: [x for x in lines(service, box, "process.start") if "xxx..." in x["fields"]["args"]])[0]
    assert len(long["message"]) <= 512 and len(long["fields"]["args"]) <= 512
    envd.run("true\n# \x1b[31m\u009b1m")
    odd = started(service, box, "true\n# \x1b[31m\u009b1m")
    assert odd["message"].endswith("/bin/bash -c true #  [31m  1m"), odd
    # A command that does not start is none.
    with pytest.raises(EnvdError):
        envd.run("", cmd="/no/such/program", args=[])
    envd.sh("true")
    until(lambda: len(lines(service, box, "process.end")) >= 5)
    assert not any("no/such" in x["message"] for x in lines(service, box))
    assert service.kill(box["sandboxID"]) == 204


def test_all_kinds_of_processes(service):
    box = service.create(timeout=600)
    envd = Envd(service, box)
    # Its time is over.
    with pytest.raises(EnvdError):
        envd.run("sleep 300", timeout=1)
    ended = one(service, box, "process.end", timed_out="true")
    assert ended["level"] == "warn" and ended["fields"]["status"] == "signal: killed" and ended["fields"]["exit_code"] == "-1"
    # Its client left; its end is told all the same.
    message = {"process": {"cmd": "/bin/bash", "args": ["-c", "until [ -e /tmp/go ]; do sleep 0.05; done; exit 7"]}, "stdin": False}
    stream = envd.stream("process.Process/Start", message)
    pid = str(next(stream)["event"]["start"]["pid"])
    stream.close()
    envd.sh("touch /tmp/go")
    assert one(service, box, "process.end", pid=pid)["fields"]["exit_code"] == "7"
    # With a terminal, killed by its client.
    stream = envd.stream("process.Process/Start", {"process": {"cmd": "/bin/cat"}, "pty": {"size": {"cols": 80, "rows": 24}}})
    pid = next(stream)["event"]["start"]["pid"]
    assert one(service, box, "process.start", pid=str(pid))["fields"]["args"] == "[]"
    envd.unary("process.Process/SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"})
    assert one(service, box, "process.end", pid=str(pid))["fields"]["status"] == "signal: killed"
    stream.close()
    # The daemon was killed meanwhile: its successor tells the end, without what it cannot know.
    stream = envd.stream("process.Process/Start", {"process": {"cmd": "/bin/sleep", "args": ["1000"]}, "stdin": False})
    pid = next(stream)["event"]["start"]["pid"]
    assert one(service, box, "process.start", pid=str(pid))
    kill_daemon(service, box)
    stream.close()
    until(lambda: still_there(envd, pid))
    envd.unary("process.Process/SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGTERM"})
    ended = one(service, box, "process.end", pid=str(pid))
    assert ended["fields"]["status"] == "signal: terminated" and "duration_ms" not in ended["fields"] and "cmd" not in ended["fields"]
    # After a pause of either kind.
    for memory in (True, False):
        assert service.request("POST", f"/sandboxes/{box['sandboxID']}/pause", {"memory": memory})[0] == 204
        assert service.request("POST", f"/sandboxes/{box['sandboxID']}/connect", {"timeout": 600})[0] == 201
        envd.sh(f"true {memory}")
        assert started(service, box, f"true {memory}")
    # What ended just before the kill is told; what ran then ends with the sandbox.
    envd.sh("true last")
    assert service.kill(box["sandboxID"]) == 204
    pid = started(service, box, "true last")["fields"]["pid"]
    assert lines(service, box, "process.end", pid=pid)
    assert logs(service, box, "?search=killed")["logs"][-1]["message"] == "Sandbox killed"


def kill_daemon(service, box):
    """Its client's connection goes with it."""
    with pytest.raises((EnvdError, ConnectionError, OSError)):
        Envd(service, box, user="root").run("pkill -9 -f '^abx-guest daemon'; sleep 100")


def still_there(envd, pid):
    try:
        return any(p["pid"] == pid for p in envd.unary("process.Process/List", {}).get("processes", []))
    except (EnvdError, OSError):
        return False


def test_follow_with_the_clients(service, build_dir, tools_dir, tmp_path):
    box = service.create(timeout=600)
    sandbox = box["sandboxID"]
    envd = Envd(service, box)
    envd.sh("echo first")
    started(service, box, "echo first")
    shown = e2b_cli(service, tools_dir, tmp_path, "sandbox", "logs", sandbox)
    assert "started: /bin/bash -c echo first" in shown and "INFO" in shown and "sandbox" in shown.split("origin")[1]
    assert "Process" not in e2b_cli(service, tools_dir, tmp_path, "sandbox", "logs", sandbox, "--loggers", "lifecycle")
    as_json = e2b_cli(service, tools_dir, tmp_path, "sandbox", "logs", sandbox, "--format", "json")
    assert "process.start" in as_json
    official = subprocess.Popen([tools_dir / "bin/node", tools_dir / "node/node_modules/.bin/e2b", "sandbox", "logs", "-f", sandbox],
                                cwd=tmp_path, env=client_env(service, tmp_path, tools_dir), text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    follower = Cli(build_dir, tmp_path, service.client_env()).popen("sandbox", "logs", "-f", sandbox)
    limit = threading.Timer(120, lambda: (official.kill(), follower.kill()))
    limit.start()
    try:
        for stream in (official.stdout, follower.stdout):
            while "echo first" not in (line := text(stream.readline())):
                assert line
        envd.sh("echo second")
        for stream in (official.stdout, follower.stdout):
            seen = ""
            while "echo second" not in seen or "ended: exit status 0" not in seen.split("echo second")[-1]:
                assert (line := text(stream.readline()))
                seen += line
        assert service.kill(sandbox) == 204
        official.communicate(timeout=60)
        assert b"Sandbox killed" in follower.communicate(timeout=60)[0]
    finally:
        limit.cancel()
        for p in (official, follower):
            p.kill()
            p.wait()


def text(line):
    return line if isinstance(line, str) else line.decode()


# ---- what a sandbox can say there ----

SEND = """
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.connect(b'\\0abx-report')
for i in range(int(sys.argv[2])):
    s.send(bytes.fromhex(sys.argv[1]))
"""


def report(**line):
    """A GuestReport with one line, as protobuf: field numbers of schema/ipc.proto."""
    body = b""
    for number, key in enumerate(("is_end", "pid", "cmd", "args", "user", "status"), 1):
        if (value := line.get(key)) is None:
            continue
        raw = value.encode() if isinstance(value, str) else None
        body += bytes([number << 3 | 2, len(raw)]) + raw if raw is not None else bytes([number << 3, value])
    return (b"\x08\x01" + b"\x12" + bytes([len(body)]) + body).hex()


def test_forged_lines_say_whose_word_they_are(service):
    box = service.create(timeout=600)
    envd, root = Envd(service, box), Envd(service, box, user="root")
    envd.write("/tmp/send.py", SEND.encode())
    # Only root may: nothing of what others send is looked at.
    envd.sh(f"python3 /tmp/send.py {report(pid=66, cmd='by-a-user')} 5")
    forged = report(pid=77, cmd="forged\x1b[31m", args="--x", user="nobody")
    root.sh(f"python3 /tmp/send.py {forged} 1")
    line = one(service, box, "process.start", pid="77")
    assert line["fields"]["origin"] == "sandbox" and line["message"] == "Process 77 started: forged [31m --x"
    assert lines(service, box, pid="66") == []
    # What is no report, or too long, is counted; lines of others go on.
    root.sh("python3 /tmp/send.py ffff 3; python3 /tmp/send.py '" + "00" * 20000 + "' 2")
    dropped = one(service, box, "process.dropped")
    assert dropped["level"] == "warn" and dropped["message"] == f"{dropped['fields']['dropped']} lines about processes dropped"
    # Without end: bounded, counted, and other sandboxes have their lines meanwhile.
    other = service.create(timeout=600)
    stream = root.stream("process.Process/Start", {"process": {"cmd": "/usr/bin/python3", "args": ["/tmp/send.py", forged, "1000000000"]},
                                                   "stdin": False}, timeout=300)
    pid = next(stream)["event"]["start"]["pid"]
    until(lambda: len(lines(service, box, pid="77")) > 100)
    Envd(service, other).sh("echo meanwhile")
    started(service, other, "echo meanwhile")
    seen = len(lines(service, box, "process.dropped"))
    until(lambda: len(lines(service, box, "process.dropped")) > seen + 2)
    root.unary("process.Process/SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"})
    stream.close()
    assert len(lines(service, box)) < 900
    until(lambda: root.sh("echo again") and [x for x in lines(service, box, "process.start") if "echo again" in x["fields"]["args"]])
    for b in (box, other):
        assert service.kill(b["sandboxID"]) == 204


SQUAT = """
import socket, time
while True:
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        s.bind(b'\\0abx-report')
        break
    except OSError:
        time.sleep(0.001)
print('have it', flush=True)
time.sleep(1000)
"""


def test_lines_when_egress_was_restarted(service):
    box = service.create(timeout=600)
    envd = Envd(service, box)
    (pid,) = service.roles()["abx-egress"]
    os.kill(pid, 9)
    envd.sh("echo while it is away")
    until(lambda: service.roles().get("abx-egress", [pid]) != [pid])
    started(service, box, "echo while it is away")
    envd.sh("echo afterwards")
    started(service, box, "echo afterwards")

    # A sandbox that sits on the name harms itself alone: it has its network, and others have their lines.
    envd.write("/tmp/squat.py", SQUAT.encode())
    stream = envd.stream("process.Process/Start", {"process": {"cmd": "/usr/bin/python3", "args": ["/tmp/squat.py"]}, "stdin": False},
                         timeout=120)
    next(stream)
    (pid,) = service.roles()["abx-egress"]
    os.kill(pid, 9)
    assert "data" in next(stream)["event"]
    until(lambda: service.roles().get("abx-egress", [pid]) != [pid])
    other = service.create(timeout=600)
    Envd(service, other).sh("echo another")
    started(service, other, "echo another")
    until(lambda: "cannot report its processes" in service.logged())
    # Answered by egress, if only with a refusal: it has its way out.
    envd.run("python3 -c \"import socket; socket.create_connection(('169.254.169.254', 80), 5)\"")
    until(lambda: any("169.254.169.254" in e["message"] for e in logs(service, box)["logs"]))
    stream.close()
    for b in (box, other):
        assert service.kill(b["sandboxID"]) == 204
