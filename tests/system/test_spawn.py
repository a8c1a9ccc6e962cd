"""What a sandbox is made of, seen from inside and from the host, driven through tests/tools/sandbox_run.c.

Needs root. Every test has a folder of its own; nothing is left mounted, running or leased.
"""

import ctypes
import errno
import os
import pty
import re
import resource
import select
import shutil
import stat
import subprocess
from pathlib import Path

import processes
import pytest
from waiting import BUSY_S, until

BUILD = Path(os.environ.get("ABX_BUILD") or Path(__file__).resolve().parents[2] / "build")
TOOL = BUILD / "tests/tools/sandbox_run"
FIRST_UID, LAST_UID = 1879048192, 2147352575

MOUNT_POINTS = {"/", "/dev", "/dev/mqueue", "/dev/pts", "/dev/shm", "/proc", "/proc/sys", "/sys"}
MOUNT_POINTS |= {"/proc/sys/kernel/random/boot_id"}
MASKED_FILES = ["kcore", "kallsyms", "keys", "timer_list", "sysrq-trigger", "latency_stats", "sched_debug", "cmdline", "locks"]
MASKED_FOLDERS = ["irq", "bus", "acpi", "scsi", "fs", "pressure"]
DEVICES = {"null", "zero", "full", "random", "urandom", "tty", "fd", "stdin", "stdout", "stderr", "ptmx"}
DEVICES |= {"pts", "shm", "mqueue"}
CAPABILITIES = 0x800405FB  # CAPS_SANDBOX

# Calls by number (x86-64, arm64), each with harmless arguments, and what the filter answers.
REFUSED = {
    "mount": (165, 40, errno.EPERM),
    "umount2": (166, 39, errno.EPERM),
    "pivot_root": (155, 41, errno.EPERM),
    "setns": (308, 268, errno.EPERM),
    "bpf": (321, 280, errno.EPERM),
    "perf_event_open": (298, 241, errno.EPERM),
    "userfaultfd": (323, 282, errno.EPERM),
    "keyctl": (250, 219, errno.EPERM),
    "add_key": (248, 217, errno.EPERM),
    "open_by_handle_at": (304, 265, errno.EPERM),
    "finit_module": (313, 273, errno.EPERM),
    "kexec_load": (246, 104, errno.EPERM),
    "syslog": (103, 116, errno.EPERM),
    "clock_settime": (227, 112, errno.EPERM),
    "open_tree": (428, 428, errno.EPERM),
    "io_uring_setup": (425, 425, errno.ENOSYS),
    "io_setup": (206, 0, errno.ENOSYS),
    "clone3": (435, 435, errno.ENOSYS),
    "quotactl_fd": (443, 443, errno.ENOSYS),
}


KERNEL = tuple(int(n) for n in re.findall(r"\d+", os.uname().release)[:2])


@pytest.fixture(scope="session")
def rootfs(request):
    """The base template's tree (ABX_ROOTFS where the template cannot be built)."""
    if "ABX_ROOTFS" in os.environ:
        return Path(os.environ["ABX_ROOTFS"])
    return request.getfixturevalue("base_template") / "rootfs"


@pytest.fixture(params=["fd", "string"])
def mount(request):
    """Both ways of mounting the layers, where the kernel has both."""
    if request.param == "fd" and KERNEL < (6, 13):
        pytest.skip("overlay takes layers by fd since 6.13")
    return request.param


@pytest.fixture
def work(tmp_path):
    folder = tmp_path / "upper"
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def run(rootfs, work):
    """run(COMMAND..., **options): a sandbox with that command; run.popen leaves it running."""

    def arguments(command, layers=None, upper=None, **options):
        args = [TOOL, "--work", str(upper or work)]
        for layer in layers or [rootfs]:
            args += ["--layer", str(layer)]
        for name, value in options.items():
            args += [f"--{name}"] + ([] if value is True else [str(value)])
        return args + (["--", *command] if command else [])

    def call(*command, timeout=120, check=True, **options):
        done = subprocess.run(
            arguments(command, **options), capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL
        )
        if check:
            assert done.returncode == 0, f"exit {done.returncode}: {done.stdout}{done.stderr}"
        return done

    def popen(*command, **options):
        return subprocess.Popen(
            arguments(command, **options), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    call.popen = popen
    call.sh = lambda script, **options: call("/bin/sh", "-c", script, **options).stdout
    call.py = lambda script, **options: call("/usr/bin/python3", "-c", script, **options).stdout
    return call


def processes_of_range(base):
    """Host pids of processes that have a uid of the range that begins at `base`."""
    found = []
    for pid in processes.every():
        uids = re.search(r"^Uid:\s+(.*)$", processes.read(pid, "status") or "", re.M)
        if uids and any(base <= int(uid) < base + 65536 for uid in uids[1].split()):
            found.append(pid)
    return found


def processes_named(text):
    """Host pids of processes with `text` in their arguments: before its exec, a child has the tool's."""
    return [pid for pid in processes.every() if text in (processes.read(pid, "cmdline") or "")]


def own_mounts(folder):
    """Mounts on the host that are overlays or name `folder`; others come and go meanwhile."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in lines if " - overlay " in line or str(folder) in line]


# ---- what it sees


def test_it_sees_its_own_processes_only(run):
    lines = run.sh("for p in /proc/[0-9]*; do echo ${p#/proc/} $(tr '\\0' ' ' <$p/cmdline); done").splitlines()
    commands = dict(line.split(" ", 1) for line in lines)
    assert commands["1"] == "abx-guest init"
    assert commands["2"] == "abx-guest daemon"
    assert all(int(pid) < 30 for pid in commands), commands


def test_it_sees_its_own_mounts_only(run, rootfs, work, mount):
    text = run.sh("cat /proc/self/mountinfo", mount=mount)
    points = {line.split()[4] for line in text.splitlines()}
    masks = {f"/proc/{name}" for name in MASKED_FILES + MASKED_FOLDERS}
    assert points - masks == MOUNT_POINTS
    for name in (str(rootfs), work.parent.name, "/tmp", "/var"):
        assert name not in text
    root = next(line for line in text.splitlines() if line.split()[4] == "/")
    assert ("lowerdir+=/," in root) == (mount == "fd")
    assert "redirect_dir=on" in root and " rw," in root and "metacopy=on" not in root


def test_devices_are_a_short_list(run):
    assert set(run.sh("ls -A /dev").split()) == DEVICES
    out = run.sh("cd /dev && stat -c '%n %F %U %a' null tty shm mqueue; head -c 4 zero | wc -c; echo x >null")
    owner = "root" if KERNEL >= (6, 3) else "nobody"
    assert f"null character special file {owner} 666" in out and "shm directory root 1777" in out
    assert "4" in out.split()
    run.sh("! touch /dev/x && ! chmod 600 /dev/null && ! mknod /tmp/sda b 8 0 && ! mknod /tmp/kmsg c 1 11")
    run.sh("test -c /dev/ptmx && python3 -c 'import os; m, s = os.openpty(); print(os.ttyname(s))' | grep -q /dev/pts/0")


def test_masked_parts_of_proc_are_empty(run):
    out = run.sh(f"cd /proc; cat {' '.join(MASKED_FILES)} 2>/dev/null; ls -A {' '.join(MASKED_FOLDERS)} 2>/dev/null; true")
    assert [line for line in out.splitlines() if line and not line.endswith(":")] == []


def test_no_kernel_setting_is_writable(run):
    """Not for root either: neither below /proc/sys nor anywhere else outside of the process folders."""
    script = """
import os
bad = []
for top in ("/proc", "/sys"):
    for path, folders, files in os.walk(top):
        if path == "/proc":
            folders[:] = [f for f in folders if not f.isdigit() and f not in ("self", "thread-self")]
        for name in files:
            full = os.path.join(path, name)
            try:
                os.close(os.open(full, os.O_WRONLY))
                bad.append(full)
            except OSError:
                pass
print(*bad)
"""
    allowed = {f"/proc/{name}" for name in [*MASKED_FILES, "mounts"]}  # /dev/null in their place; a process's own
    assert set(run.py(script).split()) <= allowed


def test_the_operators_terminal_is_out_of_reach(rootfs, work):
    """The tool has a controlling terminal here; the sandbox has none."""
    script = "tty; echo stat $(cut -d' ' -f7 /proc/1/stat) $(cut -d' ' -f7 /proc/self/stat); (: </dev/tty) && echo OPENED"
    pid, fd = pty.fork()
    if pid == 0:
        args = [TOOL, "--layer", rootfs, "--work", work, "--", "/bin/sh", "-c", f"{{ {script}; }} </dev/null 2>&1"]
        os.execv(TOOL, [str(a) for a in args])
    out = b""
    while select.select([fd], [], [], 120)[0]:
        try:
            part = os.read(fd, 4096)
        except OSError:
            break
        if not part:
            break
        out += part
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) in (1, 2), out
    assert b"not a tty" in out and b"stat 0 0" in out and b"OPENED" not in out


def test_names_and_boot_id(run):
    out = run.sh("hostname; cat /etc/hostname; grep -w box-7 /etc/hosts; cat /proc/sys/kernel/domainname", hostname="box-7")
    assert out.split() == ["box-7", "box-7", "127.0.1.1", "box-7", "(none)"]
    first, second = run.sh("cat /proc/sys/kernel/random/boot_id /proc/sys/kernel/random/boot_id").split()
    assert first == second != Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert run.sh("cat /proc/sys/kernel/random/boot_id").strip() != first


def test_identity_files_of_an_upper_stay_its_own(run):
    run.sh("echo 127.0.0.9 mine >/etc/hosts; rm /etc/resolv.conf; ln -s /tmp/x /etc/resolv.conf")
    out = run.sh("cat /etc/hosts /etc/hostname; readlink /etc/resolv.conf", hostname="other")
    assert out.split("\n")[:3] == ["127.0.0.9 mine", "sandbox", "/tmp/x"]
    # A link in place of /etc must not lead the spawner anywhere.
    host = Path("/etc/hostname").read_text() if Path("/etc/hostname").exists() else None
    run.sh("mv /etc /etc2 && ln -s / /etc")
    assert run("/bin/true", hostname="evil").returncode == 0
    assert (Path("/etc/hostname").read_text() if Path("/etc/hostname").exists() else None) == host
    assert not Path("/hostname").exists()


def test_the_guest_has_its_descriptors_and_no_others(run, work):
    out = run.sh("cd /proc; for p in 1 2; do for f in $p/fd/*; do echo $f $(readlink $f); done; done; readlink 1/exe")
    links = dict(line.split(" ") for line in out.splitlines()[:-1])
    assert set(links) == {f"1/fd/{n}" for n in range(8)} | {f"2/fd/{n}" for n in (0, 1, 2, 3, 4, 6)}
    assert [links[f"{p}/fd/{n}"] for p in (1, 2) for n in (0, 1, 2)] == ["/dev/null"] * 6
    assert links["1/fd/7"] == out.splitlines()[-1] == "/abx-guest"
    assert run.sh("tr '\\0' '\\n' </proc/1/environ; ls /proc/1/task | wc -l").splitlines() == [
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "1",
    ]
    run.sh("! sh -c ': >>/proc/1/exe' && ! chmod 777 /proc/1/exe && ! touch /proc/1/exe && ! ls /proc/1/fd/7/..")


# ---- what it may do


def test_capabilities_and_limits(run):
    status = run.sh("cat /proc/self/status; ulimit -Sc; ulimit -Hc; ulimit -n; ulimit -c 0 && ulimit -Sc")
    for name in ("CapPrm", "CapEff", "CapBnd"):
        assert int(re.search(rf"{name}:\s+(\w+)", status)[1], 16) == CAPABILITIES
    for name in ("CapInh", "CapAmb"):
        assert int(re.search(rf"{name}:\s+(\w+)", status)[1], 16) == 0
    assert "NoNewPrivs:\t0" in status and "Seccomp:\t2" in status and "Groups:\t \n" in status
    # dash counts core files in blocks of 512: the limit of 1 byte shows as 0; asking for less succeeds.
    assert status.splitlines()[-4:-3] == ["0"] and int(status.splitlines()[-2]) >= 1024
    limits = run.py("import resource as r; r.setrlimit(r.RLIMIT_CORE, (0, 0)); print(r.getrlimit(r.RLIMIT_CORE))")
    assert limits.strip() == "(1, 1)"


def test_refused_calls(run):
    arm = os.uname().machine == "aarch64"
    calls = {name: (row[1] if arm else row[0], row[2]) for name, row in REFUSED.items()}
    script = f"""
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for name, (nr, expected) in {calls!r}.items():
    ctypes.set_errno(0)
    r = libc.syscall(nr, 0, 0, 0, 0, 0)
    if r != -1 or ctypes.get_errno() != expected:
        print(name, r, ctypes.get_errno())
for flag in (0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000, 0x2000000, 0x80):
    if libc.unshare(flag) != -1 or ctypes.get_errno() != 1:
        print("unshare", hex(flag))
"""
    assert run.py(script) == ""
    run.sh("! unshare -U true && ! unshare -n true && ! mount -t tmpfs t /mnt && ! dmesg", uid=1000)
    run.sh("! mount -t tmpfs t /mnt && ! umount /proc/sys && ! chroot /proc/1/root/../.. ls /var/cache/abx")


def test_nothing_makes_the_kernel_load_modules_or_hand_out_what_no_limit_counts(run):
    script = """
import ctypes, errno, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
def refused(what, expected, r):
    if r != -1 or ctypes.get_errno() != expected:
        print(what, r, ctypes.get_errno())
pair = (ctypes.c_int * 2)()
for family, kind, protocol in ((16, 3, 12), (30, 1, 0), (38, 5, 0), (40, 1, 0), (2, 5, 132), (2, 1, 262)):
    refused(("pair", family, protocol), errno.EOPNOTSUPP, libc.socketpair(family, kind, protocol, pair))
a, b = socket.socketpair()
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
zeros = ctypes.create_string_buffer(4096)
for request in (0x8940, 0x8941, 0x8982, 0x8983, 0x89A0, 0x89A1):
    for s in (a, udp):
        refused(hex(request), errno.EPERM, libc.ioctl(s.fileno(), request, zeros))
accept = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 1 << 16))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", 1, ctypes.addressof(accept)))
for option in (26, 51):
    refused(("option", option), errno.ENOPROTOOPT, libc.setsockopt(udp.fileno(), 1, option, program, 16))
refused("memfd", errno.ENOMEM, libc.memfd_create(b"x", 4))
refused("merge", errno.EINVAL, libc.prctl(67, 1, 0, 0, 0))
"""
    assert run.py(script, uid=1000) == ""


@pytest.mark.parametrize("limit", [resource.RLIMIT_NICE, resource.RLIMIT_RTPRIO], ids=["nice", "rtprio"])
def test_the_operators_right_to_come_first_stays_behind(run, limit):
    before = resource.getrlimit(limit)
    try:
        resource.setrlimit(limit, (20, 20))
    except ValueError:
        pytest.skip("root may not raise limits here (no CAP_SYS_RESOURCE), so no operator has such a right")
    try:
        assert run.py(f"import resource; print(resource.getrlimit({limit}))") == "(0, 0)\n"
    finally:
        resource.setrlimit(limit, before)


def test_debuggers_work(run):
    script = """
import ctypes, os, signal
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.restype = ctypes.c_long
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
word = ctypes.c_long(0x1234)
pid = os.fork()
if pid == 0:
    libc.ptrace(0, 0, None, None)
    os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(0)
os.waitpid(pid, 0)
print(hex(libc.ptrace(2, pid, ctypes.addressof(word), None)))
os.kill(pid, 9)
"""
    assert run.py(script, uid=1000).strip() == "0x1234"


def test_sudo_works_without_complaint(run):
    done = run("/usr/bin/sudo", "-n", "/usr/bin/id", "-u", uid=1000)
    assert done.stdout == "0\n" and done.stderr == ""


def test_setuid_files_work_inside_and_are_useless_on_the_host(run, work):
    run.sh("cp /usr/bin/id /code/rootid && chown 0:0 /code/rootid && chmod 4755 /code/rootid")
    assert run.sh("/code/rootid -u", uid=1000).strip() == "0"
    made = work / "u/code/rootid"
    assert stat.S_IMODE(made.stat().st_mode) == 0o4755 and made.stat().st_uid == 0
    # The pool is root's alone: no other user gets as far as the file.
    with pytest.raises(PermissionError):
        subprocess.run([made, "-u"], user=65534, group=65534, extra_groups=[], check=True)


def test_low_ports_and_ping_sockets_need_no_right(run):
    script = """
import socket
s = socket.socket(); s.bind(("0.0.0.0", 80)); s.listen()
c = socket.create_connection(("127.0.0.1", 80)); c6 = socket.socket(socket.AF_INET6); c6.bind(("::1", 443))
socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)
try:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)
    print("raw")
except PermissionError:
    pass
"""
    assert run.py(script, uid=1000) == ""


def test_there_is_no_way_out(run):
    links = run.sh("ip -o link; ip -o addr")
    assert {line.split()[1].rstrip(":") for line in links.splitlines()} == {"lo"}
    assert "169.254.0.21/32" in links and "127.0.0.1/8" in links and "::1/128" in links
    assert "local default dev lo scope host src 169.254.0.21" in run.sh("ip route show table local")
    script = """
import socket, time
began = time.monotonic()
for address in ("93.184.216.34", "10.0.0.1", "169.254.169.254", "172.17.0.1"):
    try:
        socket.create_connection((address, 443), timeout=5)
        print(address)
    except ConnectionRefusedError:
        pass
try:
    print(socket.getaddrinfo("example.com", 80))
except socket.gaierror:
    pass
assert time.monotonic() - began < 4
"""
    assert run.py(script) == ""
    run.sh("! ip link set lo down && ! ip addr add 10.0.0.1/8 dev lo && ! ip route del default table local")


def test_two_sandboxes_cannot_reach_each_other(run, tmp_path):
    serve = """
import socket, sys
a = socket.socket(socket.AF_UNIX); a.bind(b"\\0here"); a.listen()
t = socket.socket(); t.bind(("0.0.0.0", 8080)); t.listen()
print("ready", flush=True); sys.stdin.read()
"""
    probe = """
import socket
for family, address in ((socket.AF_UNIX, b"\\0here"), (socket.AF_INET, ("169.254.0.21", 8080)), (socket.AF_INET, ("127.0.0.1", 8080))):
    try:
        socket.socket(family).connect(address)
        print(address)
    except ConnectionRefusedError:
        pass
print(len(open("/proc/net/unix").readlines()), len(open("/proc/net/tcp").readlines()))
"""
    server = run.popen("/usr/bin/python3", "-c", serve, upper=tmp_path / "a")
    try:
        assert server.stdout.readline() == "ready\n", server.stderr.read()
        out = run.py(probe, upper=tmp_path / "b").split()
        assert len(out) == 2 and int(out[0]) <= 8 and int(out[1]) <= 2, out
    finally:
        server.stdin.close()
        server.wait(BUSY_S)


# ---- files


@pytest.fixture(params=["ext4", "btrfs", "xfs", "tmpfs"])
def file_system(request, tmp_path):
    """A folder on a file system of that kind of its own."""
    kind, folder = request.param, tmp_path / "fs"
    folder.mkdir()
    if kind == "tmpfs":
        if KERNEL < (6, 3):
            pytest.skip("tmpfs can be idmapped since 6.3")
        subprocess.run(["mount", "-t", "tmpfs", "t", folder], check=True)
    else:
        image = tmp_path / "image"
        with open(image, "wb") as f:
            f.truncate(400 << 20)
        subprocess.run([f"mkfs.{kind}", "-q", image], check=True, capture_output=True)
        subprocess.run(["mount", "-o", "loop", image, folder], check=True)
    yield folder
    subprocess.run(["umount", folder], check=True)


CHANGES = """
set -e
touch /root-file; su user -c 'touch /home/user/user-file; mkdir /home/user/d; ln /home/user/user-file /home/user/d/hard'
chown 65534:100 /root-file
mv /usr/share/perl5 /usr/share/perl6; test -e /usr/share/perl6/Debconf* ; ! test -e /usr/share/perl5
mv /var/lib/dpkg /var/lib/dpkg2; echo x >>/var/lib/dpkg2/status; mv /var/lib/dpkg2 /var/lib/dpkg
rm -rf /usr/share/doc; mkdir /usr/share/doc; touch /usr/share/doc/new; test "$(ls /usr/share/doc)" = new
rm /etc/debian_version; ! test -e /etc/debian_version
setcap cap_net_bind_service+ep /code/x 2>/dev/null || true
sync
"""
KEPT = """
set -e
test -e /usr/share/perl6; ! test -e /usr/share/perl5; tail -1 /var/lib/dpkg/status | grep -qx x
test "$(ls /usr/share/doc)" = new; ! test -e /etc/debian_version; stat -c '%u %g' /root-file /home/user/user-file
"""


def test_changes_of_the_template_are_kept_in_the_upper(run, file_system, mount):
    upper = file_system / "upper"
    run.sh(CHANGES, upper=upper, mount=mount)
    assert os.stat(upper / "u/root-file").st_uid == 65534 and os.stat(upper / "u/root-file").st_gid == 100
    assert os.stat(upper / "u/home/user/user-file").st_uid == 1000
    assert os.stat(upper / "u/etc").st_uid == 0
    whiteout = os.lstat(upper / "u/etc/debian_version")
    assert stat.S_ISCHR(whiteout.st_mode) and whiteout.st_rdev == 0
    assert os.getxattr(upper / "u/usr/share/doc", "trusted.overlay.opaque") == b"y"
    assert os.getxattr(upper / "u/usr/share/perl6", "trusted.overlay.redirect")
    # The same upper again, under another uid range.
    assert run.sh(KEPT, upper=upper, mount=mount).split() == ["65534", "100", "1000", "1000"]


def test_an_upper_becomes_a_layer(run, rootfs, tmp_path, mount):
    run.sh(CHANGES, upper=tmp_path / "one", mount=mount)
    layers = [tmp_path / "one/u", rootfs]
    assert run.sh(KEPT, layers=layers, upper=tmp_path / "two", mount=mount).split() == ["65534", "100", "1000", "1000"]


def test_sixteen_layers(run, rootfs, tmp_path, mount):
    layers = []
    for i in range(15):
        layers.append(tmp_path / f"layer{i}")
        layers[-1].mkdir(mode=0o755)
        (layers[-1] / f"from-{i}").write_text(str(i))
    assert run.sh("cat /from-0 /from-14", layers=[*layers, rootfs], mount=mount) == "014"
    done = run("/bin/true", layers=[*layers, rootfs, rootfs], check=False)
    assert done.returncode in (2, 125)


# ---- counts and ends


def test_counts_of_kernel_objects_are_per_sandbox(run, tmp_path):
    hog = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
n = 0
while libc.inotify_init1(0) >= 0 and n < 5000: n += 1
assert ctypes.get_errno() == 24, ctypes.get_errno()
q = 0
while libc.mq_open(b"/q%d" % q, 0o102, 0o600, None) >= 0 and q < 5000: q += 1
print(n, q, flush=True)
sys.stdin.read()
"""
    probe = """
import ctypes
libc = ctypes.CDLL(None)
print(libc.inotify_init1(0) >= 0, libc.mq_open(b"/probe", 0o102, 0o600, None) >= 0)
"""
    hogs = [run.popen("/usr/bin/python3", "-c", hog, upper=tmp_path / name, uid=uid) for name, uid in (("a", 0), ("b", 1000))]
    try:
        for process in hogs:
            counts = process.stdout.readline().split()
            assert len(counts) == 2 and 0 < int(counts[0]) < 5000 and 0 < int(counts[1]) < 5000, process.stderr.read()
        assert run.py(probe, upper=tmp_path / "c").split() == ["True", "True"]
        own = ctypes.CDLL(None).inotify_init1(0)
        assert own >= 0
        os.close(own)
    finally:
        for process in hogs:
            process.stdin.close()
            process.wait(BUSY_S)


@pytest.mark.alone  # counts the machine's network namespaces
@pytest.mark.parametrize("options", [{}, {"hold": True}, {"mount": "string"}])
def test_two_hundred_leave_nothing(run, work, options):
    def netns_count():
        shrink = Path("/sys/kernel/slab/net_namespace/shrink")
        if shrink.exists():  # until then objects that each processor keeps for later count as used
            shrink.write_text("1")
        rows = Path("/proc/slabinfo").read_text()
        return int(re.search(r"^net_namespace\s+(\d+)", rows, re.M)[1])

    mounts, namespaces = own_mounts(work), netns_count()
    done = run(count=200, timeout=400, **options)
    base = int(re.match(r"base (\d+)\n", done.stdout)[1])
    assert FIRST_UID <= base <= LAST_UID and "= spawn" in done.stdout
    assert own_mounts(work) == mounts
    until(lambda: not processes_of_range(base))
    until(lambda: netns_count() < namespaces + 100)
    assert os.listdir(work) == []


def test_a_dead_spawner_takes_the_unfinished_sandbox_along(run, work):
    done = run("/bin/true", die=True, check=False)
    pids = [int(pid) for pid in done.stdout.split()]
    assert done.returncode == -9 and len(pids) == 2
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


def test_failures_name_their_step_and_leave_nothing(run, work, tmp_path, mount):
    empty = tmp_path / "empty"
    empty.mkdir(mode=0o755)
    (empty / "dev").symlink_to("/tmp")
    (tmp_path / "init").write_text("no program")
    (tmp_path / "init").chmod(0o755)
    for expected, options in (
        ("exec: Exec format error", {"init": tmp_path / "init"}),
        ("in the sandbox, mounts of the root", {"layers": [empty]}),
        ("nowhere", {"layers": ["/nowhere"]}),
        ("host name", {"hostname": "a b"}),
    ):
        done = run("/bin/true", check=False, mount=mount, **options)
        assert done.returncode == 125 and expected in done.stderr, done.stderr
        until(lambda: processes_named(str(work)) == [])


def test_it_lives_in_its_own_groups(run):
    if not any(line.split()[2] == "cgroup2" for line in Path("/proc/self/mounts").read_text().splitlines()):
        pytest.fail("no v2 tree on this host")
    script = """
set -e
grep -v ':/$' /proc/self/cgroup && exit 1
cat /proc/1/cgroup /proc/2/cgroup | grep '^0::'
test -e /sys/fs/cgroup/user/cgroup.procs; test -e /sys/fs/cgroup/guest/cgroup.procs
mkdir /sys/fs/cgroup/user/own; echo $$ >/sys/fs/cgroup/user/own/cgroup.procs; grep -q '/own$' /proc/self/cgroup
! echo 100 >/sys/fs/cgroup/cgroup.max.descendants
! mkdir /sys/fs/cgroup/other
! ls /sys/fs/cgroup/../../../sys/fs/cgroup/unified
"""
    instance = f"spawn-test-{os.getpid()}"
    out = run("/bin/sh", "-c", script, cgroups=instance).stdout.split()
    # Commands of this test's init are children of its daemon, which sees its own group as the top.
    assert out == ["0::/../user", "0::/"]
    assert [at for at, names, _ in os.walk("/sys/fs/cgroup") if f"abx-{instance}" in names] == []


@pytest.mark.skipif(KERNEL < (6, 3), reason="tmpfs can be idmapped since 6.3")
def test_no_room_is_said_wherever_it_ends(rootfs, mount, tmp_path):
    """Each number of files that is too small fails at another step, one when the overlay makes its folder: then the kernel
    makes it read-only and says nothing."""
    folder = tmp_path / "small"
    folder.mkdir()
    said = []
    for inodes in range(4, 40):
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"nr_inodes={inodes}", "t", folder], check=True)
        try:
            command = [TOOL, "--layer", rootfs, "--work", folder / "w", "--mount", mount, "--leases", tmp_path / "leases", "--", "true"]
            run = subprocess.run(command, capture_output=True, text=True, timeout=60)
        finally:
            subprocess.run(["umount", folder], check=True)
        if run.returncode != 125:
            break
        said.append(run.stderr)
    assert run.returncode == 0 and said, run
    assert [x for x in said if "No space left on device" not in x] == []
    assert [x for x in said if "the overlay came up read-only: No space left on device" in x], said
