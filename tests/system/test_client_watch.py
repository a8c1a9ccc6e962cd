"""libabx on a real service: watching folders, with both codecs."""

import time

import pytest
from client_kit import Error, box, error_of, made  # noqa: F401 (fixtures)
from service import Service

OPS = {1: "create", 2: "write", 3: "remove", 4: "rename", 5: "chmod"}


@pytest.fixture(scope="module")
def service(build_dir):
    with Service(build_dir) as s:
        yield s


def opts(box, **values):
    return box.abx.struct("abx_watch_opts", **values)


def told(fs):
    return fs.name.decode(), OPS[fs.type]


def take(box, watcher):
    call = box.client.run("abx_watcher_get_events", box.sandbox, watcher, None)
    return [told(e) for e in call.items("abx_call_fs_events")]


def take_until(box, watcher, last):
    """All events up to one that may come a moment after its cause."""
    got, deadline = [], time.monotonic() + 60
    while last not in got:
        assert time.monotonic() < deadline, (len(got), got[-3:])
        got += take(box, watcher)
    return got


def test_a_stream(box):
    call = box.client.call("abx_files_watch", box.sandbox, "/tmp/t", opts(box, recursive=1, include_entry=1))
    assert call.next().kind == box.abx.constants["ABX_EVENT_START"]
    box.write({"/tmp/t/f": b"12345"})
    for op in ("create", "chmod", "write"):
        event = call.next().fs.contents
        assert told(event) == ("f", op) and event.entry.contents.path == b"/tmp/t/f"
    assert event.entry.contents.size == 5 and event.entry.contents.owner == b"user"
    box.run("mkdir -p /tmp/t/a/b/c; touch \"/tmp/t/a/b/c/\"$'\\xff\\nü'")
    names = [told(call.next().fs.contents) for _ in range(4)]
    assert names == [("a", "create"), ("a/b", "create"), ("a/b/c", "create"), ("a/b/c/\ufffd\nü", "create")]
    box.run("rm -r /tmp/t")
    rest = [told(e.fs.contents) for e in call.events()]  # until the end in good order
    assert rest[-1] == (".", "remove") and ("a/b/c", "remove") in rest


def test_watchers(box):
    watcher = box.client.run("abx_watcher_create", box.sandbox, "/tmp/t", opts(box, recursive=1)).bytes()
    assert take(box, watcher) == []
    box.write({f"/tmp/t/{i}": b"x" * (i * 200000) for i in range(4)})
    got = take_until(box, watcher, ("3", "write"))
    assert [e for e in got if e[1] != "chmod"] == [(f"{i}", op) for i in range(4) for op in ("create", "write") if i or op == "create"]
    box.run("cd /tmp/t; seq 1000 3999 | xargs mkdir; mv 1000 2000/")
    got = take_until(box, watcher, ("2000/1000", "create"))
    new = [e for e in got if e[0] not in ("0", "1", "2", "3")]
    assert new[3000:] == [("1000", "rename"), ("2000/1000", "create")], (len(got), got[:3], got[-3:])
    box.client.run("abx_watcher_remove", box.sandbox, watcher, None)
    e = error_of(take, box, watcher)
    assert e.code == "NOT_FOUND"


def test_errors(box):
    for path, code in (("/tmp/none", "NOT_FOUND"), ("/etc/passwd", "INVALID_ARGUMENT"), ("/root", "PERMISSION_DENIED")):
        values = {"user": b"user"}
        assert error_of(box.client.run, "abx_watcher_create", box.sandbox, path, opts(box, **values)).code == code
        assert error_of(box.client.call("abx_files_watch", box.sandbox, path, opts(box, **values)).next).code == code
    call = box.client.call("abx_files_watch", box.sandbox, "/tmp/t", opts(box, timeout_ms=500))
    call.next()
    assert error_of(call.next).code == "DEADLINE_EXCEEDED"


def test_a_sandbox_has_limits_of_its_own(box):
    """What one sandbox's programs use up of inotify is its own; its watchers say what is missing."""
    # The kernel frees an instance some time after its last descriptor is closed, so those of the tests before come late: take them, too.
    hog = """python3 -c '
import ctypes, time
l = ctypes.CDLL(None)
while True:
    while l.inotify_init() >= 0: pass
    print(1, flush=True)
    time.sleep(0.1)'"""
    call, pid = box.start(hog)
    call.next()
    deadline = time.monotonic() + 30
    try:
        while True:
            try:
                watcher = box.client.run("abx_watcher_create", box.sandbox, "/tmp/t", None).bytes()
            except Error as refused:
                e = refused
                break
            assert time.monotonic() < deadline
            box.client.run("abx_watcher_remove", box.sandbox, watcher, None)
            call.next()  # the hog has tried once more
        assert e.code == "RESOURCE_EXHAUSTED" and "max_user_instances" in e.message
    finally:
        box.signal(pid, 9)
