"""What every system test may use: where the built tree, the tools and the base template are."""

import os
import subprocess
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
