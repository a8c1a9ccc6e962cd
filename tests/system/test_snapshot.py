"""Snapshots on a real service: made while the sandbox runs on, new sandboxes of them, list, names, delete, restarts."""

import json
import signal
import subprocess

import processes
import pytest
from envd import Envd
from pause_kit import service  # noqa: F401 (a fixture)
from service import Service
from waiting import until


def snapshot(service, box, expect=201, **body):
    status, _, answer = service.request("POST", f"/sandboxes/{box['sandboxID']}/snapshots", body)
    assert status == expect, (status, answer)
    return answer


def test_a_snapshot_is_the_files_of_its_moment(service):
    box = service.create(timeout=300, diskSizeMB=2048)
    envd = Envd(service, box)
    envd.sh("echo one > /home/user/f; nohup sleep 1000 >&- 2>&- & until grep -qx sleep /proc/$!/comm; do :; done")
    made = snapshot(service, box)
    assert made["names"] == [] and made["snapshotID"].endswith(":default") and made["frozenUs"] > 0
    envd.sh("echo two > /home/user/f")
    until(lambda: envd.run("pgrep sleep")[0] == 0)  # it runs on; its start takes its time on a busy machine
    copies = [service.create(template=t, timeout=120, envVars={"A": "b"}) for t in (made["snapshotID"], made["snapshotID"].split(":")[0])]
    for copy in copies:
        assert Envd(service, copy).sh("cat /home/user/f; echo $A") == "one\nb\n"
        assert copy["templateID"] == made["snapshotID"].split(":")[0] and copy["alias"] == "base"
        Envd(service, copy).sh("echo other > /home/user/f")
    # A snapshot of a copy; neither depends on what it came from.
    second = snapshot(service, copies[0])
    assert service.request("DELETE", f"/templates/{made['snapshotID']}")[0] == 204
    assert service.request("DELETE", f"/templates/{made['snapshotID']}")[0] == 404
    assert service.kill(box["sandboxID"]) == 204
    third = service.create(template=second["snapshotID"], timeout=120)
    assert Envd(service, third).sh("cat /home/user/f") == "other\n"
    status, _, answer = service.request("POST", "/v2/sandboxes", {"templateID": made["snapshotID"]})
    assert (status, "not found" in answer["message"]) == (404, True)
    # Paused without memory and resumed, like any other.
    assert service.request("POST", f"/sandboxes/{third['sandboxID']}/pause", {"memory": False})[0] == 204
    assert snapshot(service, third, 409)["message"].endswith("cannot be snapshotted while in 'paused' state")
    assert service.request("POST", f"/sandboxes/{third['sandboxID']}/connect", {"timeout": 60})[0] == 201
    assert Envd(service, third).sh("cat /home/user/f") == "other\n"
    for b in (*copies, third):
        assert service.kill(b["sandboxID"]) == 204


def test_names_pages_and_refusals(service):
    box = service.create(timeout=300)
    Envd(service, box).sh("echo 1 > /home/user/n")
    status, _, answer = service.request("POST", f"/sandboxes/{box['sandboxID']}/snapshots", {"name": "base"})
    assert status == 400 and "a template has it" in answer["message"]
    first = snapshot(service, box, name="My-Data")
    assert first["names"] == ["my-data:default"]
    Envd(service, box).sh("echo 2 > /home/user/n")
    second = snapshot(service, box, name="default/my-data")
    copy = service.create(template="my-data", timeout=60)  # the newest of the name
    assert Envd(service, copy).sh("cat /home/user/n") == "2\n" and copy["alias"] == "my-data"

    def listed(query=""):
        status, headers, answer = service.request("GET", f"/snapshots{query}")
        assert status == 200, answer
        return [s["snapshotID"] for s in answer], headers["X-Next-Token"]

    assert listed("?name=my-data") == ([second["snapshotID"], first["snapshotID"]], None)
    page, token = listed(f"?sandboxID={box['sandboxID']}&limit=1")
    assert page == [second["snapshotID"]]
    assert listed(f"?sandboxID={box['sandboxID']}&limit=1&nextToken={token}") == ([first["snapshotID"]], None)
    assert listed("?sandboxID=inone") == ([], None)
    # It is found by what it was called, and its id is nobody else's name.
    for name in ("default/my-data", "My-Data:default", "my-data"):
        assert listed(f"?name={name}") == ([second["snapshotID"], first["snapshotID"]], None)
        same = service.create(template=name, timeout=60)
        assert Envd(service, same).sh("cat /home/user/n") == "2\n" and service.kill(same["sandboxID"]) == 204
    assert listed("?name=not a name".replace(" ", "%20")) == ([], None)
    assert "the id of a snapshot" in snapshot(service, box, 400, name=first["snapshotID"])["message"]
    # Pages go on behind one that was deleted meanwhile.
    third = snapshot(service, box)
    page, token = listed("?limit=1")
    assert page == [third["snapshotID"]] and service.request("DELETE", f"/templates/{page[0]}")[0] == 204
    page, token = listed(f"?limit=1&nextToken={token}")
    assert page == [second["snapshotID"]]
    assert service.request("GET", "/snapshots?limit=0")[0] == 400 and service.request("GET", "/snapshots?nextToken=x")[0] == 400
    assert "Invalid name" in snapshot(service, box, 400, name="not a name")["message"]
    snapshot(service, {"sandboxID": "i" + "0" * 20}, 404, memory=True)
    assert "'memory' has to be" in snapshot(service, box, 400, memory="yes")["message"]
    assert service.request("DELETE", "/templates/base")[0] == 501 and service.request("DELETE", "/templates/nothing")[0] == 404
    snapshot(service, {"sandboxID": "i" + "0" * 20}, 404)
    for b in (box, copy):
        assert service.kill(b["sandboxID"]) == 204


def fake_criu(folder, script):
    """An environment in which programs of the system's folders find this criu, as a prefix of a command."""
    folder.mkdir(exist_ok=True)
    (folder / "criu").write_text(script)
    (folder / "criu").chmod(0o755)
    mount = f'mount -t overlay -o lowerdir={folder}:"$(realpath /usr/sbin)" none "$(realpath /usr/sbin)" && exec "$0" "$@"'
    return ["unshare", "-m", "sh", "-c", mount]


def doctor(build_dir, prefix=()):
    run = subprocess.run([*prefix, build_dir / "abx", "doctor", "--json"], capture_output=True, text=True, timeout=120)
    return next(c for c in json.loads(run.stdout)["checks"] if c["name"] == "criu")


SAYS = '#!/bin/sh\nif [ "$1" = --version ]; then echo "Version: {}"; echo "GitID: x"; else {}; fi\n'


def test_memory_is_refused_with_what_is_missing(service, build_dir):
    """The same words as the doctor's; when nothing is said of memory there is no question of it, and the event says so."""
    box = service.create(timeout=300)
    found = doctor(build_dir)["value"].removeprefix("missing for checkpoints of memory: ")
    message = until(lambda: (m := snapshot(service, box, 501, memory=True)["message"]) and "not known yet" not in m and m)
    assert message.startswith("memory: true needs checkpoints of processes") and found in message, (found, message)
    for body in ({}, {"memory": False}):
        made = snapshot(service, box, **body)
        assert made["mode"] == "filesystem"
        del made["frozenUs"]  # of the making
        assert made in service.request("GET", "/snapshots")[2]
        copy = service.create(template=made["snapshotID"], timeout=60)
        (created,) = service.request("GET", f"/events/sandboxes/{copy['sandboxID']}")[2]
        assert created["eventData"]["mode"] == "filesystem"
        assert service.kill(copy["sandboxID"]) == 204
    assert service.kill(box["sandboxID"]) == 204


def test_the_doctor_tries_criu(build_dir, tmp_path):
    def value(version, check):
        return doctor(build_dir, fake_criu(tmp_path / "bin", SAYS.format(version, check)))["value"]

    assert "missing for checkpoints of memory: CRIU 4.2 or newer (installed is 3.17)" in value("3.17.1", "exit 0")
    assert "CRIU 4.2 or newer (installed is 4.1)" in value("4.1 (gitid v4.1)", "exit 0")
    assert "says its version (it says 'Version: none')" in value("none", "exit 0")
    assert value("4.2", "exit 0") == "CRIU 4.2, and a kernel that 'criu check' is content with"
    assert "'criu check' of CRIU 4.3 is content with" in value("4.3", "echo no such feature; exit 1")
    assert "no such feature" in value("4.3", "echo no such feature; exit 1")
    assert "not done within" in value("4.3", "exec sleep 100")


def test_snapshots_outlive_every_role(build_dir, base_template):
    with Service(build_dir) as s:
        box = s.create(timeout=300)
        Envd(s, box).sh("echo kept > /home/user/f")
        made = snapshot(s, box)
        for sig in (signal.SIGTERM, signal.SIGINT):
            s.stop(sig)
            s.start()
            for role in ("abx-engine", "abx-control"):
                for pid in s.roles()[role]:
                    processes.send(pid)
            until(lambda: s.request("GET", "/snapshots")[0] == 200)
            assert [x["snapshotID"] for x in s.request("GET", "/snapshots")[2]] == [made["snapshotID"]]
            copy = s.create(template=made["snapshotID"], timeout=60)
            assert Envd(s, copy).sh("cat /home/user/f") == "kept\n"
            assert s.kill(copy["sandboxID"]) == 204
        assert s.request("DELETE", f"/templates/{made['snapshotID']}")[0] == 204
        until(lambda: s.audit() == [] and not list((s.data_dir / "pool").glob("**/saved/*")))
