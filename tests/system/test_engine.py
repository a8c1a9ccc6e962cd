"""abx-engine as a process: create, claim, kill, freeze, crash and adoption, driven through tests/tools/engine_tool.c with
tests/tools/fake_guest.c inside the sandboxes.

Needs root. Every engine has an instance, a data dir and a run dir of its own; at the end nothing of it is left.
"""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import processes
import pytest
import sanitizers
from conftest import compiler_env
from processes import alive, wait_gone
from waiting import BUSY_S, until

BUILD = Path(os.environ.get("ABX_BUILD") or Path(__file__).resolve().parents[2] / "build")
PORT = 49983


def processes_of(exe, *words):
    """Pids of processes that run `exe` with all `words` on their command line."""
    found = []
    for pid in processes.every():
        line = (processes.read(pid, "cmdline") or "").split("\0")
        if line[0].endswith(exe) and all(w in line for w in words):
            found.append(pid)
    return found


class Tool:
    """One engine_tool, thus one connection of control and one of a gateway."""

    def __init__(self, run_dir):
        self.process = subprocess.Popen(
            [BUILD / "tests/tools/engine_tool", run_dir / "engine.sock", run_dir / "engine-gateway.sock"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def send(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def receive(self):
        return self.process.stdout.readline().rstrip("\n")

    def __call__(self, line):
        """The answer without "ok" and the time; fails on an error."""
        answer = self.error(line)
        assert answer.startswith("ok "), f"{line}: {answer}"
        return answer.split(" ", 2)[2] if answer.count(" ") > 1 else ""

    def error(self, line):
        self.send(line)
        return self.receive()

    def fields(self, line):
        return dict(re.findall(r"(\w+)=(\S+)", self(line)))

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)


class Engine:
    def __init__(self, folder, guest):
        self.instance = "t" + uuid.uuid4().hex[:8]
        self.folder = folder
        self.data = folder / "data"
        self.run = Path("/run/abx") / self.instance
        self.guest = guest
        self.templates = folder / "templates"
        self.process = None
        self.tools = []
        self.log = folder / "engine.log"

    def add_template(self, name, created="2026-01-01T00:00:00Z", more=""):
        rootfs = self.templates / f"{name}-{created[:4]}" / "rootfs"
        for part in ("proc", "sys", "dev", "tmp", "etc", "run", "home", "usr/bin", "root", "var/tmp"):
            (rootfs / part).mkdir(parents=True)
        (rootfs.parent / "template.json").write_text(
            f'{{"name":"{name}","digest":"{name}{created[:4]}","created":"{created}"{more}}}'
        )

    def start(self, *args):
        self.args = args
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [BUILD / "libexec/abx-engine", "--data-dir", self.data, "--run-dir", self.run]
                + ["--instance", self.instance, "--guest", self.guest, "--templates", self.templates]
                + ["--disk", "2G", "--sandbox-memory-mb", "64", "--sandbox-disk-mb", "64", *args],
                stdout=log,
                stderr=log,
                env={**os.environ, "ABX_LOG_LEVEL": "info"},
            )
        seen = self.log.read_text().count("engine ready")
        until(lambda: self.log.read_text().count("engine ready") > seen or self.is_over(), "engine ready")
        assert not self.is_over(), self.log.read_text()
        return self.tool()

    def is_over(self):
        return self.process.poll() is not None

    def tool(self):
        tool = Tool(self.run)
        self.tools.append(tool)
        return tool

    def kill9(self):
        self.process.kill()
        self.process.wait()

    def stop(self, sig=signal.SIGTERM):
        self.process.send_signal(sig)
        assert self.process.wait(timeout=60) == 0, self.log.read_text()

    def workers(self, kind):
        return [
            p for p in processes_of("abx-engine", "--worker", kind, self.instance) if alive(p)
        ]

    def tops(self):
        """The instance's own group in every hierarchy."""
        return [Path(at) / name for at, names, _ in os.walk("/sys/fs/cgroup") for name in names
                if name == f"abx-{self.instance}"]

    def inits(self):
        """Pids of all sandboxes' PID 1, pooled ones too."""
        found = set()
        for top in self.tops():
            for at, _, _ in os.walk(top / "sandboxes"):
                if at.endswith("/user"):
                    try:
                        found |= {int(p) for p in (Path(at) / "cgroup.procs").read_text().split()}
                    except OSError:
                        pass  # removed meanwhile
        return found

    def groups(self):
        return {p.name for top in self.tops() for p in (top / "sandboxes").iterdir() if p.is_dir()}

    def records(self):
        return {p.name for p in (self.run / "sandboxes").iterdir()}

    def clean_up(self):
        for tool in self.tools:
            tool.close()
        if self.process and self.is_over():
            self.start()
            self.tools[-1].close()
        if self.process:
            self.stop(signal.SIGINT)
            assert self.records() == set()
            assert self.groups() == set()
            assert str(self.data) not in Path("/proc/self/mountinfo").read_text()
        subprocess.run(["rm", "-rf", self.run], check=True)
        for top in self.tops():
            for group in sorted((p for p in top.rglob("*") if p.is_dir()), reverse=True):
                group.rmdir()
            top.rmdir()


@pytest.fixture
def engines(tmp_path):
    made = []

    def make():
        folder = tmp_path / f"e{len(made)}"
        folder.mkdir()
        engine = Engine(folder, BUILD / "tests/tools/fake_guest")
        engine.add_template("base")
        made.append(engine)
        return engine

    yield make
    for engine in made:
        engine.clean_up()


@pytest.fixture
def engine(engines):
    return engines()


def pids_of(tool):
    """sandbox id -> pid"""
    return {row.split(":")[0]: int(row.split(":")[1]) for row in tool("list").split()}


def expect_clean(tool):
    """On a busy machine both looks of one audit may fall between the lease of a coming slot and its record."""
    until(lambda: tool("audit") == "findings=0 repaired=0", lambda: f"a clean audit: {tool('audit')}")


# --- create and kill ---------------------------------------------------------------------------------------------------


def test_links_no_library_that_parses_foreign_bytes():
    needed = subprocess.run(
        ["readelf", "-d", BUILD / "libexec/abx-engine"], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    linked = re.findall(r"NEEDED.*\[(\S+)\]", needed)
    assert any(name.startswith("libuv") for name in linked)
    assert not [name for name in linked if re.match(r"lib(jansson|sqlite3|ssl|crypto|nghttp2|curl|archive)", name)]


def test_cold_create_and_kill(engine):
    tool = engine.start()
    made = tool.fields("create a base")
    assert made["warm"] == "0" and made["memory"] == "64" and len(made["execution"]) == 36
    pid = pids_of(tool)["a"]
    assert alive(pid)
    assert tool(f"ask a {PORT} hostname") == "host-a"
    assert bytes.fromhex(tool(f"ask a {PORT} identity")).count(b"token-for-tests") == 1
    assert tool(f"ask a {PORT} uid") == "0"
    assert tool.fields("usage a")["processes"] == "2"
    assert tool("kill a") == "existed=1"
    wait_gone([pid])
    assert tool("list") == ""
    assert tool("kill a") == "existed=0"
    assert tool.error(f"sockets a {PORT} 1").startswith("err not_found")
    expect_clean(tool)


def test_cold_create_by_the_second_mount_path(engine):
    tool = engine.start("--mount-path", "string", "--pool", "base=1")
    assert tool.fields("info")["mount"] == "string"
    tool("creates 3 a base")
    assert tool(f"ask a2 {PORT} hostname") == "host-a2"
    assert tool("kills 3 a") == "done=3 failed=0 "
    expect_clean(tool)


def test_bad_requests_are_refused(engine):
    tool = engine.start("--max-memory-mb", "128")
    assert tool.error("create a nothing").startswith("err not_found")
    assert tool.error("create ../a base").startswith("err invalid_argument")
    assert tool.error("create a base 1 129 64").startswith("err invalid_argument")
    assert tool("create a base 1 128 32")
    assert tool.error("create a base").startswith("err already_exists")
    assert tool.error("sockets a 0 1").startswith("err permission_denied")
    assert tool.error("sockets a 70000 1").startswith("err invalid_argument")
    assert tool.error("sockets a 80 17").startswith("err invalid_argument")
    assert tool("sockets a 80 16") == "n=16"
    assert tool.error("freeze b").startswith("err not_found")
    expect_clean(tool)


def test_warm_create_is_a_claim(engine):
    tool = engine.start("--pool", "base=2")
    until(lambda: tool.fields("info")["pooled"] == "2", "a full pool")
    assert tool("list") == ""
    waiting = engine.inits()
    made = tool.fields("create a base")
    assert made["warm"] == "1"
    assert pids_of(tool)["a"] in waiting
    assert tool(f"ask a {PORT} hostname") == "host-a"
    assert b"token-for-tests" in bytes.fromhex(tool(f"ask a {PORT} identity"))
    other = tool.fields("create b base 1 32 32")  # other sizes: set at the claim
    assert (other["warm"], other["memory"]) == ("1", "32")
    until(lambda: tool.fields("info")["pooled"] == "2", "a refilled pool")
    assert tool("kills 1 a").startswith("done=1")
    expect_clean(tool)


def test_the_guest_learns_its_templates_user_and_folder(engine):
    """Fields 5 and 6 of the identity; made cold, and claimed from a pool."""
    engine.add_template("own", more=',"default_user":"builder","default_workdir":"/srv/app"')
    tool = engine.start("--pool", "own=1")
    until(lambda: tool.fields("info")["pooled"] == "1", "a full pool")
    assert tool.fields("create a own")["warm"] == "1"
    assert tool.fields("create b base")["warm"] == "0"
    assert b"\x2a\x07builder\x32\x08/srv/app" in bytes.fromhex(tool(f"ask a {PORT} identity"))
    assert b"\x2a" not in bytes.fromhex(tool(f"ask b {PORT} identity"))
    assert tool("kills 2 a b").startswith("done=2")


def test_hundred_creates_at_once(engine):
    tool = engine.start("--pool", "base=5", "--sandbox-memory-mb", "32")
    until(lambda: tool.fields("info")["pooled"] == "5", "a full pool")
    assert tool("creates 100 x base").startswith("done=100 failed=0")
    pids = pids_of(tool)
    assert len(set(pids.values())) == 100
    for i in (0, 50, 99):
        assert tool(f"ask x{i} {PORT} hostname") == f"host-x{i}"
    assert tool("kills 100 x").startswith("done=100 failed=0")
    wait_gone(pids.values())
    expect_clean(tool)


def test_many_short_lives_end_without_a_trace(engine):
    tool = engine.start("--pool", "base=4")
    before = len(list(Path(f"/proc/{engine.process.pid}/fd").iterdir()))
    assert "create_p50" in tool("bench 300 base")  # fails on the first error: the pool has to stay writable
    assert tool("list") == ""
    expect_clean(tool)
    until(lambda: tool.fields("info")["pooled"] == "4", "a full pool")
    # Slots have eight each, ready sandboxes six, and were not all there at first; 300 lives would have left 300 or more.
    assert len(list(Path(f"/proc/{engine.process.pid}/fd").iterdir())) < before + 16 * 8 + 4 * 6 + 40
    assert len(engine.groups()) <= 4 + 16


@pytest.mark.parametrize("mount", ["auto", "string"])
def test_templates_come_and_go_while_the_engine_runs(engine, mount):
    """Folder and all: workers cut their view of the machine down when they start."""
    shutil.rmtree(engine.templates)
    tool = engine.start("--mount-path", mount, "--pool", "base=1")
    [told] = [line for line in engine.log.read_text().splitlines() if "no template yet: 'abx template build-base' makes one" in line]
    assert str(engine.templates) in told
    assert "err not_found" in tool.error("create a base")
    for i in range(2):
        engine.add_template("base")
        (engine.templates / "base-2026/rootfs/etc/made").write_text(str(i))
        assert "base:base2026" in tool("templates")
        until(lambda: tool.fields("info")["pooled"] == "1", "a full pool")
        tool("creates 3 a base")  # from the pool, in slots and in a slot to come
        assert {Path(f"/proc/{pid}/root/etc/made").read_text() for pid in pids_of(tool).values()} == {str(i)}
        assert tool("kills 3 a") == "done=3 failed=0 "
        shutil.rmtree(engine.templates)
        tool("templates")
        until(lambda: tool.fields("info")["pooled"] == "0", "an empty pool")
        assert "err not_found template 'base' not found" in tool.error("create a base")
    expect_clean(tool)


def test_only_a_template_that_is_gone_is_not_found(engine):
    """What the engine knew of it is asked again when it cannot be opened."""
    tool = engine.start()
    tool("create a base")
    shutil.rmtree(engine.templates / "base-2026")
    assert tool.error("create b base").startswith("err not_found template 'base-2026' not found")
    expect_clean(tool)


def test_newer_template_replaces_the_pool(engine):
    tool = engine.start("--pool", "base=1")
    until(lambda: tool.fields("info")["pooled"] == "1", "a full pool")
    old = engine.inits()
    engine.add_template("base", "2027-01-01T00:00:00Z")
    assert "base:base2027" in tool("templates")
    until(lambda: not old & engine.inits(), "the old one's end")
    until(lambda: tool.fields("info")["pooled"] == "1", "a full pool")
    assert tool.fields("create a base")["warm"] == "1"
    expect_clean(tool)


# --- freeze and death --------------------------------------------------------------------------------------------------


def test_frozen_sandbox_refuses_sockets_and_can_be_killed(engine):
    tool = engine.start()
    tool("create a base")
    tool(f"ask a {PORT} fork 20")
    assert tool("freeze a").startswith("us=")
    assert tool("freeze a").startswith("us=")  # what a crash left may be half of it: done once more
    assert tool.error(f"sockets a {PORT} 1").startswith("err failed_precondition")
    assert tool("list").endswith(":1")
    assert tool("thaw a").startswith("us=")
    assert tool(f"ask a {PORT} hostname") == "host-a"
    tool("freeze a")
    pid = pids_of(tool)["a"]
    assert tool("kill a") == "existed=1"
    wait_gone([pid])
    expect_clean(tool)


def test_death_is_told_and_cleaned_up(engine):
    tool = engine.start()
    gateway = engine.tool()
    gateway.error(f"sockets none {PORT} 1")  # connects
    tool("create a base")
    tool.error(f"ask a {PORT} exit 7")
    died = tool.fields("died")
    assert (died["id"], died["reason"]) == ("a", "exit")
    assert os.waitstatus_to_exitcode(int(died["status"])) == 7
    assert gateway.fields("died-gateway")["id"] == "a"
    until(lambda: tool("list") == "", "its end")
    assert tool.error(f"sockets a {PORT} 1").startswith("err not_found")
    expect_clean(tool)
    tool("create a base")  # the id is free again
    os.kill(pids_of(tool)["a"], signal.SIGKILL)
    assert tool.fields("died")["reason"] == "signal"


# --- crashes -----------------------------------------------------------------------------------------------------------


def test_adoption_keeps_processes(engine):
    tool = engine.start("--pool", "base=1")
    until(lambda: tool.fields("info")["pooled"] == "1", "a full pool")
    tool("creates 5 a base")
    tool("freeze a1")
    pids = pids_of(tool)
    for end in (engine.kill9, engine.stop):
        end()
        assert all(alive(p) for p in pids.values())
        tool = engine.start("--pool", "base=1")
        assert pids_of(tool) == pids
        assert [row for row in tool("list").split() if row.endswith(":1")] == [f"a1:{pids['a1']}:1"]
        assert tool.error(f"sockets a1 {PORT} 1").startswith("err failed_precondition")
        assert tool(f"ask a2 {PORT} hostname") == "host-a2"
        assert tool.error("create a2 base").startswith("err already_exists")
        expect_clean(tool)
    tool("thaw a1")
    assert tool(f"ask a1 {PORT} hostname") == "host-a1"
    os.kill(pids["a3"], signal.SIGKILL)
    assert tool.fields("died")["id"] == "a3"
    assert tool("kills 5 a").startswith("done=5")
    wait_gone(pids.values())
    expect_clean(tool)


def test_dead_while_no_engine_ran_is_removed(engine):
    tool = engine.start()
    tool("creates 2 a base")
    pids = pids_of(tool)
    engine.kill9()
    os.kill(pids["a0"], signal.SIGKILL)
    tool = engine.start()
    assert pids_of(tool) == {"a1": pids["a1"]}
    until(lambda: tool("audit") == "findings=0 repaired=0", "a clean audit")


def test_ranges_that_another_service_took_meanwhile_are_no_error(engine):
    """While no engine runs, the ranges of its prepared slots are anybody's (userns.h)."""
    leases = engine.folder / "leases"
    tool = engine.start("--uid-leases", leases)
    tool("create a base")
    until(lambda: len(engine.records()) > 1, "a prepared slot")
    tool("kill a")
    engine.kill9()
    until(lambda: not engine.workers("prepare"), "the workers' end")
    head, size = 64, 64
    table = bytearray(leases.read_bytes())
    own = [at for at in range(head, len(table), size) if table[at:].startswith(engine.instance.encode() + b"\0")]
    assert own
    for at in own:
        table[at : at + len(engine.instance)] = b"x" * len(engine.instance)
    with leases.open("r+b") as f:  # the same file: it is what is locked
        f.write(table)
    engine.start("--uid-leases", leases)
    engine.stop(signal.SIGINT)
    log = engine.log.read_text()
    assert "belongs to another service" in log and " error " not in log, log


@pytest.mark.parametrize("seed", range(3))
def test_kill9_of_the_engine_at_random_points(engine, seed):
    rng = random.Random(seed)
    tool = engine.start("--pool", "base=2")
    for turn in range(6):
        tool.send(f"creates 30 t{turn}x base")
        time.sleep(rng.uniform(0, 0.08))
        engine.kill9()
        tool = engine.start("--pool", "base=2")
        # What the list says lives and answers; everything else is gone.
        until(lambda: tool("audit") == "findings=0 repaired=0", "a clean audit")
        listed = pids_of(tool)
        assert all(alive(p) for p in listed.values())
        for name in list(listed)[:3]:
            assert tool(f"ask {name} {PORT} uid") == "0"
        for name in rng.sample(sorted(listed), len(listed) // 2):
            assert tool(f"kill {name}") == "existed=1"
    for name in pids_of(tool):
        tool(f"kill {name}")
    assert tool("list") == ""
    expect_clean(tool)


@pytest.mark.parametrize("kind", ["create", "remove", "prepare", "control"])
def test_kill9_of_workers_at_random_points(engine, kind):
    rng = random.Random(kind)
    tool = engine.start()
    for turn in range(6):
        tool.send(f"creates 20 t{turn}x base")
        if kind != "create":
            tool.send(f"freeze t{turn}x3")
            tool.send(f"kills 20 t{turn}x")
        time.sleep(rng.uniform(0, 0.05))
        for pid in engine.workers(kind):
            processes.send(pid)
        # Every call ends: with a result, or as failed when its worker died.
        assert tool.receive().startswith("ok ")
        if kind != "create":
            assert tool.receive().split()[0] in ("ok", "err")
            assert tool.receive().startswith("ok ")
        listed = pids_of(tool)
        assert all(alive(p) for p in listed.values())
    until(lambda: engine.workers(kind), "a worker")
    for name in pids_of(tool):
        assert tool(f"kill {name}") == "existed=1"
    until(lambda: tool("audit") == "findings=0 repaired=0", "a clean audit")


def test_audit_finds_a_network_namespace_that_only_a_socket_holds(engine):
    """Made by a gateway's stand-in that keeps sockets of a sandbox that is gone."""
    tool, other = engine.start("--pool", "base=1"), engine.tool()
    tool("create a base")
    tool("create b base")
    other("hold b 80 1")  # of one that lives: never a finding
    namespace = os.stat(f"/proc/{pids_of(tool)['a']}/ns/net").st_ino
    pid = tool.process.pid
    tool("hold a 80 2")
    expect_clean(tool)
    assert tool("kill a") == "existed=1"
    found = tool("audit")
    assert found.startswith("findings=2 repaired=0; ")
    text = f"network namespace {namespace} without sandbox, held by descriptor %s of process {pid}"
    sockets = [fd for fd, what in processes.files(pid).items() if what.startswith("socket:")]
    held = [fd for fd in sockets if text % fd in found.split("; ")]
    assert len(held) == 2, found

    tool("let-go")
    expect_clean(tool)
    tool("hold b 80 2")
    assert tool("kill b") == "existed=1"
    assert tool("audit").startswith("findings=3 ")
    # Who does not let go is ended: a gateway would be started again.
    other("let-go")
    repair = engine.tool()
    assert repair("repair").startswith("findings=2 repaired=2;")
    assert tool.process.wait(timeout=BUSY_S) == -signal.SIGKILL
    until(lambda: repair("audit") == "findings=0 repaired=0", "a clean audit")


def test_audit_finds_and_removes_strays(engine):
    tool = engine.start()
    tool("create a base")
    expect_clean(tool)  # comes after the engine's own audit at its start
    name = next(iter(engine.records()))
    record = engine.run / "sandboxes" / "s0123456789ab"
    record.write_text((engine.run / "sandboxes" / name).read_text().replace(name, "s0123456789ab"))
    assert "record 's0123456789ab' without sandbox" in tool("audit")
    assert tool("repair").startswith("findings=1 repaired=1")
    assert not record.exists()
    stray = engine.run / "sandboxes" / "s0123456789ab.0123.tmp"
    stray.write_text("")
    assert tool("repair").startswith("findings=1 repaired=1")
    assert not stray.exists()
    expect_clean(tool)
    assert tool(f"ask a {PORT} hostname") == "host-a"


# --- side by side ------------------------------------------------------------------------------------------------------


def test_two_instances_leave_each_other_alone(engines):
    one, two = engines(), engines()
    a, b = one.start(), two.start()
    a("creates 3 x base")
    b("creates 3 x base")
    theirs = pids_of(b)
    assert not set(pids_of(a).values()) & set(theirs.values())
    one.kill9()
    a = one.start()
    assert a("repair") == "findings=0 repaired=0"
    a("kills 3 x")
    one.stop(signal.SIGINT)
    assert pids_of(b) == theirs and all(alive(p) for p in theirs.values())
    assert b(f"ask x1 {PORT} hostname") == "host-x1"
    expect_clean(b)


def test_a_second_engine_of_one_data_dir_is_refused(engine):
    engine.start()
    second = subprocess.run(
        engine.process.args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False
    )
    assert second.returncode == 1
    assert "another engine serves" in second.stdout


PARENT = """
import signal, subprocess, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # as a supervisor does
print(subprocess.Popen(sys.argv[1:], stderr=subprocess.STDOUT).pid, flush=True)
signal.pause()
"""


def test_whose_supervisor_dies_does_not_wait_for_its_turn(engine, tmp_path):
    """Which may come when the last successor has stopped: then it would mount what nobody takes away again."""
    engine.start()
    with open(tmp_path / "out", "w") as out:
        parent = subprocess.Popen([sys.executable, "-c", PARENT, *engine.process.args], stdout=out)
    pid = int(until((tmp_path / "out").read_text, "its pid"))
    lock = str(engine.data / "engine.lock")

    def holds():
        try:
            return lock in [os.readlink(x) for x in Path(f"/proc/{pid}/fd").iterdir()]
        except OSError:
            return False  # a descriptor was closed meanwhile

    until(holds, "an engine that waits for the lock")
    parent.kill()
    parent.wait()
    wait_gone([pid])
    assert "the supervisor is gone" in (tmp_path / "out").read_text()


def test_what_uses_the_pool_for_a_moment_does_not_keep_it_mounted(engine):
    """Such as a child of a killed worker, which ends a little later; the fixture looks whether the pool is gone."""
    engine.start()
    with subprocess.Popen(["sleep", "0.5"], cwd=engine.data / "pool/fs"):
        engine.stop(signal.SIGINT)
    assert "stays mounted" not in engine.log.read_text()


WITHOUT_FORK = r"""
#include <errno.h>
#include <signal.h>
int fork(void)
{
    struct sigaction now;
    sigaction(SIGTERM, 0, &now);
    if (now.sa_handler != SIG_DFL) /* not of a child that is about to run a program */
        raise(SIGTERM);
    errno = EAGAIN;
    return -1;
}
"""


def test_a_start_that_fails_while_it_is_asked_to_stop_says_why(engine, tmp_path):
    engine.start()  # makes the pool
    engine.stop()
    (tmp_path / "w.c").write_text(WITHOUT_FORK)
    compiler = compiler_env()["CC"].split()[-1]
    subprocess.run([compiler, "-shared", "-fPIC", "-o", tmp_path / "w.so", tmp_path / "w.c"], check=True, timeout=60)
    failed = subprocess.run(engine.process.args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60,
                            check=False, env={**os.environ, **sanitizers.preloaded(BUILD, tmp_path / "w.so")})
    assert failed.returncode == 1 and "the engine cannot start" in failed.stdout and "fork worker" in failed.stdout, failed


def test_on_exit_decides(engine):
    tool = engine.start("--on-exit", "kill")
    tool("create a base")
    pid = pids_of(tool)["a"]
    engine.stop(signal.SIGTERM)
    wait_gone([pid])
    assert engine.records() == set()
    tool = engine.start("--on-exit", "keep")
    tool("create a base")
    pid = pids_of(tool)["a"]
    engine.stop(signal.SIGINT)
    assert alive(pid)
