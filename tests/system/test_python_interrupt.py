"""Every wait of our Python package ends by Ctrl-C, or with its task, and its server notices."""

import signal
import subprocess
import sys

import pytest
from stall_server import StallServer
from test_python_program import clean_env
from waiting import BUSY_S

PLAIN = """
import io, sys
from agent_sandbox import ConnectionConfig, PtySize, Volume
from agent_sandbox.code_interpreter import Sandbox

class Slow(io.RawIOBase):
    def readable(self): return True
    def readinto(self, b):
        b[:1] = b"x"
        return 1

sb = Sandbox(sandbox_id="x", connection_config=ConnectionConfig(), envd_version="0.6.4")
try:
    EXPRESSION
except KeyboardInterrupt:
    print("interrupted", flush=True)
sys.stdin.read()
"""
KINDS = {
    "create": "Sandbox.create()",
    "connect": "Sandbox.connect('x')",
    "info": "sb.get_info()",
    "kill": "sb.kill()",
    "list": "Sandbox.list().next_items()",
    "volume": "Volume.create('x')",
    "running": "sb.is_running()",
    "run": "sb.commands.run('x')",
    "callbacks": "sb.commands.run('x', on_stdout=print)",
    "handle": "sb.commands.run('x', background=True).wait()",
    "iterate": "list(sb.commands.run('x', background=True))",
    "reconnect": "sb.commands.connect(7).wait()",
    "processes": "sb.commands.list()",
    "stdin": "sb.commands.send_stdin(7, 'x')",
    "pty": "sb.pty.create(PtySize(24, 80)).wait()",
    "read": "sb.files.read('/x')",
    "stream": "list(sb.files.read('/x', format='stream'))",
    "write": "sb.files.write('/x', 'x')",
    "upload": "sb.files.write('/x', Slow())",
    "stat": "sb.files.get_info('/x')",
    "watch": "sb.files.watch_dir('/x')",
    "code": "sb.run_code('x')",
    "git": "sb.git.status('/x')",
}
ASYNC = """
import asyncio, io, sys
from agent_sandbox import AsyncVolume as Volume, ConnectionConfig, PtySize
from agent_sandbox.code_interpreter import AsyncSandbox as Sandbox

class Slow(io.RawIOBase):
    def readable(self): return True
    def readinto(self, b):
        b[:1] = b"x"
        return 1

async def all_of(stream):
    return [piece async for piece in stream]

async def work():
    sb = Sandbox(sandbox_id="x", connection_config=ConnectionConfig(), envd_version="0.6.4")
    EXPRESSION

async def main():
    if "interrupt" in sys.argv:
        return await work()
    task = asyncio.ensure_future(work())
    loop = asyncio.get_running_loop()
    # A line on standard input cancels the task.
    loop.add_reader(0, lambda: (sys.stdin.readline(), loop.remove_reader(0), task.cancel()))
    try:
        await task
    except asyncio.CancelledError:
        print("cancelled", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)

try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted", flush=True)
sys.stdin.read()    # not above, where the exception still holds every frame
"""
ASYNC_KINDS = {
    **{name: "await " + text for name, text in KINDS.items() if name not in ("handle", "iterate", "reconnect", "pty", "stream", "watch")},
    "handle": "await (await sb.commands.run('x', background=True)).wait()",
    "reconnect": "await (await sb.commands.connect(7)).wait()",
    "pty": "await (await sb.pty.create(PtySize(24, 80), print)).wait()",
    "stream": "await all_of(await sb.files.read('/x', format='stream'))",
    "watch": "await (await sb.files.watch_dir('/x', print))._task",
}  # fmt: skip


def start(text, expression, server, tmp_path, python_dir, *args):
    names = {"ABX_SANDBOX_API_KEY": "k", "ABX_SANDBOX_BASE_URL": server.origin, "ABX_SANDBOX_URL": server.origin}
    env = clean_env(tmp_path, python_dir, **names, ABX_VOLUME_API_URL=server.origin)
    file = tmp_path / "program.py"
    file.write_text(text.replace("EXPRESSION", expression))
    return subprocess.Popen(
        [sys.executable, file, *args], cwd=tmp_path, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def finish(process):
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    return out, err


def wait_asked(server, process):
    if not server.asked.wait(60):
        process.kill()
        raise AssertionError(f"no request came: {server.requests}, {process.communicate()}")


@pytest.mark.parametrize("kind", KINDS)
def test_ctrl_c_ends_plain_wait(tmp_path, python_dir, kind):
    with StallServer() as server:
        process = start(PLAIN, KINDS[kind], server, tmp_path, python_dir)
        wait_asked(server, process)
        process.send_signal(signal.SIGINT)
        left = server.left.wait(BUSY_S)
        out, err = finish(process)
    assert (out, err, process.returncode) == ("interrupted\n", "", 0)
    assert left, f"the server still waits: {server.requests}"


@pytest.mark.parametrize("kind", ASYNC_KINDS)
def test_ctrl_c_ends_async_wait(tmp_path, python_dir, kind):
    with StallServer() as server:
        process = start(ASYNC, ASYNC_KINDS[kind], server, tmp_path, python_dir, "interrupt")
        wait_asked(server, process)
        process.send_signal(signal.SIGINT)
        left = server.left.wait(BUSY_S)
        out, err = finish(process)
    assert (out, err, process.returncode) == ("interrupted\n", "", 0)
    assert left, f"the server still waits: {server.requests}"


@pytest.mark.parametrize("kind", ASYNC_KINDS)
def test_cancelled_task_reaches_the_wire(tmp_path, python_dir, kind):
    with StallServer() as server:
        process = start(ASYNC, ASYNC_KINDS[kind], server, tmp_path, python_dir)
        wait_asked(server, process)
        process.stdin.write("\n")
        process.stdin.flush()
        left = server.left.wait(BUSY_S)
        out, err = finish(process)
    assert (out, err, process.returncode) == ("cancelled\n", "", 0)
    assert left, f"the server still waits: {server.requests}"
