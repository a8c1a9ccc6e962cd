"""What a sandbox used and what happened to it, on a real service: plain HTTP, the official clients, `abx`, the package."""

import datetime
import json
import os
import subprocess
import time

import pytest
from cli_kit import Cli
from envd import Envd
from pause_kit import service  # noqa: F401 (fixtures)
from waiting import until

KEYS = {"timestamp", "timestampUnix", "cpuCount", "cpuUsedPct", "memUsed", "memTotal", "memCache", "diskUsed", "diskTotal"}
MIB = 1 << 20


def get(service, path, expect=200):
    status, _, answer = service.request("GET", path)
    assert status == expect, (status, answer)
    return answer


def metrics(service, box, query=""):
    return get(service, f"/sandboxes/{box['sandboxID']}/metrics{query}")


def check(samples):
    """Whatever was done to the sandbox, this holds."""
    times = [m["timestampUnix"] for m in samples]
    assert times == sorted(set(times)) and all(t % 5 == 0 for t in times)
    for m in samples:
        assert set(m) == KEYS
        assert 0 <= m["cpuUsedPct"] <= 100 and m["cpuCount"] >= 1
        assert 0 <= m["memUsed"] <= m["memTotal"] and 0 <= m["memCache"] <= m["memTotal"]
        assert 0 <= m["diskUsed"] and (m["diskUsed"] <= m["diskTotal"] or m["diskTotal"] == 0)
        assert time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(m["timestampUnix"])) == m["timestamp"][:19]


@pytest.mark.slow
def test_metrics_of_a_life(service):
    begin = int(time.time())
    box = service.create(timeout=600)
    envd = Envd(service, box)
    envd.sh("head -c 64M /dev/zero > /dev/shm/held; nohup sh -c 'while :; do :; done' > /dev/null 2>&1 &")
    first = until(lambda: metrics(service, box))[0]
    assert begin <= first["timestampUnix"]
    until(lambda: any(m["cpuUsedPct"] > 2 for m in metrics(service, box)))
    full = until(lambda: [m for m in metrics(service, box) if m["memUsed"] >= 64 * MIB])
    assert full[0]["memTotal"] == 1024 * MIB and full[0]["cpuCount"] == 2 and full[0]["diskTotal"] in (0, 10240 * MIB)

    samples = metrics(service, box)
    check(samples)
    last = samples[-1]["timestampUnix"]
    assert metrics(service, box, f"?start={begin - 100}&end={begin - 10}") == []
    assert metrics(service, box, f"?start={last}&end={last}") == [samples[-1]]
    assert metrics(service, box, f"?end={last}") == samples
    assert metrics(service, box, f"?start={last + 3600}") == []
    for query, part in (("start=x", "Invalid start"), ("end=-1", "Invalid end"), ("start=9&end=3", "after end"), ("end=1e9", "Invalid end")):
        assert part in get(service, f"/sandboxes/{box['sandboxID']}/metrics?{query}", 400)["message"]
    assert get(service, "/sandboxes/inosuchone0/metrics", 404)

    # Paused there is nothing to measure, and a start anew does not go below zero.
    assert service.request("POST", f"/sandboxes/{box['sandboxID']}/pause", {"memory": False})[0] == 204
    paused = metrics(service, box)
    assert service.request("POST", f"/sandboxes/{box['sandboxID']}/connect", {"timeout": 600})[0] == 201
    until(lambda: len(metrics(service, box)) > len(paused))
    check(metrics(service, box))
    # What was measured is there after its end, for a while.
    known = metrics(service, box)
    assert service.kill(box["sandboxID"]) == 204
    assert metrics(service, box)[: len(known)] == known


def test_metrics_of_several(service):
    boxes = [service.create(timeout=600) for _ in range(2)]
    ids = [b["sandboxID"] for b in boxes]

    def asked(*which):
        return get(service, f"/sandboxes/metrics?sandbox_ids={','.join(which)}")["sandboxes"]

    found = until(lambda: (a := asked(*ids, ids[0], "inosuchone0")) and set(a) == set(ids) and a)
    check([found[ids[0]]])
    assert set(asked(ids[1])) == {ids[1]}
    assert asked("inosuchone0") == {}
    assert "sandbox_ids is missing" in get(service, "/sandboxes/metrics", 400)["message"]
    assert "Invalid sandbox ID" in get(service, "/sandboxes/metrics?sandbox_ids=A", 400)["message"]
    assert "over 100" in get(service, "/sandboxes/metrics?sandbox_ids=" + ",".join(["iabc"] * 101), 400)["message"]
    for box in boxes:
        assert service.kill(box["sandboxID"]) == 204
    assert asked(*ids) == {}


@pytest.mark.slow
def test_metrics_after_crashes(service):
    box = service.create(timeout=600)
    known = until(lambda: metrics(service, box))
    for role in ("abx-control", "abx-engine"):
        old = service.roles()[role]
        for pid in old:
            os.kill(pid, 9)
        until(lambda role=role, old=old: (now := service.roles().get(role)) and not set(now) & set(old))
        fresh = until(lambda: (m := metrics(service, box)) and len(m) > len(known) and m)
        assert fresh[: len(known)] == known
        check(fresh)
        known = fresh
    assert service.kill(box["sandboxID"]) == 204


def client_env(service, home, tools_dir):
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("E2B_", "ABX_", "SANDBOX_"))}
    return {**keep, **service.client_env(), "HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1", "NO_COLOR": "1",
            "PATH": f"{tools_dir / 'bin'}:{keep['PATH']}"}


def e2b_cli(service, tools_dir, home, *args, timeout=60):
    run = subprocess.run([tools_dir / "bin/node", tools_dir / "node/node_modules/.bin/e2b", *args], cwd=home, timeout=timeout,
                         env=client_env(service, home, tools_dir), capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert run.returncode == 0, run.stderr
    return run.stdout


SDK = """
import datetime, sys
from e2b import Sandbox
box = Sandbox.connect(sys.argv[1])
all = box.get_metrics()
one = all[0]
assert one.cpu_count == 2 and 0 <= one.cpu_used_pct <= 100 and one.mem_total == 1 << 30 and one.mem_used > 0, one
assert one.disk_used >= 0 and one.mem_cache >= 0 and one.timestamp.tzinfo
assert Sandbox.get_metrics(sys.argv[1], start=one.timestamp, end=one.timestamp)[0].timestamp == one.timestamp
before = one.timestamp - datetime.timedelta(hours=1)
assert box.get_metrics(start=before - datetime.timedelta(hours=1), end=before) == []
print(len(all))
"""


def test_metrics_by_clients(service, build_dir, tools_dir, tmp_path):
    box = service.create(timeout=600)
    sandbox = box["sandboxID"]
    until(lambda: metrics(service, box))
    run = subprocess.run([tools_dir / "py/bin/python", "-c", SDK, sandbox], env=client_env(service, tmp_path, tools_dir),
                         capture_output=True, text=True, timeout=60)
    assert run.returncode == 0 and int(run.stdout) >= 1, run.stderr
    assert "CPU" in e2b_cli(service, tools_dir, tmp_path, "sandbox", "metrics", sandbox)
    cli = Cli(build_dir, tmp_path, service.client_env())
    shown = cli.json("sandbox", "metrics", sandbox)
    assert shown and shown[0]["memTotal"] == 1 << 30 and shown[0]["cpuCount"] == 2
    assert cli.text("sandbox", "metrics", sandbox, "--limit", "1").count("\n") == 1
    assert cli.run("sandbox", "metrics", "inosuchone0")[0] != 0
    assert service.kill(sandbox) == 204


# ---- logs ----


def logs(service, box, query="", version="/v2"):
    return get(service, f"{version}/sandboxes/{box['sandboxID']}/logs{query}")


def messages(service, box, query=""):
    return [e["message"] for e in logs(service, box, query)["logs"]]


def test_logs_of_a_life(service):
    box = service.create(timeout=600)
    sandbox = box["sandboxID"]
    assert service.request("POST", f"/sandboxes/{sandbox}/pause")[0] == 204
    assert service.request("POST", f"/sandboxes/{sandbox}/connect", {"timeout": 600})[0] == 201
    assert messages(service, box) == ["Sandbox created", "Sandbox paused", "Sandbox resumed"]
    entries = logs(service, box)["logs"]
    for e in entries:
        assert set(e) == {"timestamp", "message", "level", "fields"} and e["level"] == "info"
        assert e["fields"]["logger"] == "lifecycle" and all(isinstance(v, str) for v in e["fields"].values())
    first = logs(service, box, version="")
    assert first["logEntries"] == entries and [x["timestamp"] for x in first["logs"]] == [e["timestamp"] for e in entries]
    for line, e in zip(first["logs"], entries):
        assert json.loads(line["line"]) == {**e["fields"], **{k: e[k] for k in ("level", "message", "timestamp")}}

    # Pages, both ways: a cursor belongs to its page.
    def at(entry):
        whole = datetime.datetime.fromisoformat(entry["timestamp"].replace("Z", "+00:00"))
        return round(whole.timestamp() * 1000)

    last = at(entries[-1])
    assert messages(service, box, "?limit=2") == ["Sandbox created", "Sandbox paused"]
    assert messages(service, box, f"?cursor={at(entries[1])}") == ["Sandbox paused", "Sandbox resumed"]
    assert messages(service, box, "?direction=backward&limit=2") == ["Sandbox resumed", "Sandbox paused"]
    assert messages(service, box, f"?direction=backward&cursor={at(entries[1])}") == ["Sandbox paused", "Sandbox created"]
    assert messages(service, box, f"?cursor={last + 1}") == []
    assert [json.loads(x["line"])["message"] for x in logs(service, box, f"?start={last}", "")["logs"]] == ["Sandbox resumed"]
    assert messages(service, box, "?search=PAUS") == ["Sandbox paused"] and messages(service, box, "?search=%25") == []
    assert len(messages(service, box, "?level=debug")) == 3 and messages(service, box, "?level=warn") == []
    for query, part in (("limit=0", "limit"), ("limit=1001", "limit"), ("cursor=x", "cursor"), ("level=loud", "level"),
                        ("direction=up", "direction"), ("search=" + "x" * 257, "search")):
        assert f"Invalid {part}" in get(service, f"/v2/sandboxes/{sandbox}/logs?{query}", 400)["message"]
    for version in ("", "/v2"):
        get(service, f"{version}/sandboxes/inosuchone0/logs", 404)
    assert service.kill(sandbox) == 204
    assert logs(service, box)["logs"][-1]["message"] == "Sandbox killed"
    assert logs(service, box)["logs"][-1]["fields"]["reason"] == "request"


DIAL = "import socket; s = socket.socket(); s.settimeout(5); s.connect(('{}', {}))"


FLOOD_CONNECTIONS = 900
FLOOD = f"""
import socket
for i in range({FLOOD_CONNECTIONS}):
    s = socket.socket()
    try:
        s.connect(('198.51.100.7', 82))
    except OSError:
        pass
    s.close()
"""


def test_denials_are_lines_with_rule_and_reason(service):
    box = service.create(timeout=600, network={"denyOut": ["198.51.100.7/32"]})
    envd = Envd(service, box)
    envd.sh(f"python3 -c \"{DIAL.format('198.51.100.7', 81)}\" 2>&1; python3 -c \"{DIAL.format('169.254.169.254', 80)}\" 2>&1; true")
    lines = until(lambda: (found := [e for e in logs(service, box, "?level=warn")["logs"]]) and len(found) >= 2 and found)
    assert all(e["fields"]["logger"] == "egress" and e["fields"]["reason"] and e["message"].startswith("Denied: ") for e in lines)
    by_target = {e["fields"]["to"]: e["fields"] for e in lines}
    assert by_target["198.51.100.7:81"]["rule"] == "denyOut 198.51.100.7/32"
    assert "169.254.169.254:80" in by_target
    assert messages(service, box, "?search=169.254") != []
    # Bounded: a sandbox that dials without end writes a few lines a second, one of which says how many are missing.
    envd.sh(f"python3 -c \"{FLOOD}\"", timeout=120)
    until(lambda: any(e["fields"].get("to") == "198.51.100.7:82" for e in logs(service, box)["logs"]))
    assert len(logs(service, box)["logs"]) < FLOOD_CONNECTIONS / 2
    assert service.kill(box["sandboxID"]) == 204
    assert any("Denied" in m for m in messages(service, box))


def test_logs_survive_control(service):
    box = service.create(timeout=600)
    before = logs(service, box)
    (pid,) = service.roles()["abx-control"]
    os.kill(pid, 9)
    until(lambda: service.roles().get("abx-control", [pid]) != [pid])
    assert logs(service, box) == before
    assert service.kill(box["sandboxID"]) == 204


def test_logs_by_clients(service, build_dir, tools_dir, tmp_path):
    box = service.create(timeout=600)
    sandbox = box["sandboxID"]
    shown = e2b_cli(service, tools_dir, tmp_path, "sandbox", "logs", sandbox)
    assert "Sandbox created" in shown and "INFO" in shown
    assert "Sandbox created" not in e2b_cli(service, tools_dir, tmp_path, "sandbox", "logs", sandbox, "--level", "WARN")
    cli = Cli(build_dir, tmp_path, service.client_env())
    assert [e["message"] for e in cli.json("sandbox", "logs", sandbox)] == ["Sandbox created"]
    assert cli.json("sandbox", "logs", sandbox, "--level", "error") == []
    # Follows until the sandbox is gone, and sees its end.
    follower = cli.popen("sandbox", "logs", "-f", sandbox)
    official = subprocess.Popen([tools_dir / "bin/node", tools_dir / "node/node_modules/.bin/e2b", "sandbox", "logs", "-f", sandbox],
                                cwd=tmp_path, env=client_env(service, tmp_path, tools_dir), text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    try:
        assert b"Sandbox created" in follower.stdout.readline()
        line = official.stdout.readline()
        while "Sandbox created" not in line:
            line = official.stdout.readline()
            assert line
        assert service.request("POST", f"/sandboxes/{sandbox}/timeout", {"timeout": 500})[0] == 204
        assert b"Sandbox updated" in follower.stdout.readline()
        while "Sandbox updated" not in line:
            line = official.stdout.readline()
            assert line
        assert service.kill(sandbox) == 204
        assert b"Sandbox killed" in follower.communicate(timeout=60)[0] and follower.returncode == 0
        official.communicate(timeout=60)
    finally:
        for p in (follower, official):
            p.kill()
            p.wait()
