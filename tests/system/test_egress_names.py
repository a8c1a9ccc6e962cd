"""Names: who answers a sandbox's questions, and rules by domain."""

import io
import os
import signal
import subprocess
import sys
import tarfile
import time
import zipfile

import pytest
from egress_kit import (  # noqa: F401 (fixtures)
    NAMES,
    OTHER,
    OWN_NAMES,
    RESET,
    WEB,
    WEB6,
    Box,
    Talking,
    ask,
    assert_woken_for_nothing,
    box,
    lab,
    names,
    resolve,
    service,
    talk,
    wake_for_nothing,
)
from netlab import NameServer, dns_addresses, dns_question
from service import Service
from waiting import until


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
            box,
            way,
            dns_question("web.example", identity=7),
            dns_question("web.example", 28),
            dns_question("no.example"),
        )
        assert a[:2] == b"\0\7" and dns_addresses(a) == (0, False, [WEB])
        assert dns_addresses(aaaa) == (0, False, [WEB6])
        assert dns_addresses(none) == (3, False, [])
    many = [f"198.51.100.{i}" for i in range(100, 160)]
    small, large, tcp = (
        *ask(box, "8.8.8.8", dns_question("many.example"), dns_question("many.example", edns=True)),
        *ask(box, "tcp", dns_question("many.example")),
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


def test_a_name_that_someone_guesses_at_is_asked_for_by_tcp(box, names):
    names.names["forged.example"] = [WEB]
    names.forged.add("forged.example")
    assert resolve(box, "forged.example") == {"forged.example": [WEB]}


# Asks and goes, again and again: rounds of 64 questions over TCP, and one that is answered at once.
ASK_AND_GO = """
import socket, sys
refused = bytes.fromhex(sys.argv[1])
for line in sys.stdin:
    s = socket.create_connection(("192.0.2.53", 53), 60)
    s.sendall(b"".join(len(q).to_bytes(2, "big") + q for q in [*map(bytes.fromhex, line.split()), refused]))
    f = s.makefile("rb")
    while f.read(int.from_bytes(f.read(2), "big"))[:2] != refused[:2]:
        pass
    s.close()
    print("asked", flush=True)
"""


def test_questions_of_one_sandbox_are_bounded(lab, service, names):
    """Also those whose asker has gone: servers that do not answer hold up nobody else."""

    def sockets():
        """Of the host's that ask servers of names."""
        with lab.host.entered(), open("/proc/thread-self/net/udp") as f:
            return sum(line.split()[2].endswith(":0035") for line in f.readlines()[1:])

    refused = dns_question("web.example", identity=0x7777)[:-1] + b"\3"
    names.silent |= {f"q{i}.example" for i in range(640)}
    with Box(service) as greedy, Box(service) as box:
        program = Talking(greedy, ASK_AND_GO, refused.hex())
        most = 0
        for k in range(10):
            program.tell(" ".join(dns_question(f"q{64 * k + i}.example").hex() for i in range(64)))
            assert program.hear() == "asked"
            most = max(most, sockets())
        assert 0 < most <= 64 + 8  # others may ask as well
        names.names["quick.example"] = [WEB]
        assert resolve(box, "quick.example") == {"quick.example": [WEB]}
        assert service.kill(greedy.id) == 204
        until(lambda: sockets() <= 8)


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
        until(lambda: box.denials("secret-in-a-name.evil.example", 'to="dns"'))
    with Box(service, allow_internet_access=False) as box:
        assert dns_addresses(ask(box, "8.8.8.8", dns_question("www.web.example"))[0])[0] == 5
    assert not [name for name, _ in names.asked if "evil" in name]


def test_servers_of_the_sandbox(lab, service):
    own = NameServer(lab, OWN_NAMES, {"web.example": ["198.51.100.99"], "only-here.example": [WEB]})
    with Box(service, network={"dnsServers": [OWN_NAMES]}) as box, Box(service) as other:
        assert resolve(box, "web.example", "only-here.example") == {
            "web.example": ["198.51.100.99"],
            "only-here.example": [WEB],
        }
        assert resolve(other, "web.example", "only-here.example") == {
            "web.example": [WEB, WEB6],
            "only-here.example": ["EAI_NONAME"],
        }
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
        until(lambda: resolve(box, "www.web.example") == {"www.web.example": [WEB]})


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
        assert talk(only_web, [WEB, 443, how, "web.example"], [WEB, 8443, how, "WWW.web.example"]) == [
            greeting,
            greeting,
        ]
    for how in ("http", "http+"):
        assert talk(only_web, [WEB, 80, how, "web.example"], [WEB, 8443, how, "www.web.example:8443"]) == [
            greeting,
            greeting,
        ]
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
    until(lambda: len(only_web.denials()) + len(only_web.denials("untold")) >= before + 10)
    assert only_web.denials("no name that is allowed led the sandbox to this address", f"{OTHER}:443")
    assert only_web.denials("evil.example", "no rule allows the name")


def test_a_name_in_pieces_while_the_kernel_is_short_of_memory(lab, names, build_dir, base_template, tmp_path):
    """It says then that there is something to read when nothing more came: here always. That is no end."""
    service = Service(build_dir, "--gateways", "1", "--egress-dns", NAMES)
    wake_for_nothing(service, tmp_path)
    with service:
        with Box(service, network={"denyOut": ["0.0.0.0/0"], "allowOut": ["web.example"]}) as box:
            resolve(box, "web.example")
            assert_woken_for_nothing(service)
            ways = [[WEB, 443, "tls+", "web.example"], [WEB, 80, "http+", "web.example"], [WEB, 443, "tls+", "evil.example"]]
            assert talk(box, *ways) == [f"this is {WEB}", f"this is {WEB}", RESET]


# On port 8443, step by step: a line on stdin for each.
STEPS = f"""
import socket, sys
for line in sys.stdin:
    s = socket.create_connection(("{WEB}", 8443), 60)
    print("up", flush=True)
    sys.stdin.readline()
    s.sendall(b"GET / HTTP/1.1\\r\\nHost: evil.example\\r\\n\\r\\n")
    print("sent", flush=True)
    try:
        print(s.makefile().readline().strip() or "EOF", flush=True)
    except OSError as e:
        print(type(e).__name__, flush=True)
    s.close()
"""


def test_a_name_counts_that_came_while_egress_was_busy(service, only_web):
    """A connection that says nothing for 300 ms may go by its address. One that says a wrong name in that time may not,
    although egress reads it later."""
    (pid,) = service.roles()["abx-egress"]

    def descriptors():
        return len(os.listdir(f"/proc/{pid}/fd"))

    program = Talking(only_web, STEPS)
    for _ in range(50):
        before = descriptors()
        program.tell()
        until(lambda: descriptors() > before)
        os.kill(pid, signal.SIGSTOP)
        try:
            is_waiting = descriptors() == before + 1  # else it was let through or was not there any more
            assert program.hear() == "up"
            program.tell()
            assert program.hear() == "sent"
            time.sleep(0.5)
        finally:
            os.kill(pid, signal.SIGCONT)
        answer = program.hear()
        if is_waiting:
            break
    assert is_waiting and answer == RESET
    until(lambda: only_web.denials(f"{WEB}:8443", "evil.example") or only_web.denials("untold"))


def test_a_name_counts_only_for_the_address_it_led_to(lab, service, names):
    names.names["a.example"], names.names["b.example"] = [WEB], [OTHER]
    with Box(service, network={"denyOut": ["0.0.0.0/0"], "allowOut": ["a.example", "b.example"]}) as box:
        assert talk(box, [WEB, 443, "tls", "a.example"]) == [RESET]  # not asked for yet
        resolve(box, "a.example", "b.example")
        ways = [
            [WEB, 443, "tls", "a.example"],
            [OTHER, 443, "tls", "b.example"],
            [WEB, 443, "tls", "b.example"],
            [OTHER, 80, "http", "a.example"],
        ]
        assert talk(box, *ways) == [f"this is {WEB}", f"this is {OTHER}", RESET, RESET]
        until(lambda: box.denials("b.example", "told another address"))


@pytest.fixture(scope="module")
def packages(lab, tmp_path_factory):
    """A folder that WEB serves at port 8000: a repository and an index for pip."""
    folder = tmp_path_factory.mktemp("packages")
    (folder / "simple/demo").mkdir(parents=True)
    wheel = "demo-1.0-py3-none-any.whl"
    (folder / "simple/demo/index.html").write_text(f'<!DOCTYPE html><a href="{wheel}">{wheel}</a>')
    with zipfile.ZipFile(folder / "simple/demo" / wheel, "w") as z:
        z.writestr("demo.py", "NAME = 'demo'\n")
        z.writestr("demo-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
        z.writestr("demo-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr("demo-1.0.dist-info/RECORD", "")
    command = [sys.executable, "-m", "http.server", "8000", "--bind", WEB, "--directory", folder]
    with lab.internet.entered():
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    yield folder
    server.kill()
    server.wait()


def test_package_managers_work_within_rules(only_web, box, packages):
    """pip and git from the one domain that is allowed; the others are told as names that do not resolve."""
    box.envd.sh(
        "cd /tmp && git init -q r && cd r && git config user.name x && git config user.email x@x && echo 1 > f && git add f"
        " && git commit -qm 1 && git clone -q --bare . ../r.git && cd ../r.git && git update-server-info && tar cf ../r.tar -C .. r.git"
    )
    with tarfile.open(fileobj=io.BytesIO(box.envd.read("/tmp/r.tar"))) as tar:
        tar.extractall(packages)
    sh = only_web.envd.sh
    ready = "until curl -so /dev/null http://web.example:8000/; do sleep 0.1; done"
    assert (
        sh(
            f"{ready}; cd /tmp && rm -rf r && git clone -q http://www.web.example:8000/r.git r && cat r/f", timeout=60
        ).strip()
        == "1"
    )
    pip = "python3 -m pip install --disable-pip-version-check -q --trusted-host web.example --target /tmp/p -i"
    out = sh(
        f"{pip} http://web.example:8000/simple/ demo && PYTHONPATH=/tmp/p python3 -c 'import demo; print(demo.NAME)'",
        timeout=90,
    )
    assert out.split()[-1] == "demo"
    code, _, err = only_web.envd.run("git clone -q http://other.example:8000/r.git /tmp/o", timeout=60)
    assert code != 0 and "Could not resolve host" in err
