"""libabx on a real service: files, with both codecs."""

import ctypes
import os
import time

import pytest
from client_kit import Box, Error, Source, box, entry, error_of, made  # noqa: F401 (fixtures)
from service import Service

MIB = 1 << 20


@pytest.fixture(scope="module")
def service(build_dir):
    with Service(build_dir, "--sandbox-disk", "512M") as s:
        yield s


CONTENTS = {
    "text": "Grüße\r\n".encode(),
    "every byte": bytes(range(256)) * 3,
    "empty": b"",
    "64 KiB and one": os.urandom(65537),
    "5 MiB": os.urandom(5 * MIB),
}
WAYS = {"plain": {}, "packed": {"gzip": 1}, "octets": {"octet_stream": 1}}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("content", CONTENTS)
def test_what_is_written_is_read(box, content, way):
    data = CONTENTS[content]
    assert box.write({"/tmp/t/f": data}, **WAYS[way]) == ["/tmp/t/f"]
    assert box.read("/tmp/t/f") == data
    assert box.read("/tmp/t/f", gzip=1) == data
    assert box.read_stream("/tmp/t/f") == data
    assert box.read_stream("/tmp/t/f", gzip=1) == data


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("told", [True, False])
def test_sources(box, told, way):
    data = os.urandom(3 * MIB + 5)
    assert box.write({"/tmp/t/f": Source(data, len(data) if told else -1, piece=100_000)}, **WAYS[way]) == ["/tmp/t/f"]
    assert box.read("/tmp/t/f") == data
    assert box.write({"/tmp/t/f": Source(b"", 0 if told else -1)}, **WAYS[way]) == ["/tmp/t/f"]
    assert box.read("/tmp/t/f") == b""


def test_sources_that_fail(box):
    box.write({"/tmp/t/f": b"old"})
    e = error_of(box.write, {"/tmp/t/f": Source(b"new", fails=box.abx.constants["ABX_PERMISSION_DENIED"])})
    assert e.code == "PERMISSION_DENIED" and "/tmp/t/f" in e.message
    e = error_of(box.write, {"/tmp/t/f": Source(b"new", size=10)})
    assert e.code == "INVALID_ARGUMENT" and "3 of 10" in e.message
    assert box.read("/tmp/t/f") == b"old"
    assert [x["name"] for x in box.list("/tmp/t")] == ["f"]


def test_a_source_that_waits(box):
    """A source without bytes is not asked again before abx_call_resume."""
    pieces, asked = [b"one ", None, b"two"], []

    def read(_user, to, room):
        asked.append(room)
        if not pieces:
            return 0
        piece = pieces.pop(0)
        if piece is None:
            return box.abx.constants["ABX_UNAVAILABLE"]
        ctypes.memmove(to, piece, len(piece))
        return len(piece)

    class Waiting:
        size = -1

        def callback(self, library):
            return library.headers.callbacks["abx_source_fn"](read)

    call = box.write_call({"/tmp/t/f": Waiting()})
    while len(pieces) > 1:
        box.abx.c.abx_client_wait(box.client.handle, 1000)
    for _ in range(5):
        box.abx.c.abx_client_wait(box.client.handle, 20)
    assert len(pieces) == 1 and not call.is_done()
    box.abx.c.abx_call_resume(call.handle)
    call.wait()
    assert box.read("/tmp/t/f") == b"one two"


def test_a_source_that_never_comes_has_a_deadline(box):
    class Silent:
        size = -1

        def callback(self, library):
            never = library.constants["ABX_UNAVAILABLE"]
            return library.headers.callbacks["abx_source_fn"](lambda *_: never)

    began = time.monotonic()
    call = box.write_call({"/tmp/t/f": Silent()}, {"request_timeout_ms": 300})
    e = error_of(call.wait)
    assert (e.code, e.reason) == ("DEADLINE_EXCEEDED", "REQUEST_TIMEOUT")
    assert time.monotonic() - began < 20


NAMES = ["a b", "ü-日本", "-rf", "a;b&c=d", "per%cent%41", 'quo"te', "back\\slash", "new\nline", "tab\t", "x" * 255]


@pytest.mark.parametrize("way", WAYS)
def test_many_files_in_order(box, way):
    files = {f"/tmp/t/deep/{i % 3}/{name}": name.encode() * i for i, name in enumerate(NAMES * 2)}
    assert box.write(files, **WAYS[way]) == list(files)
    for path, data in files.items():
        assert box.read(path) == data
        found = box.stat(path)
        assert (found["path"], found["size"], found["owner"]) == (path, len(data), "user")
        assert box.exists(path)
    listed = sorted(e["path"] for e in box.list("/tmp/t/deep", 2) if e["type"] == "file")
    assert listed == sorted(files)


def test_thousands_of_files(box):
    files = {f"/tmp/t/{i}": b"%d" % i for i in range(2500)}
    assert box.write(files) == list(files)
    assert box.read("/tmp/t/2499") == b"2499"
    assert len(box.list("/tmp/t")) == 2500
    assert box.write({}) == []


def test_sources_among_many(box):
    assert box.write({"/tmp/t/a": b"1", "/tmp/t/b": Source(b"22", 2), "/tmp/t/c": Source(b"333")}) == [
        "/tmp/t/a",
        "/tmp/t/b",
        "/tmp/t/c",
    ]
    assert [box.read(f"/tmp/t/{x}") for x in "abc"] == [b"1", b"22", b"333"]


def test_users_and_relative_paths(box):
    assert box.write({"rel/f": b"x"}) == ["/home/user/rel/f"]
    assert box.write({"~/rel/g": b"x"}) == ["/home/user/rel/g"]
    assert box.write({"f": b"root's"}, user="root") == ["/root/f"]
    assert box.stat("/root/f", user="root")["owner"] == "root"
    assert box.read("f", user="root") == b"root's"
    for call in (
        lambda: box.read("f", user="nobody-such"),
        lambda: box.write({"f": b""}, user="nobody-such"),
        lambda: box.stat("f", user="nobody-such"),
    ):
        assert error_of(call).code == "UNAUTHENTICATED"
    box.remove("rel")
    assert not box.exists("rel")


def test_entries(box):
    box.run("cd /tmp/t; echo 12345 > f; chmod 640 f; mkdir d; ln -s f link; ln -s none broken; touch -d @1000000000.25 f")
    found = {e["name"]: e for e in box.list("/tmp/t")}
    f = found["f"]
    assert (f["type"], f["size"], f["mode"], f["permissions"]) == ("file", 6, 0o640, "-rw-r-----")
    assert (f["owner"], f["group"], f["modified_us"], f["symlink_target"]) == ("user", "user", 1_000_000_000_250_000, None)
    assert found["d"]["type"] == "dir"
    assert found["link"]["symlink_target"] == "/tmp/t/f" and found["link"]["type"] == "file"
    assert found["broken"]["type"] == "unknown"
    assert box.stat("/tmp/t/f") == f


def test_metadata(box):
    meta = {"author": "me", "x-y": "a b~"}
    call = box.write_call({"/tmp/t/a": b"1", "/tmp/t/b": b"2"}, {"metadata": meta}).wait()
    assert [entry(e)["metadata"] for e in call.items("abx_call_entries")] == [meta, meta]
    assert box.stat("/tmp/t/a")["metadata"] == meta
    box.write({"/tmp/t/a": b"1"})
    assert box.stat("/tmp/t/a")["metadata"] == {}
    for bad in ({"a b": "x"}, {"": "x"}, {"k": "ü"}, {"k": "a\nb"}, {"k" * 247: "x"}, {"a:b": "x"}):
        e = error_of(box.write, {"/tmp/t/a": b"1"}, metadata=bad)
        assert e.code == "INVALID_ARGUMENT" and "metadata" in e.message


def test_make_move_and_remove(box):
    assert box.make_dir("/tmp/t/x/y/z") is True
    assert box.make_dir("/tmp/t/x/y/z") is False
    box.write({"/tmp/t/x/f": b"data"})
    assert box.rename("/tmp/t/x/f", "/tmp/t/new/g")["path"] == "/tmp/t/new/g"
    assert box.read("/tmp/t/new/g") == b"data" and not box.exists("/tmp/t/x/f")
    box.remove("/tmp/t/x")
    box.remove("/tmp/t/x")
    assert not box.exists("/tmp/t/x")


def test_what_is_not_there(box):
    for call in (
        lambda: box.read("/tmp/t/none"),
        lambda: box.read_stream("/tmp/t/none"),
        lambda: box.stat("/tmp/t/none"),
        lambda: box.list("/tmp/t/none"),
        lambda: box.rename("/tmp/t/none", "/tmp/t/x"),
    ):
        e = error_of(call)
        assert (e.code, e.reason, e.http_status in (200, 404)) == ("NOT_FOUND", "FILE_NOT_FOUND", True), e
        assert "/tmp/t/none" in e.message


def test_folders_as_files_and_files_as_folders(box):
    box.write({"/tmp/t/f": b""})
    for call in (
        lambda: box.read("/tmp/t"),
        lambda: box.write({"/tmp/t": b"x"}),
        lambda: box.list("/tmp/t/f"),
        lambda: box.make_dir("/tmp/t/f"),
        lambda: box.write({"/tmp/t/f/g": b"x"}),
    ):
        assert error_of(call).code == "INVALID_ARGUMENT"


@pytest.mark.parametrize("text", [b"\xff", None])
def test_wrong_paths_are_named(box, text):
    for call in (box.read, box.stat, box.list, box.exists, box.make_dir, box.remove, lambda p: box.rename(p, "/x")):
        e = error_of(call, text)
        assert e.code == "INVALID_ARGUMENT" and "path" in e.message
    assert "depth" in error_of(box.list, "/tmp", 0).message
    assert "path" in error_of(box.rename, "/tmp/t/x", text).message


def test_a_large_file_both_ways(box):
    data = os.urandom(100_000_000)
    box.write({"/tmp/t/f": data}, wait=120)
    assert box.read("/tmp/t/f", wait=120) == data
    assert box.read_stream("/tmp/t/f") == data
    e = error_of(box.read, "/tmp/t/f", max_bytes=1000)
    assert (e.code, e.reason) == ("RESOURCE_EXHAUSTED", "TOO_LARGE") and "1000" in e.message
    assert error_of(box.read_stream, "/tmp/t/f", max_bytes=1000).reason == "TOO_LARGE"
    box.remove("/tmp/t/f")


def test_a_read_into_memory_of_the_caller(box):
    """Asked for once with the length; not when none is told (compressed), and declined it is read as ever."""
    data, asked, memory = os.urandom(1_000_000), [], ctypes.create_string_buffer(1_000_000)
    box.write({"/tmp/t/f": data})

    def room(_, length):
        asked.append(length)
        return ctypes.addressof(memory) if take else None

    callback = box.abx.headers.callbacks["abx_room_fn"](room)
    for take, gzip, want in ((True, 0, [1_000_000]), (True, 1, []), (False, 0, [1_000_000])):
        asked.clear()
        ctypes.memset(memory, 0, len(memory))
        options = box.abx.struct("abx_read_opts", room=callback, gzip=gzip)
        call = box.client.run("abx_files_read", box.sandbox, "/tmp/t/f", options)
        assert call.bytes() == data and asked == want
        assert (memory.raw == data) == (want != [] and take)
    empty = box.abx.struct("abx_read_opts", room=callback)
    box.write({"/tmp/t/f": b""})
    asked.clear()
    assert box.client.run("abx_files_read", box.sandbox, "/tmp/t/f", empty).bytes() == b"" and asked == []
    box.remove("/tmp/t/f")


def test_a_file_under_proc_is_read_whole(box):
    assert len(box.read("/proc/sys/kernel/random/boot_id")) == 37
    assert len(box.read("/proc/sys/kernel/random/boot_id", gzip=1)) == 37


def test_a_stream_that_nobody_takes_waits(box):
    box.run("head -c 30000000 /dev/zero | tr '\\0' y > /tmp/t/f")
    call = box.client.call("abx_files_read", box.sandbox, "/tmp/t/f", box.abx.struct("abx_read_opts", stream=1))
    for _ in range(10):
        box.abx.c.abx_client_wait(box.client.handle, 50)
    got = sum(e.size for e in call.events())
    assert got == 30_000_000


def test_answers_that_come_before_libcurl_asks_for_them(box):
    """On a kept connection, and larger than what is held: libcurl tells nothing of the socket until it is resumed. What
    comes meanwhile was taken for bytes on an idle connection, which is cut."""
    size = 3_000_000
    box.run(f"head -c {size} /dev/zero > /tmp/t/f")
    stream = box.abx.struct("abx_read_opts", stream=1)
    for _ in range(150):
        call = box.client.call("abx_files_read", box.sandbox, "/tmp/t/f", stream)
        assert sum(e.size for e in call.events()) == size


def test_a_cancelled_read_ends(box):
    box.run("truncate -s 50M /tmp/t/f")
    call = box.client.call("abx_files_read", box.sandbox, "/tmp/t/f", box.abx.struct("abx_read_opts", stream=1))
    call.next()
    call.cancel()
    assert call.error().code == "CANCELED"
    assert box.run("echo fine").stdout == b"fine\n"


def test_a_full_disk(abx, client, service):
    made = service.create()
    box = Box(abx, client, service, made)
    box.run("fallocate -l 480M /tmp/fill")
    for opts in ({}, {"gzip": 1}):
        e = error_of(box.write, {"/tmp/f": Source(os.urandom(64 * MIB)) if opts else os.urandom(64 * MIB)}, **opts)
        assert (e.code, e.reason, e.http_status) == ("RESOURCE_EXHAUSTED", "DISK_FULL", 507), e
    box.run("rm /tmp/fill")
    box.write({"/tmp/f": b"fits"})
    assert service.kill(box.id) == 204
    box.close()


def test_older_envd(abx, client, service, made):
    """What a sandbox's envd lacks is said before anything is sent; the rest goes in the ways that it knows."""
    old = Box(abx, client, service, made, envd_version="0.1.0")
    watch = lambda **opts: client.run("abx_files_watch", old.sandbox, "/tmp", abx.struct("abx_watch_opts", **opts))
    too_old = [
        ("0.1.4", lambda: watch(recursive=1)),
        ("0.6.3", lambda: watch(include_entry=1)),
        ("0.6.4", lambda: watch(allow_network_mounts=1)),
        ("0.6.2", lambda: old.write({"/tmp/f": b""}, metadata={"a": "b"})),
        ("0.5.7", lambda: old.write({"/tmp/f": b""}, octet_stream=1)),
        ("0.6.3", lambda: client.run("abx_watcher_create", old.sandbox, "/tmp", abx.struct("abx_watch_opts", include_entry=1))),
    ]
    for version, call in too_old:
        e = error_of(call)
        assert (e.code, e.reason) == ("FAILED_PRECONDITION", "TEMPLATE_TOO_OLD")
        assert version in e.message and "0.1.0" in e.message
    for name in ("plain", 'quo"te', "new\nline"):
        data = os.urandom(100_000)
        assert old.write({f"/tmp/{name}": data}) == [f"/tmp/{name}"]
        assert old.write({f"/tmp/{name}": Source(data)}, gzip=1) == [f"/tmp/{name}"]
        assert old.read(f"/tmp/{name}") == data
    assert old.write({"/tmp/a": b"1", 'x"y': b"2", "/tmp/c": b"3"}) == ["/tmp/a", '/home/user/x"y', "/tmp/c"]
    assert old.read("/home/user/x\"y") == b"2"
    old.close()
