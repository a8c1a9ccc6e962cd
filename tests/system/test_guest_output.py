"""abx-guest alone: what a command writes and who reads it."""

import base64
import hashlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from guest_kit import error_of, fresh, guest  # noqa: F401 (fixtures)
from waiting import BUSY_S, until

from guest import RpcError

# --- text ---------------------------------------------------------------------------------------


def chunks(process, stream):
    """The messages of one stream, each by itself."""
    return [base64.b64decode(m["event"]["data"][stream]) for m in process if stream in m["event"].get("data", {})]


def is_text(part):
    try:
        part.decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.parametrize("stream, how", [("stdout", {}), ("pty", {"pty": {}})])
def test_multibyte_text_survives_chunks(guest, stream, how):
    """Each message alone is text: some clients decode it so."""
    text = ("a" + "äß漢🎉" * 30000).encode()
    script = "import sys; sys.stdout.write('a' + 'äß漢🎉' * 30000)"
    for _ in range(5):  # a machine that is too busy for what is waited: not five times
        parts = chunks(guest.start("python3", "-c", script, envs={"PYTHONIOENCODING": "utf-8"}, **how), stream)
        assert len(parts) > 5 and b"".join(parts) == text
        if all(map(is_text, parts)):
            return
    raise AssertionError([p for p in parts if not is_text(p)])


def test_a_character_in_two_writes(guest):
    """Its rest is waited for, also on stderr and a terminal; what is no character is not."""
    script = (
        "import os, time\nfor fd in (1, 2):\n for b in '🎉ä'.encode(): os.write(fd, bytes([b])); time.sleep(0.002)\n"
        " os.write(fd, b'\\xff\\xe6')\n"
    )
    for _ in range(5):  # the machine may be too slow once for the time that is waited
        messages = list(guest.start("python3", "-c", script))
        for name in ("stdout", "stderr"):
            parts = [base64.b64decode(d) for m in messages if (d := m["event"].get("data", {}).get(name))]
            assert b"".join(parts) == "🎉ä".encode() + b"\xff\xe6"
        if b"\xf0" not in parts and b"\xc3" not in parts:
            return
    raise AssertionError(parts)


def test_the_beginning_of_a_character_does_not_wait_for_ever(guest):
    process = guest.sh_start("printf 'a\\xe6\\xbc'; read x; printf '\\xa2'", stdin=True)
    process.until_output(b"a\xe6\xbc")
    guest.send(process.pid, b"\n")
    assert process.wait()["stdout"] == b"\xa2"
    lost = guest.sh_start("printf '\\xe6\\xbc'; sleep 1000")
    guest.rpc("SendSignal", {"process": {"pid": lost.pid}, "signal": "SIGNAL_SIGKILL"})
    lost.wait()


# --- readers ------------------------------------------------------------------------------------


def test_every_reader_gets_every_byte(guest):
    size = 12 << 20
    script = f"import sys, random; sys.stdin.read(1); r = random.Random(7); sys.stdout.buffer.write(r.randbytes({size}))"
    first = guest.start("python3", "-c", script, stdin=True)
    readers = [first] + [guest.connect(first.pid) for _ in range(3)]
    with ThreadPoolExecutor(4) as pool:
        results = [pool.submit(r.wait) for r in readers]
        guest.send(first.pid, b"x")
        results = [r.result() for r in results]
    assert len(results[0]["stdout"]) == size
    assert len({hashlib.sha256(r["stdout"]).digest() for r in results}) == 1
    assert all(r["end"] == {"exited": True, "status": "exit status 0"} for r in results)


def test_100_mb_of_output(guest):
    script = (
        "import hashlib, random, sys\nh = hashlib.sha256()\nr = random.Random(1)\n"
        "for _ in range(100):\n d = r.randbytes(1 << 20)\n h.update(d)\n sys.stdout.buffer.write(d)\n"
        "sys.stdout.flush()\nsys.stderr.write(h.hexdigest())"
    )
    process = guest.start("python3", "-c", script)
    h = hashlib.sha256()
    for message in process:
        event = message["event"]
        if "stdout" in event.get("data", {}):
            h.update(base64.b64decode(event["data"]["stdout"]))
        elif "stderr" in event.get("data", {}):
            said = base64.b64decode(event["data"]["stderr"]).decode()
    assert h.hexdigest() == said


def progress_script(path, total):
    """Writes `total` MiB and notes in a file how many are written."""
    return (
        f"import os\nf = os.open({str(path)!r}, os.O_WRONLY)\nfor i in range({total}):\n"
        " left = memoryview(bytes(1 << 20))\n while left: left = left[os.write(1, left):]\n os.pwrite(f, b'%4d' % (i + 1), 0)\n"
    )


def test_slow_reader_holds_the_command_only_while_attached(guest):
    written = lambda: int(guest.sh("cat /mnt/n")["stdout"].strip() or b"0")
    guest.sh("echo 0 > /mnt/n")
    slow = guest.start("python3", "-c", progress_script("/mnt/n", 60), rcvbuf=4096)
    fast = guest.connect(slow.pid)
    got = []
    thread = threading.Thread(target=lambda: got.append(fast.wait()))
    thread.start()
    last = [0, time.monotonic()]

    def is_still():
        n = written()
        if n != last[0]:
            last[:] = [n, time.monotonic()]
        return n >= 4 and time.monotonic() - last[1] > 0.5

    until(is_still)
    assert written() <= 12  # 4 MiB and what pipes and sockets hold
    assert guest.is_sanitized() or guest.daemon_memory() < 16 << 20
    slow.close()
    thread.join(BUSY_S)
    assert len(got[0]["stdout"]) == 60 << 20


@pytest.mark.long
def test_reader_that_reads_nothing_is_cut_off(guest):
    slow = guest.start("python3", "-c", "import sys; sys.stdout.write('x' * (20 << 20)); print('done', file=sys.stderr)", rcvbuf=4096)
    time.sleep(37)
    with pytest.raises(RpcError) as e:
        for _ in slow:
            pass
    assert e.value.code == "resource_exhausted"
    again = guest.connect(slow.pid)
    assert int(again.headers["abx-dropped-bytes"]) > 0
    assert again.wait()["stderr"] == b"done\n"


def test_lost_reader_leaves_the_command_running_and_a_ring(guest):
    script = "import sys; sys.stdin.read(1); sys.stdout.buffer.write(bytes(i // 65536 for i in range(10 << 20)))"
    lost = guest.start("python3", "-c", script, stdin=True)
    lost.close()
    until(lambda: guest.connections() == 0)
    guest.send(lost.pid, b"x")
    until(lambda: guest.pids() == [])
    again = guest.connect(lost.pid)
    result = again.wait()
    whole = bytes(i // 65536 for i in range(10 << 20))
    dropped = int(again.headers["abx-dropped-bytes"])
    assert (1 << 20) - 65536 < len(result["stdout"]) <= 1 << 20
    assert dropped + len(result["stdout"]) == len(whole)
    assert result["stdout"] == whole[dropped:]
    assert result["end"]["status"] == "exit status 0"


def test_client_that_lost_its_connection_gets_what_it_missed(guest):
    """By the number of bytes that it has, whoever else reads; without asking it gets what no one has read."""
    process = guest.sh_start("read x; printf one; printf two >&2; read x; printf three; read x; exit 3", stdin=True)
    other = guest.connect(process.pid)
    guest.send(process.pid, b"\n")
    assert (process.headers["abx-output-offset"], other.headers["abx-output-offset"]) == ("0", "0")
    for p in (process, other):
        got = b""
        while len(got) < 6:
            got += b"".join(map(base64.b64decode, next(p)["event"]["data"].values()))
    process.close()
    guest.send(process.pid, b"\n")
    other.until_output(b"three")
    for offset, out, err in ((0, b"onethree", b"two"), (2, b"ethree", b"two"), (5, b"three", b"o"), (9, b"ee", b""), (11, b"", b"")):
        again = guest.connect(process.pid, headers={"Abx-Output-Offset": str(offset)})
        assert again.headers["abx-output-offset"] == str(offset)
        assert "abx-dropped-bytes" not in again.headers
        got = {"stdout": b"", "stderr": b""}
        while sum(map(len, got.values())) < 11 - offset:
            for name, data in next(again)["event"]["data"].items():
                got[name] += base64.b64decode(data)
        assert (got["stdout"], got["stderr"]) == (out, err)
        again.close()
    for value, code in (("12", "out_of_range"), ("-1", "invalid_argument"), ("x", "invalid_argument"), ("", "invalid_argument")):
        assert error_of(guest.connect, process.pid, headers={"Abx-Output-Offset": value})[0] == code
    late = guest.connect(process.pid)
    assert late.headers["abx-output-offset"] == "11"
    guest.send(process.pid, b"\n")
    assert late.wait()["code"] == other.wait()["code"] == 3
    ended = guest.connect(process.pid, headers={"Abx-Output-Offset": "3"}).wait()
    assert (ended["stdout"], ended["stderr"], ended["code"]) == (b"three", b"two", 3)


def test_what_is_kept_of_read_output_is_bounded(guest):
    size = 5 << 20
    script = f"import sys, random; sys.stdout.buffer.write(random.Random(3).randbytes({size})); sys.stdout.flush(); sys.stdin.read(1)"
    process = guest.start("python3", "-c", script, stdin=True)
    whole = b""
    while len(whole) < size:
        whole += base64.b64decode(next(process)["event"]["data"]["stdout"])
    again = guest.connect(process.pid, headers={"Abx-Output-Offset": "100"})
    begin = int(again.headers["abx-output-offset"])
    assert int(again.headers["abx-dropped-bytes"]) == begin - 100
    assert size - (1 << 20) <= begin <= size - (1 << 20) + 65536
    guest.send(process.pid, b"x")
    assert again.wait()["stdout"] == whole[begin:]
    assert process.wait()["code"] == 0


def test_unread_output_of_many_commands_is_bounded(guest):
    for _ in range(40):
        guest.sh_start("head -c 1500000 /dev/zero").close()
    until(lambda: guest.pids() == [])
    assert guest.is_sanitized() or guest.daemon_memory() < 40 << 20


def test_finished_command_can_be_connected_to_but_is_not_listed(guest):
    process = guest.start("sh", "-c", "exit 5")
    process.wait()
    assert guest.pids() == []
    result = guest.connect(process.pid).wait()
    assert (result["stdout"], result["code"]) == (b"", 5)
    assert error_of(guest.connect, 999999) == ("not_found", "process with pid 999999 not found")


def test_keepalive(guest):
    process = guest.start("sleep", "5.5", headers={"Keepalive-Ping-Interval": "1"})
    assert process.wait()["keepalives"] >= 2  # five where nobody else has the processor


def test_connect_deadline_ends_the_stream_only(guest):
    process = guest.start("sleep", "100")
    stream = guest.connect(process.pid, headers={"Connect-Timeout-Ms": "200"})
    with pytest.raises(RpcError) as e:
        next(stream)
    assert e.value.code == "deadline_exceeded"
    assert guest.pids() == [process.pid]
