"""HTTP/2 of the real abx-gateway: by ALPN and with prior knowledge, against python-h2, httpx, curl, nghttp, h2load and h2spec,
and with the official client."""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time

import pytest
from gateway_fakes import ENVD, Client, World
from gateway_kit import GONE, Raw, fds, memory_kib, needs_root, to
from http_fakes import make_certificates
from service import Service
from test_gateway_tls import context, tls_port
from waiting import BUSY_S, until

import h2  # noqa: E402
import h2.config  # noqa: E402
import h2.connection  # noqa: E402
import h2.errors  # noqa: E402
import h2.events  # noqa: E402
import h2.exceptions  # noqa: E402

pytestmark = needs_root
NAMES = ("127.0.0.1", "*.sbx.test")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("tls"), *NAMES)


@pytest.fixture
def world(build_dir, tmp_path, made):
    w = World(build_dir, tmp_path, certificates=[(made / f"{n}.pem", made / f"{n}.key") for n in NAMES])
    yield w
    assert w.close() == 0


class H2Client:
    """One connection; python-h2 with its own checks of what is sent off, so that rules can be broken."""

    def __init__(self, world, made=None, **settings):
        self.sock = world.connect()
        if made:
            self.sock.close()
            raw = socket.create_connection(("127.0.0.1", world.tls_port))
            raw.settimeout(BUSY_S)
            tls = context(made)
            tls.set_alpn_protocols(["h2", "http/1.1"])
            self.sock = tls.wrap_socket(raw, server_hostname="127.0.0.1")
            assert self.sock.selected_alpn_protocol() == "h2"
        config = h2.config.H2Configuration(validate_outbound_headers=False, normalize_outbound_headers=False,
                                           header_encoding="latin-1")
        self.h2 = h2.connection.H2Connection(config)
        for name, value in settings.items():
            setattr(self.h2.local_settings, name, value)
        self.h2.initiate_connection()
        self.events = {}
        self.over = None
        self.flush()

    def flush(self):
        self.sock.sendall(self.h2.data_to_send())

    def send(self, method, path, fields=(), body=None, host="h", end=True, pseudo=None):
        stream = self.h2.get_next_available_stream_id()
        if pseudo is None:
            pseudo = [(":method", method), (":scheme", "http"), (":path", path), (":authority", host)]
        fields = list(fields.items()) if isinstance(fields, dict) else list(fields)
        self.h2.send_headers(stream, pseudo + [(k.lower(), v) for k, v in fields], end_stream=end and body is None)
        self.flush()
        if body is not None:
            self.write(stream, body, end)
        return stream

    def write(self, stream, body, end=False):
        while True:
            window = min(self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size, len(body))
            if window or not body:
                self.h2.send_data(stream, body[:window], end_stream=end and window == len(body))
                self.flush()
                body = body[window:]
                if not body:
                    return
            else:
                self.pump()

    def pump(self):
        data = self.sock.recv(65536)
        if not data:
            raise EOFError
        for event in self.h2.receive_data(data):
            if isinstance(event, h2.events.ConnectionTerminated):
                self.over = event
            stream = getattr(event, "stream_id", None)
            if stream:
                self.events.setdefault(stream, []).append(event)
            if isinstance(event, h2.events.DataReceived) and self.acknowledges:
                self.h2.acknowledge_received_data(event.flow_controlled_length, stream)
        self.flush()

    acknowledges = True

    def wait(self, stream, kind):
        """The first event of the kind on the stream."""
        while True:
            for event in self.events.get(stream, ()):
                if isinstance(event, kind):
                    return event
                if isinstance(event, h2.events.StreamReset):
                    raise ConnectionResetError(event.error_code)
            self.pump()

    def body(self, stream):
        self.wait(stream, h2.events.StreamEnded)
        return b"".join(e.data for e in self.events[stream] if isinstance(e, h2.events.DataReceived))

    def status(self, stream):
        return int(dict(self.wait(stream, h2.events.ResponseReceived).headers)[":status"])

    def fields(self, stream):
        return dict(self.wait(stream, h2.events.ResponseReceived).headers)

    def request(self, *args, **more):
        stream = self.send(*args, **more)
        return self.status(stream), self.body(stream)

    def close(self):
        self.sock.close()


@pytest.fixture(params=["h2c", "tls"])
def client(request, world, made):
    c = H2Client(world, made if request.param == "tls" else None)
    yield c
    c.close()


def test_requests_on_one_connection(world, client):
    world.sandbox("ia").echo()
    world.sandbox("ib").echo(3000)
    streams = [client.send("GET", f"/{i}", to("ia")) for i in range(30)]
    streams += [client.send("POST", f"/{i}", body=b"x" * i * 300, host="3000-IB.sbx.test.:99") for i in range(30, 33)]
    for i, stream in enumerate(streams):
        assert client.status(stream) == 200
        got = json.loads(client.body(stream))
        assert got["path"] == f"/{i}" and got["who"] == ("ia:49983" if i < 30 else "ib:3000")
        assert len(got["body"]) == (0 if i < 30 else i * 300)
    names = [k for k, _ in got["fields"]]
    assert "transfer-encoding" in names and len(names) == len(set(names))
    assert not [k for k in names if k.startswith(":")]
    status, body = client.request("HEAD", "/h", to("ia"))
    assert (status, body) == (200, b"")
    assert client.request("OPTIONS", "/any")[0] == 204
    assert json.loads(client.request("GET", "/sandboxes")[1])["who"] == "control"


def test_the_forwarded_scheme_is_the_connections(world, made):
    world.sandbox("ia").echo()
    for certificates, want in ((None, "http"), (made, "https")):
        c = H2Client(world, certificates)
        got = json.loads(c.request("GET", "/", to("ia"))[1])
        assert dict(got["fields"])["x-forwarded-proto"] == want
        c.close()


@pytest.mark.parametrize(("pseudo", "fields", "want"), [
    (None, [("host", "other")], 400),
    (None, [("host", "h"), ("host", "h")], "reset"),
    (None, [("e2b-sandbox-id", "ia")], 400),
    (None, [("e2b-sandbox-id", "ia"), ("e2b-sandbox-id", "ia"), ("e2b-sandbox-port", "1")], 400),
    (None, [("connection", "close")], "reset"),
    (None, [("transfer-encoding", "chunked")], "reset"),
    (None, [("upgrade", "websocket")], "reset"),
    (None, [("te", "gzip")], "reset"),
    (None, [("keep-alive", "1")], "reset"),
    (None, [("content-length", "3")], "reset"),
    (None, [("content-length", "0"), ("content-length", "0")], "reset"),
    (None, [("x", "a\r\nb: c")], "reset"),
    (None, [("x\r\ny", "a")], "reset"),
    ([(":method", "GET"), (":scheme", "http"), (":path", "/ HTTP/1.1\r\nx: y"), (":authority", "h")], [], "reset"),
    ([(":method", "GET"), (":scheme", "http"), (":path", "/a b"), (":authority", "h")], [], "either"),
    ([(":method", "GET"), (":scheme", "http"), (":path", "http://other/"), (":authority", "h")], [], "reset"),
    ([(":method", "GET"), (":scheme", "http"), (":path", ""), (":authority", "h")], [], "reset"),
    ([(":method", "GET"), (":scheme", "http"), (":path", "/")], [], "either"),
    ([(":method", "GET"), (":path", "/"), (":authority", "h")], [], "reset"),
    ([(":method", "GET"), (":scheme", "ftp"), (":path", "/"), (":authority", "h")], [], "either"),
    ([(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "h"), (":protocol", "websocket")], [],
     "reset"),
    ([(":method", "CONNECT"), (":authority", "h:80")], [], 405),
    (None, [("expect", "magic")], 417),
    (None, [(f"x-{i}", "y") for i in range(101)], 431),
    (None, [(f"x-{i}", "y" * 10000) for i in range(7)], "either"),
])  # fmt: skip
def test_what_could_be_read_in_two_ways_is_refused(world, made, pseudo, fields, want):
    """Neither control nor a sandbox hears of any; the connection lives on where only a stream was bad."""
    world.sandbox("ia").echo()
    c = H2Client(world)
    stream = c.send("GET", "/", fields, pseudo=pseudo)
    try:
        got = c.status(stream)
    except ConnectionResetError:
        got = "reset"
    if want == "either":
        assert got == "reset" or 400 <= got < 500
    else:
        assert got == want
    assert world.control.http.seen == [] and c.request("OPTIONS", "/")[0] == 204
    c.close()


def test_cookies_are_joined_and_trailers_dropped(world, client):
    raw = Raw(world.sandbox("ia"))
    stream = client.send("POST", "/", [*to("ia").items(), ("cookie", "a=1"), ("cookie", "b=2")], end=False)
    conn, head = raw.accept()
    assert b"\r\ncookie: a=1; b=2\r\n" in head and b"transfer-encoding: chunked" in head.lower()
    client.write(stream, b"abc")
    client.h2.send_headers(stream, [("x-trailer", "v")], end_stream=True)
    client.flush()
    got = b""
    while not got.endswith(b"0\r\n\r\n"):
        got += conn.recv(4096)
    assert got == b"3\r\nabc\r\n0\r\n\r\n"
    conn.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: x-hop\r\nX-Hop: 1\r\n\r\n"
                 b"2\r\nok\r\n0\r\nx-late: v\r\n\r\n")
    assert client.body(stream) == b"ok"
    fields = client.fields(stream)
    assert "x-hop" not in fields and "connection" not in fields and "transfer-encoding" not in fields
    assert fields["abx-request-id"]


def test_expect_is_answered(world, client):
    world.sandbox("ia").echo()
    stream = client.send("POST", "/", {**to("ia"), "Expect": "100-continue", "Content-Length": "3"}, end=False)
    client.wait(stream, h2.events.InformationalResponseReceived)
    client.write(stream, b"abc", end=True)
    assert json.loads(client.body(stream))["body"] == "abc"


def streaming(world, client, name="ia"):
    sandbox = world.sandbox(name)
    raw = Raw(sandbox)
    stream = client.send("POST", "/process.Process/Start", {**to(name), "Content-Length": "2"}, body=b"{}")
    conn, _ = raw.accept()
    conn.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
    assert client.wait(stream, h2.events.DataReceived).data == b"hello"
    return sandbox, conn, stream


def test_a_dropped_stream_ends_the_call_inside_and_no_other(world, client):
    _, first, one = streaming(world, client)
    _, second, two = streaming(world, client, "ib")
    client.h2.reset_stream(one, h2.errors.ErrorCodes.CANCEL)
    client.flush()
    with pytest.raises(ConnectionResetError):
        if not first.recv(1):
            raise AssertionError("half-closed only")
    second.sendall(b"3\r\nbye\r\n0\r\n\r\n")
    assert client.body(two) == b"hellobye"


def test_a_dropped_connection_ends_all_calls_inside(world, client):
    calls = [streaming(world, client, name)[1] for name in ("ia", "ib", "ic")]
    client.close()
    for conn in calls:
        with pytest.raises(ConnectionResetError):
            if not conn.recv(1):
                raise AssertionError("half-closed only")


def test_a_broken_upstream_resets_its_stream_alone(world, client):
    _, conn, stream = streaming(world, client)
    conn.close()
    with pytest.raises(ConnectionResetError):
        client.wait(stream, h2.events.StreamEnded)
    assert client.request("OPTIONS", "/")[0] == 204


def test_the_end_of_a_sandbox_ends_its_streams(world, client):
    sandbox, _, stream = streaming(world, client)
    world.kill(sandbox)
    with pytest.raises(ConnectionResetError):
        client.wait(stream, h2.events.StreamEnded)
    status, body = client.request("GET", "/", to("ia"))
    assert status == 502 and json.loads(body) == {"sandboxId": "ia", **GONE}


def test_an_early_answer_stops_the_upload(world, client):
    raw = Raw(world.sandbox("ia"))
    stream = client.send("POST", "/", to("ia"), end=False)
    conn, _ = raw.accept()
    conn.sendall(b"HTTP/1.1 413 Payload Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    assert client.status(stream) == 413
    assert client.body(stream) == b""
    assert client.request("OPTIONS", "/")[0] == 204


def test_large_bodies_both_ways_at_once(world, client):
    size, block, sums = 12 << 20, os.urandom(65536), {}
    raw = Raw(world.sandbox("ia"))

    def play(conn, head):
        n = len(head.split(b"\r\n\r\n", 1)[1])
        while n < size:
            n += len(conn.recv(1 << 20))
        conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size // len(block)):
            conn.sendall(block)

    streams = []
    for _ in range(3):
        stream = client.send("POST", "/", {**to("ia"), "Content-Length": str(size)}, end=False)
        threading.Thread(target=play, args=raw.accept(), daemon=True).start()
        streams.append(stream)
    for _ in range(size // len(block)):
        for stream in streams:
            client.write(stream, block)
    for stream in streams:
        client.h2.end_stream(stream)
    client.flush()
    for stream in streams:
        sums[stream] = client.body(stream)
        assert sums[stream] == block * (size // len(block))


def test_readers_and_servers_that_stand_push_back(world, client):
    """100 streams whose windows nobody opens, then uploads that no server reads: memory stays, others are served."""
    sandbox = world.sandbox("ia")
    raw = Raw(sandbox)
    world.sandbox("ib").echo()
    before = memory_kib(world)
    client.acknowledges = False
    conn, stream = None, client.send("GET", "/", to("ia"))
    conn, _ = raw.accept()
    conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
    conn.setblocking(False)
    sent, quiet = 0, 0
    while quiet < 20:
        try:
            sent += conn.send(b"z" * 65536)
            quiet = 0
        except BlockingIOError:
            quiet += 1
            time.sleep(0.02)
    assert sent < 32 << 20 and memory_kib(world) - before < 4096
    uploads = [client.send("POST", f"/{i}", to("ia"), end=False) for i in range(3)]
    conns = [raw.accept()[0] for _ in uploads]
    for upload in uploads:
        left = 1 << 20
        while left and client.h2.local_flow_control_window(upload) > 0:
            n = min(client.h2.local_flow_control_window(upload), 16384, left)
            client.h2.send_data(upload, bytes(n))
            client.flush()
            left -= n
    assert client.request("OPTIONS", "/")[0] == 204
    assert memory_kib(world) - before < 8192
    for c in conns:
        c.close()
    assert stream


def test_more_streams_than_allowed_are_refused(world, client):
    raw = Raw(world.sandbox("ia"))
    streams = [client.send("GET", f"/{i}", to("ia")) for i in range(100)]
    held = [raw.accept()[0] for _ in streams]
    over = client.send("GET", "/over", to("ia"))
    with pytest.raises(ConnectionResetError) as e:
        client.wait(over, h2.events.ResponseReceived)
    assert e.value.args[0] == h2.errors.ErrorCodes.REFUSED_STREAM
    held[0].sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
    assert client.status(streams[0]) == 204


def frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0)
HEAD = b"\x82\x86\x84\x41\x01h"  # GET http / with :authority h


@pytest.mark.alone  # a gateway that gets little of the processor holds more of what came
@pytest.mark.parametrize(("flood", "must_end"), [
    (frame(6, 0, 0, b"12345678") * 3000, True),
    (frame(4, 0, 0) * 3000, True),
    (frame(1, 4, 1, HEAD) + frame(9, 0, 1) * 500, True),
    (frame(1, 1, 1, HEAD) + frame(9, 0, 1) * 500, True),
    ("resets", True),
    ("empty data", False),
], ids=["ping", "settings", "headers", "continuation", "resets", "data"])  # fmt: skip
def test_floods_end_only_their_connection(world, flood, must_end):
    before = memory_kib(world)
    sock = world.connect()
    sock.sendall(PREFACE)
    other = Client(world)
    try:
        sock.settimeout(5)
        for i in range(1, 400):
            if flood == "resets":
                ids = range(i * 400 + 1, (i + 1) * 400, 2)
                data = b"".join(frame(1, 5, n, HEAD) + frame(3, 0, n, b"\0\0\0\x08") for n in ids)
            elif flood == "empty data":
                data = (frame(1, 4, 1, b"\x83\x86\x84\x41\x01h") if i == 1 else b"") + frame(0, 0, 1) * 500
            else:
                data = flood
            sock.sendall(data)
    except OSError:
        pass
    assert other.request("OPTIONS", "/").status == 204
    assert memory_kib(world) - before < 16384
    if must_end:
        sock.settimeout(BUSY_S)
        with contextlib.suppress(ConnectionError):
            while sock.recv(65536):
                pass
    sock.close()
    other.close()


@pytest.mark.slow
def test_a_head_that_does_not_end_is_cut(world):
    sock = world.connect()
    sock.settimeout(BUSY_S)
    sock.sendall(PREFACE + frame(1, 1, 1, HEAD))
    got = b"x"
    try:
        while got:
            got = sock.recv(4096)
    except ConnectionResetError:
        pass
    part = world.connect()
    part.settimeout(BUSY_S)
    part.sendall(PREFACE[:10])
    assert part.recv(100).startswith(b"HTTP/1.1 408 ")
    part.close()


@pytest.mark.parametrize("cut", [1, 3, 10, 23])
def test_a_preface_in_pieces(world, cut):
    sock = world.connect()
    for piece in (PREFACE[:cut], PREFACE[cut:] + frame(1, 5, 1, b"\x42\x07OPTIONS\x86\x84\x41\x01h")):
        sock.sendall(piece)
        time.sleep(0.05)
    got = b""
    while b"\x88" not in got and b"\x89" not in got:  # :status 200 or 204
        got += sock.recv(4096)
    sock.close()
    half = world.connect()
    half.sendall(PREFACE[:cut])
    half.shutdown(1)
    while half.recv(4096):
        pass
    half.close()


def test_methods_that_begin_like_the_preface(world):
    world.sandbox("ia").echo()
    c = Client(world)
    c.sock.sendall(b"P")
    time.sleep(0.05)
    c.sock.sendall(f"UT / HTTP/1.1\r\nHost: h\r\nE2b-Sandbox-Id: ia\r\nE2b-Sandbox-Port: {ENVD}\r\nContent-Length: 1\r\n\r\nx"
                   .encode())
    assert c.response().json()["method"] == "PUT"
    c.close()


def test_a_stop_lets_streams_end(build_dir, tmp_path):
    world = World(build_dir, tmp_path)
    c = H2Client(world)
    _, conn, stream = streaming(world, c)
    closer = threading.Thread(target=world.close)
    closer.start()
    while c.over is None:
        c.pump()
    conn.sendall(b"3\r\nbye\r\n0\r\n\r\n")
    got = b""  # python-h2 takes GOAWAY for the end
    while data := c.sock.recv(4096):
        got += data
    assert b"bye" in got and stream
    closer.join(BUSY_S)
    assert not closer.is_alive() and world.process.returncode == 0


def test_nothing_is_left_of_many(world, made):
    world.sandbox("ia").echo(3000)

    def round_():
        for certificates in (None, made):
            c = H2Client(world, certificates)
            streams = [c.send("GET", "/", to("ia", 3000)) for _ in range(50)]
            for s in streams[::2]:
                c.h2.reset_stream(s)
            for s in streams[1::2]:
                c.status(s)
            c.close()

    round_()
    before, kib = fds(world), memory_kib(world)
    for _ in range(10):
        round_()
    until(lambda: fds(world) <= before, lambda: f"{before} descriptors, has {fds(world)}")
    assert memory_kib(world) - kib < 4096


# --- other peers -----------------------------------------------------------------------------------------------------


def test_httpx_and_curl(world, made):
    import httpx

    world.sandbox("ia").echo()
    with httpx.Client(http2=True, verify=context(made)) as c:
        for i in range(20):
            got = c.post(f"https://127.0.0.1:{world.tls_port}/{i}", headers=to("ia"), content=b"x" * 5000)
            assert got.status_code == 200 and got.http_version == "HTTP/2" and got.json()["path"] == f"/{i}"
    for version, url in (("2", f"https://127.0.0.1:{world.tls_port}"), ("2-prior-knowledge", f"http://127.0.0.1:{world.port}")):
        out = subprocess.run(["curl", "-sS", f"--http{version}", "--cacert", made / "ca.pem", "-w", "%{http_version}",
                              f"{url}/sandboxes", "-d", "x"], stdout=subprocess.PIPE, check=True, timeout=BUSY_S)
        assert out.stdout.endswith(b"2") and b'"who": "control"' in out.stdout


@pytest.mark.skipif(not shutil.which("h2load"), reason="nghttp2-client")
def test_h2load(world):
    for url, streams in ((f"http://127.0.0.1:{world.port}/sandboxes", 10), (f"https://127.0.0.1:{world.tls_port}/sandboxes", 32)):
        out = subprocess.run(["h2load", "-n", "1500", "-c", "10", "-m", str(streams), url], stdout=subprocess.PIPE, text=True,
                             check=True, timeout=100).stdout
        assert "1500 succeeded, 0 failed, 0 errored, 0 timeout" in out and "status codes: 1500 2xx" in out, out
    out = subprocess.run(["nghttp", "-v", f"http://127.0.0.1:{world.port}/sandboxes"], stdout=subprocess.PIPE, text=True,
                         check=True, timeout=BUSY_S).stdout
    assert ":status: 200" in out and '"who": "control"' in out


# RFC 9113 3.4's invalid preface is a malformed request line where HTTP/1.1 is spoken too, and answered as such.
H2C_KNOWN = ["Sends invalid connection preface"]


@pytest.mark.parametrize("kind", ["tls", "h2c"])
def test_h2spec(world, tools_dir, kind):
    program = tools_dir / "bin/h2spec"
    args = ["-p", str(world.port)] if kind == "h2c" else ["-t", "-k", "-p", str(world.tls_port)]
    out = subprocess.run([program, "-h", "127.0.0.1", "-o", "10", *args], stdout=subprocess.PIPE, text=True, timeout=280).stdout
    failed = re.findall(r"\u00d7 \d+: (.*)", out[out.find("Failures"):] if "Failures" in out else "")
    assert failed == (H2C_KNOWN if kind == "h2c" else []), out[out.find("Failures"):]
    assert re.search(r"145 tests, 14[45] passed, 0 skipped", out)


# --- a whole service -------------------------------------------------------------------------------------------------

OFFICIAL = """
import os, ssl, e2b
box = e2b.Sandbox.create("base", timeout=120)
out = box.commands.run("echo hello; echo oops >&2; exit 0")
assert (out.stdout, out.stderr) == ("hello\\n", "oops\\n")
pieces = []
box.commands.run("for i in 1 2 3; do echo $i; sleep 0.1; done", on_stdout=pieces.append)
assert "".join(pieces) == "1\\n2\\n3\\n"
data = os.urandom(3_000_000)
box.files.write("/tmp/large", data)
assert bytes(box.files.read("/tmp/large", format="bytes")) == data
server = box.commands.run("cd /tmp && python3 -m http.server 8000 || node -e 'require(\\"http\\").createServer((q,s)=>s.end(\\"up\\")).listen(8000)'",
                          background=True)
handle = box.commands.run("sleep 100", background=True)
assert handle.kill()
server.kill()
assert box.is_running()
box.kill()
assert not box.is_running()
print("done")
"""


@pytest.mark.parametrize("version", ["1.1", "2"])
def test_the_official_client_over_tls(build_dir, tools_dir, base_template, made, version):
    files = [made / "127.0.0.1.pem", made / "127.0.0.1.key"]
    with Service(build_dir, "--tls-cert", files[0], "--tls-key", files[1], "--tls-listen", "127.0.0.1:0") as service:
        url = f"https://127.0.0.1:{tls_port(service)}"
        env = {**os.environ, "E2B_API_KEY": service.key, "E2B_API_URL": url, "E2B_SANDBOX_URL": url,
               "E2B_HTTP_VERSION": version, "SSL_CERT_FILE": str(made / "ca.pem")}
        done = subprocess.run([tools_dir / "py/bin/python", "-c", OFFICIAL], env=env, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=110)
        assert done.stdout.endswith("done\n"), done.stdout
