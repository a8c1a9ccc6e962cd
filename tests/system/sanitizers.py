"""What is different about programs of a build with sanitizers (`script/test --sanitize-system`).

Whatever such a build cannot show says so: a test of its own is skipped with a reason, a part of one warns with it.
"""

import functools
import json
import re
import subprocess
import warnings
from pathlib import Path

import pytest
from processes import read
from waiting import BUSY_S


class NotMeasured(UserWarning):
    """What a test would have asserted of a release; pytest lists them at the end of a run."""


@functools.cache
def of_build(build_dir):
    """The sanitizers of a build folder, by its options: "address,undefined", or ""."""
    options = json.loads((Path(build_dir) / "meson-info/intro-buildoptions.json").read_text())
    return {o["name"]: o["value"] for o in options}["b_sanitize"].replace("none", "")


def skip_sanitized(build_dir, reason):
    """Skips the test under way if the build has sanitizers."""
    if found := of_build(build_dir):
        pytest.skip(f"this build has sanitizers ({found}): {reason}")


def is_sanitized(pid):
    """Has the process the address sanitizer, whichever build it comes from? Warns if so: what it frees it keeps, and each
    byte has a shadow, so that its memory is no measure. False when it is gone."""
    found = "libasan" in (read(pid, "maps") or "")
    if found:
        warnings.warn("memory is not measured: the process has sanitizers", NotMeasured, stacklevel=3)
    return found


def resident_kib(pid):
    """Resident KiB of a process; 0 of one with sanitizers."""
    if is_sanitized(pid):
        return 0
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1])


def preloaded(build_dir, library):
    """The environment in which programs of the build load a library before all others: the sanitizer's has to be the first. It is
    then in each program that they run, too, whose leaks are not ours."""
    if not of_build(build_dir):
        return {"LD_PRELOAD": str(library)}
    linked = subprocess.run(["ldd", build_dir / "abx"], stdout=subprocess.PIPE, text=True, check=True, timeout=BUSY_S).stdout
    return {"LD_PRELOAD": f"{re.search(r'/[^ ]*/libasan[^ ]*', linked)[0]}:{library}", "ASAN_OPTIONS": "detect_leaks=0"}
