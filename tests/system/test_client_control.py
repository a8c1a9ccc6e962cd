"""The control plane through libabx: against a real service, and against a server that answers wrongly."""

import ctypes
import json
import os
import re
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from conftest import ROOT
from service import Service
from waiting import BUSY_S, until

from libabx import Error

SANDBOX = {"sandboxID": "i1", "templateID": "base", "clientID": "c", "envdVersion": "0.6.13"}
LISTED = {
    "sandboxID": "i1", "templateID": "base", "clientID": "c", "envdVersion": "0.6.13", "state": "running",
    "startedAt": "2026-01-02T03:04:05.678901Z", "endAt": "2026-01-02T03:09:05Z", "cpuCount": 2, "memoryMB": 512,
    "diskSizeMB": 1024,
}
METRIC = {
    "timestamp": "2026-01-02T03:04:05Z", "timestampUnix": 1767323045, "cpuCount": 2, "cpuUsedPct": 1.5, "memUsed": 1,
    "memTotal": 2, "memCache": 3, "diskUsed": 4, "diskTotal": 5,
}
LOG = {"timestamp": "2026-01-02T03:04:05Z", "message": "hello", "level": "info", "fields": {"a": "b"}}
SNAPSHOT = {"snapshotID": "team/x:default", "names": ["team/x"]}


class Fake:
    """A server with scripted answers: (status, body, headers) each, the last one for every further request."""

    def __init__(self):
        self.requests, self.answers = [], []
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                size = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(size)
                fake.requests.append((self.command, self.path, dict(self.headers), body))
                status, text, headers = fake.answers.pop(0) if len(fake.answers) > 1 else fake.answers[0]
                data = text if isinstance(text, bytes) else (b"" if text is None else json.dumps(text).encode())
                self.send_response(status)
                if data and not isinstance(text, bytes):
                    self.send_header("Content-Type", "application/json")
                for name, value in headers.items():
                    self.send_header(name, value)
                if status != 204:
                    self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = answer

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def will(self, status, body=None, **headers):
        self.requests.clear()
        self.answers = [(status, body, {k.replace("_", "-"): v for k, v in headers.items()})]
        return self

    def then(self, status, body=None, **headers):
        self.answers.append((status, body, {k.replace("_", "-"): v for k, v in headers.items()}))
        return self

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(BUSY_S)


@pytest.fixture(scope="module")
def fake():
    server = Fake()
    yield server
    server.close()


@pytest.fixture
def config(abx, fake):
    made = abx.config(api_url=fake.url, api_key="e2b_00", domain="sbx.test", request_timeout_ms=20000)
    yield made
    abx.c.abx_config_unref(made)


UNSET = -1


def calls(abx):
    """Every operation: how it is called, what goes over the wire, what a good answer is, what a 404 means."""
    pairs = {"a b": "c&d", "x": "ü"}
    listing = abx.struct("abx_list_opts", metadata=pairs, states="running,paused", template_id="base", limit=7,
                         next_token="t/1")
    logs = abx.struct("abx_logs_opts", cursor_ms=5, limit=6, backward=1, level="warn", search="a b")
    create = abx.struct("abx_create_opts", template_id="tpl", timeout_s=60, metadata={"k": "v"}, envs={"E": "1"})
    request = abx.struct("abx_control_opts", method="PATCH", path="/v2/templates/a%2Fb", query="x=%20",
                         body_json='{"public":true}')
    return {
        "abx_sandbox_create": ((create,), "POST", "/sandboxes", {
            "templateID": "tpl", "timeout": 60, "secure": True, "allow_internet_access": True,
            "metadata": {"k": "v"}, "envVars": {"E": "1"}}, 201, SANDBOX, "TEMPLATE_NOT_FOUND"),
        "abx_sandbox_connect": (("i1", 0, UNSET), "POST", "/sandboxes/i1/connect", {"timeout": 300}, 200, SANDBOX,
                                "SANDBOX_NOT_FOUND"),
        "abx_sandbox_kill": (("i1", UNSET), "DELETE", "/sandboxes/i1", None, 204, None, False),
        "abx_sandbox_set_timeout": (("i1", 5, UNSET), "POST", "/sandboxes/i1/timeout", {"timeout": 5}, 204, None,
                                    "SANDBOX_NOT_FOUND"),
        "abx_sandbox_pause": (("i1", 0, UNSET), "POST", "/sandboxes/i1/pause", {"memory": False}, 204, None,
                              "SANDBOX_NOT_FOUND"),
        "abx_sandbox_pause_strict": (("i1", 1, UNSET), "POST", "/sandboxes/i1/pause",
                                     {"memory": True, "requireHealthyGuest": True}, 204, None, "SANDBOX_NOT_FOUND"),
        "abx_sandbox_update_network": (("i1", '{"denyOut":["0.0.0.0/0"]}', UNSET), "PUT", "/sandboxes/i1/network",
                                       {"denyOut": ["0.0.0.0/0"]}, 204, None, "SANDBOX_NOT_FOUND"),
        "abx_sandbox_get_info": (("i1", UNSET), "GET", "/sandboxes/i1", None, 200, LISTED, "SANDBOX_NOT_FOUND"),
        "abx_sandbox_list": ((listing,), "GET",
                             "/v2/sandboxes?metadata=a%252520b%3Dc%252526d%26x%3D%2525C3%2525BC"
                             "&state=running%2Cpaused&template=base&limit=7&nextToken=t%2F1",
                             None, 200, [LISTED], "NONE"),
        "abx_sandbox_get_metrics": (("i1", 10, 20, UNSET), "GET", "/sandboxes/i1/metrics?start=10&end=20", None, 200,
                                    [METRIC], "SANDBOX_NOT_FOUND"),
        "abx_sandbox_get_logs": (("i1", logs), "GET",
                                 "/v2/sandboxes/i1/logs?cursor=5&limit=6&direction=backward&level=warn&search=a%20b",
                                 None, 200, {"logs": [LOG]}, "SANDBOX_NOT_FOUND"),
        "abx_snapshot_create": (("i1", "x", UNSET), "POST", "/sandboxes/i1/snapshots", {"name": "x"}, 201, SNAPSHOT,
                                "SANDBOX_NOT_FOUND"),
        "abx_snapshot_list": (("i1", "x", 3, "t", UNSET), "GET", "/snapshots?sandboxID=i1&name=x&limit=3&nextToken=t",
                              None, 200, [SNAPSHOT], "NONE"),
        "abx_snapshot_delete": (("team/x:default", UNSET), "DELETE", "/templates/team%2Fx%3Adefault", None, 204, None,
                                False),
        "abx_sandbox_rollback": (("i1", "x", UNSET), "POST", "/sandboxes/i1/rollback", {"snapshotID": "x"}, 200, LISTED, "NONE"),
        "abx_sandbox_fork": (("i1", 2, 9, UNSET), "POST", "/sandboxes/i1/fork", {"count": 2, "timeout": 9}, 201,
                             [{"sandbox": SANDBOX}], "SANDBOX_NOT_FOUND"),
        "abx_control_request": ((request,), "PATCH", "/v2/templates/a%2Fb?x=%20", {"public": True}, 200,
                                {"names": []}, "NONE"),
    }


NAMES = [
    "abx_sandbox_create", "abx_sandbox_connect", "abx_sandbox_kill", "abx_sandbox_set_timeout", "abx_sandbox_pause",
    "abx_sandbox_pause_strict", "abx_sandbox_update_network", "abx_sandbox_get_info", "abx_sandbox_list", "abx_sandbox_get_metrics",
    "abx_sandbox_get_logs", "abx_snapshot_create", "abx_snapshot_list", "abx_snapshot_delete", "abx_sandbox_rollback", "abx_sandbox_fork",
    "abx_control_request",
]
WITH_JSON = [n for n in NAMES if n not in (
    "abx_sandbox_kill", "abx_sandbox_set_timeout", "abx_sandbox_pause", "abx_sandbox_pause_strict",
    "abx_sandbox_update_network", "abx_snapshot_delete")]


def failure(client, function, *args):
    with pytest.raises(Error) as caught:
        client.run(function, *args)
    return caught.value


# ---- what goes over the wire ----


@pytest.mark.parametrize("name", NAMES)
def test_requests_are_those_of_the_protocol(abx, fake, client, config, name):
    args, method, path, body, status, answer, _ = calls(abx)[name]
    fake.will(status, answer)
    client.run(name, config, *args)
    (sent,) = fake.requests
    headers = {k.lower(): v for k, v in sent[2].items()}
    assert sent[:2] == (method, path)
    assert (json.loads(sent[3]) if sent[3] else None) == body
    assert headers["x-api-key"] == "e2b_00"
    assert re.fullmatch(r"(agent-sandbox-abx|abx|libabx)/\S+( .*)?", headers["user-agent"]), headers["user-agent"]
    assert headers.get("content-type") == ("application/json" if body is not None else None)
    assert ("idempotency-key" in headers) == (name == "abx_sandbox_create")


def test_all_options_of_create(abx, fake, client, config):
    mount = abx.headers.structs["abx_volume_mount"](b"v", b"/data")
    opts = abx.struct(
        "abx_create_opts", secure=0, allow_internet_access=0, auto_pause=1, auto_pause_memory=0, auto_resume=1,
        network_json='{"allowOut":[]}', mcp_json='{"m":{}}', iam_json='{"tokens":{}}', cpu_count=1, memory_mb=2,
        disk_mb=3, idempotency_key="key-1")
    opts.mounts, opts.mount_count = ctypes.pointer(mount), 1
    fake.will(201, SANDBOX)
    client.run("abx_sandbox_create", config, opts)
    assert json.loads(fake.requests[0][3]) == {
        "templateID": "base", "timeout": 300, "secure": False, "allow_internet_access": False, "autoPause": True,
        "autoPauseMemory": False, "autoResume": {"enabled": True}, "network": {"allowOut": []}, "mcp": {"m": {}},
        "iam": {"tokens": {}}, "volumeMounts": [{"name": "v", "path": "/data"}], "cpuCount": 1, "memoryMB": 2,
        "diskSizeMB": 3}
    assert fake.requests[0][2]["Idempotency-Key"] == "key-1"


@pytest.mark.parametrize("opts, words", [
    ({"timeout_s": -1}, "timeout"),
    ({"timeout_s": 1 << 40}, "timeout"),
    ({"network_json": "{"}, "network_json: line 1"),
    ({"mcp_json": "[]"}, "mcp_json"),
    ({"metadata": {"a": b"\xff"}}, "metadata"),
    ({"envs": {b"\xff": "a"}}, "envVars"),
    ({"memory_mb": -1}, "memoryMB"),
    ({"idempotency_key": "A"}, "idempotency key"),
    ({"idempotency_key": "a" * 256}, "idempotency key"),
    ({"template_id": b"\xc3"}, "templateID"),
])
def test_wrong_options_of_create_send_nothing(abx, fake, client, config, opts, words):
    fake.will(201, SANDBOX)
    error = failure(client, "abx_sandbox_create", config, abx.struct("abx_create_opts", **opts))
    assert error.code == "INVALID_ARGUMENT" and words in error.message
    assert fake.requests == []


def test_wrong_arguments_send_nothing(abx, fake, client, config):
    fake.will(200, {})
    request = lambda **values: abx.struct("abx_control_opts", **{"method": "GET", "path": "/x", **values})
    wrong = [
        ("abx_sandbox_kill", ("a/b", UNSET), "sandbox id"),
        ("abx_sandbox_get_info", ("..", UNSET), "sandbox id"),
        ("abx_sandbox_connect", (None, 0, UNSET), "sandbox id"),
        ("abx_sandbox_get_logs", ("", None), "sandbox id"),
        ("abx_sandbox_get_metrics", ("x" * 129, 0, 0, UNSET), "sandbox id"),
        ("abx_sandbox_update_network", ("i1", "[]", UNSET), "network_json"),
        ("abx_sandbox_update_network", ("i1", None, UNSET), "network_json"),
        ("abx_sandbox_list", (abx.struct("abx_list_opts", limit=101),), "limit"),
        ("abx_snapshot_list", (None, None, -1, None, UNSET), "limit"),
        ("abx_snapshot_delete", ("..", UNSET), "snapshot id"),
        ("abx_snapshot_delete", (None, UNSET), "snapshot id"),
        ("abx_sandbox_fork", ("i1", 0, 0, UNSET), "count"),
        ("abx_sandbox_fork", ("i1", 101, 0, UNSET), "count"),
        ("abx_control_request", (request(method="get"),), "method"),
        ("abx_control_request", (request(method=None),), "method"),
        ("abx_control_request", (request(path="x"),), "path"),
        ("abx_control_request", (request(path="/x?y"),), "path"),
        ("abx_control_request", (request(path="/x\r\nA: b"),), "path"),
        ("abx_control_request", (request(query="a b"),), "query"),
        ("abx_control_request", (request(body_json="{"),), "body_json"),
    ]
    for name, args, words in wrong:
        error = failure(client, name, config, *args)
        assert error.code == "INVALID_ARGUMENT" and words in error.message, (name, args, error)
    assert fake.requests == []


def test_headers_of_the_config_come_along_and_win(abx, fake, client):
    config = abx.config(api_url=fake.url, api_key="k", headers={"User-Agent": "mine", "X-Other": "1", "X-API-Key": "z"})
    fake.will(200, LISTED)
    client.run("abx_sandbox_get_info", config, "i1", UNSET)
    (sent,) = fake.requests
    assert sent[2]["User-Agent"] == "mine" and sent[2]["X-Other"] == "1" and sent[2]["X-API-Key"] == "z"
    abx.c.abx_config_unref(config)


def test_without_a_key_nothing_is_sent(abx, fake, client, monkeypatch, tmp_path):
    for name in ("E2B_API_KEY", "ABX_SANDBOX_API_KEY", "E2B_ACCESS_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    config = abx.config(api_url=fake.url)
    fake.will(200, LISTED)
    error = failure(client, "abx_sandbox_get_info", config, "i1", UNSET)
    assert (error.code, error.reason) == ("UNAUTHENTICATED", "NO_CREDENTIALS") and fake.requests == []
    abx.c.abx_config_unref(config)


# ---- answers ----


def text(value):
    return value.decode() if value is not None else None


def test_the_sandbox_of_an_answer(abx, fake, client, config):
    fake.will(201, {**SANDBOX, "envdAccessToken": "tok", "trafficAccessToken": None, "domain": "x.test", "new": [1]})
    call = client.run("abx_sandbox_create", config, None)
    sb = call.take_sandbox()
    get = lambda name, *more: text(getattr(abx.c, f"abx_sandbox_{name}")(sb, *more))
    assert (get("id"), get("template_id"), get("envd_version")) == ("i1", "base", "0.6.13")
    assert (get("access_token"), get("traffic_token"), get("domain")) == ("tok", None, "x.test")
    assert get("envd_url", 0) == fake.url  # an explicit http:// base URL, by headers
    assert not call.take_sandbox()
    abx.c.abx_sandbox_unref(sb)
    fake.will(201, {**SANDBOX, "envdUrl": "http://127.0.0.1:9/"})
    sb = client.run("abx_sandbox_connect", config, "i1", 0, UNSET).take_sandbox()
    assert get("envd_url", 0) == "http://127.0.0.1:9"
    abx.c.abx_sandbox_unref(sb)
    # Nobody takes this one: it goes with its call.
    client.run("abx_sandbox_create", config, None)


def test_details(abx, fake, client, config):
    fake.will(200, {
        **LISTED, "alias": "al", "domain": None, "envdAccessToken": "tok", "allowInternetAccess": False,
        "network": {"allowOut": ["1.1.1.1"]}, "lifecycle": {"onTimeout": "pause", "autoResume": True},
        "metadata": {"k": "v", "n": 1}, "volumeMounts": [{"name": "v", "path": "/d"}], "state": "hibernating",
        "trafficAccessToken": "traffic", "abxCodecs": ["json", "proto"]})
    call = client.run("abx_sandbox_get_info", config, "i1", UNSET)
    (info,) = call.items("abx_call_sandbox_infos")
    assert [text(v) for v in (info.sandbox_id, info.alias, info.state, info.domain, info.envd_access_token)] == [
        "i1", "al", "hibernating", None, "tok"]
    assert (info.started_at_us, info.end_at_us) == (1767323045678901, 1767323345000000)
    assert (info.cpu_count, info.memory_mb, info.disk_mb) == (2, 512, 1024)
    assert (info.allow_internet_access, info.auto_resume, text(info.on_timeout)) == (0, 1, "pause")
    assert json.loads(info.network_json) == {"allowOut": ["1.1.1.1"]}
    assert {info.metadata[i].key: info.metadata[i].value for i in range(info.metadata_count)} == {b"k": b"v", b"n": b"1"}
    assert (info.mount_count, info.mounts[0].name, info.mounts[0].path) == (1, b"v", b"/d")
    assert (info.traffic_access_token, info.protobuf) == (b"traffic", 1)
    fake.will(200, LISTED)
    (info,) = client.run("abx_sandbox_get_info", config, "i1", UNSET).items("abx_call_sandbox_infos")
    assert (info.allow_internet_access, info.auto_resume, info.on_timeout, info.metadata_count) == (-1, -1, None, 0)
    assert (info.traffic_access_token, info.protobuf) == (None, 0)


def test_lists_metrics_logs_and_snapshots(abx, fake, client, config):
    fake.will(200, [LISTED, {**LISTED, "sandboxID": "i2"}], X_Next_Token="tok")
    call = client.run("abx_sandbox_list", config, None)
    assert [i.sandbox_id for i in call.items("abx_call_sandbox_infos")] == [b"i1", b"i2"]
    assert abx.c.abx_call_next_token(call.handle) == b"tok"
    assert call.items("abx_call_metrics") == []
    fake.will(200, [])
    call = client.run("abx_sandbox_list", config, None)
    assert call.items("abx_call_sandbox_infos") == [] and abx.c.abx_call_next_token(call.handle) is None
    fake.will(200, [METRIC])
    (m,) = client.run("abx_sandbox_get_metrics", config, "i1", 0, 0, UNSET).items("abx_call_metrics")
    assert (m.timestamp_us, m.cpu_used_pct, m.cpu_count, m.mem_used, m.mem_total, m.mem_cache, m.disk_used,
            m.disk_total) == (1767323045000000, 1.5, 2, 1, 2, 3, 4, 5)
    assert fake.requests[0][1] == "/sandboxes/i1/metrics"
    fake.will(200, {"logs": [LOG, {k: v for k, v in LOG.items() if k != "fields"}]})
    one, two = client.run("abx_sandbox_get_logs", config, "i1", None).items("abx_call_logs")
    assert (one.level, one.message, json.loads(one.fields_json), two.fields_json) == (
        b"info", b"hello", {"a": "b"}, b"{}")
    fake.will(200, [SNAPSHOT, {"snapshotID": "s2", "names": []}], X_Next_Token="n")
    call = client.run("abx_snapshot_list", config, None, None, 0, None, UNSET)
    one, two = call.items("abx_call_snapshots")
    assert (one.snapshot_id, one.name_count, one.names[0], two.name_count) == (b"team/x:default", 1, b"team/x", 0)
    assert abx.c.abx_call_next_token(call.handle) == b"n" and fake.requests[0][1] == "/snapshots"
    fake.will(200, b' {"a": 1}\n')
    request = abx.struct("abx_control_opts", method="GET", path="/x")
    assert client.run("abx_control_request", config, request).bytes() == b'{"a": 1}'
    fake.will(204)
    assert client.run("abx_control_request", config, request).bytes() == b"null"


@pytest.mark.parametrize("name", WITH_JSON)
@pytest.mark.parametrize("answer", [b"", b"{", b"null", b"3", b'"x"', b"[" * 100, b'{"a":1,"a":2}', b"\xff\xfe", b"[null]",
                                    b"<html>hello</html>"])
def test_answers_that_are_garbage(abx, fake, client, config, name, answer):
    args = calls(abx)[name][0]
    fake.will(200, answer)
    if name == "abx_control_request" and answer in (b"", b"null", b"3", b'"x"', b"[null]"):
        client.run(name, config, *args)  # any JSON will do
        return
    error = failure(client, name, config, *args)
    assert (error.code, error.reason, error.http_status) == ("INTERNAL", "PROTOCOL", 200)
    assert f"{calls(abx)[name][1]} /" in error.message and "answer" in error.message and "127.0.0.1:" in error.message


@pytest.mark.parametrize("copy, told", [
    (3, "[1] is no JSON object"), ({}, "[1] has neither sandbox nor error"), ({"sandbox": 3}, "sandbox is no object"),
    ({"sandbox": {}}, "sandboxID is missing"), ({"sandbox": {"sandboxID": "i", "domain": 3}}, "domain is no"),
    ({"error": {"code": 429}}, "message is missing"), ({"error": {"code": "x", "message": "m"}}, "code is no"),
])  # fmt: skip
def test_a_copy_that_is_neither_made_nor_refused_is_told(abx, fake, client, config, copy, told):
    fake.will(201, [{"error": {"code": 429, "message": "too many"}}, copy])
    error = failure(client, "abx_sandbox_fork", config, "i1", 2, 0, UNSET)
    assert error.reason == "PROTOCOL" and told in error.message, error.message


def test_every_required_field_is_missed_by_name(abx, fake, client, config):
    cases = [
        ("abx_sandbox_create", (None,), lambda o: o, SANDBOX, []),
        ("abx_sandbox_get_info", ("i1", UNSET), lambda o: o, LISTED, []),
        ("abx_sandbox_list", (None,), lambda o: [LISTED, o], LISTED, []),
        ("abx_sandbox_get_metrics", ("i1", 0, 0, UNSET), lambda o: [o], METRIC, ["timestampUnix"]),
        ("abx_sandbox_get_logs", ("i1", None), lambda o: {"logs": [o]}, LOG, ["fields"]),
        ("abx_snapshot_create", ("i1", None, UNSET), lambda o: o, SNAPSHOT, []),
        ("abx_snapshot_list", (None, None, 0, None, UNSET), lambda o: [o], SNAPSHOT, []),
    ]
    for name, args, wrap, good, optional in cases:
        for field in good:
            fake.will(200, wrap({k: v for k, v in good.items() if k != field}))
            if field in optional:
                client.run(name, config, *args)
                continue
            error = failure(client, name, config, *args)
            assert error.reason == "PROTOCOL" and f"{field} is missing" in error.message, (name, field, error)
            fake.will(200, wrap({**good, field: {"of": "another type"}}))
            error = failure(client, name, config, *args)
            assert error.reason == "PROTOCOL" and f"{field} is no " in error.message, (name, field, error)
    assert "[1]" in failure_of_list(fake, client, config)


def failure_of_list(fake, client, config):
    fake.will(200, [LISTED, {**LISTED, "state": None}])
    message = failure(client, "abx_sandbox_list", config, None).message
    assert "state is null" in message
    return message


@pytest.mark.parametrize("field, value", [("envdUrl", "ftp://x"), ("domain", "a/b"), ("envdAccessToken", "a b"),
                                          ("sandboxID", "a\nb"), ("envdUrl", 3), ("domain", ["x"])])
def test_addresses_that_cannot_be_are_the_servers_fault(abx, fake, client, config, field, value):
    fake.will(201, {**SANDBOX, field: value})
    error = failure(client, "abx_sandbox_create", config, None)
    assert (error.code, error.reason) == ("INTERNAL", "PROTOCOL")


def test_answers_have_a_limit(abx, fake, client, config):
    fake.will(200, b" " * (16 << 20) + b"[]")
    error = failure(client, "abx_sandbox_list", config, None)
    assert (error.code, error.reason) == ("RESOURCE_EXHAUSTED", "TOO_LARGE") and "16777216 bytes" in error.message
    big = json.dumps([{**LISTED, "metadata": {"k": "v" * 20000}}] * 100).encode()
    assert len(big) > 1 << 20
    fake.will(200, big)
    assert len(client.run("abx_sandbox_list", config, None).items("abx_call_sandbox_infos")) == 100
    fake.will(200, [METRIC] * 17280)  # a day
    assert len(client.run("abx_sandbox_get_metrics", config, "i1", 0, 0, UNSET).items("abx_call_metrics")) == 17280


# ---- errors ----

STATUSES = {
    400: ("INVALID_ARGUMENT", "NONE"), 401: ("UNAUTHENTICATED", "NONE"), 403: ("PERMISSION_DENIED", "NONE"),
    405: ("UNIMPLEMENTED", "METHOD"), 409: ("ALREADY_EXISTS", "CONFLICT"), 413: ("RESOURCE_EXHAUSTED", "TOO_LARGE"),
    429: ("RESOURCE_EXHAUSTED", "RATE_LIMITED"), 500: ("INTERNAL", "NONE"), 501: ("UNIMPLEMENTED", "NONE"),
    502: ("UNAVAILABLE", "UPSTREAM"), 503: ("UNAVAILABLE", "BUSY"), 504: ("DEADLINE_EXCEEDED", "NONE"),
    507: ("RESOURCE_EXHAUSTED", "DISK_FULL"), 418: ("UNKNOWN", "NONE"),
}


@pytest.mark.parametrize("said, kept", [
    ("sandbox_snapshot_guest_agent_unresponsive", "sandbox_snapshot_guest_agent_unresponsive"), ("a" * 63, "a" * 63),
    ("a" * 64, ""), ("no word", ""), ("é", ""), ("", ""), (7, ""), (None, ""),
])  # fmt: skip
def test_word_of_the_server(abx, fake, client, config, said, kept):
    fake.will(409, {"code": 409, "message": "why", "error_code": said})
    error = failure(client, "abx_sandbox_set_timeout", config, "i1", 5, UNSET)
    assert (error.code, error.message, error.error_code) == ("ALREADY_EXISTS", "why", kept)


@pytest.mark.parametrize("status", STATUSES)
def test_statuses_become_codes_and_the_message_stays(abx, fake, client, config, status):
    for body, message in (({"code": status, "message": "Why not"}, "Why not"), (None, f"HTTP status {status}"),
                          (b"plain text\n", "plain text"), (b"<html>page</html>", f"HTTP status {status}")):
        fake.will(status, body, Should_Retry="false")
        error = failure(client, "abx_sandbox_set_timeout", config, "i1", 5, UNSET)
        assert (error.code, error.reason, error.http_status) == (*STATUSES[status], status)
        if isinstance(body, dict):
            assert error.message == message
        else:
            assert error.message.endswith(message) and "POST /sandboxes/i1/timeout" in error.message
        assert len(fake.requests) == 1


@pytest.mark.parametrize("name", NAMES)
def test_what_a_404_means(abx, fake, client, config, name):
    args, *_, meaning = calls(abx)[name]
    for body in ({"code": 404, "message": "not there"}, None):
        fake.will(404, body)
        if meaning is False:
            assert client.run(name, config, *args).bool() is False
        else:
            error = failure(client, name, config, *args)
            assert (error.code, error.reason, error.http_status) == ("NOT_FOUND", meaning, 404)
    # Another server's page says nothing of sandboxes.
    fake.will(404, b"<html>nginx</html>")
    error = failure(client, name, config, *args)
    assert (error.code, error.reason) == ("NOT_FOUND", "NONE") and "127.0.0.1:" in error.message


def test_pausing_what_is_paused_is_false(fake, client, config):
    fake.will(409, {"code": 409, "message": "already paused"})
    assert client.run("abx_sandbox_pause", config, "i1", 1, UNSET).bool() is False
    fake.will(204)
    assert client.run("abx_sandbox_pause", config, "i1", 1, UNSET).bool() is True


def test_redirects_are_named_and_not_followed(fake, client, config):
    fake.will(308, None, Location="https://elsewhere.test/")
    error = failure(client, "abx_sandbox_get_info", config, "i1", UNSET)
    assert error.reason == "PROTOCOL" and "https://elsewhere.test/" in error.message and len(fake.requests) == 1


def test_nobody_listens(abx, client):
    config = abx.config(api_url="http://127.0.0.1:1", api_key="k", request_timeout_ms=10000)
    error = failure(client, "abx_sandbox_create", config, None)
    assert (error.code, error.reason) == ("UNAVAILABLE", "CONNECT") and "127.0.0.1:1" in error.message
    abx.c.abx_config_unref(config)


# ---- again or not again ----


@pytest.mark.parametrize("name", NAMES)
def test_only_what_has_no_second_effect_is_asked_again(abx, fake, client, config, name):
    args, method, *_ = calls(abx)[name]
    status, answer = calls(abx)[name][4:6]
    fake.will(503, {"code": 503, "message": "busy"}, Retry_After="0").then(status, answer)
    again = method in ("GET", "DELETE") or name == "abx_sandbox_create"
    if again:
        client.run(name, config, *args)
        assert len(fake.requests) == 2
    else:
        assert failure(client, name, config, *args).reason == "BUSY"
        assert len(fake.requests) == 1
    if name == "abx_sandbox_create":
        first, second = (r[2]["Idempotency-Key"] for r in fake.requests)
        assert first == second and re.fullmatch(r"[a-z0-9-]{36}", first)


def test_keys_of_creates_differ(fake, client, config):
    fake.will(201, SANDBOX)
    for _ in range(3):
        client.run("abx_sandbox_create", config, None)
    assert len({r[2]["Idempotency-Key"] for r in fake.requests}) == 3


def test_an_envd_that_is_too_old_is_killed(abx, fake, client, config):
    for answer in ((204, None), (404, {"code": 404, "message": "x"}), (500, b"oops")):
        fake.will(201, {**SANDBOX, "envdVersion": "0.0.9"}).then(*answer)
        error = failure(client, "abx_sandbox_create", config, None)
        assert (error.code, error.reason) == ("FAILED_PRECONDITION", "TEMPLATE_TOO_OLD") and "0.0.9" in error.message
        assert [r[:2] for r in fake.requests] == [("POST", "/sandboxes"), ("DELETE", "/sandboxes/i1")]
    fake.will(200, {**SANDBOX, "envdVersion": "0.0.9"})
    abx.c.abx_sandbox_unref(client.run("abx_sandbox_connect", config, "i1", 0, UNSET).take_sandbox())


def test_debug_mode_asks_nobody(abx, fake, client):
    config = abx.config(api_url=fake.url, api_key="k", debug=1)
    fake.will(500)
    sb = client.run("abx_sandbox_create", config, None).take_sandbox()
    assert abx.c.abx_sandbox_id(sb) == b"debug_sandbox_id"
    assert abx.c.abx_sandbox_envd_version(sb) == b"99.99.99"
    assert abx.c.abx_sandbox_envd_url(sb, 0) == b"http://localhost:49983"
    abx.c.abx_sandbox_unref(sb)
    sb = client.run("abx_sandbox_connect", config, "i9", 0, UNSET).take_sandbox()
    assert abx.c.abx_sandbox_id(sb) == b"i9"
    abx.c.abx_sandbox_unref(sb)
    assert client.run("abx_sandbox_kill", config, "i9", UNSET).bool() is True
    client.run("abx_sandbox_set_timeout", config, "i9", 5, UNSET)
    assert client.run("abx_sandbox_get_metrics", config, "i9", 0, 0, UNSET).items("abx_call_metrics") == []
    assert fake.requests == []
    abx.c.abx_config_unref(config)


def test_cancel_and_deadline(abx, client):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = abx.config(api_url=f"http://127.0.0.1:{silent.getsockname()[1]}", api_key="k")
        call = client.call("abx_sandbox_get_info", config, "i1", UNSET)
        call.cancel()
        with pytest.raises(Error) as caught:
            call.wait()
        assert caught.value.code == "CANCELED"
        began = time.monotonic()
        error = failure(client, "abx_sandbox_get_info", config, "i1", 300)
        assert (error.code, error.reason) == ("DEADLINE_EXCEEDED", "REQUEST_TIMEOUT")
        assert time.monotonic() - began < 10
        abx.c.abx_config_unref(config)


# ---- does it run? ----


def test_is_running_tells_gone_from_unreachable(abx, fake, client, config):
    sb = abx.sandbox(config, sandbox_id="i1", envd_access_token="tok")
    fake.will(204)
    assert client.run("abx_sandbox_is_running", sb, UNSET).bool() is True
    (sent,) = fake.requests
    assert sent[:2] == ("GET", "/health") and sent[2]["E2b-Sandbox-Id"] == "i1" and sent[2]["X-Access-Token"] == "tok"
    assert "X-API-Key" not in sent[2]
    fake.will(502, {"sandboxId": "i1", "message": "The sandbox was not found", "code": 502})
    assert client.run("abx_sandbox_is_running", sb, UNSET).bool() is False
    assert len(fake.requests) == 1
    fake.will(502, {"sandboxId": "i1", "message": "The sandbox is running but port is not open", "port": 49983, "code": 502})
    assert failure(client, "abx_sandbox_is_running", sb, UNSET).reason == "PORT_CLOSED"
    fake.will(403, {"code": 403, "message": "no"})
    assert failure(client, "abx_sandbox_is_running", sb, UNSET).code == "PERMISSION_DENIED"
    abx.c.abx_sandbox_unref(sb)


# ---- a real service ----


@pytest.fixture(scope="module")
def service(build_dir, base_template):
    with Service(build_dir) as running:
        yield running


@pytest.fixture
def real(abx, service):
    made = abx.config(api_url=service.origin, api_key=service.key, domain="sbx.test", request_timeout_ms=60000)
    yield made
    abx.c.abx_config_unref(made)


def test_life_of_a_sandbox(abx, service, client, real):
    opts = abx.struct("abx_create_opts", timeout_s=120, metadata={"who": "life & ü", "n": "1"}, envs={"A": "b"})
    sb = client.run("abx_sandbox_create", real, opts).take_sandbox()
    sandbox_id = abx.c.abx_sandbox_id(sb).decode()
    assert client.run("abx_sandbox_is_running", sb, UNSET).bool() is True
    (info,) = client.run("abx_sandbox_get_info", real, sandbox_id, UNSET).items("abx_call_sandbox_infos")
    assert info.sandbox_id.decode() == sandbox_id and info.state == b"running"
    assert info.end_at_us - info.started_at_us == 120 * 1000000
    assert info.envd_access_token == abx.c.abx_sandbox_access_token(sb)
    client.run("abx_sandbox_set_timeout", real, sandbox_id, 1000, UNSET)
    (info,) = client.run("abx_sandbox_get_info", real, sandbox_id, UNSET).items("abx_call_sandbox_infos")
    assert info.end_at_us - info.started_at_us >= 1000 * 1000000
    listing = abx.struct("abx_list_opts", metadata={"who": "life & ü"})
    (listed,) = client.run("abx_sandbox_list", real, listing).items("abx_call_sandbox_infos")
    assert listed.sandbox_id.decode() == sandbox_id
    other = abx.struct("abx_list_opts", metadata={"who": "life"})
    assert client.run("abx_sandbox_list", real, other).items("abx_call_sandbox_infos") == []
    again = client.run("abx_sandbox_connect", real, sandbox_id, 60, UNSET).take_sandbox()
    assert abx.c.abx_sandbox_access_token(again) == abx.c.abx_sandbox_access_token(sb)
    (info,) = client.run("abx_sandbox_get_info", real, sandbox_id, UNSET).items("abx_call_sandbox_infos")
    assert info.end_at_us - info.started_at_us >= 1000 * 1000000  # connect never shortens
    assert client.run("abx_sandbox_kill", real, sandbox_id, UNSET).bool() is True
    assert client.run("abx_sandbox_kill", real, sandbox_id, UNSET).bool() is False
    assert client.run("abx_sandbox_is_running", sb, UNSET).bool() is False
    for name, args in (("abx_sandbox_connect", (sandbox_id, 0, UNSET)), ("abx_sandbox_get_info", (sandbox_id, UNSET)),
                       ("abx_sandbox_set_timeout", (sandbox_id, 5, UNSET))):
        error = failure(client, name, real, *args)
        assert (error.code, error.reason, error.http_status) == ("NOT_FOUND", "SANDBOX_NOT_FOUND", 404)
    abx.c.abx_sandbox_unref(sb)
    abx.c.abx_sandbox_unref(again)


def test_pages_come_to_an_end(abx, client, real):
    made = {client.run("abx_sandbox_create", real, abx.struct("abx_create_opts", metadata={"page": "1"})).take_sandbox().value
            for _ in range(3)}
    ids = {abx.c.abx_sandbox_id(sb).decode() for sb in made}
    seen, token = [], None
    for _ in range(10):
        opts = abx.struct("abx_list_opts", metadata={"page": "1"}, limit=1, next_token=token)
        call = client.run("abx_sandbox_list", real, opts)
        seen += [i.sandbox_id.decode() for i in call.items("abx_call_sandbox_infos")]
        token = text(abx.c.abx_call_next_token(call.handle))
        if token is None:
            break
    assert token is None and sorted(seen) == sorted(ids)
    error = failure(client, "abx_sandbox_list", real, abx.struct("abx_list_opts", next_token="nonsense"))
    assert error.code == "INVALID_ARGUMENT" and error.http_status == 400
    for sb in made:
        assert client.run("abx_sandbox_kill", real, abx.c.abx_sandbox_id(sb).decode(), UNSET).bool() is True
        abx.c.abx_sandbox_unref(sb)


def test_a_repeated_key_makes_no_second_sandbox(abx, client, real):
    opts = abx.struct("abx_create_opts", idempotency_key="one-and-the-same", metadata={"key": "1"})
    one = client.run("abx_sandbox_create", real, opts).take_sandbox()
    two = client.run("abx_sandbox_create", real, opts).take_sandbox()
    assert abx.c.abx_sandbox_id(one) == abx.c.abx_sandbox_id(two)
    assert client.run("abx_sandbox_kill", real, abx.c.abx_sandbox_id(one).decode(), UNSET).bool() is True
    abx.c.abx_sandbox_unref(one)
    abx.c.abx_sandbox_unref(two)


def test_what_the_service_refuses(abx, service, client, real):
    for key, message in (("e2b_" + "0" * 40, None), ("nonsense", "Invalid API key format")):
        wrong = abx.config(api_url=service.origin, api_key=key)
        error = failure(client, "abx_sandbox_create", wrong, None)
        assert (error.code, error.http_status) == ("UNAUTHENTICATED", 401)
        assert message is None or error.message == message
        abx.c.abx_config_unref(wrong)
    error = failure(client, "abx_sandbox_create", real, abx.struct("abx_create_opts", template_id="no-such"))
    assert (error.code, error.reason, error.http_status) == ("NOT_FOUND", "TEMPLATE_NOT_FOUND", 404)
    error = failure(client, "abx_sandbox_create", real, abx.struct("abx_create_opts", timeout_s=1 << 30))
    assert (error.code, error.http_status) == ("INVALID_ARGUMENT", 400) and "Timeout" in error.message


def test_time_runs_out(abx, client, real):
    sb = client.run("abx_sandbox_create", real, abx.struct("abx_create_opts", timeout_s=1)).take_sandbox()
    until(lambda: not client.run("abx_sandbox_is_running", sb, UNSET).bool(), "the end of its time")
    abx.c.abx_sandbox_unref(sb)


def test_the_service_offers_protobuf(abx, service, client, real):
    made = service.create(timeout=60)
    assert made["abxCodecs"] == ["json", "proto"]
    status, _, connected = service.request("POST", f"/sandboxes/{made['sandboxID']}/connect", {"timeout": 60})
    assert status == 200 and connected["abxCodecs"] == ["json", "proto"]
    assert client.run("abx_sandbox_kill", real, made["sandboxID"], UNSET).bool() is True


# ---- the examples ----


def example(build_dir, service, folder, name, *args, key=None, stdin=subprocess.DEVNULL):
    env = {**os.environ, "E2B_API_URL": service.origin, "E2B_API_KEY": key or service.key, "HOME": str(folder)}
    env.pop("LD_PRELOAD", None)  # see Service
    return subprocess.run([build_dir / f"examples/example_{name}", *args], capture_output=True, text=True, timeout=60,
                          env=env, cwd=folder, stdin=stdin)


def test_the_quickstart_example(build_dir, service, tmp_path):
    assert len((ROOT / "examples/quickstart.c").read_text().splitlines()) < 60
    run = example(build_dir, service, tmp_path, "quickstart")
    assert (run.returncode, run.stdout, run.stderr) == (0, "hello\ncontent\n", "")
    assert service.request("GET", "/v2/sandboxes")[2] == []
    run = example(build_dir, service, tmp_path, "quickstart", key="nonsense")
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr == "quickstart: unauthenticated: Invalid API key format\n"


def test_the_loop_example(build_dir, service, tmp_path):
    made = service.create(timeout=60)
    keyboard, nobody = os.pipe()  # standard input that says nothing and does not end
    run = example(build_dir, service, tmp_path, "loop", made["sandboxID"], stdin=keyboard)
    os.close(keyboard)
    os.close(nobody)
    service.kill(made["sandboxID"])
    assert (run.returncode, run.stderr) == (0, "")
    lines = run.stdout.splitlines()
    for name in ("first", "second", "third"):
        mine = [line for line in lines if line.startswith(name)]
        assert re.fullmatch(rf"{name}: process \d+", mine[0]), lines
        assert mine[1:] == [f"{name}: done", f"{name}: ended with 0"]
