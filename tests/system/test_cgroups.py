"""Limits of sandboxes as the kernel holds them in cgroups, driven through tests/tools/limits_tool.c.

Needs root. Every test has an instance of its own and leaves no cgroup behind.
"""

import os
import re
import time
from pathlib import Path

import pytest
from limits import HOG, INTO_GROUP, MIB, TOOL, UID, Tool, ToolError, crowded_group, instance, own_groups  # noqa: F401
from waiting import until

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


def has_v1_freezer():
    return any(re.search(r" - cgroup \S+ (\S*,)?freezer(,|$)", line) for line in Path("/proc/self/mountinfo").read_text().splitlines())


def stat(pid):
    """Fields of /proc/<pid>/stat behind the name: state first."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def cpu_seconds(pid):
    return sum(map(int, stat(pid)[11:13])) / os.sysconf("SC_CLK_TCK")


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
    until(lambda: tool.usage("small")["memory"] > 20 * MIB)
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
    until(lambda: tool.usage("a")["memory"] > 120 * MIB)
    tool("limits", "a", 0, 200, 0)
    with pytest.raises(ToolError, match="still runs"):
        tool("wait", pid, 0)
    assert tool.usage("a")["oom_kills"] == 0


def test_user_code_at_its_limit_leaves_the_guest_room(tool):
    """64 MiB more than the limit are for the daemon: user code cannot have them."""
    tool("create", "a", 0, 100, 0, UID)
    daemon = tool.python("a", "guest", HOG % 20)
    user = tool.python("a", "user", HOG % 90)
    until(lambda: tool.usage("a")["memory"] > 110 * MIB)
    assert tool.usage("a")["oom_kills"] == 0
    hog = tool.python("a", "user", HOG % 30)
    # The kernel may take both, when the second one faults while the first is still ending.
    ended = until(lambda: [p for p in (user, hog) if stat(p)[0] == "Z"])
    assert {tool("wait", pid, 10000) for pid in ended} == {"137"}
    with pytest.raises(ToolError, match="still runs"):
        tool("wait", daemon, 0)


def test_guest_and_user_together_are_bounded(tool):
    tool("create", "a", 0, 100, 0, UID)
    pids = [tool.python("a", "guest", HOG % 120), tool.python("a", "user", HOG % 90)]
    ended = until(lambda: [p for p in pids if stat(p)[0] == "Z"])
    assert {tool("wait", pid, 10000) for pid in ended} == {"137"}


def test_fork_fails_at_the_limit_of_processes(tool):
    tool("create", "a", 0, 0, 10, UID)
    pid = tool.python("a", "user", FORKS)
    assert tool("wait", pid, 60000) == "9"
    assert tool("create", "b", 0, 0, 0, UID) == ""


def test_processor_time_is_limited_in_user_and_the_guest_has_its_own(tool):
    tool("create", "a", 1, 0, 0, UID)
    users = [tool.python("a", "user", SPIN) for _ in range(3)]
    guest = tool.python("a", "guest", SPIN)
    start = time.monotonic()  # what lies between the looks at clock and processor is in the time, not in what they used
    before = [cpu_seconds(pid) for pid in (*users, guest)]
    time.sleep(1.5)
    used = [cpu_seconds(pid) - b for pid, b in zip((*users, guest), before)]
    assert sum(used[:3]) / (time.monotonic() - start) < 1.15, "one processor at most"
    until(lambda: cpu_seconds(guest) - before[3] > 0.1)  # it answers while user is throttled
    tool("limits", "a", 0, 0, 0)


def test_frozen_processes_stand_still_and_go_on(tool):
    tool("create", "a", 0, 0, 0, UID)
    pid = tool.python("a", "user", SPIN)
    until(lambda: tool.usage("a")["cpu_us"] > 20000)
    tool("freeze", "a", 1, 60000)
    before = tool.usage("a")["cpu_us"]
    time.sleep(0.3)
    assert tool.usage("a")["cpu_us"] - before < 5000
    tool("freeze", "a", 0, 60000)
    until(lambda: tool.usage("a")["cpu_us"] - before > 20000)
    with pytest.raises(ToolError, match="still runs"):
        tool("wait", pid, 0)


@pytest.mark.parametrize("frozen", [False, True])
def test_kill_ends_everything_whatever_it_does(tool, frozen):
    tool("create", "a", 0, 0, 0, UID)
    pid = tool.python("a", "user", ESCAPE)
    until(lambda: tool.usage("a")["processes"] >= 6)
    if frozen:
        tool("freeze", "a", 1, 60000)
    tool("kill", "a", 60000)
    assert tool("wait", pid, 60000) == "137"
    until(lambda: tool.usage("a")["processes"] == 0)  # the dead count until someone reaps them
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
        tool("wait", pid, 60000)


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
import errno, os, sys
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
steps.append(1 if write(user + "/cgroup.subtree_control", "") == errno.EACCES else 0)
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
