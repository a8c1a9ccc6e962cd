"""tests/tools/limits_tool.c from Python, and what the tests of cgroups, the disk pool and the probe share."""

import fnmatch
import os
import subprocess
import uuid
from pathlib import Path

import pytest
from waiting import BUSY_S, until

BUILD = Path(os.environ.get("ABX_BUILD") or Path(__file__).resolve().parents[2] / "build")
TOOL = BUILD / "tests/tools/limits_tool"
UID = 1879048192
MIB = 1 << 20

HOG = "b = bytearray(%d << 20)\nfor i in range(0, len(b), 4096): b[i] = 1\nimport time; time.sleep(60)"


class ToolError(Exception):
    pass


class Tool:
    def __init__(self, *args, prefix=()):
        self.args = args
        self.process = subprocess.Popen([*prefix, TOOL, *map(str, args)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._answer()

    def _answer(self):
        line = self.process.stdout.readline()
        word, _, rest = line.strip().partition(" ")
        if word != "ok":
            raise ToolError(rest or f"the tool ended: {self.process.wait()}")
        us, _, value = rest.partition(" ")
        self.us = int(us)
        return value

    def __call__(self, *words):
        """Runs one command; its answer. The time of the library call is in .us."""
        self.process.stdin.write(" ".join(str(word) for word in words) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def python(self, id, part, code, *options):
        """Starts Python code in a group; the process id."""
        encoded = code.encode().hex()  # without a space, which would end a word
        return int(self("run", id, part, *options, "python3", "-c", f"exec(bytes.fromhex('{encoded}'))"))

    def usage(self, id):
        return {k: int(v) for k, v in (pair.split("=") for pair in self("usage", id).split())}

    def close(self):
        self.process.stdin.close()
        self.process.wait(BUSY_S)


def own_groups(instance):
    """Trees of that name (a pattern) in all hierarchies; those of others come and go meanwhile."""
    found = []
    for top, folders, _ in os.walk("/sys/fs/cgroup"):
        found += [f"{top}/{name}" for name in fnmatch.filter(folders, f"abx-{instance}")]
        folders[:] = [name for name in folders if not name.startswith("abx-")]
    return found


@pytest.fixture
def instance():
    return "t" + uuid.uuid4().hex[:8]


def mounts_below(path):
    return [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines() if line.split()[4].startswith(str(path))]


@pytest.fixture
def data():
    """A folder for data dirs, not on a tmpfs, that every user may pass through."""
    path = Path("/var/tmp") / f"limits-{uuid.uuid4().hex}"
    path.mkdir()
    path.chmod(0o711)
    yield path
    for mount in sorted(mounts_below(path), reverse=True):
        subprocess.run(["umount", mount], check=True)
    subprocess.run(["rm", "-rf", path], check=True)


@pytest.fixture
def crowded_group():
    """A v2 group that has processes and whose controllers are free, as a container's has."""
    top = Path("/sys/fs/cgroup")
    controllers = top / "cgroup.controllers"
    if not controllers.exists() or "memory" not in controllers.read_text():
        pytest.skip("no free controllers in the v2 tree")
    (top / "cgroup.subtree_control").write_text("+memory +cpu +pids")
    group = top / f"ct-{uuid.uuid4().hex[:8]}"
    group.mkdir()
    yield group
    (group / "cgroup.kill").write_text("1")
    for path in [*sorted(group.glob("**/"), key=lambda p: -len(p.parts))]:
        until(lambda: "populated 0" in (path / "cgroup.events").read_text())
        path.rmdir()


INTO_GROUP = 'echo $$ >{group}/cgroup.procs; sleep 60 </dev/null >/dev/null 2>&1 & exec {wrap}"$0" "$@"'
