"""What every system test may use: where the built tree, the tools, the base template and our Python package are; libabx."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import service

from libabx import Library

ROOT = Path(__file__).resolve().parents[2]

# Files that take longest, in this order, begin first where files run beside each other: none of them is left for the end.
LONGEST = (
    "test_template_base", "test_sdk", "test_compatibility", "test_stuck_workers", "test_hung_roles", "test_guest_watch",
    "test_python_compare", "test_fault_points", "test_disk_pool", "test_serve", "test_engine", "test_quickstart", "test_client_faults", "test_cli_client_exec",
    "test_python_package", "test_guest_process", "test_gateway_h2", "test_transport", "test_python_interrupt", "test_egress",
    "test_attack_pool", "test_transport_tls", "test_client_control", "test_faults_process",
)


def pytest_collection_modifyitems(items):
    rank = {name: i for i, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.stem, len(LONGEST)))


def pytest_configure():
    """What runs in the background of a script or under nohup ignores signals, and hands that on to the programs that tests signal."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def pytest_sessionstart(session):
    """A run that was cut off before leaves services running, mounts, cgroups and folders."""
    if "PYTEST_XDIST_WORKER" in os.environ or session.config.option.collectonly:
        return
    for folder in service.left_behind():
        try:
            service.clean_up(os.environ.get("ABX_BUILD", ROOT / "build"), folder)
        except (OSError, RuntimeError, subprocess.SubprocessError, AssertionError) as e:
            print(f"{folder} of a run before stays: {e}", file=sys.stderr)


@pytest.fixture(scope="session")
def build_dir():
    """The build tree under test (ABX_BUILD, else build/)."""
    return Path(os.environ.get("ABX_BUILD", ROOT / "build"))


@pytest.fixture(scope="module")
def abx(build_dir):
    """libabx of the build tree."""
    return Library(build_dir)


@pytest.fixture
def client(abx):
    with abx.client() as made:
        yield made


@pytest.fixture(scope="session")
def tools_dir():
    """The folder of pinned clients and Node (ABX_TOOLS, else what script/tools prints)."""
    if "ABX_TOOLS" in os.environ:
        return Path(os.environ["ABX_TOOLS"])
    run = subprocess.run([ROOT / "script/tools"], stdout=subprocess.PIPE, text=True, check=True, timeout=1800)
    return Path(run.stdout.splitlines()[-1])


@pytest.fixture(scope="session")
def base_template(build_dir):
    """The folder of the base template (ABX_BASE_TEMPLATE, else in /var/cache/abx, built when it is missing)."""
    if "ABX_BASE_TEMPLATE" in os.environ:
        return Path(os.environ["ABX_BASE_TEMPLATE"])
    run = subprocess.run(
        [build_dir / "tests/tools/template_base_tool", f"recipe={ROOT}/share/template/base"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=1200,
    )
    return Path(run.stdout.strip())


def compiler_env():
    """CC for builds that pip or meson-python start: the compiler of the build, which need not be called cc."""
    return {"CC": os.environ.get("CC") or next(filter(shutil.which, ("gcc-12", "gcc", "cc")))}


def build_wheel(python, tree, out, build=None):
    """Makes a wheel of the source tree as pip does, without pip; returns its path. `build` keeps objects for next time."""
    settings = {} if build is None else {"builddir": str(build)}
    out.mkdir(parents=True, exist_ok=True)
    run = subprocess.run(
        [python, "-c", f"import mesonpy; print(mesonpy.build_wheel({str(out)!r}, {settings!r}))"],
        cwd=tree,
        env={**os.environ, **compiler_env(), "PATH": f"{Path(python).parent}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert run.returncode == 0, run.stdout[-4000:]
    return out / run.stdout.split()[-1]


@pytest.fixture(scope="session")
def run_dir(tmp_path_factory):
    """A folder that all processes of this run share (pytest-xdist gives each a basetemp of its own below the run's)."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def python_wheel(build_dir, tools_dir, run_dir):
    """The wheel of our Python package, built by the first process that wants it."""
    out = run_dir / "wheel"
    with open(run_dir / "wheel.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # bounded by the build's own time limit
        made = list(out.glob("*.whl"))
        return made[0] if made else build_wheel(tools_dir / "py/bin/python", ROOT, out, build_dir / "python-package")


@pytest.fixture(scope="session")
def python_dir(request, tmp_path_factory):
    """A folder for PYTHONPATH with our Python package as it is installed (ABX_PYTHON_DIR, else built)."""
    if "ABX_PYTHON_DIR" in os.environ:
        return Path(os.environ["ABX_PYTHON_DIR"])
    python_wheel = request.getfixturevalue("python_wheel")
    folder = tmp_path_factory.mktemp("python")
    with zipfile.ZipFile(python_wheel) as wheel:
        wheel.extractall(folder)
    return folder
