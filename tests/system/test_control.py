"""abx-control with a played engine: the REST API, idempotency, restarts and crashes in every state."""

import base64
import concurrent.futures
import hashlib
import json
import os
import signal
import sqlite3
import subprocess
import threading
import time

import pytest
from control_harness import ERROR, LOG, RUNNING, WAKE, Answer, Control, frame, text
from waiting import BUSY_S, until

UNKNOWN = "Sandbox \"%s\" doesn't exist or you don't have access to it"


@pytest.fixture
def control(build_dir, tmp_path):
    c = Control(build_dir, tmp_path)
    yield c
    c.close()
    assert "runtime error" not in (tmp_path / "log").read_text()


def test_create_get_list_kill(control):
    gateway = control.gateway()
    made = control.create(metadata={"a": "b"}, envVars={"K": "V"}, timeout=60)
    sandbox = made["sandboxID"]
    assert len(sandbox) == 21 and sandbox[0] == "i"
    assert made["alias"] == "base" and made["clientID"] == "01234567" and made["envdVersion"] == "0.6.13"
    assert made["domain"] == "localhost:19500" and made["envdUrl"] == "http://127.0.0.1:19500"
    assert len(made["envdAccessToken"]) == 64
    _, asked, _ = control.engine.creates[0]
    assert text(asked, 2) == "d" * 64
    assert (asked[3], asked[4], asked[5]) == ([2], [1024], [10240])
    identity = asked[6][0]
    assert b"K" in identity and b"V" in identity and made["envdAccessToken"].encode() in identity
    gateway.wait(lambda: sandbox in gateway.entries)
    entry = gateway.entries[sandbox]
    assert entry[2] == [RUNNING] and text(entry, 4) == made["envdAccessToken"] and 5 not in entry

    detail = control.ask("GET", f"/sandboxes/{sandbox}").json
    assert detail["state"] == "running" and detail["metadata"] == {"a": "b"}
    assert (detail["cpuCount"], detail["memoryMB"], detail["diskSizeMB"]) == (2, 1024, 10240)
    assert detail["envdAccessToken"] == made["envdAccessToken"]
    assert detail["templateID"] == made["templateID"] != "base"
    assert control.ask("GET", f"/sandboxes/{sandbox}-01234567").json == detail
    assert control.ids() == [sandbox]
    assert [s["sandboxID"] for s in control.ask("GET", "/sandboxes").json] == [sandbox]

    assert control.ask("DELETE", f"/sandboxes/{sandbox}").status == 204
    assert control.engine.sandboxes == {} and sandbox not in gateway.entries
    assert control.ask("DELETE", f"/sandboxes/{sandbox}").message == UNKNOWN % sandbox
    assert control.ask("GET", f"/sandboxes/{sandbox}").message == UNKNOWN % sandbox
    assert control.ids() == []


def test_keys(control):
    def status(headers):
        answer = control.ask("GET", "/v2/sandboxes", headers=headers)
        return answer.status if answer.status == 200 else (answer.status, answer.message)

    missing = (401, "authorization header is missing")
    unknown = (401, "Cannot get the team for the given API key")
    key, control.key = control.key, None
    assert status({}) == missing
    assert status({"Authorization": "Basic eDo="}) == missing
    assert status({"X-API-Key": "sk_123"}) == (401, "Invalid API key format")
    assert status({"X-API-Key": "e2b_" + "0" * 40}) == unknown
    assert status({"X-API-Key": key}) == 200
    assert status({"Authorization": f"Bearer {key}"}) == 200
    assert status({"Authorization": f"bearer {key}"}) == 200
    for name, first, second in (("X-API-Key", key, key), ("X-API-Key", key, "e2b_" + "0" * 40),
                                ("X-API-Key", "", key), ("Authorization", "Basic eDo=", f"Bearer {key}"),
                                ("Idempotency-Key", "a", "b")):
        conn = control.http()
        conn.putrequest("GET", "/v2/sandboxes")
        for n, value in (("X-API-Key", key), (name, first), (name.lower(), second))[name == "X-API-Key":]:
            conn.putheader(n, value)
        conn.endheaders()
        answer = Answer(conn.getresponse())
        assert (answer.status, answer.message) == (400, f"{name} must not be given more than once")
    reader = control.admin({"op": "key.create", "name": "r", "scopes": ["sandbox:read"]})
    assert status({"X-API-Key": reader["key"]}) == 200
    answer = control.ask("POST", "/v2/sandboxes", {"templateID": "base"}, {"X-API-Key": reader["key"]})
    assert (answer.status, answer.message) == (403, "The API key lacks the scope 'sandbox:write'")
    short = control.admin({"op": "key.create", "expires_in_s": 1})
    assert status({"X-API-Key": short["key"]}) == 200
    until(lambda: status({"X-API-Key": short["key"]}) == unknown)
    assert control.admin({"op": "key.revoke", "id": reader["id"]}) == {"id": reader["id"]}
    assert status({"X-API-Key": reader["key"]}) == unknown
    keys = {k["id"]: k for k in control.admin({"op": "key.list"})["keys"]}
    assert keys[reader["id"]]["revoked_at"] and keys[reader["id"]]["scopes"] == ["sandbox:read"]
    assert all("key" not in k and "hash" not in k for k in keys.values())
    control.restart()
    assert status({"X-API-Key": key}) == 200
    assert status({"X-API-Key": reader["key"]}) == unknown
    raw = b"".join(p.read_bytes() for p in control.folder.glob("control/abx.db*"))
    assert key.encode() not in raw and hashlib.sha256(key.encode()).hexdigest().encode() in raw


def test_routes(control):
    assert control.ask("GET", "/health").status == 200
    info = control.ask("GET", "/abx/v1/info", headers={"X-API-Key": ""}).json
    assert info["limits"]["maxTimeoutSeconds"] == 86400 and info["abxCodecs"] == ["json", "proto"]
    assert control.ask("GET", "/nothing").status == 404
    answer = control.ask("PUT", "/sandboxes")
    assert answer.status == 405 and answer.headers["Allow"] == "POST, GET" and answer.message
    for method, path in (
        ("GET", "/v2/templates"),
        ("GET", "/templates"),
        ("GET", "/templates/aliases/team%2Fx%3Ay"),
        ("POST", "/volumes"),
    ):
        assert control.ask(method, path).message == "This endpoint is not available on this server"
        assert control.ask(method, path).status == 501
    assert control.ask("GET", "/sandboxes/UPPER").message == "Invalid sandbox ID"
    assert control.ask("GET", "/sandboxes/%41").status == 400
    assert control.ask("GET", "/sandboxes/%zz").status == 400
    assert control.ask("GET", "/sandboxes/%69abc").status == 404


def test_lines_of_egress(control):
    sandbox = control.create()["sandboxID"]
    egress, gateway = control.egress(), control.gateway()

    def logs(query="?level=warn"):
        return control.ask("GET", f"/v2/sandboxes/{sandbox}/logs{query}").json["logs"]

    # What is in it may come from a sandbox.
    egress.conn.send(frame(LOG, {1: sandbox, 2: 2, 3: b"Denied: \xff\xfe\0x", 4: [{1: "to", 2: "1.2.3.4:5"}, {1: b"\xff", 2: b"a\xffb"}, {1: "long", 2: "x" * 5000}]}))
    egress.conn.send(frame(LOG, {1: sandbox, 2: 99, 3: "\u20ac" * 1000, 4: [{1: str(i), 2: "v"} for i in range(100)]}))
    egress.conn.send(frame(LOG, {1: "inosuchone0", 2: 2, 3: "of nobody"}))
    gateway.conn.send(frame(LOG, {1: sandbox, 2: 2, 3: "not a gateway's to say"}))
    until(lambda: len(logs()) == 2)
    first, second = logs()
    assert first["message"].startswith("Denied: ") and first["level"] == "warn"
    assert first["fields"]["to"] == "1.2.3.4:5" and first["fields"]["\ufffd"] == "a\ufffdb" and first["fields"]["logger"] == "egress"
    assert len(first["fields"]["long"]) == 512 and len(second["message"]) <= 512 and len(second["fields"]) <= 17
    assert [e["fields"]["logger"] for e in logs("")] == ["lifecycle", "egress", "egress"]
    # All together are bounded, and creates go on.
    egress.conn.settimeout(BUSY_S)
    for i in range(6000):
        egress.conn.send(frame(LOG, {1: sandbox, 2: 2, 3: f"Denied: {i}"}))
    assert control.create()["sandboxID"]
    assert control.ask("GET", f"/sandboxes/{sandbox}").status == 200
    assert len(logs()) == 1000
    db = sqlite3.connect(f"file:{control.folder}/control/abx.db?mode=ro", uri=True)
    assert db.execute("SELECT count(*) FROM logs").fetchone()[0] < 6000
    db.close()


def test_rules_of_one_that_is_killed_meanwhile_are_not_told(control):
    """Egress would take it for a sandbox that runs, and keep what it gets of its network for good."""
    egress = control.egress()
    for _ in range(40):
        path = f"/sandboxes/{control.create()['sandboxID']}"
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            rules = [pool.submit(control.ask, "PUT", f"{path}/network", {"denyOut": ["0.0.0.0/0"]}) for _ in range(3)]
            assert pool.submit(control.ask, "DELETE", path).result().status == 204
            assert all(call.result().status in (204, 404) for call in rules)
    until(lambda: not egress.entries, lambda: f"no row of what is gone; there are {list(egress.entries)}")
    assert not egress.is_closed


def test_refusals_of_create(control):
    def refused(status, part, path="/v2/sandboxes", raw=None, **body):
        answer = control.ask("POST", path, raw or {"templateID": "base", **body})
        assert answer.status == status and part in answer.message, answer.json

    refused(400, "Timeout must be greater than 0", timeout=0)
    refused(400, "Timeout cannot be greater than 24 hours", timeout=86401)
    refused(400, "Error when parsing request: line 1", raw="{")
    refused(400, "Error when parsing request", raw="[]")
    refused(400, "Error when parsing request: 'timeout'", timeout="x")
    refused(400, "Invalid template reference: ", templateID="a b")
    refused(404, "template 'nope' not found", templateID="nope")
    refused(404, "tag 'v1' does not exist for template 'base'", templateID="base:v1")
    refused(400, "volume 'v' not found", volumeMounts=[{"name": "v", "path": "/x"}])
    refused(413, "", raw=json.dumps({"templateID": "x" * (1 << 20)}))
    assert control.engine.creates == []
    for name in ("base", "Base", "base:default", "default/base", "d" * 64):
        control.create(templateID=name)


def test_secure_and_traffic(control):
    gateway = control.gateway()
    assert "envdAccessToken" in control.create(path="/sandboxes")
    assert "envdAccessToken" in control.create(secure=False)
    opened = control.create(path="/sandboxes", secure=False)
    assert "envdAccessToken" not in opened
    gateway.wait(lambda: opened["sandboxID"] in gateway.entries)
    assert 4 not in gateway.entries[opened["sandboxID"]]
    private = control.create(network={"allowPublicTraffic": False, "maskRequestHost": "x.test:${PORT}"})
    assert len(private["trafficAccessToken"]) == 64 != private["envdAccessToken"]
    gateway.wait(lambda: private["sandboxID"] in gateway.entries)
    entry = gateway.entries[private["sandboxID"]]
    assert text(entry, 5) == private["trafficAccessToken"] and text(entry, 7) == "x.test:${PORT}"
    key = next(k["id"] for k in control.admin({"op": "key.list"})["keys"])
    assert text(entry, 10) == key
    assert "key" not in control.ask("GET", f"/sandboxes/{private['sandboxID']}").json
    control.restart()
    gateway = control.gateway()
    gateway.wait(lambda: private["sandboxID"] in gateway.entries)
    assert text(gateway.entries[private["sandboxID"]], 10) == key


def test_requests_of_a_key_at_a_time(build_dir, tmp_path):
    c = Control(build_dir, tmp_path, "--max-key-connections=2")
    try:
        go_on = threading.Event()
        c.engine.on_create = lambda sandbox: go_on.wait(BUSY_S) and None
        other = {"X-API-Key": c.admin({"op": "key.create"})["key"]}
        threads = [threading.Thread(target=c.create) for _ in range(2)]
        for t in threads:
            t.start()
        until(lambda: len(c.engine.creating) == 2)
        answer = c.ask("GET", "/sandboxes")
        assert answer.status == 429 and answer.headers["Should-Retry"] == "true"
        assert answer.message == "Too many requests of this API key at a time (at most 2)"
        assert c.ask("GET", "/sandboxes", headers=other).status == 200
        assert c.ask("GET", "/sandboxes", headers={"X-API-Key": ""}).status == 401
        go_on.set()
        for t in threads:
            t.join(BUSY_S)
        for _ in range(5):  # refused and finished ones count no more
            assert len(c.ids()) == 2
    finally:
        c.close()


def test_sizes(build_dir, tmp_path):
    c = Control(build_dir, tmp_path, "--max-cpu=4", "--sandbox-memory=512", "--max-sandboxes=2")
    try:
        made = c.create(cpuCount=4, diskSizeMB=100)
        assert (made["cpuCount"], made["memoryMB"], made["diskSizeMB"]) == (4, 512, 100)
        assert c.create(400, cpuCount=5)["message"] == "cpuCount cannot be greater than 4"
        key = {"Idempotency-Key": "within"}
        within = c.create(201, key)
        answer = c.ask("POST", "/sandboxes", {"templateID": "base"})
        assert answer.status == 429 and answer.headers["Should-Retry"] == "false"
        assert "maximum number of concurrent E2B sandboxes (2)" in answer.message
        assert c.create(201, key) == within and len(c.engine.creates) == 2
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            refused = [pool.submit(c.create, 429) for _ in range(8)]
            assert all(call.result() for call in refused)
        assert c.ask("DELETE", f"/sandboxes/{made['sandboxID']}").status == 204
        c.create()
    finally:
        c.close()


def test_logs_and_keys_of_all_are_limited(build_dir, tmp_path):
    c = Control(build_dir, tmp_path, "--max-log-lines=20", "--max-idempotency-keys=3")

    def lines():
        """Of all sandboxes, oldest first: one line each."""
        return [x for i in ids for x in c.ask("GET", f"/v2/sandboxes/{i}/logs").json["logs"]]

    try:
        ids = [c.create(201, {"Idempotency-Key": f"key-{i}"})["sandboxID"] for i in range(30)]
        until(lambda: len(lines()) <= 20)
        assert len(lines()) > 10  # those of one moment go together
        assert c.ask("GET", f"/v2/sandboxes/{ids[0]}/logs").json["logs"] == []
        assert len(c.ask("GET", f"/v2/sandboxes/{ids[29]}/logs").json["logs"]) == 1
        assert c.create(201, {"Idempotency-Key": "key-29"})["sandboxID"] == ids[29]
        assert c.create(201, {"Idempotency-Key": "key-20"})["sandboxID"] not in ids
    finally:
        c.close()


def test_snapshots_are_limited(build_dir, tmp_path):
    c = Control(build_dir, tmp_path, "--max-snapshots=2")
    go = threading.Event()

    def snapshot():
        return c.ask("POST", f"/sandboxes/{box}/snapshots", {})

    def refused():
        answer = snapshot()
        assert answer.status == 429 and answer.headers["Should-Retry"] == "false", answer
        assert "maximum number of snapshots (2)" in answer.message

    try:
        box = c.create()["sandboxID"]
        one = snapshot().json["snapshotID"]
        with concurrent.futures.ThreadPoolExecutor(1) as pool:  # one that is being made counts, until it fails
            reached = threading.Event()
            c.engine.on_clone = lambda new: reached.set() or go.wait(60) and (8, "no room")
            making = pool.submit(snapshot)
            assert reached.wait(60)
            refused()
            go.set()
            assert making.result().status >= 400
        c.engine.on_clone = lambda new: None
        assert snapshot().status == 201
        refused()
        assert len(c.ask("GET", "/snapshots").json) == 2
        assert c.ask("DELETE", f"/templates/{one}").status == 204
        assert snapshot().status == 201
        refused()
    finally:
        go.set()
        c.close()


def test_timeouts(control):
    sandbox = control.create(timeout=60)["sandboxID"]

    def left():
        detail = control.ask("GET", f"/sandboxes/{sandbox}").json
        end = time.mktime(time.strptime(detail["endAt"][:19], "%Y-%m-%dT%H:%M:%S")) - time.timezone
        return end - time.time()

    assert 30 < left() < 61
    assert control.ask("POST", f"/sandboxes/{sandbox}/timeout", {"timeout": 600}).status == 204
    assert 540 < left() < 601
    answer = control.ask("POST", f"/sandboxes/{sandbox}/connect", {"timeout": 30})
    assert answer.status == 200 and answer.json["sandboxID"] == sandbox and answer.json["envdAccessToken"]
    assert 540 < left() < 601
    assert control.ask("POST", f"/v2/sandboxes/{sandbox}/connect").status == 200
    assert control.ask("POST", f"/sandboxes/{sandbox}/connect", {}).status == 400
    assert control.ask("POST", f"/v2/sandboxes/{sandbox}/connect", {"timeout": 900}).status == 200
    assert 840 < left() < 901
    assert control.ask("POST", f"/sandboxes/{sandbox}/refreshes", {"duration": 1000}).status == 204
    assert 940 < left() < 1001
    assert control.ask("POST", f"/sandboxes/{sandbox}/timeout", {"timeout": 100}).status == 204
    assert 50 < left() < 101
    assert control.ask("POST", f"/sandboxes/{sandbox}/timeout", {"timeout": 1}).status == 204
    control.engine.wait(lambda: control.engine.kills == [sandbox])
    until(lambda: control.ids() == [])
    other = control.create()["sandboxID"]
    assert control.ask("POST", f"/sandboxes/{other}/timeout", {"timeout": 0}).status == 204
    assert control.ask("POST", f"/sandboxes/{other}/timeout", {"timeout": 9}).message == UNKNOWN % other
    assert control.ask("POST", f"/sandboxes/{other}/connect", {"timeout": 9}).message == UNKNOWN % other


def test_listing(control):
    made = [control.create(metadata={"n": str(i), "a b": "c&d", "x": "ü"})["sandboxID"] for i in range(7)]
    assert sorted(control.ids()) == sorted(made)

    def pages(query):
        found, token = [], ""
        while True:
            answer = control.ask("GET", f"/v2/sandboxes?limit=3{query}{token}")
            assert answer.status == 200 and answer.headers["X-Total-Running"] == "7"
            found.append([s["sandboxID"] for s in answer.json])
            if "X-Next-Token" not in answer.headers:
                return found
            token = "&nextToken=" + answer.headers["X-Next-Token"]

    newest = [s["sandboxID"] for s in control.ask("GET", "/v2/sandboxes").json]
    assert [len(p) for p in pages("")] == [3, 3, 1]
    assert sum(pages(""), []) == newest
    assert sorted(sum(pages("&order=asc"), [])) == sorted(newest)
    starts = [s["startedAt"] for s in control.ask("GET", "/v2/sandboxes?order=asc").json]
    assert starts == sorted(starts)
    # The wire sample of both SDKs.
    sample = "metadata=a%252520b%3Dc%252526d%26x%3D%2525C3%2525BC"
    assert len(control.ask("GET", f"/v2/sandboxes?{sample}").json) == 7
    one = control.ask("GET", "/sandboxes?metadata=n%3D3").json
    assert [s["sandboxID"] for s in one] == [made[3]] and one[0]["metadata"]["x"] == "ü"
    assert control.ask("GET", "/v2/sandboxes?metadata=n%3D3%26x%3Dno").json == []
    assert len(control.ask("GET", "/v2/sandboxes?state=running%2Cpaused").json) == 7
    assert control.ask("GET", "/v2/sandboxes?state=paused").json == []
    assert control.ask("GET", "/sandboxes?status=stopped").json == []
    assert len(control.ask("GET", "/sandboxes?status=running&limit=5&offset=4").json) == 3
    assert control.ask("GET", "/v2/sandboxes?template=nope").json == []
    assert len(control.ask("GET", "/v2/sandboxes?template=base").json) == 7
    assert len(control.ask("GET", f"/v2/sandboxes?template={one[0]['templateID']}").json) == 7
    last = control.ask("GET", "/v2/sandboxes?order=asc").json[-1]["startedAt"]
    late = control.ask("GET", f"/v2/sandboxes?startedAfter={last}").json
    assert late and all(s["startedAt"] == last for s in late)
    for query in ("limit=0", "limit=101", "order=up", "state=odd", "startedAfter=x", "template=a:b",
                  "nextToken=xyz", "metadata=%25zz", "metadata=a"):
        assert control.ask("GET", f"/v2/sandboxes?{query}").status == 400, query
    token = base64.urlsafe_b64encode(f"{last}__{made[0]}__asc".encode()).decode().rstrip("=")
    assert control.ask("GET", f"/v2/sandboxes?nextToken={token}").message == "Invalid next token"


def test_same_idempotency_key_gives_the_first_answer(control):
    hold = threading.Event()
    control.engine.on_create = lambda sandbox: hold.wait(BUSY_S) and None
    key = {"Idempotency-Key": "key-1"}
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        calls = [pool.submit(control.create, 201, key) for _ in range(20)]
        control.engine.wait(lambda: control.engine.creates)
        other = control.create(409, key, timeout=7)
        assert "Idempotency-Key" in other["message"]
        hold.set()
        answers = [call.result() for call in calls]
    assert all(a == answers[0] for a in answers)
    assert len(control.engine.creates) == 1 and len(control.ids()) == 1
    control.restart()
    assert control.create(201, key) == answers[0]
    assert control.create(409, key, path="/sandboxes")["code"] == 409
    assert control.ask("DELETE", f"/sandboxes/{answers[0]['sandboxID']}").status == 204
    assert control.create(201, key) == answers[0]
    for bad in ("", "UPPER", "a" * 256, "a_b"):
        assert control.create(400, {"Idempotency-Key": bad})["message"].startswith("Invalid Idempotency-Key")


def test_a_failed_create_frees_its_idempotency_key(control):
    key = {"Idempotency-Key": "key-2"}
    for code in (13, 7, 3):
        control.engine.on_create = lambda sandbox, code=code: (code, "no luck")
        answer = control.ask("POST", "/v2/sandboxes", {"templateID": "base"}, key)
        assert (answer.status, answer.message) == (500, "Failed to create sandbox while starting: no luck")
    control.engine.on_create = lambda sandbox: (8, "no slot is free")
    answer = control.ask("POST", "/v2/sandboxes", {"templateID": "base"}, key)
    assert (answer.status, answer.message) == (429, "Failed to create sandbox while starting: no slot is free")
    assert answer.headers["Should-Retry"] == "false"
    control.engine.on_create = lambda sandbox: None
    made = control.create(201, key)
    control.engine.wait(lambda: len(control.engine.kills) == 4)
    assert control.ids() == [made["sandboxID"]] == list(control.engine.sandboxes)


def test_kill_wins_while_creating(control):
    hold = threading.Event()
    control.engine.on_create = lambda sandbox: hold.wait(BUSY_S) and None
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        call = pool.submit(control.create, 409)
        control.engine.wait(lambda: control.engine.creates)
        sandbox = control.engine.creates[0][0]
        assert control.ask("GET", f"/sandboxes/{sandbox}").status == 404
        kill = pool.submit(control.ask, "DELETE", f"/sandboxes/{sandbox}")
        assert "killed while it was created" in call.result()["message"]
        assert not kill.done()
        hold.set()
        assert kill.result().status == 204
    assert control.engine.sandboxes == {} and control.ids() == []


def test_concurrent_kills_have_one_winner(control):
    hold = threading.Event()
    control.engine.on_kill = lambda sandbox: hold.wait(BUSY_S) and None
    sandbox = control.create()["sandboxID"]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(control.ask, "DELETE", f"/sandboxes/{sandbox}") for _ in range(8)]
        control.engine.wait(lambda: control.engine.kills)
        assert control.ask("GET", f"/sandboxes/{sandbox}").status == 404
        assert control.ask("POST", f"/sandboxes/{sandbox}/connect", {"timeout": 5}).status == 409
        hold.set()
        assert sorted(call.result().status for call in calls) == [204] + [404] * 7


def test_a_failing_kill_is_tried_again(control):
    answers = [(13, "stuck"), None]
    control.engine.on_kill = lambda sandbox: answers.pop(0)
    sandbox = control.create()["sandboxID"]
    assert control.ask("DELETE", f"/sandboxes/{sandbox}").status == 204
    assert control.engine.kills == [sandbox, sandbox] and control.engine.sandboxes == {}


def test_death_reaches_gateways_and_list(control):
    gateway = control.gateway()
    sandbox = control.create()["sandboxID"]
    gateway.wait(lambda: sandbox in gateway.entries)
    control.engine.die(sandbox, "oom")
    gateway.wait(lambda: sandbox not in gateway.entries)
    until(lambda: control.ids() == [])
    assert control.ask("DELETE", f"/sandboxes/{sandbox}").status == 404


def test_kill_waits_for_gateways_but_not_for_deaf_ones(control):
    good, deaf = control.gateway(), control.gateway()
    deaf.is_deaf = True
    sandbox = control.create()["sandboxID"]
    good.wait(lambda: sandbox in good.entries)
    begin = time.monotonic()
    assert control.ask("DELETE", f"/sandboxes/{sandbox}").status == 204
    assert 1.9 < time.monotonic() - begin
    deaf.wait(lambda: deaf.is_closed)
    assert sandbox not in good.entries and not good.is_closed
    again = control.create()["sandboxID"]
    assert control.ask("DELETE", f"/sandboxes/{again}").status == 204
    assert (control.folder / "log").read_text().count("does not let go of a sandbox in time") == 1  # it is not waited for again


def test_gateways_get_the_whole_table_and_may_ask(control):
    made = {control.create()["sandboxID"] for _ in range(5)}
    gateway = control.gateway()
    assert set(gateway.entries) == made
    found = gateway.look_up(min(made), 5)
    assert found[1] == [1]
    assert 1 not in gateway.look_up("inone", 6)


def test_restart_with_rows_in_every_state(control):
    hold = threading.Event()
    living = control.create(metadata={"k": "v"}, timeout=500)
    ended = control.create(timeout=5)["sandboxID"]
    lost = control.create()["sandboxID"]
    killed = control.create()["sandboxID"]
    control.engine.on_create = lambda sandbox: hold.wait(BUSY_S) and None
    control.engine.on_kill = lambda sandbox: hold.wait(BUSY_S) and None
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        made = len(control.engine.creates)
        pool.submit(control.create)
        pool.submit(control.ask, "DELETE", f"/sandboxes/{killed}")
        control.engine.wait(lambda: len(control.engine.creates) > made and control.engine.kills)
        half = control.engine.creates[-1][0]
        control.kill()
        control.engine.on_create = control.engine.on_kill = lambda sandbox: None
        hold.set()
    control.engine.wait(lambda: half in control.engine.sandboxes)
    control.engine.sandboxes["istranger"] = {}
    del control.engine.sandboxes[lost]
    time.sleep(5.1)  # the deadline passes while control is away
    control.engine.kills.clear()
    control.start()
    until(lambda: set(control.engine.sandboxes) == {living["sandboxID"]})
    until(lambda: control.ids() == [living["sandboxID"]])
    assert {half, ended, "istranger"} <= set(control.engine.kills)
    detail = control.ask("GET", f"/sandboxes/{living['sandboxID']}").json
    assert detail["metadata"] == {"k": "v"} and detail["endAt"] == living["endAt"]
    assert detail["envdAccessToken"] == living["envdAccessToken"]
    assert detail["templateID"] == living["templateID"]
    db = sqlite3.connect(control.folder / "control/abx.db")
    rows = lambda: db.execute("SELECT id, state FROM sandboxes").fetchall()
    until(lambda: rows() == [(living["sandboxID"], "running")])


def test_kill_9_amid_creates_leaves_no_orphan(control):
    control.engine.on_create = lambda sandbox: time.sleep(0.02)
    stop = threading.Event()
    answered = []

    def create():
        while not stop.is_set():
            try:
                answer = control.ask("POST", "/v2/sandboxes", {"templateID": "base"})
            except OSError:
                continue
            except Exception:  # http.client's: the connection ended in the middle
                continue
            if answer.status == 201:
                answered.append(answer.json["sandboxID"])

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        for _ in range(6):
            pool.submit(create)
        for n in range(5):
            until(lambda n=n: len(answered) > 20 * (n + 1))
            control.restart()
        stop.set()
    until(lambda: set(control.ids()) == set(control.engine.sandboxes))
    assert set(answered) <= set(control.engine.sandboxes)


def test_expiry_survives_a_restart(control):
    begin = time.monotonic()
    sandbox = control.create(timeout=3)["sandboxID"]
    control.restart()
    control.engine.wait(lambda: sandbox in control.engine.kills)
    assert 2.5 < time.monotonic() - begin  # it was not ended by the restart


@pytest.mark.slow
def test_requests_wait_for_the_engine(control):
    control.engine.stop()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(control.create) for _ in range(4)]
        until(lambda: control.admin({"op": "info"})["engine_up"] is False)
        assert not any(call.done() for call in waiting)
        control.engine.start()
        made = {call.result()["sandboxID"] for call in waiting}
    assert made == set(control.engine.sandboxes)
    sandbox = made.pop()
    control.engine.stop()
    assert sandbox in control.ids()
    begin = time.monotonic()
    answer = control.ask("POST", "/v2/sandboxes", {"templateID": "base"})
    assert answer.status == 503 and answer.headers["Should-Retry"] == "true"
    assert 4.5 < time.monotonic() - begin
    answer = control.ask("DELETE", f"/sandboxes/{sandbox}")
    assert answer.status == 503 and answer.headers["Should-Retry"] == "false"
    control.engine.start()
    until(lambda: sandbox not in control.engine.sandboxes)
    until(lambda: sandbox not in control.ids())


def test_a_wake_while_the_engine_is_away_is_refused_before_anything_is_begun(control):
    """Gateways ask for it twice a second, for each sandbox that has traffic: nobody else is to hear of that."""
    gateway = control.gateway()
    box = control.create(timeout=500, autoPause=True, autoResume={"enabled": True})["sandboxID"]
    assert control.ask("POST", f"/sandboxes/{box}/pause", {"memory": False}).status == 204
    control.engine.stop()
    until(lambda: control.admin({"op": "info"})["engine_up"] is False)
    for seq in (50, 51, 52, 53):
        gateway.conn.send(frame(WAKE, {1: box}, seq))
        gateway.wait(lambda seq=seq: seq in gateway.failures)
        assert gateway.failures[seq][1] == [14] and 2 not in gateway.failures[seq]  # UNAVAILABLE, and no reason: ask again
    # What the pause had to tell may come until the first refusal.
    assert gateway.told[gateway.told.index(ERROR) :] == [ERROR] * 4, gateway.told
    assert "cannot be resumed" not in (control.folder / "log").read_text()
    assert control.ask("GET", f"/sandboxes/{box}").json["state"] == "paused"


def test_an_engine_killed_amid_a_create_leaves_nothing(control):
    hold = threading.Event()
    control.engine.on_create = lambda sandbox: hold.wait(BUSY_S) and None
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        call = pool.submit(control.ask, "POST", "/v2/sandboxes", {"templateID": "base"})
        control.engine.wait(lambda: control.engine.creates)
        control.engine.stop()
        answer = call.result()
    assert answer.status == 503 and answer.headers["Should-Retry"] == "true"
    hold.set()
    half = control.engine.creates[0][0]
    control.engine.wait(lambda: half in control.engine.sandboxes)
    control.engine.on_create = lambda sandbox: None
    control.engine.start()
    control.wait_up()
    until(lambda: control.engine.sandboxes == {})


def test_a_client_that_goes_away_leaves_no_sandbox(control):
    hold = threading.Event()
    control.engine.on_create = lambda sandbox: hold.wait(BUSY_S) and None
    conn = control.http()
    conn.request("POST", "/v2/sandboxes", json.dumps({"templateID": "base"}), {"X-API-Key": control.key})
    control.engine.wait(lambda: control.engine.creates)
    conn.close()
    control.engine.wait(lambda: control.engine.kills)
    hold.set()
    # Once at once, and once more behind the driver's answer to the create.
    control.engine.wait(lambda: len(control.engine.kills) == 2)
    until(lambda: control.engine.sandboxes == {})
    assert control.ids() == []


def test_templates_follow_the_engine(control):
    first = control.create()
    control.engine.templates["other"] = "e" * 64
    made = control.create(templateID="other")
    assert made["alias"] == "other" and made["templateID"] != first["templateID"]
    control.engine.templates["base"] = "f" * 64
    control.engine.on_create = lambda s: (5, "no layers") if text(control.engine.creates[-1][1], 2)[0] == "d" else None
    rebuilt = control.create()
    assert rebuilt["templateID"] == first["templateID"]
    assert text(control.engine.creates[-1][1], 2) == "f" * 64
    del control.engine.templates["other"]
    listed = control.admin({"op": "template.list"})["templates"]
    assert [(t["name"], t["digest"], t["suite"]) for t in listed] == [("base", "f" * 64, "bookworm")]
    assert control.create(404, templateID="other")["message"] == "template 'other' not found"
    control.restart()
    assert control.create()["templateID"] == first["templateID"]


def test_admin_operations(control):
    info = control.admin({"op": "info"})
    assert info["instance"] == "0123456789ab" and info["sandboxes"] == 0
    assert control.admin({"op": "audit"}) == {"findings": ["a finding"], "repaired": 0}
    for request, code in (
        ({"op": "nothing"}, "unimplemented"),
        ({}, "unimplemented"),
        ({"op": "key.revoke", "id": "nope"}, "not_found"),
        ({"op": "key.create", "name": "x" * 65}, "invalid_argument"),
        ({"op": "key.create", "scopes": ["all"]}, "invalid_argument"),
        ({"op": "key.create", "team": "other"}, "not_found"),
    ):
        assert control.admin(request)["error"]["code"] == code


def test_operations_without_a_service(control):
    def run(request):
        return subprocess.run(
            [control.program, f"--data-dir={control.folder}", "--admin"],
            input=json.dumps(request).encode(), capture_output=True, timeout=BUSY_S,
        )

    held = run({"op": "info"})
    assert held.returncode != 0 and b"the service runs" in held.stderr
    assert control.kill(signal.SIGTERM) == 0
    made = json.loads(run({"op": "key.create", "name": "offline"}).stdout)
    failed = run({"op": "audit"})
    assert failed.returncode == 1 and json.loads(failed.stdout)["error"]["code"] == "unavailable"
    control.start()
    control.key = made["key"]
    assert control.ids() == []


def test_it_is_locked_in(build_dir, tmp_path):
    control = Control(build_dir, tmp_path, "--uid=1879040000", "--gid=1879040001")
    try:
        control.create()
        control.restart()
        assert len(control.ids()) == 1
        pid = control.process.pid
        status = dict(
            line.split(":\t", 1) for line in open(f"/proc/{pid}/status").read().splitlines() if ":\t" in line
        )
        assert status["Uid"].split() == ["1879040000"] * 4 and status["Gid"].split() == ["1879040001"] * 4
        assert status["Groups"].strip() == "" and int(status["CapEff"], 16) == 0
        assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2"
        assert os.path.samefile(f"/proc/{pid}/root", f"{tmp_path}/control")
        for thread in os.listdir(f"/proc/{pid}/task"):
            assert "Seccomp:\t2" in open(f"/proc/{pid}/task/{thread}/status").read()
    finally:
        control.close()
