"""Our Python package as an artefact: what is in it, how it is installed, what importing it costs, types and style."""

import os
import re
import shutil
import subprocess
import sys
import zipfile

import pytest
from conftest import ROOT, compiler_env

SOURCES = ROOT / "python"


def run(*args, timeout=300, **kwargs):
    done = subprocess.run(args, capture_output=True, text=True, timeout=timeout, check=False, **kwargs)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_wheel_has_the_package_and_nothing_else(python_wheel):
    assert re.fullmatch(r"agent_sandbox_client-[0-9.]+-cp3\d+-abi3-linux_[a-z0-9_]+\.whl", python_wheel.name)
    with zipfile.ZipFile(python_wheel) as wheel:
        names = {name for name in wheel.namelist() if not name.endswith("/")}
    info = {name for name in names if ".dist-info/" in name}
    modules = {f.relative_to(SOURCES).as_posix() for f in (SOURCES / "agent_sandbox").rglob("*.py*") if f.is_file()}
    modules = {name for name in modules if "__pycache__" not in name and not name.endswith(".so")}
    assert names - info == {*modules, "agent_sandbox/_native.abi3.so", "agent_sandbox/py.typed"} - {""}
    assert {name.split("/", 1)[1] for name in info} == {"METADATA", "RECORD", "WHEEL", "licenses/LICENSE"}


def test_extension_brings_libabx_and_shows_one_name(python_dir):
    symbols = run("nm", "-D", "--defined-only", python_dir / "agent_sandbox/_native.abi3.so")
    assert [line.split()[-1] for line in symbols.splitlines()] == ["PyInit__native"]
    assert "libabx" not in run("readelf", "-d", python_dir / "agent_sandbox/_native.abi3.so")


def test_one_binary_for_every_python_here(python_dir):
    env = {**os.environ, "PYTHONPATH": str(python_dir), "PYTHONDONTWRITEBYTECODE": "1"}
    found = [sys.executable]
    for minor in range(11, 16):
        name = shutil.which(f"python3.{minor}")
        if name and subprocess.run([name, "-c", ""], capture_output=True, check=False).returncode == 0:
            found.append(name)
    for python in found:
        assert run(python, "-c", "import agent_sandbox; print(agent_sandbox.Sandbox.__name__)", env=env) == "Sandbox\n"


@pytest.fixture(scope="module")
def sdist(tools_dir, tmp_path_factory):
    """The source archive, made of a copy of the files that git would take."""
    folder = tmp_path_factory.mktemp("sdist")
    tree = folder / "tree"
    ignore = shutil.ignore_patterns("build*", "__pycache__", ".git", "*.so", ".*_cache")
    shutil.copytree(ROOT, tree, ignore=ignore, symlinks=True)
    git = ["git", "-C", tree, "-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main"]
    run(*git, "init", "-q")
    run(*git, "add", "-A")
    run(*git, "commit", "-qm", "all")
    env = {**os.environ, **compiler_env(), "PATH": f"{tools_dir}/py/bin:{os.environ['PATH']}"}
    out = run(
        tools_dir / "py/bin/python", "-c", f"import mesonpy; print(mesonpy.build_sdist({str(folder)!r}))", cwd=tree, env=env
    )
    return folder / out.split()[-1]


@pytest.mark.slow
@pytest.mark.parametrize("pip", ["pip-21.2", "pip-current"])
def test_sdist_installs_alone_in_an_empty_folder(sdist, tools_dir, tmp_path, pip):
    """As a user does: a fresh venv, an old or the current pip, nothing but the archive."""
    archive = tmp_path / "in" / sdist.name
    archive.parent.mkdir()
    shutil.copy(sdist, archive)
    run(tools_dir / "py/bin/python", "-m", "venv", "--without-pip", tmp_path / "venv")
    python = tmp_path / "venv/bin/python"
    pip_dir = next((tools_dir / pip / "lib").glob("python3*/site-packages"))
    env = {**{k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}, **compiler_env()}
    install = "import sys; sys.path.append(sys.argv.pop(1)); import runpy; runpy.run_module('pip', run_name='__main__')"
    run(python, "-c", install, pip_dir, "install", "-q", "--no-deps", archive, cwd=archive.parent, env=env, timeout=600)
    shown = "import agent_sandbox, sys; print(agent_sandbox.AsyncSandbox.__name__, agent_sandbox.__version__)"
    assert run(python, "-c", shown, cwd=archive.parent, env=env) == "AsyncSandbox 0.1.0\n"
    found = sorted(p.name for p in next((tmp_path / "venv/lib").glob("python3*/site-packages")).iterdir())
    assert found == ["agent_sandbox", "agent_sandbox_client-0.1.0.dist-info"]


def test_types_are_strict(tools_dir, python_dir, tmp_path):
    run(tools_dir / "py/bin/mypy", "--cache-dir", tmp_path / "cache", cwd=ROOT)
    program = tmp_path / "program.py"
    program.write_text(
        "import asyncio\n"
        "from agent_sandbox import AsyncSandbox, Sandbox\n"
        "from agent_sandbox.code_interpreter import Sandbox as Code\n"
        "async def main() -> None:\n"
        "    a = await AsyncSandbox.create()\n"
        "    reveal_type(await a.commands.run('x'))\n"
        "    reveal_type(await a.commands.run('x', background=True))\n"
        "    reveal_type(await a.files.read('x', format='bytes'))\n"
        "    reveal_type(await AsyncSandbox.connect('x'))\n"
        "    reveal_type(await AsyncSandbox.kill('x'))\n"
        "s = Sandbox.create()\n"
        "reveal_type(s.kill())\n"
        "reveal_type(Code.connect('x'))\n"
        "reveal_type(s.get_info().state)\n"
    )
    env = {**os.environ, "MYPYPATH": str(python_dir)}
    out = run(
        tools_dir / "py/bin/mypy", "--strict", "--config-file=", "--cache-dir", tmp_path / "cache2", program, env=env, cwd=tmp_path
    )
    assert re.findall(r'Revealed type is "(?:\w+\.)*(\w+)"', out) == [
        "CommandResult", "AsyncCommandHandle", "bytearray", "AsyncSandbox", "bool", "bool", "Sandbox", "SandboxState",
    ]  # fmt: skip
    assert "code_interpreter" in next(line for line in out.splitlines() if ":13:" in line)


def test_style_is_clean(tools_dir, tmp_path):
    env = {**os.environ, "RUFF_CACHE_DIR": str(tmp_path)}
    run(tools_dir / "py/bin/ruff", "check", "python", cwd=ROOT, env=env)
    run(tools_dir / "py/bin/ruff", "format", "--check", "python", cwd=ROOT, env=env)
    run(sys.executable, ROOT / "python/make_sync.py", "--check")


COST = """
import sys, time
def rss():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmRSS"))
before, began = rss(), time.perf_counter()
import agent_sandbox
print(time.perf_counter() - began, rss() - before, len(sys.modules))
"""


def import_cost(python, env):
    """Best of several: (seconds, KiB)."""
    runs = [run(python, "-c", COST, env=env).split() for _ in range(7)]
    return min(float(r[0]) for r in runs), min(int(r[1]) for r in runs)


def test_import_costs_at_most_a_quarter_of_the_published_package(python_dir, tools_dir):
    base = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    ours = import_cost(tools_dir / "py/bin/python", {**base, "PYTHONPATH": str(python_dir)})
    theirs = import_cost(tools_dir / "agent-sandbox-client-0.4.0a6/bin/python", base)
    assert ours[0] <= theirs[0] / 4 and ours[1] <= theirs[1] / 4, (ours, theirs)


def test_no_third_party_module_is_loaded(python_dir, tools_dir):
    env = {**os.environ, "PYTHONPATH": str(python_dir), "PYTHONDONTWRITEBYTECODE": "1"}
    code = (
        "import sys, agent_sandbox\n"
        "for name in agent_sandbox.__all__: getattr(agent_sandbox, name)\n"
        "import agent_sandbox.code_interpreter\n"
        "known = set(sys.stdlib_module_names) | {'agent_sandbox', '__main__', 'sitecustomize', 'usercustomize'}\n"
        "print(sorted({m.split('.')[0] for m in sys.modules} - known))\n"
    )
    out = run(tools_dir / "py/bin/python", "-S", "-c", code, env=env)
    assert out.strip() == "[]"


def test_other_distributions_add_to_the_package(python_dir, tmp_path):
    other = tmp_path / "agent_sandbox" / "server"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("HERE = True\n")
    (other.parent / "__init__.py").write_text("__path__ = __import__('pkgutil').extend_path(__path__, __name__)\n")
    env = {**os.environ, "PYTHONPATH": f"{python_dir}:{tmp_path}", "PYTHONDONTWRITEBYTECODE": "1"}
    code = "import agent_sandbox.server as s, agent_sandbox as a; print(s.HERE, a.Sandbox.__name__)"
    assert run(sys.executable, "-c", code, env=env) == "True Sandbox\n"
