"""What a sandbox used and what happened to it, on a real service: plain HTTP, the official clients, `abx`, the package."""

import os
import subprocess
import time

import pytest
from cli_kit import Cli
from envd import Envd
from service import Service

KEYS = {"timestamp", "timestampUnix", "cpuCount", "cpuUsedPct", "memUsed", "memTotal", "memCache", "diskUsed", "diskTotal"}
MIB = 1 << 20


@pytest.fixture(scope="module")
def service(build_dir, base_template):
    with Service(build_dir) as s:
        yield s
        for box in s.request("GET", "/v2/sandboxes")[2]:
            s.kill(box["sandboxID"])
        assert s.audit() == []


def until(condition, timeout=60):
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.1)
    return value


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
    assert begin <= first["timestampUnix"] <= begin + 5 or len(metrics(service, box)) > 1
    until(lambda: any(m["cpuUsedPct"] > 20 for m in metrics(service, box)))
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
