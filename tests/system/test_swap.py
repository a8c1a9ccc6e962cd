"""Memory of paused sandboxes goes to swap: on a machine that gets some for this test. Needs root."""

import json
import os
import re
import subprocess
import tempfile
from pathlib import Path

import pytest
from envd import Envd
from service import Service
from waiting import until

pytestmark = pytest.mark.alone  # swap is the machine's

HOLDER = """
import os, sys, zlib
data = os.urandom(1 << 20) * {mib}
open("/tmp/ready", "w").write(str(zlib.crc32(data)))
for line in sys.stdin:
    open("/tmp/" + line.strip(), "w").write(str(zlib.crc32(data)))
"""


def total():
    return int(re.search(r"SwapTotal: +(\d+)", Path("/proc/meminfo").read_text())[1])


def swapped():
    """KiB of the machine's swap that is in use."""
    text = Path("/proc/meminfo").read_text()
    return total() - int(re.search(r"SwapFree: +(\d+)", text)[1])


@pytest.fixture(scope="module")
def swap():
    """512 MiB of swap, which goes again."""
    with tempfile.NamedTemporaryFile(dir="/var/tmp", prefix="abx-swap-") as f:
        subprocess.run(["dd", "if=/dev/zero", f"of={f.name}", "bs=1M", "count=512"], check=True, capture_output=True)
        os.chmod(f.name, 0o600)
        subprocess.run(["mkswap", f.name], check=True, capture_output=True)
        before = total()
        run = subprocess.run(["swapon", f.name], capture_output=True, text=True)
        assert run.returncode == 0 and total() > before, f"this machine takes no swap: {run.stderr}"
        try:
            yield
        finally:
            subprocess.run(["swapoff", f.name], check=True)


@pytest.fixture(scope="module")
def service(swap, build_dir, base_template):
    with Service(build_dir) as s:
        yield s


def post(service, box, what, body, expect):
    status, _, answer = service.request("POST", f"/sandboxes/{box['sandboxID']}/{what}", body)
    assert status == expect, (status, answer)


def holder(service, mib):
    """A sandbox with a process that holds so much memory, its address, and the checksum of that."""
    box = service.create(timeout=600, memoryMB=1024)
    envd = Envd(service, box)
    envd.write("/tmp/holder.py", HOLDER.format(mib=mib).encode())
    envd.sh("mkfifo /tmp/in; nohup sh -c 'exec 3<>/tmp/in; python3 /tmp/holder.py <&3' >/tmp/log 2>&1 &")
    until(lambda: envd.run("cat /tmp/ready")[1])
    return box, envd, envd.sh("cat /tmp/ready")


def told(service, box):
    """What the log says of its memory."""
    lines = [x for x in (service.data_dir / "serve.log").read_text(errors="replace").splitlines()
             if box["sandboxID"] in x and "paused sandbox" in x and "memory" in x]
    return lines[-1] if lines else ""


def swap_limits(service):
    """What cgroup v2, where it has the memory controller, allows the sandboxes."""
    mounts = [x.split()[1] for x in Path("/proc/mounts").read_text().splitlines() if x.split()[2] == "cgroup2"]
    return {f.read_text().strip() for m in mounts for f in Path(m).glob(f"**/abx-{service.instance()}/sandboxes/*/memory.swap.max")}


def test_memory_goes_out_and_comes_back(service):
    box, envd, digest = holder(service, 96)
    before = swapped()
    post(service, box, "pause", {}, 204)
    until(lambda: swapped() - before > 48 << 10)
    until(lambda: told(service, box))
    assert int(re.search(r"mib[=\": ]+(\d+)", told(service, box))[1]) > 48, told(service, box)
    post(service, box, "connect", {"timeout": 600}, 201)
    envd.sh("echo again > /tmp/in")
    assert until(lambda: envd.run("cat /tmp/again")[1]) == digest
    assert swap_limits(service) <= {"0"}  # as before: it may have none when it runs
    assert service.kill(box["sandboxID"]) == 204


def test_neither_a_resume_nor_a_kill_waits_for_it(service):
    box, envd, digest = holder(service, 96)
    for i in range(3):
        post(service, box, "pause", {}, 204)
        post(service, box, "connect", {"timeout": 600}, 201)
        envd.sh(f"echo round-{i} > /tmp/in")
        assert until(lambda name=f"round-{i}": envd.run(f"cat /tmp/{name}")[1]) == digest
    post(service, box, "pause", {}, 204)
    assert service.kill(box["sandboxID"]) == 204
    service.until_clean()


def test_the_doctor_tries_it(service):
    checks = json.loads(service.run_abx("doctor", "--json", timeout=120).stdout)["checks"]
    (check,) = [c for c in checks if c["name"] == "swap"]
    assert "memory of paused sandboxes goes there (memory." in check["value"], check
