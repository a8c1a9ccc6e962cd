"""TLS of the real abx-gateway against Python's ssl, the openssl command, curl and PyPI websockets; and of `abx serve`, which
reads the files and hands them on."""

import hashlib
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import threading

import pytest
from gateway_fakes import Client, World, share_certificates
from gateway_kit import Raw, expect_reset, fds, fields_of, memory_kib, needs_root, send_until_stuck, to
from http_fakes import make_certificates
from service import Service
from test_gateway_websocket import Peer, python, result, start
from waiting import BUSY_S, until

pytestmark = needs_root
__all__ = ["python"]
NAMES = ("127.0.0.1", "sbx.test", "*.sbx.test", "other.test")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("tls"), *NAMES)


def pairs(made, *names):
    return [(made / f"{name}.pem", made / f"{name}.key") for name in names]


@pytest.fixture
def world(build_dir, tmp_path, made):
    w = World(build_dir, tmp_path, certificates=pairs(made, "127.0.0.1", "*.sbx.test", "other.test"))
    yield w
    assert w.close() == 0


def context(made, **more):
    tls = ssl.create_default_context(cafile=made / "ca.pem")
    for name, value in more.items():
        setattr(tls, name, value)
    return tls


def tls_connect(world, made, name="127.0.0.1", tls=None, session=None):
    sock = socket.create_connection(("127.0.0.1", world.tls_port))
    sock.settimeout(BUSY_S)
    return (tls or context(made)).wrap_socket(sock, server_hostname=name, session=session)


class TlsClient(Client):
    def __init__(self, world, made, *args, **more):
        self.sock, self.data = tls_connect(world, made, *args, **more), b""


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_requests(world, made, version):
    world.sandbox("ia").echo()
    tls = context(made, minimum_version=ssl.TLSVersion[version], maximum_version=ssl.TLSVersion[version])
    client = TlsClient(world, made, tls=tls)
    for i in range(20):
        got = client.request("POST", f"/{i}", to("ia"), b"x" * i * 500)
        assert got.status == 200 and got.json()["path"] == f"/{i}" and len(got.json()["body"]) == i * 500
        assert fields_of(got)["x-forwarded-proto"] == ["https"]
    client.close()
    assert Client(world).request("GET", "/", to("ia")).status == 200  # the other port is as it was


@pytest.mark.parametrize("limit", [
    {"maximum_version": ssl.TLSVersion.TLSv1_1, "minimum_version": ssl.TLSVersion.TLSv1},
    {"maximum_version": ssl.TLSVersion.TLSv1_2, "ciphers": "AES128-SHA:ECDHE-ECDSA-AES128-SHA:@SECLEVEL=0"},
    {"alpn": ["http/0.9"]},
])
def test_old_versions_and_ciphers_and_unknown_protocols_are_refused(world, made, limit):
    tls = context(made)
    limit = dict(limit)
    if "ciphers" in limit:
        tls.set_ciphers(limit.pop("ciphers"))
    if "alpn" in limit:
        tls.set_alpn_protocols(limit.pop("alpn"))
    for name, value in limit.items():
        setattr(tls, name, value)
    with pytest.raises(ssl.SSLError):
        tls_connect(world, made, tls=tls)
    tls_connect(world, made).close()


def test_clients_that_name_a_host_get_its_certificate(world, made):
    for name, want in (("3000-ia.sbx.test", "*.sbx.test"), ("other.test", "other.test"), ("127.0.0.1", "127.0.0.1")):
        sock = tls_connect(world, made, name)
        assert dict(x[0] for x in sock.getpeercert()["subject"])["commonName"] == want
        sock.close()
    with pytest.raises(ssl.SSLCertVerificationError):
        tls_connect(world, made, "unknown.test")


def test_curl(world, made):
    world.sandbox("ia").echo(3000)
    out = subprocess.run(
        ["curl", "-sS", "--cacert", made / "ca.pem", "--connect-to", f"::127.0.0.1:{world.tls_port}", "--http1.1",
         "https://3000-ia.sbx.test/x", "-d", "@-"], input=b"y" * 100_000, stdout=subprocess.PIPE, check=True, timeout=BUSY_S)
    assert b'"path": "/x"' in out.stdout and b"100000" in out.stdout


def test_plain_http_is_told_about(world):
    sock = socket.create_connection(("127.0.0.1", world.tls_port))
    sock.settimeout(BUSY_S)
    sock.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    got = b""
    while data := sock.recv(4096):
        got += data
    head, body = got.split(b"\r\n\r\n", 1)
    assert head.startswith(b"HTTP/1.1 400 ") and b"speaks TLS" in body
    assert int(re.search(rb"Content-Length: (\d+)", head)[1]) == len(body)


def test_garbage_and_clients_that_leave_do_no_harm(world, made):
    tls_connect(world, made).close()
    before = fds(world)
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64)
    for junk in (b"", b"\x16", hello, b"\x80" + bytes(300), os.urandom(5000)):
        sock = socket.create_connection(("127.0.0.1", world.tls_port))
        sock.sendall(junk)
        sock.close()
    world.sandbox("ia").echo(3000)
    client = TlsClient(world, made)
    assert client.request("GET", "/", to("ia", 3000)).status == 200
    client.close()
    until(lambda: fds(world) <= before + 2, lambda: f"no more than {before} descriptors and the sandbox's two, has {fds(world)}")


@pytest.mark.slow
def test_a_handshake_that_stalls_is_cut(world):
    sock = socket.create_connection(("127.0.0.1", world.tls_port))
    sock.settimeout(BUSY_S)
    sock.sendall(b"\x16\x03\x01\x02\x00\x01")
    assert sock.recv(1) == b""


def test_large_bodies_both_ways(world, made):
    raw = Raw(world.sandbox("ia"))
    size, got = 32 << 20, {}
    block = os.urandom(1 << 20)

    def play():
        conn, head = raw.accept()
        body = head.split(b"\r\n\r\n", 1)[1]
        digest, n = hashlib.sha256(body), len(body)
        while n < size:
            data = conn.recv(1 << 20)
            digest.update(data)
            n += len(data)
        got["up"] = digest.hexdigest()
        conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size // len(block)):
            conn.sendall(block)

    thread = threading.Thread(target=play)
    thread.start()
    client = TlsClient(world, made)
    client.sock.sendall(f"POST / HTTP/1.1\r\nHost: h\r\nE2b-Sandbox-Id: ia\r\nE2b-Sandbox-Port: 49983\r\n"
                        f"Content-Length: {size}\r\n\r\n".encode())
    for _ in range(size // len(block)):
        client.sock.sendall(block)
    assert client.head().status == 200
    digest, left = hashlib.sha256(client.data), size - len(client.data)
    while left:
        data = client.sock.recv(1 << 20)
        digest.update(data)
        left -= len(data)
    thread.join()
    want = hashlib.sha256(block * (size // len(block))).hexdigest()
    assert got["up"] == want and digest.hexdigest() == want


def test_slow_readers_push_back_and_memory_stays(world, made):
    raw = Raw(world.sandbox("ia"))
    client = TlsClient(world, made)
    client.send("GET", "/big", to("ia"))
    conn, _ = raw.accept()
    conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
    before = memory_kib(world)
    assert send_until_stuck(conn) < 32 << 20
    assert memory_kib(world) - before < 4096


@pytest.mark.parametrize("scenario", ["echo", "many", "flood", "close"])
def test_websockets(python, world, made, scenario):
    peer = Peer(python, world.sandbox("ia"), 3000)
    world.port, plain = world.tls_port, world.port
    got = result(start(python, world, scenario, "wss://3000-ia.sbx.test", made / "ca.pem"))
    assert got == {"echo": {"code": 1000}, "many": {"messages": 2000}, "flood": {"messages": 2000},
                   "close": {"code": 4321, "reason": "enough \u00fc"}}[scenario]
    world.port = plain
    peer.close()


UPGRADE = {"Connection": "Upgrade", "Upgrade": "example/1"}
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: example/1\r\n\r\n"


def test_a_stream_that_is_cut_is_not_taken_for_a_whole_one(world, made):
    raw = Raw(world.sandbox("ia"), 3000)
    client = TlsClient(world, made)
    client.send("GET", "/", {**to("ia", 3000), **UPGRADE})
    conn, _ = raw.accept()
    conn.sendall(SWITCHED)
    assert client.head().status == 101
    client.sock.sendall(b"abc")
    assert conn.recv(3) == b"abc"
    os.close(client.sock.detach())  # without TLS's own end
    expect_reset(conn)


def test_either_side_may_end_a_stream(world, made):
    raw = Raw(world.sandbox("ia"), 3000)
    client = TlsClient(world, made)
    client.send("GET", "/", {**to("ia", 3000), **UPGRADE})
    conn, _ = raw.accept()
    conn.sendall(SWITCHED + b"whole")
    conn.close()
    assert client.head().status == 101
    assert client.take(5) == b"whole" and client.sock.recv(1) == b""
    client.sock.unwrap()


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_sessions_are_resumed_by_any_gateway(build_dir, tmp_path, made, version):
    worlds = []
    for i in range(3):  # the third has another secret
        (tmp_path / str(i)).mkdir()
        worlds.append(World(build_dir, tmp_path / str(i), certificates=pairs(made, "127.0.0.1"),
                            secret=b"s" * 32 if i < 2 else b"t" * 32))
    tls = context(made, minimum_version=ssl.TLSVersion[version], maximum_version=ssl.TLSVersion[version])

    def once(world, session):
        client = TlsClient(world, made, tls=tls, session=session)
        assert client.request("OPTIONS", "/").status == 204
        reused, session = client.sock.session_reused, client.sock.session
        client.close()
        return reused, session

    reused, session = once(worlds[0], None)
    assert not reused
    for i in (0, 1):
        reused, _ = once(worlds[i], session)
        assert reused
    reused, _ = once(worlds[2], session)
    assert not reused
    for world in worlds:
        assert world.close() == 0


def test_new_certificates_without_dropping_connections(world, made):
    world.sandbox("ia").echo()
    old = TlsClient(world, made)
    assert old.request("GET", "/", to("ia")).status == 200

    def reload(certificates, secret=b"s" * 32):
        told = lambda: [x for x in world.logged().splitlines() if re.search("certificates in use stay|new certificates are in use", x)]
        n = len(told())
        share_certificates(certificates, secret, world.share)
        world.process.send_signal(signal.SIGHUP)
        return until(lambda: told()[n:], "word of the certificates")[-1]

    def subject():
        sock = tls_connect(world, made, tls=context(made, check_hostname=False))
        name = dict(x[0] for x in sock.getpeercert()["subject"])["commonName"]
        sock.close()
        return name

    assert subject() == "127.0.0.1"
    assert "new certificates" in reload(pairs(made, "sbx.test"))
    assert subject() == "sbx.test"
    assert old.request("GET", "/", to("ia")).status == 200
    broken = [(made / "other.test.pem", made / "sbx.test.key")]
    line = reload(broken)
    assert "stay" in line and "certificate 1" in line and "key does not belong" in line
    (made / "junk").write_text("no PEM")
    assert "certificate 2: its key cannot be read" in reload(pairs(made, "other.test") + [(made / "sbx.test.pem", made / "junk")])
    assert "certificate 1: its certificate cannot be used" in reload([(made / "junk", made / "sbx.test.key")])
    assert subject() == "sbx.test"
    assert old.request("GET", "/", to("ia")).status == 200
    old.close()


# --- abx serve -------------------------------------------------------------------------------------------------------


@pytest.fixture
def files(made, tmp_path):
    """Certificate and key that only root may read."""
    for name in ("127.0.0.1.pem", "127.0.0.1.key"):
        shutil.copy(made / name, tmp_path / name)
        (tmp_path / name).chmod(0o600)
    return tmp_path


def tls_port(service):
    return int(re.search(r'serving TLS.* port="?(\d+)', service.logged())[1])


def test_the_service(build_dir, made, files):
    with Service(build_dir, "--tls-cert", files / "127.0.0.1.pem", "--tls-key", files / "127.0.0.1.key",
                 "--tls-listen", "127.0.0.1:0", "--gateways", "2") as service:
        port = tls_port(service)

        def subject():
            sock = socket.create_connection(("127.0.0.1", port))
            with context(made, check_hostname=False).wrap_socket(sock) as tls:
                tls.sendall(b"GET /health HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
                assert tls.recv(100).startswith(b"HTTP/1.1 ")
                return dict(x[0] for x in tls.getpeercert()["subject"])["commonName"]

        def until_told(text, n):
            until(lambda: service.logged().count(text) >= n, lambda: f"{text!r} {n} times in {service.logged()}")

        assert subject() == "127.0.0.1"
        for kind in ("pem", "key"):
            shutil.copy(made / f"sbx.test.{kind}", files / f"127.0.0.1.{kind}")
        service.process.send_signal(signal.SIGHUP)
        until_told("new certificates are in use", 2)
        assert {subject() for _ in range(8)} == {"sbx.test"}
        (files / "127.0.0.1.key").write_text("broken")
        service.process.send_signal(signal.SIGHUP)
        until_told("the certificates in use stay", 2)
        (files / "127.0.0.1.key").unlink()
        service.process.send_signal(signal.SIGHUP)
        until_told("the certificates in use stay", 3)
        assert "127.0.0.1.key" in [x for x in service.logged().splitlines() if "the certificates in use stay" in x][-1]
        assert {subject() for _ in range(8)} == {"sbx.test"}


def serve(build_dir, tmp_path, *args):
    try:
        return subprocess.run([build_dir / "abx", "serve", "--listen", "127.0.0.1:0", "--disk", "1G", "--data-dir",
                               tmp_path / "data", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=60)
    finally:
        subprocess.run(["umount", tmp_path / "data/pool/fs"], stderr=subprocess.DEVNULL, check=False)


@pytest.mark.parametrize(("args", "want"), [
    (["--tls-cert", "{f}/127.0.0.1.pem"], "come in pairs"),
    (["--tls-listen", "127.0.0.1:0"], "needs --tls-cert"),
    (["--tls-listen", "nowhere"], "--tls-listen 'nowhere'"),
    (["--tls-cert", "{f}/missing", "--tls-key", "{f}/127.0.0.1.key"], "missing"),
    (["--tls-cert", "{f}/127.0.0.1.key", "--tls-key", "{f}/127.0.0.1.key", "--tls-listen", "127.0.0.1:0"],
     "its certificate cannot be used"),
])
def test_bad_options(build_dir, tmp_path, files, args, want):
    got = serve(build_dir, tmp_path, *(a.format(f=files) for a in args))
    assert got.returncode != 0 and want in got.stderr
