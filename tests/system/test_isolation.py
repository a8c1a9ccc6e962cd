"""From inside a sandbox of the real service: nothing of the host or of another sandbox can be seen, reached or changed."""

import os
import stat
import subprocess
import threading
import time
from pathlib import Path

import pytest
from envd import Envd, EnvdError
from service import Service
from waiting import BUSY_S


@pytest.fixture(scope="module")
def service(build_dir, base_template):
    with Service(build_dir) as s:
        yield s


@pytest.fixture(scope="module")
def box(service):
    made = service.create(timeout=3600)
    yield made
    service.kill(made["sandboxID"])


@pytest.fixture(scope="module")
def root(service, box):
    return Envd(service, box, user="root")


@pytest.fixture(scope="module")
def user(service, box):
    return Envd(service, box, user="user")


def test_only_own_processes(root):
    names = set(root.sh("ps -eo comm=").split())
    assert names <= {"abx-guest", "abx-supervisor", "bash", "ps"}, names
    assert root.sh("cat /proc/1/comm").strip() == "abx-guest"


def test_no_host_path_in_mounts(root, service):
    text = root.sh("cat /proc/self/mountinfo /proc/1/mountinfo")
    for word in (str(service.data_dir), "/var/cache/abx", "/run/abx", "/dev/loop", "/dev/vd", "/dev/sd"):
        assert word not in text, word


def test_devices(root):
    found = set(root.sh("find /dev -type c -o -type b").split())
    assert found <= {
        "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts/ptmx"}, found
    assert root.run("mknod /tmp/disk b 259 0 || mknod /tmp/mem c 1 1")[0] != 0
    assert root.run("test -c /dev/kmsg -o -c /dev/mem -o -e /dev/kvm -o -e /dev/fuse")[0] != 0


def test_only_loopback_and_no_way_into_the_hosts_network(root):
    assert root.sh("ls /sys/class/net 2>/dev/null; ip -o link | cut -d: -f2").split() in (["lo"], ["lo", "lo"])
    for target in ("169.254.169.254/80", "10.0.0.1/80", "192.168.0.1/443"):  # accepted, and reset by egress
        code, _, err = root.run(f"timeout 60 cat < /dev/tcp/{target}")
        assert code != 0 and "reset" in err, (target, code, err)


def test_host_sockets_are_out_of_reach(service, root):
    host_unix = set(Path("/proc/net/unix").read_text().split())
    abstract = {w for w in root.sh("cat /proc/net/unix").split() if w.startswith("@")}
    assert abstract - {"@abx-guest-control"} == set() or not (abstract & host_unix)
    assert root.run(f"timeout 5 bash -c 'exec 3<>/dev/tcp/127.0.0.1/{service.port}'")[0] != 0


def test_two_sandboxes_do_not_meet(service, root):
    other_box = service.create(timeout=600)
    other = Envd(service, other_box, user="root")
    try:
        server = "import socket,time\\ns=socket.create_server((\"0.0.0.0\",8080))\\nu=socket.socket(socket.AF_UNIX)\\nu.bind(\"\\\\0meet\")\\nu.listen()\\ntime.sleep(600)"
        other.sh(f"python3 -c \"$(printf '{server}')\" >/dev/null 2>&1 & touch /tmp/other /dev/shm/other")
        assert other.run("until (exec 3<>/dev/tcp/127.0.0.1/8080) 2>/dev/null; do sleep 0.1; done")[0] == 0
        for address in ("127.0.0.1", "169.254.0.21", "0.0.0.0"):
            assert root.run(f"timeout 3 bash -c 'exec 3<>/dev/tcp/{address}/8080'")[0] != 0
        assert "@meet" not in root.sh("cat /proc/net/unix")
        assert root.run("ls /tmp/other /dev/shm/other")[0] != 0
        assert other.sh("cat /proc/sys/kernel/random/boot_id") != root.sh("cat /proc/sys/kernel/random/boot_id")
        assert other.sh("hostname") != root.sh("hostname") or other_box["sandboxID"] not in other.sh("hostname")
    finally:
        service.kill(other_box["sandboxID"])


@pytest.mark.parametrize(
    "command",
    [
        "mount -t tmpfs x /mnt",
        "mount --bind / /mnt",
        "umount /proc",
        "unshare -U true",
        "unshare -m true",
        "unshare -n true",
        "nsenter -t 1 -m true",
        "chroot /proc/1/root/../../ ls /var/lib/abx",
        "dmesg",
        "echo 1 > /proc/sys/kernel/hostname",
        "echo 1 > /proc/sys/net/ipv4/ip_forward",
        "echo 1 > /proc/sys/vm/drop_caches",
        "test ! -c /proc/sysrq-trigger && echo c > /proc/sysrq-trigger",  # masked by a null device where it exists
        "cat /proc/kcore | head -c 1 | grep .",
        "cat /proc/kallsyms | grep .",
        "cat /proc/keys | grep .",
        "date -s 2000-01-01",
        "swapon /swap",
        "reboot -f",
        "ip link add d0 type dummy",
        "ip addr add 10.9.9.9/24 dev lo",
        "ip route add default dev lo",
        "iptables -L || nft list ruleset",
        "modprobe loop",
        "echo -1000 > /proc/self/oom_score_adj",
        "python3 -c 'import os; os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))'",
        "python3 -c 'import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)'",
        "python3 -c 'import socket; socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)'",
        "python3 -c 'import ctypes,sys; sys.exit(ctypes.CDLL(None).syscall(425, 8, 0) < 0)'",  # io_uring_setup
        "python3 -c 'import ctypes,sys; sys.exit(ctypes.CDLL(None).syscall(321, 0, 0, 0) < 0)'",  # bpf
        "python3 -c 'import ctypes,sys; sys.exit(ctypes.CDLL(None).syscall(250, 0, 0, 0) < 0)'",  # keyctl
        "python3 -c 'import ctypes,sys; sys.exit(ctypes.CDLL(None).syscall(298, 0, 0, -1, -1, 0) < 0)'",  # perf_event_open
        "find /sys -type f -writable -not -path '/sys/fs/cgroup/*' 2>/dev/null | grep .",
        "echo max > /sys/fs/cgroup/memory.max",
        "echo 100000 > /sys/fs/cgroup/cgroup.max.descendants",
    ],
)
def test_root_inside_is_refused(root, command):
    code, out, err = root.run(command)
    assert code != 0, (out, err)


def test_sudo_works_and_privileges_end_there(user):
    assert user.sh("sudo id -u") == "0\n"
    assert user.run("cat /etc/shadow")[0] != 0
    assert user.run("touch /etc/x")[0] != 0


def test_environment_and_fds_are_clean(user, service):
    text = user.sh("env; sudo cat /proc/1/environ | tr '\\0' '\\n'")
    assert service.key not in text and str(service.data_dir) not in text
    assert user.sh("ls /proc/self/fd | wc -l").strip() == "4"  # 0 1 2 and ls's own


def test_no_terminal_of_the_host(user):
    assert user.run("tty")[0] != 0
    assert user.run("echo x > /dev/tty")[0] != 0


def test_setuid_and_capability_files_are_useless_on_the_host(root, service):
    root.sh("cp /bin/bash /home/user/suid && chmod 4755 /home/user/suid && cp /bin/cat /home/user/cap")
    found = list((service.data_dir / "pool").glob("fs/uppers/*/u/home/user/suid"))
    assert len(found) == 1 and found[0].stat().st_mode & stat.S_ISUID
    assert stat.S_IMODE((service.data_dir / "pool").stat().st_mode) == 0o700
    with pytest.raises(PermissionError):
        subprocess.run([found[0], "-p", "-c", "id -u"], user=65534, check=False)
    # Even with the folders open: the pool is mounted nosuid.
    mount = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines() if str(service.data_dir) in line]
    assert mount and all("nosuid" in m[3].split(",") and "nodev" in m[3].split(",") for m in mount)


def host_probe():
    """A file of the host that no sandbox may read: named where a confused path would end."""
    path = Path("/tmp/abx-host-secret")
    path.write_text("host secret")
    path.chmod(0o644)
    return path


@pytest.mark.parametrize(
    "path",
    [
        "/../../../../../../tmp/abx-host-secret",
        "/proc/1/root/tmp/abx-host-secret",
        "/proc/self/root/tmp/abx-host-secret",
        "/proc/self/cwd/../../../tmp/abx-host-secret",
        "/tmp/link/abx-host-secret",
        "/tmp/abs",
        "/tmp/magic/tmp/abx-host-secret",
    ],
)
def test_file_api_stays_inside(root, path):
    secret = host_probe()
    try:
        root.sh("ln -sfn ../../../../../../tmp /tmp/link; ln -sf /tmp/abx-host-secret /tmp/abs; ln -sfn /proc/1/root /tmp/magic")
        try:
            data = root.read(path)
        except EnvdError as e:
            assert e.status in (400, 404)
        else:
            assert data != b"host secret"
        try:
            root.write(path, b"from inside")
        except EnvdError:
            pass
        assert secret.read_text() == "host secret"
    finally:
        secret.unlink()
        root.run("rm -rf /tmp/link /tmp/abs /tmp/magic /tmp/abx-host-secret")


@pytest.mark.slow
def test_rename_races_never_leave_the_sandbox(root, user):
    """A folder flips between a directory and a symlink to / while the API reads and writes below it."""
    secret = host_probe()
    try:
        root.sh("echo root-only > /etc/only-root; chmod 600 /etc/only-root; mkdir -p /home/user/real/etc; chown -R user /home/user/real")
        # An upload may make the folder anew while it is away: it is removed then.
        flip = (
            "cd /home/user; echo mine > real/etc/only-root; "
            "while ! [ -e /tmp/race-is-over ]; do mv -T real sw; ln -sT / real; rm -rf real; mv -T sw real; done 2>/dev/null"
        )
        racer = threading.Thread(target=lambda: user.run(flip, timeout=3 * BUSY_S))
        racer.start()
        begin = time.monotonic()
        seen = 0
        try:
            while time.monotonic() < begin + (5 if seen > 3 else BUSY_S):
                try:
                    assert user.read("/home/user/real/etc/only-root") == b"mine\n"
                    seen += 1
                except EnvdError as e:
                    assert e.status in (400, 401, 403, 404, 500), e
                try:
                    user.write("/home/user/real/etc/by-race", b"x")
                except EnvdError:
                    pass
        finally:
            root.sh("touch /tmp/race-is-over")
            racer.join(BUSY_S)
        assert not racer.is_alive()
        assert seen > 0
        assert root.run("ls /etc/by-race")[0] != 0
        assert not os.path.exists("/etc/by-race")
        assert secret.read_text() == "host secret"
    finally:
        secret.unlink()


def test_guest_control_channel_refuses_the_inside(root):
    code, out, err = root.run(
        "python3 -c \"\nimport socket\ns=socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\ns.settimeout(3)\n"
        "s.connect('\\0abx-guest-control')\ns.send(b'\\x08\\x01\\x12\\x05\\x1a\\x03abc')\nprint(len(s.recv(100)))\n\""
    )
    assert code != 0 or out.strip() == "0"
    assert root.sh("echo alive") == "alive\n"  # the token is still the old one


def test_access_token_is_needed(service, box):
    stranger = Envd(service, {**box, "envdAccessToken": "0" * 64})
    with pytest.raises(EnvdError) as e:
        stranger.unary("process.Process/List", {})
    assert e.value.status == 401
    assert "unauthorized access" in e.value.message


def test_host_sees_no_mount_of_a_sandbox(service, box):
    text = Path("/proc/self/mountinfo").read_text()
    assert box["sandboxID"] not in text
    assert [line for line in text.splitlines() if " overlay " in line and str(service.data_dir) in line] == []


def test_raw_socket_peer_cannot_reach_the_engine(service):
    """Unprivileged users of the host may not talk to the service's own sockets."""
    sockets = list((Path("/run/abx") / service.instance()).rglob("*.sock"))
    assert len(sockets) == 6
    for path in sockets:
        code = f"import socket\nfor t in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):\n s=socket.socket(socket.AF_UNIX,t)\n s.connect({str(path)!r})"
        run = subprocess.run(["/usr/bin/python3", "-c", code], user=65534, capture_output=True, text=True)
        assert run.returncode != 0 and "PermissionError" in run.stderr, path
