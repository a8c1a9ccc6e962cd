"""The published agent-sandbox-client, unmodified: its standard classes and ProviderSandbox, against a running service."""

import asyncio

import pytest
import agent_sandbox as errors
import httpcore
from agent_sandbox import AsyncSandbox, ProviderSandbox, Sandbox
from waiting import until


def test_readme_program(capsys):
    async def main():
        sandbox = await AsyncSandbox.create(template="base")
        try:
            result = await sandbox.commands.run("echo hello")
            print(result.stdout)
            await sandbox.files.write("/tmp/data.txt", "content")
            print(await sandbox.files.read("/tmp/data.txt"))
        finally:
            assert await sandbox.kill() is True

    asyncio.run(main())
    assert capsys.readouterr().out == "hello\n\ncontent\n"


@pytest.fixture(scope="module")
def sandbox():
    box = Sandbox.create(timeout=300)
    yield box
    box.kill()


def test_info_list_connect(sandbox):
    info = sandbox.get_info()
    assert info.sandbox_id == sandbox.sandbox_id and info.state.value == "running"
    assert sandbox.sandbox_id in [s.sandbox_id for s in Sandbox.list().next_items()]
    again = Sandbox.connect(sandbox.sandbox_id)
    assert again.commands.run("echo again").stdout == "again\n"


def test_run_variants(sandbox):
    with pytest.raises(errors.CommandExitException) as e:
        sandbox.commands.run("echo out; echo err >&2; exit 3")
    assert (e.value.exit_code, e.value.stdout, e.value.stderr) == (3, "out\n", "err\n")
    ran = sandbox.commands.run("pwd; whoami; echo $A", cwd="/tmp", user="root", envs={"A": "b"})
    assert ran.stdout == "/tmp\nroot\nb\n"
    # It waits for as long from the first answer on: when that clock wins, it raises its transport's error.
    with pytest.raises((errors.TimeoutException, httpcore.ReadTimeout)):
        sandbox.commands.run("sleep 100", timeout=1)
    handle = sandbox.commands.run("read l; echo got $l", background=True, stdin=True)
    sandbox.commands.send_stdin(handle.pid, "words\n")
    assert handle.wait().stdout == "got words\n"


def test_files(sandbox):
    every = bytes(range(256)) * 4
    sandbox.files.write("/tmp/c/every.bin", every)
    assert bytes(sandbox.files.read("/tmp/c/every.bin", format="bytes")) == every
    assert len(sandbox.files.write_files([{"path": f"/tmp/c/{i}", "data": str(i)} for i in range(20)])) == 20
    assert len(sandbox.files.list("/tmp/c")) == 21
    sandbox.files.write("/tmp/c/empty", "")
    assert sandbox.files.read("/tmp/c/empty") == ""
    assert sandbox.files.make_dir("/tmp/c/d") is True and sandbox.files.make_dir("/tmp/c/d") is False
    assert sandbox.files.rename("/tmp/c/1", "/tmp/c/one").path == "/tmp/c/one"
    with pytest.raises(errors.NotFoundException):
        sandbox.files.read("/no/such")


def test_git_helper(sandbox):
    sandbox.git.init("/tmp/repo", initial_branch="main")
    sandbox.files.write("/tmp/repo/a.txt", "1")
    sandbox.git.add("/tmp/repo")
    sandbox.git.commit("/tmp/repo", "first", author_name="A", author_email="a@example.com")
    assert sandbox.git.branches("/tmp/repo").current_branch == "main"


def test_errors():
    with pytest.raises(errors.AuthenticationException):
        Sandbox.create(api_key="e2b_" + "0" * 40)
    with pytest.raises(errors.NotFoundException):
        Sandbox.connect("i" + "0" * 20)
    assert Sandbox.kill("i" + "0" * 20) is False


def test_provider_sandbox():
    async def main():
        box = await ProviderSandbox.create("base", timeout=120)
        try:
            result = await box.commands.run("echo hello")
            assert (result.stdout, result.exit_code) == ("hello\n", 0)
            result = await box.commands.run("echo err >&2; exit 4", shell=True)
            assert (result.stderr, result.exit_code) == ("err\n", 4)
            await box.files.write("/tmp/p.txt", "content")
            assert await box.files.read("/tmp/p.txt") == "content"
            assert await box.files.exists("/tmp/p.txt") and not await box.files.exists("/tmp/none")
            assert "p.txt" in [e.name for e in await box.files.list("/tmp")]
            assert await box.is_running()
            await box.set_timeout(200)
        finally:
            await box.kill()
            await box.kill()

    asyncio.run(main())


def test_set_timeout_and_is_running():
    box = Sandbox.create(timeout=300)
    assert box.is_running()
    box.set_timeout(1)
    until(lambda: not box.is_running(), "the end of its time")
    assert box.kill() is False


def test_unknown_template():
    with pytest.raises(errors.SandboxException, match="(?i)not found"):
        Sandbox.create(template="no-such-template")


def test_files_100_mb(sandbox):
    data = bytes(range(256)) * 409600
    sandbox.files.write("/tmp/big", data, request_timeout=60)
    assert bytes(sandbox.files.read("/tmp/big", format="bytes", request_timeout=60)) == data


def test_background_list_kill(sandbox):
    handle = sandbox.commands.run("sleep 300", background=True)
    assert handle.pid in [p.pid for p in sandbox.commands.list()]
    assert sandbox.commands.kill(handle.pid) is True
    assert sandbox.commands.kill(handle.pid) is False
