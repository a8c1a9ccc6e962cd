"""`abx sandbox exec`, `shell` and `run` on a running service: bytes, exit status, signals, terminals."""

import base64
import hashlib
import json
import os
import signal
import subprocess
import threading

import pytest
import sanitizers
from cli_kit import box, cli, service  # noqa: F401 (fixtures)
from waiting import until

SIZE = 100_000_000


def running(cli, box, what):
    """Is a process with this in its words there?"""
    out = cli.text("exec", box, "--", "ps", "-eo", "args")
    return any(what in line for line in out.splitlines())


# ---- bytes ----


def test_every_byte_passes_both_ways(cli, box):
    data = bytes(range(256)) * 41
    assert cli.run("exec", box, "--", "cat", input=data, status=0)[1:] == (data, b"")
    assert cli.run("exec", box, "cat >&2", input=data, status=0)[1:] == (b"", data)


def test_output_and_error_stay_apart(cli, box):
    assert cli.run("exec", box, "echo out; echo err >&2") == (0, b"out\n", b"err\n")


def test_words_reach_the_program_as_they_are(cli, box):
    words = ["a b", "", "$HOME", "'", '"', "-x", "--", "new\nline", "ünï", "*"]
    out = cli.run("exec", box, "printf", "<%s>", *words, status=0)[1]
    assert out.decode() == "".join(f"<{w}>" for w in words)


def test_one_word_is_a_line_for_the_shell(cli, box):
    assert cli.text("exec", box, "echo $((6 * 7)) | tr 4 5") == "52"


def test_options_stand_before_and_behind_the_id(cli, box):
    assert cli.text("exec", "-u", "root", box, "-w", "/tmp", "--", "sh", "-c", "id -un; pwd") == "root\n/tmp"
    assert cli.text("exec", box, "--cwd=/usr", "pwd") == "/usr"
    # Behind the command they are the command's.
    assert cli.text("exec", box, "echo", "--json", "-u", "root") == "--json -u root"
    assert cli.text("exec", "--", box, "echo", "--", "x") == "-- x"


def test_environment(cli, box):
    out = cli.text("exec", box, "-e", "A=1=2", "--env", "FROM_HERE", "--env=EMPTY=", 'echo "$A|$FROM_HERE|${EMPTY-unset}"',
                   env={"FROM_HERE": "x y"})
    assert out == "1=2|x y|"


def test_the_end_of_input_is_passed_on(cli, box):
    assert cli.run("exec", box, "wc -c", input=b"12345")[1].strip() == b"5"
    assert cli.run("exec", box, "wc -c", input=b"")[1].strip() == b"0"


@pytest.mark.slow
def test_a_hundred_megabytes_in_and_out(cli, box):
    data = os.urandom(SIZE)
    out = cli.run("exec", box, "--", "cat", input=data, status=0)[1]
    assert hashlib.sha256(out).digest() == hashlib.sha256(data).digest()


def test_input_nobody_reads_does_not_hang(cli, box):
    assert cli.run("exec", box, "head -c 3", input=b"x" * 20_000_000, status=0)[1] == b"xxx"


def test_a_slow_reader_makes_the_sandbox_wait(cli, box):
    """The reader takes nothing until the command is seen to have stopped writing; then everything comes."""
    process = cli.popen("exec", box, "for i in $(seq 400); do head -c 100000 /dev/zero; echo $i > /tmp/written; done")
    seen = []

    def stands_still():
        seen.append(cli.text("exec", box, "cat /tmp/written 2>/dev/null; true"))
        return len(seen) > 4 and seen[-1] == seen[-4] != ""

    try:
        until(stands_still)  # well before the daemon cuts off one that reads nothing for 30 s
        assert int(seen[-1]) < 300
        assert len(process.stdout.read()) == 400 * 100000
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


# ---- exit status ----


@pytest.mark.parametrize("code", [0, 1, 2, 5, 127, 255])
def test_the_exit_status_is_the_commands(cli, box, code):
    assert cli.run("exec", box, f"exit {code}")[0] == code


@pytest.mark.parametrize("name", ["KILL", "TERM", "INT", "SEGV", "USR1", "RTMIN"])
def test_a_signal_is_128_and_its_number(cli, box, name):
    number = int(cli.text("exec", box, f"kill -l {name}"))
    assert cli.run("exec", box, f"kill -{name} $$")[0] == 128 + number


def test_a_command_that_cannot_start(cli, box):
    for words, wanted in [(("nosuchprogram", "x"), 127), (("/etc/passwd", "x"), 126), (("/etc", "x"), 126)]:
        for line in (words, words[:1]):  # as a program, and by the shell
            status, _, err = cli.run("exec", box, *line)
            assert status == wanted and line[0].encode() in err, (line, status, err)
    told = json.loads(cli.run("exec", "--json", box, "nosuchprogram", "x", status=127)[1])
    assert told["error"]["code"] == "invalid_argument"
    status, _, err = cli.run("exec", box, "--cwd", "/nowhere", "true")
    assert status == 1 and b"/nowhere" in err


def test_a_time_limit_is_status_5(cli, box):
    status, _, err = cli.run("exec", box, "--timeout", "1", "sleep 77771")
    assert status == 5 and b"time" in err
    until(lambda: not running(cli, box, "77771"))


def test_json(cli, box):
    made = json.loads(cli.run("exec", "--json", box, "printf 'a\\377\\0b'; echo e >&2; exit 3", status=3)[1])
    assert made["exit_code"] == 3 and made["stderr"] == "e\n" and made["status"] == "exit status 3"
    assert base64.b64decode(made["stdout_base64"]) == b"a\xff\0b" and "stderr_base64" not in made


def test_detach_prints_the_pid(cli, box):
    pid = cli.text("exec", "--detach", box, "sleep 77772")
    assert cli.text("exec", box, f"cat /proc/{pid}/cmdline | tr '\\0' ' '").endswith("77772 ")
    cli.run("exec", box, f"kill {pid}", status=0)


# ---- signals ----


@pytest.mark.parametrize("signo", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_command(cli, box, signo):
    mark = str(88800 + signo)
    process = cli.popen("exec", box, "--", "sleep", mark)
    until(lambda: running(cli, box, mark))
    process.send_signal(signo)
    assert process.wait(60) == 128 + signo
    process.communicate()
    until(lambda: not running(cli, box, mark))


def test_a_command_that_handles_it_says_its_own_status(cli, box):
    process = cli.popen("exec", box, "trap 'echo bye; exit 9' TERM; echo up; while :; do sleep 0.1; done")
    assert process.stdout.readline() == b"up\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.read() == b"bye\n" and process.wait(60) == 9
    process.communicate()


def test_one_that_ignores_it_is_killed(cli, box):
    process = cli.popen("exec", box, "trap '' TERM; echo up; while :; do sleep 0.15; done")
    assert process.stdout.readline() == b"up\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    process.communicate()
    until(lambda: not running(cli, box, "sleep 0.15"))


def test_a_second_interrupt_gives_up(cli, box):
    """SIGTERM is ignored: the first alone would take two seconds; the second ends it while the command still runs."""
    process = cli.popen("exec", box, "trap '' TERM; echo up; sleep 88817")
    assert process.stdout.readline() == b"up\n"
    process.send_signal(signal.SIGINT)
    until(lambda: process.poll() is not None or process.send_signal(signal.SIGINT))
    assert process.returncode == 130
    process.communicate()
    cli.run("exec", "-u", "root", box, "pkill -9 -f 'sleep 8881[7]'")


def test_no_reader_ends_the_command(cli, box):
    process = cli.popen("exec", box, "echo 88818; exec yes 88818")
    assert process.stdout.read(5) == b"88818"
    process.stdout.close()
    assert process.wait(60) == 128 + signal.SIGPIPE
    process.stderr.close()
    until(lambda: not running(cli, box, "yes 88818"))


def test_a_full_disk_under_the_output_is_said(cli, box):
    with open("/dev/full", "wb") as full:
        process = cli.popen("exec", box, "yes 88819", stdout=full)
        assert process.wait(60) == 1
    assert b"No space left" in process.stderr.read()
    process.stderr.close()
    until(lambda: not running(cli, box, "yes 88819"))


def test_a_sandbox_that_dies_ends_it(cli):
    made = cli.text("create")
    process = cli.popen("exec", made, "echo up; sleep 1000")
    assert process.stdout.readline() == b"up\n"
    cli.run("kill", made, status=0)
    assert process.wait(60) != 0
    assert process.communicate()[1].startswith(b"abx: ")


# ---- run ----


def only(cli, mark):
    return [s["sandboxID"] for s in cli.json("ls", "-m", f"mark={mark}")]


def test_run_passes_everything_and_kills(cli):
    assert cli.run("run", "-m", "mark=a", "-e", "X=1", "cat; echo $X; exit 4", input=b"in\n") == (4, b"in\n1\n", b"")
    assert only(cli, "a") == []
    assert cli.text("run", "--", "printf", "%s|", "a b", "c") == "a b|c|"
    assert cli.run("run", input=b"echo from $0\nexit 6\n")[:2] == (6, b"from /bin/bash\n")


@pytest.mark.parametrize("signo", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_run_kills_after_a_signal(cli, signo):
    process = cli.popen("run", "-m", f"mark=s{signo}", "echo up; sleep 1000")
    assert process.stdout.readline() == b"up\n"
    assert len(only(cli, f"s{signo}")) == 1
    process.send_signal(signo)
    assert process.wait(60) == 128 + signo
    process.communicate()
    assert only(cli, f"s{signo}") == []


def test_run_kills_when_nobody_reads(cli):
    process = cli.popen("run", "-m", "mark=p", "yes")
    process.stdout.read(10)
    process.stdout.close()
    assert process.wait(60) == 141
    process.stderr.close()
    assert only(cli, "p") == []


@pytest.mark.long
def test_run_renews_the_time_of_its_sandbox(cli):
    process = cli.popen("run", "-m", "mark=r", "echo up; sleep 1000")
    try:
        assert process.stdout.readline() == b"up\n"
        (first,) = cli.json("ls", "-m", "mark=r")
        until(lambda: cli.json("ls", "-m", "mark=r")[0]["endAt"] > first["endAt"], timeout=200)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
        process.communicate()


def test_run_with_a_time_ends_with_it(cli):
    """--timeout is the sandbox's: the command goes with it."""
    status, out, err = cli.run("run", "--timeout", "10", "-m", "mark=o", "echo up; sleep 1000")
    assert status == 1 and out == b"up\n" and err.startswith(b"abx: ")
    assert only(cli, "o") == []


def test_run_interrupted_during_create_leaves_nothing(cli):
    for _ in range(5):
        process = cli.popen("run", "-m", "mark=c", "sleep 1000")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) in (143, -15)
        process.communicate()
    until(lambda: only(cli, "c") == [])


def test_run_keeps_when_asked(cli):
    _, _, err = cli.run("run", "--keep", "-m", "mark=k", "true", status=0)
    (made,) = only(cli, "k")
    assert made.encode() in err
    cli.run("kill", made, status=0)


# ---- terminals ----


def test_a_shell_has_the_terminal(cli, box):
    with cli.terminal("sh", box, cols=100, rows=30) as t:
        t.type(b"stty size; echo term=$TERM; tty; echo don''e\n")
        shown = t.expect(b"done")
        assert b"30 100" in shown and b"term=xterm" in shown and b"/dev/pts/" in shown
        assert t.is_raw()
        t.resize(77, 11)
        t.type(b"until [ \"$(stty size)\" = '11 77' ]; do sleep 0.1; done; echo resiz''ed\n")
        t.expect(b"resized")
        # Ctrl-C belongs to the other side.
        # It has to run by then: before, the shell itself would take the signal and wait for it all the same.
        t.type(b"sh -c 'echo run''ning; exec sleep 1000'\n")
        t.expect(b"running\r\n")
        t.type(b"\x03")
        t.type(b"echo aft''er; exit 42\n")
        t.expect(b"after")
        assert t.wait() == 42 and t.is_restored()


def test_a_command_on_a_terminal(cli, box):
    with cli.terminal("exec", "--tty", box, "tty; stty size; exit 3", cols=90, rows=20) as t:
        assert b"20 90" in t.expect(b"90")
        assert t.wait() == 3 and t.is_restored()
    with cli.terminal("sh", box, "--", "sh", "-c", "test -t 0 && test -t 1 && exit 8") as t:
        assert t.wait() == 8 and t.is_restored()


@pytest.mark.parametrize("signo", ["TERM", "HUP", "QUIT", "SEGV", "ABRT", "USR1"])
def test_the_terminal_is_restored_after_a_signal(cli, box, signo, build_dir):
    if signo in ("SEGV", "ABRT"):
        sanitizers.skip_sanitized(build_dir, "these signals end it with a report, whatever it has set up for them")
    number = getattr(signal, f"SIG{signo}")
    with cli.terminal("sh", box) as t:
        t.type(b"echo u''p\n")
        t.expect(b"up")
        assert t.is_raw()
        t.process.send_signal(number)
        assert t.wait() in (128 + number, -number)
        assert t.is_restored()


def test_the_terminal_is_restored_when_the_sandbox_is_lost(cli):
    made = cli.text("create")
    with cli.terminal("sh", made) as t:
        t.type(b"echo u''p\n")
        t.expect(b"up")
        cli.run("kill", made, status=0)
        assert t.wait() != 0 and t.is_restored()
        assert b"\nabx: " in t.output.replace(b"\x1b[31m", b"").replace(b"\x1b[0m", b"")


def test_stopped_and_continued(cli, box):
    with cli.terminal("sh", box) as t:
        t.type(b"echo u''p\n")
        t.expect(b"up")
        t.process.send_signal(signal.SIGTSTP)
        assert os.waitpid(t.process.pid, os.WUNTRACED)[1] & 0xFF == 0x7F
        assert t.is_restored()
        t.process.send_signal(signal.SIGCONT)
        t.type(b"echo bac''k; exit 0\n")
        t.expect(b"back")
        assert t.wait() == 0 and t.is_restored()


def test_the_escape_closes_it(cli, box):
    with cli.terminal("sh", box) as t:
        t.type(b"echo u''p; cat\n")
        t.expect(b"up")
        t.type(b"~~x\r")
        t.expect(b"~x")
        t.type(b"~.")
        t.expect(b"connection closed")
        assert t.wait() == 129 and t.is_restored()


def test_a_shell_without_a_terminal(cli, box):
    status, out, err = cli.run("sh", box, input=b"echo here; test -t 0 || echo none; exit 5\n")
    assert (status, out) == (5, b"here\nnone\n") and b"no terminal" in err
    status, _, err = cli.run("exec", "--tty", box, "true")
    assert status == 2 and b"--tty needs a terminal" in err


def test_run_opens_a_shell_on_a_terminal(cli):
    with cli.terminal("run", "-m", "mark=t") as t:
        t.type(b"tty; exit 3\n")
        t.expect(b"/dev/pts/")
        assert t.wait() == 3 and t.is_restored()
    assert only(cli, "t") == []


def test_closed_descriptors(cli, box):
    """They do not become the client's own sockets: reading finds the end, writing fails."""

    def without(redirect, *words):
        command = ["sh", "-c", f'exec "$@" {redirect}', "sh", cli.abx, *words]
        run = subprocess.run(command, env=cli.env, cwd=cli.home, capture_output=True, timeout=60, check=False)
        return run.returncode, run.stdout, run.stderr

    assert without("<&-", "exec", box, "echo $(wc -c)") == (0, b"0\n", b"")
    for words in (("exec", box, "echo x"), ("ls",), ("cat", box, "/etc/passwd")):
        status, _, err = without(">&-", *words)
        assert status == 1 and b"Bad file descriptor" in err, (words, err)
    assert without("2>&-", "exec", box, "echo x") == (0, b"x\n", b"")
    assert without("2>&-", "info", "nosuch")[0] == 4
    assert without("<&- >&- 2>&-", "exec", box, "exit 3")[0] == 3


def test_what_is_no_text_is_refused(cli, box):
    for words in (("exec", box, "--", "printf", b"\xff"), ("exec", box, b"echo \xff"), ("info", b"\xff"), ("info", "a/b")):
        status, out, err = cli.run(*words)
        assert (status, out) == (2, b"") and err.startswith(b"abx: "), words


def test_many_at_once(cli, box):
    """Sixteen at a time do not get each other's bytes."""
    results = [None] * 16

    def one(i):
        results[i] = cli.run("exec", box, "--", "cat", input=b"%d " % i * 50000)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    assert [r[1] for r in results] == [b"%d " % i * 50000 for i in range(16)]


def test_input_from_a_file_and_from_nowhere(cli, box, tmp_path):
    (tmp_path / "in").write_bytes(b"from a file")
    with open(tmp_path / "in", "rb") as file:
        process = cli.popen("exec", box, "cat", stdin=file)
        assert process.communicate(timeout=60)[0] == b"from a file"
    process = cli.popen("exec", box, "cat; echo end", stdin=subprocess.DEVNULL)
    assert process.communicate(timeout=60)[0] == b"end\n"
