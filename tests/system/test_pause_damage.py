"""Saved state of paused sandboxes that is damaged, cut short or gone. For each kind of damage: the sandbox is listed and
described, a resume gives its files back or says what is missing, kill works, and nothing is left of it."""

import contextlib
import http.client
import os
import shutil
import sqlite3
import subprocess
import threading

import processes
import pytest
from envd import Envd
from pause_kit import (
    detail, events, guests, health, kill_guests, kill_role, listed, notes, pool_of, post, records, start_machine_anew)
from service import Service
from waiting import BUSY_S, until

KINDS = {"full": None, "filesystem": {"memory": False}}


@pytest.fixture(scope="module")
def service(build_dir, base_template):
    with Service(build_dir) as s:
        yield s
        for box in listed(s):
            s.kill(box)
        s.until_clean()


def paused(service, kind):
    """A paused sandbox with a file and, of the full kind, a process."""
    made = service.create(timeout=600, envVars={"MINE": "yes"})
    Envd(service, made).sh("echo mine > /home/user/f; nohup sleep 1000 >&- 2>&- & until grep -qx sleep /proc/$!/comm; do :; done")
    post(service, made, "pause", KINDS[kind])
    made["kind"], made["name"] = kind, notes(service)[made["sandboxID"]]
    return made


def end(service, *boxes):
    """They are described and killed, whatever became of them, and nothing is left."""
    for box in boxes:
        assert detail(service, box)["state"] in ("paused", "running")
        assert service.kill(box["sandboxID"]) == 204
        assert service.kill(box["sandboxID"]) == 404
    until(lambda: service.audit() == [] and not {b["sandboxID"] for b in boxes} & set(notes(service)))
    assert not [b for b in boxes if upper(service, b).exists()]


@pytest.fixture(params=KINDS)
def box(request, service):
    made = paused(service, request.param)
    yield made
    end(service, made)


def upper(service, box):
    return pool_of(service) / "uppers" / box["name"]


def comes_back(service, box, with_memory=None):
    """A resume gives back what there was."""
    post(service, box, "connect", {"timeout": 600}, 201)
    is_back(service, box, with_memory)


def is_back(service, box, with_memory=None):
    out = Envd(service, box).sh("cat /home/user/f; echo $MINE; pgrep -c sleep || true").split()
    with_memory = box["kind"] == "full" if with_memory is None else with_memory
    assert out == ["mine", "yes", "1" if with_memory else "0"]


def says_why_not(service, box, *words, status=410, mode=None):
    """Both ways of asking for it are refused with these words, and it stays what it is."""
    for what in ("connect", "resume"):
        answer = post(service, box, what, {"timeout": 60}, status)
        assert answer["code"] == status
        for word in (f'Sandbox "{box["sandboxID"]}" cannot be resumed while waking: ', *words):
            assert word in answer["message"], answer
    info = detail(service, box)
    assert (info["state"], info["pauseMode"]) == ("paused", mode or box["kind"])
    assert box["sandboxID"] in listed(service, "?state=paused")
    assert health(service, box)[0] == 502


def restart(service, role):
    """SIGKILL for a role; until its successor answers, and the others have heard of it."""
    kill_role(service, role)
    until(lambda: service.request("GET", "/v2/sandboxes")[0] == 200)
    until(lambda: service.run_abx("doctor", "--audit").stdout)


# ---- files ----


def remove_all(path):
    shutil.rmtree(path)


def remove_u(path):
    shutil.rmtree(path / "u")


def remove_w(path):
    shutil.rmtree(path / "w")


def empty_it(path):
    for name in os.listdir(path):
        shutil.rmtree(path / name)


def empty_u(path):
    for entry in (path / "u").iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def file_as_u(path):
    (path / "u").rename(path / "away")
    (path / "u").write_text("garbage")


def file_as_all(path):
    shutil.rmtree(path)
    path.write_text("garbage")


@pytest.mark.parametrize("damage, words", [
    (remove_all, ("its kept files, folder", "No such file")),
    (remove_u, ("its kept files, folder 'u'", "No such file")),
    (remove_w, ("its kept files, folder 'w'", "No such file")),
    (empty_it, ("its kept files, folder 'u'", "No such file")),
    (empty_u, ("of its kept files some are gone: 0 of ",)),
    (file_as_u, ("its kept files, folder 'u'", "Not a directory")),
    (file_as_all, ("its kept files, folder", "Not a directory")),
], ids=lambda x: getattr(x, "__name__", ""))  # fmt: skip
def test_files_that_are_gone(service, box, damage, words):
    damage(upper(service, box))
    says_why_not(service, box, *words)
    # To the next engine it looks the same.
    if damage in (remove_all, empty_u):
        restart(service, "abx-engine")
        says_why_not(service, box, *words)


def test_files_that_are_put_there_anew(service, box):
    """Out of a copy: good enough for a start, not for processes that have the old ones open."""
    path, spare = upper(service, box), pool_of(service) / "spare"
    subprocess.run(["cp", "-a", path, spare], check=True)
    shutil.rmtree(path)
    if subprocess.run(["stat", "-f", "-c", "%T", pool_of(service)], capture_output=True, text=True, check=True).stdout == "btrfs\n":
        shutil.copytree(spare, path)
        says_why_not(service, box, "are in no btrfs subvolume of their own")
        shutil.rmtree(path)
        subprocess.run(["btrfs", "-q", "subvolume", "create", path], check=True)
    subprocess.run(["cp", "-a", "-T", spare, path], check=True)
    shutil.rmtree(spare)
    if box["kind"] == "full":
        says_why_not(service, box, "its kept files are not those that its processes have open")
        kill_guests(service)  # they are given up: then the files are good
    comes_back(service, box, with_memory=False)


# ---- notes ----


def test_notes_that_are_gone_or_odd_lose_nothing(service):
    """Nor does the loss of the folder with all of them."""
    boxes = [paused(service, kind) for kind in KINDS for _ in range(3)]

    def note(box):
        return pool_of(service) / "saved" / f"{box['name']}.{box['sandboxID']}"

    for at in (0, 3):
        note(boxes[at]).unlink()
        note(boxes[at + 1]).write_text("garbage")
        note(boxes[at + 2]).rename(note(boxes[at + 2]).with_name(f"garbage-{at}"))
    service.until_clean()
    restart(service, "abx-engine")
    assert all(notes(service)[b["sandboxID"]] == b["name"] for b in boxes)
    for box in (boxes[0], boxes[3]):  # without an engine that has started anew
        note(box).unlink()
    for box in boxes[:2] + boxes[3:5]:
        comes_back(service, box)

    shutil.rmtree(pool_of(service) / "saved")
    assert "is kept: No such file" in post(service, boxes[0], "pause", None, 500)["message"]
    comes = Envd(service, boxes[0]).sh("cat /home/user/f")
    assert comes == "mine\n"
    restart(service, "abx-engine")
    assert set(notes(service)) == {boxes[2]["sandboxID"], boxes[5]["sandboxID"]}
    for box in (boxes[2], boxes[5]):
        comes_back(service, box)
    post(service, boxes[0], "pause")
    end(service, *boxes)


def test_nothing_at_all_is_left(service):
    boxes = [paused(service, kind) for kind in KINDS]
    for box in boxes:
        (pool_of(service) / "saved" / f"{box['name']}.{box['sandboxID']}").unlink()
        shutil.rmtree(upper(service, box))
    kill_guests(service)
    restart(service, "abx-engine")
    reason = "nothing is left of what was kept of it: it cannot be resumed"
    for box in boxes:
        until(lambda box=box: events(service, box)[-1][1].get("reason") == reason)
        assert events(service, box)[-1][0] == "updated"
        says_why_not(service, box, "nothing is left of what was kept of it", mode="filesystem")
    restart(service, "abx-control")
    for box in boxes:
        says_why_not(service, box, "nothing is left of what was kept of it", mode="filesystem")
    end(service, *boxes)


# ---- records of the processes ----


def cut(path):
    path.write_bytes(path.read_bytes()[:40])


def fill_with_garbage(path):
    path.write_bytes(os.urandom(300))


def make_empty(path):
    path.write_bytes(b"")


def test_records(service):
    """Only while processes are there is there one. The engine that runs knows; the next one keeps the files."""
    damages = [cut, fill_with_garbage, make_empty, os.unlink]
    boxes, files = [paused(service, "full") for _ in damages], paused(service, "filesystem")
    assert not (records(service) / files["name"]).exists()
    for damage, box in zip(damages, boxes):
        damage(records(service) / box["name"])
        comes_back(service, box)
        post(service, box, "pause")
        damage(records(service) / box["name"])
    restart(service, "abx-engine")
    for box in boxes:
        until(lambda box=box: detail(service, box)["pauseMode"] == "filesystem")
        assert ("updated", "filesystem") in [(kind, data.get("mode")) for kind, data in events(service, box)]
        comes_back(service, box, with_memory=False)
    comes_back(service, files)
    end(service, *boxes, files)


# ---- processes and their groups ----


def groups_of(service, box):
    found = []
    for top in ("/sys/fs/cgroup",):
        for folder, _, _ in os.walk(top):
            if f"/sandboxes/{box['name']}" in folder and f"abx-{service.instance()}" in folder:
                found.append(folder)
    return sorted(found, key=len, reverse=True)


@pytest.mark.parametrize("without_engine", [False, True])
def test_processes_that_were_killed_and_groups_that_are_gone(service, box, without_engine):
    def end_them():
        kill_guests(service)
        for folder in groups_of(service, box):
            try:
                os.rmdir(folder)
            except FileNotFoundError:
                pass  # by the engine

    if without_engine:
        kill_role(service, "serve", end_them)
    else:
        end_them()
    comes_back(service, box, with_memory=False)
    modes = [data.get("mode") for kind, data in events(service, box) if kind == "updated"]
    assert modes == (["filesystem"] if box["kind"] == "full" else [])


def test_the_machine_was_started_anew(service, box):
    start_machine_anew(service)
    until(lambda: detail(service, box)["pauseMode"] == "filesystem")
    said = [data for kind, data in events(service, box) if kind == "updated"]
    assert len(said) == (1 if box["kind"] == "full" else 0)
    assert all(x["mode"] == "filesystem" and "machine was started anew" in x["reason"] for x in said)
    comes_back(service, box, with_memory=False)


@pytest.mark.parametrize("reboot", [False, True])
def test_a_resume_that_was_cut_off_loses_nothing(service, box, reboot):
    """It runs already, and the row says `paused` still, when everything is killed."""
    db = sqlite3.connect(service.data_dir / "control/abx.db", timeout=BUSY_S, isolation_level=None)
    db.execute("BEGIN IMMEDIATE")  # the row is not written
    asking = threading.Thread(target=try_to_connect, args=(service, box))
    asking.start()
    record = records(service) / box["name"]
    until(lambda: record.exists() and "phase=running" in record.read_text() and "is_frozen=0" in record.read_text())
    kill_role(service, "abx-control", db.close)
    asking.join()
    if reboot:
        start_machine_anew(service)
    until(lambda: detail(service, box)["state"] == "paused")
    if reboot:
        comes_back(service, box, with_memory=False)
        return
    # It does not run behind anyone's back, and can be had: 409 while control has it frozen.
    until(lambda: service.request("POST", f"/sandboxes/{box['sandboxID']}/connect", {"timeout": 600}, timeout=60)[0] == 201)
    is_back(service, box)


def try_to_connect(service, box):
    with contextlib.suppress(OSError, http.client.HTTPException):
        service.request("POST", f"/sandboxes/{box['sandboxID']}/connect", {"timeout": 60}, timeout=60)


# ---- the row ----


def set_row(service, box, **values):
    """Changes the row as if it had been damaged. Control reads it when it starts."""
    db = sqlite3.connect(service.data_dir / "control/abx.db", timeout=BUSY_S)
    with db:
        for column, value in values.items():
            changed = db.execute(f"UPDATE sandboxes SET {column} = ? WHERE id = ?", (value, box["sandboxID"])).rowcount
            assert changed == 1
    db.close()


def row(service, box):
    db = sqlite3.connect(service.data_dir / "control/abx.db", timeout=BUSY_S)
    db.row_factory = sqlite3.Row
    with db:
        found = dict(db.execute("SELECT * FROM sandboxes WHERE id = ?", (box["sandboxID"],)).fetchone())
    db.close()
    return found


DAMAGED_COLUMNS = (
    ("config", "{"), ("config", ""), ("config", b"\xff\x00"), ("alias", b"\xff\xfe"), ("digest", "x" * 300), ("template_id", b"\xff"),
    ("state", "asleep"), ("execution_id", "x" * 100),
)  # fmt: skip


def test_rows_that_are_damaged(service):
    boxes = [(paused(service, kind), column, value) for kind in KINDS for column, value in DAMAGED_COLUMNS]
    before = [row(service, box) for box, _, _ in boxes]
    for box, column, value in boxes:
        set_row(service, box, **{column: value})
    restart(service, "abx-control")
    for box, column, _ in boxes:
        says_why_not(service, box, f"in the database its {column} is damaged")
    assert set(listed(service)) >= {box["sandboxID"] for box, _, _ in boxes}
    # As they were: nothing was taken away meanwhile.
    for (box, column, _), was in zip(boxes, before):
        set_row(service, box, **{column: was[column]})
    restart(service, "abx-control")
    for box, _, _ in boxes:
        comes_back(service, box)
    end(service, *(box for box, _, _ in boxes))


def test_other_columns(service):
    """What the processes have need not be known, and other sizes and times take the place of odd ones."""
    full, files = ([paused(service, kind) for _ in range(3)] for kind in KINDS)
    for envs, digest, odd in (full, files):
        set_row(service, envs, envs="{\"MINE\":")
        set_row(service, digest, digest="0" * 64)
        set_row(service, odd, cpu_count="x", memory_mb=b"\xff", end_ms="y", started_ms="z", idempotency_key=None)
    set_row(service, full[2], pause_mode="garbage")
    restart(service, "abx-control")
    assert "its envs are damaged" in post(service, full[0], "resume", {"timeout": 60, "memory": False}, 410)["message"]
    for box in (*full, files[2]):
        comes_back(service, box)
    # Nothing starts without the environment that it had: no fork, no sandbox whose memory was dropped.
    assert "its envs are damaged" in post(service, full[0], "fork", {"count": 1}, 410)["message"]
    post(service, full[0], "pause", {"memory": False})
    assert detail(service, full[0])["pauseMode"] == "full"
    comes_back(service, full[0])
    says_why_not(service, files[0], "in the database its envs are damaged")
    says_why_not(service, files[1], "template '000")
    end(service, *full, *files)


def test_an_id_that_is_damaged_has_nobody_killed(build_dir, base_template):
    with Service(build_dir) as s:
        box = s.create(timeout=600)
        Envd(s, box).sh("echo mine > /home/user/f")
        post(s, box, "pause", {"memory": False})
        set_row(s, box, id="No id")
        restart(s, "abx-control")
        until(lambda: "it stays" in s.logged())
        assert box["sandboxID"] in notes(s)
        db = sqlite3.connect(s.data_dir / "control/abx.db", timeout=BUSY_S)
        with db:
            db.execute("UPDATE sandboxes SET id = ? WHERE id = 'No id'", (box["sandboxID"],))
        db.close()
        restart(s, "abx-control")
        post(s, box, "connect", {"timeout": 60}, 201)
        assert Envd(s, box).sh("cat /home/user/f") == "mine\n"
        assert s.kill(box["sandboxID"]) == 204
        s.until_clean()


# ---- the pool ----


def mounted(service, how):
    pool = service.data_dir / "pool/fs"
    if not os.path.ismount(pool):
        pytest.skip("the pool is no mount of its own")
    until(lambda: subprocess.run(["mount", "-o", f"remount,{how}", pool], stderr=subprocess.DEVNULL, check=False).returncode == 0)


@pytest.mark.parametrize("engine_dies", [False, True])
def test_a_pool_that_is_read_only(build_dir, base_template, engine_dies):
    with Service(build_dir, disk="2G") as s:
        boxes = [s.create(timeout=600) for _ in range(4)]
        for box in boxes:
            Envd(s, box).sh("echo mine > /home/user/f")
        for box, body in zip(boxes, [None, {"memory": False}] * 2):
            post(s, box, "pause", body)
        full, files, *others = boxes
        mounted(s, "ro")
        try:
            if engine_dies:
                restart(s, "abx-engine")
            answer = post(s, files, "connect", {"timeout": 60}, 503)
            assert "cannot be resumed while waking: the pool cannot be " in answer["message"] and "ead-only" in answer["message"], answer
            assert detail(s, files)["state"] == "paused"
            # Its processes are in memory; what they cannot do is write.
            post(s, full, "connect", {"timeout": 600}, 201)
            assert Envd(s, full).sh("cat /home/user/f") == "mine\n"
            for box in others:
                assert detail(s, box)["state"] == "paused"
                assert s.kill(box["sandboxID"]) == 204
            if engine_dies:
                restart(s, "abx-engine")
                assert Envd(s, full).sh("cat /home/user/f") == "mine\n"
        finally:
            mounted(s, "rw")
        until(lambda: s.request("POST", f"/sandboxes/{files['sandboxID']}/connect", {"timeout": 600})[0] in (200, 201))
        for box in (full, files):
            assert Envd(s, box).sh("cat /home/user/f; echo more > /home/user/g; cat /home/user/g") == "mine\nmore\n"
            assert s.kill(box["sandboxID"]) == 204
        # At once, but for those that were killed while nothing could be removed: with control's next comparison.
        restart(s, "abx-control")
        until(lambda: s.audit() == [] and not notes(s))


def fill(folder):
    """Takes all that is left on its file system; the path of what took it."""
    path = folder / "ballast"
    with open(path, "wb", buffering=0) as f:
        for size in (1 << 20, 4096):
            try:
                while True:
                    f.write(bytes(size))
            except OSError:
                os.fsync(f.fileno()) if size == 1 << 20 else None
    subprocess.run(["sync", "-f", folder], check=False)
    return path


def test_a_pool_that_is_full(build_dir, base_template):
    with Service(build_dir, disk="512M") as s:
        boxes = [s.create(timeout=600) for _ in range(4)]
        for box in boxes:
            Envd(s, box).sh("echo mine > /home/user/f")
        for box, body in zip(boxes, [None, {"memory": False}] * 2):
            post(s, box, "pause", body)
        ballast = fill(pool_of(s))
        try:
            for box in boxes[:2]:
                status, _, answer = s.request("POST", f"/sandboxes/{box['sandboxID']}/connect", {"timeout": 600}, timeout=60)
                assert status in (201, 507), answer
                if status == 507:
                    assert "No space left" in answer["message"] or "quota" in answer["message"].lower(), answer
                    assert detail(s, box)["state"] == "paused"
                assert Envd(s, box).sh("cat /home/user/f") == "mine\n" if status == 201 else True
            for box in boxes[2:]:
                assert s.kill(box["sandboxID"]) == 204
        finally:
            ballast.unlink()
        for box in boxes[:2]:
            until(lambda box=box: s.request("POST", f"/sandboxes/{box['sandboxID']}/connect", {"timeout": 600})[0] in (200, 201))
            assert Envd(s, box).sh("cat /home/user/f") == "mine\n"
            assert s.kill(box["sandboxID"]) == 204
        s.until_clean()


def test_a_pool_that_cannot_be_opened_keeps_what_is_in_it(build_dir, base_template):
    """The image is away while the service starts; those that are paused are there again when it is."""
    with Service(build_dir, disk="2G") as s:
        full, files, doomed = (s.create(timeout=600) for _ in range(3))
        for box in (full, files, doomed):
            Envd(s, box).sh("echo mine > /home/user/f")
        post(s, full, "pause")
        post(s, files, "pause", {"memory": False})
        post(s, doomed, "pause", {"memory": False})
        pool = s.data_dir / "pool/fs"
        if not os.path.ismount(pool):
            pytest.skip("the pool is no mount of its own")
        image = s.data_dir / "pool/disk.img"

        def hide():
            subprocess.run(["umount", "-l", pool], check=True)
            image.rename(image.with_suffix(".away"))
            image.write_bytes(b"no file system")

        kill_role(s, "serve", hide)
        for box in (full, files, doomed):
            assert detail(s, box)["state"] == "paused"
        answer = post(s, files, "resume", {"timeout": 60}, 503)
        assert "cannot be resumed while waking: the pool cannot be used: " in answer["message"] and "disk.img" in answer["message"], answer
        assert s.kill(doomed["sandboxID"]) == 204

        def show():
            image.with_suffix(".away").rename(image)

        kill_role(s, "serve", show)
        post(s, full, "connect", {"timeout": 600}, 201)
        post(s, files, "connect", {"timeout": 600}, 201)
        for box in (full, files):
            assert Envd(s, box).sh("cat /home/user/f") == "mine\n"
            assert s.kill(box["sandboxID"]) == 204
        until(lambda: s.audit() == [] and not notes(s))


def test_nobody_else_is_touched(service):
    until(lambda: guests(service.instance()) == [])
    assert listed(service) == []
    assert processes.alive(service.process.pid)
