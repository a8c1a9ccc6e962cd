"""What root of a sandbox does to the processes that serve it costs only that sandbox, and not for long."""

import http.client

import pytest
from envd import Envd, EnvdError
from service import Service
from waiting import again


@pytest.fixture(scope="module")
def service(build_dir, base_template):
    with Service(build_dir, disk="2G") as s:
        yield s


@pytest.fixture
def root(service):
    box = service.create(timeout=600)
    yield Envd(service, box, user="root")
    assert service.kill(box["sandboxID"]) == 204


def attack(root, command):
    """The command may take its own answer with it."""
    try:
        root.run(command, timeout=5)
    except (EnvdError, OSError, http.client.HTTPException):
        pass


def comes_back(root):
    return again(lambda: root.sh("echo ok", timeout=5), (EnvdError, OSError, http.client.HTTPException)) == "ok\n"


@pytest.mark.parametrize(
    "command",
    [
        "kill -9 2",
        "kill -STOP 2",
        "kill -STOP -1",
        "kill -9 -1",
        "kill -TERM 1 2; kill -9 1",
    ],
)
def test_the_daemon_comes_back(root, command):
    attack(root, command)
    assert comes_back(root)


def test_nobody_takes_the_daemons_port(root):
    take = (
        "import os, socket, time\n"
        "os.kill(2, 9)\n"
        "for address in ('0.0.0.0', '127.0.0.1'):\n"
        "    s = socket.socket(); s.setsockopt(1, 2, 1); s.setsockopt(1, 15, 1)\n"
        "    try: s.bind((address, 49983)); s.listen(); open('/tmp/bound', 'w')\n"
        "    except OSError: pass\n"
        "open('/tmp/tried', 'w')\n"
        "time.sleep(60)\n"
    )
    root.write("/tmp/take.py", take)
    attack(root, "setsid python3 /tmp/take.py >/dev/null 2>&1 &")
    for _ in range(100):  # the daemon may die under the question, too
        assert comes_back(root)
        try:
            if root.run("sleep 0.1; test -e /tmp/tried", timeout=5)[0] == 0:
                break
        except (EnvdError, OSError, http.client.HTTPException):
            pass
    assert root.sh("ls /tmp/tried /tmp/bound 2>/dev/null; true").split() == ["/tmp/tried"]


@pytest.mark.parametrize("kind", ["mkfifo /etc/passwd", "ln -s /dev/zero /etc/passwd", "mkdir /etc/passwd", "true"])
def test_no_users(service, root, kind):
    root.sh(f"rm /etc/passwd; {kind}")
    user = Envd(service, root.box, user="user")
    with pytest.raises(EnvdError) as e:
        user.run("true", cmd="/bin/true", args=[])
    assert "invalid username" in e.value.message
    root.unary("process.Process/List", {})


@pytest.mark.parametrize("path", ["/tmp/fifo", "/tmp/socket", "/dev/zero", "/dev/ptmx", "/dev/tty", "/proc/kmsg"])
def test_special_files_hold_no_thread(root, path):
    root.sh("mkfifo /tmp/fifo; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"/tmp/socket\")'")
    for _ in range(6):  # more than the daemon has threads
        for call in (lambda: root.read(path), lambda: root.write(path, b"x")):
            with pytest.raises(EnvdError) as e:
                call()
            assert e.value.status in (400, 403, 404)
    assert root.sh("echo ok") == "ok\n"


def test_deep_and_wide_trees_go_with_the_sandbox(service, root):
    root.sh(
        "cd /home/user && python3 -c \"\nimport os\nfor i in range(5000):\n os.mkdir('d'); os.chdir('d')\n\"; "
        "mkdir many && cd many && seq -f 'f%.0f' 5000 | xargs touch"
    )
    root.unary("filesystem.Filesystem/Remove", {"path": "/home/user/d"})
    assert root.sh("ls /home/user") == "many\n"


def test_cgroups_of_its_own_do_not_keep_it(service):
    box = service.create(timeout=600)
    root = Envd(service, box, user="root")
    root.run(
        "cd /sys/fs/cgroup/user && for i in $(seq 500); do mkdir x$i; done; echo threaded > x1/cgroup.type; "
        "mkdir z && for p in $(ps -eo pid=); do echo $p > z/cgroup.procs; done"
    )
    attack(root, "echo 1 > /sys/fs/cgroup/user/z/cgroup.freeze")
    assert service.kill(box["sandboxID"]) == 204
    service.until_clean()
