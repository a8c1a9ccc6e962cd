"""What the gateway does with a sandbox's network options, with the whole service and servers inside real sandboxes."""

import http.client
import json
import signal

import pytest
from envd import Envd
from gateway_kit import needs_root
from http_fakes import make_certificates
from service import Service

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
    conn = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
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
            f"for i in $(seq 300); do grep -q ':{port:04X} 00000000:0000 0A' /proc/net/tcp && exit; sleep 0.1; done; exit 1", 60)


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
