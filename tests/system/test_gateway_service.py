"""What the gateway does with a sandbox's network options, with the whole service and servers inside real sandboxes."""

import base64
import hashlib
import http.client
import json
import os
import signal
import time
import urllib.parse
from pathlib import Path

import pytest
from envd import Envd
from gateway_kit import needs_root
from http_fakes import make_certificates
from prometheus_client import parser
from service import Service
from waiting import BUSY_S, again

pytestmark = needs_root

# Answers with what it was asked, with TLS when told so.
SERVER = b"""
import http.server, json, ssl, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        answer = json.dumps({"port": self.server.server_port, "size": len(body), "fields": dict(self.headers)}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
if sys.argv[2:]:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(sys.argv[2])
    server.socket = tls.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""


@pytest.fixture(scope="module")
def service(build_dir, base_template):
    with Service(build_dir, "--domain", "sbx.test", "--gateways", "2") as s:
        yield s


def post(service, box, port, body=b"hello", host=None, **fields):
    """(status, decoded answer), by host name or, without one, by the two headers."""
    conn = http.client.HTTPConnection("127.0.0.1", service.port, timeout=BUSY_S)
    where = {"Host": host} if host else {"E2b-Sandbox-Id": box["sandboxID"], "E2b-Sandbox-Port": str(port)}
    try:
        conn.request("POST", "/", body, {**where, **fields})
        answer = conn.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        conn.close()


def start(envd, port, *more):
    """Leaves a server running; the gateway itself waits for a port that is about to open."""
    envd.sh(f"setsid nohup python3 server.py {port} {' '.join(more)} >/tmp/{port} 2>&1 </dev/null & "
            f"for i in $(seq 600); do grep -q ':{port:04X} 00000000:0000 0A' /proc/net/tcp && exit; sleep 0.1; done; exit 1", 90)


def test_network_options_from_create_to_restart(service, tmp_path):
    made = make_certificates(tmp_path / "tls", "localhost")
    options = {"allowPublicTraffic": False, "maskRequestHost": "inner:${PORT}", "httpsPorts": [8443]}
    box = service.create(network=options, timeout=300)
    token = box["trafficAccessToken"]
    envd = Envd(service, box)
    envd.write("server.py", SERVER)
    envd.write("both.pem", (made / "localhost.pem").read_bytes() + (made / "localhost.key").read_bytes())
    start(envd, 3000)
    start(envd, 8443, "both.pem")

    def check():
        shown = service.request("GET", f"/sandboxes/{box['sandboxID']}")[2]
        assert {k: shown["network"][k] for k in options} == options
        for port in (3000, 8443):
            name = f"{port}-{box['sandboxID']}.sbx.test"
            for host in (None, name, name.upper().replace("SBX", "sbX"), name + ".", name + ":8490"):
                for wrong in ({}, {"E2b-Traffic-Access-Token": token[:-1] + "x"}, {"E2b-Traffic-Access-Token": ""},
                              {"X-Access-Token": box["envdAccessToken"]}, {"X-API-Key": service.key}):  # fmt: skip
                    status, got = post(service, box, port, host=host, **wrong)
                    assert status == got["code"] == 403 and got["sandboxId"] == box["sandboxID"], (port, host, wrong, got)
                status, got = post(service, box, port, b"x" * 100_000, host, **{"E2b-Traffic-Access-Token": token})
                assert (status, got["port"], got["size"]) == (200, port, 100_000), (port, host, got)
                assert got["fields"]["Host"] == got["fields"]["X-Forwarded-Host"] == f"inner:{port}"

    check()
    # envd asks for its own token, and no mask reaches it
    assert envd.sh("echo in") == "in\n"
    # a conflict: the host decides, and so its sandbox's token counts, not the named one's
    other = service.create(timeout=300)
    host = f"3000-{box['sandboxID']}.sbx.test"
    status, got = post(service, other, 3000, host=host, **{"E2b-Sandbox-Id": other["sandboxID"], "E2b-Sandbox-Port": "3000"})
    assert (status, got["sandboxId"]) == (403, box["sandboxID"])
    # the same after a restart of the whole service
    service.stop(signal.SIGTERM)
    service.start()
    check()
    for b in (box, other):
        assert service.kill(b["sandboxID"]) == 204
    status, got = post(service, box, 3000, **{"E2b-Traffic-Access-Token": token})
    assert (status, got) == (502, {"sandboxId": box["sandboxID"], "message": "The sandbox was not found", "code": 502})


@pytest.mark.parametrize("ports", [443, [0], [65536], ["443"], [49983], [1] * 101])
def test_bad_https_ports_are_named(service, ports):
    status, _, got = service.request("POST", "/v2/sandboxes", {"templateID": "base", "network": {"httpsPorts": ports}})
    assert (status, got["code"]) == (400, 400) and "network.httpsPorts" in got["message"]


def test_signed_urls_are_judged_alike_with_and_without_a_sandbox_id(service):
    box = service.create(timeout=300)
    Envd(service, box).write("/home/user/f%20.txt", b"signed")
    now, path = int(time.time()), "/home/user/f .txt"
    host = f"49983-{box['sandboxID'].upper()}.sbx.test.:8490"
    expired, invalid = "signature is already expired", "invalid signature"
    for when, want in ((None, None), (now + 100, None), (2**63 - 1, None), (now - 1, expired), (0, expired), (-1, expired),
                       (-(2**63) + 1, expired), (2**63, invalid), ("x", invalid)):  # fmt: skip
        text = f"{path}:read:user:{box['envdAccessToken']}" + ("" if when is None else f":{when}")
        signed = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
        query = {"path": path, "username": "user", "signature": "v1_" + signed}
        if when is not None:
            query["signature_expiration"] = when
        url = "/files?" + urllib.parse.urlencode(query)
        for headers in ({"X-API-Key": ""}, {"X-API-Key": "", "Host": host}):
            status, _, got = service.request("GET", url, headers=headers)
            if want is None:
                assert (status, got) == (200, b"signed"), (when, headers, got)
            elif want is invalid and "Host" not in headers:
                assert (status, got["message"]) == (502, "The sandbox was not found"), (when, got)  # it is of none
            else:
                assert (status, got) == (401, {"code": 401, "message": want}), (when, headers)
        # what was signed for reading does not write, nor for somebody else, nor another path
        for method, other in (("POST", url), ("GET", url.replace("username=user", "username=root")), ("GET", url.replace("f+", "g+"))):
            assert service.request(method, other, headers={"X-API-Key": "", "Host": host})[0] == 401, (method, other)
    assert service.kill(box["sandboxID"]) == 204


# --- metrics ----------------------------------------------------------------------------------------


def scrape(service):
    """{(name, labels): value} of all samples and {name: type} of the families, read by Prometheus' own parser."""
    status, head, body = service.request("GET", "/abx/v1/metrics")
    assert status == 200 and head["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8", (status, body)
    samples, types = {}, {}
    for family in parser.text_string_to_metric_families(body.decode()):
        assert family.name not in types and family.documentation and family.samples, family
        types[family.name] = family.type
        for s in family.samples:
            place = (s.name, tuple(sorted(s.labels.items())))
            assert place not in samples, place
            samples[place] = s.value
    return samples, types


def value(samples, name, **labels):
    return samples[(name, tuple(sorted(labels.items())))]


def check_whole(samples, types):
    """Histograms add up, and so do the processes."""
    sums = {}
    for (name, labels), v in samples.items():
        labels = dict(labels)
        if name.startswith("abx_gateway_"):
            assert labels.pop("process") in ("0", "1")
            place = (name.replace("abx_gateway_", "abx_"), tuple(sorted(labels.items())))
            sums[place] = sums.get(place, 0) + v
    for place, v in sums.items():
        assert samples[place] == pytest.approx(v), place
    for name in (n for n, t in types.items() if t == "histogram"):
        series = {}
        for (sample, labels), v in samples.items():
            if sample == name + "_bucket":
                rest = tuple(x for x in labels if x[0] != "le")
                series.setdefault(rest, []).append((float(dict(labels)["le"]), v))
        assert series
        for rest, buckets in series.items():
            counts = [v for _, v in sorted(buckets)]
            assert counts == sorted(counts) and counts[-1] == samples[(name + "_count", rest)]


def test_metrics_need_a_key_made_for_them(service):
    ask = lambda key: service.request("GET", "/abx/v1/metrics", headers={"X-API-Key": key})
    assert ask("")[0] == 401 and ask("e2b_" + "0" * 40)[0] == 401
    plain = service.run_abx("key", "create").stdout.strip()
    status, _, got = ask(plain)
    assert (status, got["message"]) == (403, "The API key lacks the scope 'metrics:read'")
    made = service.run_abx("key", "create", "--scope", "metrics:read").stdout.strip()
    assert ask(made)[0] == 200
    assert service.request("GET", "/abx/v1/metrics", headers={"X-API-Key": "", "Authorization": f"Bearer {made}"})[0] == 200
    assert service.request("GET", "/sandboxes", headers={"X-API-Key": made})[0] == 403
    assert "no-such" in service.run_abx("key", "create", "--scope", "no-such").stderr
    status, head, _ = service.request("POST", "/abx/v1/metrics")
    assert (status, head["Allow"]) == (405, "GET")


def test_metrics_are_those_of_the_documentation(service):
    samples, types = scrape(service)
    check_whole(samples, types)
    table = {}
    for line in (Path(__file__).resolve().parents[2] / "docs/metrics.md").read_text().splitlines():
        if line.startswith("| abx_"):
            name, kind, labels = (x.strip() for x in line.split("|")[1:4])
            # as the parser names counters
            table[name.removesuffix("_total") if kind == "counter" else name] = (kind, set(filter(None, labels.split(", "))))
    assert {name: kind for name, (kind, _) in table.items()} == types
    for (sample, labels), _ in samples.items():
        name = max((n for n in table if sample.startswith(n)), key=len)
        assert {k for k, _ in labels} - {"le"} == table[name][1], sample


def test_metrics_count_what_happened_and_outlive_their_processes(service):
    before, types = scrape(service)
    grown = lambda now, name, **labels: value(now, name, **labels) - value(before, name, **labels)
    box = service.create(timeout=300)
    envd = Envd(service, box)
    envd.write("server.py", SERVER)
    start(envd, 3000)
    for _ in range(8):
        assert post(service, box, 3000, b"x" * 1000)[0] == 200
    assert post(service, box, 3001)[0] == 502
    assert post(service, {"sandboxID": "inothere"}, 3000)[0] == 502
    assert service.request("GET", "/nothing")[0] == 404
    assert service.request("POST", "/v2/sandboxes", {"templateID": "no-such"})[0] == 404

    def counted():
        """A client has its answer before its request is at its end and counts."""
        now, types = scrape(service)
        check_whole(now, types)
        assert value(now, "abx_sandboxes", state="running") == value(now, "abx_engine_sandboxes") == 1
        assert value(now, "abx_engine_up") == 1
        assert grown(now, "abx_creates_total", result="ok") == grown(now, "abx_create_seconds_count") == 1
        assert grown(now, "abx_requests_total", route="port", **{"class": "2xx"}) == 8
        assert grown(now, "abx_request_seconds_count", route="port") == 10
        assert grown(now, "abx_bytes_total", route="port", direction="in") == 8000
        assert grown(now, "abx_bytes_total", route="port", direction="out") > 8 * 100
        assert grown(now, "abx_upstream_errors_total", kind="closed") == 1
        assert grown(now, "abx_upstream_errors_total", kind="gone") == 1
        assert grown(now, "abx_requests_total", route="control", **{"class": "4xx"}) >= 2
        assert value(now, "abx_connections") >= 1
        return now

    now = again(counted, AssertionError)
    # every process that counts is killed: no total is lost or goes back
    old = service.roles()
    for name in ("abx-gateway", "abx-control"):
        for pid in old[name]:
            os.kill(pid, signal.SIGKILL)

    def all_again():
        found = scrape(service)
        assert value(found[0], "abx_starts_total") == value(now, "abx_starts_total") + 2 and value(found[0], "abx_engine_up"), found[0]
        return found

    after, types = again(all_again, (OSError, http.client.HTTPException, AssertionError))
    check_whole(after, types)
    assert value(after, "abx_control_starts_total") == value(now, "abx_control_starts_total") + 1
    for (name, labels), v in now.items():
        if name.endswith(("_total", "_bucket", "_count", "_sum")):
            assert after[(name, labels)] >= v, (name, labels)
    assert service.kill(box["sandboxID"]) == 204

    def kill_counted():
        last, _ = scrape(service)
        assert value(last, "abx_kills_total", reason="request") == value(now, "abx_kills_total", reason="request") + 1
        assert value(last, "abx_kill_seconds_count") >= value(now, "abx_kill_seconds_count") + 1
        assert value(last, "abx_sandboxes", state="running") == 0

    again(kill_counted, AssertionError)
