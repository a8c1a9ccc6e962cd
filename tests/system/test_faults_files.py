"""Faults that users of other systems reported, files: silent truncation, wrong error classes. See docs/faults.md."""

import gzip
import json
import os
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pytest
from remote import Remote, box  # noqa: F401 (fixtures)
from service import Service
from test_faults_process import abort
from test_guest_files import form
from waiting import until

from guest import RpcError

OCTETS = {"Content-Type": "application/octet-stream"}
BUFFERS = (4096, 16384, 32768, 65536, 131072, 262144, 1 << 20)


@pytest.fixture(scope="module")
def service(build_dir, base_template):
    with Service(build_dir, disk="4G") as s:
        yield s


def put(box, path, body, headers=None, **kw):
    status, _, answer = box.http("POST", f"/files?path={quote(path)}", body, OCTETS | (headers or {}), **kw)
    return status, json.loads(answer)


# --- uploads ------------------------------------------------------------------------------------

WAYS = {
    "length": lambda data: (data, OCTETS),
    "chunked": lambda data: (iter([data[i : i + 10007] for i in range(0, len(data), 10007)]), OCTETS),
    "one byte first": lambda data: (iter([data[:1], data[1:]] if len(data) > 1 else [data]), OCTETS),
    "gzip": lambda data: (gzip.compress(data, 1), OCTETS | {"Content-Encoding": "gzip"}),
    "form": lambda data: form(("file", "ignored", data)),
}


@pytest.mark.parametrize("way", WAYS)
def test_uploads_around_the_sizes_of_buffers(box, way):
    noise = os.urandom(1 << 20) + b"\r\n--" + os.urandom(100)
    sizes = [0, 1, *(n + d for n in BUFFERS for d in (-1, 0, 1))]

    def one(size):
        body, headers = WAYS[way](noise[:size])
        path = f"/tmp/{way.replace(' ', '')}/{size}"
        assert box.http("POST", f"/files?path={path}", body, headers)[0] == 200, size
        assert box.http("GET", f"/files?path={path}")[2] == noise[:size], size
        packed = box.http("GET", f"/files?path={path}", headers={"Accept-Encoding": "gzip"})
        data = gzip.decompress(packed[2]) if packed[1]["Content-Encoding"] == "gzip" else packed[2]
        assert data == noise[:size], size
        return box.rpc("Stat", {"path": path})["entry"].get("size", "0") == str(size)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(one, sizes))


def test_32_uploads_into_a_folder_that_is_not_there(box):
    """Each makes the folders if it must; all belong to the user, no temporary file is left."""
    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda i: put(box, f"deep/er/still/{i % 4}/{i}", b"%d" % i), range(32)))
    assert [a[0] for a in answers] == [200] * 32, answers
    out = box.inside("cd /home/user/deep && find . -mindepth 1 -printf '%u %p\\n' | sort | uniq | wc -l; find . ! -user user; cat er/still/?/* | wc -c")
    assert out.split() == [str(2 + 4 + 32), str(10 + 2 * 22)]


def test_an_upload_that_breaks_off_changes_nothing(box):
    """At any place, by reset or by the end of the connection; nothing half is left, what was there stays."""
    assert put(box, "/tmp/whole/file", b"as it was")[0] == 200
    for cut in (0, 1, 4096, 65536, 65537, 300000):
        for hard in (True, False):
            for name in ("file", f"new{cut}"):
                sock = socket.create_connection(("127.0.0.1", box.port), timeout=60)
                head = f"POST /files?path=/tmp/whole/{name} HTTP/1.1\r\nHost: x\r\nContent-Length: 500000\r\n"
                fields = box.headers("application/octet-stream")
                sock.sendall((head + "".join(f"{k}: {v}\r\n" for k, v in fields.items()) + "\r\n").encode() + bytes(cut))
                abort(sock) if hard else sock.close()
    until(lambda: box.inside("ls -A /tmp/whole") == "file\n")
    assert box.http("GET", "/files?path=/tmp/whole/file")[2] == b"as it was"


PACKED = gzip.compress(b"x" * 1000)


@pytest.mark.parametrize("body", [b"", b"not gzip", PACKED[:-9], PACKED[:-1] + b"?"], ids=["empty", "plain", "short", "wrong sum"])
def test_a_cut_gzip_upload_is_refused(box, body):
    assert put(box, "/tmp/packed", b"as it was")[0] == 200
    status, answer = put(box, "/tmp/packed", body, {"Content-Encoding": "gzip"})
    assert status == 400, answer
    assert box.http("GET", "/files?path=/tmp/packed")[2] == b"as it was"


# --- error classes ------------------------------------------------------------------------------

PREPARE = (
    "mkdir -p /tmp/e/dir/sub /tmp/e/closed; chmod 777 /tmp/e; echo x > /tmp/e/file; echo x > /tmp/e/dir/file; chmod 755 /tmp/e/dir; "
    "echo secret > /tmp/e/closed/file; echo secret > /tmp/e/unread; chmod 600 /tmp/e/unread; chmod 700 /tmp/e/closed; ln -s /tmp/e/loop /tmp/e/loop; "
    "ln -s nowhere /tmp/e/dangling"
)

# What -> (Stat, ListDir, MakeDir, Remove, WatchDir, CreateWatcher, GET, POST); None: succeeds
PLACES = {
    "/tmp/e/none": ("not_found", "not_found", None, None, "not_found", "not_found", 404, 200),
    "/tmp/e/none/x": ("not_found", "not_found", None, None, "not_found", "not_found", 404, 200),
    "/tmp/e/file/x": ("not_found", "not_found", "invalid_argument", None, "not_found", "not_found", 404, 400),
    "/tmp/e/dir": (None, None, "already_exists", "permission_denied", None, None, 400, 400),
    "/tmp/e/file": (None, "invalid_argument", "invalid_argument", None, "invalid_argument", "invalid_argument", 200, 200),
    "/tmp/e/closed/file": ("permission_denied",) * 6 + (403, 403),
    "/tmp/e/closed": (None, "permission_denied", "already_exists", "permission_denied", "permission_denied", "permission_denied", 403, 400),
    # Written beside and renamed: the folder's rights count.
    "/tmp/e/unread": (None, "invalid_argument", "invalid_argument", None, "invalid_argument", "invalid_argument", 403, 200),
    "/tmp/e/loop": (None, "invalid_argument", "invalid_argument", None, "invalid_argument", "invalid_argument", 400, 400),
    "/root/x": ("permission_denied",) * 6 + (403, 403),
}
CALLS = ("Stat", "ListDir", "MakeDir", "Remove", "WatchDir", "CreateWatcher")


def outcome(box, call, path):
    """Code of a failure, None for success, HTTP status for files."""
    if call in ("GET", "POST"):
        target = f"/files?path={quote(path)}"
        status, _, body = box.http(call, target, b"x" if call == "POST" else None, OCTETS if call == "POST" else None)
        assert status == 200 or json.loads(body)["code"] == status
        return status
    try:
        if call == "WatchDir":
            from guest import Stream

            stream = Stream(box, "/filesystem.Filesystem/WatchDir", {"path": path})
            next(stream)
            stream.close()
        else:
            answer = box.rpc(call, {"path": path})
            if call == "CreateWatcher":
                box.rpc("RemoveWatcher", {"watcherId": answer["watcherId"]})
        return None
    except RpcError as e:
        assert path.split("/")[2] in e.message or path in e.message, e  # it is named
        return e.code


@pytest.mark.parametrize("path", PLACES)
def test_errors_are_of_the_right_class(box, path):
    """Missing paths, folders as files, files as folders, what may not be read; each call in a fresh tree."""
    got = []
    for call in (*CALLS, "GET", "POST"):
        box.inside(f"rm -rf /tmp/e; {PREPARE}")
        got.append(outcome(box, call, path))
    assert tuple(got) == PLACES[path], dict(zip((*CALLS, "GET", "POST"), got))


def test_unknown_users(box):
    for user in ("ghost", "65534x", "-1", " ", "ü", "a" * 60):
        for call in ("Stat", "List"):
            with pytest.raises(RpcError) as e:
                box.rpc(call, {"path": "/tmp"} if call == "Stat" else {}, user=user)
            assert e.value.code == "unauthenticated", (user, e.value)
        for method in ("GET", "POST"):
            status, _, body = box.http(method, f"/files?path=/tmp/u&username={quote(user)}", b"x" if method == "POST" else None, OCTETS)
            assert status == 401 and "user" in json.loads(body)["message"], (user, body)
    assert box.http("GET", "/files?path=/etc/hostname&username=")[0] == 200
    for query, name in (("path=/tmp/u&username=" + "a" * 1000, "username"), ("path=/" + "a" * 5000, "path"), ("path=%zz", "path"), ("path=%ff", "path")):
        status, _, body = box.http("GET", f"/files?{query}")
        assert status == 400 and json.loads(body)["message"].startswith(f"query parameter '{name}' is malformed or over "), body


SDK_ERRORS = """
import sys
from e2b import Sandbox
import e2b
box = Sandbox.connect(sys.argv[1])
f = box.files
def name(fn, *args, **kw):
    try:
        return repr(fn(*args, **kw))[:40]
    except Exception as e:
        return type(e).__name__
print(name(f.read, "/tmp/e/none"), name(f.read, "/tmp/e/dir"), name(f.read, "/tmp/e/file/x"), name(f.read, "/tmp/e/unread"))
print(name(f.list, "/tmp/e/none"), name(f.list, "/tmp/e/file"), name(f.list, "/tmp/e/closed"))
print(name(f.write, "/tmp/e/dir", "x"), name(f.write, "/tmp/e/file/x", "x"), name(f.write, "/tmp/e/closed/x", "x"))
print(name(f.exists, "/tmp/e/none"), name(f.exists, "/tmp/e/file/x"), name(f.exists, "/tmp/e/dir"), name(f.make_dir, "/tmp/e/dir"))
print(name(f.get_info, "/tmp/e/none"), name(f.rename, "/tmp/e/none", "/tmp/e/n"), name(f.watch_dir, "/tmp/e/none"), name(f.watch_dir, "/tmp/e/file"))
print(name(f.read, "/tmp/e/file", user="ghost"), name(f.list, "/tmp", user="ghost"), name(box.commands.run, "true", user="ghost"))
print(name(box.commands.run, "true", cwd="/tmp/e/none"), name(box.commands.run, "true", cwd="/tmp/e/file"), name(box.commands.run, "exit 3"))
print(name(box.commands.connect, 999999), name(box.commands.kill, 999999), name(box.commands.send_stdin, 999999, "x"))
"""


def test_the_official_clients_classes(service, box, tools_dir, tmp_path):
    box.inside(f"rm -rf /tmp/e; {PREPARE}")
    env = {k: v for k, v in os.environ.items() if not k.startswith("E2B_")} | service.client_env() | {"HOME": str(tmp_path)}
    run = subprocess.run(
        [tools_dir / "py/bin/python", "-c", SDK_ERRORS, box.id], env=env, capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr
    none = "FileNotFoundException"
    assert [line.split() for line in run.stdout.splitlines()] == [
        [none, "InvalidArgumentException", none, "SandboxException"],
        [none, "InvalidArgumentException", "SandboxException"],
        ["InvalidArgumentException", "InvalidArgumentException", "SandboxException"],
        ["False", "False", "True", "False"],
        [none, none, none, "InvalidArgumentException"],
        ["AuthenticationException", "AuthenticationException", "AuthenticationException"],
        ["InvalidArgumentException", "InvalidArgumentException", "CommandExitException"],
        ["NotFoundException", "False", "NotFoundException"],
    ]
