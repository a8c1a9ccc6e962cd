"""abx-guest alone: POST /files/compose."""

import json
import os
import socket

import pytest
from guest_kit import fresh, guest  # noqa: F401 (fixtures)
from test_guest_files import get, leftovers, put
from waiting import until

JSON = {"Content-Type": "application/json"}


def compose(guest, sources, destination, username=None, **kw):
    message = {"source_paths": sources, "destination": destination} | ({"username": username} if username else {})
    status, headers, body = guest.http("POST", "/files/compose", json.dumps(message), JSON, **kw)
    assert headers["Access-Control-Allow-Origin"] == "*"
    return status, json.loads(body)


@pytest.mark.parametrize("size", [0, 7, 300_000, 5 << 20])
def test_parts_become_one(guest, size):
    guest.sh("mkdir /run/d; chown user /run/d", user="root")
    parts = [os.urandom(size), b"middle", os.urandom(size)]
    for i, data in enumerate(parts):
        put(guest, f"/run/d/{i}", data)
    watcher = guest.rpc("CreateWatcher", {"path": "/run/d", "recursive": True})
    sources = [f"/run/d/{i}" for i in range(3)]
    answer = {"path": "/run/d/new/all", "name": "all", "type": "file"}
    assert compose(guest, sources, "/run/d/new/all") == (200, answer)
    assert get(guest, "/run/d/new/all")[2] == b"".join(parts)
    assert [get(guest, s)[2] for s in sources] == parts
    entry = guest.rpc("Stat", {"path": "/run/d/new/all"})["entry"]
    assert (entry["owner"], entry["permissions"]) == ("user", "-rw-r--r--")
    events = [(e["name"], e["type"][11:]) for e in guest.rpc("GetWatcherEvents", watcher)["events"]]
    assert events[:2] == [("new", "CREATE"), ("new/all", "CREATE")] and {n for n, _ in events} == {"new", "new/all"}
    # Over a file that is there, and that is a source itself.
    assert compose(guest, ["/run/d/0", "/run/d/1", "/run/d/0"], "/run/d/0")[0] == 200
    assert get(guest, "/run/d/0")[2] == parts[0] + parts[1] + parts[0]
    assert guest.sh("find /run/d -name '.abx*'")["stdout"] == b""


def test_paths_and_users(guest):
    put(guest, "a", b"a")
    put(guest, "/root/secret", b"secret", user="root")
    guest.sh("chmod 600 /root/secret; chmod 755 /root; ln -s a link", user="root", cwd="/home/user")
    assert compose(guest, ["~/a", "a", "link"], "x/../y")[1]["path"] == "/home/user/y"
    assert get(guest, "y")[2] == b"aaa"
    assert compose(guest, ["secret", "/home/user/a"], "both", "root")[0] == 200
    assert get(guest, "/root/both", user="root")[2] == b"secreta"
    assert compose(guest, ["/root/secret"], "mine")[0] == 403
    assert compose(guest, ["a"], "/root/no")[0] == 403
    assert compose(guest, ["a"], "b", "ghost") == (401, {"code": 401, "message": "error looking up user 'ghost': unknown user"})
    assert compose(guest, ["a"], "b", token=False)[0] == 401
    guest.sh("ls /proc/version >/dev/null")
    assert compose(guest, ["/proc/version", "a"], "v")[0] == 200
    assert get(guest, "v")[2] == open("/proc/version", "rb").read() + b"a"
    # A file in a folder that is not the user's cannot be replaced, and is not emptied either.
    guest.sh("mkdir /mnt/closed; echo old > /mnt/closed/f; chown user /mnt/closed/f", user="root")
    assert compose(guest, ["/mnt/closed/f", "a"], "/mnt/closed/f")[0] == 403
    assert get(guest, "/mnt/closed/f")[2] == b"old\n"


def test_bad_requests(guest):
    put(guest, "a", b"a")
    guest.sh("mkdir d; mkfifo p")
    for sources, destination, status in (
        ([], "x", 400),
        (["a"], "", 400),
        (["a"] * 1001, "x", 400),
        (["no"], "x", 404),
        (["a", "no"], "x", 404),
        (["a", "d"], "x", 400),
        (["p"], "x", 400),
        (["/dev/zero"], "x", 400),
        (["a"], "d", 400),
        (["a"], "a/x", 400),
        (["~root/x"], "x", 400),
        (["a"], "~root/x", 400),
    ):
        got, body = compose(guest, sources, destination)
        assert (got, body["code"]) == (status, status), (sources[:2], destination, body)
    assert get(guest, "x")[0] == 404
    assert compose(guest, ["a"] * 1000, "x")[0] == 200
    assert get(guest, "x")[2] == b"a" * 1000
    for body in (b"", b"{", b"[]", b'{"source_paths":"a","destination":"x"}', b'{"source_paths":[1],"destination":"x"}', b'{"source_paths":["\xff"]}'):
        assert guest.http("POST", "/files/compose", body, JSON)[0] == 400, body
    assert guest.http("POST", "/files/compose", b" " * (2 << 20), JSON)[0] == 413
    assert guest.http("GET", "/files/compose", None, JSON)[0] == 405
    assert leftovers(guest) == b""


def test_full_disk(guest):
    put(guest, "big", bytes(1 << 20))
    put(guest, "/mnt/old", b"old content")
    assert compose(guest, ["big"] * 3, "/mnt/old") == (507, {"code": 507, "message": "not enough disk space available"})
    guest.sh("head -c 2000000 /dev/zero > /mnt/fill; head -c 2000000 /dev/zero >> /mnt/fill")
    assert compose(guest, ["/mnt/old"] * 999, "/mnt/new")[0] == 507
    assert get(guest, "/mnt/old")[2] == b"old content"
    assert guest.sh("ls -A /mnt")["stdout"] == b"fill\nold\n"


def test_a_client_that_goes_leaves_nothing(guest, tmp_path):
    guest.sh(f"truncate -s 300M {tmp_path}/big", user="root")
    message = json.dumps({"source_paths": [f"{tmp_path}/big"] * 4, "destination": f"{tmp_path}/out", "username": "root"}).encode()
    s = socket.create_connection(("127.0.0.1", guest.port))
    s.sendall(f"POST /files/compose HTTP/1.1\r\nHost: x\r\nX-Access-Token: {guest.token}\r\nContent-Length: {len(message)}\r\n\r\n".encode() + message)
    names = lambda: {n for n in os.listdir(tmp_path) if n.startswith(".abx")}
    until(names)
    assert guest.answers()
    s.close()
    until(lambda: not names())
    assert not (tmp_path / "out").exists()
