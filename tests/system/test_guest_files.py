"""abx-guest alone: filesystem.Filesystem and /files."""

import base64
import gzip
import hashlib
import json
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pytest
from guest_kit import error_of, fresh, guest  # noqa: F401 (fixtures)
from waiting import BUSY_S, until

from guest import RpcError

OCTETS = {"Content-Type": "application/octet-stream"}


def put(guest, path, data, headers=None, user=None):
    target = f"/files?path={quote(path)}" + (f"&username={user}" if user else "")
    status, _, body = guest.http("POST", target, data, OCTETS | (headers or {}))
    return status, json.loads(body)


def get(guest, path, headers=None, user=None):
    target = f"/files?path={quote(path)}" + (f"&username={user}" if user else "")
    return guest.http("GET", target, None, headers)


def form(*parts, boundary="----x"):
    body = b""
    for name, filename, data in parts:
        head = f'Content-Disposition: form-data; name="{name}"' + (f'; filename="{filename}"' if filename is not None else "")
        body += f"--{boundary}\r\n{head}\r\n\r\n".encode() + data + b"\r\n"
    return body + f"--{boundary}--\r\n".encode(), {"Content-Type": f"multipart/form-data; boundary={boundary}"}


def leftovers(guest):
    """Temporary files of uploads anywhere that tests write."""
    return guest.sh("find /home /mnt -name '.abx-upload*'", user="root")["stdout"]


# --- rights -------------------------------------------------------------------------------------


def signature(path, operation, user, token, expiration=None):
    text = f"{path}:{operation}:{user}:{token}" + (f":{expiration}" if expiration is not None else "")
    return "v1_" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def test_signatures(guest):
    put(guest, "s.txt", b"signed")
    ask = lambda query, method="GET", **kw: guest.http(method, "/files?path=s.txt" + query, token=False, **kw)
    status, _, body = ask("")
    assert (status, json.loads(body)) == (401, {"code": 401, "message": "missing signature query parameter"})
    right = quote(signature("s.txt", "read", "", guest.token), safe="")
    assert ask(f"&signature={right}")[::2] == (200, b"signed")
    assert ask(f"&signature={right}&username=root")[0] == 401
    assert json.loads(ask("&signature=v1_abc")[2])["message"] == "invalid signature"
    body = ask(f"&signature={right}", "POST", body=b"x", headers=OCTETS)
    assert (body[0], json.loads(body[2])["message"]) == (401, "invalid signature")
    expired, invalid = "signature is already expired", "invalid signature"
    now = int(time.time())
    for when, want in ((now + 100, None), (2**63 - 1, None), (now - 1, expired), (0, expired), (-1, expired),
                       (-(2**63) + 1, expired), (-(2**63), invalid), (2**63, invalid), (10**22, invalid), ("1e9", invalid),
                       (f"{now}.5", invalid), ("now", invalid), ("0x7fffffff", invalid)):  # fmt: skip
        signed = quote(signature("s.txt", "read", "user", guest.token, when), safe="")
        got = ask(f"&username=user&signature={signed}&signature_expiration={when}")
        assert got[0] == (401 if want else 200), when
        assert want is None or json.loads(got[2]) == {"code": 401, "message": want}, when
    assert ask(f"&username=user&signature={right}&signature_expiration={now + 100}")[0] == 401
    write = quote(signature("w.txt", "write", "", guest.token), safe="")
    body, headers = form(("file", "ignored", b"by signature"))
    assert guest.http("POST", f"/files?path=w.txt&signature={write}", body, headers, token=False)[0] == 200
    status, _, body = guest.http("GET", "/files?path=s.txt", None, {"X-Access-Token": "wrong"}, token=False)
    assert (status, json.loads(body)["message"]) == (401, "access token present in header but does not match")


def test_unknown_user(guest):
    status, _, body = get(guest, "x", user="ghost")
    assert status == 401
    assert json.loads(body)["message"].startswith("error looking up user 'ghost'")


def test_users_files_are_their_own(guest):
    assert put(guest, "/root/secret", b"root's", user="root")[0] == 200
    assert put(guest, "/home/closed/f", b"x", user="root")[0] == 200
    assert put(guest, "/home/user/shared", b"staff's", user="root")[0] == 200
    guest.sh("chmod 600 /root/secret; chmod 700 /home/closed; chown root:staff /home/user/shared; chmod 640 /home/user/shared", user="root")
    assert get(guest, "/root/secret")[0] == 403
    assert get(guest, "/root/secret", user="root")[2] == b"root's"
    assert get(guest, "/home/user/shared")[2] == b"staff's"  # by a supplementary group
    assert put(guest, "/root/mine", b"x")[0] == 403
    assert put(guest, "/etc/abx-no", b"x")[0] == 403
    assert put(guest, "/etc/abx/no", b"x")[0] == 403
    assert error_of(guest.rpc, "Stat", {"path": "/home/closed/f"})[0] == "permission_denied"
    assert error_of(guest.rpc, "ListDir", {"path": "/home/closed"})[0] == "permission_denied"
    assert error_of(guest.rpc, "MakeDir", {"path": "/abx-no"})[0] == "permission_denied"
    assert error_of(guest.rpc, "Remove", {"path": "/home/other"})[0] == "permission_denied"
    assert error_of(guest.rpc, "Move", {"source": "/home/other", "destination": "/home/user/x"})[0] == "permission_denied"


def test_rights_never_leak_between_requests(guest):
    """Root's and a user's requests through the same few threads."""
    put(guest, "/home/other/root-only", b"r", user="root")
    guest.sh("chmod 600 /home/other/root-only", user="root")

    def one(i):
        if i % 2:
            return get(guest, "/home/other/root-only")[0]
        return get(guest, "/home/other/root-only", user="root")[0]

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(one, range(300))) == [200, 403] * 150
    with ThreadPoolExecutor(16) as pool:
        users = ["user", "other", "root"] * 30
        list(pool.map(lambda i: put(guest, f"/mnt/{users[i]}-{i}", b"x", user=users[i]), range(90)))
    entries = guest.rpc("ListDir", {"path": "/mnt"})["entries"]
    assert len(entries) == 90
    assert all(e["owner"] == e["name"].split("-")[0] == e["group"] for e in entries)


# --- entries ------------------------------------------------------------------------------------


def test_entry_of_a_file(guest):
    put(guest, "f", b"12345")
    guest.sh("chmod 4751 f; touch -d 2024-05-06T07:08:09.5Z f")
    assert guest.rpc("Stat", {"path": "~/f"})["entry"] == {
        "name": "f",
        "type": "FILE_TYPE_FILE",
        "path": "/home/user/f",
        "size": "5",
        "mode": 0o751,
        "permissions": "urwxr-x--x",
        "owner": "user",
        "group": "user",
        "modifiedTime": "2024-05-06T07:08:09.500Z",
    }
    guest.sh("chown 4321:8765 /home/user/f", user="root")
    entry = guest.rpc("Stat", {"path": "f"})["entry"]
    assert (entry["owner"], entry["group"]) == ("4321", "8765")


def test_entries_of_links(guest):
    guest.sh("mkdir d; echo 12 > d/f; ln -s d/f good; ln -s good twice; ln -s nowhere broken; ln -s d dir; ln -s loop loop")
    stat = lambda path: guest.rpc("Stat", {"path": path})["entry"]
    good = stat("good")
    assert (good["type"], good["size"], good["permissions"]) == ("FILE_TYPE_FILE", "3", "Lrwxrwxrwx")
    assert (good["symlinkTarget"], good["isSymlink"], good["mode"]) == ("/home/user/d/f", True, 0o644)
    assert stat("twice")["symlinkTarget"] == "/home/user/d/f"
    assert stat("dir")["type"] == "FILE_TYPE_DIRECTORY"
    assert "type" not in stat("broken") and stat("broken")["symlinkTarget"] == "nowhere"
    assert "type" not in stat("loop")
    assert stat("dir/f")["path"] == "/home/user/dir/f"


def test_list_dir(guest):
    guest.sh("mkdir -p t/b/c/d t/a; touch t/b/c/f t/z t/b/y; ln -s b t/link; ln -s t top")
    names = lambda path, depth=None: [e["path"] for e in guest.rpc("ListDir", {"path": path} | ({"depth": depth} if depth is not None else {})).get("entries", [])]
    assert names("t") == names("t", 0) == names("t", 1) == [f"/home/user/t/{n}" for n in ("a", "b", "link", "z")]
    assert names("t", 2) == [f"/home/user/t/{n}" for n in ("a", "b", "b/c", "b/y", "link", "z")]
    assert names("t", 9) == [f"/home/user/t/{n}" for n in ("a", "b", "b/c", "b/c/d", "b/c/f", "b/y", "link", "z")]
    assert names("top", 1) == [f"/home/user/top/{n}" for n in ("a", "b", "link", "z")]
    assert names("t/a") == []
    assert error_of(guest.rpc, "ListDir", {"path": "t/z"})[0] == "invalid_argument"
    assert error_of(guest.rpc, "ListDir", {"path": "t/no"})[0] == "not_found"
    assert error_of(guest.rpc, "ListDir", {"path": "~root"})[0] == "invalid_argument"


def test_list_of_a_large_and_a_deep_folder(guest):
    guest.sh("mkdir many; cd many; seq -f 'f%05g' 12000 | xargs touch")
    entries = guest.rpc("ListDir", {"path": "many"})["entries"]
    assert [e["name"] for e in entries] == [f"f{i:05}" for i in range(1, 12001)]
    guest.run("python3", "-c", "import os\nfor i in range(900): os.mkdir('d'); os.chdir('d')")
    assert len(guest.rpc("ListDir", {"path": "d", "depth": 4000000000})["entries"]) == 899
    assert guest.rpc("Remove", {"path": "d"}) == {}


def test_names_of_any_bytes(guest):
    """A listing is never spoilt by one name; what is no UTF-8 shows as U+FFFD, in both codecs."""
    make = "import os; os.mkdir('o'); os.chdir('o')\nfor n in (b'a\\nb', 'e\U0001f600'.encode(), b'i\\xff\\xfe', b'q\"\\\\', b'z'): open(n, 'w').close()\nos.symlink(b'i\\xff\\xfe', b'link'); os.setxattr('z', b'user.e2b.k\\xff', b'v'); os.setxattr('z', 'user.e2b.ok', b'v'); os.setxattr('z', 'user.e2b.bad', b'\\xff')"
    assert guest.run("python3", "-c", make)["code"] == 0
    entries = guest.rpc("ListDir", {"path": "o"})["entries"]
    assert [e["name"] for e in entries] == ["a\nb", "e\U0001f600", "i\ufffd\ufffd", "link", 'q"\\', "z"]
    assert entries[3]["symlinkTarget"] == "/home/user/o/i\ufffd\ufffd" and entries[5]["metadata"] == {"ok": "v"}
    packed = guest.http("POST", "/filesystem.Filesystem/ListDir", b"\x0a\x01o", {"Content-Type": "application/proto"})[2]
    assert b"i\xef\xbf\xbd\xef\xbf\xbd" in packed and b"i\xff\xfe" not in packed and b"k\xff" not in packed


def test_list_where_not_all_may_be_seen(guest):
    guest.sh("mkdir -p t/read t/none t/open; touch t/read/f t/none/f t/open/f; chown -R root t/read t/none; chmod 704 t/read; chmod 700 t/none", user="root", cwd="/home/user")
    names = lambda depth: [e["path"][13:] for e in guest.rpc("ListDir", {"path": "t", "depth": depth})["entries"]]
    assert names(1) == ["none", "open", "read"]
    assert names(3) == ["none", "open", "open/f", "read"]
    assert error_of(guest.rpc, "ListDir", {"path": "t/none"})[0] == "permission_denied"
    assert error_of(guest.rpc, "ListDir", {"path": "t/read"})[0] == "permission_denied"


def test_list_while_files_come_and_go(guest):
    guest.sh("mkdir -p t/s; cd t; touch $(seq 200)")
    churn = guest.sh_start("cd t; while :; do mkdir s/d; touch s/d/f x; rm -r s/d x; done")
    for _ in range(100):
        assert len(guest.rpc("ListDir", {"path": "t", "depth": 5})["entries"]) >= 201
    guest.rpc("SendSignal", {"process": {"pid": churn.pid}, "signal": "SIGNAL_SIGKILL"})


def test_make_dir(guest):
    entry = guest.rpc("MakeDir", {"path": "a/b/c"})["entry"]
    assert (entry["type"], entry["permissions"], entry["owner"]) == ("FILE_TYPE_DIRECTORY", "drwxr-xr-x", "user")
    assert error_of(guest.rpc, "MakeDir", {"path": "a/b"}) == ("already_exists", "directory already exists: /home/user/a/b")
    put(guest, "f", b"")
    assert error_of(guest.rpc, "MakeDir", {"path": "f"})[0] == "invalid_argument"
    assert error_of(guest.rpc, "MakeDir", {"path": "f/x"})[0] == "invalid_argument"


def test_move(guest):
    put(guest, "a", b"1")
    put(guest, "b", b"2")
    assert guest.rpc("Move", {"source": "a", "destination": "new/deep/a"})["entry"]["path"] == "/home/user/new/deep/a"
    assert guest.rpc("Move", {"source": "new/deep/a", "destination": "b"})["entry"]["size"] == "1"
    assert get(guest, "b")[2] == b"1"
    assert error_of(guest.rpc, "Move", {"source": "a", "destination": "c"})[0] == "not_found"


def test_remove(guest):
    guest.sh("mkdir -p r/s/t keep; touch r/s/f keep/f; ln -s ../keep r/link; ln -s keep out")
    assert guest.rpc("Remove", {"path": "r"}) == guest.rpc("Remove", {"path": "r"}) == {}
    assert guest.rpc("Remove", {"path": "out"}) == {}
    assert guest.sh("ls . keep")["stdout"] == b".:\nkeep\n\nkeep:\nf\n"
    assert guest.rpc("Remove", {"path": "no/such/thing"}) == {}
    assert error_of(guest.rpc, "Remove", {"path": "/"}, user="root")[0] == "invalid_argument"


# --- downloads ----------------------------------------------------------------------------------


def test_ranges_and_conditions(guest):
    for name, data in (("small", bytes(range(200))), ("large", os.urandom(3 << 20))):
        put(guest, name, data)
        status, headers, body = get(guest, name)
        assert (status, body, headers["Content-Length"]) == (200, data, str(len(data)))
        assert headers["Content-Type"] == "application/octet-stream"
        assert headers["Content-Disposition"] == f'inline; filename="{name}"'
        n = len(data)
        for text, part in (("0-0", data[:1]), ("10-19", data[10:20]), ("50-", data[50:]), ("-7", data[-7:]), (f"5-{n * 2}", data[5:])):
            status, got, body = get(guest, name, {"Range": f"bytes={text}"})
            first = n - len(part) if text[0] == "-" else int(text.split("-")[0])
            assert (status, body) == (206, part)
            assert got["Content-Range"] == f"bytes {first}-{first + len(part) - 1}/{n}"
        status, got, _ = get(guest, name, {"Range": f"bytes={n}-"})
        assert (status, got["Content-Range"]) == (416, f"bytes */{n}")
        for whole in ("bytes=1-2,4-5", "bytes=9-3", "items=1-2", "bytes=x-"):
            assert get(guest, name, {"Range": whole})[::2] == (200, data)
        etag, when = headers["ETag"], headers["Last-Modified"]
        assert get(guest, name, {"If-None-Match": f'"x", {etag}'})[::2] == (304, b"")
        assert get(guest, name, {"If-Modified-Since": when})[0] == 304
        assert get(guest, name, {"If-Match": '"other"'})[0] == 412
        assert get(guest, name, {"If-Range": etag, "Range": "bytes=0-1"})[0] == 206
        assert get(guest, name, {"If-Range": '"other"', "Range": "bytes=0-1"})[0] == 200
        status, got, body = guest.http("HEAD", f"/files?path={name}")
        assert (status, got["Content-Length"], body) == (200, str(n), b"")


def test_encodings(guest):
    for name, data in (("small", b"text " * 50), ("large", b"some more text " * 200000), ("none", b"")):
        put(guest, name, data)
        status, headers, body = get(guest, name, {"Accept-Encoding": "gzip"})
        assert (status, headers["Content-Encoding"], gzip.decompress(body)) == (200, "gzip", data)
        for plain in ("gzip, deflate", "identity", "gzip, identity", "br", "gzip;q=0", ""):
            status, headers, body = get(guest, name, {"Accept-Encoding": plain})
            assert (status, headers["Content-Encoding"], body) == (200, None, data), plain
        assert get(guest, name, {"Accept-Encoding": "identity;q=0, gzip;q=0.5"})[1]["Content-Encoding"] == "gzip"
        assert get(guest, name, {"Accept-Encoding": "identity;q=0, br"})[0] == 406


def test_what_cannot_be_read(guest):
    assert json.loads(get(guest, "/etc")[2]) == {"code": 400, "message": "path '/etc' is a directory"}
    assert json.loads(get(guest, "/no/such")[2]) == {"code": 404, "message": "path '/no/such' does not exist"}
    guest.sh("mkfifo fifo")
    for special in ("fifo", "/dev/null", "/dev/zero"):
        assert get(guest, special)[0] == 400
    assert get(guest, "~root/x")[0] == 400
    assert guest.http("GET", "/files?path=%00")[0] == 400
    assert guest.http("GET", "/files?path=%ff")[0] == 400
    assert guest.http("GET", "/files?path=%zz")[0] == 400


def test_empty_and_pseudo_files(guest):
    put(guest, "empty", b"")
    status, headers, body = get(guest, "empty")
    assert (status, headers["Content-Length"], body) == (200, "0", b"")
    assert get(guest, "/proc/sys/kernel/random/boot_id")[2] == open("/proc/sys/kernel/random/boot_id", "rb").read()
    assert b"MemTotal" in get(guest, "/proc/meminfo", {"Accept-Encoding": "gzip, deflate"})[2]
    assert gzip.decompress(get(guest, "/proc/meminfo", {"Accept-Encoding": "gzip"})[2]).startswith(b"MemTotal")
    assert len(get(guest, "/proc/kallsyms", user="root")[2]) > 1 << 20


def test_odd_names(guest):
    name = 'q"uo\\te ä漢 %41 +&=.txt'
    status, body = put(guest, name, b"odd")
    assert (status, body[0]["name"]) == (200, name)
    status, headers, body = get(guest, name)
    assert (status, body) == (200, b"odd")
    assert headers["Content-Disposition"] == "inline; filename*=UTF-8''" + quote(name, safe="-._~")
    assert [e["name"] for e in guest.rpc("ListDir", {"path": ""})["entries"]] == [name]


# --- uploads ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 65536, 262144, 262145, 5 << 20])
def test_sizes_in_every_form(guest, size):
    data = os.urandom(size)
    body, headers = form(("file", "ignored/name", data))
    assert put(guest, "a", data)[0] == 200
    assert guest.http("POST", "/files?path=b", body, headers)[0] == 200
    assert put(guest, "c", iter([data[i : i + 70000] for i in range(0, size, 70000)]))[0] == 200
    assert put(guest, "d", gzip.compress(data, 1), {"Content-Encoding": "gzip"})[0] == 200
    assert guest.http("POST", "/files?path=e", gzip.compress(body, 1), headers | {"Content-Encoding": "gzip"})[0] == 200
    for name in "abcde":
        assert get(guest, name)[2] == data, name
        assert guest.rpc("Stat", {"path": name})["entry"]["permissions"] == "-rw-r--r--"
    assert leftovers(guest) == b""


def test_many_files_in_one_form(guest):
    parts = [("file", f"m/{i}/f", b"%d" % i * i) for i in range(200)] + [("other", "no", b"x"), ("file", "/mnt/abs", b"y")]
    body, headers = form(*parts)
    status, _, answer = guest.http("POST", "/files", body, headers)
    assert status == 200
    assert [e["path"] for e in json.loads(answer)] == [f"/home/user/m/{i}/f" for i in range(200)] + ["/mnt/abs"]
    assert get(guest, "m/150/f")[2] == b"150" * 150
    assert "no" not in guest.sh("ls")["stdout"].decode()


@pytest.mark.parametrize(
    "parts, target",
    [
        ([("file", "a", b"1"), ("file", "./a", b"2")], "/files"),
        ([("file", "a", b"1"), ("file", "b", b"2")], "/files?path=c"),
        ([("file", None, b"1")], "/files"),
        ([("file", "", b"1")], "/files"),
        ([("other", "a", b"1")], "/files"),
        ([], "/files"),
        ([("file", "/etc", b"1")], "/files"),
        ([("file", "~root/x", b"1")], "/files"),
    ],
)
def test_bad_forms(guest, parts, target):
    body, headers = form(*parts)
    status, _, answer = guest.http("POST", target, body, headers)
    assert (status, json.loads(answer)["code"]) == (400, 400)
    assert leftovers(guest) == b""


def test_bad_bodies(guest):
    body, headers = form(("file", "a", b"x" * 1000))
    assert guest.http("POST", "/files", body[:500], headers)[0] == 400
    assert guest.http("POST", "/files", body, {"Content-Type": "multipart/form-data"})[0] == 400
    assert guest.http("POST", "/files", b"x", OCTETS)[0] == 400
    assert guest.http("POST", "/files?path=a", b"x", {"Content-Type": "text/plain"})[0] == 415
    assert put(guest, "a", b"x", {"Content-Encoding": "br"})[0] == 415
    packed = gzip.compress(os.urandom(1 << 20))
    for broken in (packed[:-9], packed[:1000], b"no gzip at all", packed[:5000] + b"x" * 100 + packed[5100:], packed + b"tail"):
        assert put(guest, "a", broken, {"Content-Encoding": "gzip"})[0] == 400
    assert put(guest, "two", gzip.compress(b"one") + gzip.compress(b"two"), {"Content-Encoding": "gzip"})[0] == 200
    assert get(guest, "two")[2] == b"onetwo"
    assert get(guest, "a")[0] == 404
    assert leftovers(guest) == b""


def cut_upload(guest, path, sent, announced):
    s = socket.create_connection(("127.0.0.1", guest.port))
    head = f"POST /files?path={path} HTTP/1.1\r\nHost: x\r\nX-Access-Token: {guest.token}\r\nContent-Type: application/octet-stream\r\n"
    s.sendall(f"{head}Content-Length: {announced}\r\n\r\n".encode() + bytes(sent))
    return s


def test_cut_upload_changes_nothing(guest):
    put(guest, "old", b"old content")
    for path in ("old", "new"):
        s = cut_upload(guest, path, 3 << 20, 9 << 20)
        until(lambda: leftovers(guest) != b"")
        s.close()
    until(lambda: guest.connections() == 0 and leftovers(guest) == b"")
    assert get(guest, "old")[2] == b"old content"
    assert get(guest, "new")[0] == 404


def test_full_disk(guest):
    put(guest, "/mnt/old", b"old content")
    full = {"code": 507, "message": "not enough disk space available"}
    for path in ("/mnt/old", "/mnt/new"):
        assert put(guest, path, bytes(3 << 20)) == (507, full)
        assert put(guest, path, iter([bytes(1 << 20)] * 3)) == (507, full)
        assert put(guest, path, gzip.compress(bytes(3 << 20)), {"Content-Encoding": "gzip"}) == (507, full)
    body, headers = form(("file", "/mnt/x", bytes(3 << 20)))
    assert guest.http("POST", "/files", body, headers)[0] == 507
    assert get(guest, "/mnt/old")[2] == b"old content"
    guest.sh("head -c 2000000 /dev/zero > /mnt/fill; head -c 2000000 /dev/zero >> /mnt/fill")
    assert put(guest, "/mnt/small", b"x" * 100000)[0] == 507
    assert guest.sh("ls -A /mnt")["stdout"] == b"fill\nold\n"


def test_early_refusal_of_a_large_body(guest):
    """Refused from the announced length; the client gets the answer although it goes on sending."""
    s = cut_upload(guest, "/mnt/big", 1 << 20, 500 << 20)
    answer = b""
    s.settimeout(BUSY_S)
    while b"507" not in answer:
        part = s.recv(4096)
        assert part
        answer += part
    s.close()


def test_existing_files_keep_what_they_are(guest):
    put(guest, "run.sh", b"#!/bin/sh\necho 1\n")
    guest.sh("chmod 755 run.sh; mkdir d; echo old > d/target; ln -s d/target link; ln -s d/none dangling")
    assert put(guest, "run.sh", b"#!/bin/sh\necho 2\n")[0] == 200
    assert guest.run("./run.sh", cwd="~")["stdout"] == b"2\n"
    assert put(guest, "link", b"through")[1] == [{"path": "/home/user/link", "name": "link", "type": "file"}]
    assert put(guest, "dangling", b"made")[0] == 200
    assert guest.sh("readlink link dangling; cat d/target d/none")["stdout"] == b"d/target\nd/none\nthroughmade"
    assert put(guest, "d", b"x")[0] == 400
    assert put(guest, "run.sh/x", b"x")[0] == 400
    assert put(guest, "/", b"x", user="root")[0] == 400
    assert put(guest, "/dev/null", b"x", user="root")[0] == 400
    guest.sh("mkdir /mnt/closed; echo 1 > /mnt/closed/f; chown user /mnt/closed/f; chmod 755 /mnt/closed", user="root")
    assert put(guest, "/mnt/closed/f", b"in place")[0] == 200
    assert get(guest, "/mnt/closed/f")[2] == b"in place"
    assert put(guest, "/mnt/closed/g", b"x")[0] == 403
    guest.sh("mkdir /mnt/sticky; chmod 1777 /mnt/sticky; cd /mnt/sticky; echo 1 > open; chmod 666 open; echo 1 > own", user="root")
    for size in (5, 300000):  # as in /tmp: who may write to it may not replace it
        assert put(guest, "/mnt/sticky/open", b"x" * size)[0] == 200
        assert get(guest, "/mnt/sticky/open")[2] == b"x" * size
        assert put(guest, "/mnt/sticky/own", b"y" * size)[0] == 403
    assert guest.sh("cd /mnt/sticky; stat -c '%U %a' open; cat own; ls -A")["stdout"] == b"root 666\n1\nopen\nown\n"
    assert put(guest, "/etc/group", b"user:x:1000:\n", user="root")[0] == 200  # a mount point: filled in place
    assert get(guest, "/etc/group")[2] == b"user:x:1000:\n"
    assert leftovers(guest) == b""


def test_metadata(guest):
    fields = {"X-Metadata-Author": "Jane", "x-metadata-two-words": "a b!~"}
    status, answer = put(guest, "f", b"x", fields)
    assert (status, answer[0]["metadata"]) == (200, {"author": "Jane", "two-words": "a b!~"})
    assert guest.rpc("Stat", {"path": "f"})["entry"]["metadata"] == {"author": "Jane", "two-words": "a b!~"}
    put(guest, "f", b"y", {"X-Metadata-Other": "1"})
    assert guest.rpc("Stat", {"path": "f"})["entry"]["metadata"] == {"other": "1"}
    put(guest, "f", b"z")
    assert "metadata" not in guest.rpc("Stat", {"path": "f"})["entry"]
    body, headers = form(("file", "m1", b"1"), ("file", "m2", b"2"))
    guest.http("POST", "/files", body, headers | fields)
    assert [e["metadata"]["author"] for e in guest.rpc("ListDir", {"path": "."})["entries"] if e["name"][0] == "m"] == ["Jane"] * 2
    for bad in ({"X-Metadata-" + "k" * 247: "v"}, {"X-Metadata-k": "v\xe9"}, {"X-Metadata-k": "v" * 4097}, {"X-Metadata-": "v"}):
        assert put(guest, "bad", b"x", bad)[0] == 400
    assert get(guest, "bad")[0] == 404


def test_metadata_of_a_file_that_is_filled_in_place(guest):
    """The new content has its own metadata alone, also where the file itself stays."""
    put(guest, "/mnt/closed/f", b"1", {"X-Metadata-Old": "1", "X-Metadata-Both": "1"}, user="root")
    guest.sh("chown user /mnt/closed/f; chmod 755 /mnt/closed; setfattr -n user.other -v 1 /mnt/closed/f", user="root")
    for size in (5, 300000):
        assert put(guest, "/mnt/closed/f", b"x" * size, {"X-Metadata-Both": "2"})[0] == 200
        assert guest.rpc("Stat", {"path": "/mnt/closed/f"})["entry"]["metadata"] == {"both": "2"}
    assert put(guest, "/mnt/closed/f", b"3")[0] == 200
    assert "metadata" not in guest.rpc("Stat", {"path": "/mnt/closed/f"})["entry"]
    assert guest.sh("python3 -c 'import os; print(os.listxattr(\"/mnt/closed/f\"))'")["stdout"] in (b"[]\n", b"['user.other']\n")


def test_32_uploads_into_a_new_folder(guest):
    data = [os.urandom(300000) for _ in range(32)]
    with ThreadPoolExecutor(32) as pool:
        assert [r[0] for r in pool.map(lambda i: put(guest, f"p/q/r/{i}", data[i]), range(32))] == [200] * 32
    with ThreadPoolExecutor(32) as pool:
        assert list(pool.map(lambda i: get(guest, f"p/q/r/{i}")[2], range(32))) == data


def test_racing_writers_leave_one_whole_file(guest):
    data = [bytes([i]) * 400000 for i in range(16)]
    with ThreadPoolExecutor(16) as pool:
        writes = [pool.submit(put, guest, "same", d) for d in data]
        seen = [get(guest, "same") for _ in range(20)]
    assert all(w.result()[0] == 200 for w in writes)
    assert all(s[0] == 404 or s[2] in data for s in seen)
    assert get(guest, "same")[2] in data
    assert leftovers(guest) == b""


def test_swapped_folders_never_give_a_user_what_is_roots(guest):
    """A folder of the user's turns into a link to root's, and back, while requests go through it."""
    guest.sh("mkdir /home/root-only; echo keep > /home/root-only/f; chmod 700 /home/root-only", user="root")
    script = "while true; do mv -T dir was 2>/dev/null; ln -s /home/root-only dir; rm dir; mv -T was dir 2>/dev/null; done"
    guest.sh("mkdir dir; echo mine > dir/f")
    swapper = guest.sh_start(script)

    def one(i):
        put(guest, f"dir/new{i}", b"x" * (1 if i % 2 else 400000))
        answer = get(guest, "dir/f")
        try:
            guest.rpc("Remove", {"path": "dir/f2"})
            guest.rpc("MakeDir", {"path": f"dir/m{i}"})
            guest.rpc("Move", {"source": f"dir/m{i}", "destination": f"dir/n{i}"})
        except RpcError:
            pass
        return answer[0], answer[2]

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(one, range(150)))
    guest.rpc("SendSignal", {"process": {"pid": swapper.pid}, "signal": "SIGNAL_SIGKILL"})
    assert all(body == b"mine\n" for status, body in answers if status == 200)
    assert guest.sh("cd /home/root-only; ls -A; cat f", user="root")["stdout"] == b"f\nkeep\n"


@pytest.mark.slow
def test_large_files_in_flat_memory(guest, tmp_path):
    """256 MiB each way; the daemon stays below 4 MiB all the time."""
    os.chmod(tmp_path, 0o777)
    size, worst, stop = 256 << 20, [0], threading.Event()
    chunk = os.urandom(1 << 20)

    def watch():
        while not stop.wait(0.01):
            worst[0] = max(worst[0], guest.daemon_memory())

    watcher = threading.Thread(target=watch)
    watcher.start()
    path = f"{tmp_path}/big"
    assert put(guest, path, iter([chunk] * 256), user="root")[0] == 200
    connection = guest.connection()
    connection.request("GET", f"/files?path={path}&username=root", None, guest.headers())
    response = connection.getresponse()
    left = size
    while left:
        left -= len(response.read(min(left, 1 << 20)))
    stop.set()
    watcher.join()
    assert guest.is_sanitized() or worst[0] < 4 << 20
