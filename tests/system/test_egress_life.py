"""Rules of the network over a sandbox's life: forks, snapshots, pauses under load."""

import json
import os
import signal
import threading

import pytest
from egress_kit import (  # noqa: F401 (fixtures)
    OTHER,
    RESET,
    WEB,
    WEB6,
    Box,
    lab,
    names,
    resolve,
    service,
    talk,
)

ONE, TWO = f"{WEB}=7", f"{OTHER}=7"
GREETING = {ONE: f"this is {WEB}", TWO: f"this is {OTHER}"}


@pytest.fixture(autouse=True)
def nothing_is_left(service):  # noqa: F811
    yield
    service.until_clean()


def post(service, box, what, body, expect):  # noqa: F811
    status, _, answer = service.request("POST", f"/sandboxes/{box.id}/{what}", body, timeout=60)
    assert status == expect, (what, status, answer)
    return answer


def network_of(service, box):  # noqa: F811
    return service.request("GET", f"/sandboxes/{box.id}")[2].get("network")


def fork(service, box, count):  # noqa: F811
    results = post(service, box, "fork", {"count": count, "timeout": 300}, 201)
    assert all("sandbox" in x for x in results), results
    return [Box(service, x["sandbox"]) for x in results]


def test_a_fork_has_the_rules_of_its_parent_at_once(service):  # noqa: F811
    """Those of the moment, not of its create; from then on each has its own. What names led to is not known to it."""
    rules = {"denyOut": ["0.0.0.0/0"], "allowOut": [OTHER, "web.example"], "dnsServers": []}
    with Box(service, network={"denyOut": [OTHER]}) as parent:
        assert parent.put_network(rules)[0] == 204
        resolve(parent, "web.example")
        for box in fork(service, parent, 2):
            with box:
                # The first thing that it does, over and over: none gets out.
                assert set(box.dial(*[ONE] * 20).values()) == {RESET}
                assert box.dial(TWO) == {TWO: GREETING[TWO]}
                assert talk(box, [WEB, 443, "tls", "web.example"]) == [RESET]  # it has not asked for the name
                assert resolve(box, "web.example", "other.example")["web.example"] == [WEB, WEB6]
                assert talk(box, [WEB, 443, "tls", "web.example"]) == [GREETING[ONE]]
                assert network_of(service, box) == network_of(service, parent)
                assert box.put_network({"denyOut": [OTHER]})[0] == 204
                assert box.dial(ONE, TWO) == {ONE: GREETING[ONE], TWO: RESET}
                assert parent.dial(ONE, TWO) == GREETING  # it has asked for the name
        (child,) = fork(service, parent, 1)
        with child:
            assert parent.put_network({})[0] == 204
            assert parent.dial(ONE, TWO) == GREETING
            assert child.dial(ONE, TWO) == {ONE: RESET, TWO: GREETING[TWO]}
            (grandchild,) = fork(service, child, 1)
        with grandchild:
            assert grandchild.dial(ONE, TWO) == {ONE: RESET, TWO: GREETING[TWO]}
    with Box(service, allow_internet_access=False) as parent:
        (child,) = fork(service, parent, 1)
        with child:
            assert set(child.dial(ONE, TWO).values()) == {RESET}
            assert service.request("GET", f"/sandboxes/{child.id}")[2]["allowInternetAccess"] is False


def test_a_sandbox_of_a_snapshot_has_the_rules_of_its_create(service):  # noqa: F811
    """Files have no rules; the one that the snapshot was taken of keeps its own."""
    with Box(service, network={"denyOut": [OTHER]}) as box:
        snapshot = post(service, box, "snapshots", {}, 201)["snapshotID"]
        try:
            assert box.dial(ONE, TWO) == {ONE: GREETING[ONE], TWO: RESET}
            assert network_of(service, box) == {"denyOut": [OTHER]}
            with Box(service, template=snapshot) as free:
                assert free.dial(ONE, TWO) == GREETING
                assert not network_of(service, free)
            with Box(service, template=snapshot, network={"denyOut": [WEB]}) as other:
                assert other.dial(ONE, TWO) == {ONE: RESET, TWO: GREETING[TWO]}
            with Box(service, template=snapshot, allow_internet_access=False) as none:
                assert set(none.dial(ONE, TWO).values()) == {RESET}
        finally:
            assert service.request("DELETE", f"/templates/{snapshot}")[0] == 204


def test_a_new_life_that_egress_hears_of_before_the_end_of_the_old(service):  # noqa: F811
    """Control says that it runs again, then the engine that it was stopped: what it dials is answered all the same."""
    with Box(service, network={"denyOut": [OTHER]}) as box:
        assert box.dial(ONE, TWO) == {ONE: GREETING[ONE], TWO: RESET}
        (pid,) = service.roles()["abx-egress"]
        os.kill(pid, signal.SIGSTOP)
        try:
            post(service, box, "pause", {"memory": False}, 204)
            post(service, box, "resume", {"timeout": 300}, 201)
        finally:
            os.kill(pid, signal.SIGCONT)
        assert box.dial(ONE, TWO) == {ONE: GREETING[ONE], TWO: RESET}


# Dials until it is told to stop, and writes down what came of it.
ENDLESS = f"""
import json, os, socket
seen = {{}}
while not os.path.exists("/tmp/stop"):
    try:
        with socket.create_connection(("{WEB}", 7), 60) as s:
            answer = s.makefile().readline().strip()
    except OSError as e:
        answer = type(e).__name__
    seen[answer] = seen.get(answer, 0) + 1
with open("/tmp/seen.part", "w") as f:
    json.dump(seen, f)
os.rename("/tmp/seen.part", "/tmp/seen")
"""


def test_rules_change_while_the_sandbox_dials_pauses_and_resumes(service):  # noqa: F811
    """Each call is answered, no dial finds anything but one of the two rules, and the last rules hold in each state."""
    answers = {"put": [], "pause": [], "resume": []}

    def change():
        for i in range(20):
            answers["put"].append(box.put_network({"denyOut": [WEB]} if i % 2 == 0 else {})[0])

    with Box(service) as box:
        box.envd.write("/tmp/endless.py", ENDLESS.encode())
        box.envd.sh("nohup python3 /tmp/endless.py >/dev/null 2>&1 </dev/null &")
        changes = threading.Thread(target=change)
        changes.start()
        for i in range(6):
            answers["pause"].append(service.request("POST", f"/sandboxes/{box.id}/pause", {}, timeout=60)[0])
            answers["resume"].append(
                service.request("POST", f"/sandboxes/{box.id}/resume", {"timeout": 300}, timeout=60)[0]
            )
        changes.join(200)
        assert answers == {"put": [204] * 20, "pause": [204] * 6, "resume": [201] * 6}
        # Changed while it is paused: it never runs under other rules.
        post(service, box, "pause", {}, 204)
        assert box.put_network({"denyOut": [WEB]})[0] == 204
        post(service, box, "resume", {"timeout": 300}, 201)
        assert set(box.dial(*[ONE] * 5).values()) == {RESET}
        assert box.dial(TWO) == {TWO: GREETING[TWO]}
        post(service, box, "pause", {"memory": False}, 204)
        post(service, box, "resume", {"timeout": 300}, 201)
        assert box.dial(ONE, TWO) == {ONE: RESET, TWO: GREETING[TWO]}
    with Box(service) as box:  # the same with memory to the end, to see what its dials saw
        box.envd.write("/tmp/endless.py", ENDLESS.encode())
        box.envd.sh("nohup python3 /tmp/endless.py >/dev/null 2>&1 </dev/null &")
        for body in ({"denyOut": [WEB]}, {}, {"denyOut": [WEB]}, {}):
            post(service, box, "pause", {}, 204)
            assert box.put_network(body)[0] == 204
            post(service, box, "resume", {"timeout": 300}, 201)
            assert box.dial(ONE)[ONE] == (RESET if body else GREETING[ONE])
        box.envd.sh("touch /tmp/stop; until [ -e /tmp/seen ]; do sleep 0.05; done")
        seen = json.loads(box.envd.read("/tmp/seen"))
        assert set(seen) <= {GREETING[ONE], RESET, "BrokenPipeError", ""} and seen.get(GREETING[ONE]) and seen.get(RESET), seen
