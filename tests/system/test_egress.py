"""What sandboxes reach: a whole service in a network of its own, with servers that stand for the internet."""

import base64
import itertools
import json
import os
import re
import signal
import textwrap
import threading

import pytest
from envd import Envd
from guest import until
from netlab import HOST, HOST6, INTERNET, Lab, NameServer, dns_addresses, dns_question
from service import Service

WEB, OTHER = "198.51.100.10", "198.51.100.20"
WEB6 = "2a0f:5707:1::10"
NAMES, OWN_NAMES = "198.51.100.53", "198.51.100.54"
REFUSED = ["10.9.9.9", "172.16.5.5", "192.168.7.7", "169.254.169.254", "100.64.1.1", "192.0.0.192", "198.18.0.1"]

# Dials and says what came back: the first line of the answer, or the error.
DIAL = textwrap.dedent(
    """
    import socket, sys
    for target in sys.argv[1:]:
        ip, port = target.rsplit("=", 1)
        try:
            with socket.create_connection((ip, int(port)), 20) as s:
                s.sendall(b"hello\\n")
                print(target, s.makefile().readline().strip() or "EOF")
        except OSError as e:
            print(target, type(e).__name__)
    """
)


def greet(connection):
    """Says at which address it was reached, then sends back what comes."""
    connection.sendall(f"this is {connection.getsockname()[0]}\n".encode())
    while data := connection.recv(65536):
        connection.sendall(data)


def hear(connection):
    """Answers what it is told; says nothing before."""
    connection.sendall(b"heard " + connection.recv(100))


@pytest.fixture(scope="module")
def lab():
    with Lab() as lab:
        lab.address(WEB, OTHER, WEB6, NAMES, OWN_NAMES, *REFUSED)
        for address in (WEB, OTHER, WEB6, *REFUSED):
            lab.serve(address, 7, greet)
        for address, port in itertools.product((WEB, OTHER), (80, 443, 8443)):
            lab.serve(address, port, greet)
        lab.serve(WEB, 22, greet)
        lab.serve(WEB, 6379, hear)
        for address in ("127.0.0.1", HOST, HOST6):
            lab.serve(address, 7, greet, space=lab.host)
        with lab.host.entered():
            yield lab


@pytest.fixture(scope="module")
def names(lab):
    return NameServer(
        lab,
        NAMES,
        {
            "web.example": [WEB, WEB6],
            "www.web.example": [WEB],
            "other.example": [OTHER],
            "many.example": [f"198.51.100.{i}" for i in range(100, 160)],
            "inside.example": ["10.9.9.9"],
            "metadata.example": ["169.254.169.254"],
            "loopback.example": ["127.0.0.1"],
            "host.example": [HOST],
        },
    )


@pytest.fixture(scope="module")
def service(lab, names, build_dir, base_template):
    with Service(build_dir, "--gateways", "1", "--egress-dns", NAMES) as service:
        yield service


class Box:
    """A sandbox of the service, killed at the end."""

    def __init__(self, service, **body):
        self.service = service
        self.made = service.create(**body)
        self.id = self.made["sandboxID"]
        self.envd = Envd(service, self.made)
        self.root = Envd(service, self.made, "root")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.service.kill(self.id)

    def dial(self, *targets):
        """{target: answer} for "IP=PORT"."""
        code, out, err = self.envd.run("", cmd="/usr/bin/python3", args=["-c", DIAL, *targets], timeout=90)
        assert code == 0, err
        return dict(line.split(" ", 1) for line in out.splitlines())

    def python(self, program, *args, user="user", timeout=60):
        envd = self.root if user == "root" else self.envd
        code, out, err = envd.run("", cmd="/usr/bin/python3", args=["-c", program, *args], timeout=timeout)
        assert code == 0, (out, err)
        return out

    def put_network(self, body):
        return self.service.request("PUT", f"/sandboxes/{self.id}/network", body)

    def denials(self, *words):
        """Lines of the log that deny this sandbox something and have all the words."""
        lines = (self.service.data_dir / "serve.log").read_text(errors="replace").splitlines()
        return [x for x in lines if "egress denied" in x and self.id in x and all(w in x for w in words)]


@pytest.fixture
def box(service):
    with Box(service) as box:
        yield box


def test_reaches_the_internet_by_address(box):
    assert box.dial(f"{WEB}=7", f"{WEB6}=7", f"{OTHER}=7") == {
        f"{WEB}=7": f"this is {WEB}",
        f"{WEB6}=7": f"this is {WEB6}",
        f"{OTHER}=7": f"this is {OTHER}",
    }


def test_port_without_server_is_an_error(box):
    assert box.dial(f"{WEB}=9")[f"{WEB}=9"] == "ConnectionResetError"


def test_reserved_addresses_and_the_host_are_refused_and_told(box):
    ways = {
        **{address: address for address in REFUSED},
        HOST: HOST,
        HOST6: HOST6,
        INTERNET.rsplit(".", 1)[0] + ".255": "203.0.113.255",
        "::ffff:10.9.9.9": "10.9.9.9",
        "64:ff9b::10.9.9.9": "64:ff9b::a09:909",
        "2002:a09:909::1": "2002:a09:909::1",
        "2001:0:a09:909::1": "2001:0:a09:909::1",
        "fd00:ec2::254": "fd00:ec2::254",
        "fe80::1234": None,
        "0.1.2.3": "0.1.2.3",
        "240.1.2.3": "240.1.2.3",
    }
    answers = box.dial(*(f"{way}=7" for way in ways))
    assert {answer for answer in answers.values()} <= {"ConnectionResetError", "OSError", "BrokenPipeError"}, answers
    for address in filter(None, ways.values()):
        until(lambda: box.denials("reserved: ", f"{address}" if ":" not in address else f"[{address}]"), 20)


def test_loopback_stays_inside(box):
    """127.0.0.1 is the sandbox's own, where nobody serves that port; the host's would answer."""
    assert box.dial("127.0.0.1=7", "::1=7") == {"127.0.0.1=7": "ConnectionRefusedError", "::1=7": "ConnectionRefusedError"}


def test_listener_cannot_be_dialled_itself(box):
    assert box.dial("127.255.255.254=1")["127.255.255.254=1"] == "ConnectionRefusedError"


def test_udp_is_refused_at_once_and_counted(box):
    box.python(
        "import socket\n"
        f"for ip, family in (('{WEB}', socket.AF_INET), ('{WEB6}', socket.AF_INET6)):\n"
        "    s = socket.socket(family, socket.SOCK_DGRAM)\n"
        "    s.settimeout(20)\n"
        "    s.connect((ip, 443))\n"
        "    s.send(b'x')\n"
        "    try:\n"
        "        s.recv(10)\n"
        "        raise SystemExit('answered')\n"
        "    except ConnectionRefusedError:\n"
        "        pass\n"
    )
    counts = re.compile(r'datagrams="(\d+)"')
    until(lambda: sum(int(counts.search(x)[1]) for x in box.denials('rule="udp"')) == 2, 20)


def test_kernel_refuses_other_sockets_and_changes(box):
    program = textwrap.dedent(
        """
        import socket, struct
        for family, kind, protocol in ((socket.AF_PACKET, socket.SOCK_RAW, 3), (socket.AF_INET, socket.SOCK_RAW, 1),
                (socket.AF_INET6, socket.SOCK_RAW, 58), (40, socket.SOCK_STREAM, 0), (socket.AF_NETLINK, socket.SOCK_RAW, 12)):
            try:
                socket.socket(family, kind, protocol)
                print("made", family, kind)
            except OSError as e:
                print("refused", e.errno)
        s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
        # RTM_NEWADDR of 10.9.9.9/8 on lo, RTM_DELROUTE of the default in `local`, RTM_NEWLINK lo down
        for kind, body in (
            (20, struct.pack("=BBBBI", 2, 8, 0, 0, 1) + struct.pack("=HH4s", 8, 2, bytes([10, 9, 9, 9]))),
            (25, struct.pack("=BBBBBBBBI", 2, 0, 0, 0, 255, 3, 254, 2, 0)),
            (16, struct.pack("=BBHiII", 0, 0, 0, 1, 0, 1)),
        ):
            s.send(struct.pack("=IHHII", 16 + len(body), kind, 1 | 4 | 0x400, 1, 0) + body)
            print("netlink", struct.unpack_from("=i", s.recv(4096), 16)[0])
        """
    )
    lines = box.python(program, user="root").splitlines()
    assert len(lines) == 8
    assert all(line.startswith(("refused ", "netlink -1")) for line in lines), lines


def test_rules_by_address(service):
    with Box(service, allow_internet_access=False) as box:
        assert box.dial(f"{WEB}=7")[f"{WEB}=7"] == "ConnectionResetError"
        until(lambda: box.denials("allow_internet_access=false", f"{WEB}:7"), 20)
    with Box(service, network={"denyOut": [f"{OTHER}/32"]}) as box:
        assert box.dial(f"{WEB}=7", f"{OTHER}=7") == {
            f"{WEB}=7": f"this is {WEB}",
            f"{OTHER}=7": "ConnectionResetError",
        }
        until(lambda: box.denials(f"denyOut {OTHER}/32"), 20)
    rules = {"denyOut": ["0.0.0.0/0"], "allowOut": ["198.51.100.8/29"]}
    with Box(service, network=rules) as box:
        answers = box.dial(f"{WEB}=7", f"{OTHER}=7", f"{WEB6}=7", "10.9.9.9=7")
        assert answers.pop(f"{WEB}=7") == f"this is {WEB}"
        assert set(answers.values()) == {"ConnectionResetError"}, answers
    with Box(service, network={"allowOut": ["10.9.9.9", "0.0.0.0/0"]}) as box:
        assert box.dial("10.9.9.9=7")["10.9.9.9=7"] == "ConnectionResetError"


def test_many_connections_and_bytes(lab, box):
    """2,000 connections at once, each of which carries bytes both ways; then much over one."""
    program = textwrap.dedent(
        f"""
        import resource, socket
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        all = [socket.create_connection(("{WEB}", 7), 60) for i in range(2000)]
        for i, s in enumerate(all):
            s.sendall(b"%d\\n" % i)
        for i, s in enumerate(all):
            f = s.makefile()
            assert f.readline() == "this is {WEB}\\n" and f.readline() == f"{{i}}\\n", i
        print(len(all))
        """
    )
    assert box.python(program, timeout=120).strip() == "2000"
    program = textwrap.dedent(
        f"""
        import hashlib, os, socket, threading
        s = socket.create_connection(("{WEB}", 7), 60)
        data, back = os.urandom(1 << 20), hashlib.sha256()
        def send():
            for i in range(64):
                s.sendall(data)
            s.shutdown(socket.SHUT_WR)
        threading.Thread(target=send).start()
        s.recv(len("this is {WEB}\\n"), socket.MSG_WAITALL)
        while piece := s.recv(1 << 20):
            back.update(piece)
        print(back.hexdigest() == hashlib.sha256(data * 64).hexdigest())
        """
    )
    assert box.python(program, timeout=120).strip() == "True"


def test_new_address_of_the_host_is_refused_at_once(lab, box):
    program = textwrap.dedent(
        """
        import socket
        s = socket.create_connection(("198.51.100.77", 7), 20)
        print(s.recv(100).decode().strip(), flush=True)
        s.settimeout(60)
        try:
            print(s.recv(100) or "EOF", flush=True)
        except OSError as e:
            print(type(e).__name__, flush=True)
        """
    )
    lab.address("198.51.100.77")
    lab.serve("198.51.100.77", 7, greet)
    message = {"process": {"cmd": "/usr/bin/python3", "args": ["-c", program]}, "stdin": False}
    text = ""
    for event in box.envd.stream("process.Process/Start", message, 90):
        text += base64.b64decode(event["event"].get("data", {}).get("stdout", "")).decode()
        if text == "this is 198.51.100.77\n":
            lab.host.ip("address", "add", "198.51.100.77/32", "dev", "lo")
            text += "added\n"
    assert text.splitlines() == ["this is 198.51.100.77", "added", "ConnectionResetError"]
    assert box.dial("198.51.100.77=7")["198.51.100.77=7"] == "ConnectionResetError"
    lab.host.ip("address", "del", "198.51.100.77/32", "dev", "lo")
    until(lambda: box.dial("198.51.100.77=7")["198.51.100.77=7"] == "this is 198.51.100.77", 20)


def test_egress_and_engine_may_die(service, box):
    """Refused while egress is away, back with it; what was made before goes on working."""
    for role in ("abx-egress", "abx-engine", "abx-control"):
        (pid,) = service.roles()[role]
        os.kill(pid, signal.SIGKILL)
        until(lambda: service.roles().get(role, [pid]) != [pid], 30)
        until(lambda: box.dial(f"{WEB}=7")[f"{WEB}=7"] == f"this is {WEB}", 30)
    (pid,) = service.roles()["abx-egress"]
    os.kill(pid, signal.SIGSTOP)
    os.kill(service.process.pid, signal.SIGSTOP)
    os.kill(pid, signal.SIGKILL)
    try:
        until(lambda: box.dial(f"{WEB}=7")[f"{WEB}=7"] == "ConnectionRefusedError", 30)
    finally:
        os.kill(service.process.pid, signal.SIGCONT)
    until(lambda: box.dial(f"{WEB}=7")[f"{WEB}=7"] == f"this is {WEB}", 30)


def test_kill_leaves_nothing(service):
    with Box(service) as box:
        assert box.dial(f"{WEB}=7")[f"{WEB}=7"] == f"this is {WEB}"
    assert service.audit() == []


def test_operator_allows(lab, build_dir, base_template):
    with Service(build_dir, "--gateways", "1", "--egress-allow", "10.9.9.0/24", "--egress-allow", f"{HOST}/32") as other:
        with Box(other) as box:
            answers = box.dial("10.9.9.9=7", f"{HOST}=7", "192.168.7.7=7")
            assert answers == {
                "10.9.9.9=7": "this is 10.9.9.9",
                f"{HOST}=7": f"this is {HOST}",
                "192.168.7.7=7": "ConnectionResetError",
            }


ASK = textwrap.dedent(
    """
    import socket, sys
    for hexed in sys.argv[2:]:
        question = bytes.fromhex(hexed)
        if sys.argv[1] == "tcp":
            s = socket.create_connection(("192.0.2.53", 53), 20)
            s.sendall(len(question).to_bytes(2, "big") + question)
            f = s.makefile("rb")
            print(f.read(int.from_bytes(f.read(2), "big")).hex())
        else:
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            s.settimeout(20)
            s.connect((sys.argv[1], 53))
            s.send(question)
            print(s.recv(65536).hex())
    """
)


def ask(box, way, *questions):
    """Answers to raw questions, asked over TCP ("tcp") or over UDP of an address."""
    return [bytes.fromhex(x) for x in box.python(ASK, way, *(q.hex() for q in questions)).split()]


def resolve(box, *names):
    """{name: sorted addresses by getaddrinfo, or the error's name}"""
    program = """
import socket, sys
for name in sys.argv[1:]:
    try:
        print(name, *sorted({x[4][0] for x in socket.getaddrinfo(name, 80, proto=6)}))
    except socket.gaierror as e:
        print(name, {socket.EAI_NONAME: "EAI_NONAME", socket.EAI_AGAIN: "EAI_AGAIN"}.get(e.errno, e))
"""
    return {line.split()[0]: line.split()[1:] for line in box.python(program, *names).splitlines()}


def test_names_are_resolved(box):
    """By libc through /etc/resolv.conf; and by address, name and all with curl."""
    assert resolve(box, "web.example", "WWW.Web.Example", "none.example") == {
        "web.example": [WEB, WEB6],
        "WWW.Web.Example": [WEB],
        "none.example": ["EAI_NONAME"],
    }
    assert box.dial("web.example=7")["web.example=7"] == f"this is {WEB}"


def test_questions_over_udp_and_tcp_whatever_server_is_asked(box, names):
    for way in ("8.8.8.8", "10.9.9.9", "192.0.2.1", "tcp"):
        a, aaaa, none = ask(
            box, way, dns_question("web.example", identity=7), dns_question("web.example", 28), dns_question("no.example")
        )
        assert a[:2] == b"\0\7" and dns_addresses(a) == (0, False, [WEB])
        assert dns_addresses(aaaa) == (0, False, [WEB6])
        assert dns_addresses(none) == (3, False, [])
    many = [f"198.51.100.{i}" for i in range(100, 160)]
    small, large, tcp = *ask(box, "8.8.8.8", dns_question("many.example"), dns_question("many.example", edns=True)), *ask(
        box, "tcp", dns_question("many.example")
    )
    assert dns_addresses(small) == (0, True, [])
    assert dns_addresses(large) == dns_addresses(tcp) == (0, False, many)


def test_answers_are_kept_and_asked_once(service, names):
    names.names["kept.example"] = [WEB]
    with Box(service) as one, Box(service) as two:
        for box in (one, two, one):
            assert resolve(box, "kept.example") == {"kept.example": [WEB]}
    assert names.asked.count(("kept.example", 1)) == 1


def test_a_server_that_is_silent_is_an_error(box, names):
    """Not an endless wait: libc gives up before, and what asks once gets SERVFAIL."""
    names.silent.add("silent.example")
    (answer,) = ask(box, "8.8.8.8", dns_question("silent.example"))
    assert dns_addresses(answer) == (2, False, [])


def test_bad_questions_are_refused(box):
    good = dns_question("web.example")
    bad = [
        good[:4] + b"\0\2" + good[6:],  # two questions, one there
        good[:2] + b"\x28\0" + good[4:],  # an update
        good[:-1] + b"\3",  # class CHAOS
        good[:12] + b"\xc0\x0c" + good[-4:],  # a name that leads to itself
        dns_question("a b.example"),
    ]
    assert [dns_addresses(x)[0] for x in ask(box, "8.8.8.8", *bad)] == [1, 4, 4, 1, 1]
    assert dns_addresses(ask(box, "8.8.8.8", good)[0]) == (0, False, [WEB])


def test_rebinding_leads_nowhere(box):
    """Names of reserved addresses may resolve; what they lead to is decided by address."""
    names = ("inside.example", "metadata.example", "host.example", "loopback.example")
    answers = box.dial(*(f"{name}=7" for name in names))
    assert answers.pop("loopback.example=7") == "ConnectionRefusedError"
    assert set(answers.values()) == {"ConnectionResetError"}, answers


def test_only_allowed_names_are_asked_for(service, names):
    rules = {"denyOut": ["0.0.0.0/0"], "allowOut": ["*.web.example", "other.example"]}
    with Box(service, network=rules) as box:
        questions = ("www.web.example", "other.example", "web.example", "secret-in-a-name.evil.example")
        answers = [dns_addresses(x) for x in ask(box, "8.8.8.8", *map(dns_question, questions))]
        assert answers == [(0, False, [WEB]), (0, False, [OTHER]), (5, False, []), (5, False, [])]
        assert dns_addresses(ask(box, "tcp", dns_question("secret-in-a-name.evil.example"))[0])[0] == 5
        until(lambda: box.denials("secret-in-a-name.evil.example", 'to="dns"'), 20)
    with Box(service, allow_internet_access=False) as box:
        assert dns_addresses(ask(box, "8.8.8.8", dns_question("www.web.example"))[0])[0] == 5
    assert not [name for name, _ in names.asked if "evil" in name]


def test_servers_of_the_sandbox(lab, service):
    own = NameServer(lab, OWN_NAMES, {"web.example": ["198.51.100.99"], "only-here.example": [WEB]})
    with Box(service, network={"dnsServers": [OWN_NAMES]}) as box, Box(service) as other:
        assert resolve(box, "web.example", "only-here.example") == {"web.example": ["198.51.100.99"], "only-here.example": [WEB]}
        assert resolve(other, "web.example", "only-here.example") == {"web.example": [WEB, WEB6], "only-here.example": ["EAI_NONAME"]}
        assert own.asked
    with Box(service, network={"dnsServers": ["10.9.9.9"]}) as box:
        assert dns_addresses(ask(box, "8.8.8.8", dns_question("web.example"))[0])[0] == 2


def test_hosts_servers_are_followed(lab, build_dir, base_template, names, tmp_path):
    """Those of /etc/resolv.conf, also after it was replaced; the service sees a file of its own there."""
    conf = tmp_path / "resolv.conf"
    conf.write_text(f"# nobody\nnameserver {OTHER}\n")
    service = Service(build_dir, "--gateways", "1")
    service.abx = tmp_path / "abx"
    service.abx.write_text(
        f'#!/bin/sh\nexec unshare --mount sh -c \'mount --bind {conf} /etc/resolv.conf; exec "$0" "$@"\' {build_dir}/abx "$@"\n'
    )
    service.abx.chmod(0o755)
    with service, Box(service) as box:
        assert resolve(box, "www.web.example") == {"www.web.example": ["EAI_AGAIN"]}
        conf.write_text(f"search example\nnameserver {NAMES}\n")
        until(lambda: resolve(box, "www.web.example") == {"www.web.example": [WEB]}, 30)


# For each [ip, port, how, name]: the first line that comes back after TLS's first message, or an HTTP request, for the
# name was sent; in pieces when `how` ends in "+".
TALK = textwrap.dedent(
    """
    import json, socket, ssl, sys, time

    def hello(name):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        out = ssl.MemoryBIO()
        try:
            context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name).do_handshake()
        except ssl.SSLWantReadError:
            return out.read()

    for ip, port, how, name in json.loads(sys.argv[1]):
        kind = how.rstrip("+")
        data = hello(name) if kind == "tls" else name.encode() if kind == "raw" else f"GET / HTTP/1.1\\r\\nHost: {name}\\r\\n\\r\\n".encode()
        try:
            with socket.create_connection((ip, port), 20) as s:
                for i in range(0, len(data), 7 if how.endswith("+") else len(data) or 1):
                    s.sendall(data[i:i + (7 if how.endswith("+") else len(data))])
                    if how.endswith("+"):
                        time.sleep(0.002)
                print(s.makefile("rb").readline().decode().strip() or "EOF")
        except OSError as e:
            print(type(e).__name__)
    """
)


def talk(box, *what):
    return box.python(TALK, json.dumps(what), timeout=90).splitlines()


RESET = "ConnectionResetError"


@pytest.fixture(scope="module")
def only_web(service):
    """A sandbox that may reach web.example and what is below it, and has asked for all that it may."""
    with Box(service, network={"denyOut": ["0.0.0.0/0"], "allowOut": ["web.example", "*.web.example"]}) as box:
        assert resolve(box, "web.example", "www.web.example", "other.example") == {
            "web.example": [WEB, WEB6],
            "www.web.example": [WEB],
            "other.example": ["EAI_AGAIN"],
        }
        yield box


def test_only_one_domain_is_reached(only_web):
    greeting = f"this is {WEB}"
    for how in ("tls", "tls+"):
        assert talk(only_web, [WEB, 443, how, "web.example"], [WEB, 8443, how, "WWW.web.example"]) == [greeting, greeting]
    for how in ("http", "http+"):
        assert talk(only_web, [WEB, 80, how, "web.example"], [WEB, 8443, how, "www.web.example:8443"]) == [greeting, greeting]
    # Who speaks first, or another protocol: on a port of neither TLS nor HTTP the address suffices.
    assert talk(only_web, [WEB, 22, "raw", ""], [WEB, 6379, "raw", "PING\r\n"]) == [greeting, "heard PING"]


def test_everything_else_is_refused(only_web):
    """Names that differ, none, raw addresses, relays."""
    before = len(only_web.denials())
    request = "{} HTTP/1.1\r\nHost: {}\r\n\r\n"
    ways = [
        [WEB, 443, "tls", "other.example"],
        [WEB, 443, "tls", "evil.example"],
        [WEB, 443, "tls", None],
        [WEB, 80, "http", "other.example"],
        [WEB, 80, "http", WEB],
        [WEB, 80, "raw", request.format("CONNECT other.example:443", "web.example")],
        [WEB, 80, "raw", request.format("CONNECT evil.example:443", "evil.example:443")],
        [WEB, 80, "raw", request.format("GET http://evil.example/", "web.example")],
        [WEB, 80, "raw", "GET / HTTP/1.1\r\nHost: web.example\r\nHost: evil.example\r\n\r\n"],
        [WEB, 80, "raw", "GET / HTTP/1.0\r\n\r\n"],
        [WEB, 80, "raw", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"],
        [WEB, 8443, "tls", "evil.example"],
        [WEB, 8443, "http", "evil.example"],
        [WEB, 443, "raw", "SSH-2.0-x\r\n"],
        [OTHER, 443, "tls", "web.example"],
        [OTHER, 80, "http", "web.example"],
        [OTHER, 7, "raw", ""],
        [WEB6, 443, "tls", "evil.example"],
        ["10.9.9.9", 80, "http", "web.example"],
    ]
    for way, answer in zip(ways, talk(only_web, *ways)):
        assert answer == RESET, way
    until(lambda: len(only_web.denials()) + len(only_web.denials("untold")) >= before + 10, 20)
    assert only_web.denials("no name that is allowed led the sandbox to this address", f"{OTHER}:443")
    assert only_web.denials("evil.example", "no rule allows the name")


def test_a_name_counts_only_for_the_address_it_led_to(lab, service, names):
    names.names["a.example"], names.names["b.example"] = [WEB], [OTHER]
    with Box(service, network={"denyOut": ["0.0.0.0/0"], "allowOut": ["a.example", "b.example"]}) as box:
        assert talk(box, [WEB, 443, "tls", "a.example"]) == [RESET]  # not asked for yet
        resolve(box, "a.example", "b.example")
        ways = [[WEB, 443, "tls", "a.example"], [OTHER, 443, "tls", "b.example"], [WEB, 443, "tls", "b.example"], [OTHER, 80, "http", "a.example"]]
        assert talk(box, *ways) == [f"this is {WEB}", f"this is {OTHER}", RESET, RESET]
        until(lambda: box.denials("b.example", "told another address"), 20)


# One connection to each target; says "up", then for each line of input what is still there of them.
HOLD = textwrap.dedent(
    """
    import socket, sys
    all = []
    for target in sys.argv[1:]:
        ip, port = target.rsplit("=", 1)
        s = socket.create_connection((ip, int(port)), 20)
        s.makefile("rb", 0).readline()
        all.append((target, s))
    print("up", flush=True)
    for line in sys.stdin:
        alive = []
        for target, s in all:
            try:
                s.sendall(b"x")
                if s.recv(1) == b"x":
                    alive.append(target)
            except OSError:
                pass
        print(*alive, flush=True)
    """
)


def test_new_rules_hold_at_once_for_open_connections_too(service, names):
    """PUT network answers when they are in force; unlisted connections go on, and all survives restarts of the roles."""
    one, two = f"{WEB}=7", f"{OTHER}=7"
    with Box(service, metadata={"a": "b"}, network={"maskRequestHost": "x.test"}) as box:
        message = {"process": {"cmd": "/usr/bin/python3", "args": ["-c", HOLD, one, two]}, "stdin": True, "tag": "hold"}
        output = output_of(box.envd.stream("process.Process/Start", message, 120))
        assert next(output) == "up"

        def alive():
            data = base64.b64encode(b"\n").decode()
            box.envd.unary("process.Process/SendInput", {"process": {"tag": "hold"}, "input": {"stdin": data}})
            return next(output).split()

        assert alive() == [one, two]
        assert box.put_network({"denyOut": [OTHER]})[0] == 204
        assert alive() == [one]
        assert box.dial(one, two) == {one: f"this is {WEB}", two: RESET}
        assert service.request("GET", f"/sandboxes/{box.id}")[2]["network"] == {"denyOut": [OTHER], "maskRequestHost": "x.test"}
        for role in ("abx-control", "abx-egress"):
            (pid,) = service.roles()[role]
            os.kill(pid, signal.SIGKILL)
            until(lambda: service.roles().get(role, [pid]) != [pid], 30)
            until(lambda: box.dial(one)[one] == f"this is {WEB}", 30)
            assert box.dial(two)[two] == RESET
        assert box.put_network({"allow_internet_access": False})[0] == 204
        assert set(box.dial(one, two).values()) == {RESET}
        assert service.request("GET", f"/sandboxes/{box.id}")[2]["allowInternetAccess"] is False
        assert box.put_network({"allowOut": ["web.example"], "denyOut": ["0.0.0.0/0"]})[0] == 204
        assert resolve(box, "web.example", "other.example") == {"web.example": [WEB, WEB6], "other.example": ["EAI_AGAIN"]}
        assert talk(box, [WEB, 443, "tls", "web.example"], [OTHER, 443, "tls", "web.example"]) == [f"this is {WEB}", RESET]
        assert box.put_network({})[0] == 204
        assert box.dial(one, two) == {one: f"this is {WEB}", two: f"this is {OTHER}"}
        assert service.request("GET", f"/sandboxes/{box.id}")[2]["metadata"] == {"a": "b"}


def output_of(events):
    """Lines of standard output as they come."""
    text = ""
    for event in events:
        text += base64.b64decode(event["event"].get("data", {}).get("stdout", "")).decode()
        while "\n" in text:
            line, text = text.split("\n", 1)
            yield line


def test_bad_rules_change_nothing(service, box):
    bad = [
        ({"denyOut": ["example.org"]}, "invalid denied CIDR example.org"),
        ({"allowOut": ["not an address"]}, "invalid allowed address"),
        ({"allowOut": ["web.example"]}, "ALL_TRAFFIC"),
        ({"allow_internet_access": "no"}, "allow_internet_access"),
        ({"allowOut": ["1.2.3.4"] * 1025}, "1024"),
        ({"denyOut": ["2001:db8:0:0:0:0:0:1/128"] * 1024, "allowOut": ["2001:db8:0:0:0:0:0:1/128"] * 1024}, "40960"),
    ]
    for body, words in bad:
        status, _, answer = box.put_network(body)
        assert status == 400 and words in answer["message"], answer
    assert box.dial(f"{WEB}=7")[f"{WEB}=7"] == f"this is {WEB}"
    assert service.request("PUT", "/sandboxes/iaaaaaaaaaaaaaaaaaaaa/network", {})[0] == 404


def test_rules_change_under_load(service):
    """Rules that come and go while connections are made: each answer fits one of both, and the last ones hold."""
    with Box(service) as box:
        load = threading.Thread(target=lambda: results.append(box.python(LOAD, timeout=120)))
        results = []
        load.start()
        for i in range(20):
            assert box.put_network({"denyOut": [WEB]} if i % 2 == 0 else {})[0] == 204
        load.join(150)
        assert results and set(results[0].split()) <= {"ok", "refused"}, results
        assert box.put_network({"denyOut": [WEB]})[0] == 204
        assert box.dial(f"{WEB}=7")[f"{WEB}=7"] == RESET


LOAD = f"""
import socket
for i in range(300):
    try:
        with socket.create_connection(("{WEB}", 7), 20) as s:
            print("ok" if s.makefile().readline() == "this is {WEB}\\n" else "short")
    except ConnectionError:
        print("refused")
"""
