"""The configuration reaches the wire: where a client connects to, as whom, how often it tries."""

import os
import socket
import threading

import pytest
from service import Service
from waiting import BUSY_S

from libabx import Error


@pytest.fixture
def environment(monkeypatch, tmp_path):
    """An empty home and working folder, no variable of the configuration; sets the given ones."""
    for name in [n for n in os.environ if n.startswith(("ABX_", "E2B_", "ALICLOUD_", "ALIBABA_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ABX_LOCAL_DIR", str(tmp_path / "local"))
    monkeypatch.chdir(tmp_path)

    def put(**values):
        for name, value in values.items():
            monkeypatch.setenv(name, value)

    return put


def listing(abx):
    """abx_sandbox_list with a config that no option sets; the Error when it fails."""
    with abx.client() as client:
        config = abx.config()
        try:
            client.run("abx_sandbox_list", config, None)
        except Error as e:
            return e
        finally:
            abx.c.abx_config_unref(config)
    return None


@pytest.mark.parametrize("how", ["local", "ABX", "E2B", "bearer", "dotenv", "profile"])
def test_each_way_to_a_service(abx, build_dir, base_template, environment, tmp_path, how):
    with Service(build_dir, env={"ABX_LOCAL_DIR": str(tmp_path / "local")}) as service:
        values = {"ABX_SANDBOX_API_KEY": service.key, "ABX_SANDBOX_BASE_URL": service.origin}
        (tmp_path / ".abx").mkdir()
        if how == "ABX":
            environment(**values, ABX_SANDBOX_DOMAIN="example.com")
        elif how == "E2B":
            environment(E2B_API_KEY=service.key, E2B_API_URL=service.origin)
        elif how == "bearer":
            environment(**values, ABX_BEARER="true")
        elif how == "dotenv":
            (tmp_path / ".env").write_text("".join(f"export {k}='{v}'\n" for k, v in values.items()))
        elif how == "profile":
            environment(ABX_PROFILE="work")
            (tmp_path / ".abx/.env.work").write_text(f"ABX_SANDBOX_API_KEY={service.key}\n")
            (tmp_path / ".abx/.env").write_text("ABX_SANDBOX_API_KEY=e2b_of_another_service\n")
            (tmp_path / ".abx/config.toml").write_text(f'[profiles.work]\nsandbox_base_url = "{service.origin}"\n')
        assert listing(abx) is None
        if how == "local":
            service.stop()
            failed = listing(abx)
            assert (failed.code, failed.reason) == ("UNAUTHENTICATED", "NO_CREDENTIALS")


@pytest.mark.parametrize(("retries", "connections"), [("0", 1), ("2", 3), (None, 4)])
def test_connection_retries(abx, environment, retries, connections):
    """Each connection ends before the TLS handshake: nothing was sent, so it is tried again as often as configured."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        count = 0

        def accept():
            nonlocal count
            while True:
                try:
                    peer, _ = server.accept()
                except OSError:
                    return
                count += 1
                peer.close()

        thread = threading.Thread(target=accept)
        thread.start()
        environment(ABX_SANDBOX_API_KEY="k", ABX_SANDBOX_BASE_URL=f"https://127.0.0.1:{server.getsockname()[1]}")
        if retries is not None:
            environment(ABX_CONNECTION_RETRIES=retries)
        failed = listing(abx)
        server.shutdown(socket.SHUT_RDWR)
        thread.join(BUSY_S)
    assert failed.code == "UNAVAILABLE"
    assert count == connections
