"""What every system test may use: where the built tree, the tools, the base template and our Python package are."""

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def build_dir():
    """The build tree under test (ABX_BUILD, else build/)."""
    return Path(os.environ.get("ABX_BUILD", ROOT / "build"))


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
def python_wheel(build_dir, tools_dir, tmp_path_factory):
    """The wheel of our Python package."""
    out = tmp_path_factory.mktemp("wheel")
    return build_wheel(tools_dir / "py/bin/python", ROOT, out, build_dir / "python-package")


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
