"""Kill wins: whatever happens to the pool or to the engine, DELETE and SIGINT end sandboxes, and what could not be removed
is removed later."""

import os
import signal
import subprocess
import time

import processes
import pytest
from envd import Envd
from service import Service
from waiting import BUSY_S, until


@pytest.fixture
def service(build_dir, base_template):
    s = Service(build_dir, disk="2G")
    s.start()
    try:
        yield s
    finally:
        remount(s, "rw")
        s.stop()
        s.remove()


def remount(s, how):
    pool = s.data_dir / "pool/fs"
    if not os.path.ismount(pool):
        return how == "rw"
    run = lambda: subprocess.run(["mount", "-o", f"remount,{how}", pool], stderr=subprocess.DEVNULL, check=False, timeout=BUSY_S)
    return until(lambda: run().returncode == 0, f"a remount {how}")


def guests(s):
    """Processes in cgroups of this instance's sandboxes."""
    instance = next(w for w in (s.data_dir / "format").read_text().split() if len(w) == 12)
    return [pid for pid in processes.named("abx-guest") if instance in (processes.read(pid, "cgroup") or "")]


def kill_engine(s):
    os.kill(s.roles()["abx-engine"][0], signal.SIGKILL)


def test_kill_wins_over_a_read_only_pool(service):
    boxes = [service.create(timeout=600) for _ in range(3)]
    assert remount(service, "ro")
    assert service.kill(boxes[0]["sandboxID"]) == 204
    assert len(guests(service)) == 4

    kill_engine(service)  # its successor has nothing to make sandboxes in, and adopts those that run
    assert until(lambda: service.kill(boxes[1]["sandboxID"])) == 204
    assert len(guests(service)) == 2
    assert Envd(service, boxes[2], user="root").sh("echo ok") == "ok\n"
    status, _, made = service.request("POST", "/v2/sandboxes", {"templateID": "base"})
    assert status in (500, 503), made
    until(lambda: "the pool cannot be used" in service.logged(), "word of it")

    # As soon as it can be written, everything goes on without a restart, and nothing stays behind.
    assert remount(service, "rw")
    box = until(lambda: (r := service.request("POST", "/v2/sandboxes", {"templateID": "base"}))[0] == 201 and r[2])
    assert service.kill(box["sandboxID"]) == 204
    until(lambda: not [f for f in service.audit() if "upper" in f])
    until(lambda: not list((service.data_dir / "pool/fs/trash").iterdir()))


def test_sigint_wins_over_a_read_only_pool_and_a_dead_engine(service):
    for _ in range(3):
        service.create(timeout=600)
    assert len(guests(service)) == 6
    assert remount(service, "ro")
    kill_engine(service)
    service.stop()
    assert guests(service) == []
    service.start()
    service.until_clean()


@pytest.mark.parametrize("delay", [0, 0.01, 0.05, 0.1])
def test_sigint_while_the_engine_starts(service, delay):
    for _ in range(2):
        service.create(timeout=600)
    kill_engine(service)
    time.sleep(delay)
    service.stop()
    assert guests(service) == []


def test_a_lost_database(service):
    """What runs without a row is ended, and the admin key is one that works."""
    box = service.create(timeout=600)
    service.stop(signal.SIGTERM)
    assert len(guests(service)) == 2
    database = service.data_dir / "control/abx.db"
    database.write_bytes(b"\xff" * 8192)
    with pytest.raises(RuntimeError, match="not a database: it is damaged; put a copy"):
        service.start()
    assert len(guests(service)) == 2  # the operator decides
    service.process.wait(BUSY_S)

    database.unlink()
    service.start()
    assert service.request("GET", f"/sandboxes/{box['sandboxID']}")[0] == 404
    until(lambda: not guests(service))
    box = service.create(timeout=600)
    assert service.kill(box["sandboxID"]) == 204
    service.stop()
    key = service.key
    assert service.start().key == key


@pytest.mark.parametrize("n_files", [0, 20000])
def test_a_full_pool_lets_go(build_dir, base_template, n_files):
    """What one sandbox filled is removed at its end, and others can be made in it again at once: not when the file system
    commits the next time (btrfs: half a minute). Small files of another one leave little room for metadata, which has to
    get what was taken for data."""
    with Service(build_dir, disk="512M") as s:
        other = s.create(timeout=600)
        small = "import os; os.mkdir('/f'); [open(f'/f/{i}', 'wb').write(b'x' * 1900) for i in range(%d)]" % n_files
        assert Envd(s, other, user="root").run(f'python3 -c "{small}"', timeout=120)[0] == 0
        box = s.create(timeout=600)
        Envd(s, box, user="root").run("head -c 600000000 /dev/zero > /big; true", timeout=60)
        subprocess.run(["sync", "-f", s.data_dir / "pool/fs"], check=False)
        status = [s.request("POST", "/v2/sandboxes", {"templateID": "base"})[0] for _ in range(12)]
        assert status[-1] == 507
        assert set(status) <= {201, 507}
        assert s.kill(box["sandboxID"]) == 204
        until(lambda: s.request("POST", "/v2/sandboxes", {"templateID": "base"})[0] == 201)
        until(lambda: not list((s.data_dir / "pool/fs").glob("*/*/u/big")))
        assert Envd(s, other, user="root").sh("ls /f | wc -l") == f"{n_files}\n"
