"""Rules that change while a sandbox runs, and proxies."""

import base64
import os
import signal
import threading

import pytest
from egress_kit import (  # noqa: F401 (fixtures)
    HOLD,
    NAMES,
    OTHER,
    RESET,
    WEB,
    WEB6,
    Box,
    box,
    lab,
    names,
    output_of,
    resolve,
    service,
    talk,
)
from netlab import Proxy, dns_question
from sanitizers import resident_kib
from service import Service
from waiting import until


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
        assert service.request("PUT", f"/sandboxes/{box.id}/network")[0] == 400  # a body that got lost is no {}
        assert service.request("POST", f"/sandboxes/{box.id}/fork", {"network": {"denyOut": [OTHER]}})[0] == 400
        assert box.put_network({"denyout": [OTHER]})[0] == 400  # misspelt, it would leave open what was to be closed
        assert box.put_network({"denyOut": [OTHER]})[0] == 204
        assert alive() == [one]
        assert box.dial(one, two) == {one: f"this is {WEB}", two: RESET}
        assert service.request("GET", f"/sandboxes/{box.id}")[2]["network"] == {
            "denyOut": [OTHER],
            "maskRequestHost": "x.test",
        }
        for role in ("abx-control", "abx-egress"):
            (pid,) = service.roles()[role]
            os.kill(pid, signal.SIGKILL)
            until(lambda: service.roles().get(role, [pid]) != [pid])
            until(lambda: box.dial(one)[one] == f"this is {WEB}")
            assert box.dial(two)[two] == RESET
        assert box.put_network({"allow_internet_access": False})[0] == 204
        assert set(box.dial(one, two).values()) == {RESET}
        assert service.request("GET", f"/sandboxes/{box.id}")[2]["allowInternetAccess"] is False
        assert box.put_network({"allowOut": ["web.example"], "denyOut": ["0.0.0.0/0"]})[0] == 204
        assert resolve(box, "web.example", "other.example") == {
            "web.example": [WEB, WEB6],
            "other.example": ["EAI_AGAIN"],
        }
        assert talk(box, [WEB, 443, "tls", "web.example"], [OTHER, 443, "tls", "web.example"]) == [
            f"this is {WEB}",
            RESET,
        ]
        assert box.put_network({})[0] == 204
        assert box.dial(one, two) == {one: f"this is {WEB}", two: f"this is {OTHER}"}
        assert service.request("GET", f"/sandboxes/{box.id}")[2]["metadata"] == {"a": "b"}


def test_network_after_a_pause(service):
    """With memory what is open stays open; without it, and from one to the other, the new life has the network of the old."""
    one, two = f"{WEB}=7", f"{OTHER}=7"

    def post(what, body, expect):
        assert service.request("POST", f"/sandboxes/{box.id}/{what}", body)[0] == expect, what

    with Box(service, network={"denyOut": [OTHER]}) as box:
        message = {"process": {"cmd": "/usr/bin/python3", "args": ["-c", HOLD, one]}, "stdin": True, "tag": "hold"}
        output = output_of(box.envd.stream("process.Process/Start", message, 120))
        assert next(output) == "up"
        output.close()
        post("pause", {}, 204)
        post("resume", {"timeout": 300}, 201)
        again = box.envd.stream("process.Process/Connect", {"process": {"tag": "hold"}}, 60)
        assert "start" in next(again)["event"]
        line = base64.b64encode(b"\n").decode()
        box.envd.unary("process.Process/SendInput", {"process": {"tag": "hold"}, "input": {"stdin": line}})
        assert next(output_of(again)) == one
        again.close()
        for pause, resume in (
            ({"memory": False}, {"timeout": 300}),
            ({}, {"timeout": 300, "memory": False}),
            ({}, {"timeout": 300}),
        ):
            post("pause", pause, 204)
            assert box.put_network({"denyOut": [OTHER]})[0] == 204
            post("connect", resume, 201)
            assert box.dial(one, two) == {one: f"this is {WEB}", two: RESET}
        status, _, made = service.request("POST", f"/sandboxes/{box.id}/snapshots", {}, timeout=60)
        assert status == 201
        post("rollback", made, 200)
        assert box.dial(one, two) == {one: f"this is {WEB}", two: RESET}
        post("pause", {}, 204)
        post("rollback", made, 200)
        post("connect", {"timeout": 300}, 201)
        assert box.dial(one, two) == {one: f"this is {WEB}", two: RESET}
        assert service.request("DELETE", f"/templates/{made['snapshotID']}")[0] == 204
    service.until_clean()


def test_egress_that_hangs_keeps_no_call_waiting(service):
    """New rules hold as soon as it goes on; a kill is through."""
    with Box(service) as box, Box(service) as other:
        assert box.dial(f"{WEB}=7")[f"{WEB}=7"] == f"this is {WEB}"
        (pid,) = service.roles()["abx-egress"]
        os.kill(pid, signal.SIGSTOP)
        try:
            assert box.put_network({"denyOut": [WEB]})[0] == 204
            assert service.kill(other.id) == 204
        finally:
            os.kill(pid, signal.SIGCONT)
        until(lambda: box.dial(f"{WEB}=7")[f"{WEB}=7"] == RESET)
        assert box.dial(f"{OTHER}=7")[f"{OTHER}=7"] == f"this is {OTHER}"
        service.until_clean()


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


PROXY, OWN_PROXY = "198.51.100.90", "198.51.100.91"


@pytest.fixture(scope="module")
def proxies(lab, names):
    lab.address(PROXY, OWN_PROXY, "198.51.100.92")
    names.names["proxy.example"] = [OWN_PROXY]
    names.names["inside-proxy.example"] = ["10.9.9.9"]
    return {
        "http": Proxy(lab, PROXY, 3128, "http", "me:secret word"),
        "socks5": Proxy(lab, PROXY, 1080, "socks5"),
        "own": Proxy(lab, OWN_PROXY, 1080, "socks5", "you:own"),
        "open": Proxy(lab, "198.51.100.92", 1080, "socks5"),
    }


def test_proxy_of_the_sandbox(service, proxies):
    own = proxies["own"]
    for address in ("proxy.example:1080", f"{OWN_PROXY}:1080"):
        with Box(service, network={"egressProxy": {"address": address, "username": "you", "password": "own"}}) as box:
            del own.asked[:]
            assert box.dial(f"{WEB}=7", f"{WEB6}=7", f"{WEB}=9", "10.9.9.9=7") == {
                f"{WEB}=7": f"this is {WEB}",
                f"{WEB6}=7": f"this is {WEB6}",
                f"{WEB}=9": RESET,
                "10.9.9.9=7": RESET,
            }
            assert own.asked == [("you:own", f"{WEB}:7"), ("you:own", f"{WEB6}:7"), ("you:own", f"{WEB}:9")]
            until(lambda: box.denials("refuses the connection"))
            told = service.request("GET", f"/sandboxes/{box.id}")[2]["network"]["egressProxy"]
            assert told == {"address": address, "username": "you"}
    assert not [x for x in (service.data_dir / "serve.log").read_text().splitlines() if "you" in x and "own" in x]


def test_proxy_that_does_not_help(service, proxies):
    ways = {
        f"{OWN_PROXY}:1080": "wants another authentication",
        f"{OWN_PROXY}:1": None,
        "inside-proxy.example:7": "reserved",
        "10.9.9.9:7": "reserved",
        "none.example:7": "no address",
        f"{WEB}:7": "does not speak SOCKS5",
    }
    for address, why in ways.items():
        with Box(service, network={"egressProxy": {"address": address}}) as box:
            assert box.dial(f"{WEB}=7")[f"{WEB}=7"] == RESET, address
            if why:
                until(lambda: box.denials(why))
    with Box(service) as box:
        assert box.put_network({"egressProxy": {"address": "198.51.100.92:1080"}})[0] == 204
        assert box.dial(f"{WEB}=7")[f"{WEB}=7"] == f"this is {WEB}"
        assert proxies["open"].asked
        for proxy, words in (
            ({"address": "nowhere"}, "HOST:PORT"),
            ({"address": "a b:1"}, "no host"),
            ({"address": "2a0f::1:1080"}, "brackets"),
            ({"address": "a.example:1", "username": 1}, "username"),
            ({"address": "a.example:1", "tls": {"enabled": True, "caCert": "x"}}, "tls.caCert"),
            ({}, "address"),
        ):
            status, _, answer = box.put_network({"egressProxy": proxy})
            assert status == 400 and "Invalid egress proxy config" in answer["message"] and words in answer["message"]


@pytest.mark.parametrize(
    "url, kind",
    [(f"http://me:secret%20word@{PROXY}:3128", "http"), (f"socks5://{PROXY}:1080/", "socks5")],
    ids=["http", "socks5"],  # the URL would be in the environment
)
def test_proxy_of_the_operator(lab, names, build_dir, base_template, proxies, url, kind):
    """Everything goes through it, a sandbox's own proxy too; nobody can read its password."""
    proxy, own = proxies[kind], proxies["own"]
    with Service(build_dir, "--gateways", "1", "--egress-dns", NAMES, env={"ABX_EGRESS_PROXY": url}) as service:
        user = "me:secret word" if kind == "http" else ""
        with Box(service) as box:
            assert box.dial("www.web.example=7", f"{WEB6}=7", "10.9.9.9=7") == {
                "www.web.example=7": f"this is {WEB}",
                f"{WEB6}=7": f"this is {WEB6}",
                "10.9.9.9=7": RESET,
            }
            v6 = f"[{WEB6}]:7" if kind == "http" else f"{WEB6}:7"
            assert proxy.asked == [(user, f"{WEB}:7"), (user, v6)]
        del own.asked[:]
        with Box(
            service, network={"egressProxy": {"address": "proxy.example:1080", "username": "you", "password": "own"}}
        ) as box:
            assert box.dial(f"{WEB}=7")[f"{WEB}=7"] == f"this is {WEB}"
            assert proxy.asked[2:] == [(user, f"{OWN_PROXY}:1080")] and own.asked == [("you:own", f"{WEB}:7")]
        for pids in service.roles().values():
            for pid in pids:
                for name in ("cmdline", "environ"):
                    with open(f"/proc/{pid}/{name}", "rb") as f:
                        assert b"secret" not in f.read()


def test_bad_proxy_of_the_operator_ends_the_start(build_dir):
    service = Service(build_dir, "--egress-proxy", "ftp://x")
    try:
        with pytest.raises(RuntimeError, match="serve ended"):
            service.start()
        assert service.logged().splitlines()[-1].startswith("abx: abx-egress does not start: --egress-proxy is not")
    finally:
        service.stop()
        service.remove()


# Takes all connections that it may have, reads nothing of what comes, says nothing where a name is waited for, and asks
# for names that nobody answers.
HOG = f"""
import resource, socket, struct, sys, time
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
asking = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for i in range(100)]
question = bytes.fromhex(sys.argv[1])
for i, s in enumerate(asking):
    s.connect(("8.8.8.8", 53))
    for k in range(20):
        s.send(struct.pack(">H", k) + question[2:])
all, refused = [], 0
for i in range(2600):
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.settimeout(30)
    try:
        s.connect(("{WEB}", (7, 443)[i % 2]))
        s.send(b"x" * 1000)
        all.append(s)
    except ConnectionError:
        refused += 1
for s in all:
    s.setblocking(False)
    try:
        for i in range(20):
            s.send(b"y" * 65536)
    except BlockingIOError:
        pass
    except ConnectionError:
        refused += 1
print(len(all), refused, flush=True)
sys.stdin.read()
"""


def test_a_sandbox_that_takes_all_it_may_does_not_stop_another(service, names):
    names.silent.add("silent.example")
    with Box(service, network={"denyOut": ["0.0.0.0/0"], "allowOut": ["web.example", "silent.example"]}) as hog:
        with Box(service) as box:
            (pid,) = service.roles()["abx-egress"]
            resolve(hog, "web.example")
            command = {"cmd": "/usr/bin/python3", "args": ["-c", HOG, dns_question("silent.example").hex()]}
            output = output_of(
                hog.envd.stream("process.Process/Start", {"process": command, "stdin": True, "tag": "hog"}, 200)
            )
            made, refused = map(int, next(output).split())
            assert made + refused >= 2600 and refused > 0
            until(lambda: hog.denials('rule="limit"') or hog.denials("untold"))
            for _ in range(5):
                assert box.dial(f"{WEB}=7")[f"{WEB}=7"] == f"this is {WEB}"
                assert resolve(box, "web.example") == {"web.example": [WEB, WEB6]}
            assert service.roles()["abx-egress"] == [pid]
            resident = resident_kib(pid)
            assert resident < 65536, f"{resident} KiB"
        assert service.kill(hog.id) == 204
        service.until_clean()  # its process may be closing its sockets still


def test_few_descriptors_are_not_all_for_one_sandbox(lab, names, build_dir, base_template, tmp_path):
    """A hog gets most of them and then a denial; who has few connections still gets more."""
    program = """
import socket, sys
held = []
for i in range(1500):
    s = socket.socket()
    s.settimeout(30)
    try:
        s.connect(("198.51.100.10", 7))
        if not s.recv(1):
            raise ConnectionResetError
    except ConnectionError:
        break
    held.append(s)
print(len(held), flush=True)
sys.stdin.read()
"""
    few = tmp_path / "abx"
    few.write_text(f'#!/bin/sh\nulimit -n 2048\nexec {build_dir}/abx "$@"\n')
    few.chmod(0o755)
    service = Service(build_dir, "--gateways", "1", "--egress-dns", NAMES)
    service.abx = few
    with service, Box(service) as hog, Box(service) as box:
        command = {"cmd": "/usr/bin/python3", "args": ["-c", program]}
        output = output_of(hog.envd.stream("process.Process/Start", {"process": command, "stdin": True, "tag": "hog"}, 120))
        assert 300 < int(next(output)) < 800
        until(lambda: hog.denials('rule="limit"'))
        for _ in range(3):
            assert box.dial(f"{WEB}=7")[f"{WEB}=7"] == f"this is {WEB}"
        assert resolve(box, "web.example") == {"web.example": [WEB, WEB6]}
