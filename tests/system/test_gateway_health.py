"""Control's question whether a sandbox's daemon answers, at the real abx-gateway between fakes."""

import contextlib
import threading

import ipc_frames as ipc
from gateway_fakes import World
from gateway_kit import Raw, begin_stream, client, fds, needs_root, to, world  # noqa: F401
from waiting import BUSY_S, until

pytestmark = needs_root


def health(world, name="ia", ms=60_000):
    """None: it is well. Else (code, message) of the refusal."""
    body, fields = world.control.ask(ipc.HEALTH, [(1, name), (2, ms)])
    if body == ipc.HEALTH_REPLY:
        return None
    assert body == ipc.ERROR
    return fields[1][0], ipc.text(fields, 3)


def answer_with(raw, text):
    """One connection to the daemon's port is answered so; the request that came."""
    seen = []

    def serve():
        conn, head = raw.accept()
        seen.append(head)
        conn.sendall(text)
        seen.append(conn)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread, seen


def test_a_daemon_that_answers_is_well(world, client):
    sandbox = world.sandbox("ia")
    server = sandbox.echo()
    assert health(world) is None
    assert server.seen == [("GET", "/health", 0)]
    # While streams run in it, and with the answer that envd gives.
    begin_stream(world, client, "ib")
    raw = Raw(world.sandbox("ic"))
    thread, seen = answer_with(raw, b"HTTP/1.1 204 No Content\r\n\r\n")
    assert health(world, "ic") is None
    thread.join(BUSY_S)
    assert seen[0].startswith(b"GET /health HTTP/1.1\r\n")


def test_what_is_not_well_and_why(world):
    assert health(world, "inone") == (ipc.NOT_FOUND, "no sandbox")
    sandbox = world.sandbox("ia")  # nobody listens
    code, message = health(world)
    assert code == ipc.UNAVAILABLE and "refused" in message.lower(), message
    raw = Raw(sandbox)
    thread, _ = answer_with(raw, b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")
    assert health(world) == (ipc.UNAVAILABLE, "it answers with status 500")
    thread.join(BUSY_S)
    thread, _ = answer_with(raw, b"what?\r\n\r\n")
    assert health(world) is not None
    thread.join(BUSY_S)


def test_a_daemon_that_hangs_has_a_deadline(world):
    before = fds(world)
    raw = Raw(world.sandbox("ia"))
    assert health(world, ms=300) == (ipc.DEADLINE_EXCEEDED, "it does not answer within 300 ms")
    # A head without the body that it promises is an answer.
    raw = Raw(world.sandbox("ib"))
    thread, seen = answer_with(raw, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
    assert health(world, "ib", 60_000) is None
    thread.join(BUSY_S)
    seen[1].close()
    world.engine.hangs = True
    assert health(world, ms=300)[0] == ipc.DEADLINE_EXCEEDED
    world.engine.hangs = False
    until(lambda: fds(world) == before, lambda: f"{before} descriptors, has {fds(world)}")


def test_the_head_is_the_answer(world):
    """Whatever follows it: nobody waits for that, or reads it."""
    raw = Raw(world.sandbox("ia"))
    sent = []

    def pour():
        conn, _ = raw.accept()
        n = 0
        with contextlib.suppress(OSError), conn:
            conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n")
            while True:
                n += conn.send(b"x" * 65536)
        sent.append(n)

    thread = threading.Thread(target=pour)
    thread.start()
    assert health(world, ms=10000) is None
    thread.join(60)
    assert sent[0] < 64 << 20  # what the kernel takes


def test_a_gateway_that_ends_leaves_no_question(build_dir, tmp_path):
    """Its sanitizer and its exit status say so."""
    world = World(build_dir, tmp_path)
    raw = Raw(world.sandbox("ia"))
    world.control.table.wait_peers()[0].send(ipc.HEALTH, [(1, "ia"), (2, 60000)], 7)
    conn, _ = raw.accept()
    assert world.close() == 0
    conn.close()
