"""A sandbox that takes all it can get: every other one answers, this one answers or says resource_exhausted, kill works."""

import threading
import time

import pytest
from envd import Envd, EnvdError
from service import Service
from waiting import BUSY_S

pytestmark = [pytest.mark.slow, pytest.mark.alone]  # all of the machine, and the time of others

ANSWER_S = 10  # starved it would be minutes; alone it is a hundredth of a second

HOGS = {
    "fork bomb": "bomb() { bomb | bomb & }; bomb; sleep 600",
    "fork bomb of root": "sudo bash -c 'bomb() { bomb | bomb & }; bomb; sleep 600'",
    "memory": "python3 -c 'x=[]\nwhile 1: x.append(bytearray(1<<24))'; sleep 600",
    "memory, many processes": "for i in $(seq 20); do python3 -c 'x=[]\nwhile 1: x.append(bytearray(1<<22))' & done; sleep 600",
    "shared memory": "dd if=/dev/zero of=/dev/shm/x bs=1M; dd if=/dev/zero of=/dev/shm/y bs=1M; sleep 600",
    "cpu": "for i in $(seq 64); do (while :; do :; done) & done; sleep 600",
    "disk": "dd if=/dev/zero of=/home/user/x bs=4M; sleep 600",
    "small files": "mkdir -p /home/user/f; cd /home/user/f; i=0; while :; do i=$((i+1)); echo $i > $i; done",
    "output": "yes | head -c 100000000000",
    "inotify": (
        "python3 -c 'import ctypes,time\nl=ctypes.CDLL(None)\nwhile l.inotify_init()>=0: pass\ntime.sleep(600)' & sleep 600"),
    "mqueue": (
        "python3 -c 'import ctypes,time\nl=ctypes.CDLL(\"librt.so.1\")\n"
        "for i in range(100000):\n if l.mq_open(b\"/q%d\"%i,66,384,None)<0: break\ntime.sleep(600)' & sleep 600"),
    "open files": "python3 -c 'import time\nf=[]\ntry:\n while 1: f.append(open(\"/dev/null\"))\nexcept OSError: time.sleep(600)'",
    "pipes": "python3 -c 'import os,time\ntry:\n while 1:\n  r,w=os.pipe(); os.set_blocking(w,False); os.write(w,b\"x\"*65536)\nexcept OSError: time.sleep(600)'",
    "connections to itself": (
        "python3 -c 'import socket,time\ns=socket.create_server((\"127.0.0.1\",7777),backlog=4096);c=[]\n"
        "try:\n while 1: c.append(socket.create_connection((\"127.0.0.1\",7777))); c.append(s.accept())\nexcept OSError: time.sleep(600)'"),
    "connections to envd": (
        "python3 -c 'import socket,time\nc=[]\n"
        "try:\n while 1: c.append(socket.create_connection((\"127.0.0.1\",49983)))\nexcept OSError: time.sleep(600)'"),
    "stopped daemon": "sudo pkill -STOP -f abx-guest; sleep 600",
}


# What keeps the sandbox from being asked at all.
CUT_OFF = ("stopped daemon", "connections to envd")


@pytest.fixture(scope="module")
def service(build_dir, base_template):
    with Service(build_dir, "--sandbox-memory", "512M", "--sandbox-disk", "512M") as s:
        yield s


@pytest.fixture(scope="module")
def neighbour(service):
    box = service.create(timeout=3600)
    yield Envd(service, box)
    service.kill(box["sandboxID"])


def best_time(fn, tries=5):
    """Seconds of the fastest of some tries: the machine may be busy with other things for a moment."""
    times = []
    for _ in range(tries):
        start = time.monotonic()
        fn()
        times.append(time.monotonic() - start)
        if times[-1] < ANSWER_S:
            break
    return min(times)


@pytest.mark.parametrize("name", HOGS)
def test_hog_is_contained(service, neighbour, name):
    box = service.create(timeout=600)
    hog = Envd(service, box, user="user")

    def start():
        try:
            hog.run(HOGS[name], timeout=600)
        except (EnvdError, OSError, ConnectionError):
            pass  # the kill at the end cuts it

    thread = threading.Thread(target=start, daemon=True)
    thread.start()
    time.sleep(3)

    assert best_time(lambda: neighbour.sh("true")) < ANSWER_S, "the neighbour is slow"

    def own():
        try:
            code, _, err = hog.run("true", timeout=30)
            assert code == 0 or "Resource temporarily unavailable" in err or "Cannot allocate" in err, (code, err)
        except EnvdError as e:
            assert e.code == "resource_exhausted", e

    if name not in CUT_OFF:
        assert best_time(own) < ANSWER_S, "neither run nor refused in time"
    assert service.kill(box["sandboxID"]) == 204
    thread.join(BUSY_S)
    assert not thread.is_alive(), "the client still waits for a sandbox that is gone"
    assert best_time(lambda: neighbour.sh("true")) < ANSWER_S


def test_nothing_is_left_of_the_hogs(service, neighbour):
    service.until_clean()
