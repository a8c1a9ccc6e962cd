"""Our Python package, the published one and e2b, call by call: the same scenario, results and exceptions compared.

What differs from both is listed here with its reason, and in docs/python-differences.md for users.
"""

import json
import os
import re
import subprocess

import pytest
from conftest import ROOT
from service import Service
from status_server import StatusServer

SCENARIO = ROOT / "tests/sdk/python_scenario.py"

# Steps (whole names, as a pattern) in which ours is like neither of the others, and why.
SERVICE = {
    r"(async )?git status( staged)?": "names with a blank come without git's quotes",
    r"(async )?create no template": "404 is a NotFoundException",
    r"list beyond": "SandboxException instead of a bare Exception",
}
FAULTS = {
    r"(create|connect|info|kill|set timeout|list) 400": "400 is an InvalidArgumentException in the control plane too",
    r"(create|list) 404": "404 is a NotFoundException in the control plane too",
    r"(create|connect|info|kill|set timeout|list) 50[23]": "unavailable is a TimeoutException in the control plane too",
    r"(create|connect|info|kill|set timeout|list|stat|run|processes) 507": "507 is a NotEnoughSpaceException everywhere",
    r"(read|write|running) 503": "unavailable is a TimeoutException for files too",
    r"stat 404": "404 that envd did not say is about the sandbox, not the file",
    r"running 502": "502 that does not say that the sandbox is gone is an error, not False",
}
PURE = {
    r"config key": "a key that validate_api_key refuses is told by ConnectionConfig, not by the first call",
}


def run(python, module, kind, home, names, path=None):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("ABX_", "E2B_", "PYTHON"))}
    env.update(names, HOME=str(home), PYTHONDONTWRITEBYTECODE="1", **({"PYTHONPATH": str(path)} if path else {}))
    done = subprocess.run(
        [python, "-W", "ignore", SCENARIO, module, kind], env=env, cwd=home, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def compare(kind, names, known, tools_dir, python_dir, home):
    py = tools_dir / "py/bin/python"
    ours = run(py, "agent_sandbox", kind, home, names, python_dir)
    published = run(tools_dir / "agent-sandbox-client-0.4.0a6/bin/python", "agent_sandbox", kind, home, names)
    official = run(py, "e2b", kind, home, names)
    assert set(ours) == set(published) == set(official)
    differing = {name for name in ours if ours[name] not in (published[name], official[name])}
    expected = {name for name in ours if any(re.fullmatch(pattern, name) for pattern in known)}
    surprises = {name: (ours[name], published[name], official[name]) for name in differing - expected}
    assert not surprises, json.dumps(surprises, indent=1)
    assert not expected - differing, "these differ no more: take them off the list and out of the documentation"


@pytest.mark.slow
def test_same_scenario_same_results(build_dir, base_template, tools_dir, python_dir, tmp_path):
    with Service(build_dir) as service:
        names = {**service.client_env(), "E2B_DOMAIN": f"localhost:{service.port}"}
        compare("service", names, SERVICE, tools_dir, python_dir, tmp_path)
        assert service.request("GET", "/v2/sandboxes")[2] == []


@pytest.mark.slow
def test_same_faults_same_exceptions(tools_dir, python_dir, tmp_path):
    with StatusServer() as server:
        names = {"E2B_API_URL": server.origin, "E2B_SANDBOX_URL": server.origin}
        compare("faults", names, FAULTS, tools_dir, python_dir, tmp_path)


def test_same_without_any_server(tools_dir, python_dir, tmp_path):
    compare("pure", {}, PURE, tools_dir, python_dir, tmp_path)
