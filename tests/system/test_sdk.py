"""The official E2B clients and the published agent-sandbox-client, unmodified, against one real service.

Each client has an environment of its own (script/tools); its tests are in tests/sdk and run there as they would on
a user's machine: nothing but the address and the key in the environment, and waiting.py of this folder to import.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest
from service import Service
from waiting import BUSY_S

SDK = Path(__file__).resolve().parents[1] / "sdk"


@pytest.fixture(scope="module")
def service(build_dir, base_template):
    with Service(build_dir, "--pool", "base=2") as s:
        yield s
        left = s.request("GET", "/v2/sandboxes")[2]
        for box in left:
            s.kill(box["sandboxID"])
        s.until_clean()


def client_env(service, home):
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("E2B_", "ABX_", "SANDBOX_"))}
    provider = {"ABX_SANDBOX_API_KEY": service.key, "ABX_SANDBOX_BASE_URL": service.origin}
    return {**keep, **service.client_env(), **provider, "HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1", "NO_COLOR": "1"}


def run_pytest(python, folder, service, tmp_path, *args):
    run = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-x", "-o", f"pythonpath={Path(__file__).parent}", *args, folder],
        env=client_env(service, tmp_path), cwd=folder, capture_output=True, text=True, timeout=560,
    )
    print(run.stdout[-12000:], run.stderr[-4000:])
    assert run.returncode == 0
    assert re.search(r"\d+ passed", run.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("env", ["py", "e2b-2.26.0"])
def test_e2b_python(service, tools_dir, tmp_path, env):
    run_pytest(tools_dir / env / "bin/python", SDK / "e2b_python", service, tmp_path)


@pytest.mark.slow
def test_agent_sandbox_client(service, tools_dir, tmp_path):
    python = tools_dir / "agent-sandbox-client-0.4.0a6/bin/python"
    run_pytest(python, SDK / "agent_sandbox_client", service, tmp_path)


@pytest.mark.slow
def test_e2b_javascript(service, tools_dir, tmp_path):
    env = client_env(service, tmp_path)
    env["E2B_NODE_MODULES"] = str(tools_dir / "node/node_modules")
    run = subprocess.run(
        [tools_dir / "bin/node", "--test", "--test-timeout=120000", SDK / "e2b_js/sandbox.test.mjs"],
        env=env, cwd=tmp_path, capture_output=True, text=True, timeout=560,
    )
    print(run.stdout[-12000:], run.stderr[-4000:])
    assert run.returncode == 0
    assert re.search(r"pass [1-9]", run.stdout)


def cli(service, tools_dir, home, *args, **kwargs):
    env = client_env(service, home)
    env["PATH"] = f"{tools_dir / 'bin'}:{env['PATH']}"
    return subprocess.run(
        [tools_dir / "bin/node", tools_dir / "node/node_modules/.bin/e2b", *args],
        env=env, cwd=home, capture_output=True, text=True, timeout=BUSY_S, stdin=kwargs.pop("stdin", subprocess.DEVNULL), **kwargs,
    )


def test_e2b_cli(service, tools_dir, tmp_path):
    made = cli(service, tools_dir, tmp_path, "sandbox", "create", "base", "--detach")
    assert made.returncode == 0, made.stderr
    sandbox_id = re.search(r"\bi[a-z0-9]{20}\b", made.stdout + made.stderr).group()
    listed = cli(service, tools_dir, tmp_path, "sandbox", "list")
    assert listed.returncode == 0 and sandbox_id in listed.stdout
    info = cli(service, tools_dir, tmp_path, "sandbox", "info", sandbox_id)
    assert info.returncode == 0 and sandbox_id in info.stdout and "base" in info.stdout
    ran = cli(service, tools_dir, tmp_path, "sandbox", "exec", sandbox_id, "echo out; echo err >&2; exit 7")
    # The CLI itself adds the end event's text.
    assert (ran.returncode, ran.stdout, ran.stderr) == (7, "out\n", "err\nexit status 7\n")
    killed = cli(service, tools_dir, tmp_path, "sandbox", "kill", sandbox_id)
    assert killed.returncode == 0, killed.stderr
    assert service.kill(sandbox_id) == 404


def test_e2b_cli_wrong_key(service, tools_dir, tmp_path):
    env = client_env(service, tmp_path)
    run = subprocess.run(
        [tools_dir / "bin/node", tools_dir / "node/node_modules/.bin/e2b", "sandbox", "list"],
        env={**env, "E2B_API_KEY": "e2b_" + "0" * 40}, cwd=tmp_path, capture_output=True, text=True, timeout=BUSY_S,
        stdin=subprocess.DEVNULL,
    )
    assert run.returncode != 0
