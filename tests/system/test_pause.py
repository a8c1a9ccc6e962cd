"""Pause and resume on a real service, with plain HTTP: what is kept, what clients see, what crashes leave."""

import base64
import hashlib
import json
import os
import signal
import threading
import time
from urllib.parse import urlencode

import processes
import pytest
from envd import Envd
from service import Service


@pytest.fixture(scope="module")
def service(build_dir, base_template):
    with Service(build_dir) as s:
        yield s
        for box in s.request("GET", "/v2/sandboxes")[2]:
            s.kill(box["sandboxID"])
        assert s.audit() == []


def until(condition, timeout=30):
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.05)
    return value


def post(service, box, what, body=None, expect=204):
    status, _, answer = service.request("POST", f"/sandboxes/{box['sandboxID']}/{what}", body)
    assert status == expect, (status, answer)
    return answer


def detail(service, box):
    status, _, answer = service.request("GET", f"/sandboxes/{box['sandboxID']}")
    assert status == 200, answer
    return answer


def listed(service, query=""):
    return [b["sandboxID"] for b in service.request("GET", f"/v2/sandboxes{query}")[2]]


def health(service, box):
    """Status and decoded body of GET /health, as clients ask whether it runs."""
    return service.request("GET", "/health", headers={**Envd(service, box).headers, "X-API-Key": ""})[::2]


def signed_read(service, box, path, expiration):
    """Status and body of a read of a file by a signed URL."""
    text = f"{path}:read::{box['envdAccessToken']}:{expiration}"
    signature = "v1_" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
    query = urlencode({"path": path, "signature": signature, "signature_expiration": expiration})
    headers = {k: v for k, v in Envd(service, box).headers.items() if k.lower() != "x-access-token"}
    return service.request("GET", f"/files?{query}", headers=headers)[::2]


COUNTER = "i=0; while :; do echo $i > /tmp/count; i=$((i+1)); sleep 0.05; done"


def test_a_pause_keeps_processes_files_and_memory(service):
    box = service.create(timeout=300)
    envd, sandbox = Envd(service, box), box["sandboxID"]
    stream = envd.stream("process.Process/Start", {"process": {"cmd": "/bin/bash", "args": ["-c", COUNTER]}, "stdin": False}, 120)
    pid = next(stream)["event"]["start"]["pid"]
    boot = envd.sh("cat /proc/sys/kernel/random/boot_id; : > /dev/shm/here; echo kept > /tmp/file")
    post(service, box, "pause")
    with pytest.raises((ConnectionError, OSError)):
        next(stream)
    assert (detail(service, box)["state"], detail(service, box)["pauseMode"]) == ("paused", "full")
    assert sandbox in listed(service, "?state=paused") and sandbox in listed(service)
    assert sandbox not in listed(service, "?state=running")
    assert health(service, box) == (502, {"sandboxId": sandbox, "message": "The sandbox was not found", "code": 502})
    answer = post(service, box, "pause", {}, 409)
    assert answer["message"] == f"Error pausing sandbox - sandbox '{sandbox}' is already paused"
    assert post(service, box, "timeout", {"timeout": 60}, 404) and post(service, box, "refreshes", {"duration": 60}, 404)

    made = post(service, box, "connect", {"timeout": 60}, 201)
    assert made["sandboxID"] == sandbox and made["envdAccessToken"] == box["envdAccessToken"]
    assert detail(service, box)["state"] == "running" and "pauseMode" not in detail(service, box)
    assert health(service, box)[0] == 204
    before = int(envd.sh("cat /tmp/count") or 0)
    until(lambda: int(envd.sh("cat /tmp/count") or 0) > before)
    assert envd.sh("cat /proc/sys/kernel/random/boot_id; cat /tmp/file; ls /dev/shm") == boot + "kept\nhere\n"
    assert str(pid) in [str(p["pid"]) for p in envd.unary("process.Process/List", {})["processes"]]
    assert post(service, box, "resume", {"timeout": 60}, 409)["message"] == f"Sandbox {sandbox} is already running"
    assert post(service, box, "connect", {"timeout": 60}, 200)
    assert service.kill(sandbox) == 204


def test_without_memory_it_starts_anew_with_its_files(service):
    box = service.create(timeout=300, envVars={"FROM_CREATE": "still there"})
    envd, sandbox = Envd(service, box), box["sandboxID"]
    boot = envd.sh("cat /proc/sys/kernel/random/boot_id; mkdir -p /tmp/a/b; echo kept > /tmp/a/b/file; ln -s b /tmp/a/link; nohup sleep 1000 >&- 2>&- &")
    envd.write("/home/user/blob", os.urandom(1 << 20))
    blob = envd.read("/home/user/blob")
    post(service, box, "pause", {"memory": False})
    assert detail(service, box)["pauseMode"] == "filesystem"
    assert health(service, box)[0] == 502
    post(service, box, "resume", {"timeout": 60}, 201)
    assert envd.sh("cat /proc/sys/kernel/random/boot_id") not in boot
    assert envd.sh("cat /tmp/a/link/file; echo $FROM_CREATE") == "kept\nstill there\n"
    assert envd.read("/home/user/blob") == blob and "sleep" not in envd.sh("ps -e -o comm")
    # Full, and then the memory is not wanted any more.
    envd.sh("echo two > /tmp/second; nohup sleep 1000 >&- 2>&- &")
    post(service, box, "pause", {"memory": True})
    post(service, box, "connect", {"timeout": 60, "memory": False}, 201)
    assert "sleep" not in envd.sh("ps -e -o comm") and envd.sh("cat /tmp/second") == "two\n"
    events = service.request("GET", f"/events/sandboxes/{sandbox}?orderAsc=true")[2]
    assert [(e["type"].rsplit(".", 1)[1], e["eventData"].get("mode")) for e in events] == [
        ("created", None), ("paused", "filesystem"), ("resumed", "filesystem"), ("paused", "full"), ("resumed", "filesystem")]
    assert {s["name"] for s in events[1]["eventData"]["stages"]} >= {"draining", "freezing"}
    assert service.kill(sandbox) == 204


def test_a_resume_says_how_it_ends_next_time(service):
    box = service.create(timeout=300)
    assert detail(service, box)["lifecycle"] == {"autoResume": False, "onTimeout": "kill"}
    post(service, box, "pause")
    assert "'autoPause' has to be" in post(service, box, "resume", {"autoPause": 1}, 400)["message"]
    post(service, box, "resume", {"timeout": 1, "autoPause": True}, 201)
    assert detail(service, box)["lifecycle"] == {"autoResume": False, "onTimeout": "pause"}
    until(lambda: detail(service, box)["state"] == "paused")
    # Not said: as it was; and rules that come meanwhile do not undo it.
    assert service.request("PUT", f"/sandboxes/{box['sandboxID']}/network", {"denyOut": ["1.2.3.4/32"]})[0] == 204
    post(service, box, "resume", {"timeout": 1}, 201)
    until(lambda: detail(service, box)["state"] == "paused")
    assert detail(service, box)["network"]["denyOut"] == ["1.2.3.4/32"]
    post(service, box, "resume", {"timeout": 300, "autoPause": False}, 201)
    assert detail(service, box)["lifecycle"]["onTimeout"] == "kill" and detail(service, box)["network"]["denyOut"] == ["1.2.3.4/32"]
    post(service, box, "timeout", {"timeout": 1})
    until(lambda: box["sandboxID"] not in listed(service))


def test_its_time_is_over_and_traffic_wakes_it(service):
    box = service.create(timeout=1, autoPause=True, autoResume={"enabled": True}, metadata={"kind": "sleepy"})
    envd, sandbox = Envd(service, box), box["sandboxID"]
    assert detail(service, box)["lifecycle"] == {"autoResume": True, "onTimeout": "pause"}
    until(lambda: detail(service, box)["state"] == "paused")
    # Nobody wakes it without the token; with it, or with a signature, the request finds it running.
    for token in ("", "wrong"):
        status, _, answer = service.request("GET", "/files?path=/etc/hostname", headers={**envd.headers, "X-Access-Token": token})
        assert (status, answer["message"]) == (403, "This sandbox can't be resumed with the credentials provided. "
                                                    "Check your access token and try again.")
    past, coming = int(time.time()) - 5, int(time.time()) + 600
    assert signed_read(service, box, "/etc/hostname", past)[0] == 403
    assert detail(service, box)["state"] == "paused"
    assert signed_read(service, box, "/etc/hostname", coming) == (200, sandbox.encode() + b"\n")
    post(service, box, "pause")
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(envd.read("/etc/hostname"))) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert answers == [sandbox.encode() + b"\n"] * 8
    assert detail(service, box)["state"] == "running"
    types = [e["type"].rsplit(".", 1)[1] for e in service.request("GET", f"/events/sandboxes/{sandbox}?orderAsc=true")[2]]
    assert types == ["created", "paused", "resumed", "paused", "resumed"]
    assert service.kill(sandbox) == 204


def test_its_time_is_over_and_nothing_else_wakes_it(service):
    boxes = [service.create(timeout=1, autoPause=True),
             service.create(timeout=1, autoPause=True, autoPauseMemory=False),
             service.create(timeout=1)]
    for box, mode in zip(boxes, ("full", "filesystem")):
        until(lambda box=box: detail(service, box)["state"] == "paused")
        assert detail(service, box)["pauseMode"] == mode
        assert health(service, box)[0] == 502 and detail(service, box)["state"] == "paused"
        post(service, box, "connect", {"timeout": 60}, 201)
        assert Envd(service, box).sh("echo up") == "up\n"
    until(lambda: boxes[2]["sandboxID"] not in listed(service))
    # Kill wins while paused.
    post(service, boxes[0], "pause")
    for box in boxes[:2]:
        assert service.kill(box["sandboxID"]) == 204 and service.kill(box["sandboxID"]) == 404


SLOW_SERVER = """
import http.server, sys, time
class Slow(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        open("/tmp/asked" + self.path.replace("/", "-"), "w")
        time.sleep(float(self.path[1:]))
        self.send_response(200); self.send_header("Content-Length", "4"); self.end_headers(); self.wfile.write(b"done")
http.server.ThreadingHTTPServer(("", 8000), Slow).serve_forever()
"""


def test_what_is_in_flight_gets_two_seconds_and_what_comes_waits(service):
    box = service.create(timeout=300)
    envd, sandbox = Envd(service, box), box["sandboxID"]
    envd.write("/tmp/slow.py", SLOW_SERVER.encode())
    envd.sh("nohup python3 /tmp/slow.py >/tmp/log 2>&1 & for i in $(seq 100); do (: < /dev/tcp/127.0.0.1/8000) 2>/dev/null && exit; sleep 0.1; done; exit 1")
    answers = {}

    def ask(seconds):
        headers = {"E2b-Sandbox-Id": sandbox, "E2b-Sandbox-Port": "8000"}
        answers[seconds] = service.request("GET", f"/{seconds}", headers=headers)[::2]

    threads = [threading.Thread(target=ask, args=(s,)) for s in ("0.5", "60")]
    for t in threads:
        t.start()
    until(lambda: envd.run("ls /tmp/asked-0.5 /tmp/asked-60")[0] == 0)
    pause = threading.Thread(target=post, args=(service, box, "pause"))
    pause.start()
    # A client that comes meanwhile is held, and hears at the end that nothing runs.
    late = health(service, box)
    pause.join()
    assert late[0] in (204, 502)
    for t in threads:
        t.join()
    assert answers["0.5"] == (200, b"done")
    assert answers["60"][0] == 502 and "may have had an effect" in answers["60"][1]["message"]
    assert detail(service, box)["state"] == "paused"
    assert service.kill(sandbox) == 204


def test_a_kill_does_not_wait_for_the_disk(service):
    """Its files are on their way to a disk that takes nothing any more."""
    box = service.create(timeout=300)
    (saver,) = [
        pid
        for pid in processes.every()
        if {"--worker", "save", service.instance()} <= set((processes.read(pid, "cmdline") or "").split("\0"))
    ]
    answers = []
    pausing = threading.Thread(
        target=lambda: answers.append(service.request("POST", f"/sandboxes/{box['sandboxID']}/pause", {"memory": False}, timeout=90)[0])
    )
    os.kill(saver, signal.SIGSTOP)
    try:
        pausing.start()
        until(lambda: list(service.data_dir.glob(f"pool/**/saved/*.{box['sandboxID']}")))
        assert service.kill(box["sandboxID"]) == 204
        assert processes.alive(saver)
    finally:
        os.kill(saver, signal.SIGCONT)
    pausing.join(60)
    assert answers == [409]


def test_requests_for_one_sandbox_are_done_in_their_order(service):
    box = service.create(timeout=300)
    answers = []

    def ask(what, body):
        answers.append((what, service.request("POST", f"/sandboxes/{box['sandboxID']}/{what}", body)[0]))

    for _ in range(5):
        threads = [threading.Thread(target=ask, args=(w, b)) for w, b in
                   (("pause", None), ("connect", {"timeout": 60}), ("pause", {}), ("resume", {"timeout": 60}), ("timeout", {"timeout": 60}))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert all(status in (200, 201, 204, 404, 409) for _, status in answers), answers
    post(service, box, "connect", {"timeout": 60}, 201 if detail(service, box)["state"] == "paused" else 200)
    assert Envd(service, box).sh("echo whole") == "whole\n"
    assert service.kill(box["sandboxID"]) == 204


def write_text(path, text):
    with open(path, "w") as f:
        f.write(text)


def freezer_of_daemon(service):
    """The file that stops and starts the daemon alone of the one sandbox that lives."""
    daemon = [p for p in guests(service.instance()) if "/guest\n" in processes.read(p, "cgroup")]
    assert len(daemon) == 1, daemon  # no other sandbox lives
    group = next(line[3:] for line in processes.read(daemon[0], "cgroup").splitlines() if line.startswith("0::"))
    mount = next(line.split()[1] for line in open("/proc/mounts") if line.split()[2] == "cgroup2")
    return f"{mount}{group}/cgroup.freeze"


def test_a_pause_only_of_a_healthy_guest(service):
    box = service.create(timeout=300)
    envd, path = Envd(service, box), f"/sandboxes/{box['sandboxID']}/pause"
    switch = freezer_of_daemon(service)
    write_text(switch, "1")
    status, headers, answer = service.request("POST", path, {"requireHealthyGuest": True})
    assert (status, headers["Should-Retry"]) == (503, "true")
    assert "runs on: its guest is not healthy: it does not answer within" in answer["message"], answer
    assert detail(service, box)["state"] == "running"
    write_text(switch, "0")
    assert envd.sh("echo well") == "well\n"
    assert "requireHealthyGuest" in post(service, box, "pause", {"requireHealthyGuest": "yes"}, 400)["message"]
    post(service, box, "pause", {"requireHealthyGuest": True})
    event = service.request("GET", f"/events/sandboxes/{box['sandboxID']}")[2][0]
    assert [s["name"] for s in event["eventData"]["stages"]][:2] == ["checking", "draining"]
    post(service, box, "pause", {"requireHealthyGuest": True}, 409)
    post(service, box, "connect", {"timeout": 60}, 201)
    # Files alone as well, and without the question nobody is asked.
    post(service, box, "pause", {"requireHealthyGuest": True, "memory": False})
    post(service, box, "connect", {"timeout": 60}, 201)
    write_text(freezer_of_daemon(service), "1")
    post(service, box, "pause", {"requireHealthyGuest": False})
    assert service.kill(box["sandboxID"]) == 204


def test_what_was_sent_before_by_a_client_that_has_gone_is_not_done(service):
    """The daemon is frozen when the request comes; the client goes away; the pause comes; then the daemon may read."""
    box = service.create(timeout=300)
    envd = Envd(service, box)
    switch = freezer_of_daemon(service)
    write_text(switch, "1")
    conn = envd.connect(10)
    conn.request("POST", "/filesystem.Filesystem/MakeDir", json.dumps({"path": "/tmp/too-late"}),
                 {**envd.headers, "Content-Type": "application/json"})
    time.sleep(0.3)  # on its way into the daemon's socket; nobody can see it there
    conn.close()
    post(service, box, "pause")
    write_text(switch, "0")
    post(service, box, "connect", {"timeout": 60}, 201)
    assert envd.run("ls -d /tmp/too-late")[0] == 2
    assert envd.unary("filesystem.Filesystem/MakeDir", {"path": "/tmp/in-time"})
    assert service.kill(box["sandboxID"]) == 204


def guests(instance):
    """Host pids of all processes of sandboxes of an instance."""
    found = []
    for pid in processes.every():
        if f"abx-{instance}" in (processes.read(pid, "cgroup") or "") and "/sandboxes/" in processes.read(pid, "cgroup"):
            found.append(pid)
    return found


def start_machine_anew(service):
    """What a reboot leaves: files. Every process ends and the run dir is gone."""
    instance = service.instance()
    service.process.send_signal(signal.SIGKILL)
    service.process.wait()
    until(lambda: not service.roles())
    for pid in guests(instance):
        try:
            processes.send(pid)
        except ProcessLookupError:
            pass
    until(lambda: not guests(instance))
    for record in os.listdir(f"/run/abx/{instance}/sandboxes"):
        os.unlink(f"/run/abx/{instance}/sandboxes/{record}")
    service.stop()
    service.start()


def test_paused_sandboxes_outlive_service_and_machine(build_dir, base_template):
    with Service(build_dir) as s:
        full, files, running, stale = (s.create(timeout=600) for _ in range(4))
        for box in (full, files):
            Envd(s, box).sh("echo mine > /home/user/f; nohup sleep 1000 >&- 2>&- &")
        post(s, full, "pause")
        post(s, files, "pause", {"memory": False})
        post(s, stale, "pause")
        post(s, stale, "connect", {"timeout": 600}, 201)
        until(lambda: s.audit() == [])  # nobody holds what was the network of the stopped one
        # The service, gone and come back, by either signal.
        for sig in (signal.SIGTERM, signal.SIGINT):
            s.stop(sig)
            s.start()
            assert set(listed(s, "?state=paused")) == {full["sandboxID"], files["sandboxID"]}
        # SIGINT ends all processes: what was kept of the first one is its files.
        until(lambda: detail(s, full)["pauseMode"] == "filesystem")
        assert listed(s, "?state=running") == []
        post(s, full, "connect", {"timeout": 600}, 201)
        assert Envd(s, full).sh("cat /home/user/f") == "mine\n"
        post(s, full, "pause")
        assert detail(s, full)["pauseMode"] == "full"
        running = s.create(timeout=600)
        start_machine_anew(s)
        until(lambda: running["sandboxID"] not in listed(s))
        until(lambda: detail(s, full)["pauseMode"] == "filesystem")
        event = s.request("GET", f"/events/sandboxes/{full['sandboxID']}")[2][0]
        assert event["type"] == "sandbox.lifecycle.updated" and event["eventData"]["mode"] == "filesystem"
        assert "machine was started anew" in event["eventData"]["reason"]
        for box in (full, files):
            post(s, box, "connect", {"timeout": 600}, 201)
            assert Envd(s, box).sh("cat /home/user/f; ps -e -o comm | grep -c sleep || true") == "mine\n0\n"
            assert s.kill(box["sandboxID"]) == 204
        until(lambda: s.audit() == [])


def test_damaged_state_can_be_killed_and_says_what_is_wrong(build_dir, base_template):
    with Service(build_dir) as s:
        pool = s.data_dir / "pool/fs" if (s.data_dir / "pool/fs/uppers").exists() else s.data_dir / "pool"
        one, two, three = (s.create(timeout=600) for _ in range(3))
        for box in (one, two):
            post(s, box, "pause", {"memory": False})
        post(s, three, "pause")
        names = {f.name.split(".")[1]: f.name.split(".")[0] for f in (pool / "saved").iterdir()}
        assert set(names) == {b["sandboxID"] for b in (one, two, three)}
        upper = pool / "uppers" / names[one["sandboxID"]]
        (upper / "u").rename(upper / "away")
        status, _, answer = s.request("POST", f"/sandboxes/{one['sandboxID']}/connect", {"timeout": 60})
        assert status >= 500 and "cannot be resumed" in answer["message"] and "kept files" in answer["message"], answer
        assert detail(s, one)["state"] == "paused"
        assert s.kill(one["sandboxID"]) == 204
        # Nothing of the note is left: the engine still knows it; the next one does not.
        (pool / "saved" / f"{names[two['sandboxID']]}.{two['sandboxID']}").unlink()
        os.kill(s.roles()["abx-engine"][0], signal.SIGKILL)
        until(lambda: two["sandboxID"] not in listed(s))
        assert s.request("GET", f"/events/sandboxes/{two['sandboxID']}")[2][0]["eventData"]["reason"] == "lost"
        # Its processes are killed while they are frozen: the files are kept.
        for pid in guests(s.instance()):
            processes.send(pid)
        until(lambda: not guests(s.instance()))
        post(s, three, "connect", {"timeout": 60}, 201)
        assert Envd(s, three).sh("echo up") == "up\n" and "filesystem" in json.dumps(s.request("GET", f"/events/sandboxes/{three['sandboxID']}")[2])
        assert s.kill(three["sandboxID"]) == 204
        until(lambda: s.audit() == [])


MANIFEST = "cd /home/user/data && find . -type f -print0 | sort -z | xargs -0 sha256sum; find . -printf '%p %m %U %s\\n' | sort"

WRITER = """
import mmap, os, sys
d = "/home/user/data"
os.makedirs(d, exist_ok=True)
held = open(d + "/held", "ab", buffering=0)
shared = open(d + "/shared", "w+b"); shared.truncate(1 << 16)
m = mmap.mmap(shared.fileno(), 1 << 16)
for line in sys.stdin:
    i = int(line)
    held.write(b"%d\\n" % i)
    m[i * 8:i * 8 + 8] = b"%08d" % i
    with open("%s/synced-%d" % (d, i), "wb") as f:
        f.write(os.urandom(50000)); f.flush(); os.fsync(f.fileno())
    with open("%s/not-%d" % (d, i), "wb") as f:
        f.write(os.urandom(50000))
    print("written", i, flush=True)
"""


@pytest.mark.parametrize("cycles", [pytest.param(3, marks=pytest.mark.slow), pytest.param(20, marks=pytest.mark.long)])
def test_cycles_with_every_role_killed_in_between(build_dir, base_template, cycles):
    with Service(build_dir) as s:
        box = s.create(timeout=600, autoPause=True)
        envd, sandbox = Envd(s, box), box["sandboxID"]
        envd.write("/tmp/writer.py", WRITER.encode())
        envd.sh("mkfifo /tmp/in; nohup sh -c 'exec 3<>/tmp/in; python3 /tmp/writer.py <&3' >/tmp/out 2>&1 &")
        roles = ["abx-engine", "abx-control", "abx-gateway"]

        def kill(role):
            before = s.roles().get(role, [])
            for pid in before:
                processes.send(pid)
            until(lambda: (now := s.roles().get(role, [])) and not set(now) & set(before))

        def ask(what, body, *expected):
            """Until the service is back and has done it."""
            def once():
                status, _, answer = s.request("POST", f"/sandboxes/{sandbox}/{what}", body, timeout=60)
                assert status in (*expected, 502, 503, 504), (what, status, answer)
                return status in expected
            until(once, 60)

        for i in range(cycles):
            envd.sh(f"echo {i} > /tmp/in; for n in $(seq 300); do grep -q 'written {i}$' /tmp/out && exit; sleep 0.05; done; exit 1", 60)
            before = envd.sh(MANIFEST)
            kill(roles[i % 3])
            if i % 2:
                ask("timeout", {"timeout": 1}, 204)
                until(lambda: detail(s, box)["state"] == "paused")
            else:
                ask("pause", None, 204, 409)
            kill(roles[(i + 1) % 3])
            until(lambda: s.request("GET", f"/sandboxes/{sandbox}")[0] == 200)
            assert detail(s, box)["state"] == "paused" and detail(s, box)["pauseMode"] == "full"
            ask("connect", {"timeout": 600}, 200, 201)
            kill(roles[(i + 2) % 3])
            assert envd.sh(MANIFEST) == before, f"cycle {i}"
        assert envd.sh("wc -l < /home/user/data/held; pgrep -c -f writer.py").split() == [str(cycles), "2"]
        until(lambda: s.request("DELETE", f"/sandboxes/{sandbox}")[0] in (204, 404))
        until(lambda: s.audit() == [])


def overlap(service, boxes, rounds, seed):
    """Threads that ask for everything at once; every call gets an answer that the table knows."""
    import random

    rng = random.Random(seed)
    statuses, lock = {}, threading.Lock()
    created = list(boxes)

    def ask(what, sandbox):
        if what == "kill":
            return service.request("DELETE", f"/sandboxes/{sandbox}", timeout=60)[0]
        body = {"pause": None, "files": {"memory": False}}.get(what, {"timeout": 300})
        path = {"files": "pause"}.get(what, what)
        return service.request("POST", f"/sandboxes/{sandbox}/{path}", body, timeout=60)[0]

    def work(seed):
        own = random.Random(seed)
        for _ in range(rounds):
            what = own.choice(["pause", "files", "connect", "connect", "resume", "timeout", "kill" if own.random() < 0.15 else "pause"])
            with lock:
                sandbox = own.choice(created)
            status = ask(what, sandbox)
            with lock:
                statuses[what, status] = statuses.get((what, status), 0) + 1
            if what == "kill" and status == 204:
                new = service.create(timeout=300)["sandboxID"]
                with lock:
                    created[created.index(sandbox)] = new

    threads = [threading.Thread(target=work, args=(rng.random(),)) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return created, statuses


@pytest.mark.parametrize("n, rounds", [(4, 15), pytest.param(50, 1250, marks=pytest.mark.long)])
def test_overlapping_requests_are_all_answered_and_leave_nothing(build_dir, base_template, n, rounds):
    with Service(build_dir) as s:
        created, statuses = overlap(s, [s.create(timeout=300)["sandboxID"] for _ in range(n)], rounds, seed=n)
        assert {status for _, status in statuses} <= {200, 201, 204, 404, 409}, statuses
        assert {what for what, _ in statuses} == {"pause", "files", "connect", "resume", "timeout", "kill"}
        for sandbox in created:
            status, _, answer = s.request("POST", f"/sandboxes/{sandbox}/connect", {"timeout": 300}, timeout=60)
            assert status in (200, 201), answer
            box = detail(s, {"sandboxID": sandbox})
            assert Envd(s, box).sh("echo up") == "up\n"
            assert s.kill(sandbox) == 204
        until(lambda: s.audit() == [])
