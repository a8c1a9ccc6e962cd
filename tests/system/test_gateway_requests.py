"""The real abx-gateway between raw clients and fakes of control, engine and sandboxes: where requests go, what of them
arrives, and what is answered about sandboxes that are not there."""

import base64
import hashlib
import re

import pytest
from gateway_fakes import CREATING, ENVD, KILLING, PAUSED, Client
from gateway_kit import CLOSED, GONE, client, fds, fields_of, needs_root, start_at_a_later_try, to, world  # noqa: F401
from waiting import BUSY_S, until

pytestmark = needs_root

# --- where requests go ---------------------------------------------------------------------------------------------


def test_both_headers_choose_sandbox_and_port(world, client):
    for name in ("ia", "ib"):
        sandbox = world.sandbox(name)
        sandbox.echo()
        sandbox.echo(3000)
    assert client.request("GET", "/x", to("ia")).json()["who"] == f"ia:{ENVD}"
    assert client.request("GET", "/x", to("ib", 3000)).json()["who"] == "ib:3000"
    assert client.request("GET", "/x", to("ib-0f1e2d", 3000)).json()["who"] == "ib:3000"
    assert client.request("POST", "/sandboxes", to("ib", 3000), b"{}").json()["who"] == "ib:3000"


def test_host_chooses_sandbox_and_port(world, client):
    world.sandbox("ia").echo(3000)
    for host in ("3000-ia.sbx.test", "3000-IA.SBX.test:8080", "3000-ia.sbx.test.", "3000-ia.sbx.test.:80"):
        got = client.request("GET", "/sandboxes", host=host)
        assert got.json()["who"] == "ia:3000", host
        assert fields_of(got)["host"] == [host]


def test_the_rest_is_the_control_planes(world, client):
    world.sandbox("ia").echo()
    for path in ("/health", "/sandboxes?limit=1", "/v2/sandboxes", "/files", "/any/thing", "/"):
        got = client.request("GET", path)
        assert (got.json()["who"], got.json()["path"]) == ("control", path)
    # Older SDKs send the headers with calls of the control plane.
    for path in ("/sandboxes/ia", "/v2/sandboxes", "/v3/templates", "/snapshots", "/volumes", "/secrets/x"):
        assert client.request("POST", path, to("ia"), b"{}").json()["who"] == "control"
    got = client.request("GET", "/sandboxes", host="sbx.test")
    assert got.json()["who"] == "control"


@pytest.mark.parametrize(
    "headers, host",
    [
        ({"E2b-Sandbox-Id": "ia"}, "h"),
        ({"E2b-Sandbox-Port": "3000"}, "h"),
        (to("i_a"), "h"),
        (to(""), "h"),
        (to("IA"), "h"),
        (to("ia", 0), "h"),
        (to("ia", 65536), "h"),
        (to("ia", "80x"), "h"),
        ({}, "0-ia.sbx.test"),
        ({}, "65536-ia.sbx.test"),
        ({}, "3000-i_a.sbx.test"),
    ],
)
def test_bad_addresses_are_400(world, client, headers, host):
    world.sandbox("ia").echo()
    got = client.request("GET", "/x", headers, host=host)
    assert got.status == 400
    assert got.json()["code"] == 400 and got.json()["message"]
    assert "should-retry" not in got.fields


@pytest.mark.parametrize("path", ["/init", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw", "/upgrade",
                                  "/init/", "/%69nit", "//init", "/init?x=1"])
def test_reserved_endpoints_of_envd_are_404(world, client, path):
    sandbox = world.sandbox("ia")
    server = sandbox.echo()
    sandbox.echo(3000)
    for got in (client.request("POST", path, to("ia")),
                client.request("POST", path, host=f"{ENVD}-ia.sbx.test")):
        assert got.status == 404
        assert got.json() == {
            "sandboxId": "ia",
            "message": "This endpoint is reserved for the E2B control plane and is not reachable through the "
            "sandbox URL",
            "code": 404,
        }
    assert server.seen == []
    assert client.request("POST", path, to("ia", 3000)).json()["who"] == "ia:3000"


def signature(path, operation, user, token, expiration=None):
    text = f"{path}:{operation}:{user}:{token}" + (f":{expiration}" if expiration is not None else "")
    return "v1_" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def test_tokens_and_signatures_find_their_sandbox(world, client):
    for name in ("ia", "ib", "ic"):
        world.sandbox(name, access_token="" if name == "ic" else "token-" + name).echo()
    ask = client.request
    assert ask("GET", "/health", {"X-Access-Token": "token-ib"}).json()["who"] == f"ib:{ENVD}"
    assert ask("POST", "/process.Process/List", {"X-Access-Token": "token-ia"}).json()["who"] == f"ia:{ENVD}"
    for method, path in (("GET", "/health"), ("POST", "/process.Process/List"), ("GET", "/files?path=x")):
        got = ask(method, path, {"X-Access-Token": "token-none"})
        assert (got.status, got.json()["message"]) == (502, "The sandbox was not found")
    assert ask("GET", "/health", {"X-Access-Token": ""}).json()["who"] == "control"
    assert ask("GET", "/sandboxes", {"X-Access-Token": "token-ia"}).json()["who"] == "control"
    from urllib.parse import urlencode

    def signed(method, name, wrong="", **query):
        operation = "write" if method == "POST" else "read"
        sig = signature(query["path"], operation, query.get("username", ""), "token-" + name,
                        query.get("signature_expiration"))
        got = ask(method, "/files?" + urlencode({**query, "signature": sig + wrong}))
        return got.json()["who"] if got.status == 200 else (got.status, got.json()["message"])

    assert signed("GET", "ia", path="/home/user/a b+ü.txt", username="user") == f"ia:{ENVD}"
    assert signed("POST", "ib", path="x", signature_expiration=1700000000) == f"ib:{ENVD}"
    assert signed("GET", "ia", path="x", wrong="A") == (502, "The sandbox was not found")


def test_options_is_answered_anywhere(world, client):
    server = world.sandbox("ia").echo(3000)
    for headers in ({}, to("ia", 3000), to("inone")):
        got = client.request("OPTIONS", "/x", {**headers, "Access-Control-Request-Headers": "authorization, x-y"})
        assert got.status == 204
        assert got.fields["access-control-allow-origin"] == "*"
        assert "PATCH" in got.fields["access-control-allow-methods"]
        assert got.fields["access-control-allow-headers"] == "authorization, x-y"
    assert server.seen == []


# --- what arrives --------------------------------------------------------------------------------------------------


def test_fields_upstream(world, client):
    world.sandbox("ia").echo()
    got = client.request("POST", "/p?q=1", to("ia", **{
        "Connection": "keep-alive, X-Secret-Hop", "X-Secret-Hop": "1", "TE": "trailers", "Keep-Alive": "5",
        "X-Access-Token": "t", "Authorization": "Basic dXNlcjo=", "X-Dup": "1", "Abx-Request-Id": "req-1.2_3"}), b"hi")
    fields = fields_of(got)
    assert got.json()["body"] == "hi" and got.json()["path"] == "/p?q=1"
    for dropped in ("connection", "x-secret-hop", "te", "keep-alive"):
        assert dropped not in fields
    assert fields["e2b-sandbox-id"] == ["ia"] and fields["e2b-sandbox-port"] == [str(ENVD)]
    assert fields["x-access-token"] == ["t"] and fields["authorization"] == ["Basic dXNlcjo="]
    assert fields["x-forwarded-for"] == ["127.0.0.1"]
    assert fields["x-forwarded-proto"] == ["http"] and fields["x-forwarded-host"] == ["127.0.0.1"]
    assert fields["abx-request-id"] == ["req-1.2_3"]
    assert got.fields["abx-request-id"] == "req-1.2_3"
    assert got.fields["access-control-allow-origin"] == "*"
    assert "X-Next-Token" in got.fields["access-control-expose-headers"]
    assert "x-hop" not in got.fields and "connection" not in got.fields


def test_request_ids_are_made_when_missing_or_bad(world, client):
    seen = set()
    for headers in ({}, {"Abx-Request-Id": "a b"}, {"Abx-Request-Id": "x" * 200}):
        got = client.request("GET", "/sandboxes", headers)
        made = fields_of(got)["abx-request-id"]
        assert len(made) == 1 and re.fullmatch(r"[0-9a-f]{32}", made[0])
        assert got.fields["abx-request-id"] == made[0]
        seen.add(made[0])
    assert len(seen) == 3


def test_a_proxy_on_this_machine_is_believed(world, client):
    got = client.request("GET", "/sandboxes", {"X-Forwarded-For": "9.9.9.9", "X-Forwarded-Proto": "https",
                                                "X-Forwarded-Host": "api.example"})
    fields = fields_of(got)
    assert fields["x-forwarded-for"] == ["9.9.9.9, 127.0.0.1"]
    assert fields["x-forwarded-proto"] == ["https"] and fields["x-forwarded-host"] == ["api.example"]


def test_masked_host(world, client):
    sandbox = world.sandbox("ia", mask="localhost:${PORT}")
    sandbox.echo(3000)
    sandbox.echo()
    fields = fields_of(client.request("GET", "/", host="3000-ia.sbx.test"))
    assert fields["host"] == ["localhost:3000"] and fields["x-forwarded-host"] == ["localhost:3000"]
    fields = fields_of(client.request("GET", "/", {"X-Forwarded-Host": "shown.test"}, host="3000-ia.sbx.test"))
    assert fields["host"] == ["localhost:3000"] and fields["x-forwarded-host"] == ["localhost:3000"]
    assert fields_of(client.request("GET", "/", host=f"{ENVD}-ia.sbx.test"))["host"] == [f"{ENVD}-ia.sbx.test"]


def test_methods_and_bodies(world, client):
    world.sandbox("ia").echo()
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        got = client.request(method, "/", to("ia"), b"x" * 3 if method != "GET" else b"")
        assert got.json()["method"] == method
    head = client.request("HEAD", "/", to("ia"))
    assert head.status == 200 and int(head.fields["content-length"]) > 100
    client.sock.sendall(b"POST / HTTP/1.1\r\nHost: h\r\nE2b-Sandbox-Id: ia\r\nE2b-Sandbox-Port: 49983\r\n"
                        b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
    got = client.response()
    assert got.json()["body"] == "abcde"
    assert fields_of(got)["transfer-encoding"] == ["chunked"]
    assert client.request("CONNECT", "h:443", host="h:443").status == 405


def test_expect_is_answered_when_the_sandbox_is_reached(world, client):
    world.sandbox("ia").echo(3000)
    head = "POST / HTTP/1.1\r\nHost: h\r\nE2b-Sandbox-Id: ia\r\nE2b-Sandbox-Port: %d\r\nContent-Length: 3\r\n" \
           "Expect: 100-continue\r\n\r\n"
    client.sock.sendall((head % 3000).encode())
    assert client.head().status == 100
    client.sock.sendall(b"abc")
    got = client.response()
    assert got.json()["body"] == "abc" and "expect" not in fields_of(got)
    client.sock.sendall((head % 3001).encode())  # nobody listens: the body is never asked for
    got = client.response()
    assert got.status == 502 and got.fields["connection"] == "close"


def test_absolute_targets_become_paths(world, client):
    got = client.request("GET", "http://sbx.test/sandboxes?a=b", host="sbx.test")
    assert got.json()["path"] == "/sandboxes?a=b"


# --- sandboxes that are not there ------------------------------------------------------------------------------------


def test_unknown_sandboxes_are_gone_on_controls_word(world, client):
    for headers, host in ((to("inone"), "h"), ({}, "3000-inone.sbx.test")):
        got = client.request("GET", "/health", headers, host=host)
        assert got.status == 502
        assert got.json() == {"sandboxId": "inone", **GONE}
        assert got.fields["content-type"] == "application/json; charset=utf-8"
        assert got.fields["should-retry"] == "false"
        assert got.fields["access-control-allow-origin"] == "*"
    assert world.control.lookups == ["inone", "inone"]


def test_control_is_asked_about_rows_that_have_not_come(world, client):
    world.sandbox("ia", told=False).echo()
    assert client.request("GET", "/", to("ia")).status == 200
    assert client.request("GET", "/", to("ia")).status == 200
    assert world.control.lookups == ["ia"]


def test_paused_and_killing_sandboxes_answer_like_missing_ones(world, client):
    for state in (PAUSED, KILLING):
        world.sandbox("ia", state=state).echo()
        assert client.request("GET", "/health", to("ia")).json() == {"sandboxId": "ia", **GONE}


def test_sandboxes_being_killed_are_not_remembered(world, client):
    """Control does not tell again of an end that it has told of, so no row may stay."""
    world.sandbox("ia", state=KILLING, told=False).echo()
    for _ in range(2):
        assert client.request("GET", "/health", to("ia")).json() == {"sandboxId": "ia", **GONE}
    assert world.control.lookups == ["ia", "ia"]


def test_a_sandbox_in_creation_is_waited_for(world, client):
    sandbox = world.sandbox("ia", state=CREATING)
    sandbox.echo()
    client.send("GET", "/", to("ia"))
    client.sock.settimeout(0.3)
    with pytest.raises(TimeoutError):
        client.sock.recv(1)
    client.sock.settimeout(BUSY_S)
    sandbox.state = 2
    world.control.put(sandbox)
    assert client.response().status == 200


def test_closed_ports(world, client):
    world.sandbox("ia")
    got = client.request("POST", "/", to("ia", 3000), b"body")
    assert got.status == 502
    assert got.json() == {"sandboxId": "ia", "port": 3000, **CLOSED}
    assert got.fields["should-retry"] == "true"
    tries = lambda port: sum(asked == port for _, asked, _ in world.engine.asked)
    assert tries(3000) >= 6 * 2  # five more tries, each by IPv4 and IPv6
    got = client.request("GET", "/", to("ia"))
    assert got.json() == {"sandboxId": "ia", "port": ENVD, **CLOSED}
    assert tries(ENVD) == 1
    got = client.request("GET", "/", to("ia", 9))
    assert got.json() == {"sandboxId": "ia", "port": 9, **CLOSED}
    assert got.fields["should-retry"] == "false"


def test_closed_ports_leave_no_descriptors(world, client):
    """Anybody may ask for one port of a sandbox after the other."""
    world.sandbox("ia").echo()
    assert client.request("GET", "/", to("ia")).status == 200
    clients = [Client(world) for _ in range(24)]
    assert [c.request("OPTIONS", "/").status for c in clients] == [204] * 24  # all are accepted
    before = fds(world)
    for n, c in enumerate(clients):
        c.send("GET", "/", to("ia", 5000 + n))
    assert [c.response().status for c in clients] == [502] * 24
    until(lambda: fds(world) <= before, lambda: f"{before} descriptors, has {fds(world)}")
    for c in clients:
        c.close()


def test_a_server_that_just_starts_is_reached_with_the_body(world, client):
    sandbox = world.sandbox("ia")
    start_at_a_later_try(world, sandbox, lambda: sandbox.echo(3000))
    assert client.request("POST", "/", to("ia", 3000), b"body").json()["body"] == "body"


def test_servers_on_ipv6_loopback_only_are_reached(world, client):
    world.sandbox("ia").echo(3000, "::1")
    assert client.request("POST", "/", to("ia", 3000), b"b").json()["body"] == "b"


def test_traffic_token(world, client):
    sandbox = world.sandbox("ia", traffic_token="secret")
    sandbox.echo(3000)
    sandbox.echo()
    assert client.request("GET", "/", to("ia")).status == 200
    for wrong in ({}, {"E2B-Traffic-Access-Token": "secreT"}, {"E2B-Traffic-Access-Token": ""}):
        got = client.request("GET", "/", to("ia", 3000, **wrong))
        assert got.status == 403 and got.json()["sandboxId"] == "ia" and got.json()["code"] == 403
    assert client.request("GET", "/", to("ia", 3000, **{"E2B-Traffic-Access-Token": "secret"})).status == 200


BROWSER = {"User-Agent": "Mozilla/5.0 (X11; Linux x86_64)", "Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def test_browsers_get_a_page_and_programs_json(world, client):
    world.sandbox("ia", traffic_token="t")
    world.sandbox("ib")
    for name, status, text in (("ia", 403, "traffic access token"), ("ib", 502, "port is not open"), ("ic", 502, "not found")):
        page = client.request("GET", "/", BROWSER, host=f"3000-{name}.sbx.test")
        assert page.status == status and page.fields["content-type"] == "text/html; charset=utf-8"
        assert page.fields["content-security-policy"] == "default-src 'none'"
        body = page.body.decode()
        assert body.startswith("<!DOCTYPE html>") and text in body and f"<code>{name}</code>, port 3000" in body
        for fields in ({"User-Agent": BROWSER["User-Agent"], "Accept": "*/*"}, {"User-Agent": "curl/8", "Accept": "text/html"}):
            got = client.request("GET", "/", fields, host=f"3000-{name}.sbx.test")
            assert got.status == status and got.json()["code"] == status and got.json()["sandboxId"] == name
    assert client.request("GET", "/nothing", {**BROWSER, **to("i_a")}).json()["code"] == 400
