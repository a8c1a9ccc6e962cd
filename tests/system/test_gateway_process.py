"""The real abx-gateway as a process: other roles restart, rights are given up, it stops, logs, and survives a storm."""

import signal
import socket
import struct
import threading
import time

import ipc_frames as ipc
import pytest
from gateway_fakes import CREATING, ENVD, PAUSED, PAUSING, RUNNING, Client, World
from gateway_kit import CHUNKED, GONE, Raw, begin_stream, client, expect_reset, fds, needs_root, to, world  # noqa: F401
from waiting import BUSY_S, until

pytestmark = needs_root

# --- roles that restart ----------------------------------------------------------------------------------------------


def test_requests_wait_for_control(world, client):
    world.sandbox("ia").echo()
    assert client.request("GET", "/", to("ia")).status == 200
    world.control.stop()
    # Known sandboxes are served meanwhile.
    assert client.request("GET", "/", to("ia")).status == 200
    late, lost = Client(world), Client(world)
    late.send("POST", "/sandboxes", {}, b"{}")
    lost.send("GET", "/health", to("inone"))
    late.sock.settimeout(0.4)
    with pytest.raises(TimeoutError):
        late.sock.recv(1)
    late.sock.settimeout(BUSY_S)
    world.control.start()
    assert late.response().json()["who"] == "control"
    assert lost.response().json() == {"sandboxId": "inone", **GONE}
    assert client.request("GET", "/", to("ia")).status == 200
    late.close()
    lost.close()


def test_requests_wait_for_the_engine(world, client):
    world.sandbox("ia").echo()
    world.engine.link.stop()
    client.send("POST", "/", to("ia"), b"b")
    client.sock.settimeout(0.4)
    with pytest.raises(TimeoutError):
        client.sock.recv(1)
    client.sock.settimeout(BUSY_S)
    world.engine.link.start()
    assert client.response().json()["body"] == "b"


def test_waiting_ends_with_503(build_dir, tmp_path):
    world = World(build_dir, tmp_path, "--wait-ms", "300")
    world.sandbox("ia").echo()
    world.engine.link.stop()
    client = Client(world)
    got = client.request("POST", "/", to("ia"), b"b")
    assert got.status == 503 and got.fields["should-retry"] == "true" and got.fields["retry-after"] == "1"
    assert got.json()["sandboxId"] == "ia" and got.json()["code"] == 503
    world.control.stop()
    for method, path, headers in (("POST", "/sandboxes", {}), ("GET", "/health", {}), ("GET", "/", to("inone"))):
        began = time.monotonic()
        got = client.request(method, path, headers)
        assert got.status == 503 and got.fields["should-retry"] == "true"
        assert got.json()["code"] == 503
        assert 0.25 < time.monotonic() - began < 20
    client.close()
    assert world.close() == 0


def test_waiting_for_a_role_that_hangs_ends_with_503(build_dir, tmp_path):
    """Connected, and silent: a stopped process looks like this. Nothing was sent to a sandbox yet."""
    world = World(build_dir, tmp_path, "--wait-ms", "300")
    world.sandbox("ia").echo()
    client = Client(world)
    world.engine.hangs = world.control.hangs = True
    for name in ("ia", "inone", "ia"):
        began = time.monotonic()
        got = client.request("POST", "/", to(name), b"b")
        assert got.status == 503 and got.fields["should-retry"] == "true" and got.json()["sandboxId"] == name
        assert 0.25 < time.monotonic() - began < 20
    world.engine.hangs = world.control.hangs = False
    world.engine.link.stop()  # it is killed and comes again
    world.engine.link.start()
    assert client.request("POST", "/", to("ia"), b"b").status == 200
    client.close()
    assert world.close() == 0


def is_silent(client, seconds):
    client.sock.settimeout(seconds)
    try:
        return client.sock.recv(1) is None
    except TimeoutError:
        client.sock.settimeout(BUSY_S)
        return True


def test_all_who_wait_for_a_wake_wait_as_long_as_who_asked(build_dir, tmp_path):
    """Longer than for a role that restarts; those who may not wake it do not, and no second question is asked."""
    world = World(build_dir, tmp_path, "--wait-ms", "300")
    sandbox = world.sandbox("ia", state=PAUSED, wakes=True, access_token="secret")
    sandbox.echo()
    asker, second, third, stranger, elsewhere = (Client(world) for _ in range(5))
    asker.send("GET", "/1", to("ia", **{"X-Access-Token": "secret"}))
    peer, name, seq = world.control.wakes.get(timeout=BUSY_S)
    assert name == "ia"
    second.send("GET", "/2", to("ia", **{"X-Access-Token": "secret"}))
    assert is_silent(second, 0.5)
    sandbox.state = PAUSING  # it is on its way: whoever comes now waits for that
    world.control.put(sandbox)
    third.send("GET", "/3", to("ia", **{"X-Access-Token": "secret"}))
    stranger.send("GET", "/4", to("ia"))
    got = stranger.response()
    assert got.status == 409 and "transitioning" in got.json()["message"]
    assert all(is_silent(c, 0.5) for c in (asker, second, third))
    # The same at a gateway that did not ask: only the row tells it.
    other = world.sandbox("ib", state=PAUSING, wakes=True)
    other.echo()
    elsewhere.send("GET", "/5", to("ib"))
    assert is_silent(elsewhere, 1)
    for one in (sandbox, other):
        one.state = RUNNING
        world.control.put(one)
    peer.send(ipc.WAKE_REPLY, [], seq)
    assert [c.response().json()["path"] for c in (asker, second, third, elsewhere)] == ["/1", "/2", "/3", "/5"]
    assert world.control.wakes.empty()
    for c in (asker, second, third, stranger, elsewhere):
        c.close()
    assert world.close() == 0


def test_a_wake_is_asked_for_again_while_a_role_is_away(build_dir, tmp_path):
    """Who asked waits like those that wait with it: the engine is away, then control."""
    world = World(build_dir, tmp_path, "--wait-ms", "300")
    sandbox = world.sandbox("ia", state=PAUSED, wakes=True)
    sandbox.echo()
    clients = [Client(world) for _ in range(3)]
    for n, c in enumerate(clients):
        c.send("GET", f"/{n}", to("ia"))
    for _ in range(3):
        peer, _, seq = world.control.wakes.get(timeout=BUSY_S)
        peer.send(ipc.ERROR, [(1, ipc.UNAVAILABLE), (3, "the engine is not there")], seq)
    world.control.wakes.get(timeout=BUSY_S)
    world.control.stop()
    assert all(is_silent(c, 0.3) for c in clients)
    world.control.start()
    peer, _, seq = world.control.wakes.get(timeout=BUSY_S)
    sandbox.state = RUNNING
    world.control.put(sandbox)
    peer.send(ipc.WAKE_REPLY, [], seq)
    assert [c.response().json()["path"] for c in clients] == ["/0", "/1", "/2"]
    # What is no matter of waiting is told at once.
    sandbox.state = PAUSED
    world.control.put(sandbox)
    clients[0].send("GET", "/", to("ia"))
    peer, _, seq = world.control.wakes.get(timeout=BUSY_S)
    peer.send(ipc.ERROR, [(1, ipc.UNAVAILABLE), (2, ipc.BUSY), (3, "it is busy")], seq)
    got = clients[0].response()
    assert got.status == 503 and got.json()["message"] == "it is busy"
    for c in clients:
        c.close()
    assert world.close() == 0


def test_news_of_a_sandbox_wake_its_own_requests_alone(build_dir, tmp_path):
    """With many sandboxes and many that wait, each news would be work for all of them."""
    world = World(build_dir, tmp_path)
    for name in ("ia", "ib"):
        world.sandbox(name, told=False).echo()
    news = world.sandbox("ic", state=CREATING)
    news.echo()
    world.control.fails = True
    first, second, third = (Client(world) for _ in range(3))
    for client, name in ((first, "ia"), (second, "ib"), (third, "ic")):
        client.send("GET", f"/{name}", to(name))
    until(lambda: sorted(world.control.lookups) == ["ia", "ib"])  # and wait, since there is no answer
    world.control.fails = False
    for state in (CREATING, RUNNING):
        news.state = state
        world.control.put(news)
    assert third.response().status == 200
    assert sorted(world.control.lookups) == ["ia", "ib"]
    for client, name in ((second, "ib"), (first, "ia")):
        world.control.put(world.control.hidden.pop(name))
        assert client.response().json()["path"] == f"/{name}"
    for client in (first, second, third):
        client.close()
    assert world.close() == 0


@pytest.mark.parametrize("end", ["killed", "died"])
def test_who_waits_for_a_sandbox_that_ends_hears_so(build_dir, tmp_path, end):
    """Whatever it waited for, and nothing else happens at this gateway that would make it look again."""
    world = World(build_dir, tmp_path, "--wait-ms", "20000")
    woken = world.sandbox("ia", state=PAUSED, wakes=True, access_token="secret")
    made = world.sandbox("ib", state=CREATING)
    asker, second, third, early = (Client(world) for _ in range(4))
    asker.send("GET", "/1", to("ia", **{"X-Access-Token": "secret"}))
    peer, _, seq = world.control.wakes.get(timeout=BUSY_S)
    second.send("GET", "/2", to("ia", **{"X-Access-Token": "secret"}))
    woken.state = PAUSING
    world.control.put(woken)
    third.send("GET", "/3", to("ia", **{"X-Access-Token": "secret"}))
    early.send("GET", "/4", to("ib"))
    assert all(is_silent(c, 0.3) for c in (asker, second, third, early))
    peer.send(ipc.ERROR, [(1, ipc.NOT_FOUND), (3, "killed meanwhile")], seq)
    for one, clients in ((woken, (asker, second, third)), (made, (early,))):
        if end == "killed":
            world.control.remove(one)
        else:
            world.control.rows.pop(one.name)
            world.engine.died(one)
        for c in clients:
            got = c.response()
            assert (got.status, got.json()) == (502, {"sandboxId": one.name, **GONE})
    for c in (asker, second, third, early):
        c.close()
    assert world.close() == 0


def test_a_live_sandbox_that_the_engine_does_not_know_is_not_called_gone(build_dir, tmp_path):
    world = World(build_dir, tmp_path, "--wait-ms", "500")
    sandbox = world.sandbox("ia")
    sandbox.echo()
    del world.engine.sandboxes["ia"]
    client = Client(world)
    got = client.request("GET", "/", to("ia"))
    assert got.status == 503 and got.fields["should-retry"] == "true"
    world.engine.sandboxes["ia"] = sandbox
    assert client.request("GET", "/", to("ia")).status == 200
    client.close()
    assert world.close() == 0


def test_rows_that_control_does_not_send_again_are_gone(world, client):
    world.sandbox("ia").echo()
    assert client.request("GET", "/", to("ia")).status == 200
    stream = Client(world)
    begin_stream(world, stream, "ib")
    world.control.stop()
    world.control.rows.clear()
    world.control.start()
    world.control.table.wait_peers()
    expect_reset(stream.sock)
    assert client.request("GET", "/", to("ia")).json() == {"sandboxId": "ia", **GONE}
    stream.close()


def test_control_breaking_off_is_not_repeated(build_dir, tmp_path):
    world = World(build_dir, tmp_path)
    world.control.http.close()
    path = tmp_path / "control.sock"
    path.unlink()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    client = Client(world)
    client.send("POST", "/sandboxes", {}, b"{}")
    listener.settimeout(BUSY_S)
    conn, _ = listener.accept()
    assert conn.recv(1000)
    conn.close()
    got = client.response()
    assert got.status == 502 and got.fields["should-retry"] == "false" and got.json()["code"] == 502
    listener.settimeout(0.2)
    with pytest.raises(TimeoutError):
        listener.accept()
    listener.close()
    client.close()
    world.control.http = None
    assert world.close() == 0


# --- the process -----------------------------------------------------------------------------------------------------


def test_rights_are_given_up(build_dir, tmp_path):
    tmp_path.chmod(0o755)
    world = World.__new__(World)
    gateway_args = ("--uid", "1879000001", "--gid", "1879000001")
    for parent in tmp_path.parents:
        if parent.stat().st_uid == 0 and parent != parent.parent:
            parent.chmod(parent.stat().st_mode | 0o011)
    World.__init__(world, build_dir, tmp_path, *gateway_args)
    status = dict(line.split(":\t", 1) for line in open(f"/proc/{world.process.pid}/status").read().splitlines()
                  if ":\t" in line)
    assert set(status["Uid"].split()) == set(status["Gid"].split()) == {"1879000001"}
    assert status["Groups"].strip() == ""
    assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2"
    assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0
    world.sandbox("ia").echo()
    client = Client(world)
    assert client.request("GET", "/", to("ia")).status == 200
    assert client.request("GET", "/sandboxes").status == 200
    client.close()
    assert world.close() == 0


def test_sigterm_lets_requests_end(build_dir, tmp_path):
    world = World(build_dir, tmp_path)
    client = Client(world)
    _, _, conn = begin_stream(world, client)
    world.process.terminate()
    time.sleep(0.2)
    assert world.process.poll() is None
    conn.sendall(b"3\r\nend\r\n0\r\n\r\n")
    assert client.chunk() == b"end" and client.chunk() == b""
    client.close()
    assert world.process.wait(BUSY_S) == 0
    assert world.close() == 0


def begin_request(world, name):
    """(client, the sandbox's end) of a request that has had no answer yet."""
    client, raw = Client(world), Raw(world.sandbox(name))
    client.send("GET", "/", to(name))
    return client, raw.accept()[0]


def test_sigint_lets_requests_end_but_no_stream(build_dir, tmp_path):
    """Its sandboxes are about to be killed: what has no end of its own is broken off."""
    world = World(build_dir, tmp_path, "--drain-ms", "3600000")
    streaming = Client(world)
    begin_stream(world, streaming)
    answered, answers = begin_request(world, "ib")
    late, begins_late = begin_request(world, "ic")
    world.process.send_signal(signal.SIGINT)
    expect_reset(streaming.sock)
    begins_late.sendall(CHUNKED + b"5\r\nhello\r\n")
    expect_reset(late.sock)
    assert world.process.poll() is None
    answers.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwhole")
    assert answered.response().body == b"whole"
    for client in (streaming, answered, late):
        client.close()
    assert world.process.wait(BUSY_S) == 0
    assert world.close() == 0


def test_who_is_asked_twice_to_stop_does_at_once(build_dir, tmp_path):
    world = World(build_dir, tmp_path, "--drain-ms", "3600000")
    client = Client(world)
    begin_stream(world, client)
    # Two that come too fast are one.
    until(lambda: world.process.poll() is not None or world.process.terminate(), "its end")
    assert world.process.returncode == 0
    expect_reset(client.sock)
    client.close()
    assert world.close() == 0


def lines_of(world, request_id):
    return [line for line in world.logged().splitlines() if request_id in line]


def test_failures_are_logged_with_the_request_id_and_without_secrets(build_dir, tmp_path):
    world = World(build_dir, tmp_path, "--wait-ms", "100")
    client = Client(world)
    secret = {"X-Access-Token": "geheim", "Authorization": "geheim"}
    assert client.request("GET", "/x", to("inone", **{"Abx-Request-Id": "rid-gone"}, **secret)).status == 502
    world.control.stop()
    got = client.request("GET", "/files?signature=v1_geheim", to("inone", **{"Abx-Request-Id": "rid-503"}, **secret))
    assert got.status == 503
    client.close()
    assert world.close() == 0
    [line] = lines_of(world, "rid-503")
    assert "warn" in line and "503" in line and "inone" in line and "/files" in line
    assert lines_of(world, "rid-gone") == []
    assert "geheim" not in (tmp_path / "gateway.log").read_text()


def test_the_access_log_has_a_line_for_each_request(build_dir, tmp_path):
    world = World(build_dir, tmp_path, "--access-log")
    world.sandbox("ia").echo()
    client = Client(world)
    client.request("POST", "/p?q=geheim", to("ia", **{"Abx-Request-Id": "rid-1"}), b"x")
    client.request("GET", "/sandboxes", {"Abx-Request-Id": "rid-2"})
    client.close()
    assert world.close() == 0
    [one], [two] = lines_of(world, "rid-1"), lines_of(world, "rid-2")
    assert 'method="POST" path="/p" sandbox="ia" status="200"' in one
    assert 'method="GET" path="/sandboxes" sandbox="-" status="200"' in two
    assert "geheim" not in one


@pytest.mark.slow
def test_after_a_storm_nothing_is_left(world):
    """Clients that come, stall and break off while sandboxes end and roles restart: the gateway lives, answers, and
    holds no more descriptors than before."""
    import random

    Client(world).close()
    before = fds(world)
    stop = time.monotonic() + 12
    names = [f"i{n}" for n in range(6)]
    sandboxes = {}
    failures = []

    def revive(name):
        sandboxes[name] = world.sandbox(name)
        sandboxes[name].echo()
        sandboxes[name].echo(3000)

    def client_storm(seed):
        rng = random.Random(seed)
        while time.monotonic() < stop:
            try:
                c = Client(world)
                c.sock.settimeout(BUSY_S)
                for _ in range(rng.randrange(1, 6)):
                    headers = to(rng.choice(names + ["inone"]), rng.choice([ENVD, 3000, 3000, 3001]))
                    kind = rng.randrange(8)
                    if kind == 0:  # half a request
                        c.sock.sendall(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Le")
                        break
                    if kind == 1:  # half a body
                        c.sock.sendall(f"POST / HTTP/1.1\r\nHost: h\r\nE2b-Sandbox-Id: {headers['E2b-Sandbox-Id']}\r\n"
                                       f"E2b-Sandbox-Port: {headers['E2b-Sandbox-Port']}\r\n"
                                       "Content-Length: 100000\r\n\r\n".encode() + b"x" * rng.randrange(90000))
                        break
                    if kind == 2:  # leaves without waiting
                        c.send("GET", "/", headers)
                        break
                    if kind == 3:
                        c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        c.send("POST", "/", headers, b"x" * 1000)
                        break
                    got = c.request("POST", "/", headers if kind != 4 else {}, b"y" * rng.randrange(200000))
                    if got.status not in (200, 502, 503):
                        failures.append(got)
                c.close()
            except (ConnectionError, EOFError):
                pass  # a sandbox that ended took it along
            except Exception as e:
                failures.append(e)

    for name in names:
        revive(name)
    threads = [threading.Thread(target=client_storm, args=(n,)) for n in range(12)]
    for t in threads:
        t.start()
    rng = random.Random(1)
    while time.monotonic() < stop:
        time.sleep(rng.random() / 4)
        name = rng.choice(names)
        what = rng.randrange(8)
        if what < 4:
            world.kill(sandboxes[name])
            revive(name)
        elif what < 6:
            world.control.rows.pop(name)
            world.engine.died(sandboxes[name])
            revive(name)
        elif what == 6:
            world.engine.link.stop()
            time.sleep(0.1)
            world.engine.link.start()
            world.engine.link.wait_peers()
        else:
            world.control.stop()
            time.sleep(0.1)
            world.control.start()
            world.control.table.wait_peers()
    for t in threads:
        t.join(2 * BUSY_S)
        assert not t.is_alive()
    assert failures == []
    assert world.process.poll() is None
    for name in names:
        world.kill(sandboxes[name])
    world.control.stop()  # its idle connections
    world.control.start()
    world.control.table.wait_peers()
    until(lambda: fds(world) <= before, lambda: f"{before} descriptors, has {fds(world)}")
