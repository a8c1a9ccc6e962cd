"""The service on machines that are set up otherwise than ours: it works as everywhere, or says what is in the way."""

import signal
import stat
import subprocess
from pathlib import Path

import pytest
from envd import Envd
from service import Service
from waiting import BUSY_S, until


@pytest.fixture
def served(build_dir, base_template, tmp_path):
    """served(shell, **options): a service that begins with a piece of shell, which may change its mounts."""
    started = []

    def start(shell, **options):
        service = Service(build_dir, **options)
        started.append(service)
        service.abx = tmp_path / "abx"
        service.abx.write_text(f'#!/bin/bash\nset -e\n{shell}\nexec "{build_dir}/abx" "$@"\n')
        service.abx.chmod(0o755)
        return service.start()

    yield start
    for service in started:
        service.stop()
        service.remove()


@pytest.mark.parametrize("mask", ["077", "000"])
def test_any_umask(served, mask):
    service = served(f"umask {mask}")
    box = service.create(timeout=600)
    assert Envd(service, box, user="user").sh("umask").strip() == "0022"
    for path in (service.data_dir, *service.data_dir.iterdir()):
        if path.name not in ("serve.log", "owner-of-test", "local-clients"):
            assert not path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH), path
    service.kill(box["sandboxID"])


def test_limits_that_do_not_hold_are_told(served):
    loop = "/dev/loop-control"
    if subprocess.run(["test", "-e", loop]).returncode != 0:
        pytest.skip("this machine has no loop devices, so the pool is never an image")
    service = served(
        f'[ -n "$inside" ] || inside=1 exec unshare -m "$0" "$@"\nmount --bind /dev/null {loop}')
    box = service.create(timeout=600)
    told = "sandboxes have no disk limit: disk image: "
    # Where the data dir's own file system has limits, no image is needed.
    until(lambda: (told in service.logged()) == (box["diskSizeMB"] == 0))
    assert "sandboxes have no memory limit" not in service.logged()
    service.kill(box["sandboxID"])


def test_the_printed_lines_are_for_a_shell_whatever_the_folder_is_called(served, tmp_path):
    folder = tmp_path / "it's \"a\" $HOME of `ü` and  more"
    folder.mkdir()
    service = served("", data_dir=folder)
    script = "\n".join([*service.printed[:-1], 'printf %s "$E2B_API_KEY"'])
    key = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, check=True)
    assert (key.stdout, key.stderr) == (service.key, "")
    assert service.kill(service.create(timeout=600)["sandboxID"]) == 204


def test_nobody_has_to_read_the_log(served):
    """`abx serve 2>&1 | tee log` and Ctrl-C, say: tee is gone before the service has said its last."""
    service = served("exec 2> >(head -n 1 > /dev/null)")
    box = service.create(timeout=600)
    assert Envd(service, box, user="user").sh("echo on") == "on\n"
    run_dir = Path("/run/abx") / service.instance()
    assert run_dir.exists()
    service.process.send_signal(signal.SIGINT)
    assert service.process.wait(BUSY_S) == 0
    assert not run_dir.exists()


def test_a_chroot_is_told(build_dir, tmp_path):
    shell = 'mount --rbind / "$1" && exec chroot "$1" "$2" doctor'
    run = subprocess.run(
        ["unshare", "-m", "--propagation", "private", "sh", "-c", shell, "sh", tmp_path, Path(build_dir) / "abx"],
        capture_output=True, text=True, timeout=BUSY_S)  # fmt: skip
    assert run.returncode == 1, run
    found = run.stdout.split("user-namespaces", 1)[1]
    assert found.split()[0] == "refused:" and "in a chroot there are none" in found, run.stdout
