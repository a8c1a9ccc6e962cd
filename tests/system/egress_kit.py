"""A whole service in a network of its own, with servers that stand for the internet, and sandboxes in it that dial.

Test modules import the fixtures: lab, names, service, box.
"""

import base64
import fcntl
import itertools
import json
import os
import struct
import subprocess
import termios
import textwrap

import processes
import pytest
from conftest import compiler_env
from envd import Envd
from netlab import HOST, HOST6, Lab, NameServer
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

    def __init__(self, service, made=None, **body):
        self.service = service
        self.made = made or service.create(**body)
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


ASK = textwrap.dedent(
    """
    import socket, sys
    for hexed in sys.argv[2:]:
        question = bytes.fromhex(hexed)
        if sys.argv[1] == "tcp":
            s = socket.create_connection(("192.0.2.53", 53), 60)
            s.sendall(len(question).to_bytes(2, "big") + question)
            f = s.makefile("rb")
            print(f.read(int.from_bytes(f.read(2), "big")).hex())
        else:
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            s.settimeout(60)
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


def output_of(events):
    """Lines of standard output as they come."""
    text = ""
    for event in events:
        text += base64.b64decode(event["event"].get("data", {}).get("stdout", "")).decode()
        while "\n" in text:
            line, text = text.split("\n", 1)
            yield line


class Talking:
    """A program in the sandbox that is told to go on by lines."""

    def __init__(self, box, program, *args):
        self.box, self.tag = box, os.urandom(4).hex()
        command = {"cmd": "/usr/bin/python3", "args": ["-c", program, *args]}
        events = box.envd.stream("process.Process/Start", {"process": command, "stdin": True, "tag": self.tag}, 120)
        assert "start" in next(events)["event"]
        self.output = output_of(events)

    def tell(self, line=""):
        data = base64.b64encode(f"{line}\n".encode()).decode()
        self.box.envd.unary("process.Process/SendInput", {"process": {"tag": self.tag}, "input": {"stdin": data}})

    def hear(self):
        return next(self.output)


WITHOUT_LOWAT = """
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
int setsockopt(int fd, int level, int name, const void *value, socklen_t n)
{
    return level == SOL_SOCKET && name == SO_RCVLOWAT ? 0 : syscall(SYS_setsockopt, fd, level, name, value, n);
}
"""


def wake_for_nothing(service, tmp_path):
    """As a kernel does that is short of memory: egress hears that there is something to read when nothing more came."""
    (tmp_path / "w.c").write_text(WITHOUT_LOWAT)
    compiler = compiler_env()["CC"].split()[-1]
    subprocess.run([compiler, "-shared", "-fPIC", "-o", tmp_path / "w.so", tmp_path / "w.c"], check=True, timeout=60)
    service.env["LD_PRELOAD"] = str(tmp_path / "w.so")
    service.env["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"  # it need not come first


def assert_woken_for_nothing(service):
    (pid,) = service.roles()["abx-egress"]
    with open(f"/proc/{pid}/maps") as f:
        assert "w.so" in f.read()


def cpu_seconds(pid):
    stat = processes.read(pid, "stat").rsplit(")", 1)[1].split()
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


def unsent(connection):
    return struct.unpack("i", fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)))[0]
