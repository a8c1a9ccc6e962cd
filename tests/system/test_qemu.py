"""A second kernel: Debian's own 6.1 in a virtual machine, with cgroup v2 alone and overlays that take paths only.

The machine boots from the base template; a second disk holds the built tree, the tests and what they need. What runs
inside prints TAP on the console (qemu/run.sh), and each of its lines is checked here.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.long, pytest.mark.timeout(3000)]

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path("/var/cache/abx/qemu")
# In the order of loading; what they depend on is found in the modules themselves.
MODULES = """virtio_ring virtio virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci virtio_blk overlay loop crc32c_generic
xxhash_generic sha256_generic blake2b_generic btrfs xfs veth""".split()
# Programs that the tests call and the base template lacks.
PROGRAMS = "mkfs.btrfs btrfs mkfs.xfs xfs_growfs losetup setpriv unshare mkfs.ext4 mkswap swapon swapoff".split()
PYTHON = "py.py pytest _pytest pluggy iniconfig packaging pygments pytest_timeout.py".split()
# The test files that run in there, without what is marked slow, and of some only what pytest's -k takes. Those that
# measure times stay out: the machine is emulated, and ten times slower. ABX_QEMU_INSIDE="egress serve" by hand: these only.
INSIDE = {
    "probe": "", "cgroups": "", "disk_pool": "", "spawn": "", "engine": "", "serve": "", "isolation": "", "swap": "",
    "egress": "reaches or without_server or reserved or loopback or listener or udp or kernel_refuses or rules_by or new_address"
    " or urgent or reset_arrives or leaves_nothing or operator",
    "egress_names": "names_are_resolved or questions_over or only_one_domain or everything_else or allowed_names or bounded",
    "egress_life": "fork or snapshot or new_life",
}
INSIDE = {name: only for name, only in INSIDE.items() if name in os.environ.get("ABX_QEMU_INSIDE", name).split()}
TIMEOUT_S = 2400


def output(*argv, **options):
    return subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True, **options).stdout


@pytest.fixture(scope="session")
def kernel():
    """The folder of an unpacked Debian cloud kernel of the 6.1 series, fetched when there is none."""
    if found := sorted(CACHE.glob("*-cloud-amd64/boot/vmlinuz-*")):
        return found[-1].parents[1]
    CACHE.mkdir(parents=True, exist_ok=True)
    names = output("apt-cache", "search", "--names-only", r"^linux-image-6\.1\..*-cloud-amd64$").split("\n")
    versions = [name.split()[0] for name in names if name]
    if not versions:
        pytest.fail("apt knows no linux-image-6.1.*-cloud-amd64: apt-get update, or not Debian 12")
    newest = max(versions, key=lambda name: [int(n) for n in re.findall(r"\d+", name)])
    download, unpacked = CACHE / "download", CACHE / newest.removeprefix("linux-image-")
    shutil.rmtree(download, ignore_errors=True)
    download.mkdir()
    subprocess.run(["apt-get", "download", newest], cwd=download, check=True, timeout=600)
    part = CACHE / "unpacking"
    shutil.rmtree(part, ignore_errors=True)
    subprocess.run(["dpkg", "-x", next(download.glob("*.deb")), part], check=True)
    part.rename(unpacked)
    shutil.rmtree(download)
    return unpacked


def modules_in_order(kernel):
    """Paths of the modules, each behind those that it depends on."""
    files = {p.name.split(".")[0].replace("-", "_"): p for p in kernel.glob("lib/modules/*/kernel/**/*.ko")}
    order = []

    def add(name):
        path = files.get(name.replace("-", "_"))
        if path is None or path in order:
            return  # built in
        depends = re.search(rb"\0depends=([^\0]*)\0", path.read_bytes())[1].decode()
        for other in filter(None, depends.split(",")):
            add(other)
        order.append(path)

    for name in MODULES:
        add(name)
    return order


def make_initramfs(kernel, build_dir, stage, to):
    (stage / "modules").mkdir(parents=True)
    for name in ("dev", "proc", "sys", "root"):
        (stage / name).mkdir()
    # The kernel opens it before there is a devtmpfs.
    subprocess.run(["mknod", stage / "dev/console", "c", "5", "1"], check=True)
    shutil.copy(build_dir / "tests/tools/qemu_init", stage / "init")
    for i, path in enumerate(modules_in_order(kernel)):
        shutil.copy(path, stage / f"modules/{i:03}-{path.name}")
    names = output("find", ".", "-print0", cwd=stage)
    with open(to, "wb") as f:
        subprocess.run(["cpio", "--quiet", "-0", "-o", "-H", "newc"], cwd=stage, input=names.encode(), stdout=f, check=True)


def make_ext4(tree, to, extra_mb):
    size = int(output("du", "-s", "--block-size=1M", tree).split()[0])
    part = to.with_name(to.name + ".part")
    with open(part, "wb") as f:
        f.truncate((size + size // 5 + extra_mb) << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-d", tree, part], check=True)
    part.rename(to)


def libraries_of(programs):
    found = set()
    for program in programs:
        # A static program has none, and ldd says so by its status.
        listed = subprocess.run(["ldd", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
        found |= set(re.findall(r"=> (/\S+)", listed))
    return found


def make_second_disk(build_dir, tools_dir, template, stage, to):
    """Built tree, tests, pytest, and the programs with all their libraries; name and description of the template."""
    programs = [p for p in (shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin") for name in PROGRAMS) if p]
    for name in ("lib", "sbin", "py", "template"):
        (stage / name).mkdir(parents=True)
    shutil.copy(template / "template.json", stage / "template")
    (stage / "template/name").write_text(template.name)
    (stage / "inside").write_text("".join(f"{name} {only}\n" for name, only in INSIDE.items()))
    for program in programs:
        shutil.copy(program, stage / "sbin")
    built = [p for p in (build_dir / "abx", *build_dir.glob("libexec/*"), *build_dir.glob("tests/tools/*")) if p.is_file() and os.access(p, os.X_OK)]
    for path in built:
        at = stage / "build" / path.relative_to(build_dir)
        at.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["strip", "-g", "-o", at, path], check=True)
    (stage / "build/meson-info").mkdir()
    shutil.copy(build_dir / "meson-info/intro-buildoptions.json", stage / "build/meson-info")  # sanitizers.py asks it
    for library in libraries_of([*programs, *built]):
        shutil.copy(library, stage / "lib")
    shutil.copytree(ROOT / "tests/system", stage / "tests/system", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "tests/system/qemu/run.sh", stage)
    packages = next((tools_dir / "py/lib").glob("python3*/site-packages"))
    for name in PYTHON:
        source = packages / name
        shutil.copytree(source, stage / "py" / name) if source.is_dir() else shutil.copy(source, stage / "py")
    make_ext4(stage, to, 32)


def boot(kernel, initramfs, disks, log):
    """Runs the machine to its end; what it wrote to the console."""
    argv = ["qemu-system-x86_64", "-M", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "2048", "-nographic", "-no-reboot", "-nic", "none"]
    # no_timer_check: on a busy machine an emulated timer is late, and the kernel takes it for a broken one.
    argv += ["-kernel", next(kernel.glob("boot/vmlinuz-*")), "-initrd", initramfs, "-append", "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check"]
    for i, disk in enumerate(disks):
        argv += ["-drive", f"file={disk},format=raw,if=none,id=d{i},snapshot=on", "-device", f"virtio-blk-pci,drive=d{i}"]
    with open(log, "wb") as f:
        subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=f, stderr=subprocess.STDOUT, timeout=TIMEOUT_S, check=True)
    return re.sub(r"\x1b(\[[0-9;?]*[a-zA-Z]|c)", "\n", log.read_text(errors="replace")).replace("\r", "")


@pytest.fixture(scope="session")
def base_disk(base_template):
    """The base template as an ext4 file system, kept for the next run."""
    digest = base_template.name
    disk = CACHE / f"{digest}.ext4"
    if not disk.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        for old in CACHE.glob("*.ext4*"):
            old.unlink()
        make_ext4(base_template / "rootfs", disk, 2500)
    return disk


@pytest.fixture(scope="session")
def console(kernel, base_disk, base_template, build_dir, tools_dir, tmp_path_factory):
    work = tmp_path_factory.mktemp("qemu")
    make_initramfs(kernel, build_dir, work / "initramfs", work / "initramfs.cpio")
    make_second_disk(build_dir, tools_dir, base_template, work / "second", work / "second.ext4")
    text = boot(kernel, work / "initramfs.cpio", [base_disk, work / "second.ext4", base_disk], work / "console.log")
    for name in ("initramfs", "second", "second.ext4"):
        path = work / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    print(text)
    return text


def failures(text, prefix):
    """The failed checks with what they said."""
    blocks = re.split(r"^(?=ok |not ok )", text, flags=re.M)
    return [b for b in blocks if re.match(f"not ok - {prefix}", b)]


def count_ok(text, prefix):
    return len(re.findall(rf"^ok - {prefix}", text, re.M))


def test_the_machine_runs_to_its_end(console):
    assert "# done" in console
    assert re.search(r"^# 6\.1\.\S+cloud-amd64", console, re.M)


def test_the_probe_finds_what_this_kernel_has(console):
    assert failures(console, "machine") == []
    assert count_ok(console, "machine") == 2
    assert "memory v2, cpu v2, pids v2" in console
    assert "memory of paused sandboxes goes there (memory.reclaim)" in console
    assert "layers by path" in console
    assert "btrfs-image holds its limit" in console


def test_sandboxes_start_with_layers_by_path(console):
    assert failures(console, "(template|sandbox)") == []
    assert count_ok(console, "sandbox") == 4


@pytest.mark.parametrize("file", INSIDE)
def test_the_system_tests_pass_on_cgroup_v2(console, file):
    assert failures(console, f"{file}: ") == []
    assert count_ok(console, f"{file}: ") > 2
