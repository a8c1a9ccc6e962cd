"""Our Python package with threads, event loops, fork, and programs that end without tidying up."""

import re
import subprocess
import sys

import pytest
from service import Service
from test_python_program import clean_env, ours


@pytest.fixture(scope="module")
def service(build_dir, base_template):
    with Service(build_dir) as service:
        yield service


@pytest.fixture(scope="module")
def sandbox(service):
    made = service.create(timeout=600)
    yield made["sandboxID"]
    service.kill(made["sandboxID"])


@pytest.fixture
def program(service, sandbox, python_dir, tmp_path):
    def run(text):
        file = tmp_path / "program.py"
        file.write_text(text)
        env = clean_env(tmp_path, python_dir, **ours(service), SANDBOX=sandbox, PYTHONFAULTHANDLER="1")
        run = subprocess.run(
            [sys.executable, "-X", "dev", "-W", "error", file], cwd=tmp_path, env=env, capture_output=True, text=True,
            timeout=120, check=False,
        )  # fmt: skip
        # A step of over 100 ms is a fault of the machine, not of the package.
        said = [x for x in run.stderr.splitlines() if not re.fullmatch(r"Executing <.*> took [0-9.]+ seconds", x)]
        assert (run.returncode, said) == (0, []), (run.returncode, run.stdout, run.stderr)
        return run.stdout

    return run


HEAD = """
import asyncio, gc, os, signal, sys, threading, time
from agent_sandbox import AsyncSandbox, Sandbox
ID = os.environ["SANDBOX"]
"""


def test_another_thread_waits_for_a_handle(program):
    out = program(
        HEAD
        + """
sb = Sandbox.connect(ID)
handle = sb.commands.run("read x; echo $x", background=True, stdin=True)
found = []
thread = threading.Thread(target=lambda: found.append(handle.wait().stdout))
thread.start()
for i in range(50):     # the same client, while the thread waits in it
    assert sb.commands.run(f"echo {i}").stdout == f"{i}\\n"
handle.send_stdin("go\\n")
thread.join(60)
print(found)
"""
    )
    assert out == "['go\\n']\n"


def test_many_threads_share_one_client(program):
    out = program(
        HEAD
        + """
sb = Sandbox.connect(ID)
handles = [sb.commands.run(f"for i in $(seq 200); do echo {n}; done", background=True, timeout=0) for n in range(12)]
found = {}
def work(n):
    found[n] = handles[n].wait().stdout
threads = [threading.Thread(target=work, args=(n,)) for n in range(12)]
for t in threads: t.start()
for t in threads: t.join(90)
print(all(found[n] == f"{n}\\n" * 200 for n in range(12)))
"""
    )
    assert out == "True\n"


def test_each_thread_has_a_client(program):
    out = program(
        HEAD
        + """
sb = Sandbox.connect(ID)
found = []
def work(n):
    for i in range(20):
        found.append(sb.commands.run(f"echo {n}.{i}").stdout == f"{n}.{i}\\n")
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
for t in threads: t.start()
for t in threads: t.join(90)
print(len(found), all(found))
"""
    )
    assert out == "160 True\n"


def test_ctrl_c_reaches_the_main_thread_while_another_one_polls(program):
    out = program(
        HEAD
        + """
sb = Sandbox.connect(ID)
first = sb.commands.run("read x", background=True, stdin=True)
second = sb.commands.run("read x", background=True, stdin=True)
thread = threading.Thread(target=first.wait)
thread.start()
timer = threading.Timer(2, os.kill, (os.getpid(), signal.SIGINT))
timer.start()
try:
    second.wait()
except KeyboardInterrupt:
    print("interrupted")
first.send_stdin("x\\n")
thread.join(60)
timer.join()
print(thread.is_alive())
"""
    )
    assert out == "interrupted\nFalse\n"


def test_two_loops_in_two_threads(program):
    out = program(
        HEAD
        + """
async def main(n):
    sb = await AsyncSandbox.connect(ID)
    found = await asyncio.gather(*(sb.commands.run(f"echo {n}.{i}") for i in range(20)))
    return [r.stdout for r in found] == [f"{n}.{i}\\n" for i in range(20)]
found = []
threads = [threading.Thread(target=lambda n=n: found.append(asyncio.run(main(n)))) for n in range(2)]
for t in threads: t.start()
for t in threads: t.join(90)
print(found)
"""
    )
    assert out == "[True, True]\n"


def test_fork(program):
    out = program(
        HEAD
        + """
sb = Sandbox.connect(ID)
handle = sb.commands.run("read x; echo $x", background=True, stdin=True)
async def both():
    a = await AsyncSandbox.connect(ID)
    return (await a.commands.run("echo async")).stdout
print(asyncio.run(both()), end="", flush=True)
pid = os.fork()
if pid == 0:
    print(sb.commands.run("echo child").stdout, end="")
    print(asyncio.run(both()), end="")
    try:
        handle.wait()
    except RuntimeError as e:
        print("RuntimeError")
    del handle
    gc.collect()
    sys.stdout.flush()
    os._exit(0)
print(os.waitpid(pid, 0)[1], sb.commands.run("echo parent").stdout, end="")
handle.send_stdin("still there\\n")
print(handle.wait().stdout, end="")
"""
    )
    assert out == "async\nchild\nasync\nRuntimeError\n0 parent\nstill there\n"


def test_wait_after_disconnect_is_an_error_of_the_command(program):
    """Not a CancelledError: that would end the caller's task, which nobody cancelled."""
    out = program(
        """
import asyncio
from agent_sandbox import AsyncSandbox, Sandbox, SandboxException
async def main():
    async with await AsyncSandbox.create(timeout=60) as sb:
        for seconds in (0, 0.3):  # before the handle's task has run, and while it waits
            handle = await sb.commands.run("sleep 2; echo end", background=True)
            await asyncio.sleep(seconds)
            again = await sb.commands.connect(handle.pid) if seconds else None
            await handle.disconnect()
            try: print(await handle.wait())
            except SandboxException as e: print(e)
            if again: print((await again.wait()).stdout, end="")
asyncio.run(main())
with Sandbox.create(timeout=60) as sb:
    handle = sb.commands.run("sleep 2", background=True)
    handle.disconnect()
    try: print(handle.wait())
    except SandboxException as e: print(e)
"""
    )
    gone = "the command was disconnected from: connect to it again by its pid"
    assert out.splitlines() == [gone, gone, "end", gone]


def test_exit_with_everything_open(program):
    out = program(
        HEAD
        + """
sb = Sandbox.connect(ID)
handle = sb.commands.run("read x", background=True, stdin=True)
other = sb.commands.run("read x", background=True, stdin=True)
stream = sb.files.read("/etc/passwd", format="stream")
threading.Thread(target=other.wait, daemon=True).start()
threading.Thread(target=lambda: sb.commands.run("sleep 100"), daemon=True).start()
loop = asyncio.new_event_loop()
async def main():
    a = await AsyncSandbox.connect(ID)
    return a, await a.commands.run("read x", background=True, stdin=True)
kept = loop.run_until_complete(main())
print("end")
sys.stdout.flush()
import warnings
warnings.simplefilter("ignore")   # asyncio's own, for the loop that is left open
"""
    )
    assert out == "end\n"


def test_loops_closed_without_tidying_up_leave_nothing(program):
    out = program(
        HEAD
        + """
import warnings
warnings.simplefilter("ignore")
async def main():
    a = await AsyncSandbox.connect(ID)
    return await a.commands.run("read x", background=True, stdin=True)
def once():
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)
    handle = loop.run_until_complete(main())
    loop.close()
def count():
    gc.collect()
    return len(os.listdir("/proc/self/fd"))
for _ in range(3): once()
before = count()
for _ in range(20): once()
asyncio.run(main())
after = count()
print(after - before <= 10 or (before, after))
"""
    )
    assert out == "True\n"


def test_no_descriptor_is_left_by_calls(program):
    out = program(
        HEAD
        + """
sb = Sandbox.connect(ID)
def once():
    sb.commands.run("true")
    h = sb.commands.run("read x", background=True, stdin=True)
    s = sb.files.read("/etc/passwd", format="stream")
once()
def count():
    gc.collect()
    sb.commands.run("true")
    return len(os.listdir("/proc/self/fd"))
before = count()
for _ in range(30): once()
print(count() - before <= 3)
"""
    )
    assert out == "True\n"


def test_callbacks_of_a_watch_may_stop_it_and_may_fail(program):
    out = program(
        HEAD
        + """
async def main():
    sb = await AsyncSandbox.connect(ID)
    ends, done = [], asyncio.Event()
    def on_exit(error):
        ends.append(repr(error))
        done.set()
    async def stops(event):
        await watch.stop()
    async def fails(event):
        raise ValueError("callback")
    for on_event in (stops, fails):
        done.clear()
        watch = await sb.files.watch_dir("/tmp", on_event, on_exit=on_exit)
        await sb.files.write("/tmp/watched", "1")
        await asyncio.wait_for(done.wait(), 90)
        await watch.stop()
    done.clear()
    watch = await sb.files.watch_dir("/tmp", fails, on_exit=on_exit, timeout=3)
    await asyncio.wait_for(done.wait(), 90)
    print(*ends, sep="\\n")
asyncio.run(main())
"""
    )
    assert out.splitlines()[:2] == ["None", "ValueError('callback')"]
    assert out.splitlines()[2].startswith("TimeoutException(")
