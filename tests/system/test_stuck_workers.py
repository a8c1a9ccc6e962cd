"""Workers of the engine that hang, stopped or held by the kernel: every call ends, another worker takes over, and nothing
stays that no one owns. Needs root.
"""

import re
import signal
import subprocess
import time

import processes
import pytest
from processes import alive
from test_engine import Engine, engine, engines, pids_of  # noqa: F401 (fixtures)
from waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def stop_workers(engine, *kinds):
    """Stops all workers of these kinds; {kind: [pid]}."""
    pids = {kind: engine.workers(kind) for kind in kinds}
    assert all([processes.send(pid, signal.SIGSTOP) for pid in sum(pids.values(), [])])
    assert all(pids.values())
    return pids


def expect_replaced(engine, stopped):
    for kind, pids in stopped.items():
        until(lambda pids=pids: not any(alive(p) for p in pids), f"the end of the stopped ones ({kind})")
        until(lambda kind=kind, n=len(pids): len(engine.workers(kind)) == n, "workers in their place")


def end_all(tool):
    for name in pids_of(tool):
        assert tool(f"kill {name}") == "existed=1"
    until(lambda: tool("audit") == "findings=0 repaired=0", "a clean audit")


def failed(answer):
    return int(answer.rpartition("failed=")[2].split()[0])


def test_stopped_workers_are_replaced_and_their_calls_end(engine):
    tool, killing, freezing, other = engine.start(), engine.tool(), engine.tool(), engine.tool()
    tool("creates 4 k base")
    kept = pids_of(tool)
    stopped = stop_workers(engine, "create", "remove", "control")
    # A tool gives up after 90 s.
    tool.send("creates 6 x base")
    killing.send("kill k0")
    time.sleep(0.1)
    killing_too = engine.tool()
    killing_too.send("kill k1")
    freezing.send("freeze k2")
    assert other("info"), "the engine answers others meanwhile"
    # Each worker had two creates; the others go to those that came in their place.
    assert 1 <= failed(tool.receive()) <= 4
    for each in (killing, killing_too, freezing):
        answer = each.receive()
        assert answer.startswith("err") and "did not finish within" in answer, answer
    expect_replaced(engine, stopped)
    assert engine.log.read_text().count("worker is stuck in a job") == 5
    until(lambda: not pids_of(tool).keys() & {"k0", "k1"}, "the second try")
    tool("thaw k2")
    assert tool("freeze k2").startswith("us=")
    assert alive(kept["k2"]) and alive(kept["k3"])
    assert tool("create y base")
    end_all(tool)


def test_a_stopped_preparing_worker_is_replaced(engine):
    tool, other = engine.start(), engine.tool()
    tool("creates 2 k base")
    kept = pids_of(tool)
    stopped = stop_workers(engine, "prepare")
    tool.send("creates 24 x base")  # more than there is stock
    assert other("info")
    assert failed(tool.receive()) <= 4  # none, where the machine is so slow that the next worker is there in time
    expect_replaced(engine, stopped)
    assert all(alive(p) for p in kept.values())
    assert tool("creates 20 y base").startswith("done=20 failed=0")
    end_all(tool)


def states(pids):
    return [fields[0] for fields in map(processes.stat, pids) if fields]


def test_workers_held_by_the_kernel_do_not_hold_the_engine(engine):
    """A frozen file system holds whoever writes to it in uninterruptible sleep; SIGKILL does not end that."""
    tool, other = engine.start("--slots", "2"), engine.tool()
    tool("creates 2 k base")
    kept = pids_of(tool)
    pool = engine.data / "pool/fs"
    subprocess.run(["fsfreeze", "--freeze", pool], check=True, timeout=60)
    try:
        # All six are answered, in whatever order they met which worker: the tool gives up (err) when there is none for 90 s.
        assert sum(map(int, re.findall(r"(?:done|failed)=(\d+)", tool("creates 6 x base")))) == 6
        until(lambda: "D" in states(engine.workers("prepare") + engine.workers("create")), "a worker that the kernel holds")
        until(lambda: "the kernel holds it" in engine.log.read_text(), "word of it")
        assert other("info") and pids_of(other).keys() >= kept.keys()
        assert all(alive(p) for p in kept.values())
    finally:
        subprocess.run(["fsfreeze", "--unfreeze", pool], check=True, timeout=60)
    until(lambda: "has ended at last" in engine.log.read_text(), "the held one's end")
    until(lambda: other.error(f"create y{time.monotonic_ns()} base").startswith("ok"), "a create that succeeds")
    end_all(other)
