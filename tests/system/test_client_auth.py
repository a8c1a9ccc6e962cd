"""Who a client says it is: signatures checked by a second implementation, and secrets that stay where they belong."""

import os

import pytest
from acs3_peer import KEY_ID, SECRET, Peer
from service import Service

from libabx import Error

UNSET = -1
SANDBOX = {"sandboxID": "i1", "templateID": "base", "clientID": "c", "envdVersion": "0.6.13"}


@pytest.fixture
def run(abx):
    """Runs one call with a config of the given options; the call or its Error."""

    def go(function, *args, **options):
        with abx.client() as client:
            config = abx.config(**options)
            try:
                call = client.call(function, config, *args)
                try:
                    call.wait()
                except Error as e:
                    return e
                return None
            finally:
                abx.c.abx_config_unref(config)

    return go


def signed(peer, **more):
    return {"api_url": peer.origin, "access_key_id": KEY_ID, "access_key_secret": SECRET, **more}


def test_requests_of_each_form_are_signed(abx, run):
    listing = abx.struct("abx_list_opts", metadata={"a b": "x*y~", "ü": "ä/+&=", "A": ""}, limit=7)
    creating = abx.struct("abx_create_opts", metadata={"k": "v"}, envs={"A": "ü"})
    for path in ("", "/prefix/v1"):
        for function, args, status, answer in [
            ("abx_sandbox_list", (listing,), 200, []),
            ("abx_sandbox_create", (creating,), 201, SANDBOX),
            ("abx_sandbox_kill", ("i1", UNSET), 204, None),
            ("abx_snapshot_delete", ("team/x:default", UNSET), 204, None),
            ("abx_sandbox_set_timeout", ("i1", 60, UNSET), 204, None),
        ]:
            with Peer([(status, answer)]) as peer:
                failed = run(function, *args, **signed(peer, api_url=peer.origin + path))
                assert (failed, peer.refusals, len(peer.requests)) == (None, [], 1), function


def test_a_temporary_key_sends_its_token(run):
    with Peer([(200, [])]) as peer:
        assert run("abx_sandbox_list", None, **signed(peer, security_token="sts-token")) is None
        assert dict(peer.requests[0][2])["x-acs-security-token"] == "sts-token"
        assert not peer.refusals


def test_own_headers_do_not_break_it(run):
    with Peer([(201, SANDBOX)]) as peer:
        headers = {"Content-Type": "application/json; charset=utf-8", "X-Other": "1"}
        assert run("abx_sandbox_create", None, **signed(peer, headers=headers)) is None
        assert not peer.refusals


def test_each_attempt_has_a_signature_of_its_own(run):
    with Peer([(503, {"code": 503, "message": "busy"})] * 2 + [(200, [])]) as peer:
        assert run("abx_sandbox_list", None, **signed(peer)) is None
        assert (len(peer.requests), len(peer.nonces), peer.refusals) == (3, 3, [])


def test_a_wrong_secret_is_told_without_it(run):
    with Peer([(200, [])]) as peer:
        failed = run("abx_sandbox_list", None, **signed(peer, access_key_secret="wrong-hunter2"))
        assert failed.code == "UNAUTHENTICATED" and failed.http_status == 401
        assert "signature does not match" in failed.message and "hunter2" not in failed.message


def test_no_credentials(run, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ABX_LOCAL_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name in [n for n in os.environ if n.startswith(("ABX_SANDBOX", "E2B_", "ALICLOUD_"))]:
        monkeypatch.delenv(name)
    with Peer([(200, [])]) as peer:
        failed = run("abx_sandbox_list", None, api_url=peer.origin)
        assert (failed.code, failed.reason) == ("UNAUTHENTICATED", "NO_CREDENTIALS")
        assert "sudo abx key local --user $USER" in failed.message and "ABX_SANDBOX_API_KEY" in failed.message
        assert not peer.requests


SECRETS = {
    "api_key": "hunter2-api-key", "access_token": "hunter2-token", "access_key_id": "hunter2-id",
    "access_key_secret": "hunter2-secret", "security_token": "hunter2-sts",
}  # fmt: skip


@pytest.mark.parametrize("answer", [(401, {"code": 401, "message": "no"}), (500, {"code": 500, "message": "no"}), (200, {})])
@pytest.mark.parametrize("names", [("api_key",), ("api_key", "access_token"), ("access_key_id", "access_key_secret")])
def test_errors_and_urls_name_no_secret(run, answer, names):
    options = {name: SECRETS[name] for name in names}
    with Peer([answer]) as peer:
        failed = run("abx_sandbox_list", None, api_url=peer.origin, **options)
        assert failed is not None and "hunter2" not in failed.message
        assert all("hunter2" not in path for _, path, _, _ in peer.requests)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://name.invalid"])
def test_errors_of_connections_name_no_secret(run, url):
    options = {name: SECRETS[name] for name in ("access_key_id", "access_key_secret", "security_token")}
    failed = run("abx_sandbox_list", None, api_url=url, **options)
    assert failed.code == "UNAVAILABLE" and "hunter2" not in failed.message


def test_logs_of_the_service_name_no_key(build_dir, base_template, run):
    with Service(build_dir, env={"ABX_LOG_LEVEL": "debug"}) as service:
        made = service.run_abx("key", "create", "--name", "x").stdout.strip()
        local = (service.data_dir / "local/0.key").read_text().strip()
        for key in (service.key, made, local):
            assert run("abx_sandbox_list", None, api_url=service.origin, api_key=key) is None
        failed = run("abx_sandbox_list", None, api_url=service.origin, api_key="e2b_" + "0" * 40)
        assert failed.code == "UNAUTHENTICATED" and "0" * 40 not in failed.message
        service.stop()
        text = (service.data_dir / "serve.log").read_text() + "\n".join(service.printed)
        assert not any(key in text for key in (service.key, made, local, "0" * 40))
