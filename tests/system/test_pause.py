"""Pause and resume on a real service, with plain HTTP: what is kept, what clients see, what crashes leave."""

import base64
import datetime
import hashlib
import http.client
import json
import os
import signal
import socket
import struct
import threading
import time
from urllib.parse import urlencode

import processes
import pytest
from envd import Envd
from pause_kit import (  # noqa: F401 (fixtures)
    detail, guests, health, kill_role, listed, notes, post, service, start_machine_anew,
)  # fmt: skip
from service import Service
from waiting import BUSY_S, until


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
    boot = envd.sh("cat /proc/sys/kernel/random/boot_id; mkdir -p /tmp/a/b; echo kept > /tmp/a/b/file; ln -s b /tmp/a/link; nohup sleep 1000 >&- 2>&- & until grep -qx sleep /proc/$!/comm; do :; done")
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
    envd.sh("echo two > /tmp/second; nohup sleep 1000 >&- 2>&- & until grep -qx sleep /proc/$!/comm; do :; done")
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
    envd.sh("nohup python3 /tmp/slow.py >/tmp/log 2>&1 & for i in $(seq 600); do (: < /dev/tcp/127.0.0.1/8000) 2>/dev/null && exit; sleep 0.1; done; exit 1")
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


def open_stream(service, box, command):
    """The raw socket of a stream of output that has begun, and what has come."""
    envd = Envd(service, box)
    conn = envd.connect(60)
    data = json.dumps({"process": {"cmd": "/bin/bash", "args": ["-c", command]}, "stdin": False}).encode()
    conn.request("POST", "/process.Process/Start", struct.pack(">BI", 0, len(data)) + data,
                 {**envd.headers, "Content-Type": "application/connect+json"})
    come = b""
    while b'"start"' not in come:
        come += conn.sock.recv(65536)
    return conn, come


def read_rest(conn, come):
    """All up to the end of the connection, or of the answer."""
    while not come.endswith(LAST_CHUNK):
        try:
            more = conn.sock.recv(65536)
        except ConnectionResetError:
            break
        if not more:
            break
        come += more
    conn.close()
    return come


LAST_CHUNK = b"\r\n0\r\n\r\n"


def test_streams_break_off_without_a_last_chunk(service):
    """Nobody takes what was cut for complete. One that comes to its own end has one."""
    box = service.create(timeout=300)
    assert read_rest(*open_stream(service, box, "echo done")).endswith(LAST_CHUNK)
    for body in (None, {"memory": False}):
        streams = [open_stream(service, box, "while :; do echo line; sleep 0.02; done"), open_stream(service, box, "sleep 1000")]
        post(service, box, "pause", body)
        for conn, come in streams:
            rest = read_rest(conn, come)
            assert b"transfer-encoding: chunked" in rest.lower()
            assert not rest.endswith(b"0\r\n\r\n"), rest[-100:]
        post(service, box, "connect", {"timeout": 60}, 201)
    assert service.kill(box["sandboxID"]) == 204


def test_streams_of_http2_are_reset(service):
    import h2
    import h2.config
    import h2.connection
    import h2.events

    box = service.create(timeout=300)
    data = json.dumps({"process": {"cmd": "/bin/bash", "args": ["-c", "while :; do echo line; sleep 0.02; done"]}, "stdin": False}).encode()
    conn = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
    conn.initiate_connection()
    headers = [(":method", "POST"), (":path", "/process.Process/Start"), (":scheme", "http"), (":authority", f"127.0.0.1:{service.port}"),
               ("content-type", "application/connect+json"), *((k.lower(), v) for k, v in Envd(service, box).headers.items())]
    conn.send_headers(1, headers)
    conn.send_data(1, struct.pack(">BI", 0, len(data)) + data, end_stream=True)
    seen = []

    def read_until(*kinds):
        while not any(isinstance(e, kinds) for e in seen):
            sock.sendall(conn.data_to_send())
            more = sock.recv(65536)
            assert more, seen
            for e in conn.receive_data(more):
                seen.append(e)
                if isinstance(e, h2.events.DataReceived):
                    conn.acknowledge_received_data(e.flow_controlled_length, e.stream_id)

    with socket.create_connection(("127.0.0.1", service.port), timeout=BUSY_S) as sock:
        read_until(h2.events.DataReceived)
        post(service, box, "pause")
        read_until(h2.events.StreamReset, h2.events.StreamEnded)
    assert not [e for e in seen if isinstance(e, h2.events.StreamEnded)]
    assert service.kill(box["sandboxID"]) == 204


LOGGING_SERVER = """
import socket, threading
log = open("/tmp/seen", "a", buffering=1)
def serve(c):
    while data := c.recv(65536):
        log.write(data.split(b"\\r\\n")[0].decode() + "\\n")
        c.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")
    c.close()
s = socket.create_server(("", 8000), backlog=100)
while True:
    c, _ = s.accept()
    log.write("connection\\n")
    threading.Thread(target=serve, args=(c,)).start()
"""


def start_server(service, box, program, port=8000):
    envd = Envd(service, box)
    envd.write("/tmp/server.py", program.encode())
    envd.sh(f"nohup python3 /tmp/server.py >/tmp/log 2>&1 & for i in $(seq 300); do (: < /dev/tcp/127.0.0.1/{port}) 2>/dev/null && exit; "
            "sleep 0.1; done; exit 1")


def to_port(box, port, **more):
    return {"E2b-Sandbox-Id": box["sandboxID"], "E2b-Sandbox-Port": str(port), **more}


def test_traffic_never_reaches_the_sockets_of_a_paused_one(service):
    """Not by a connection from before, not by new ones, not by a gateway that was started meanwhile."""
    box = service.create(timeout=300)
    envd = Envd(service, box)
    start_server(service, box, LOGGING_SERVER)
    kept = http.client.HTTPConnection("127.0.0.1", service.port, timeout=BUSY_S)
    kept.request("GET", "/before", headers=to_port(box, 8000))
    assert kept.getresponse().read() == b"ok"
    seen = envd.sh("cat /tmp/seen")
    assert "GET /before HTTP/1.1" in seen
    post(service, box, "pause")

    def refused(headers, method="GET", path="/while", body=None):
        assert service.request(method, path, body, headers=headers)[0] == 502

    for restarted in (False, True):
        if restarted:
            kill_role(service, "abx-gateway")
        try:
            kept.request("GET", "/while", headers=to_port(box, 8000))
            assert kept.getresponse().status == 502
        except (OSError, http.client.HTTPException):
            kept.close()  # the gateway's end
        for _ in range(10):
            refused(to_port(box, 8000))
            refused({**envd.headers, "Content-Type": "application/json"}, "POST", "/filesystem.Filesystem/MakeDir", {"path": "/tmp/while"})
    post(service, box, "connect", {"timeout": 60}, 201)
    assert service.request("GET", "/after", headers=to_port(box, 8000))[::2] == (200, b"ok")
    now = envd.sh("cat /tmp/seen")
    assert "GET /after HTTP/1.1" in now and "while" not in now
    assert now.count("connection") == seen.count("connection") + 1
    assert envd.run("ls -d /tmp/while")[0] == 2
    assert service.kill(box["sandboxID"]) == 204


def test_traffic_of_other_ports_wakes_with_the_traffic_token_alone(service):
    private = service.create(timeout=300, autoResume={"enabled": True}, network={"allowPublicTraffic": False})
    public = service.create(timeout=300, autoResume={"enabled": True})
    never = service.create(timeout=300)
    token = private["trafficAccessToken"]
    for box in (private, public, never):
        start_server(service, box, LOGGING_SERVER)
        post(service, box, "pause")

    def ask(box, **headers):
        return service.request("GET", "/x", headers={"X-API-Key": "", **to_port(box, 8000, **headers)})[0]

    for headers in ({}, {"E2b-Traffic-Access-Token": "0" * 64}, {"X-Access-Token": private["envdAccessToken"]}):
        assert ask(private, **headers) == 403
    assert ask(never) == 502 and ask(never, **{"X-Access-Token": never["envdAccessToken"]}) == 502
    for box in (private, public, never):
        assert detail(service, box)["state"] == "paused"
    begin = time.time()
    assert ask(private, **{"E2b-Traffic-Access-Token": token}) == 200
    assert ask(public) == 200  # whoever may reach it may wake it
    for box in (private, public):
        info = detail(service, box)
        end = datetime.datetime.fromisoformat(info["endAt"].replace("Z", "+00:00")).timestamp()
        assert info["state"] == "running" and begin + 295 <= end  # five minutes, as e2b.md 1.4 says
    # Of one without its memory there is nothing that could take the request.
    post(service, public, "pause", {"memory": False})
    assert ask(public) == 502 and detail(service, public)["state"] == "paused"
    for box in (private, public, never):
        assert service.kill(box["sandboxID"]) == 204


def end_of(service, box):
    return datetime.datetime.fromisoformat(detail(service, box)["endAt"].replace("Z", "+00:00")).timestamp()


def test_connect_and_refreshes_never_shorten_and_a_resume_sets_anew(service):
    box = service.create(timeout=1000)
    first = end_of(service, box)
    for what, body, expect in (("connect", {"timeout": 10}, 200), ("refreshes", {"duration": 10}, 204)):
        post(service, box, what, body, expect)
        assert end_of(service, box) == first
    post(service, box, "refreshes", {"duration": 2000}, 204)
    later = end_of(service, box)
    assert later - first > 900
    post(service, box, "connect", {"timeout": 3000}, 200)
    assert end_of(service, box) - later > 900
    post(service, box, "timeout", {"timeout": 100})  # this one may
    assert end_of(service, box) < first
    post(service, box, "pause")
    begin = time.time()
    post(service, box, "connect", {"timeout": 500}, 201)
    assert begin + 495 < end_of(service, box) < time.time() + 505
    assert service.kill(box["sandboxID"]) == 204


def saver_of(service):
    """The worker that writes the pool to the disk."""
    (saver,) = [
        pid
        for pid in processes.every()
        if {"--worker", "save", service.instance()} <= set((processes.read(pid, "cmdline") or "").split("\0"))
    ]
    return saver


def test_a_kill_does_not_wait_for_the_disk(service):
    """Its files are on their way to a disk that takes nothing any more."""
    box = service.create(timeout=300)
    saver = saver_of(service)
    answers = []
    pausing = threading.Thread(
        target=lambda: answers.append(service.request("POST", f"/sandboxes/{box['sandboxID']}/pause", {"memory": False}, timeout=90)[0])
    )
    os.kill(saver, signal.SIGSTOP)
    try:
        pausing.start()
        until(lambda: box["sandboxID"] in notes(service))
        assert service.kill(box["sandboxID"]) == 204
        assert processes.alive(saver)
    finally:
        os.kill(saver, signal.SIGCONT)
    pausing.join(60)
    assert answers == [409]


def test_a_kill_of_one_that_traffic_wakes_is_told_to_all_who_wait(service):
    """Each has its answer of before the end, or hears that it is gone; none waits for what will not come."""
    for _ in range(5):
        box = service.create(timeout=300, autoPause=True, autoResume={"enabled": True})
        post(service, box, "pause", {"memory": True})
        answers, start = [], threading.Barrier(9)

        def ask():
            start.wait()
            answers.append(health(service, box))

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for t in threads:
            t.start()
        start.wait()
        assert service.kill(box["sandboxID"]) == 204
        for t in threads:
            t.join()
        assert len(answers) == 8
        assert all(s == 204 or (s == 502 and "was not found" in a["message"]) for s, a in answers), answers


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


def test_requests_behind_each_other_are_answered_in_the_order_they_came(service):
    """The first waits for a disk that takes nothing; the answers of those that come meanwhile show their order."""
    box = service.create(timeout=300)
    saver = saver_of(service)
    asked = [("pause", {"memory": False}, 204), ("pause", None, 409), ("timeout", {"timeout": 60}, 404), ("connect", {"timeout": 60}, 201),
             ("resume", {"timeout": 60}, 409), ("connect", {"timeout": 60}, 200), ("pause", {"memory": False}, 204), ("pause", None, 409),
             ("connect", {"timeout": 60}, 201)]
    answers = [None] * len(asked)

    def ask(i, what, body):
        answers[i] = service.request("POST", f"/sandboxes/{box['sandboxID']}/{what}", body, timeout=60)[0]

    threads = [threading.Thread(target=ask, args=(i, what, body)) for i, (what, body, _) in enumerate(asked)]
    os.kill(saver, signal.SIGSTOP)
    try:
        for i, t in enumerate(threads):
            t.start()
            if i == 0:
                until(lambda: box["sandboxID"] in notes(service))
            time.sleep(0.4)  # on its way through a gateway to control; nobody can see it there
        assert answers == [None] * len(asked)
    finally:
        os.kill(saver, signal.SIGCONT)
    for t in threads:
        t.join()
    assert answers == [status for _, _, status in asked]
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


def test_paused_sandboxes_outlive_service_and_machine(build_dir, base_template):
    with Service(build_dir) as s:
        full, files, running, stale = (s.create(timeout=600) for _ in range(4))
        for box in (full, files):
            Envd(s, box).sh("echo mine > /home/user/f; nohup sleep 1000 >&- 2>&- & until grep -qx sleep /proc/$!/comm; do :; done")
        post(s, full, "pause")
        post(s, files, "pause", {"memory": False})
        post(s, stale, "pause")
        post(s, stale, "connect", {"timeout": 600}, 201)
        s.until_clean()  # nobody holds what was the network of the stopped one
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
        s.until_clean()
