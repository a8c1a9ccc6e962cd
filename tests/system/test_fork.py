"""Forks on a real service: what they begin with, that they are apart, and that nothing is left of them."""

import http.client
import os
import shutil
import signal
import threading
import time
from pathlib import Path

import processes
import pytest
from envd import Envd
from pause_kit import service, through  # noqa: F401 (fixtures)
from service import Service
from waiting import until


def fork(service, box, expect=201, **body):
    status, _, answer = service.request("POST", f"/sandboxes/{box['sandboxID']}/fork", body, timeout=60)
    assert status == expect, (status, answer)
    return answer


def test_forks_begin_alike_and_are_apart(service):
    parent = service.create(timeout=300, envVars={"KEPT": "yes"}, metadata={"kind": "parent"}, memoryMB=512)
    envd = Envd(service, parent)
    envd.write("/home/user/blob", os.urandom(3 << 20))
    blob = envd.read("/home/user/blob")
    Envd(service, parent, "root").sh("rm -r /usr/share/doc && mkdir /usr/share/doc && chmod 755 /usr/share/doc")
    envd.sh("echo 1 > /home/user/n; nohup sleep 1000 >&- 2>&- & until grep -qx sleep /proc/$!/comm; do :; done")
    results = fork(service, parent, timeout=120, count=3)
    assert all("sandbox" in x and x["frozenUs"] > 0 for x in results), results
    children = [x["sandbox"] for x in results]
    boxes = [parent, *children]
    assert len({b["sandboxID"] for b in boxes}) == len({b["envdAccessToken"] for b in boxes}) == 4
    for i, box in enumerate(children):
        child = Envd(service, box)
        assert child.read("/home/user/blob") == blob
        assert child.sh("cat /home/user/n; ls /usr/share/doc | wc -l; echo $KEPT; hostname; pgrep -c sleep || true").split() == [
            "1", "0", "yes", box["sandboxID"], "0"]
        child.sh(f"echo child {i} > /home/user/n")
        info = service.request("GET", f"/sandboxes/{box['sandboxID']}")[2]
        assert info["metadata"] == {"kind": "parent"} and info["templateID"] == parent["templateID"] and info["memoryMB"] == 512
    assert [Envd(service, b).sh("cat /home/user/n") for b in boxes] == ["1\n", "child 0\n", "child 1\n", "child 2\n"]
    assert len({Envd(service, b).sh("cat /proc/sys/kernel/random/boot_id") for b in boxes}) == 4
    assert envd.sh("pgrep -c sleep") == "1\n"  # the parent goes on
    assert service.kill(parent["sandboxID"]) == 204
    assert Envd(service, children[0]).read("/home/user/blob") == blob
    event = service.request("GET", f"/events/sandboxes/{children[0]['sandboxID']}")[2][0]
    assert event["type"] == "sandbox.lifecycle.created"
    assert (event["eventData"]["forkOf"], event["eventData"]["mode"]) == (parent["sandboxID"], "filesystem")
    # A fork of a fork, and a pause of it.
    (grandchild,) = [x["sandbox"] for x in fork(service, children[1])]
    assert service.request("POST", f"/sandboxes/{grandchild['sandboxID']}/pause", {"memory": False})[0] == 204
    assert fork(service, grandchild, 409)["message"].endswith("is paused and cannot be forked; resume it first")
    assert service.request("POST", f"/sandboxes/{grandchild['sandboxID']}/connect", {"timeout": 60})[0] == 201
    assert Envd(service, grandchild).sh("cat /home/user/n") == "child 1\n"
    for box in (*children, grandchild):
        assert service.kill(box["sandboxID"]) == 204
    service.until_clean()


def test_refusals(service):
    box = service.create(timeout=300)
    assert fork(service, box, 400, count=0)["message"] == "Count must be at least 1"
    assert fork(service, box, 400, count=101)["message"] == "Count cannot be greater than 100"
    assert "Timeout" in fork(service, box, 400, timeout=0)["message"]
    assert service.kill(box["sandboxID"]) == 204
    fork(service, box, 404)


def copy_begins(service, box):
    """A snapshot in a thread, and the list that its status comes to; from here on the engine counts it as frozen."""
    answers = []
    path = f"/sandboxes/{box['sandboxID']}/snapshots"
    thread = threading.Thread(target=lambda: answers.append(service.request("POST", path, {}, timeout=90)[0]))
    thread.start()
    records = Path("/run/abx") / service.instance() / "sandboxes"

    def is_frozen():
        texts = [x.read_text() for x in records.iterdir() if not x.name.startswith(".")]
        return answers or any(box["sandboxID"] in x and "is_frozen=1" in x for x in texts)

    return thread, answers, is_frozen


def test_a_kill_does_not_wait_for_a_copy_that_waits(service):
    """Behind a worker that does nothing any more."""
    before, box = service.create(timeout=300), service.create(timeout=300)
    (saver,) = savers(service)
    os.kill(saver, signal.SIGSTOP)
    try:
        first, first_answers, is_first_frozen = copy_begins(service, before)
        until(is_first_frozen)
        thread, answers, is_frozen = copy_begins(service, box)
        until(is_frozen)
        assert service.kill(box["sandboxID"]) == 204
        assert not first_answers and processes.alive(saver)
    finally:
        os.kill(saver, signal.SIGCONT)
    first.join(60)
    thread.join(60)
    assert (first_answers, answers) == ([201], [409])
    for snapshot in service.request("GET", "/snapshots")[2]:
        assert service.request("DELETE", f"/templates/{snapshot['snapshotID']}")[0] == 204
    assert service.kill(before["sandboxID"]) == 204
    service.until_clean()


def savers(service):
    words = {"--worker", "save", service.instance()}
    return [pid for pid in processes.every() if words <= set((processes.read(pid, "cmdline") or "").split("\0"))]


def tools(worker):
    """What it has started; not before the exec, until which it waits for them itself."""
    return [pid for pid in processes.children(worker) if processes.read(pid, "comm") == "cp\n"]


@pytest.fixture(scope="module")
def plain(build_dir, base_template):
    """A service whose pool is a plain folder, where a copy takes its time."""
    s = Service(build_dir)
    for folder in ("pool", "pool/uppers", "pool/uppers/a", "pool/uppers/a/u"):  # was used as one before
        (s.data_dir / folder).mkdir(0o700)
    with s:
        shutil.rmtree(s.data_dir / "pool/uppers/a")
        yield s


def copy_under_way(service):
    """(sandbox, thread, its answers, pids): a snapshot whose copy is stopped amid its work."""
    (saver,) = savers(service)
    for _ in range(20):  # it may be done before it is seen
        box = service.create(timeout=300)
        Envd(service, box).sh("head -c 64M /dev/zero | tee ~/1 ~/2 ~/3 > ~/4")
        thread, answers, _ = copy_begins(service, box)
        copies = until(lambda a=answers: a or tools(saver), step=0.001)
        if not answers and processes.send(copies[0], signal.SIGSTOP) and processes.alive(copies[0]):
            return box, thread, answers, copies
        thread.join(60)
        service.kill(box["sandboxID"])
    raise AssertionError("no copy was seen")


def check_copies(service, box):
    """The next one is made, and nothing is left of those before."""
    thread, answers, _ = copy_begins(service, box)
    thread.join(60)
    assert answers == [201]
    for snapshot in service.request("GET", "/snapshots")[2]:
        assert service.request("DELETE", f"/templates/{snapshot['snapshotID']}")[0] == 204
    assert service.kill(box["sandboxID"]) == 204
    until(lambda: service.audit() == [] and not list((service.data_dir / "pool/trash").iterdir()))


def test_a_kill_stops_a_copy(plain):
    box, thread, answers, copies = copy_under_way(plain)
    assert plain.kill(box["sandboxID"]) == 204
    thread.join(60)
    assert answers == [409]
    processes.wait_gone(copies)
    check_copies(plain, plain.create(timeout=300))


def test_a_copy_ends_with_its_worker(plain):
    """Else it would go on writing what is being removed. The sandbox that was frozen for it goes on."""
    box, thread, answers, copies = copy_under_way(plain)
    (saver,) = savers(plain)
    processes.send(saver)
    processes.wait_gone(copies)
    thread.join(60)
    assert answers[0] >= 500
    assert through(lambda: Envd(plain, box).sh("echo runs")) == "runs\n"
    check_copies(plain, box)


@pytest.mark.slow
def test_forks_while_roles_are_killed_leave_nothing(build_dir, base_template):
    with Service(build_dir) as s:
        parent = s.create(timeout=600)
        Envd(s, parent).sh("dd if=/dev/urandom of=/home/user/data bs=1M count=50 2>&1")
        want = Envd(s, parent).sh("sha256sum < /home/user/data")
        is_over = threading.Event()

        def kill_roles():
            names = ["abx-engine", "abx-control", "abx-gateway"]
            for i in range(6):
                time.sleep(0.7)
                for pid in s.roles().get(names[i % 3], []):
                    processes.send(pid)
            is_over.set()

        killer = threading.Thread(target=kill_roles)
        killer.start()
        made = 0
        while not is_over.is_set() or made < 3:
            try:
                status, _, answer = s.request("POST", f"/sandboxes/{parent['sandboxID']}/fork", {"count": 2, "timeout": 600}, timeout=60)
            except (OSError, http.client.HTTPException):
                continue  # the gateway was killed
            assert status in (201, 409, 500, 502, 503, 504), (status, answer)
            for result in answer if status == 201 else []:
                if result and (child := result.get("sandbox")):
                    assert through(lambda child=child: Envd(s, child).sh("sha256sum < /home/user/data")) == want
                    made += 1
                    through(lambda child=child: s.kill(child["sandboxID"]))
        killer.join()
        assert Envd(s, parent).sh("sha256sum < /home/user/data") == want
        for box in s.request("GET", "/v2/sandboxes")[2]:
            s.kill(box["sandboxID"])
        # What a crash left is found by the next comparison, half a minute later at the latest.
        left = lambda: s.audit() + list((s.data_dir / "pool").glob("**/saved/*"))
        until(lambda: not left(), lambda: f"nothing left over: {left()}", timeout=180)
