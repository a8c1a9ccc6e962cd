"""What the probe says about a machine, driven through tests/tools/limits_tool.c --probe. Needs root."""

import json
import os
import re
import subprocess

import pytest
from limits import INTO_GROUP, TOOL, crowded_group, data, mounts_below, own_groups  # noqa: F401

pytestmark = pytest.mark.alone  # each start of a service probes too, and what it makes for that looks the same


def probe(*args, prefix=(), least=20):
    run = subprocess.run([*prefix, TOOL, "--probe", *map(str, args)], capture_output=True, text=True, timeout=60)
    result = json.loads(run.stdout)
    assert run.returncode == (0 if result["can_run"] else 1)
    checks = {c["name"]: c for c in result["checks"]}
    assert len(checks) == len(result["checks"]) >= least
    for c in checks.values():
        assert set(c) == {"name", "status", "value", "meaning", "fix"}
        assert c["value"] and c["status"] in ("ok", "info", "degraded", "missing")
        if c["status"] in ("degraded", "missing"):
            assert c["fix"], f"{c['name']} says no way out"
    return checks


def left_by_probes():
    return own_groups("probe*") + [p for p in os.listdir("/var/tmp") if p.startswith(".abx-probe")]


def test_the_probe_finds_all_that_the_other_tests_use(data):
    checks = probe("--data-dir", data / "not/there")
    for name in ("root", "kernel", "user-namespaces", "proc-mount", "seccomp", "idmapped-mounts", "overlay", "cgroup-limits", "freeze-and-kill", "network-namespaces", "disk-limits"):
        assert checks[name]["status"] == "ok", checks[name]
    assert os.listdir(data) == []
    assert own_groups("probe*") == []
    assert mounts_below(data) == []


def test_the_probe_says_what_a_container_lacks():
    hidden = probe("--data-dir", "/var/tmp/x", prefix=("unshare", "-m", "sh", "-c", 'mount -t tmpfs none /proc/sys && exec "$0" "$@"'))
    assert hidden["proc-mount"]["status"] == "missing"
    assert "systempaths=unconfined" in hidden["proc-mount"]["fix"]
    weak = probe("--data-dir", "/var/tmp/x", prefix=("setpriv", "--bounding-set", "-sys_admin,-kill"))
    assert weak["root"]["value"] == "root without CAP_KILL CAP_SYS_ADMIN"
    assert {weak[name]["status"] for name in ("root", "user-namespaces", "idmapped-mounts", "overlay")} == {"missing"}
    # What fails for want of root is no finding.
    user = probe("--data-dir", "/var/tmp/x", prefix=("setpriv", "--reuid", "1000", "--clear-groups", "--inh-caps=-all"), least=8)
    assert [name for name, check in user.items() if check["status"] == "missing"] == ["root"]
    elsewhere = probe("--data-dir", "/proc/x")
    assert elsewhere["overlay"]["status"] == "missing"
    assert left_by_probes() == []


def test_the_probe_sees_a_disk_that_cannot_be_mapped(data):
    ramfs = probe("--data-dir", data / "x", prefix=("unshare", "-m", "sh", "-c", f'mount -t ramfs none {data} && exec "$0" "$@"'))
    assert ramfs["idmapped-mounts"]["status"] == "missing"
    assert "ramfs" in ramfs["idmapped-mounts"]["value"]


def test_the_probe_judges_a_small_or_full_disk_as_the_service_does(data, build_dir):
    def on(size, fill, *command):
        script = f'mount -t tmpfs -o size={size} none {data} && head -c {fill} /dev/zero >{data}/fill; exec "$0" "$@"'
        return ("unshare", "-m", "sh", "-c", script, *command)

    for size, fill, words in (("200M", "0", "the disk image would have 160 MiB, 256 are needed"), ("300M", "300M", "the disk image would have 0 MiB")):
        disk = probe("--data-dir", data / "d", prefix=on(size, fill))["disk-limits"]
        assert disk["status"] == "missing" and words in disk["value"] and "--data-dir on a" in disk["fix"], disk
    told = subprocess.run(on("200M", "0", build_dir / "abx", "doctor", "--data-dir", data / "d"), capture_output=True, text=True, timeout=60)
    assert told.returncode == 1 and "Sandboxes cannot run" in told.stdout, told
    refused = subprocess.run(
        on("200M", "0", build_dir / "abx", "serve", "--data-dir", data / "d", "--listen", "127.0.0.1:0"), capture_output=True, text=True, timeout=60)
    assert refused.returncode == 1 and "the disk image would have" in refused.stderr, refused
    # A pool that is there already needs no new room.
    script = f"mkdir -p {data}/d/pool && touch {data}/d/pool/disk.img; "
    has = ("unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size=200M none {data} && {script} exec "$0" "$@"')
    assert probe("--data-dir", data / "d", prefix=has)["disk-limits"]["status"] == "ok"


def test_the_probe_names_who_has_the_port():
    """8490 may be anybody's: in a network namespace of its own it is the test's."""
    script = ("import os, socket, subprocess, sys\n"
              "subprocess.run(['ip', 'link', 'set', 'lo', 'up'], check=True)\n"
              "s = socket.create_server(('127.0.0.1', 8490))\n"
              "print(os.getpid(), file=sys.stderr, flush=True)\n"
              "sys.exit(subprocess.run(sys.argv[1:]).returncode)\n")
    run = subprocess.run(["unshare", "-n", "python3", "-c", script, TOOL, "--probe", "--data-dir", "/var/tmp/x"], capture_output=True, text=True, timeout=60)
    port = next(c for c in json.loads(run.stdout)["checks"] if c["name"] == "port")
    assert port["status"] == "info"
    assert re.fullmatch(rf"port 8490 on 127.0.0.1 is taken by process {run.stderr.split()[0]} \(python3[.0-9]*\)", port["value"]), port


def test_the_probe_counts_open_files(tmp_path):
    few = probe("--data-dir", "/var/tmp/x", prefix=("prlimit", "--nofile=1024:2512"))["open-files"]
    assert (few["status"], few["value"]) == ("degraded", "at most 2512 for a process, enough for 1000 sandboxes")
    none = probe("--data-dir", "/var/tmp/x", prefix=("prlimit", "--nofile=64:64"))["open-files"]
    assert (none["status"], none["value"]) == ("missing", "at most 64 for a process, enough for 0 sandboxes")
    many = probe("--data-dir", "/var/tmp/x")
    assert re.fullmatch(r"at most \d+ for a process, enough for \d+ sandboxes", many["open-files"]["value"])
    for limit, status in ((100000, "degraded"), (2**63 - 1, "ok")):
        (tmp_path / "file-max").write_text(f"{limit}\n")
        script = f'mount --bind {tmp_path}/file-max /proc/sys/fs/file-max && exec "$0" "$@"'
        found = probe("--data-dir", "/var/tmp/x", prefix=("unshare", "-m", "sh", "-c", script))["open-files-machine"]
        assert found["status"] == status and f" of {limit} left" in found["value"], found


def test_the_probe_explains_itself_to_people():
    run = subprocess.run([TOOL, "--probe", "--text", "--data-dir", "/proc/x"], capture_output=True, text=True)
    assert run.returncode == 1
    assert re.search(r"^missing   overlay .*\n +the data dir can't be written\n +to get it: --data-dir", run.stdout, re.M)
    assert subprocess.run([TOOL, "--probe", "--what"], capture_output=True).returncode == 2


def test_the_probe_moves_no_process(crowded_group):
    checks = probe("--data-dir", "/var/tmp/x", prefix=("sh", "-c", INTO_GROUP.format(group=crowded_group, wrap="")))
    assert checks["cgroup-limits"]["status"] == "ok"
    assert "will move" in checks["cgroup-limits"]["value"]
    assert len((crowded_group / "cgroup.procs").read_text().split()) == 1
    assert [p.name for p in crowded_group.iterdir() if p.is_dir()] == []
