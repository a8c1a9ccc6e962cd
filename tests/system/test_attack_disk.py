"""The disk below the data dir is full for a while: sandboxes can be ended, what fails has no effect, and afterwards everything
works again without a restart."""

import subprocess

import pytest
from envd import Envd, EnvdError
from service import Service
from waiting import until


@pytest.fixture
def service(build_dir, base_template, tmp_path):
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300m,mode=711", "tmpfs", data_dir], check=True)
    s = Service(build_dir, disk="10G", data_dir=data_dir)
    try:
        s.start()
        yield s
    finally:
        s.stop()
        s.remove()
        # The loop device lets go of its file a moment later.
        until(lambda: subprocess.run(["umount", data_dir], stderr=subprocess.DEVNULL, check=False).returncode == 0)


def fill(s):
    """Takes every byte; returns the file."""
    filler = s.data_dir / "filler"
    with filler.open("wb", buffering=0) as f:
        size = 1 << 16
        while size:
            try:
                f.write(b"x" * size)
            except OSError:
                size //= 2
    return filler


def end_of(s, box):
    return s.request("GET", f"/sandboxes/{box['sandboxID']}")[2]["endAt"]


def test_full_disk(service):
    """The sandbox writes what the disk does not take, and the kernel notes it or gives up the file system."""
    boxes = [service.create(timeout=600) for _ in range(3)]
    filler = fill(service)
    ends = end_of(service, boxes[1])

    assert service.kill(boxes[0]["sandboxID"]) == 204
    status, _, error = service.request("POST", "/v2/sandboxes", {"templateID": "base"})
    assert status == 507 and "disk is full" in error["message"], error
    status, _, error = service.request("POST", f"/sandboxes/{boxes[1]['sandboxID']}/timeout", {"timeout": 60})
    assert status == 507, error
    assert end_of(service, boxes[1]) == ends

    # Writes of a sandbox that the disk does not take any more: the kernel notes a write-back error.
    try:
        Envd(service, boxes[1], user="root").run("head -c 100000000 /dev/urandom > /f; dd if=/dev/urandom of=/g bs=1M count=20 oflag=direct")
    except EnvdError:
        pass
    subprocess.run(["sync", "-f", service.data_dir / "pool/fs/trash"], stderr=subprocess.DEVNULL, check=False)
    Envd(service, boxes[1], user="root").run("head -c 100000000 /dev/urandom > /h; sleep 1; dd if=/dev/urandom of=/g bs=1M count=20 oflag=direct")
    assert service.kill(boxes[1]["sandboxID"]) == 204

    filler.unlink()
    assert service.kill(boxes[2]["sandboxID"]) == 204
    # Perhaps the kernel made the pool read-only; without sandboxes it is mounted anew.
    until(lambda: (r := service.request("POST", "/v2/sandboxes", {"templateID": "base"}))[0] == 201 and service.kill(r[2]["sandboxID"]))
    for _ in range(3):
        box = service.create(timeout=60)
        assert Envd(service, box, user="root").sh("echo ok > /f; cat /f") == "ok\n"
        assert service.kill(box["sandboxID"]) == 204
    service.until_clean()
