"""`abx sandbox cp` and `cat`: trees with odd names both ways, and what a hostile sandbox cannot do to this machine."""

import hashlib
import json
import os
import signal
import stat
import subprocess
import urllib.parse

import pytest
from cli_kit import Cli, box, cli, service  # noqa: F401 (fixtures)
from fake_envd import FakeEnvd
from waiting import until

NAMES = ["plain", "new\nline", "ünï ☃", "-dash", "--json", "quo'te\"s", "per%41cent", "a:b", " ", "back\\slash", "?q&x=1#f", "\x1b[31m"]


def tree_of(root):
    """{relative path: what is there} with permission bits."""
    found = {}
    for path in sorted(root.rglob("*")):
        mode = stat.S_IMODE(path.lstat().st_mode)
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = ("link", os.readlink(path))
        elif path.is_dir():
            found[name] = ("dir", mode)
        else:
            found[name] = ("file", mode, path.read_bytes())
    return found


@pytest.fixture
def tree(tmp_path):
    root = tmp_path / "tree"
    (root / "sub/deep/deeper").mkdir(parents=True)
    (root / "empty folder").mkdir()
    for i, name in enumerate(NAMES):
        (root / name).write_bytes(name.encode() * i)
        (root / "sub/deep" / name).write_bytes(bytes(range(256)) * i)
        (root / name).chmod(0o644)
    (root / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (root / "run.sh").chmod(0o755)
    (root / "secret").write_text("s")
    (root / "secret").chmod(0o600)
    (root / "readonly").mkdir()
    (root / "readonly/f").write_text("x")
    (root / "readonly/f").chmod(0o444)
    (root / "readonly").chmod(0o555)
    os.symlink("sub/deep", root / "inside")
    os.symlink("../../plain", root / "sub/deep/up")
    os.symlink("nowhere", root / "broken")
    return root


def test_a_tree_comes_back_as_it_went(cli, box, tree, tmp_path):
    cli.run("cp", str(tree), f"{box}:/tmp/there", status=0)
    assert cli.text("exec", box, "/tmp/there/run.sh; readlink /tmp/there/sub/deep/up") == "ran\n../../plain"
    assert cli.text("exec", box, "cd /tmp/there && stat -c %a secret run.sh readonly readonly/f").split() == [
        "600", "755", "555", "444"]
    cli.run("cp", f"{box}:/tmp/there", str(tmp_path / "back"), status=0)
    assert tree_of(tmp_path / "back") == tree_of(tree)
    # Nothing of ours is left on either side.
    assert cli.text("exec", box, "find /tmp/there -name '.abx-*'") == ""


def test_again_over_what_is_there(cli, box, tree, tmp_path):
    (tree / "readonly").chmod(0o755)  # else the sandbox's user may not write there the second time
    for _ in range(2):
        cli.run("cp", f"{tree}/.", f"{box}:/tmp/again", status=0)
        cli.run("cp", f"{box}:/tmp/again/.", str(tmp_path / "again"), status=0)
    assert tree_of(tmp_path / "again") == tree_of(tree)


def test_where_a_source_goes(cli, box, tmp_path):
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("b")
    (tmp_path / "d").mkdir()
    (tmp_path / "d/x").write_text("x")
    cli.run("exec", box, "rm -rf /tmp/w; mkdir /tmp/w", status=0)
    cli.run("cp", f"{tmp_path}/a", f"{tmp_path}/b", f"{tmp_path}/d", f"{box}:/tmp/w", status=0)
    cli.run("cp", f"{tmp_path}/a", f"{box}:/tmp/w/c", status=0)
    cli.run("cp", f"{tmp_path}/d", f"{box}:/tmp/w/e", status=0)
    cli.run("cp", f"{tmp_path}/a", f"{box}:/tmp/w/made/", status=0)
    cli.run("cp", f"{tmp_path}/a", f"{box}:", status=0)
    assert cli.text("exec", box, "cd /tmp/w; find . -type f | sort; cat ~/a").split() == [
        "./a", "./b", "./c", "./d/x", "./e/x", "./made/a", "a"]
    status, _, err = cli.run("cp", f"{tmp_path}/a", f"{tmp_path}/b", f"{box}:/tmp/w/none")
    assert status == 4 and b"several sources" in err
    status, _, err = cli.run("cp", f"{tmp_path}/d", f"{box}:/tmp/w/a")
    assert status == 2 and b"no folder" in err
    (tmp_path / "to").mkdir()
    cli.run("cp", f"{box}:/tmp/w/a", f"{box}:/tmp/w/d", f"{tmp_path}/to", status=0)
    cli.run("cp", f"{box}:a", f"{tmp_path}/to/home", status=0)
    assert sorted(str(p.relative_to(tmp_path / "to")) for p in (tmp_path / "to").rglob("*") if p.is_file()) == [
        "a", "d/x", "home"]


def test_standard_input_and_output(cli, box):
    data = bytes(range(256)) * 1000
    cli.run("cp", "-", f"{box}:/tmp/std", input=data, status=0)
    assert cli.run("cp", f"{box}:/tmp/std", "-", status=0)[1] == data
    assert cli.run("cat", box, "/tmp/std", "/tmp/std", status=0)[1] == 2 * data
    status, out, err = cli.run("cat", box, "/tmp/none", "/tmp/std")
    assert status == 4 and out == data and b"/tmp/none" in err
    status, _, err = cli.run("cp", "-", f"{box}:/tmp")
    assert status == 2 and b"needs a name" in err


@pytest.mark.slow
def test_a_hundred_megabytes(cli, box, tmp_path):
    data = os.urandom(100_000_000)
    (tmp_path / "big").write_bytes(data)
    made = cli.json("cp", f"{tmp_path}/big", f"{box}:/tmp/big")
    assert made == {"files": 1, "bytes": len(data), "left_out": []}
    cli.run("cp", f"{box}:/tmp/big", f"{tmp_path}/back", status=0)
    assert hashlib.sha256((tmp_path / "back").read_bytes()).digest() == hashlib.sha256(data).digest()
    assert hashlib.sha256(cli.run("cat", box, "/tmp/big")[1]).digest() == hashlib.sha256(data).digest()
    cli.run("cp", "-", f"{box}:/tmp/big2", input=data, status=0)
    assert cli.text("exec", box, "cmp /tmp/big /tmp/big2 && echo same; rm /tmp/big*") == "same"


def test_what_cannot_be_copied_is_named(cli, box, tmp_path):
    root = tmp_path / "odd"
    root.mkdir()
    os.mkfifo(root / "fifo")
    (root / "good").write_text("g")
    open(os.path.join(os.fsencode(root), b"bad\xff"), "wb").close()
    status, out, err = cli.run("cp", "--json", str(root), f"{box}:/tmp/odd")
    made = json.loads(out)
    assert status == 1 and made["files"] == 1 and {x["path"].rsplit("/", 1)[1] for x in made["left_out"]} == {"fifo", "bad\ufffd"}
    assert b"fifo" in err and b"bad\\xff" in err
    assert cli.text("exec", box, "ls /tmp/odd") == "good"
    cli.run("exec", box, "ln -s /etc/passwd /tmp/odd/out; mkfifo /tmp/odd/pipe", status=0)
    status, _, err = cli.run("cp", f"{box}:/tmp/odd", str(tmp_path / "back"))
    assert status == 1 and b"/tmp/odd/out" in err and b"/tmp/odd/pipe" in err
    assert os.listdir(tmp_path / "back") == ["good"]


def test_errors(cli, box, tmp_path):
    for words, status, text in [
        (("cp", "x", "y"), 2, b"neither"),
        (("cp", f"{box}:/a", f"{box}:/b"), 2, b"both"),
        (("cp", "nosuch", f"{box}:/tmp"), 4, b"nosuch"),
        (("cp", f"{box}:/nosuch", "x"), 4, b"/nosuch"),
        (("cp", f"{box}:/etc/passwd", "no/such/folder"), 4, b"no/such"),
        (("cp", "nobox:/a", "x"), 4, b"nobox"),
        (("cp", f"{box}:/etc/shadow", "x"), 1, b"ermission"),
        (("cp", "--json", f"{box}:/etc/passwd", "-"), 2, b"standard output"),
    ]:
        got, out, err = cli.run(*words)
        assert (got, text in err) == (status, True), (words, got, err)
    assert not (cli.home / "x").exists()


def test_an_interrupted_download_leaves_nothing(cli, box, tmp_path):
    (tmp_path / "to").mkdir()
    (tmp_path / "to/x").write_text("old")
    cli.run("exec", box, "mkfifo /tmp/slow 2>/dev/null; truncate -s 20G /tmp/huge", status=0)
    process = cli.popen("cp", f"{box}:/tmp/huge", f"{tmp_path}/to/x")
    until(lambda: any(p.stat().st_size > 1000000 for p in (tmp_path / "to").glob(".abx-*")))
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    process.communicate()
    assert os.listdir(tmp_path / "to") == ["x"] and (tmp_path / "to/x").read_text() == "old"
    cli.run("exec", box, "rm /tmp/huge", status=0)


@pytest.mark.parametrize("signo", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_nobody_reads(cli, box, signo):
    cli.run("exec", box, "truncate -s 50M /tmp/wide", status=0)
    for words in (("cat", box, "/tmp/wide"), ("cp", f"{box}:/tmp/wide", "-")):
        process = cli.popen(*words)
        process.stdout.read(1)
        process.send_signal(signo)
        assert process.wait(60) in (128 + signo, -signo)
        process.stdout.close()
        process.stderr.close()


def test_a_reader_that_leaves(cli, box):
    cli.run("exec", box, "truncate -s 50M /tmp/wide", status=0)
    for words in (("cat", box, "/tmp/wide"), ("cp", f"{box}:/tmp/wide", "-")):
        process = cli.popen(*words)
        process.stdout.read(1)
        process.stdout.close()
        assert process.wait(60) in (128 + signal.SIGPIPE, -signal.SIGPIPE)
        assert process.stderr.read() == b""
        process.stderr.close()


def test_an_interrupted_upload_leaves_nothing(cli, box):
    cli.run("exec", box, "rm -rf /tmp/up; mkdir /tmp/up; echo old > /tmp/up/x", status=0)
    process = cli.popen("cp", "-", f"{box}:/tmp/up/x", stdin=subprocess.PIPE)
    process.stdin.write(b"part" * 100000)
    process.stdin.flush()
    until(lambda: ".abx-" in cli.text("exec", box, "ls -A /tmp/up"))
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
    process.communicate()
    until(lambda: cli.text("exec", box, "ls -A /tmp/up") == "x")
    assert cli.text("exec", box, "cat /tmp/up/x") == "old"


def test_progress_is_for_terminals(cli, box, tmp_path):
    (tmp_path / "p").write_bytes(b"x" * 5_000_000)
    assert cli.run("cp", f"{tmp_path}/p", f"{box}:/tmp/p", status=0)[1:] == (b"", b"")
    with cli.terminal("cp", f"{tmp_path}/p", f"{box}:/tmp/p") as t:
        assert b" of 4.8 MiB" in t.expect(b"/p")
        assert t.wait() == 0
    with cli.terminal("cp", "--no-progress", f"{tmp_path}/p", f"{box}:/tmp/p") as t:
        assert t.wait() == 0 and t.output == b""


# ---- a hostile sandbox ----


class Hostile(FakeEnvd):
    """Control plane and envd at once: `tree` is {path: ("file", bytes) | ("dir", [entries]) | ...}, entries as they are."""

    def __init__(self):
        super().__init__()
        self.script = self.answer
        self.folders, self.files = {}, {}

    async def answer(self, peer):
        seen = peer.seen
        path = urllib.parse.urlsplit(seen.path)
        if path.path.startswith("/sandboxes/"):
            await peer.answer({
                "sandboxID": "i1", "templateID": "t", "clientID": "c", "envdVersion": "0.6.13", "state": "running",
                "startedAt": "2026-01-02T03:04:05Z", "endAt": "2027-01-02T03:09:05Z", "cpuCount": 1, "memoryMB": 1,
                "diskSizeMB": 1})
        elif path.path == "/filesystem.Filesystem/Stat":
            wanted = seen.message()["path"]
            kind = "FILE_TYPE_DIRECTORY" if wanted in self.folders else "FILE_TYPE_FILE"
            await peer.answer({"entry": {"name": "x", "type": kind, "path": wanted, "mode": 0o755}})
        elif path.path == "/filesystem.Filesystem/ListDir":
            await peer.answer({"entries": self.folders.get(seen.message()["path"], [])})
        else:
            name = urllib.parse.parse_qs(path.query)["path"][0]
            await peer.answer(self.files.get(name, b"hostile"), content_type="application/octet-stream")


def item(name, kind="FILE_TYPE_FILE", **more):
    return {"name": name, "type": kind, "path": f"/t/{name}", "mode": 0o6777, "size": "7", **more}


@pytest.fixture
def hostile(build_dir, tmp_path):
    fake = Hostile()
    origin = f"http://127.0.0.1:{fake.port}"
    home = tmp_path / "home"
    home.mkdir()
    fake.cli = Cli(build_dir, home, {"E2B_API_KEY": "k", "E2B_API_URL": origin, "E2B_SANDBOX_URL": origin})
    yield fake
    fake.close()


def everything_below(root):
    return sorted(str(p.relative_to(root)) for p in root.rglob("*"))


def test_names_that_lead_elsewhere_are_left_out(hostile, tmp_path):
    bad = ["../evil", "..", ".", "", "/evil", "a/b", "../../home/evil", "x" * 300]
    hostile.folders["/t"] = [item(n) for n in bad] + [item("good")] + [item(n, "FILE_TYPE_DIRECTORY") for n in bad]
    hostile.files["/t/good"] = b"good"
    status, _, err = hostile.cli.run("cp", "i1:/t", str(tmp_path / "out"))
    assert status == 1 and err.count(b"impossible name") == 2 * len(bad)
    assert everything_below(tmp_path) == ["home", "out", "out/good"]
    assert (tmp_path / "out/good").read_bytes() == b"good"
    # No setuid, and not more than the umask allows.
    assert stat.S_IMODE((tmp_path / "out/good").stat().st_mode) & 0o7022 == 0


def test_a_link_and_then_something_through_it(hostile, tmp_path):
    """The folder of a link's name comes after the link; and a file of the same name."""
    (tmp_path / "victim").mkdir()
    hostile.folders["/t"] = [
        item("way", "FILE_TYPE_DIRECTORY", symlinkTarget=str(tmp_path / "victim")),
        item("in", "FILE_TYPE_DIRECTORY", symlinkTarget="/t/real"),
        item("real", "FILE_TYPE_DIRECTORY"),
        item("in", "FILE_TYPE_DIRECTORY"),
        item("way", "FILE_TYPE_DIRECTORY"),
        item("file", symlinkTarget="/t/real/x"),
        item("file"),
    ]
    hostile.folders["/t/way"] = hostile.folders["/t/in"] = [item("evil")]
    status, _, err = hostile.cli.run("cp", "i1:/t", str(tmp_path / "out"))
    assert status == 1 and b"not within the tree" in err and b"links are not followed" in err
    assert everything_below(tmp_path / "victim") == []
    assert everything_below(tmp_path / "out") == ["file", "in", "real", "way", "way/evil"]
    assert os.readlink(tmp_path / "out/in") == "real"
    # The second `file` took the link's name, and nothing was written through it.
    assert not (tmp_path / "out/file").is_symlink()


def test_a_link_that_was_there_before_is_not_followed(hostile, tmp_path):
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim/x").write_text("mine")
    (tmp_path / "out").mkdir()
    os.symlink("../victim", tmp_path / "out/sub")
    os.symlink("../victim/x", tmp_path / "out/x")
    hostile.folders["/t"] = [item("sub", "FILE_TYPE_DIRECTORY"), item("x")]
    hostile.folders["/t/sub"] = [item("x")]
    hostile.folders["/t/."] = hostile.folders["/t"]
    hostile.folders["/t/./sub"] = [item("x")]
    status, _, err = hostile.cli.run("cp", "i1:/t/.", str(tmp_path / "out"))
    assert status == 1 and b"links are not followed" in err
    assert (tmp_path / "victim/x").read_text() == "mine" and everything_below(tmp_path / "victim") == ["x"]
    assert not (tmp_path / "out/x").is_symlink()


@pytest.mark.parametrize("target", ["../up", "sub/../../up", "/etc/passwd", "/t/../etc/passwd", "/tree/x", "a/b/../../..", ""])
def test_links_out_of_the_tree_are_not_made(hostile, tmp_path, target):
    hostile.folders["/t"] = [item("link", "FILE_TYPE_UNSPECIFIED", symlinkTarget=target)]
    status, _, err = hostile.cli.run("cp", "i1:/t", str(tmp_path / "out"))
    assert status == 1 and b"not within the tree" in err
    assert everything_below(tmp_path / "out") == []


def test_a_tree_without_end_is_cut(hostile, tmp_path):
    class Endless(dict):
        def get(self, _path, default=None):
            return [item("d", "FILE_TYPE_DIRECTORY")]

        def __contains__(self, _path):
            return True

    hostile.folders = Endless()
    status, _, err = hostile.cli.run("cp", "i1:/t", str(tmp_path / "out"))
    assert status == 1 and b"folders deep" in err


def test_a_cut_download_leaves_nothing(hostile, tmp_path):
    async def cut(peer):
        if not peer.seen.path.startswith("/files"):
            return await Hostile.answer(hostile, peer)
        await peer.head(200, "application/octet-stream", 1000000)
        await peer.send(b"part")

    hostile.script = cut
    (tmp_path / "out").mkdir()
    status, _, err = hostile.cli.run("cp", "i1:/f", str(tmp_path / "out/f"))
    assert status == 1 and err.startswith(b"abx: copy i1:/f")
    assert everything_below(tmp_path / "out") == []


def test_control_characters_do_not_reach_the_terminal(hostile, tmp_path):
    hostile.folders["/t"] = [item("\x1b]0;evil\x07/x")]
    status, _, err = hostile.cli.run("cp", "i1:/t", str(tmp_path / "out"))
    assert status == 1 and b"\x1b" not in err and b"\x07" not in err and b"\\x1b" in err
