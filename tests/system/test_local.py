"""The service on this machine is found by clients: who, when, and when not."""

import json
import os
import shutil
import signal
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest
from service import Service
from waiting import BUSY_S, until

USER = 12345  # a uid without a name
OTHER = 12346


@pytest.fixture
def local_dir():
    """A folder like /run/abx/local, whose parents every user may pass."""
    top = Path(tempfile.mkdtemp(prefix="abx-local-"))
    top.chmod(0o711)
    yield top / "local"
    shutil.rmtree(top)


@pytest.fixture
def service(build_dir, base_template, local_dir):
    with Service(build_dir, "--local-user", str(USER), env={"ABX_LOCAL_DIR": str(local_dir), "SUDO_UID": ""}) as s:
        yield s


@pytest.fixture(scope="module")
def client(build_dir):
    """A copy of `abx` and its client where every user may execute it."""
    top = Path(tempfile.mkdtemp(prefix="abx-client-"))
    (top / "libexec").mkdir()
    shutil.copy2(build_dir / "abx", top)
    shutil.copy2(build_dir / "libexec/abx-client", top / "libexec")
    top.chmod(0o755)
    yield top / "abx"
    shutil.rmtree(top)


def config(client, local_dir, uid=0, **env):
    """`abx config list` of a user with an empty home, as {key: (value, origin)}."""
    clean = {"PATH": os.environ["PATH"], "ABX_LOCAL_DIR": str(local_dir), "HOME": "/nonexistent", **env}
    run = subprocess.run(
        [client, "config", "list", "--json", "--reveal"],
        env=clean, cwd="/", user=uid, group=uid, extra_groups=[], capture_output=True, text=True, timeout=BUSY_S,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return {key: (row["value"], row["origin"]) for key, row in json.loads(run.stdout).items()}


def status_with(service, key):
    return service.request("GET", "/v2/sandboxes", headers={"X-API-Key": key})[0]


def local_keys(service):
    """Names of the keys of local users, active ones only."""
    keys = json.loads(service.run_abx("key", "list", "--json").stdout)
    return sorted(k["name"] for k in keys if k["name"].startswith("local ") and not k["revoked_at"])


def all_keys(service):
    return json.loads(service.run_abx("key", "list", "--json").stdout)


def test_files_and_their_owners(service, local_dir):
    assert stat.S_IMODE(local_dir.stat().st_mode) == 0o711 and local_dir.stat().st_uid == 0
    for uid in (0, USER):
        st = (local_dir / f"{uid}.env").stat()
        assert (stat.S_IMODE(st.st_mode), st.st_uid) == (0o600, uid)
    assert stat.S_IMODE((local_dir / "service").stat().st_mode) == 0o600
    kept = service.data_dir / "local"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700
    assert {p.name for p in kept.iterdir()} == {"0.key", f"{USER}.key"}
    assert all(stat.S_IMODE(p.stat().st_mode) == 0o600 for p in kept.iterdir())
    assert local_keys(service) == [f"local {USER}", "local root"]
    assert not list(local_dir.glob("*.new"))


@pytest.mark.parametrize("uid", [0, USER])
def test_a_user_finds_it(client, service, local_dir, uid):
    found = config(client, local_dir, uid)
    origin = f"local service {local_dir}/{uid}.env"
    assert found["sandbox_base_url"] == (service.origin, origin)
    assert found["sandbox_domain"] == (f"localhost:{service.port}", origin)
    assert found["sandbox_api_key"][1] == origin
    assert status_with(service, found["sandbox_api_key"][0]) == 200


def test_who_has_no_file_does_not(client, service, local_dir):
    found = config(client, local_dir, OTHER)
    assert found["sandbox_api_key"] == (None, None)
    assert found["sandbox_base_url"][1] == "default"
    run = subprocess.run(["cat", local_dir / f"{USER}.env"], user=OTHER, group=OTHER, extra_groups=[], capture_output=True)
    assert run.returncode != 0 and not run.stdout


def test_one_source(client, service, local_dir):
    found = config(client, local_dir, E2B_DOMAIN="example.com")
    assert found["sandbox_api_key"] == (None, None)
    assert found["sandbox_base_url"] == ("https://api.example.com", "from sandbox_domain")


def test_key_local(client, build_dir, service, local_dir):
    run = service.run_abx("key", "local", "--user", str(OTHER))
    assert run.returncode == 0, run.stderr
    assert run.stdout == f"clients of user {OTHER} find {service.origin} by themselves\n"
    key = config(client, local_dir, OTHER)["sandbox_api_key"][0]
    assert status_with(service, key) == 200
    # Once more: the same key. Without --data-dir: the service that users find.
    env = {**os.environ, "ABX_LOCAL_DIR": str(local_dir)}
    run = subprocess.run(
        [build_dir / "abx", "key", "local", "--user", str(OTHER), "--json"], env=env, capture_output=True, text=True
    )
    assert json.loads(run.stdout)["data_dir"] == str(service.data_dir)
    assert config(client, local_dir, OTHER)["sandbox_api_key"][0] == key
    assert local_keys(service).count(f"local {OTHER}") == 1
    # Revoked: it opens nothing; asked for again, there is a new one.
    assert service.run_abx("key", "revoke", key).returncode == 0
    assert status_with(service, key) == 401
    assert service.run_abx("key", "local", "--user", str(OTHER)).returncode == 0
    new = config(client, local_dir, OTHER)["sandbox_api_key"][0]
    assert new != key and status_with(service, new) == 200


def test_key_local_refuses(service):
    cases = [
        (["--user", "no-such-user"], 4, "there is no user 'no-such-user'"),
        ([], 2, "local needs --user NAME"),
        (["--user", "0", "x"], 2, "takes no argument 'x'"),
    ]
    for args, status, message in cases:
        run = service.run_abx("key", "local", *args)
        assert (run.returncode, message in run.stderr) == (status, True), run.stderr


def test_restart_keeps_keys(client, service, local_dir):
    service.run_abx("key", "local", "--user", str(OTHER))
    before = {uid: config(client, local_dir, uid)["sandbox_api_key"][0] for uid in (0, USER, OTHER)}
    count = len(all_keys(service))
    service.stop(signal.SIGTERM)
    assert not list(local_dir.glob("*.env")), "files of a service that has stopped"
    assert config(client, local_dir, USER)["sandbox_api_key"] == (None, None)
    run = service.run_abx("key", "local", "--user", str(USER))
    assert run.returncode == 4 and "does not run" in run.stderr
    for _ in range(2):
        service.start()
        assert {uid: config(client, local_dir, uid)["sandbox_api_key"][0] for uid in before} == before
        assert len(all_keys(service)) == count
        service.stop(signal.SIGTERM)
    # Revoked while it does not run: who is named gets a new key, who was added does not.
    for uid in (USER, OTHER):
        assert service.run_abx("key", "revoke", before[uid]).returncode == 0
    service.start()
    new = config(client, local_dir, USER)["sandbox_api_key"][0]
    assert new != before[USER] and status_with(service, new) == 200
    assert config(client, local_dir, OTHER)["sandbox_api_key"] == (None, None)
    assert not (service.data_dir / "local" / f"{OTHER}.key").exists()


def test_a_crashed_service_is_replaced(client, build_dir, service, local_dir):
    service.stop(signal.SIGKILL)
    assert (local_dir / "0.env").exists()
    # Who listens at its address by now gets no key from any client.
    for uid in (0, USER):
        assert config(client, local_dir, uid)["sandbox_api_key"] == (None, None)
        assert config(client, local_dir, uid)["sandbox_base_url"][1] == "default"
    run = subprocess.run([client, "sandbox", "list"], env={"PATH": os.environ["PATH"], "ABX_LOCAL_DIR": str(local_dir), "HOME": "/nonexistent"},
                         cwd="/", capture_output=True, text=True, timeout=BUSY_S)
    assert run.returncode != 0 and "does not run any more" in run.stderr, run.stderr
    run = service.run_abx("key", "local", "--user", str(USER))
    assert run.returncode == 4 and "does not run" in run.stderr
    (local_dir / f"{OTHER}.env").write_text("stale")
    (local_dir / ".0.new").write_text("half")
    with Service(build_dir, env=service.env) as other:
        assert config(client, local_dir)["sandbox_base_url"][0] == other.origin
        assert {p.name for p in local_dir.iterdir()} == {"0.env", "service"}
    service.start()  # and ends in good order: its run folder goes, too


def test_the_first_service_keeps_it(client, build_dir, service, local_dir):
    with Service(build_dir, env=service.env) as other:
        assert config(client, local_dir)["sandbox_base_url"][0] == service.origin
        assert f"belongs to the running service of '{service.data_dir}'" in other.logged()
        run = other.run_abx("key", "local", "--user", str(USER))
        assert run.returncode != 0 and f"find the service of '{service.data_dir}'" in run.stderr
    # Its end did not take the other's files along.
    assert config(client, local_dir, USER)["sandbox_base_url"][0] == service.origin


@pytest.mark.slow  # it is gone for longer than a restart takes
def test_the_second_service_takes_over_when_the_first_has_ended(client, build_dir, service, local_dir):
    with Service(build_dir, "--local-user", str(USER), env=service.env) as other:
        service.stop(signal.SIGTERM)
        assert config(client, local_dir, USER)["sandbox_api_key"] == (None, None)
        until(lambda: config(client, local_dir, USER)["sandbox_base_url"][0] == other.origin, "the other service")
        for uid in (0, USER):
            key = config(client, local_dir, uid)["sandbox_api_key"][0]
            assert status_with(other, key) == 200
        assert "clients on this machine find this service from now on" in other.logged()
        # Who comes back is a second one now.
        service.start()
        assert config(client, local_dir, USER)["sandbox_base_url"][0] == other.origin
        assert f"belongs to the running service of '{other.data_dir}'" in service.logged()
    assert config(client, local_dir, USER)["sandbox_api_key"] == (None, None)


def test_a_folder_that_is_not_roots_is_not_used(build_dir, base_template, local_dir):
    local_dir.mkdir(mode=0o711)
    os.chown(local_dir, USER, USER)
    with Service(build_dir, env={"ABX_LOCAL_DIR": str(local_dir)}) as s:
        assert "is not root's alone" in s.logged()
        assert not list(local_dir.iterdir())


def test_sudo_uid(build_dir, base_template, local_dir):
    with Service(build_dir, env={"ABX_LOCAL_DIR": str(local_dir), "SUDO_UID": str(OTHER)}):
        assert {p.name for p in local_dir.glob("*.env")} == {"0.env", f"{OTHER}.env"}


def test_a_file_that_others_may_read_is_not_used(client, service, local_dir):
    (local_dir / "0.env").chmod(0o640)
    assert config(client, local_dir)["sandbox_api_key"] == (None, None)


def test_local_user_is_checked(build_dir):
    run = subprocess.run([build_dir / "abx", "serve", "--local-user", "no-such-user"], capture_output=True, text=True)
    assert run.returncode == 2 and "--local-user: there is no user 'no-such-user'" in run.stderr
