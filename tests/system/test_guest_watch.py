"""abx-guest alone: WatchDir, CreateWatcher, GetWatcherEvents, RemoveWatcher."""

import gzip
import json
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import processes
import pytest
from guest_kit import error_of, fresh, guest  # noqa: F401 (fixtures)
from waiting import until

from guest import RpcError, Stream

OCTETS = {"Content-Type": "application/octet-stream"}
C, W, R, N, A = "CREATE", "WRITE", "REMOVE", "RENAME", "CHMOD"


def put(guest, path, data, headers=None, user=None):
    target = f"/files?path={quote(path)}" + (f"&username={user}" if user else "")
    status, _, body = guest.http("POST", target, data, OCTETS | (headers or {}))
    assert status == 200, body


def plain(event):
    return event.get("name", ""), event["type"].removeprefix("EVENT_TYPE_")


class Watcher:
    """One that is asked: CreateWatcher."""

    def __init__(self, guest, path, user=None, **over):
        self.guest = guest
        self.id = guest.rpc("CreateWatcher", {"path": path} | over, user)["watcherId"]

    def raw(self):
        return self.guest.rpc("GetWatcherEvents", {"watcherId": self.id}).get("events", [])

    def take(self):
        return [plain(e) for e in self.raw()]

    def remove(self):
        assert self.guest.rpc("RemoveWatcher", {"watcherId": self.id}) == {}


class Watch(Stream):
    """A stream: WatchDir. The start event has come."""

    def __init__(self, guest, path, user=None, headers=None, rcvbuf=None, **over):
        super().__init__(guest, "/filesystem.Filesystem/WatchDir", {"path": path} | over, user, headers, rcvbuf)
        assert next(self) == {"start": {}}

    def events(self):
        for message in self:
            if "filesystem" in message:
                yield message["filesystem"]

    def until(self, name, op):
        """All events until the one named."""
        got = []
        for event in self.events():
            got.append(plain(event))
            if got[-1] == (name, op):
                return got
        raise AssertionError(got)


def daemon_fds(guest):
    return len(os.listdir(f"/proc/{guest.daemon()}/fd"))


def inotifies(guest):
    """inotify instances of the daemon."""
    return sum("inotify" in what for what in processes.files(guest.daemon()).values())


# --- what is told -------------------------------------------------------------------------------


def test_a_small_new_file(guest):
    guest.sh("mkdir d")
    stream, polled = Watch(guest, "d"), Watcher(guest, "d")
    put(guest, "d/f", b"hello")
    assert stream.until("f", W) == [("f", C), ("f", A), ("f", W)]
    assert polled.take() == [("f", C), ("f", A), ("f", W)]
    assert polled.take() == []
    put(guest, "d/empty", b"")
    assert polled.take() == [("empty", C), ("empty", A)]


@pytest.mark.parametrize("size", [10, 3 << 20])
def test_uploads_show_no_temporary_names(guest, tmp_path, size):
    guest.sh(f"mkdir /run/d; chown user /run/d", user="root")
    w = Watcher(guest, "/run/d", recursive=True)
    data = os.urandom(size)
    put(guest, "/run/d/new", data)
    assert w.take() == [("new", C), ("new", A), ("new", W)]
    put(guest, "/run/d/new", data)
    assert w.take() == [("new", A), ("new", W)]
    put(guest, "/run/d/new", gzip.compress(data, 1), {"Content-Encoding": "gzip", "X-Metadata-K": "v"})
    assert w.take() == [("new", A), ("new", W)]
    put(guest, "/run/d/meta", data, {"X-Metadata-K": "v"})
    assert w.take() == [("meta", C), ("meta", A), ("meta", W)]
    put(guest, "/run/d/x/y", data)
    assert [e for e in w.take() if e[1] == C] == [("x", C), ("x/y", C)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: put(guest, f"/run/d/p/{i}", data), range(8)))
    got = w.take()
    assert sorted(e for e in got if e[1] == C) == [("p", C)] + [(f"p/{i}", C) for i in range(8)]
    assert {n for n, _ in got} == {"p"} | {f"p/{i}" for i in range(8)}
    assert {f"p/{i}" for i in range(8)} <= {n for n, op in got if op == W}


def test_each_operation(guest):
    guest.sh("mkdir d out; echo 1 > d/f; echo 2 > out/g; mkdir d/sub")
    w = Watcher(guest, "d")
    steps = [
        ("echo x >> d/f", [("f", W)]),
        ("chmod 600 d/f", [("f", A)]),
        ("mv d/f d/g", [("f", N), ("g", C)]),
        ("rm d/g", [("g", R)]),
        ("mv out/g d/in", [("in", C)]),
        ("mv d/in out/", [("in", N)]),
        ("mkdir d/new", [("new", C)]),
        ("rmdir d/new", [("new", R)]),
        ("ln -s nowhere d/link", [("link", C)]),
        ("ln out/in d/hard", [("hard", C)]),
        ("chmod 700 d", [(".", A)]),
        ("touch d/sub/unseen", []),
        ("mkfifo d/p", [("p", C)]),
        ("mv d/sub d/sub2", [("sub", N), ("sub2", C)]),
    ]
    for command, events in steps:
        assert guest.sh(command)["code"] == 0
        assert w.take() == events, command


def test_entries(guest):
    guest.sh("mkdir d; echo 1 > d/old")
    stream, polled = Watch(guest, "d", includeEntry=True, recursive=True), Watcher(guest, "d", includeEntry=True)
    put(guest, "d/f", b"12345", {"X-Metadata-K": "v"})
    want = guest.rpc("Stat", {"path": "d/f"})["entry"]
    assert want["metadata"] == {"k": "v"} and want["path"] == "/home/user/d/f"
    got = polled.raw()
    assert [plain(e) for e in got] == [("f", C), ("f", A), ("f", W)]
    assert [e["entry"] for e in got] == [want] * 3
    events = stream.events()
    for op in (C, A, W):
        event = next(events)
        assert plain(event) == ("f", op) and event["entry"]["path"] == "/home/user/d/f"
    guest.sh("mkdir d/s; echo 1 > d/s/f")
    assert [e["entry"]["path"] for e in (next(events), next(events))] == ["/home/user/d/s", "/home/user/d/s/f"]
    polled.take()
    guest.sh("mv d/old d/new; rm d/new")
    assert [(plain(e), "entry" in e) for e in polled.raw()] == [(("old", N), False), (("new", C), False), (("new", R), False)]


def test_odd_names(guest):
    guest.run("python3", "-c", "import os; os.mkdir('d'); os.chdir('d')")
    w = Watcher(guest, "d", recursive=True, includeEntry=True)
    guest.run("python3", "-c", "import os; os.chdir('d'); os.mkdir('\U0001f600'); open('\U0001f600/a\\nb','w'); open(b'x\\xffy\\xc3','w'); open(' \"\\\\','w')")
    names = [plain(e)[0] for e in w.raw()]
    assert names == ["\U0001f600", "\U0001f600/a\nb", "x\ufffdy\ufffd", ' "\\']


# --- recursive ----------------------------------------------------------------------------------


def test_folders_made_at_once(guest):
    """Nothing below a new folder is missed and nothing is told twice, however fast it was made."""
    guest.sh("mkdir d")
    w = Watcher(guest, "d", recursive=True)
    for i in range(150):
        guest.sh(f"cd d; mkdir -p r{i}/b/c/d && touch r{i}/b/c/d/f && echo 1 > r{i}/b/g")
    got = w.take()
    for i in range(150):
        mine = [e for e in got if e[0].split("/")[0] == f"r{i}"]
        made = [n for n, op in mine if op == C]
        assert sorted(made) == [f"r{i}", f"r{i}/b", f"r{i}/b/c", f"r{i}/b/c/d", f"r{i}/b/c/d/f", f"r{i}/b/g"], mine
        assert (f"r{i}/b/g", W) in mine
        for name in made[1:]:
            assert made.index(os.path.dirname(name)) < made.index(name)


def test_no_event_is_lost_while_a_folder_is_looked_at(guest):
    """New folders are watched while their parent gets more of them."""
    for _ in range(10):
        guest.sh("mkdir d")
        w = Watcher(guest, "d", recursive=True)
        guest.sh("cd d; seq 3000 | xargs mkdir")
        assert w.take() == [(str(i), C) for i in range(1, 3001)]
        w.remove()
        guest.sh("rm -r d")


def test_many_makers_of_folders(guest):
    guest.sh("mkdir d")
    w = Watcher(guest, "d", recursive=True)
    script = "cd d; for k in $(seq 12); do (for i in $(seq 40); do mkdir -p $k/$i/x/y; echo 1 > $k/$i/x/y/f; echo 1 > $k/$i/x/g; done) & done; wait"
    assert guest.sh(script)["code"] == 0
    made = []
    until(lambda: made.extend(n for n, op in w.take() if op == C) or len(made) >= 12 * (1 + 40 * 5))
    want = [str(k) for k in range(1, 13)]
    want += [f"{k}/{i}{s}" for k in range(1, 13) for i in range(1, 41) for s in ("", "/x", "/x/y", "/x/y/f", "/x/g")]
    assert sorted(made) == sorted(want)
    guest.sh("echo 1 >> d/12/40/x/y/f; rm d/1/1/x/g")
    assert w.take() == [("12/40/x/y/f", W), ("1/1/x/g", R)]


def test_renames_of_folders(guest):
    guest.sh("mkdir -p d/a/b/c d/k o/x/y; echo 1 > o/x/y/f; ln -s ../o d/link")
    w = Watcher(guest, "d", recursive=True)
    steps = [
        ("mv d/a d/A; touch d/A/b/c/new", [("a", N), ("A", C), ("A/b/c/new", C), ("A/b/c/new", A)]),
        ("mv d/A/b d/k/B; mv d/k/B d/k/B2; rm d/k/B2/c/new", [("A/b", N), ("k/B", C), ("k/B", N), ("k/B2", C), ("k/B2/c/new", R)]),
        ("mv d/k o/", [("k", N)]),
        ("touch o/k/B2/c/unseen", []),
        ("mv o/k d/k", [("k", C), ("k/B2", C), ("k/B2/c", C), ("k/B2/c/unseen", C)]),
        ("rm d/k/B2/c/unseen", [("k/B2/c/unseen", R)]),
        ("mv o/x d/", [("x", C), ("x/y", C), ("x/y/f", C)]),
        ("echo 2 >> d/x/y/f", [("x/y/f", W)]),
        ("rm -r d/x", [("x/y/f", R), ("x/y", R), ("x", R)]),
        ("touch o/unseen", []),
        ("mkdir d/e; mv -T d/A d/e; touch d/e/f", [("e", C), ("A", N), ("e", C), ("e/f", C), ("e/f", A)]),
        ("chmod 700 d/e", [("e", A)]),
    ]
    for command, events in steps:
        assert guest.sh(command)["code"] == 0
        got = w.take()
        assert got == events, command


def test_remove_tells_what_goes(guest):
    guest.sh("mkdir -p d/a/b/c/e d/a/b2; touch d/a/f d/a/b/f d/a/b/c/f d/a/b2/f; ln -s . d/a/link")
    w = Watcher(guest, "d", recursive=True)
    guest.rpc("Remove", {"path": "d/a"})
    got = w.take()
    want = ["a", "a/b", "a/b/c", "a/b/c/e", "a/b/c/f", "a/b/f", "a/b2", "a/b2/f", "a/f", "a/link"]
    assert sorted(got) == [(n, R) for n in want]
    order = [n for n, _ in got]
    assert all(order.index(os.path.dirname(n)) > order.index(n) for n in want[1:])


def test_folders_that_change_places(guest):
    guest.sh("mkdir -p d/a/in-a d/b/in-b")
    w = Watcher(guest, "d", recursive=True)
    swap = "import ctypes; assert ctypes.CDLL(None).renameat2(-100, b'd/a', -100, b'd/b', 2) == 0"
    assert guest.run("python3", "-c", swap)["code"] == 0
    assert sorted(w.take()) == [("a", C), ("a", N), ("b", C), ("b", N)]
    guest.sh("touch d/a/in-b/f d/b/in-a/g")
    assert [e for e in w.take() if e[1] == C] == [("a/in-b/f", C), ("b/in-a/g", C)]


def test_renames_while_folders_are_made(guest):
    """At the end the watcher knows every folder by the name that it has then."""
    guest.sh("mkdir d")
    w = Watcher(guest, "d", recursive=True)
    script = """
import os, threading
os.chdir('d')
def work(k):
    for i in range(60):
        os.makedirs(f'{k}-{i}/p/q')
        os.rename(f'{k}-{i}', f'{k}-{i}-x')
        os.makedirs(f'{k}-{i}-x/p/q/r/s')
        os.rename(f'{k}-{i}-x/p', f'{k}-{i}-x/P')
        os.makedirs(f'{k}-{i}-x/P/q/r/s/t')
        os.rename(f'{k}-{i}-x/P/q', f'{k}-{i}-q')
threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
"""
    assert guest.run("python3", "-c", script)["code"] == 0
    w.take()
    guest.sh("cd d; find . -type d -exec touch {}/last ';'")
    folders = guest.sh("cd d; find . -type d -printf '%P\\n'")["stdout"].decode().split("\n")[1:-1]
    assert sorted(n for n, op in w.take() if op == C) == sorted(["last"] + [f"{f}/last" for f in folders])


def test_what_a_user_may_not_read(guest):
    guest.sh("mkdir -p d/open d/closed/in /home/closed; chmod 700 /home/closed; chown root d/closed; chmod 700 d/closed", user="root", cwd="/home/user")
    assert error_of(guest.rpc, "CreateWatcher", {"path": "/home/closed"})[0] == "permission_denied"
    assert error_of(guest.rpc, "CreateWatcher", {"path": "d/closed"})[0] == "permission_denied"
    assert error_of(lambda: Watch(guest, "/home/closed"))[0] == "permission_denied"
    w, root = Watcher(guest, "d", recursive=True), Watcher(guest, "/home/user/d", "root", recursive=True)
    guest.sh("touch d/closed/f d/closed/in/f d/open/f; mkdir -m 700 d/late; touch d/late/f", user="root", cwd="/home/user")
    assert [n for n, op in w.take() if op == C] == ["open/f", "late"]
    assert [n for n, op in root.take() if op == C] == ["closed/f", "closed/in/f", "open/f", "late", "late/f"]


@pytest.mark.skipif(not os.path.exists("/dev/fuse"), reason="this kernel has no FUSE")
def test_network_mounts(guest):
    guest.sh("mkdir d")
    program = (Path(__file__).parent / "fuse_folder.py").read_text()
    server = guest.start("python3", "-c", program, "/home/user/d/net", user="root", stdin=True)
    server.until_output(b"mounted\n")
    for path in ("d/net", "d/net/."):
        code, message = error_of(guest.rpc, "CreateWatcher", {"path": path})
        assert code == "invalid_argument" and "network file system" in message and "allow_network_mounts" in message
    assert error_of(lambda: Watch(guest, "d/net", recursive=True))[0] == "invalid_argument"
    assert Watcher(guest, "d/net", allowNetworkMounts=True).take() == []
    assert next(Watch(guest, "d/net", allowNetworkMounts=True, headers={"Keepalive-Ping-Interval": "1"})) == {"keepalive": {}}
    w = Watcher(guest, "d", recursive=True)  # what is below it is told but for the mount
    guest.sh("touch d/f")
    assert w.take() == [("f", C), ("f", A)]
    guest.rpc("CloseStdin", {"process": {"pid": server.pid}})
    assert server.wait()["code"] == 0


# --- the end ------------------------------------------------------------------------------------


@pytest.mark.parametrize("command, last", [("rm -r d", R), ("mv d e", N)])
def test_the_watched_folder_goes(guest, command, last):
    guest.sh("mkdir -p d/s; touch d/f")
    stream, polled = Watch(guest, "d", recursive=True), Watcher(guest, "d")
    guest.sh(command)
    got = [plain(e) for e in stream.events()]
    assert got[-1] == (".", last) and stream.trailer == {}
    assert got[:-1] == ([("s", R), ("f", R)] if last == R else []) or sorted(got[:-1]) == [("f", R), ("s", R)]
    until(lambda: (".", last) in polled.take())
    guest.sh("mkdir -p d; touch d/again")
    assert polled.take() == []
    polled.remove()
    assert Watcher(guest, "d").take() == []


def test_a_folder_above_moves(guest):
    """What is in the watched folder is told on; a new folder that cannot be reached is no silent gap."""
    guest.sh("mkdir -p up/d")
    stream = Watch(guest, "up/d", recursive=True)
    guest.sh("mv up up2; touch up2/d/f; mkdir up2/d/new")
    got = []
    code, message = error_of(lambda: [got.append(plain(e)) for e in stream.events()])
    assert got == [("f", C), ("f", A), ("new", C)]
    assert code == "aborted" and "a folder above it moved" in message


def test_errors(guest):
    guest.sh("touch f; ln -s loop loop; mkdir d; ln -s d link")
    for path, code in (("no", "not_found"), ("no/x", "not_found"), ("f", "invalid_argument"), ("f/x", "not_found"), ("~root", "invalid_argument")):
        assert error_of(guest.rpc, "CreateWatcher", {"path": path})[0] == code, path
        assert error_of(lambda: Watch(guest, path))[0] == code, path
    assert error_of(guest.rpc, "CreateWatcher", {"path": "loop"})[0] in ("invalid_argument", "failed_precondition", "not_found")
    for method in ("GetWatcherEvents", "RemoveWatcher"):
        assert error_of(guest.rpc, method, {"watcherId": "ghost"}) == ("not_found", "watcher with id ghost not found")
    w = Watcher(guest, "link")
    guest.sh("touch link/f")
    assert w.take() == [("f", C), ("f", A)]
    w.remove()
    assert error_of(w.raw)[0] == "not_found"


def test_stream_times(guest):
    guest.sh("mkdir d")
    stream = Watch(guest, "d", headers={"Keepalive-Ping-Interval": "1"})
    assert next(stream) == {"keepalive": {}}
    assert next(stream) == {"keepalive": {}}
    stream.close()
    stream = Watch(guest, "d", headers={"Connect-Timeout-Ms": "2000"})
    assert error_of(lambda: next(stream))[0] == "deadline_exceeded"


def test_a_crash_of_the_daemon(guest):
    w = Watcher(guest, "~")
    os.kill(guest.daemon(), signal.SIGKILL)
    until(guest.answers)
    assert error_of(w.raw)[0] == "not_found"
    assert Watcher(guest, "~").take() == []


def test_a_watcher_nobody_asks(guest):
    headers = guest.headers("application/json") | {"Abx-Watcher-Idle": "3"}
    create = lambda h: guest.http("POST", "/filesystem.Filesystem/CreateWatcher", json.dumps({"path": "~"}), h)
    id = json.loads(create(headers)[2])["watcherId"]
    ask = lambda: guest.http("POST", "/filesystem.Filesystem/GetWatcherEvents", json.dumps({"watcherId": id}), guest.headers("application/json"))[0]
    end = time.monotonic() + 6
    while time.monotonic() < end:
        assert ask() == 200  # asking keeps it
        time.sleep(0.1)
    before = daemon_fds(guest)
    until(lambda: daemon_fds(guest) < before)
    assert ask() == 404
    for bad in ("0", "x", "86401", ""):
        assert create(headers | {"Abx-Watcher-Idle": bad})[0] == 400


# --- bounds -------------------------------------------------------------------------------------


def test_20000_files_at_once(guest):
    guest.sh("mkdir d")
    w, stream = Watcher(guest, "d"), Watch(guest, "d")
    got = []
    reader = threading.Thread(target=lambda: got.extend(stream.until("f19999", A)))
    reader.start()
    assert guest.sh("cd d; seq -f 'f%.0f' 0 19999 | xargs touch")["code"] == 0
    want = [e for i in range(20000) for e in ((f"f{i}", C), (f"f{i}", A))]
    assert w.take() == want
    reader.join(60)
    assert got == want
    guest.sh("rm -r d")
    until(lambda: (".", R) in w.take())
    w.remove()
    until(lambda: guest.is_sanitized() or guest.daemon_memory() < 1 << 20)


def test_a_reader_that_does_not_read(guest):
    guest.sh("mkdir d")
    stream, polled = Watch(guest, "d", rcvbuf=4096), Watcher(guest, "d")
    script = "import os\nos.chdir('d')\nfor i in range(150000):\n  f = 'some-longer-name-%06d' % (i % 5000)\n  open(f, 'w').close(); os.unlink(f)"
    assert guest.run("python3", "-c", script)["code"] == 0
    taken, codes = 0, []
    while not codes:
        try:
            taken += len(polled.take())
        except RpcError as e:
            codes.append((e.code, "not read fast enough" in e.message or "max_queued_events" in e.message))
    assert codes == [("resource_exhausted", True)] and taken <= 65536
    assert error_of(polled.raw)[0] == "resource_exhausted"
    assert guest.is_sanitized() or guest.daemon_memory() < 24 << 20
    polled.remove()
    n = 0

    def drain():
        nonlocal n
        for _ in stream.events():
            n += 1

    assert error_of(drain)[0] == "resource_exhausted" and n > 1000
    until(lambda: guest.is_sanitized() or guest.daemon_memory() < 6 << 20)
    assert guest.answers()


def test_watchers_are_bounded(guest):
    guest.sh("mkdir d")
    watchers = [Watcher(guest, "d") for _ in range(60)]
    streams = [Watch(guest, "d") for _ in range(4)]
    assert error_of(guest.rpc, "CreateWatcher", {"path": "d"}) == ("resource_exhausted", "64 watchers are the most in one sandbox")
    assert error_of(lambda: Watch(guest, "d"))[0] == "resource_exhausted"
    guest.sh("touch d/f")
    assert all(w.take() == [("f", C), ("f", A)] for w in watchers)
    streams[0].close()
    until(lambda: guest.http("POST", "/filesystem.Filesystem/CreateWatcher", json.dumps({"path": "d"}), guest.headers("application/json"))[0] == 200)


def test_folders_are_bounded(guest):
    make = "import os\nos.mkdir('d')\nfor i in range(200):\n  os.mkdir(f'd/{i}')\n  for k in range(200): os.mkdir(f'd/{i}/{k}')"
    assert guest.run("python3", "-c", make)["code"] == 0
    code, message = error_of(guest.rpc, "CreateWatcher", {"path": "d", "recursive": True})
    assert code == "resource_exhausted" and "32768" in message
    code, message = error_of(lambda: Watch(guest, "d", recursive=True))
    assert code == "resource_exhausted"
    w = Watcher(guest, "d/7", recursive=True)  # what was taken is given back
    guest.sh("touch d/7/199/f")
    assert w.take()[0] == ("199/f", C)
    until(lambda: guest.is_sanitized() or guest.daemon_memory() < 6 << 20)


@pytest.mark.alone  # they are the machine's
def test_limits_of_inotify(guest):
    guest.sh("mkdir -p d; cd d; seq 1 300 | xargs mkdir")
    sysctl = "/proc/sys/fs/inotify/max_user_"
    old = {name: open(sysctl + name).read() for name in ("instances", "watches")}
    # The daemon of this test counts as the host's root; a sandbox's as its own.
    try:
        open(sysctl + "instances", "w").write("0")
        code, message = error_of(guest.rpc, "CreateWatcher", {"path": "d"})
        assert code == "resource_exhausted" and "max_user_instances" in message
        open(sysctl + "instances", "w").write(old["instances"])
        w = Watcher(guest, "~/d")
        open(sysctl + "watches", "w").write("100")
        code, message = error_of(guest.rpc, "CreateWatcher", {"path": "d", "recursive": True})
        assert code == "resource_exhausted" and "max_user_watches" in message
    finally:
        for name, value in old.items():
            open(sysctl + name, "w").write(value)
    assert w.take() == []


@pytest.mark.slow
def test_1000_watches(guest):
    guest.sh("mkdir -p d/a/b/c")

    def round(i):
        """Clients that have gone are noticed only after a while."""

        def one():
            try:
                start(i)
                return True
            except RpcError as e:
                assert e.code == "resource_exhausted"

        until(one)

    def start(i):
        if i % 3 == 0:
            stream = Watch(guest, "d", recursive=True)
            stream.close()
        elif i % 3 == 1:
            Watcher(guest, "d", recursive=True).remove()
        else:  # gone before the answer
            connection = guest.connection()
            connection.request("POST", "/filesystem.Filesystem/CreateWatcher", json.dumps({"path": "d"}), guest.headers("application/json") | {"Abx-Watcher-Idle": "1"})
            connection.close()

    def quiet():
        until(lambda: guest.connections() == 0)
        until(lambda: daemon_fds(guest) <= fds)

    fds = daemon_fds(guest) + 1
    for i in range(60):
        round(i)
    quiet()
    before = guest.daemon_memory()
    for i in range(1000):
        round(i)
    quiet()
    assert guest.is_sanitized() or guest.daemon_memory() - before < 512 << 10


@pytest.mark.slow
def test_a_storm_leaves_the_daemon_responsive(guest):
    """Folders made, renamed and removed, files written, as fast as two processes can, with four watchers."""
    guest.sh("mkdir d")
    script = """
import os, random, sys
os.chdir('d'); random.seed(int(sys.argv[1]))
names = ['a', 'b', 'c', 'e']
while True:
    p = '/'.join(random.choices(names, k=random.randint(1, 6)))
    q = '/'.join(random.choices(names, k=random.randint(1, 6)))
    try:
        n = random.random()
        if n < .4: os.makedirs(p, exist_ok=True)
        elif n < .6: os.rename(p, q)
        elif n < .8: open(p + '/f', 'w').write('1')
        elif n < .9: os.unlink(p + '/f')
        else: os.rmdir(p)
    except OSError: pass
"""
    storms = [guest.start("python3", "-c", script, str(i)) for i in range(2)]
    watchers = {}
    end, rounds = time.monotonic() + 15, 0
    while time.monotonic() < end:
        for i in range(4):
            try:
                watchers[i] = watchers.get(i) or Watcher(guest, "d", recursive=True, includeEntry=i == 0)
                watchers[i].raw()
            except RpcError as e:
                assert e.code in ("resource_exhausted", "aborted"), e
                watchers.pop(i).remove()
        assert guest.answers()
        rounds += 1
    for s in storms:
        guest.rpc("SendSignal", {"process": {"pid": s.pid}, "signal": "SIGNAL_SIGKILL"})
    assert rounds > 0
    guest.sh("rm -rf d; mkdir d")
    w = Watcher(guest, "d", recursive=True)
    guest.sh("mkdir -p d/x/y; touch d/x/y/z")
    assert [n for n, op in w.take() if op == C] == ["x", "x/y", "x/y/z"]
    assert guest.is_sanitized() or guest.daemon_memory() < 24 << 20
