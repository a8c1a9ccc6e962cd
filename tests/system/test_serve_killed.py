"""`abx serve` that is killed and started again at once: what the one before still holds is waited for, what another process has is not."""

import os
import signal
import socket
import subprocess
import threading
from pathlib import Path

import processes
import pytest
from http_fakes import make_certificates
from service import Service
from waiting import BUSY_S, until

WAITS = "waiting for what the service that was killed still holds"
CONNECTIONS = 800  # a gateway closes them for longer than a service needs to come back


def end_hard(service):
    service.process.kill()
    service.process.wait()
    service.process.stdout.close()
    service.log.close()


def test_it_comes_back_on_its_port_however_busy_its_gateways_were(build_dir, base_template):
    with Service(build_dir, "--gateways", "2", "--max-client-connections", "20000") as service:
        port = service.port
        for _ in range(15):
            clients = [socket.create_connection(("127.0.0.1", port), BUSY_S) for _ in range(CONNECTIONS)]
            for client in clients[::2]:
                client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            end_hard(service)
            assert service.start().port == port
            for client in clients:
                client.close()
        box = service.create(timeout=600)["sandboxID"]
        assert service.kill(box) == 204
        service.until_clean()


def test_it_may_be_killed_at_any_time_of_its_start(build_dir, base_template):
    """Also while it starts a role: the child that is no role yet has all its locks. Nobody waits for its end."""
    with Service(build_dir, "--gateways", "4") as service:
        end_hard(service)
        command, killed = service.process.args, []
        command[command.index("127.0.0.1:0")] = f"127.0.0.1:{service.port}"
        for delay in range(60):
            one = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=service.env)
            killed.append(one)
            try:
                one.wait(delay / 300)
            except subprocess.TimeoutExpired:
                one.kill()
        said = [one.communicate()[1].decode() for one in killed]
        assert [one.returncode for one in killed] == [-signal.SIGKILL] * len(killed), said
        service.start()
        assert service.kill(service.create(timeout=600)["sandboxID"]) == 204
        service.until_clean()


@pytest.fixture
def killed(build_dir, base_template):
    """A service that was killed, and whose roles have ended."""
    service = Service(build_dir)
    try:
        service.start()
        roles = [pid for pids in service.roles().values() for pid in pids]
        end_hard(service)
        processes.wait_gone(roles)
        yield service
    finally:
        service.stop()
        service.remove()


def hide(listener):
    """Keeps a socket open that no process has: it is in a message that nobody has read. Closing the result ends it."""
    ends = socket.socketpair()
    socket.send_fds(ends[0], [b"x"], [listener.fileno()])
    listener.close()
    return ends


@pytest.mark.parametrize("is_tls", [False, True], ids=["public", "tls"])
def test_a_port_that_nobody_seems_to_have_is_waited_for(killed, tmp_path, is_tls):
    with socket.create_server(("127.0.0.1", killed.port)), pytest.raises(RuntimeError, match="is taken by process"):
        killed.start()  # the predecessor is not forgotten by a start that fails
    listener = socket.create_server(("127.0.0.1", 0 if is_tls else killed.port))
    port = listener.getsockname()[1]
    ends = hide(listener)
    if is_tls:
        make_certificates(tmp_path, "127.0.0.1")
        files = ["--tls-cert", tmp_path / "127.0.0.1.pem", "--tls-key", tmp_path / "127.0.0.1.key"]
        killed.args += [*files, "--tls-listen", f"127.0.0.1:{port}"]

    def release():
        until(lambda: WAITS in killed.logged(), "a service that waits")
        for end in ends:
            end.close()

    thread = threading.Thread(target=release)
    thread.start()
    killed.start()
    thread.join()
    assert f'{WAITS}" what="port {port} on 127.0.0.1"' in killed.logged()
    assert killed.logged().count(WAITS) == 1


def test_a_port_that_another_process_took_is_not_waited_for(killed):
    with socket.create_server(("127.0.0.1", killed.port)), pytest.raises(RuntimeError, match=f"is taken by process {os.getpid()}"):
        killed.start()
    assert WAITS not in killed.logged()


def test_after_a_stop_in_good_order_nothing_is_waited_for(build_dir, base_template):
    service = Service(build_dir)
    try:
        service.start().stop(signal.SIGTERM)
        ends = hide(socket.create_server(("127.0.0.1", service.port)))
        with pytest.raises(RuntimeError, match="is taken by another process"):
            service.start()
        assert WAITS not in service.logged()
        for end in ends:
            end.close()
        assert service.start()
    finally:
        service.stop()
        service.remove()


def test_files_that_it_was_still_writing_do_not_stay(killed):
    run = Path("/run/abx") / killed.instance()
    half = [folder / f"{name}.0123456789ab.tmp" for folder, name in (
        (killed.data_dir, "format"), (killed.data_dir, "admin.key"), (killed.data_dir / "local", "1000"), (run / "egress", "resolv.conf"))]
    for file in half:
        file.write_text("hal")
    killed.start().stop(signal.SIGTERM)
    assert [file for file in half if file.exists()] == []
    assert not run.exists(), list(run.rglob("*"))
