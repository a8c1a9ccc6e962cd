"""script/quickstart as a person runs it, on the tree under test."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def quickstart(*arguments, env=None, prefix=()):
    return subprocess.run(
        [*prefix, ROOT / "script/quickstart", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
        env={**os.environ, **(env or {})},
    )


def leftovers():
    return (
        list(Path("/var/tmp").glob("abx-quickstart.*")),
        [line for line in Path("/proc/self/mounts").read_text().splitlines() if "abx-quickstart" in line],
    )


def test_installs_what_the_readme_calls():
    """What needs a package of its own: a machine on which apt was never updated has no way to get it."""
    packages = subprocess.run(["bash", "-c", ". script/lib.sh; packages_of build quickstart"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    has = set(packages.stdout.split())
    commands = re.findall(r"`man |python3 -m venv|pip install|ninja -C", (ROOT / "README.md").read_text())
    needed = {"`man ": "man-db", "python3 -m venv": "python3-venv", "pip install": "python3-pip", "ninja -C": "ninja-build"}
    assert set(commands) == set(needed) and {needed[c] for c in commands} - has == set()


def test_a_checkout_may_be_called_anything(tmp_path):
    folder = tmp_path / "it's \"a\" $HOME and ü"
    (folder / "script").mkdir(parents=True)
    shutil.copy(ROOT / "script/lib.sh", folder / "script")
    script = 'umask 077; . "$0/script/lib.sh"; f() { printf "%s %s" "$(umask)" "$ROOT"; }; bounded 60 f'
    run = subprocess.run(["bash", "-c", script, folder], capture_output=True, text=True, check=True)
    assert (run.stdout, run.stderr) == (f"0022 {folder}", "")


# As on a machine that was made strict: nothing in /tmp can be executed.
NOEXEC = 'mount --bind /tmp /tmp && mount -o remount,bind,noexec /tmp && exec "$0" "$@"'


@pytest.mark.slow
def test_runs_the_sdk_and_leaves_nothing():
    before = leftovers()
    strict = () if ROOT.is_relative_to("/tmp") else ("unshare", "--mount", "sh", "-c", NOEXEC)
    run = quickstart(env={"SUDO_UID": "1234", "SUDO_GID": "1234"}, prefix=strict)
    assert run.returncode == 0, run.stdout
    assert re.search(r"^sandbox \S+ is ready after \d+ ms$", run.stdout, re.M)
    assert re.search(r"^hello from \S+\nuser\n\d+\nPython 3\.\d+\.\d+\nv\d+\.\d+\.\d+\nwritten from outside$", run.stdout, re.M)
    assert "killed: True" in run.stdout
    assert "without any setting:\n\nhello\n\ncontent\n" in run.stdout  # our own client
    assert leftovers() == before
    assert os.stat(ROOT / "build/abx").st_uid == 1234
    subprocess.run(["chown", "-R", f"{os.getuid()}:{os.getgid()}", ROOT / "build"], check=True)


@pytest.mark.slow
def test_curl_does_the_same():
    run = quickstart("--curl")
    assert run.returncode == 0, run.stdout
    assert re.search(r"^sandbox \S+ is ready$", run.stdout, re.M)
    assert re.search(r"^written from outside\nhello from \S+\nkilled: 204$", run.stdout, re.M), run.stdout


@pytest.mark.slow
def test_keep_leaves_the_service_running():
    run = quickstart("--keep")
    assert run.returncode == 0, run.stdout
    process = int(re.search(r"the service goes on \(process (\d+)\)", run.stdout)[1])
    data = Path(re.search(r"then remove (\S+)", run.stdout)[1])
    try:
        assert Path(f"/proc/{process}/exe").resolve() == ROOT / "build/abx"
        url = re.search(r"the service is at (\S+)", run.stdout)[1]
        health = subprocess.run(["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", f"{url}/health"], stdout=subprocess.PIPE, text=True)
        assert health.stdout == "200"
    finally:
        os.kill(process, 2)
        subprocess.run(["timeout", "30", "tail", f"--pid={process}", "-f", "/dev/null"], check=True)
        for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            if line.split()[1].startswith(str(data)):
                subprocess.run(["umount", line.split()[1]], check=True)
        subprocess.run(["rm", "-rf", "--one-file-system", data], check=True)


def test_says_what_is_missing_and_changes_nothing():
    """Without CAP_SYS_ADMIN, as in an unprivileged container."""
    run = quickstart(prefix=["setpriv", "--bounding-set", "-sys_admin"])
    assert run.returncode == 1
    assert "MISSING tmpfs and overlay mounts" in run.stdout
    in_container = any(Path(mark).exists() for mark in ("/.dockerenv", "/run/.containerenv"))
    assert ("--privileged" if in_container else "Run this on the machine itself") in run.stdout
    assert "nothing was installed or changed" in run.stdout
    assert "build" not in run.stdout.split("nothing was installed")[1]


def test_bad_option_is_refused():
    run = quickstart("--what")
    assert run.returncode == 1 and "usage: script/quickstart [--keep] [--curl]" in run.stdout


def test_room_is_a_requirement_with_what_was_found():
    small = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=1500M none /var && exec "$0" "$@"']
    run = quickstart(prefix=small)
    assert run.returncode == 1 and "nothing was installed" in run.stdout
    assert re.search(r"MISSING room in /var: 1\.5 GB free, 3 GB are needed$", run.stdout, re.M), run.stdout
