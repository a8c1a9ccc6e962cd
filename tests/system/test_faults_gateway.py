"""Faults that users of other systems reported, addresses and signatures. See docs/faults.md."""

import base64
import hashlib
import http.client
import json
import socket
import time
from urllib.parse import quote

import pytest
from remote import Remote
from service import Service
from waiting import BUSY_S

DOMAIN = "sbx.test"


@pytest.fixture(scope="module")
def service(build_dir, base_template):
    with Service(build_dir, "--domain", DOMAIN, disk="2G") as s:
        yield s


@pytest.fixture(scope="module")
def box(service):
    remote = Remote(service)
    assert remote.http("POST", "/files?path=/tmp/s", b"signed", {"Content-Type": "application/octet-stream"})[0] == 200
    yield remote
    remote.close()


@pytest.fixture(scope="module")
def other(service):
    remote = Remote(service)
    yield remote
    remote.close()


def raw(box, lines, body=b""):
    """(status, decoded body) of a request given as its lines."""
    with socket.create_connection(("127.0.0.1", box.port), timeout=BUSY_S) as sock:
        sock.sendall("\r\n".join([*lines, "Connection: close", "", ""]).encode() + body)
        answer = http.client.HTTPResponse(sock)
        answer.begin()
        data = answer.read()
        return answer.status, data


# --- signatures ---------------------------------------------------------------------------------

EXPIRED = {"code": 401, "message": "signature is already expired"}
INVALID = {"code": 401, "message": "invalid signature"}


def sign(box, expiration, operation="read", user="", path="/tmp/s"):
    text = f"{path}:{operation}:{user}:{box.token}" + (f":{expiration}" if expiration is not None else "")
    return "v1_" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def signed(box, expiration, given=None, by_token=False, **more):
    """(status, body) with a signature for `expiration`, with the headers that name the sandbox or without them."""
    query = f"/files?path=/tmp/s&signature={quote(sign(box, expiration, **more), safe='')}"
    given = expiration if given is None else given
    if given is not None:
        query += f"&signature_expiration={quote(str(given))}"
    if by_token:
        connection = box.connection()
        connection.request("GET", query)
        response = connection.getresponse()
        status, body = response.status, response.read()
        connection.close()
        return status, body
    status, _, body = box.http("GET", query, token=False)
    return status, body


@pytest.mark.parametrize("by_token", [False, True])
def test_times_of_signatures(box, by_token):
    now = int(time.time())
    for good in (None, now + 60, now + 10**9, 2**32, 2**53, 2**63 - 1):
        assert signed(box, good, by_token=by_token) == (200, b"signed"), good
    for old in (now - 1, now - 10**6, 1, 0, -1, -(2**31), -(2**63) + 1):
        status, body = signed(box, old, by_token=by_token)
        assert (status, json.loads(body)) == (401, EXPIRED), old


@pytest.mark.parametrize("given", [2**63, 2**64, 10**30, "x", "1e12", "0x7fffffff", "9" * 400, "1.5", "٣", "NaN", "\0"])
def test_times_that_are_none_are_refused(box, given):
    """However it is signed; over a range or a size is no way around the check."""
    for expiration in (given, None, int(time.time()) + 60):
        status, body = signed(box, expiration, given=given)
        assert status in (400, 401) and json.loads(body)["code"] == status, (given, body)
        status, body = signed(box, expiration, given=given, by_token=True)
        assert status in (401, 502) and json.loads(body)["code"] == status, (given, body)
        assert body != b"signed"


def test_a_signature_is_for_what_it_was_made_for(box, other):
    later = int(time.time()) + 600
    for signature, query in (
        (sign(box, None), f"&signature_expiration={later}"),  # an expiry put on
        (sign(box, later), ""),  # taken off
        (sign(box, later), f"&signature_expiration={later + 1}"),  # put off
        (sign(box, later), f"&signature_expiration=0{later}x"),
        (sign(box, None, operation="write"), ""),
        (sign(box, None, user="root"), ""),
        (sign(box, None), "&username=root"),
        (sign(other, None), ""),
        (sign(box, None)[:-1], ""),
        (sign(box, None) + "=", ""),
        (sign(box, None).lower(), ""),
        ("", ""),
    ):
        target = f"/files?path=/tmp/s&signature={quote(signature, safe='')}{query}"
        status, _, body = box.http("GET", target, token=False)
        assert (status, json.loads(body)["code"]) == (401, 401), (signature, query, body)
    # The first of two parameters counts, for whoever judges it.
    target = f"/files?path=/tmp/s&path=/etc/shadow&signature={quote(sign(box, None), safe='')}"
    assert box.http("GET", target, token=False)[::2] == (200, b"signed")


# --- hosts --------------------------------------------------------------------------------------


def test_spellings_of_a_host(box):
    token = f"X-Access-Token: {box.token}"
    for host in (
        f"49983-{box.id}.{DOMAIN}", f"49983-{box.id.upper()}.{DOMAIN.upper()}", f"49983-{box.id}.Sbx.TEST:{box.port}",
        f"49983-{box.id}.{DOMAIN}.", f"49983-{box.id}.{DOMAIN}.:{box.port}", f"49983-{box.id}.{DOMAIN}:65535",
    ):
        status, body = raw(box, ["GET /files?path=/tmp/s HTTP/1.1", f"Host: {host}", token])
        assert (status, body) == (200, b"signed"), host
    # An absolute target names the host, and agrees with Host.
    host = f"49983-{box.id}.{DOMAIN}"
    assert raw(box, [f"GET http://{host}/files?path=/tmp/s HTTP/1.1", f"Host: {host}", token]) == (200, b"signed")
    assert raw(box, [f"GET http://{host}/files?path=/tmp/s HTTP/1.1", "Host: other", token])[0] == 400


@pytest.mark.parametrize("host", [
    "49983-{id}.{domain}..", "49983-{id}..{domain}", "049983-{id}.{domain}x", "4-9983-{id}.{domain}", "49983-{id}-.{domain}",
    "99999-{id}.{domain}", "0-{id}.{domain}", "49983-.{domain}", "49983-{id}.x.{domain}", "49983-{id}@{domain}", "49983-{id}.{domain}:x",
    "49983-{id}.{domain}:99999", "49983-{id}.{domain}:", "[49983-{id}.{domain}]", "49983-{id}.evil.test", "49983-{id}.x{domain}",
])
def test_hosts_that_are_none_reach_no_sandbox(box, host):
    host = host.format(id=box.id, domain=DOMAIN)
    status, body = raw(box, ["GET /files?path=/tmp/s HTTP/1.1", f"Host: {host}"])
    assert status in (400, 401, 404, 502) and json.loads(body)["code"] == status, (host, status, body)


def test_a_host_and_headers_that_disagree(box, other):
    """The host decides, for the address and for the right to it; the headers of another sandbox open nothing."""
    host = f"Host: 49983-{box.id}.{DOMAIN}"
    headers = [f"E2b-Sandbox-Id: {other.id}", "E2b-Sandbox-Port: 49983"]
    ask = "GET /files?path=/tmp/s HTTP/1.1"
    assert raw(box, [ask, host, *headers, f"X-Access-Token: {box.token}"]) == (200, b"signed")
    status, body = raw(box, [ask, host, *headers, f"X-Access-Token: {other.token}"])
    assert status == 401, body
    status, body = raw(box, [ask, host, "E2b-Sandbox-Id: nonsense!", "E2b-Sandbox-Port: 0", f"X-Access-Token: {box.token}"])
    assert status == 200, body
    # Two of one kind: refused and named.
    for name in ("E2b-Sandbox-Id", "E2b-Sandbox-Port", "X-Access-Token", "Host"):
        value = {"E2b-Sandbox-Id": other.id, "E2b-Sandbox-Port": "49983", "X-Access-Token": other.token, "Host": f"49983-{other.id}.{DOMAIN}"}[name]
        own = [f"E2b-Sandbox-Id: {box.id}", "E2b-Sandbox-Port: 49983", f"X-Access-Token: {box.token}", "Host: x"]
        status, body = raw(box, [ask, *own, f"{name}: {value}"])
        assert status == 400, (name, body)
    # Each header without the other.
    for line in headers:
        status, body = raw(box, [ask, "Host: x", line, f"X-Access-Token: {other.token}"])
        assert status == 400, body
