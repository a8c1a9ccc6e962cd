"""script/pytest.sh: tests that fail are tried again, alone; which failures count at the end."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Each run of a "shaky" one writes a line.
TESTS = """
import pathlib
import pytest

RUNS = pathlib.Path({runs!r})

def test_good():
    pass

@pytest.mark.parametrize("what", ["a b", "ä"])
def test_shaky(what):
    with RUNS.open("a") as f:
        f.write(what + "\\n")
    assert RUNS.read_text().count(what) not in {failing}

class TestClass:
    def test_other(self):
        pass
"""


def run(tmp_path, tools_dir, failing, strict="", workers=1, files="tests/system"):
    """(exit code, output, runs of "ä") of a step over a file whose shaky tests fail in these runs, counted from 1."""
    runs, tests = tmp_path / "runs", tmp_path / "tests" / "system"
    tests.mkdir(parents=True)  # a project of its own, with the folders that the steps see
    (tmp_path / "tests" / "count_results.py").symlink_to(ROOT / "tests" / "count_results.py")
    (tests / "pytest.ini").write_text((ROOT / "tests" / "system" / "pytest.ini").read_text())
    (tests / "test_it.py").write_text(TESTS.format(runs=str(runs), failing=failing))
    script = f"""
        set -uo pipefail
        . {ROOT}/script/lib.sh; . {ROOT}/script/pytest.sh
        LOGS={tmp_path}/logs; cd {tmp_path}; strict={strict}; BASETEMP={tmp_path}/base
        pytest_run it 100 "" {workers} {files} A=b; echo "rc $?"; conclude
    """
    done = subprocess.run(
        ["bash", "-c", script],
        env={"PATH": os.environ["PATH"], "ABX_TOOLS": str(tools_dir)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
    )
    return done.returncode, done.stdout, runs.read_text().count("ä")


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("files", ["tests/system", "tests/system/test_it.py"])
def test_one_that_passes_thrice_alone_counts_as_passed_and_is_named(tmp_path, tools_dir, workers, files):
    code, out, runs = run(tmp_path, tools_dir, {1}, workers=workers, files=files)
    assert code == 0 and "\nrc 0\n" in out and runs == 4, out
    assert out.endswith("4 passed, 0 failed, 0 skipped\n"), out
    assert out.count("failed once, then passed three times alone (look into it): ") == 2 and "test_shaky[a b]" in out


@pytest.mark.parametrize("failing, runs", [({1, 2}, 2), ({1, 4}, 4)], ids=["the second time", "the last time"])
def test_one_that_fails_once_more_has_failed(tmp_path, tools_dir, failing, runs):
    code, out, did = run(tmp_path, tools_dir, failing)
    assert code == 1 and "\nrc 1\n" in out and did == runs, out
    assert out.endswith("2 passed, 2 failed, 0 skipped\n") and "failed: it it-again" in out, out


def test_strict_tries_once(tmp_path, tools_dir):
    code, out, runs = run(tmp_path, tools_dir, {1}, strict="1")
    assert code == 1 and runs == 1 and out.endswith("2 passed, 2 failed, 0 skipped\n"), out
