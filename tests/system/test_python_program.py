"""The program of the README with our Python package: word for word, and its twin without asyncio."""

import os
import subprocess
import sys

import pytest
from h2_front import H2Front
from http_fakes import Loop, make_certificates
from service import Service

PROGRAM = """
import asyncio
from agent_sandbox import AsyncSandbox

async def main():
    sandbox = await AsyncSandbox.create(template="base")
    try:
        result = await sandbox.commands.run("echo hello")
        print(result.stdout)
        await sandbox.files.write("/tmp/data.txt", "content")
        print(await sandbox.files.read("/tmp/data.txt"))
    finally:
        await sandbox.kill()

asyncio.run(main())
"""
TWIN = """
from agent_sandbox import Sandbox

sandbox = Sandbox.create(template="base")
try:
    result = sandbox.commands.run("echo hello")
    print(result.stdout)
    sandbox.files.write("/tmp/data.txt", "content")
    print(sandbox.files.read("/tmp/data.txt"))
finally:
    sandbox.kill()
"""


@pytest.fixture(scope="module")
def service(build_dir, base_template):
    with Service(build_dir) as service:
        yield service


def clean_env(home, python_dir, **more):
    """An environment in which nothing is configured but what the test says."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ABX_", "E2B_")) and "proxy" not in k.lower()}
    return {**kept, "HOME": str(home), "PYTHONPATH": str(python_dir), "PYTHONDONTWRITEBYTECODE": "1", **more}


def run_program(text, folder, env):
    file = folder / "program.py"
    file.write_text(text)
    return subprocess.run(
        [sys.executable, file], cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False
    )


def ours(service):
    return {
        "ABX_SANDBOX_API_KEY": service.key,
        "ABX_SANDBOX_BASE_URL": service.origin,
        "ABX_SANDBOX_DOMAIN": f"localhost:{service.port}",
    }


def theirs(service):
    return service.client_env()


def found(service):
    """Nothing is configured: the client finds the service of this machine (ABX_LOCAL_DIR only keeps tests apart)."""
    return {"ABX_LOCAL_DIR": service.env["ABX_LOCAL_DIR"]}


@pytest.mark.parametrize("text", [PROGRAM, TWIN], ids=["async", "sync"])
@pytest.mark.parametrize("names", [ours, theirs, found], ids=["ABX", "E2B", "unconfigured"])
def test_program_runs(service, python_dir, tmp_path, text, names):
    run = run_program(text, tmp_path, clean_env(tmp_path, python_dir, **names(service)))
    assert (run.stdout, run.returncode) == ("hello\n\ncontent\n", 0), run.stderr
    assert service.request("GET", "/v2/sandboxes")[2] == []  # it was killed


@pytest.mark.parametrize("text", [PROGRAM, TWIN], ids=["async", "sync"])
def test_program_with_a_wrong_key_says_so(service, python_dir, tmp_path, text):
    env = clean_env(tmp_path, python_dir, **{**ours(service), "ABX_SANDBOX_API_KEY": "e2b_00"})
    run = run_program(text, tmp_path, env)
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1].startswith("agent_sandbox.exceptions.AuthenticationException: "), run.stderr


def test_nothing_configured_and_no_service_says_what_to_do(service, python_dir, tmp_path):
    run = run_program(TWIN, tmp_path, clean_env(tmp_path, python_dir, ABX_LOCAL_DIR=str(tmp_path / "none")))
    assert run.returncode == 1
    last = run.stderr.splitlines()[-1]
    assert last.startswith("agent_sandbox.exceptions.AuthenticationException: ") and "abx key local" in last, run.stderr


def test_options_of_a_call_go_before_the_environment(service, python_dir, tmp_path):
    names = {"ABX_SANDBOX_API_KEY": "e2b_00", "ABX_SANDBOX_BASE_URL": "http://127.0.0.1:1"}
    text = f"""
from agent_sandbox import Sandbox
options = dict(api_key={service.key!r}, api_url={service.origin!r})
sandbox = Sandbox.create(**options)
print(Sandbox.get_info(sandbox.sandbox_id, **options).sandbox_id == sandbox.sandbox_id)
print(sandbox.get_info(request_timeout=10).sandbox_id == sandbox.sandbox_id)
print(Sandbox.kill(sandbox.sandbox_id, **sandbox.connection_config.get_api_params()))
"""
    run = run_program(text, tmp_path, clean_env(tmp_path, python_dir, **names))
    assert (run.stdout, run.returncode) == ("True\nTrue\nTrue\n", 0), run.stderr


MISSED = """
import asyncio
from agent_sandbox import AsyncSandbox, Sandbox

COMMAND = "read x; printf 'one ü'; read x; printf two; read x; printf three"

async def main():
    sandbox = await AsyncSandbox.create()
    try:
        half = asyncio.Event()
        handle = await sandbox.commands.run(COMMAND, background=True, stdin=True, on_stdout=lambda text: half.set())
        print(handle.output_offset)
        await handle.send_stdin("\\n")
        await half.wait()
        await handle.disconnect()
        print(handle.output_offset)
        await sandbox.commands.send_stdin(handle.pid, "\\n")
        again = await sandbox.commands.connect(handle.pid, output_offset=handle.output_offset)
        await again.send_stdin("\\n")
        print((await again.wait()).stdout, again.output_offset)
        with Sandbox.connect(sandbox.sandbox_id) as plain:
            whole = plain.commands.connect(handle.pid, output_offset=0)
            print(whole.wait().stdout, whole.output_offset)
    finally:
        await sandbox.kill()

asyncio.run(main())
"""


def test_what_a_lost_connection_missed(service, python_dir, tmp_path):
    run = run_program(MISSED, tmp_path, clean_env(tmp_path, python_dir, **ours(service)))
    assert (run.stdout, run.returncode) == ("0\n6\ntwothree 14\none ütwothree 14\n", 0), run.stderr


@pytest.mark.parametrize("text", [PROGRAM, TWIN], ids=["async", "sync"])
def test_program_over_tls_and_http2(service, python_dir, tmp_path, text):
    """A private CA; the front speaks HTTP/2 only, and all requests come on one connection."""
    certificates = make_certificates(tmp_path, "127.0.0.1")
    loop = Loop()
    front = H2Front(loop, certificates, service.port)
    url = f"https://127.0.0.1:{front.port}"
    names = {"ABX_SANDBOX_API_KEY": service.key, "ABX_SANDBOX_BASE_URL": url, "ABX_SANDBOX_URL": url}
    try:
        run = run_program(text, tmp_path, clean_env(tmp_path, python_dir, **names, SSL_CERT_FILE=f"{certificates}/ca.pem"))
        assert (run.stdout, run.returncode) == ("hello\n\ncontent\n", 0), run.stderr
        assert (front.streams, front.connections) == (5, 1)
        run = run_program(text, tmp_path, clean_env(tmp_path, python_dir, **names))
        last = run.stderr.splitlines()[-1]
        assert last.startswith("agent_sandbox.exceptions.SandboxException: 127.0.0.1:"), run.stderr
    finally:
        front.stop()
        loop.stop()


STRICT = """
import asyncio
from agent_sandbox import AsyncSandbox, Sandbox

with Sandbox.create() as sandbox:
    print(sandbox.pause(strict=True), sandbox.pause(strict=True), sandbox.get_info().state.value)
    sandbox.connect()
    print(Sandbox.pause(sandbox.sandbox_id, keep_memory=False, strict=True), sandbox.connect().is_running())

async def main():
    sandbox = await AsyncSandbox.create()
    print(await sandbox.pause(strict=True))
    await sandbox.kill()

asyncio.run(main())
"""


def test_a_pause_only_of_a_healthy_guest(service, python_dir, tmp_path):
    run = run_program(STRICT, tmp_path, clean_env(tmp_path, python_dir, **ours(service)))
    assert (run.stdout, run.returncode) == ("True False paused\nTrue True\nTrue\n", 0), run.stderr
    for box in service.request("GET", "/v2/sandboxes")[2]:
        assert service.kill(box["sandboxID"]) == 204
