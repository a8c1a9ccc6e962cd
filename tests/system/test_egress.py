"""What sandboxes reach by address, what the kernel refuses them, and what is left when processes die."""

import base64
import json
import os
import queue
import re
import signal
import subprocess
import textwrap
import threading
import time

import pytest
import sanitizers
from conftest import compiler_env
from egress_kit import (  # noqa: F401 (fixtures)
    OTHER,
    REFUSED,
    RESET,
    WEB,
    WEB6,
    Box,
    Talking,
    box,
    cpu_seconds,
    greet,
    lab,
    names,
    output_of,
    service,
    unsent,
)
from netlab import HOST, HOST6, INTERNET
from service import Service
from waiting import BUSY_S, again, until


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
        until(lambda: box.denials("reserved: ", f"{address}" if ":" not in address else f"[{address}]"))


def test_loopback_stays_inside(box):
    """127.0.0.1 is the sandbox's own, where nobody serves that port; the host's would answer."""
    assert box.dial("127.0.0.1=7", "::1=7") == {
        "127.0.0.1=7": "ConnectionRefusedError",
        "::1=7": "ConnectionRefusedError",
    }


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
    until(lambda: sum(int(counts.search(x)[1]) for x in box.denials('rule="udp"')) == 2)


def test_connections_in_the_sandbox_are_not_paced(box):
    """They lead no further than its own loopback: whatever congestion control the host has (bbr sets timers)."""
    program = (
        "import socket\n"
        f"s = socket.create_connection(('{WEB}', 7), 20)\n"
        "print(s.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b'\\0').decode())\n"
    )
    assert box.python(program).strip() == "reno"


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
        until(lambda: box.denials("allow_internet_access=false", f"{WEB}:7"))
    with Box(service, network={"denyOut": [f"{OTHER}/32"]}) as box:
        assert box.dial(f"{WEB}=7", f"{OTHER}=7") == {
            f"{WEB}=7": f"this is {WEB}",
            f"{OTHER}=7": "ConnectionResetError",
        }
        until(lambda: box.denials(f"denyOut {OTHER}/32"))
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
    assert box.dial("198.51.100.77=7")["198.51.100.77=7"] == RESET  # as nobody serves there, too: the log says why
    until(lambda: box.denials("the host's own", "198.51.100.77:7"))
    lab.host.ip("address", "del", "198.51.100.77/32", "dev", "lo")
    until(lambda: box.dial("198.51.100.77=7")["198.51.100.77=7"] == "this is 198.51.100.77")


def test_host_is_followed_after_lost_news(lab, service, box):
    """Egress is told of more changes than fit into its queue; those that come later count, too. Of routes to others it
    is told nothing."""
    target = "198.51.100.78=7"
    (pid,) = service.roles()["abx-egress"]
    lab.address("198.51.100.78")
    lab.serve("198.51.100.78", 7, greet)
    assert box.dial(target)[target] == "this is 198.51.100.78"

    def change(what):
        """Many routes that come and go; (bytes that wait, messages lost) of the sockets that are told of routes."""
        lines = "".join(f"route {how} {what} 192.0.2.{i}/32 dev lo\n" for how in ("add", "del") for i in range(1, 250))
        with lab.host.entered():
            for _ in range(8):
                subprocess.run(["ip", "-batch", "-"], input=lines, text=True, check=True, timeout=60)
            sockets = [x.split() for x in open("/proc/thread-self/net/netlink").read().splitlines()[1:]]
        return [(int(x[4]), int(x[8])) for x in sockets if int(x[3], 16) & 0x440]

    os.kill(pid, signal.SIGSTOP)
    try:
        assert set(change("unicast")) == {(0, 0)}
        told = change("local")
        assert any(lost > 0 for _, lost in told), told
    finally:
        os.kill(pid, signal.SIGCONT)
    until(lambda: box.dial(f"{WEB}=7")[f"{WEB}=7"] == f"this is {WEB}")
    lab.host.ip("address", "add", "198.51.100.78/32", "dev", "lo")
    try:
        until(lambda: box.dial(target) and box.denials("the host's own", "198.51.100.78:7"))
    finally:
        lab.host.ip("address", "del", "198.51.100.78/32", "dev", "lo")
    assert service.roles()["abx-egress"] == [pid]


# Says how many bytes came and how it ended: read at once, or from a small buffer after a while.
READ_ALL = """
import socket, sys, time
with socket.socket() as s:
    if sys.argv[3] == "slow":
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.settimeout(60)
    s.connect((sys.argv[1], int(sys.argv[2])))
    s.sendall(b"x" * 1000)
    print("sent", flush=True)
    if sys.argv[3] == "slow":
        sys.stdin.readline()
        time.sleep(1)
    n, end = 0, "EOF"
    try:
        while got := s.recv(1000):
            n += len(got)
    except ConnectionResetError:
        end = "reset"
    print(n, end, flush=True)
"""

SEND_AND_RESET = """
import socket, struct, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 60)
s.recv(1)
print("up", flush=True)
sys.stdin.readline()
s.sendall(b"y" * 20000)
s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
s.close()
print("reset", flush=True)
"""


@pytest.mark.parametrize("way", ["prompt", "slow"])
def test_what_was_sent_before_a_reset_arrives(lab, service, box, way):
    """A server that answers, and resets because it did not read all that it was sent: egress learns of both at once."""
    (pid,) = service.roles()["abx-egress"]
    port = {"prompt": 4500, "slow": 4501}[way]
    asked, go, gone = threading.Event(), threading.Event(), threading.Event()

    def answer(connection):
        connection.recv(1)
        asked.set()
        go.wait(60)
        connection.sendall(b"a" * 40000)
        until(lambda: unsent(connection) == 0)
        connection.close()
        gone.set()

    lab.serve(WEB, port, answer)
    program = Talking(box, READ_ALL, WEB, str(port), way)
    assert program.hear() == "sent" and asked.wait(BUSY_S)
    os.kill(pid, signal.SIGSTOP)
    try:
        go.set()
        assert gone.wait(60)
    finally:
        os.kill(pid, signal.SIGCONT)
    if way == "slow":
        program.tell()
    assert program.hear() == "40000 reset"


def test_what_the_sandbox_sent_before_a_reset_arrives(lab, service, box):
    (pid,) = service.roles()["abx-egress"]
    heard = queue.SimpleQueue()

    def listen(connection):
        n, end = 0, "EOF"
        connection.sendall(b"x")
        try:
            while got := connection.recv(1000):
                n += len(got)
        except ConnectionResetError:
            end = "reset"
        heard.put((n, end))

    lab.serve(WEB, 4502, listen)
    program = Talking(box, SEND_AND_RESET, WEB, "4502")
    assert program.hear() == "up"
    os.kill(pid, signal.SIGSTOP)
    try:
        program.tell()
        assert program.hear() == "reset"
    finally:
        os.kill(pid, signal.SIGCONT)
    assert heard.get(timeout=60) == (20000, "reset")


def test_urgent_bytes_pass_and_keep_nobody_busy(lab, service, box):
    """They stop splice and wake whoever waits for failures; sent while egress dials, and in between."""
    (pid,) = service.roles()["abx-egress"]
    silent = lab.socket(lab.internet, "198.51.100.20", 4444)
    silent.listen(0)
    program = """
import socket, time
with socket.create_connection(("198.51.100.10", 7), 60) as s:
    s.recv(100)
    for piece, flags in ((b"a", 0), (b"B", socket.MSG_OOB), (b"c", 0)):
        s.send(piece, flags)
    got = b""
    while len(got) < 3:
        got += s.recv(100)
    print(got.decode(), flush=True)
many = [socket.create_connection(("198.51.100.20", 4444), 60) for _ in range(6)]
for s in many:
    s.send(b"X", socket.MSG_OOB)
print("sent", flush=True)
time.sleep(60)
"""
    message = {"process": {"cmd": "/usr/bin/python3", "args": ["-c", program]}, "stdin": False}
    lines = output_of(box.envd.stream("process.Process/Start", message, 90))
    assert [next(lines), next(lines)] == ["aBc", "sent"]
    time.sleep(0.2)  # whatever the bytes set off
    before = cpu_seconds(pid)
    time.sleep(2)
    assert cpu_seconds(pid) - before < 0.2


def test_egress_and_engine_may_die(service, box):
    """Refused while egress is away, back with it; what was made before goes on working."""
    for role in ("abx-egress", "abx-engine", "abx-control"):
        (pid,) = service.roles()[role]
        os.kill(pid, signal.SIGKILL)
        until(lambda: service.roles().get(role, [pid]) != [pid])
        until(lambda: box.dial(f"{WEB}=7")[f"{WEB}=7"] == f"this is {WEB}")
    (pid,) = service.roles()["abx-egress"]
    os.kill(pid, signal.SIGSTOP)
    os.kill(service.process.pid, signal.SIGSTOP)
    os.kill(pid, signal.SIGKILL)
    try:
        until(lambda: box.dial(f"{WEB}=7")[f"{WEB}=7"] == "ConnectionRefusedError")
    finally:
        os.kill(service.process.pid, signal.SIGCONT)
    until(lambda: box.dial(f"{WEB}=7")[f"{WEB}=7"] == f"this is {WEB}")


def test_kill_leaves_nothing(service):
    with Box(service) as box:
        assert box.dial(f"{WEB}=7")[f"{WEB}=7"] == f"this is {WEB}"
    service.until_clean()


def test_sandboxes_of_a_restarted_service_reach_the_same(lab, build_dir, base_template):
    """Rules too; the roles are all new, the sandbox is not."""
    service = Service(build_dir, "--gateways", "1")
    try:
        service.start()
        box = Box(service, network={"denyOut": [OTHER]})
        for _ in range(2):
            assert box.dial(f"{WEB}=7", f"{OTHER}=7") == {f"{WEB}=7": f"this is {WEB}", f"{OTHER}=7": RESET}
            service.stop(signal.SIGTERM)
            service.start()
            until(lambda: box.dial(f"{WEB}=7")[f"{WEB}=7"] == f"this is {WEB}")
        assert service.kill(box.id) == 204
        service.until_clean()
    finally:
        service.stop()
        service.remove()


def test_operator_allows(lab, build_dir, base_template):
    with Service(
        build_dir, "--gateways", "1", "--egress-allow", "10.9.9.0/24", "--egress-allow", f"{HOST}/32"
    ) as other:
        with Box(other) as box:
            answers = box.dial("10.9.9.9=7", f"{HOST}=7", "192.168.7.7=7")
            assert answers == {
                "10.9.9.9=7": "this is 10.9.9.9",
                f"{HOST}=7": f"this is {HOST}",
                "192.168.7.7=7": "ConnectionResetError",
            }


WITHOUT_BPF = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <sys/syscall.h>
long syscall(long number, ...)
{
    long a[6];
    va_list ap;
    va_start(ap, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(ap, long);
    va_end(ap);
    if (number == SYS_bpf) {
        errno = EPERM;
        return -1;
    }
    return ((long (*)(long, ...))dlsym(RTLD_NEXT, "syscall"))(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
"""


def test_a_machine_that_cannot_steer_says_so(build_dir, base_template, tmp_path):
    """Sandboxes work without a network: what they dial is refused at once, the log and the doctor say why."""
    (tmp_path / "w.c").write_text(WITHOUT_BPF)
    compiler = compiler_env()["CC"].split()[-1]
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", tmp_path / "w.so", tmp_path / "w.c", "-ldl"], check=True, timeout=60
    )
    with Service(build_dir, "--gateways", "1") as service:
        service.stop()
        service.env.update(sanitizers.preloaded(build_dir, tmp_path / "w.so"))
        service.start()
        with Box(service) as box:
            assert set(box.dial(f"{WEB}=7", "169.254.169.254=80", f"{WEB6}=7").values()) == {"ConnectionRefusedError"}
            log = (service.data_dir / "serve.log").read_text()
            assert (
                "sandboxes have no network: what they dial cannot be steered" in log
                and "Operation not permitted" in log
            )
        run = service.run_abx("doctor", "--json")
        (check,) = [x for x in json.loads(run.stdout)["checks"] if x["name"] == "network-steering"]
        assert check["status"] == "degraded" and "no network" in check["meaning"] and "CAP_BPF" in check["fix"], check


def counted(service):
    """{"name" or "name label": value} of what egress counts."""
    status, _, text = service.request("GET", "/abx/v1/metrics")
    assert status == 200
    rows = re.findall(r'^abx_egress_(\w+?)(?:_total)?(?:\{\w+="(\w+)"\})? (\d+)$', text.decode(), re.M)
    return {f"{name} {label}".strip(): int(value) for name, label, value in rows}


def test_what_egress_did_is_counted_and_outlives_it(service):
    before = counted(service)
    with Box(service, network={"allowOut": ["web.example", WEB], "denyOut": ["0.0.0.0/0"]}) as own:
        holding = own.envd.stream("process.Process/Start", {"process": {"cmd": "/usr/bin/python3", "args": ["-c", HOLD_ONE, WEB]},
                                                            "stdin": False}, timeout=120)
        assert next(output_of(holding)) == "up"
        assert own.dial(f"{OTHER}=7")[f"{OTHER}=7"] == RESET
        own.python(LOOK_UP, "web.example", "web.example", "secret.example")
        own.python(f"import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('{WEB}', 443))")
        grown = lambda: {k: v - before[k] for k, v in counted(service).items() if v != before[k]}
        # Datagrams are counted once a second. Each name is asked for with A and with AAAA.
        until(lambda: grown().get("denied datagram") == 1)

        def all_counted():
            now = grown()
            assert now.pop("dns_questions answered", 0) >= 2 and now.pop("dns_questions refused", 0) >= 1 and now.pop("denied name", 0) >= 1, now
            assert now.pop("bytes in", 0) >= 100000 + len(f"this is {WEB}\n") and now.pop("bytes out", 0) >= 100000, now
            assert now == {"sandboxes": 1, "connections": 1, "begun_connections": 2, "denied connection": 1, "denied datagram": 1}

        again(all_counted, AssertionError)
        # Totals go on in the successor, what is at present begins anew.
        (pid,) = service.roles()["abx-egress"]
        os.kill(pid, signal.SIGKILL)
        until(lambda: (now := grown()).get("starts") == 1 and now.get("sandboxes") == 1)
        now = grown()
        assert "connections" not in now and now["begun_connections"] == 2 and now["bytes out"] >= 100000, now
    until(lambda: "sandboxes" not in grown())


# Sends and gets back 100,000 bytes, and stays connected.
HOLD_ONE = textwrap.dedent(
    """
    import socket, sys, time
    s = socket.create_connection((sys.argv[1], 7), 20)
    f = s.makefile("rb")
    f.readline()
    for i in range(10):
        s.sendall(b"x" * 10000)
        f.read(10000)
    print("up", flush=True)
    time.sleep(1000)
    """
)

LOOK_UP = textwrap.dedent(
    """
    import socket, sys
    for name in sys.argv[1:]:
        try:
            socket.getaddrinfo(name, 80)
        except socket.gaierror:
            pass
    """
)
