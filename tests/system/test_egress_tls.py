"""A sandbox's own proxy that is reached by TLS: egressProxy.tls."""

import ssl
import textwrap

import pytest
from egress_kit import (  # noqa: F401 (fixtures)
    NAMES,
    RESET,
    WEB,
    WEB6,
    Box,
    lab,
    names,
    service,
)
from http_fakes import make_certificates
from netlab import Proxy, TlsFront
from service import Service
from waiting import until

PROXY, OPERATORS = "198.51.100.95", "198.51.100.96"
NAME = "tls-proxy.example"
USER = {"username": "you", "password": "own"}


def server_context(certificates, name):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / f"{name}.pem", certificates / f"{name}.key")
    return context


@pytest.fixture(scope="module")
def proxy(lab, names, tmp_path_factory):  # noqa: F811
    """`proxy.asked` of the proxy, `proxy.front.names` that TLS's clients gave, `proxy.ca` and a stranger's CA."""
    lab.address(PROXY, OPERATORS)
    names.names[NAME] = [PROXY]
    certificates = make_certificates(tmp_path_factory.mktemp("tls"), NAME, PROXY)
    stranger = make_certificates(tmp_path_factory.mktemp("stranger"))
    proxy = Proxy(lab, PROXY, 1080, "socks5", "you:own")
    proxy.front = TlsFront(lab, PROXY, 1443, server_context(certificates, NAME), (PROXY, 1080))
    TlsFront(lab, PROXY, 1444, server_context(certificates, PROXY), (PROXY, 1080))
    proxy.ca, proxy.stranger = ((x / "ca.pem").read_text() for x in (certificates, stranger))
    return proxy


@pytest.fixture
def box(service):  # noqa: F811
    with Box(service) as box:
        yield box
    service.until_clean()


def egress_proxy(address, **tls):
    return {"egressProxy": {"address": address, **USER, "tls": {"enabled": True, **tls}}}


def test_connections_go_through_it(service, box, proxy):  # noqa: F811
    """By its name, by an address with the name said, by an address that the certificate has."""
    for body, name in (
        (egress_proxy(f"{NAME}:1443", caCert=proxy.ca), NAME),
        (egress_proxy(f"{PROXY}:1443", caCert=proxy.stranger + proxy.ca, serverName=NAME), NAME),
        (egress_proxy(f"{PROXY}:1444", caCert=proxy.ca), None),
    ):
        del proxy.asked[:], proxy.front.names[:]
        assert box.put_network(body)[0] == 204
        assert box.dial(f"{WEB}=7", f"{WEB6}=7", f"{WEB}=9", "10.9.9.9=7") == {
            f"{WEB}=7": f"this is {WEB}",
            f"{WEB6}=7": f"this is {WEB6}",
            f"{WEB}=9": RESET,
            "10.9.9.9=7": RESET,
        }
        assert proxy.asked == [("you:own", f"{WEB}:7"), ("you:own", f"{WEB6}:7"), ("you:own", f"{WEB}:9")]
        assert set(proxy.front.names) == ({name} if name else set())
        until(lambda: box.denials("refuses the connection"))
    told = service.request("GET", f"/sandboxes/{box.id}")[2]["network"]["egressProxy"]
    assert told == {"address": f"{PROXY}:1444", "username": "you", "tls": {"enabled": True}}


def test_many_bytes_both_ways_and_their_ends(box, proxy):
    assert box.put_network(egress_proxy(f"{NAME}:1443", caCert=proxy.ca))[0] == 204
    program = textwrap.dedent(
        f"""
        import hashlib, os, socket, threading
        s = socket.create_connection(("{WEB}", 7), 60)
        n, data, back = 0, os.urandom(1 << 20), hashlib.sha256()
        def send():
            for i in range(8):
                s.sendall(data)
            s.shutdown(socket.SHUT_WR)
        threading.Thread(target=send).start()
        s.recv(len("this is {WEB}\\n"), socket.MSG_WAITALL)
        while piece := s.recv(1 << 20):
            back.update(piece); n += len(piece)
        print(n, back.hexdigest() == hashlib.sha256(data * 8).hexdigest())
        """
    )
    for _ in range(3):
        assert box.python(program, timeout=120).strip() == "8388608 True"


def test_one_that_is_not_to_be_believed_gets_nothing(service, box, proxy):  # noqa: F811
    """Neither user and password nor where the sandbox wants to go; the log says why."""
    broken = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
    del proxy.asked[:]
    for body, why in (
        (egress_proxy(f"{PROXY}:1443", caCert=proxy.ca), "IP address mismatch"),
        (egress_proxy(f"{PROXY}:1444", caCert=proxy.ca, serverName=NAME), "ostname mismatch"),
        (egress_proxy(f"{NAME}:1443"), "unable to get local issuer certificate"),
        (egress_proxy(f"{NAME}:1443", caCert=proxy.stranger), "unable to get local issuer certificate"),
        (egress_proxy(f"{NAME}:1443", caCert=broken), "caCert of the sandbox's proxy cannot be read"),
        (egress_proxy(f"{PROXY}:1080", caCert=proxy.ca), "does not speak TLS"),
        (egress_proxy(f"{PROXY}:1"), None),
    ):
        with Box(service, network=body) as other:
            assert other.dial(f"{WEB}=7")[f"{WEB}=7"] == RESET, body
            if why:
                until(lambda: other.denials(why))
    assert proxy.asked == []
    assert box.put_network({"egressProxy": {"address": f"{PROXY}:1080", **USER, "tls": {"enabled": False}}})[0] == 204
    assert box.dial(f"{WEB}=7")[f"{WEB}=7"] == f"this is {WEB}"


def test_behind_the_operators(lab, names, build_dir, base_template, proxy):  # noqa: F811
    operators = Proxy(lab, OPERATORS, 3128, "http")
    url = f"http://{OPERATORS}:3128"
    with Service(build_dir, "--gateways", "1", "--egress-dns", NAMES, env={"ABX_EGRESS_PROXY": url}) as service:
        with Box(service, network=egress_proxy(f"{NAME}:1443", caCert=proxy.ca)) as box:
            del proxy.asked[:]
            assert box.dial(f"{WEB}=7")[f"{WEB}=7"] == f"this is {WEB}"
            assert operators.asked == [("", f"{PROXY}:1443")] and proxy.asked == [("you:own", f"{WEB}:7")]
        service.until_clean()
