"""Ports of a sandbox whose servers speak TLS (httpsPorts)."""

import ssl
import threading

import pytest
from gateway_fakes import ENVD, Client
from gateway_kit import CLOSED, client, needs_root, start_at_a_later_try, to, world  # noqa: F401  (fixtures)
from http_fakes import make_certificates
from waiting import BUSY_S

pytestmark = needs_root

NO_TLS = {"sandboxId": "ia", "message": "The sandbox's httpsPorts name this port, but TLS with its server failed", "code": 502}


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    made = make_certificates(tmp_path_factory.mktemp("tls"), "localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made / "localhost.pem", made / "localhost.key")
    return context


class Server:
    """One connection by hand: shakes hands, reads a head, sends what it is told."""

    def __init__(self, sandbox, port, tls, answer, close_notify=True):
        self.listener = sandbox.listen(port)
        self.listener.settimeout(BUSY_S)
        self.names, self.protocol = [], None
        tls.sni_callback = lambda conn, name, _: self.names.append(name)
        tls.set_alpn_protocols(["h2", "http/1.1"])
        self.thread = threading.Thread(target=self.run, args=(tls, answer, close_notify))
        self.thread.start()

    def run(self, tls, answer, close_notify):
        conn = tls.wrap_socket(self.listener.accept()[0], server_side=True)
        conn.settimeout(BUSY_S)
        self.protocol = conn.selected_alpn_protocol()
        got = b""
        while b"\r\n\r\n" not in got:
            got += conn.recv(65536)
        conn.sendall(answer)
        if close_notify:
            conn.unwrap()
        conn.close()


def test_requests_go_over_tls(world, client, tls):
    server = world.sandbox("ia", https=(3000, 8443, ENVD)).echo(8443, tls=tls)
    for _ in range(3):
        got = client.request("POST", "/p?q", to("ia", 8443), b"x" * 300_000)
        assert got.status == 200 and got.json()["path"] == "/p?q" and got.json()["body"] == 300_000
    assert client.request("GET", "/", host="8443-ia.sbx.test").json()["who"] == "ia:8443"
    assert server.accepted == 1  # the connection is kept


def test_other_ports_and_envd_stay_plain(world, client, tls):
    sandbox = world.sandbox("ia", https=(8443, ENVD))
    sandbox.echo(3000)
    sandbox.echo()
    assert client.request("GET", "/", to("ia", 3000)).json()["who"] == "ia:3000"
    assert client.request("GET", "/", to("ia")).json()["who"] == f"ia:{ENVD}"


def test_the_server_is_asked_for_localhost_and_http1(world, client, tls):
    server = Server(world.sandbox("ia", https=(8443,)), 8443, tls, b"HTTP/1.1 204 No\r\n\r\n")
    assert client.request("GET", "/", to("ia", 8443)).status == 204
    server.thread.join(BUSY_S)
    assert server.names == ["localhost"] and server.protocol == "http/1.1"


@pytest.mark.parametrize("close_notify", [True, False])
def test_bodies_that_end_with_the_connection(world, client, tls, close_notify):
    body = b"y" * 200_000
    server = Server(world.sandbox("ia", https=(8443,)), 8443, tls, b"HTTP/1.0 200 OK\r\n\r\n" + body, close_notify)
    assert client.request("GET", "/", to("ia", 8443)).body == body
    server.thread.join(BUSY_S)


def test_servers_without_tls_are_told_apart_from_closed_ports(world, client):
    sandbox = world.sandbox("ia", https=(3000, 3001, 3002))
    sandbox.echo(3000)
    assert client.request("GET", "/", to("ia", 3000)).json() == NO_TLS
    hangs_up = sandbox.listen(3001)
    closer = threading.Thread(target=lambda: hangs_up.accept()[0].close())
    closer.start()
    assert client.request("POST", "/", to("ia", 3001), b"body").json() == NO_TLS
    closer.join(BUSY_S)
    assert client.request("GET", "/", to("ia", 3002)).json() == {"sandboxId": "ia", **CLOSED, "port": 3002}


def test_a_server_that_just_starts_is_reached_with_the_body(world, client, tls):
    sandbox = world.sandbox("ia", https=(8443,))
    start_at_a_later_try(world, sandbox, lambda: sandbox.echo(8443, tls=tls))
    assert client.request("POST", "/", to("ia", 8443), b"body").json()["body"] == "body"


def test_websockets_and_streams_pass(world, client, tls):
    server = world.sandbox("ia", https=(8443,)).listen(8443)
    server.settimeout(BUSY_S)

    def run():
        conn = tls.wrap_socket(server.accept()[0], server_side=True)
        head = b""
        while b"\r\n\r\n" not in head:
            head += conn.recv(4096)
        conn.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
        while data := conn.recv(65536):
            conn.sendall(data)
        conn.unwrap()
        conn.close()

    thread = threading.Thread(target=run)
    thread.start()
    client.send("GET", "/", to("ia", 8443, Upgrade="echo", Connection="Upgrade"))
    assert client.head().status == 101
    for piece in (b"a", b"b" * 100_000):
        client.sock.sendall(piece)
        assert client.take(len(piece)) == piece
    client.sock.shutdown(1)
    assert client.sock.recv(1) == b""
    thread.join(BUSY_S)


def test_nothing_is_left_of_many(world, tls):
    sandbox = world.sandbox("ia", https=(8443, 3000))
    server = sandbox.echo(8443, tls=tls)
    sandbox.echo(3000)
    clients = [Client(world) for _ in range(20)]
    for _ in range(3):
        for c in clients:
            c.send("GET", "/", to("ia", 8443))
        for c in clients:
            assert c.response().status == 200
        for c in clients:
            assert c.request("GET", "/", to("ia", 3000)).json() == NO_TLS
    for c in clients:
        c.close()
    assert server.accepted <= 60
    world.kill(sandbox)
