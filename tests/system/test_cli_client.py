"""The client commands of `abx` that are neither streams nor copies: their output, exit status, messages, completion."""

import json
import os
import re
import signal
import socket
import subprocess
import threading
import urllib.parse
from pathlib import Path

import pytest
from cli_kit import Cli, cli, service  # noqa: F401 (fixtures)
from fake_envd import FakeEnvd
from waiting import BUSY_S, until


@pytest.fixture(scope="module")
def box(cli):
    made = cli.text("create", "--timeout", "1h", "-m", "kind=box", "-m", "long=" + "x" * 200)
    yield made
    cli.run("kill", made)


@pytest.fixture
def bare(build_dir, tmp_path):
    """No service in any variable or file."""
    return Cli(build_dir, tmp_path, {})


@pytest.fixture
def fake(build_dir, tmp_path):
    """A control plane that answers what `script` says."""
    server = FakeEnvd()
    origin = f"http://127.0.0.1:{server.port}"
    server.cli = Cli(build_dir, tmp_path, {"E2B_API_KEY": "secret-key-1234", "E2B_API_URL": origin, "E2B_SANDBOX_URL": origin})
    yield server
    server.close()


def will(fake, status, body, **headers):
    async def script(peer):
        await peer.answer(body, status, **headers)

    fake.script = script


# ---- the life of a sandbox ----


def test_create_info_kill(cli):
    made = cli.json("sandbox", "create", "-t", "base", "--timeout", "10m", "-m", "a=b", "--cpu", "1", "--memory", "256M")
    info = cli.json("sandbox", "info", made["sandboxID"])
    assert info["metadata"] == {"a": "b"} and info["state"] == "running" and info["alias"] == "base"
    assert (info["cpuCount"], info["memoryMB"]) == (1, 256)
    assert not [k for k in (*made, *info) if "oken" in k]
    text = cli.text("info", made["sandboxID"])
    assert f"id         {made['sandboxID']}\n" in text and "metadata   a=b" in text
    assert cli.text("kill", made["sandboxID"]) == made["sandboxID"]
    assert cli.run("info", made["sandboxID"])[0] == 4


def test_kill_tries_every_id(cli):
    ids = [cli.text("create"), "nosuch", cli.text("create")]
    status, out, err = cli.run("kill", *ids)
    assert status == 4 and out.decode().split() == [ids[0], ids[2]] and b"nosuch" in err
    made = cli.json("kill", ids[0], status=4)
    assert [(x["sandboxID"], x["killed"]) for x in made] == [(ids[0], False)] and made[0]["error"]


def test_kill_all_asks(cli):
    ids = {cli.text("create", "-m", "group=all") for _ in range(3)}
    status, _, err = cli.run("kill", "--all", "-m", "group=all")
    assert status == 2 and b"--yes" in err
    with cli.terminal("kill", "--all", "-m", "group=all") as t:
        t.expect(b"Kill 3 sandboxes?")
        t.type(b"n\n")
        assert t.wait() == 1 and b"nothing was killed" in t.output
    assert set(cli.text("ls", "-q", "-m", "group=all").split()) == ids
    assert set(cli.text("kill", "--all", "--yes", "-m", "group=all").split()) == ids
    assert cli.text("ls", "-q", "-m", "group=all") == ""
    assert cli.run("kill")[0] == 2 and cli.run("kill", "--all", "x")[0] == 2


def test_time(cli, box):
    before = cli.json("info", box)["endAt"]
    cli.run("sandbox", "timeout", box, "2h", status=0)
    later = cli.json("info", box)["endAt"]
    assert later > before
    # Looking at it, or running something, leaves its time alone; connect does not shorten it.
    cli.run("exec", box, "true", status=0)
    cli.run("sandbox", "connect", box, "--timeout", "1m", status=0)
    assert cli.json("info", box)["endAt"] == later
    assert cli.run("sandbox", "timeout", box, "soon")[0] == 2


def test_connect_tells_the_host_of_a_port(cli, box):
    assert cli.text("sandbox", "connect", box, "--port", "8080").startswith(f"8080-{box}.")
    assert cli.json("sandbox", "connect", box, "--port", "80")["host"].startswith(f"80-{box}.")
    assert cli.run("sandbox", "connect", box, "--port", "65536")[0] == 2
    assert cli.text("sandbox", "resume", box) == box


def test_connect_says_that_it_opens_no_terminal(cli, box):
    """E2B's CLI has a command of this name that does. A script gets the id alone."""
    with cli.terminal("sandbox", "connect", box) as t:
        assert t.wait() == 0
        assert t.output.splitlines() == [box.encode(), f"It runs. 'abx sandbox shell {box}' opens a terminal in it.".encode()]
    assert cli.run("sandbox", "connect", box, status=0)[1:] == (box.encode() + b"\n", b"")
    with cli.terminal("sandbox", "connect", box, "--port", "80") as t:
        assert t.wait() == 0 and len(t.output.splitlines()) == 1
    assert "'abx sandbox shell ID' does." in " ".join(cli.text("sandbox", "connect", "--help").split())


def test_snapshot(cli, box):
    cli.run("exec", box, "touch", "/tmp/before", status=0)
    made = cli.text("sandbox", "snapshot", box)
    copy = cli.text("create", "-t", made)
    try:
        cli.run("exec", copy, "ls", "/tmp/before", status=0)
    finally:
        cli.run("kill", copy, status=0)
    named = cli.json("sandbox", "snapshot", box, "--name", "of-test")
    assert named in cli.json("sandbox", "snapshot", "--list") and named["names"]
    assert cli.json("sandbox", "snapshot", "--list", "--name", "of-test") == [named]
    assert {made, named["snapshotID"]} == {one["snapshotID"] for one in cli.json("sandbox", "snapshot", "--list", box)}
    table = cli.text("sandbox", "snapshot", "-l", box).splitlines()
    assert table[0].split() == ["SNAPSHOT", "NAMES"] and made in table[1] + table[2] and named["names"][0] in table[1] + table[2]
    status, out, err = cli.run("sandbox", "snapshot", "--delete", "no-such", made, named["snapshotID"])
    assert (status, out.decode().split()) == (4, [made, named["snapshotID"]]) and b"delete no-such" in err
    assert cli.json("sandbox", "snapshot", "--list", box) == []
    for wrong in ((), (box, made), ("--delete",), ("--list", "--delete", made)):
        assert cli.run("sandbox", "snapshot", *wrong)[0] == 2


def test_rollback(cli, box):
    cli.run("exec", box, "sh", "-c", "echo 1 > /tmp/n", status=0)
    made = cli.text("sandbox", "snapshot", box, "--name", "cli-rollback")
    for to in (made, "cli-rollback"):
        cli.run("exec", box, "sh", "-c", "echo 2 > /tmp/n", status=0)
        assert cli.text("sandbox", "rollback", box, to) == box
        assert cli.text("exec", box, "cat", "/tmp/n") == "1"
    cli.run("sandbox", "pause", box, status=0)
    assert cli.text("sandbox", "rollback", box, made) == f"{box} (is paused)"
    assert cli.json("sandbox", "rollback", box, made) == {"sandboxID": box, "snapshotID": made, "state": "paused"}
    assert cli.text("sandbox", "resume", box) == box
    status, _, err = cli.run("sandbox", "rollback", box, "nothing")
    assert status == 4 and b"snapshot 'nothing' not found" in err
    assert cli.run("sandbox", "rollback", box)[0] == 2


def test_fork(cli, box):
    cli.run("exec", box, "touch", "/tmp/before", status=0)
    made = cli.text("sandbox", "fork", box, "--count", "2").split()
    try:
        assert len({box, *made}) == 3
        for child in made:
            cli.run("exec", child, "ls", "/tmp/before", status=0)
    finally:
        cli.run("kill", *made, status=0)


def test_pause_and_resume(cli, box):
    cli.run("exec", box, "touch", "/tmp/before", status=0)
    assert cli.text("sandbox", "pause", box) == box
    assert cli.text("sandbox", "pause", "--strict", box) == f"{box} (was paused)"
    assert cli.json("info", box)["state"] == "paused" and [s["sandboxID"] for s in cli.json("ls", "-s", "paused")] == [box]
    row = next(line for line in cli.text("ls").splitlines() if line.startswith(box)).split()
    assert row[2] == "paused" and row[5] == "-", row  # id, template, state, date and time of the start, end
    assert re.search(r"^ends +-$", cli.text("info", box), re.M)
    status, _, err = cli.run("exec", box, "true")
    assert status == 1 and b"is paused" in err and b"abx sandbox resume" in err
    assert cli.run("sandbox", "timeout", box, "1m")[0] == 4
    assert cli.text("sandbox", "resume", box) == box
    cli.run("exec", box, "ls", "/tmp/before", status=0)
    assert cli.text("sandbox", "pause", "--no-memory", "--strict", box) == box
    assert cli.text("sandbox", "connect", box) == box
    cli.run("exec", box, "ls", "/tmp/before", status=0)


# ---- lists ----


def test_list_as_a_table(cli, box):
    lines = cli.text("sandbox", "list", "-m", "kind=box").splitlines()
    assert lines[0].split() == ["ID", "TEMPLATE", "STATE", "STARTED", "ENDS", "METADATA"]
    assert len(lines) == 2 and lines[1].startswith(box) and "x" * 200 in lines[1]
    assert [s["sandboxID"] for s in cli.json("ls", "-m", "kind=box", "-s", "running")] == [box]
    assert cli.json("ls", "-m", "kind=other") == []


def test_a_table_fits_the_terminal(cli, box):
    with cli.terminal("ls", "-m", "kind=box", cols=100) as t:
        assert t.wait() == 0
        shown = re.sub(rb"\x1b\[[0-9;]*m", b"", t.output).splitlines()
        assert len(shown) == 2 and max(map(len, shown)) <= 100 and shown[1].endswith(b"...")


def test_colour_is_for_terminals_that_want_it(cli):
    def is_coloured(**env):
        with cli.terminal("info", "nosuch", env=env) as t:
            assert t.wait() == 4
            return b"\x1b[" in t.output

    assert is_coloured()
    assert not is_coloured(NO_COLOR="1") and not is_coloured(TERM="dumb")
    assert b"\x1b" not in cli.run("info", "nosuch")[2]


def test_text_of_others_cannot_command_the_terminal(cli):
    made = cli.text("create", "-m", "mark=evil\x1b[2Jü")
    for words in (("ls", "-m", "mark=evil\x1b[2Jü"), ("info", made)):
        out = cli.run(*words, status=0)[1]
        assert b"\x1b" not in out and b"evil\\x1b[2J\xc3\xbc" in out
    assert cli.json("info", made)["metadata"] == {"mark": "evil\x1b[2Jü"}
    cli.run("kill", made, status=0)


def test_messages_of_a_service_cannot_either(fake):
    will(fake, 500, {"code": 500, "message": "\x1b[2Jevil"})
    for words in (("ls",), ("kill", "i1"), ("create",), ("sandbox", "pause", "i1"), ("run", "true"), ("exec", "i1", "true")):
        _, out, err = fake.cli.run(*words)
        assert b"evil" in err and b"\x1b" not in out + err, (words, err)


def test_all_pages(fake):
    rows = [{
        "sandboxID": f"i{n}", "templateID": "t", "clientID": "c", "envdVersion": "0.6.13", "state": "running",
        "startedAt": "2026-01-02T03:04:05Z", "endAt": "2026-01-02T03:09:05Z", "cpuCount": 1, "memoryMB": 1, "diskSizeMB": 1,
    } for n in range(250)]
    limits = []

    async def script(peer):
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(peer.seen.path).query))
        at, limit = int(query.get("nextToken", 0)), int(query["limit"])
        limits.append(limit)
        more = {"x_next_token": str(at + limit)} if at + limit < len(rows) else {}
        await peer.answer(rows[at:at + limit], **more)

    fake.script = script
    assert fake.cli.text("ls", "-q").split() == [f"i{n}" for n in range(250)]
    assert [s["sandboxID"] for s in fake.cli.json("ls", "--limit", "120")] == [f"i{n}" for n in range(120)]
    assert limits == [100, 100, 100, 100, 20]


def test_pages_without_end(fake):
    will(fake, 200, [], x_next_token="again")
    status, _, err = fake.cli.run("ls")
    assert status == 1 and b"same page again" in err


def test_a_reader_that_leaves(cli, box):
    """abx ls | head -0: no message, no hang."""
    process = cli.popen("ls", "--json")
    process.stdout.close()
    assert process.wait(60) in (-signal.SIGPIPE, 1)
    process.stderr.close()


# ---- logs and metrics, as a service that has them answers ----


def entry(ms, text):
    return {"timestamp": f"2026-01-02T03:04:05.{ms:03}Z", "message": text, "level": "info", "fields": {"n": "1"}}


def test_logs_follow_without_repeating(fake):
    logs = [entry(1, "one"), entry(2, "two a"), entry(2, "two b")]
    gone = threading.Event()

    async def script(peer):
        if gone.is_set():
            return await peer.answer({"code": 404, "message": "Sandbox not found"}, 404)
        cursor = int(dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(peer.seen.path).query)).get("cursor", 0))
        await peer.answer({"logs": [e for e in logs if cursor == 0 or int(e["timestamp"][20:23]) >= cursor % 1000]})

    fake.script = script
    assert [e["message"] for e in fake.cli.json("logs", "i1")] == ["one", "two a", "two b"]
    assert [e["message"] for e in fake.cli.json("logs", "i1", "--limit", "2")] == ["one", "two a"]
    process = fake.cli.popen("logs", "--follow", "--json", "i1")
    assert [json.loads(process.stdout.readline())["message"] for _ in range(3)] == ["one", "two a", "two b"]
    logs += [entry(2, "two c\x1b"), entry(7, "seven")]
    assert [json.loads(process.stdout.readline())["message"] for _ in range(2)] == ["two c\x1b", "seven"]
    gone.set()
    assert process.wait(60) == 0
    process.communicate()
    gone.clear()
    assert "two c\\x1b" in fake.cli.text("logs", "i1")
    # JSON, too, does not command a terminal: control characters of C1 and DEL may stand in it, but are escaped.
    logs.append(entry(8, "\x9b31m\x7f ü"))
    for args in (["logs", "i1"], ["logs", "--follow", "--limit", "6", "i1"]):
        text = fake.cli.text(*args, "--json")
        assert "\\u009b31m\\u007f ü" in text and "\x9b" not in text and "\x7f" not in text, args
    assert fake.cli.json("logs", "i1")[-1]["message"] == "\x9b31m\x7f ü"


def test_metrics_as_a_table(fake):
    will(fake, 200, [{
        "timestamp": "2026-01-02T03:04:05Z", "timestampUnix": 1767323045, "cpuCount": 2, "cpuUsedPct": 12.5,
        "memUsed": 1 << 30, "memTotal": 2 << 30, "memCache": 0, "diskUsed": 1536, "diskTotal": 10 << 30}])
    assert re.search(r"12\.5 % +1\.0 GiB +2\.0 GiB +0 B +1\.5 KiB +10\.0 GiB", fake.cli.text("sandbox", "metrics", "i1"))
    assert fake.cli.json("sandbox", "metrics", "i1")[0]["cpuUsedPct"] == 12.5


# ---- errors and exit status ----


def test_exit_statuses(cli, fake, service):
    assert cli.run("info", "nosuch")[0] == 4
    assert cli.run("create", "-t", "nosuch")[0] == 4
    status, _, err = cli.run("ls", env={"E2B_API_KEY": "e2b_" + "0" * 40})
    assert status == 3 and b"environment E2B_API_KEY" in err and b"abx key create" in err
    for code, wanted in [(401, 3), (403, 3), (404, 4), (400, 1), (500, 1), (501, 1)]:
        will(fake, code, {"code": code, "message": "so it is"})
        status, _, err = fake.cli.run("info", "i1")
        assert (status, b"so it is" in err) == (wanted, True), code
    will(fake, 429, {"code": 429, "message": "too many"}, retry_after="0")
    assert fake.cli.run("create")[0] == 6
    assert cli.json("info", "nosuch", status=4)["error"]["code"] == "not_found"


def test_hints_say_what_to_do_next(cli, fake, box):
    """About the user in the sandbox, not about the key; what the service lacks; where an address comes from."""
    for words in [("exec", "-u", "nobody-here", box, "true"), ("cp", "-u", "nobody-here", f"{box}:/etc/hostname", "-")]:
        status, _, err = cli.run(*words)
        assert status == 1 and b"nobody-here" in err and b"getent passwd" in err and b"key" not in err, err
    will(fake, 501, {"code": 501, "message": "so it is"})
    assert b"Not every service" in fake.cli.run("sandbox", "fork", "i1")[2]
    status, _, err = cli.run("ls", "--api-url", "http://127.0.0.1:1", "--api-key-file", "-", input=b"e2b_00\n")
    assert status == 1 and b"Origin of the address: option." in err


@pytest.mark.parametrize("words, text", [
    (("sandbox", "nosuch"), "no command 'nosuch'"), (("sandbox",), "usage:"), (("nosuch",), "unknown command"),
    (("timeout", "x", "5"), "Did you mean 'abx sandbox timeout'?"), (("--json", "ls"), "belongs behind the command"), (("cat", "i1:/etc/hosts"), "needs ID PATH...: two words, ID:PATH is for cp"),
    (("ls", "--nosuch"), "no option '--nosuch'"), (("ls", "-Z"), "no option '-Z'"), (("ls", "x"), "unexpected argument 'x'"),
    (("info",), "needs ID"), (("exec", "x"), "needs ID COMMAND"), (("create", "--timeout"), "needs a value"),
    (("create", "--timeout", "x"), "not a duration"), (("create", "--cpu", "0"), "from 1 to 1024"),
    (("create", "--memory", "1K"), "--memory '1K' is not within 1M to 2047T"), (("create", "--disk", "1GB"), "--disk '1GB' is not a size"),
    (("create", "--disk", "0"), "--disk '0' is not within 1M to 2047T"), (("create", "-e", "=x"), "has no name"), (("create", "-m", "x"), "no '='"),
    (("create", "-e", "NOT_SET_HERE"), "no such variable"), (("ls", "--json=x"), "takes no value"),
    (("ls", "--template="), "is empty"), (("cat", "--json", "x", "y"), "no --json"),
    (("ls", "--api-key", "a", "--api-key-file", "b"), "two keys"), (("ls", "--api-url", "nourl"), "does not begin with http"),
])
def test_wrong_words_are_status_2(cli, words, text):
    status, out, err = cli.run(*words)
    assert status == 2 and text in err.decode() and out == b""


def test_no_credentials(bare):
    """In a mount namespace without /run: there is no service on this machine."""
    run = subprocess.run(
        ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /run && exec "$@"', "sh", bare.abx, "whoami"],
        env=bare.env, cwd=bare.home, capture_output=True, timeout=60, check=False)
    assert run.returncode == 3 and run.stderr.count(b"sudo abx key local --user $USER") == 1
    assert b"api key    none" in run.stdout


def test_an_unreachable_service(bare):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        status, _, err = bare.run("ls", "--api-url", url, env={"E2B_API_KEY": "k"})
    assert status == 1 and url.removeprefix("http://").encode() in err and b"option" in err
    status, _, err = bare.run("ls", "--api-url", "http://nosuch.invalid", env={"E2B_API_KEY": "k"})
    assert status == 1 and b"nosuch.invalid" in err


def test_a_service_that_does_not_answer(bare):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(8)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        status, _, err = bare.run("ls", "--api-url", url, "--request-timeout", "1", env={"E2B_API_KEY": "k"}, timeout=60)
    assert status == 5 and err.startswith(b"abx: ")


# ---- who and where ----


def test_whoami(cli, service):
    text = cli.text("whoami")
    assert f"service    {service.origin}  (environment E2B_API_URL)" in text and re.search("status +ok", text)
    assert service.key not in text and f"****{service.key[-4:]}  (environment E2B_API_KEY)" in text
    made = cli.json("whoami")
    assert made["ok"] and made["api_url"] == {"value": service.origin, "origin": "environment E2B_API_URL"}
    status, out, err = cli.run("whoami", env={"E2B_API_KEY": "e2b_wrong"})
    assert status == 3 and b"(environment E2B_API_KEY)" in out and b"e2b_wrong" not in out + err


def test_keys_on_the_command_line(bare, service, tmp_path):
    where = ("--api-url", service.origin)
    (tmp_path / "key").write_text(service.key + "\nsecond line\n")
    assert bare.run("ls", *where, "--api-key-file", str(tmp_path / "key"), status=0)[2] == b""
    assert bare.run("ls", *where, "--api-key-file", "-", input=service.key.encode(), status=0)[2] == b""
    status, _, err = bare.run("ls", *where, "--api-key", service.key)
    assert status == 0 and b"warning" in err and service.key.encode() not in err
    (tmp_path / "empty").write_text("\n")
    assert bare.run("ls", *where, "--api-key-file", str(tmp_path / "empty"))[0] == 2
    assert bare.run("ls", *where, "--api-key-file", str(tmp_path / "none"))[0] == 4


def test_profiles(bare, service, tmp_path):
    (tmp_path / ".abx").mkdir()
    (tmp_path / ".abx/config.toml").write_text(f'[profiles.here]\nsandbox_base_url = "{service.origin}"\n')
    made = bare.json("whoami", "--profile", "here", "--api-key-file", "-", input=service.key.encode())
    assert made["api_url"]["value"] == service.origin and made["profile"]["value"] == "here"


# ---- the program ----


def test_abx_itself_stays_light(build_dir):
    """What makes it slow to start is in the other program."""
    needed = subprocess.run(["ldd", build_dir / "abx"], capture_output=True, text=True, check=True).stdout
    assert "curl" not in needed and "ssl" not in needed
    assert "curl" in subprocess.run(["ldd", build_dir / "libexec/abx-client"], capture_output=True, text=True, check=True).stdout


def commands_of(cli):
    """(name, aliases) of every row that `abx help` prints."""
    found = []
    for line in cli.text("help").split("sandboxes:\n")[1].splitlines():
        if match := re.match(r"  (\S+(?: \S+)?)  +.*?(?:\(short: (.*)\))?$", line):
            found.append((match[1].split(), match[2].split(", ") if match[2] else []))
    return found


def options_of(cli, words):
    return re.findall(r"^ +(?:-\w, +)?(--[a-z-]+)", cli.text(*words, "--help"), re.M)


def test_every_command_describes_itself(cli):
    commands = commands_of(cli)
    assert len(commands) >= 18
    for name, aliases in commands:
        text = cli.text(*name, "--help")
        assert text.startswith(f"usage: abx {' '.join(name)} ")
        assert max(map(len, text.splitlines())) <= 100
        for alias in aliases:
            assert cli.text(alias, "--help") == text
        # Its own name in front of what is wrong.
        assert cli.run(*name, "--no-such-option")[2].startswith(f"abx {' '.join(name)}: ".encode())
    assert {"--json", "--profile", "--api-url", "--api-key-file"} <= set(options_of(cli, ["whoami"]))


@pytest.mark.parametrize("signo", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_secret_that_is_not_typed_to_its_end(bare, signo):
    """The terminal echoes again."""
    with bare.terminal("config", "set", "sandbox_api_key") as t:
        t.expect(b"sandbox_api_key: ")
        until(lambda: not t.is_restored())
        t.process.send_signal(signo)
        assert t.wait() == -signo and t.is_restored()
    with bare.terminal("config", "set", "sandbox_api_key") as t:
        t.expect(b"sandbox_api_key: ")
        until(lambda: not t.is_restored())
        t.type(b"e2b_secret\n")
        assert t.wait() == 0 and t.is_restored() and b"secret" not in t.output
    assert "e2b_secret" in (bare.home / ".abx/.env").read_text()


def test_interrupted_create_leaves_nothing(cli):
    for _ in range(3):
        process = cli.popen("create", "-m", "mark=interrupted")
        process.send_signal(signal.SIGINT)
        status = process.wait(60)
        out = process.communicate()[0].decode().split()
        assert status in (130, -signal.SIGINT, 0)
        if status == 0:  # it was faster
            cli.run("kill", *out, status=0)
    until(lambda: cli.json("ls", "-m", "mark=interrupted") == [])


def test_output_that_cannot_be_written(cli):
    with open("/dev/full", "wb") as full:
        process = cli.popen("create", "-m", "mark=full", stdout=full)
        assert process.wait(60) == 1
    assert b"No space left" in process.stderr.read()
    process.stderr.close()
    # Nobody has the id of that one.
    assert cli.json("ls", "-m", "mark=full") == []


@pytest.mark.parametrize(
    "command",
    ["--help", "version", "doctor", "doctor --json", "serve --print-unit", "serve --help", "completion bash", "key list",
     "key list --json", "key create", "template list", "config list", "sandbox --help", "sandbox list --help"],
)
def test_no_command_succeeds_whose_output_is_lost(cli, service, command):
    argv = command.split() + (["--data-dir", str(service.data_dir)] if command.startswith("key") else [])
    with open("/dev/full", "wb") as full:
        process = cli.popen(*argv, stdout=full)
        err = process.communicate(timeout=BUSY_S)[1].decode()
    assert process.returncode == 1
    assert err.splitlines()[-1] == "abx: write to standard output: No space left on device"
    assert err.count("standard output") == 1


def test_the_callers_environment_is_not_needed(cli, box):
    """As in a cron job: no TERM, no locale, no HOME."""
    env = {k: v for k, v in cli.env.items() if k.startswith("E2B_")}
    run = subprocess.run([cli.abx, "exec", box, "echo ok"], env=env, cwd="/", capture_output=True, timeout=60, check=False,
                         stdin=subprocess.DEVNULL)
    assert (run.returncode, run.stdout) == (0, b"ok\n"), run.stderr
    assert "HOME" not in env and os.path.isabs(cli.abx)


# ---- completion and manual ----


def bash_offers(cli, *words):
    """What bash would offer behind these words; the last is the one that is typed."""
    script = 'source <(abx completion bash); COMP_WORDS=(abx "$@"); COMP_CWORD=$#; _abx; printf "%s\\n" "${COMPREPLY[@]}"'
    return shell(cli, ["bash", "-c", script, "bash", *words])


def zsh_offers(cli, *words):
    script = """
        compdef() { }
        compadd() { (( $#offered == $#shown )) && print -l -- $offered }
        _files() { }
        source <(abx completion zsh)
        words=(abx "$@"); CURRENT=$#words
        _abx"""
    return shell(cli, ["zsh", "-fc", script, "zsh", *words])


def fish_offers(cli, *words):
    line = " ".join(("abx", *words))
    return shell(cli, ["fish", "--no-config", "-c", f'abx completion fish | source; complete -C "{line}"'])


def shell(cli, command):
    env = {**cli.env, "PATH": f"{os.path.dirname(cli.abx)}:{os.environ['PATH']}"}
    run = subprocess.run(command, env=env, cwd=cli.home, capture_output=True, text=True, timeout=60, check=False)
    assert (run.returncode, run.stderr) == (0, ""), run
    return [line.split("\t")[0] for line in run.stdout.splitlines() if line]


@pytest.mark.parametrize("offers", [bash_offers, zsh_offers, fish_offers])
def test_shells_offer_the_words(cli, box, offers):
    assert {"sandbox", "run", "serve", "config", "whoami", "sh"} <= set(offers(cli, ""))
    assert sorted(offers(cli, "sandbox", "c")) == ["cat", "connect", "cp", "create"]
    assert sorted(offers(cli, "sandbox", "exec", "--d")) == ["--detach", "--domain"]
    assert sorted(offers(cli, "config", "")) == ["get", "list", "path", "set", "unset"]
    assert box in offers(cli, "exec", "") and offers(cli, "kill", "x", box[:5]) == [box]


def test_words_of_others_are_not_offered(cli, box):
    for words in (("exec", box, ""), ("exec", box, "ls", "--"), ("create", "--template", ""), ("run", "--", "-")):
        assert bash_offers(cli, *words) == [], words


def test_what_a_service_calls_an_id_is_not_evaluated(fake, tmp_path):
    row = {
        "templateID": "t", "clientID": "c", "envdVersion": "0.6.13", "state": "running", "startedAt": "2026-01-02T03:04:05Z",
        "endAt": "2026-01-02T03:09:05Z", "cpuCount": 1, "memoryMB": 1, "diskSizeMB": 1}
    ids = ["$(touch evil)", "good-1", "`touch evil`", "a;touch evil", "(touch evil)"]
    will(fake, 200, [{**row, "sandboxID": i} for i in ids])
    for offers in (bash_offers, zsh_offers, fish_offers):
        assert offers(fake.cli, "info", "") == ["good-1"]
    assert "evil" not in os.listdir(tmp_path)


def test_completion_knows_every_option(cli):
    """The table's commands by construction, the others by this test."""
    for name in ("serve", "key", "template", "doctor", "config"):
        offered = cli.text("completion", "words", "--", name, "-").split()
        assert offered == options_of(cli, [name]) or set(offered) == set(options_of(cli, [name])), name
    for name, _ in commands_of(cli):
        offered = [x.split("\t")[0] for x in cli.text("completion", "words", "--", *name, "--").splitlines()]
        assert set(offered) == set(options_of(cli, name)), name


def test_the_manual_has_every_command_and_option(cli, build_dir):
    page = (build_dir / "man/abx-sandbox.1").read_text().replace("\\-", "-")
    sections = {m[1]: m[2] for m in re.finditer(r"^\.S[sh] (.*)\n((?:(?!\.S[sh] ).*\n)*)", page, re.M)}
    common = sections["OPTIONS OF ALL COMMANDS"]
    for name, aliases in commands_of(cli):
        text = sections["abx " + " ".join(name)]
        for option in options_of(cli, name):
            assert re.search(rf"^\.It .*Fl {option[1:]}\b", text + common, re.M), (name, option)
        for alias in aliases:
            assert re.search(rf"^Short:.* abx {alias}\b", text, re.M)


@pytest.mark.parametrize("page, texts", [
    ("abx.1", ["http://[user:password@]host:port (CONNECT)", "--egress-dns address[:port]", "template=n", "port-id.name"]),
    ("abx-sandbox.1", ['{"error": {"code": ..., "message": ..., "http_status": ..., "hint": ...}}', "ID:PATH", "DIR/. stands for",
                       "~. closes the connection", "ID [COMMAND [ARG...]]"]),
])
def test_the_manuals_read_as_they_are_meant(build_dir, page, texts):
    source = next(p for p in (build_dir / "man" / page, Path(__file__).resolve().parents[2] / "man" / page) if p.exists())
    run = subprocess.run(["groff", "-mdoc", "-Tutf8", "-P-c", "-ww", source], capture_output=True, text=True, timeout=60, check=True)
    assert run.stderr == ""
    shown = " ".join(re.sub(".\b", "", run.stdout).split())  # bold is a character, a backspace and it again
    assert [text for text in texts if text not in shown] == []
