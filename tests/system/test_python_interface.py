"""The public face of our Python package against the published one: every name, signature, field and member."""

import json
import os
import subprocess

import pytest
from conftest import ROOT

# What ours does not have: a later step, or third-party types in the interface.
LATER = {"client", "sandbox", "ProviderSandbox", "ApiClient", "ProxyTypes", "__version__"}
PRIVATE = {f"code_interpreter.{name}" for name in (*LATER, "code_interpreter_async", "code_interpreter_sync", "constants",
                                                   "exceptions", "models")}  # fmt: skip
# The published class shows the form for the class; ours is described by the form for objects.
FORMS = {("Volume", "list"), ("Volume", "get_info"), ("AsyncVolume", "list"), ("AsyncVolume", "get_info")}

# Parameters that only ours has, by keyword (docs/python-differences.md).
OWN = {"output_offset", "strict"}
OWN_KEYS = {"dns_servers", "egress_proxy", "https_ports"}  # of networks: the service has them, and so has PyPI e2b


def without_own(described):
    """A method as described, without these parameters."""
    if not isinstance(described, list):
        return described
    return [without_own(d) for d in described if not (isinstance(d, list) and d and d[0] in OWN and d[1] == "KEYWORD_ONLY")]


def describe(python, path=None):
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    env.update(PYTHONDONTWRITEBYTECODE="1", **({"PYTHONPATH": str(path)} if path else {}))
    script = ROOT / "tests/sdk/describe_package.py"
    done = subprocess.run([python, script], env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def faces(tools_dir, python_dir):
    ours = describe(tools_dir / "py/bin/python", python_dir)
    return ours, describe(tools_dir / "agent-sandbox-client-0.4.0a6/bin/python")


def test_every_name_is_there(faces):
    ours, published = faces
    assert set(published) - set(ours) - LATER - PRIVATE == set()


def test_every_signature_field_and_member_is_the_same(faces):
    ours, published = faces
    found = {}
    for name in set(published) & set(ours) - LATER - PRIVATE:
        for aspect, value in published[name].items():
            mine = ours[name].get(aspect)
            if aspect == "ancestors":  # of the public ones
                known = set(published)
                same = [c for c in mine if c in known] == [c for c in value if c in known]
            elif aspect == "methods":
                short = name.rsplit(".", 1)[-1]
                wrong = {m: (v, mine.get(m)) for m, v in value.items() if without_own(mine.get(m)) != v and (short, m) not in FORMS}
                same = not wrong
                mine = wrong
            elif aspect == "optional":
                same = [key for key in mine if key not in OWN_KEYS] == value
            else:
                same = mine == value
            if not same:
                found[f"{name} {aspect}"] = (value if aspect != "methods" else "", mine)
    assert not found, json.dumps(found, indent=1)


def test_every_method_has_a_docstring(python_dir, tools_dir):
    code = (
        "import inspect, agent_sandbox as a, agent_sandbox.code_interpreter as c\n"
        "missing = []\n"
        "for m in (a, c):\n"
        "    for n in m.__all__:\n"
        "        v = getattr(m, n)\n"
        "        if not inspect.isclass(v) or not v.__module__.startswith('agent_sandbox'): continue\n"
        "        if not v.__doc__: missing.append(n)\n"
        "        missing += [n + '.' + k for k in vars(v) if not k.startswith('_') and (callable(getattr(v, k)) or "
        "isinstance(vars(v)[k], property)) and not getattr(vars(v)[k], '__doc__', None)]\n"
        "        missing += [n + '.' + k for k in vars(v) if not k.startswith('_') and callable(getattr(v, k)) and (not "
        "getattr(v, k).__doc__ or getattr(v, k).__name__ != k.removeprefix('beta_'))]\n"
        "print(missing)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(python_dir), "PYTHONDONTWRITEBYTECODE": "1"}
    out = subprocess.run([tools_dir / "py/bin/python", "-c", code], env=env, capture_output=True, text=True, timeout=60, check=True)
    assert out.stdout == "[]\n"


def test_names_work_as_python_expects(python_dir, tools_dir):
    """Star imports, type hints at run time, pickles, what is said about names that are not there."""
    code = """
from agent_sandbox import *
from agent_sandbox.code_interpreter import *
import agent_sandbox, copy, dataclasses, pickle, typing
print(Sandbox.default_template)
for name in agent_sandbox.__all__:
    value = getattr(agent_sandbox, name)
    if dataclasses.is_dataclass(value) or typing.is_typeddict(value):
        typing.get_type_hints(value)
error = CommandExitException("e", "o", 3, "x")
print(pickle.loads(pickle.dumps(error)) == copy.copy(error) == error, isinstance(error, CommandResult))
for call in (lambda: agent_sandbox.nothing, lambda: exec("from agent_sandbox import nothing"), lambda: ProviderSandbox()):
    try: call()
    except (AttributeError, ImportError, NotImplementedError) as e: print(type(e).__name__, "nothing" in str(e))
"""
    env = {**os.environ, "PYTHONPATH": str(python_dir), "PYTHONDONTWRITEBYTECODE": "1"}
    out = subprocess.run(
        [tools_dir / "py/bin/python", "-W", "error", "-c", code], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert out.stdout.splitlines() == [
        "code-interpreter-v1", "True True", "AttributeError True", "ImportError True", "NotImplementedError False",
    ], out.stderr  # fmt: skip
