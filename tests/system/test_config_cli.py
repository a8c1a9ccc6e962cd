"""`abx config`, and that its documentation names the keys that there are."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from waiting import BUSY_S

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def abx(build_dir, tmp_path):
    """Runs `abx` with an empty home and nothing else in its environment."""
    (tmp_path / "home").mkdir()

    def run(*args, status=0, text=None, **env):
        clean = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home"), "ABX_LOCAL_DIR": "/nonexistent", **env}
        done = subprocess.run(
            [build_dir / "abx", *args], env=clean, cwd=tmp_path, input=text or "", capture_output=True, text=True, timeout=BUSY_S
        )
        assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
        return done

    run.home = tmp_path / "home/.abx"
    return run


def test_set_get_unset(abx):
    abx("config", "set", "sandbox_domain", "example.com")
    assert abx("config", "get", "sandbox_domain").stdout == "example.com\n"
    assert (abx.home / "config.toml").read_text() == '[transport]\nsandbox_domain = "example.com"\n'
    shown = abx("config", "get", "sandbox_domain", "--show-origin").stdout
    assert shown == f"example.com\tfile {abx.home}/config.toml\n"
    abx("config", "unset", "sandbox_domain")
    assert abx("config", "get", "sandbox_domain").stdout == "cn-hangzhou.e2b.fc.aliyuncs.com\n"


def test_a_secret_comes_from_standard_input_and_is_masked(abx):
    secret = "e2b_0123456789abcdef"
    abx("config", "set", "sandbox_api_key", text=secret + "\n")
    assert (abx.home / ".env").read_text() == f"ABX_SANDBOX_API_KEY={secret}\n"
    assert (abx.home / ".env").stat().st_mode & 0o777 == 0o600
    assert abx("config", "get", "sandbox_api_key").stdout == "****cdef\n"
    assert abx("config", "get", "sandbox_api_key", "--reveal").stdout == secret + "\n"
    for args in (["list"], ["list", "--json"], ["list", "--show-origin"], ["get", "sandbox_api_key", "--json"]):
        assert secret not in abx("config", *args).stdout
    assert "sandbox_api_key" in abx("config", "set", "sandbox_api_key", status=2, text=secret + " x\n").stderr


def test_list_ends_with_what_a_client_would_do(abx):
    nothing = abx("config", "list", "--show-origin")
    assert [x for x in nothing.stdout.splitlines() if x != x.rstrip()] == []
    assert re.fullmatch(r"abx: a client has no key.* E2B_API_URL\n", nothing.stderr) and "abx serve" in nothing.stderr
    used = abx("config", "list", E2B_API_KEY="e2b_0123456789abcdef", E2B_API_URL="http://x.test:1")
    assert used.stderr == "abx: a client uses http://x.test:1 with the sandbox_api_key from: environment E2B_API_KEY\n"
    assert "debug is set" in abx("config", "list", E2B_DEBUG="true").stderr
    assert abx("config", "list", "--json").stderr == ""


def test_profile(abx):
    abx("config", "set", "sandbox_domain", "work.test", "--profile", "work")
    abx("config", "set", "sandbox_api_key", "work-key-12345", "--profile", "work")
    abx("config", "set", "sandbox_api_key", "my-key-123456789")
    rows = json.loads(abx("config", "list", "--json", "--reveal", "--profile", "work").stdout)
    assert rows["sandbox_base_url"] == {
        "value": "https://api.work.test", "origin": "from sandbox_domain", "type": "url", "secret": False,
    }  # fmt: skip
    assert rows["sandbox_api_key"]["value"] == "work-key-12345"
    assert rows["sandbox_api_key"]["origin"] == f"file {abx.home}/.env.work"
    assert abx("config", "get", "sandbox_api_key", "--reveal").stdout == "my-key-123456789\n"
    assert abx("config", "get", "sandbox_domain", ABX_PROFILE="work").stdout == "work.test\n"
    assert "has no [profiles.other]" in abx("config", "list", "--profile", "other", status=2).stderr


def test_path(abx):
    assert abx("config", "path").stdout == f"{abx.home}/config.toml\n{abx.home}/.env\n"
    paths = json.loads(abx("config", "path", "--json", "--profile", "work").stdout)
    assert paths == {"config": f"{abx.home}/config.toml", "secrets": f"{abx.home}/.env.work"}


def test_a_value_that_does_not_count_is_told(abx):
    done = abx("config", "set", "sandbox_domain", "mine.test", E2B_DOMAIN="env.test")
    assert done.stderr == "abx: stored, but another value comes first: environment E2B_DOMAIN\n"


@pytest.mark.parametrize(
    ("args", "status", "message"),
    [
        ([], 2, "needs list, get, set, unset or path"),
        (["frobnicate"], 2, "unknown verb 'frobnicate'"),
        (["get"], 2, "get takes one KEY"),
        (["get", "nope"], 2, "there is no key 'nope'"),
        (["get", "sandbox_url"], 4, "sandbox_url is not set"),
        (["set", "http2", "maybe"], 2, "http2: 'maybe' is neither true nor false"),
        (["set", "nope", "1"], 2, "there is no key 'nope'; 'abx config list' names them"),
        (["unset", "nope"], 2, "there is no key 'nope'; 'abx config list' names them"),
        (["set", "http2"], 2, "no line on standard input"),
        (["list", "x"], 2, "list takes no argument"),
        (["list", "--nope"], 2, "unrecognized option"),
    ],
)
def test_mistakes(abx, args, status, message):
    assert message in abx("config", *args, status=status).stderr


def test_a_file_with_a_mistake_is_named(abx):
    abx.home.mkdir()
    (abx.home / "config.toml").write_text("[transport]\nhttp2 = maybe\n")
    err = abx("config", "list", status=2).stderr
    assert f"{abx.home}/config.toml: line 2: 'maybe'" in err


@pytest.mark.parametrize("name, word", [("ABX_DEFAULT_TEMPLATE", "has a control character"), ("ABX_HTTP_TIMEOUT", "is not a number")])
def test_a_file_of_somebody_else_s_folder_does_not_command_the_terminal(abx, name, word):
    for mark in ("\x1b[31m", "\x9b31m"):
        (abx.home.parents[1] / ".env").write_text(f'{name}="x{mark}"\n')
        for args in (["config", "list"], ["config", "get", "http2"], ["whoami"]):
            err = abx(*args, status=2).stderr
            assert word in err and not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", err), err


def test_the_documentation_has_every_key(abx):
    rows = json.loads(abx("config", "list", "--json").stdout)
    text = (ROOT / "docs/configuration.md").read_text()
    table = re.findall(r"^\| (\w+)( \(secret\))? \| (\w+) \| (\w*) *\| (\w+) \| ([^|]*)\|$", text, re.M)
    documented = {name: (bool(secret), kind, default.strip()) for name, secret, _, _, kind, default in table}
    # The base URL's default is the same address, told by how it comes about.
    rows["sandbox_base_url"]["value"] = "`https://api.<sandbox_domain>`"
    assert documented == {n: (r["secret"], r["type"], r["value"] or "") for n, r in rows.items()}
    for name, _, variable, second, _, _ in table:
        for var in filter(None, (variable, second)):
            values = {"bool": "true", "int": "7", "float": "7.0", "url": "http://x.test"}
            value = values.get(rows[name]["type"], "x.test")
            env = {var: value}
            if name == "profile":
                abx("config", "set", "http2", "true", "--profile", value)
            if name.startswith("access_key"):
                env |= {"ALICLOUD_ACCESS_KEY_ID": value, "ALICLOUD_ACCESS_KEY_SECRET": value}
            got = json.loads(abx("config", "get", name, "--json", "--reveal", **env).stdout)
            assert (got["value"], got["origin"]) == (value, f"environment {var}")
