"""Limits of sandboxes as the kernel holds them: cgroups and the disk pool, driven through tests/tools/limits_tool.c.

Needs root. Every test has an instance of its own and leaves no cgroup and no mount behind.
"""

import fnmatch
import json
import os
import re
import subprocess
import time
import uuid
from pathlib import Path

import pytest

BUILD = Path(os.environ.get("ABX_BUILD") or Path(__file__).resolve().parents[2] / "build")
TOOL = BUILD / "tests/tools/limits_tool"
UID = 1879048192
MIB = 1 << 20

HOG = "b = bytearray(%d << 20)\nfor i in range(0, len(b), 4096): b[i] = 1\nimport time; time.sleep(60)"
SPIN = "while True: pass"
FORKS = """
import os, signal, sys
made = []
try:
    while len(made) < 200:
        pid = os.fork()
        if pid == 0:
            signal.pause()
        made.append(pid)
except OSError as e:
    for pid in made:
        os.kill(pid, 9)
    sys.exit(len(made))
"""
# A tree that only a kill of the whole group ends: sessions of their own, ignoring every signal that can be ignored.
ESCAPE = """
import os, signal, time
for n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)
for _ in range(5):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while True:
                time.sleep(0.01)
        os._exit(0)
time.sleep(60)
"""


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
        self.process.wait(10)


def own_groups(instance):
    """Trees of that name (a pattern) in all hierarchies; those of others come and go meanwhile."""
    found = []
    for top, folders, _ in os.walk("/sys/fs/cgroup"):
        found += [f"{top}/{name}" for name in fnmatch.filter(folders, f"abx-{instance}")]
        folders[:] = [name for name in folders if not name.startswith("abx-")]
    return found


def has_v1_freezer():
    return any(re.search(r" - cgroup \S+ (\S*,)?freezer(,|$)", line) for line in Path("/proc/self/mountinfo").read_text().splitlines())


def stat(pid):
    """Fields of /proc/<pid>/stat behind the name: state first."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def cpu_seconds(pid):
    return sum(map(int, stat(pid)[11:13])) / os.sysconf("SC_CLK_TCK")


def eventually(what, seconds=10):
    """Waits for what() to be true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = what()
        if value:
            return value
        time.sleep(0.005)
    raise AssertionError("did not happen")


@pytest.fixture
def instance():
    return "t" + uuid.uuid4().hex[:8]


@pytest.fixture(params=["native"] + (["v1"] if has_v1_freezer() else []))
def tool(request, instance):
    t = Tool(instance, *([] if request.param == "native" else ["v1"]))
    yield t
    if t.process.poll() is None:
        for id in t("each").split():
            t("kill", id, 5000)
            t("remove", id)
        t("remove-tree")
        t.close()
    assert own_groups(instance) == []


def test_a_sandbox_over_its_memory_is_killed_and_its_neighbour_is_not(tool):
    tool("create", "big", 0, 64, 0, UID)
    tool("create", "small", 0, 64, 0, UID)
    fine = tool.python("small", "user", HOG % 20)
    eventually(lambda: tool.usage("small")["memory"] > 20 * MIB)
    hog = tool.python("big", "user", HOG % 200)
    assert tool("wait", hog, 20000) == "137"
    assert tool.usage("big")["oom_kills"] == 1
    assert tool.usage("small")["oom_kills"] == 0
    with pytest.raises(ToolError, match="still runs"):
        tool("wait", fine, 0)


def test_a_raised_memory_limit_lets_it_go_on(tool):
    tool("create", "a", 0, 64, 0, UID)
    tool("limits", "a", 0, 300, 0)
    pid = tool.python("a", "user", HOG % 120)
    eventually(lambda: tool.usage("a")["memory"] > 120 * MIB)
    tool("limits", "a", 0, 200, 0)
    with pytest.raises(ToolError, match="still runs"):
        tool("wait", pid, 0)
    assert tool.usage("a")["oom_kills"] == 0


def test_user_code_at_its_limit_leaves_the_guest_room(tool):
    """64 MiB more than the limit are for the daemon: user code cannot have them."""
    tool("create", "a", 0, 100, 0, UID)
    daemon = tool.python("a", "guest", HOG % 20)
    user = tool.python("a", "user", HOG % 90)
    eventually(lambda: tool.usage("a")["memory"] > 110 * MIB)
    assert tool.usage("a")["oom_kills"] == 0
    hog = tool.python("a", "user", HOG % 30)
    # The kernel may take both, when the second one faults while the first is still ending.
    ended = eventually(lambda: [p for p in (user, hog) if stat(p)[0] == "Z"])
    assert {tool("wait", pid, 10000) for pid in ended} == {"137"}
    with pytest.raises(ToolError, match="still runs"):
        tool("wait", daemon, 0)


def test_guest_and_user_together_are_bounded(tool):
    tool("create", "a", 0, 100, 0, UID)
    pids = [tool.python("a", "guest", HOG % 120), tool.python("a", "user", HOG % 90)]
    ended = eventually(lambda: [p for p in pids if stat(p)[0] == "Z"])
    assert {tool("wait", pid, 10000) for pid in ended} == {"137"}


def test_fork_fails_at_the_limit_of_processes(tool):
    tool("create", "a", 0, 0, 10, UID)
    pid = tool.python("a", "user", FORKS)
    assert tool("wait", pid, 20000) == "9"
    assert tool("create", "b", 0, 0, 0, UID) == ""


def test_processor_time_is_limited_in_user_and_the_guest_has_its_own(tool):
    tool("create", "a", 1, 0, 0, UID)
    users = [tool.python("a", "user", SPIN) for _ in range(3)]
    guest = tool.python("a", "guest", SPIN)
    before, start = [cpu_seconds(pid) for pid in (*users, guest)], time.monotonic()
    time.sleep(1.5)
    used = [cpu_seconds(pid) - b for pid, b in zip((*users, guest), before)]
    assert sum(used[:3]) / (time.monotonic() - start) < 1.15, "one processor at most"
    assert used[3] > 0.1, "the guest answers while user is throttled"
    tool("limits", "a", 0, 0, 0)


def test_frozen_processes_stand_still_and_go_on(tool):
    tool("create", "a", 0, 0, 0, UID)
    pid = tool.python("a", "user", SPIN)
    eventually(lambda: tool.usage("a")["cpu_us"] > 20000)
    tool("freeze", "a", 1, 2000)
    before = tool.usage("a")["cpu_us"]
    time.sleep(0.3)
    assert tool.usage("a")["cpu_us"] - before < 5000
    tool("freeze", "a", 0, 2000)
    eventually(lambda: tool.usage("a")["cpu_us"] - before > 20000)
    with pytest.raises(ToolError, match="still runs"):
        tool("wait", pid, 0)


@pytest.mark.parametrize("frozen", [False, True])
def test_kill_ends_everything_whatever_it_does(tool, frozen):
    tool("create", "a", 0, 0, 0, UID)
    pid = tool.python("a", "user", ESCAPE)
    eventually(lambda: tool.usage("a")["processes"] >= 6)
    if frozen:
        tool("freeze", "a", 1, 2000)
    tool("kill", "a", 5000)
    assert tool("wait", pid, 1000) == "137"
    eventually(lambda: tool.usage("a")["processes"] == 0)  # the dead count until someone reaps them
    tool("remove", "a")
    assert tool("each") == ""
    tool("remove", "a")


def test_a_group_with_processes_is_not_removed(tool):
    tool("create", "a", 0, 0, 0, UID)
    tool("run", "a", "user", "sleep", "60")
    with pytest.raises(ToolError, match="busy"):
        tool("remove", "a")
    assert tool("each") == "a"


def test_names_and_duplicates_are_refused(tool):
    tool("create", "a", 0, 0, 0, UID)
    with pytest.raises(ToolError, match="already_exists"):
        tool("create", "a", 0, 0, 0, UID)
    assert tool("each") == "a"
    for name in ("..", "a/b", "x" * 65):
        with pytest.raises(ToolError, match="invalid_argument"):
            tool("create", name, 0, 0, 0, UID)
    for command in (("freeze", "no", 1, 10), ("kill", "no", 10), ("usage", "no"), ("limits", "no", 1, 1, 1)):
        with pytest.raises(ToolError, match="not_found"):
            tool(*command)


def test_says_whose_a_process_is(tool):
    tool("create", "a", 0, 0, 0, UID)
    tool("create", "a2", 0, 0, 0, UID)
    pid = tool("run", "a2", "user", "sleep", "60")
    guest = tool("run", "a2", "guest", "sleep", "60")
    outside = tool("fork", "sleep", "60")
    assert [tool("has", id, p) for id in ("a", "a2") for p in (pid, guest, outside)] == ["0", "0", "0", "1", "1", "0"]


def test_attach_moves_processes_that_run(instance, tool):
    if tool("mode").startswith("v2"):
        pytest.skip("nothing to attach: all is v2")
    tool("create", "a", 1, 100, 0, UID)
    init, daemon = tool("fork", "sleep", "60"), tool("fork", "sleep", "60")
    tool("attach", "a", init, daemon)
    for pid, group in ((init, "/user"), (daemon, "")):
        text = Path(f"/proc/{pid}/cgroup").read_text()
        assert re.search(rf"\bcpu(,\w+)*:\S*/abx-{instance}/sandboxes/a{group}$", text, re.M)
        assert re.search(rf"\bmemory(,\w+)*:\S*/abx-{instance}/sandboxes/a{group}$", text, re.M)
    for pid in (init, daemon):
        os.kill(int(pid), 9)
        tool("wait", pid, 1000)


def test_a_host_role_is_moved_out_and_finds_its_tree_again(tool, instance):
    before = sorted(own_groups(instance))
    tool("adopt", tool.process.pid)
    text = Path(f"/proc/{tool.process.pid}/cgroup").read_text()
    assert f"/abx-{instance}/host" in text
    # A tool that is started from there: same tree, no tree within the tree.
    pid = tool("fork", TOOL, *tool.args)
    assert tool("wait", pid, 5000) == "0"
    assert sorted(own_groups(instance)) == before
    tool.close()
    again = Tool(*tool.args)
    again("remove-tree")
    again.close()


def test_two_instances_do_not_see_each_other(tool, instance):
    other = Tool(instance + "b")
    other("create", "a", 0, 0, 0, UID)
    tool("create", "a", 0, 0, 0, UID + 65536)
    mine = tool("run", "a", "user", "sleep", "60")
    theirs = other("run", "a", "user", "sleep", "60")
    tool("kill", "a", 2000)
    assert tool("wait", mine, 1000) == "137"
    with pytest.raises(ToolError, match="still runs"):
        other("wait", theirs, 0)
    tool("remove", "a")
    assert (tool("each"), other("each")) == ("", "a")
    other("kill", "a", 2000)
    other("remove", "a")
    other("remove-tree")
    other.close()


DELEGATED = """
import os, sys
base = [l.split(":", 2)[2].strip() for l in open("/proc/self/cgroup") if l.startswith("0:")][0]
mount = [l.split()[4] for l in open("/proc/self/mountinfo") if " - cgroup2 " in l][0]
user = mount + base
def write(path, text):
    try:
        with open(path, "w") as f: f.write(text)
    except OSError as e:
        return e.errno
    return 0
os.mkdir(user + "/cmd")
steps = [write(user + "/cmd/cgroup.procs", str(os.getpid()))]          # own group for a command
steps.append(write(user + "/../guest/cgroup.procs", str(os.getpid())))   # back into guest, as a restarted daemon
steps.append(write(user + "/cgroup.procs", str(os.getpid())))
for limit in ("cgroup.freeze", "cgroup.kill", "cgroup.max.descendants", "../cgroup.freeze", "../cgroup.max.depth", "../cpu.max", "cpu.max"):
    steps.append(1 if write(user + "/" + limit, "1") else 0)            # the host's
try:
    os.mkdir(user + "/../mine"); steps.append(0)
except PermissionError:
    steps.append(1)
sys.exit(0 if steps[:3] == [0, 0, 0] and all(steps[3:]) else 1 + steps.index(next(s for i, s in enumerate(steps) if bool(s) != (i > 2))))
"""


def test_the_guest_makes_groups_below_user_and_changes_no_limit(instance):
    tool = Tool(instance)
    try:
        if tool("mode").startswith("v1"):
            pytest.skip("no v2 tree")
        tool("create", "a", 1, 0, 0, UID)
        pid = tool.python("a", "user", DELEGATED, f"uid={UID}")
        assert tool("wait", pid, 10000) == "0"
        tool("remove", "a")  # with the groups that the guest left
    finally:
        tool("remove-tree")
        tool.close()
    assert own_groups(instance) == []


def mounts_below(path):
    return [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines() if line.split()[4].startswith(str(path))]


def loops_of(path):
    return subprocess.run(["losetup", "-n", "-O", "NAME", "-j", path], capture_output=True, text=True, check=True).stdout.split()


def sync(path):
    subprocess.run(["sync", "-f", path], check=True)


def write_until_full(path, limit=400 * MIB):
    """Writes 64 KiB blocks until it fails; how many bytes went in, and the error."""
    block, n = os.urandom(65536), 0
    with open(path, "wb", buffering=0) as f:
        try:
            while n < limit:
                n += f.write(block)
            os.fsync(f.fileno())
        except OSError as e:
            return n, e.errno
    return n, 0


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
def disk(instance, data):
    t = Tool(instance)
    kind, path, *_ = t("pool", data / "d", 1024).split(" ", 2)
    t.pool, t.kind = Path(path), kind
    yield t
    t("remove-tree")
    t.close()


@pytest.fixture
def overlay(disk):
    """An overlay whose upper is limited to 40 MiB, over a folder with a setuid program."""
    lower, merged = disk.pool.parents[1] / "lower", disk.pool.parents[1] / "merged"
    lower.mkdir(mode=0o755)
    merged.mkdir()
    subprocess.run(["cp", "/usr/bin/id", lower / "id"], check=True)
    (lower / "id").chmod(0o4755)
    disk("upper", "a", 40 * 1024)
    upper = disk.pool / "uppers/a"
    options = f"lowerdir={lower},upperdir={upper}/u,workdir={upper}/w,redirect_dir=on,index=off,metacopy=off"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, merged], check=True)
    yield merged
    subprocess.run(["umount", merged], check=True)


def test_the_pool_is_private_and_its_mount_nosuid_nodev(disk):
    assert disk.kind == "btrfs-image"
    for path in (disk.pool, disk.pool.parent):
        st = path.stat()
        assert (st.st_uid, st.st_mode & 0o777) == (0, 0o700)
    options = next(line.split()[5] for line in Path("/proc/self/mountinfo").read_text().splitlines() if line.split()[4] == str(disk.pool))
    assert {"nosuid", "nodev"} <= set(options.split(","))


def test_an_upper_is_full_at_its_limit_and_its_neighbour_is_not(disk):
    disk("upper", "a", 40 * 1024)
    disk("upper", "b", 40 * 1024)
    n, error = write_until_full(disk.pool / "uppers/a/u/x")
    assert error in (28, 122), "ENOSPC or EDQUOT"
    assert 36 * MIB < n <= 41 * MIB
    assert write_until_full(disk.pool / "uppers/b/u/x", 20 * MIB) == (20 * MIB, 0)
    sync(disk.pool)
    assert abs(int(disk("upper-usage", "b")) - 20 * MIB) < MIB
    disk("upper-limit", "a", 60 * 1024)
    n, error = write_until_full(disk.pool / "uppers/a/u/y")
    assert error in (28, 122) and 16 * MIB < n <= 21 * MIB
    disk("upper-limit", "a", 0)
    assert write_until_full(disk.pool / "uppers/a/u/z", 70 * MIB) == (70 * MIB, 0)


def test_removing_files_gives_room_again(disk):
    disk("upper", "a", 40 * 1024)
    for _ in range(3):
        n, _ = write_until_full(disk.pool / "uppers/a/u/x")
        assert n > 36 * MIB
        (disk.pool / "uppers/a/u/x").unlink()
        sync(disk.pool)


def test_the_limit_holds_through_an_overlay(overlay):
    n, error = write_until_full(overlay / "x")
    assert error in (28, 122)
    assert 36 * MIB < n <= 41 * MIB


@pytest.mark.slow
def test_many_small_files_count_too(overlay, disk):
    disk("upper-limit", "a", 3 * 1024)
    with pytest.raises(OSError) as e:
        for i in range(200000):
            (overlay / f"f{i}").write_bytes(b"x" * 100)
    assert e.value.errno in (28, 122)


def test_setuid_programs_work_over_a_nosuid_pool(overlay):
    for step in ("from the lower layer", "copied up"):
        out = subprocess.run([overlay / "id", "-u"], capture_output=True, text=True, user=1000, group=1000, extra_groups=[], check=True)
        assert out.stdout == "0\n", step
        os.utime(overlay / "id")


def test_trash_is_fast_and_emptied_later(disk):
    for id in ("a", "b", "c"):
        disk("upper", id, 40 * 1024)
    deep = disk.pool / "uppers/a/u"
    for i in range(60):
        deep = deep / f"d{i}"
    deep.mkdir(parents=True)
    (deep / "file").write_bytes(b"x" * MIB)
    disk("trash", "a")
    disk("trash", "a")
    disk("trash", "no")
    assert sorted(disk("uppers").split()) == ["b", "c"]
    assert len(os.listdir(disk.pool / "trash")) == 1
    disk("empty")
    assert os.listdir(disk.pool / "trash") == []
    with pytest.raises(ToolError, match="not_found"):
        disk("upper-usage", "a")
    disk("upper", "a", 40 * 1024)
    with pytest.raises(ToolError, match="already_exists"):
        disk("upper", "a", 40 * 1024)


@pytest.mark.slow
def test_quota_groups_of_removed_uppers_do_not_stay(disk):
    def groups():
        out = subprocess.run(["btrfs", "qgroup", "show", "--raw", disk.pool], capture_output=True, text=True, check=True).stdout
        return len(re.findall(r"^0/\d{3,}", out, re.M))

    for i in range(20):
        disk("upper", f"u{i}", 1024)
    assert groups() == 20
    for i in range(20):
        disk("trash", f"u{i}")
    disk("empty")


    def are_gone():
        sync(disk.pool)
        disk("empty")
        return groups() == 0

    eventually(are_gone, 90)  # the kernel's cleaner comes by every 30 s


def test_a_killed_engine_leaves_one_mount_that_the_next_one_uses(instance, data):
    first = Tool(instance)
    pool = Path(first("pool", data / "d", 1024).split(" ")[1])
    first("upper", "a", 1024)
    first.process.kill()
    first.process.wait()
    second = Tool(instance)
    assert second("pool", data / "d", 1024).split(" ")[1] == str(pool)
    assert second("uppers") == "a"
    assert mounts_below(data) == [str(pool)]
    assert len(loops_of(pool.parent / "disk.img")) == 1
    second("unmount")
    assert mounts_below(data) == []
    eventually(lambda: loops_of(pool.parent / "disk.img") == [])
    second("pool", data / "d", 0)
    assert second("uppers") == "a"
    second("remove-tree")
    second.close()


def test_an_image_that_is_mounted_elsewhere_is_not_opened_through_a_second_device(instance, data):
    first = Tool(instance)
    pool = Path(first("pool", data / "d", 1024).split(" ")[1])
    holder = subprocess.Popen(["unshare", "-m", "--propagation", "private", "sh", "-c", "echo; sleep 60"], stdout=subprocess.PIPE)
    holder.stdout.readline()
    try:
        first("unmount")
        assert len(loops_of(pool.parent / "disk.img")) == 1
        first("pool", data / "d", 1024)
        assert len(loops_of(pool.parent / "disk.img")) == 1
        first("upper", "a", 1024)
    finally:
        holder.kill()
        holder.wait()
        first("remove-tree")
        first.close()


def test_a_pool_in_use_is_not_unmounted(disk):
    disk("upper", "a", 1024)
    with open(disk.pool / "uppers/a/u/x", "w"):
        with pytest.raises(ToolError, match="busy"):
            disk("unmount")
        assert disk("uppers") == "a"
    disk("unmount")


def test_the_image_grows_and_never_shrinks(disk):
    def size():
        st = os.statvfs(disk.pool)
        return st.f_blocks * st.f_frsize // MIB

    assert size() == 1024
    disk("pool", disk.pool.parents[1], 2048)
    assert size() == 2048
    disk("pool", disk.pool.parents[1], 512)
    assert size() == 2048
    disk("unmount")
    disk("pool", disk.pool.parents[1], 3072)
    assert size() == 3072


@pytest.mark.parametrize("what", ["mode", "owner", "link", "parent"])
def test_a_pool_that_others_can_enter_is_refused(instance, data, what):
    pool = data / "d/pool"
    pool.mkdir(parents=True)
    pool.chmod(0o700)
    (data / "d").chmod(0o711)
    if what == "mode":
        pool.chmod(0o750)
    elif what == "owner":
        os.chown(pool, 1000, 0)
    elif what == "link":
        pool.rename(data / "elsewhere")
        pool.symlink_to(data / "elsewhere")
    else:
        (data / "d").chmod(0o777)
    tool = Tool(instance)
    with pytest.raises(ToolError, match="open to others|Not a directory|symbolic link"):
        tool("pool", data / "d", 1024)
    tool("remove-tree")
    tool.close()
    assert mounts_below(data) == []


def test_a_btrfs_data_dir_is_the_pool_itself(instance, data):
    image, mount = data / "host.img", data / "host"
    mount.mkdir()
    with open(image, "wb") as f:
        f.truncate(600 * MIB)
    subprocess.run(["mkfs.btrfs", "-q", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, mount], check=True)
    tool = Tool(instance)
    assert tool("pool", mount / "d", 1024) == f"btrfs {mount}/d/pool"
    tool("upper", "a", 40 * 1024)
    n, error = write_until_full(mount / "d/pool/uppers/a/u/x")
    assert error in (28, 122) and 36 * MIB < n <= 41 * MIB
    tool("trash", "a")
    tool("empty")
    tool("remove-tree")
    tool.close()


def has_xfs_quota(folder):
    """Can this kernel mount xfs with project quotas? Also leaves that file system mounted on folder/host."""
    image, mount = folder / "xfs.img", folder / "host"
    mount.mkdir()
    with open(image, "wb") as f:
        f.truncate(400 * MIB)
    subprocess.run(["mkfs.xfs", "-q", "-m", "reflink=1", image], check=True)
    return subprocess.run(["mount", "-o", "loop,prjquota", image, mount], stderr=subprocess.DEVNULL).returncode == 0


def check_limit(tool, pool):
    tool("upper", "a", 40 * 1024)
    tool("upper", "b", 40 * 1024)
    n, error = write_until_full(pool / "uppers/a/u/x")
    assert error in (28, 122) and 36 * MIB < n <= 41 * MIB
    assert write_until_full(pool / "uppers/b/u/x", 20 * MIB) == (20 * MIB, 0)
    sync(pool)
    assert abs(int(tool("upper-usage", "b")) - 20 * MIB) < MIB
    tool("upper-limit", "a", 60 * 1024)
    n, error = write_until_full(pool / "uppers/a/u/y")
    assert error in (28, 122) and 16 * MIB < n <= 21 * MIB
    tool("trash", "a")
    tool("empty")
    assert tool("uppers") == "b"


def test_an_xfs_data_dir_with_project_quotas_is_the_pool_itself(instance, data):
    if not has_xfs_quota(data):
        pytest.skip("no project quotas for xfs in this kernel")
    tool = Tool(instance)
    assert tool("pool", data / "host/d", 1024) == f"xfs {data}/host/d/pool"
    check_limit(tool, data / "host/d/pool")
    tool("remove-tree")
    tool.close()


WITHOUT_BTRFS = ("unshare", "-m", "sh", "-c", 'mount --bind /dev/null "$(realpath /usr/sbin/mkfs.btrfs)" && exec "$0" "$@"')


def test_without_btrfs_the_image_is_xfs_or_the_pool_a_folder(instance, data):
    (data / "try").mkdir()
    quota = has_xfs_quota(data / "try")
    tool = Tool(instance, prefix=WITHOUT_BTRFS)
    kind, path, *why = tool("pool", data / "d", 1024).split(" ", 2)
    if quota:
        assert (kind, why) == ("xfs-image", [])
        pool = Path(f"/proc/{tool.process.pid}/root{path}")  # mounted there only
        check_limit(tool, pool)
        tool("pool", data / "d", 1500)
        st = os.statvfs(pool)
        assert st.f_blocks * st.f_frsize > 1300 * MIB
        assert tool("uppers") == "b"
        tool("unmount")
    else:
        assert kind == "plain"
        assert "xfs" in why[0]
        assert not (data / "d/pool/disk.img").exists()
    tool("remove-tree")
    tool.close()


def test_two_pools_side_by_side(disk, instance, data):
    other = Tool(instance + "b")
    path = Path(other("pool", data / "e", 1024).split(" ")[1])
    disk("upper", "a", 1024)
    other("upper", "b", 1024)
    assert (disk("uppers"), other("uppers")) == ("a", "b")
    other("unmount")
    assert mounts_below(data) == [str(disk.pool)]
    assert not (path / "uppers").exists()
    other("remove-tree")
    other.close()


def test_a_folder_that_was_used_without_an_image_stays_one(instance, data):
    pool = data / "d/pool"
    (pool / "uppers/a/u").mkdir(parents=True)
    for path in (pool, pool / "uppers", pool / "uppers/a"):
        path.chmod(0o700)
    (data / "d").chmod(0o711)
    tool = Tool(instance)
    assert tool("pool", data / "d", 1024).startswith(f"plain {pool} it was one before")
    assert tool("uppers") == "a"
    tool("upper", "b", 1024)
    tool("trash", "b")
    tool("empty")
    assert os.listdir(pool / "trash") == []
    with pytest.raises(ToolError, match="unimplemented"):
        tool("upper-usage", "a")
    tool("remove-tree")
    tool.close()


def probe(*args, prefix=()):
    run = subprocess.run([*prefix, TOOL, "--probe", *map(str, args)], capture_output=True, text=True, timeout=60)
    result = json.loads(run.stdout)
    assert run.returncode == (0 if result["can_run"] else 1)
    checks = {c["name"]: c for c in result["checks"]}
    assert len(checks) == len(result["checks"]) >= 20
    for c in checks.values():
        assert set(c) == {"name", "status", "value", "meaning", "fix"}
        assert c["value"] and c["status"] in ("ok", "info", "degraded", "missing")
        if c["status"] in ("degraded", "missing"):
            assert c["fix"], f"{c['name']} says no way out"
    return checks


def left_by_probes():
    return own_groups("probe*") + [p for p in os.listdir("/var/tmp") if p.startswith(".abx-probe")]


def test_the_probe_finds_all_that_the_other_tests_use(data):
    checks = probe("--data-dir", data / "not/there")
    for name in ("root", "kernel", "user-namespaces", "proc-mount", "seccomp", "idmapped-mounts", "overlay", "cgroup-limits", "freeze-and-kill", "network-namespaces", "disk-limits"):
        assert checks[name]["status"] == "ok", checks[name]
    assert os.listdir(data) == []
    assert own_groups("probe*") == []
    assert mounts_below(data) == []


def test_the_probe_says_what_a_container_lacks():
    hidden = probe("--data-dir", "/var/tmp/x", prefix=("unshare", "-m", "sh", "-c", 'mount -t tmpfs none /proc/sys && exec "$0" "$@"'))
    assert hidden["proc-mount"]["status"] == "missing"
    assert "systempaths=unconfined" in hidden["proc-mount"]["fix"]
    weak = probe("--data-dir", "/var/tmp/x", prefix=("setpriv", "--bounding-set", "-sys_admin,-kill"))
    assert weak["root"]["value"] == "root without CAP_KILL CAP_SYS_ADMIN"
    assert {weak[name]["status"] for name in ("root", "user-namespaces", "idmapped-mounts", "overlay")} == {"missing"}
    user = probe("--data-dir", "/var/tmp/x", prefix=("setpriv", "--reuid", "1000", "--clear-groups", "--inh-caps=-all"))
    assert user["root"]["status"] == "missing"
    elsewhere = probe("--data-dir", "/proc/x")
    assert elsewhere["overlay"]["status"] == "missing"
    assert left_by_probes() == []


def test_the_probe_sees_a_disk_that_cannot_be_mapped(data):
    ramfs = probe("--data-dir", data / "x", prefix=("unshare", "-m", "sh", "-c", f'mount -t ramfs none {data} && exec "$0" "$@"'))
    assert ramfs["idmapped-mounts"]["status"] == "missing"
    assert "ramfs" in ramfs["idmapped-mounts"]["value"]


def test_the_probe_explains_itself_to_people():
    run = subprocess.run([TOOL, "--probe", "--text", "--data-dir", "/proc/x"], capture_output=True, text=True)
    assert run.returncode == 1
    assert re.search(r"^missing   overlay .*\n +the data dir can't be written\n +to get it: --data-dir", run.stdout, re.M)
    assert subprocess.run([TOOL, "--probe", "--what"], capture_output=True).returncode == 2


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
        eventually(lambda: "populated 0" in (path / "cgroup.events").read_text())
        path.rmdir()


INTO_GROUP = 'echo $$ >{group}/cgroup.procs; sleep 60 </dev/null >/dev/null 2>&1 & exec {wrap}"$0" "$@"'
NAMESPACED = "unshare -C -m sh -c 'umount /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup && exec \"$0\" \"$@\"' "


@pytest.mark.parametrize("wrap", ["", NAMESPACED], ids=["group", "container"])
def test_processes_of_the_own_group_are_moved_to_a_leaf(crowded_group, instance, wrap):
    tool = Tool(instance, prefix=("sh", "-c", INTO_GROUP.format(group=crowded_group, wrap=wrap)))
    assert tool("mode") == "v2 memory=1 cpu=1 pids=1"
    assert (crowded_group / "cgroup.procs").read_text() == ""
    inside = (crowded_group / f"abx-{instance}/host/cgroup.procs").read_text().split()
    assert str(tool.process.pid) in inside and len(inside) >= 2
    tool("create", "a", 0, 64, 0, UID)
    hog = tool.python("a", "user", HOG % 200)
    assert tool("wait", hog, 20000) == "137"
    tool("remove", "a")
    # Started again from the leaf: the same tree.
    again = tool("fork", TOOL, instance)
    assert tool("wait", again, 5000) == "0"
    assert [p.name for p in crowded_group.iterdir() if p.is_dir()] == [f"abx-{instance}"]
    tool.close()


SYSTEMD = """unshare -m sh -c 'mkdir -p /run/systemd && mount -t tmpfs none /run/systemd && mkdir /run/systemd/system && exec "$0" "$@"' """


@pytest.mark.parametrize("delegated", [True, False])
def test_systemd_s_own_groups_are_left_alone(crowded_group, instance, delegated):
    """A unit with Delegate=yes is ours to divide; a login session's scope is not."""
    if delegated:
        os.setxattr(crowded_group, "trusted.delegate", b"1")
    tool = Tool(instance, prefix=("sh", "-c", INTO_GROUP.format(group=crowded_group, wrap=SYSTEMD)))
    assert tool("mode") == "v2 memory=1 cpu=1 pids=1"
    inside = (crowded_group / f"abx-{instance}").exists()
    outside = (crowded_group.parent / f"abx-{instance}").exists()
    moved = str(tool.process.pid) not in (crowded_group / "cgroup.procs").read_text().split()
    assert (inside, outside, moved) == (delegated, not delegated, delegated)
    if not delegated:
        tool("remove-tree")
    tool.close()


def test_the_probe_moves_no_process(crowded_group):
    checks = probe("--data-dir", "/var/tmp/x", prefix=("sh", "-c", INTO_GROUP.format(group=crowded_group, wrap="")))
    assert checks["cgroup-limits"]["status"] == "ok"
    assert "will move" in checks["cgroup-limits"]["value"]
    assert len((crowded_group / "cgroup.procs").read_text().split()) == 1
    assert [p.name for p in crowded_group.iterdir() if p.is_dir()] == []
