"""The base template: what is in it, what it is made from, and that a build leaves nothing half-made."""

import http.server
import io
import json
import os
import re
import shutil
import signal
import subprocess
import tarfile
import threading
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

import pytest
from waiting import BUSY_S, until

ROOT = Path(__file__).resolve().parents[2]
RECIPE = ROOT / "share/template/base"
PROXY_PORT = 19180
VENDOR_PORT = 19181


class Box:
    """Runs commands in the template's tree under a writable overlay, which lives as long as this object."""

    def __init__(self, lower, folder):
        self.lower = lower
        self.folder = folder
        for name in ("upper", "work", "mnt"):
            (folder / name).mkdir()

    def run(self, command, user="user", check=True):
        """A login shell's answer; `user` is user or root. No network: the namespace has only a dead lo."""
        home = "/root" if user == "root" else "/home/user"
        script = (
            'set -e; cd "$1"; mount -t overlay -o "lowerdir=$2,upperdir=upper,workdir=work" overlay mnt; '
            "mount -t proc proc mnt/proc; mount --bind /dev mnt/dev; "
            'exec chroot --userspec="$3" mnt /usr/bin/env -i HOME="$4" USER="$3" /bin/bash -l -c "cd; $5"'
        )
        result = subprocess.run(
            ["unshare", "--mount", "--net", "--pid", "--uts", "--fork", "--kill-child", "sh", "-c", script, "sh"]
            + [self.folder, self.lower, user, home, command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=120,
        )
        if check:
            assert result.returncode == 0, f"{command}: {result.stdout}"
        return result.stdout if check else result

    def path(self, name):
        """A file below the overlay's upper folder, to put things in from outside before a run."""
        path = self.folder / "upper" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


@pytest.fixture
def box(base_template, tmp_path):
    return Box(base_template / "rootfs", tmp_path)


@pytest.mark.parametrize("user", ["user", "root"])
@pytest.mark.parametrize(
    "command, expected",
    [
        ("bash --version", r"GNU bash"),
        ("ls --version", r"coreutils"),
        ("curl --version", r"curl \d"),
        ("git --version", r"git version"),
        ("git daemon --inetd --export-all </dev/null 2>&1; test -x /usr/lib/git-core/git-daemon && echo daemon", r"daemon"),
        ("ip -V", r"iproute2"),
        ("ps --version", r"procps"),
        ("gcc --version && g++ --version && make --version", r"GNU Make"),
        ("python --version; python3 --version", r"Python 3\.\d+.*\nPython 3"),
        ("node --version", r"^v(2\d|[3-9]\d)\."),
        ("npm --version && npx --version", r"^\d+\.\d+.*\n\d+\.\d+"),
        ("echo 'int main(void){return 7;}' >/tmp/a.c && gcc /tmp/a.c -o /tmp/a && /tmp/a; echo $?", r"^7$"),
        ("test -s /etc/ssl/certs/ca-certificates.crt && echo certificates", r"certificates"),
        ("python -m venv /tmp/v && /tmp/v/bin/python -m pip --version", r"^pip "),
        ("locale | grep LC_CTYPE; python -c 'print(chr(0x20ac))'", r'C\.UTF-8.*\n€'),
        ("touch /usr/local/bin/x /usr/local/lib/x /code/x && echo written", r"written"),
    ],
)
def test_command_runs(box, user, command, expected):
    assert re.search(expected, box.run(command, user), re.M)


def test_user_is_the_one_that_clients_expect(box):
    assert box.run("id -u; id -un; echo $HOME; pwd; echo $SHELL; getent passwd user") == (
        "1000\nuser\n/home/user\n/home/user\n/bin/bash\nuser:x:1000:1000::/home/user:/bin/bash\n"
    )
    assert box.run("stat -c '%U %G %a' /home/user /code") == "user user 755\nuser user 777\n"


def test_sudo_needs_no_password(box):
    assert box.run("hostname localhost 2>/dev/null; sudo -n id -u").endswith("0\n")
    assert box.run("sudo -n -u user id -u", "root").endswith("1000\n")


def test_path_holds_the_user_site(box):
    assert box.run("echo $PATH").strip().split(":")[0] == "/home/user/.local/bin"
    assert box.run("PATH=/opt/x:/bin bash -l -c 'echo $PATH'").strip() == "/home/user/.local/bin:/opt/x:/bin"
    assert "." not in box.run("echo $PATH", "root").strip().split(":")


def write_wheel(folder):
    """A package with one module and one command."""
    name = folder / "abxtiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(name, "w") as wheel:
        wheel.writestr("abxtiny.py", "def main():\n    print('tiny runs')\n")
        wheel.writestr("abxtiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: abxtiny\nVersion: 1.0\n")
        wheel.writestr("abxtiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("abxtiny-1.0.dist-info/entry_points.txt", "[console_scripts]\nabxtiny = abxtiny:main\n")
        wheel.writestr("abxtiny-1.0.dist-info/RECORD", "")
    return name.name


@pytest.mark.parametrize("user", ["user", "root"])
@pytest.mark.parametrize("option", ["", "--user"])
def test_pip_installs(box, user, option):
    folder = box.path("opt/wheels")
    folder.mkdir()
    wheel = write_wheel(folder)
    box.run(f"pip install {option} --no-index /opt/wheels/{wheel}", user)
    assert box.run("abxtiny", user) == "tiny runs\n"


@pytest.mark.parametrize("user", ["user", "root"])
def test_npm_installs_globally(box, user):
    package = box.path("opt/tiny.tgz")
    with tarfile.open(package, "w:gz") as archive:
        for name, text in [
            ("package.json", '{"name":"tiny","version":"1.0.0","bin":{"abxtiny":"run.js"}}'),
            ("run.js", "#!/usr/bin/env node\nconsole.log('tiny runs')\n"),
        ]:
            info = tarfile.TarInfo(f"package/{name}")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    box.run("npm install --offline --no-audit --no-update-notifier -g /opt/tiny.tgz", user)
    assert box.run("abxtiny", user) == "tiny runs\n"


def test_login_shell_starts_no_program(box, record_property):
    """The profile is for every command of a sandbox: it may not fork. What it costs is only recorded."""
    trace = box.run("bash -lxc true 2>&1")
    words = {re.split("[ =]", line.lstrip("+ "))[0] for line in trace.splitlines()}
    assert words <= {"case", "PATH", "export", "LANG", "'['", "for", ".", "unset", "return", "true"}
    out = box.run("time (for i in {1..100}; do bash -l -c true; done); time (for i in {1..100}; do bash -c true; done)")
    login, plain = (float(s) * 10 for s in re.findall(r"real\s+0m([\d.]+)s", out))
    record_property("login_shell_ms", f"{login:.2f}")
    record_property("plain_shell_ms", f"{plain:.2f}")


def test_tree_is_small_and_holds_nothing_of_the_host(base_template):
    tree = base_template / "rootfs"
    for folder in ("usr/share/man", "usr/share/info", "var/lib/apt/lists", "tmp", "run", "var/cache/apt"):
        assert not any(p.is_file() for p in (tree / folder).rglob("*")), folder
    assert not list((tree / "usr/lib").glob("python3*/EXTERNALLY-MANAGED"))
    assert (tree / "etc/resolv.conf").read_bytes() == b""
    assert (tree / "etc/machine-id").read_bytes() == b""
    assert not list((tree / "etc/apt/apt.conf.d").glob("*abx*")) + list((tree / "etc/apt/apt.conf.d").glob("99*"))
    with (tree / "etc/passwd").open() as passwd:
        assert max(int(line.split(":")[2]) for line in passwd) == 65534


def test_json_says_what_the_template_is(base_template):
    info = json.loads((base_template / "template.json").read_text())
    assert info["name"] == "base" and info["digest"] == base_template.name
    assert info["default_user"] == "user" and info["default_workdir"] == "/home/user"
    assert {"bash", "sudo", "git", "python3-pip"} <= set(info["packages"])
    assert 300e6 < info["size_bytes"] < 900e6
    assert (base_template.parent.stat().st_mode & 0o777) == 0o700


def test_command_finds_the_recipe_in_place_and_installed(build_dir, base_template, tmp_path):
    """From a build tree and from a prefix the same recipe is found, so the same template is named, at once."""
    (tmp_path / "bin").mkdir()
    shutil.copy(build_dir / "abx", tmp_path / "bin/abx")
    shutil.copytree(RECIPE, tmp_path / "share/abx/template/base")
    for program in (build_dir / "abx", tmp_path / "bin/abx"):
        run = subprocess.run([program, "template", "build-base"], capture_output=True, text=True, timeout=BUSY_S)
        assert (run.returncode, run.stdout) == (0, f"{base_template}\n"), run.stderr
    listed = subprocess.run([build_dir / "abx", "template", "list", "--json"], stdout=subprocess.PIPE, check=True)
    assert base_template.name in {entry["digest"] for entry in json.loads(listed.stdout)}


# Builds. They use a recipe of few packages, so that they take seconds.


class Builder:
    def __init__(self, build_dir, folder):
        self.program = build_dir / "tests/tools/template_base_tool"
        self.recipe = folder / "recipe"
        self.cache = folder / "cache"
        shutil.copytree(RECIPE, self.recipe)
        (self.recipe / "packages").write_text("bash\nsudo\n")
        (self.recipe / "node.sh").write_text("#!/bin/sh\n")

    def command(self, *more):
        return [self.program, f"recipe={self.recipe}", f"cache={self.cache}", *more]

    def run(self, *more, prefix=(), timeout=280):
        return subprocess.run(
            [*prefix, *self.command(*more)], capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL
        )

    def left(self):
        folder = self.cache / "templates"
        return sorted(p.name for p in folder.iterdir() if p.name != "lock") if folder.exists() else []

    def processes(self):
        """Processes that hold something of the cache open, or work in it."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                for link in [entry / "cwd", entry / "root"]:
                    try:
                        if str(self.cache) in os.readlink(link):
                            found.append(entry.name)
                    except OSError:
                        pass
        return found


@pytest.fixture
def builder(build_dir, tmp_path):
    return Builder(build_dir, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_build_leaves_nothing(builder, number):
    with subprocess.Popen(builder.command(), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as build:
        for line in build.stderr:
            if "installing essential" in line or "extracting" in line:
                break
        assert [p[:4] for p in builder.left()] == ["tmp."]
        build.send_signal(number)
        rest = build.stderr.read()
        assert build.wait(BUSY_S) != 0, rest
    assert "interrupted" in rest
    assert builder.left() == []
    assert builder.processes() == []
    assert str(builder.cache) not in Path("/proc/self/mountinfo").read_text()


@pytest.mark.slow
def test_killed_build_is_cleared_by_the_next(builder):
    with subprocess.Popen(builder.command(), stderr=subprocess.PIPE, text=True) as build:
        for line in build.stderr:
            if "extracting" in line:
                break
        build.kill()
        build.wait(BUSY_S)
    until(lambda: not builder.processes(), lambda: f"the end of {builder.processes()}")
    assert builder.run("with=abx-no-such-package").returncode != 0
    assert builder.left() == []


def test_unknown_packages_are_named_before_the_build(builder):
    result = builder.run("with=abx-no-such-package", "with=hostname", "with=abx-another", "with=awk")
    assert result.returncode == 4
    assert re.search(r"^--with: the archives of \S+ \S+ have no package abx-no-such-package abx-another$", result.stderr, re.M), result.stderr
    assert "running apt-get update" not in result.stderr  # mmdebstrap's
    assert builder.left() == []


@pytest.mark.slow
def test_failed_build_says_why_once_and_leaves_nothing(builder):
    (builder.recipe / "packages").write_text("bash\nabx-no-such-package\n")
    result = builder.run()
    assert result.returncode != 0
    assert result.stderr.count("Unable to locate package abx-no-such-package") == 1, result.stderr
    shown = [re.sub(r"^base template \[ *\d+s\] (\| )?", "", x) for x in result.stderr.splitlines()]
    assert sorted(x for x in set(shown) if shown.count(x) > 1 and not x.startswith("done")) == [], result.stderr
    assert builder.left() == []


@pytest.mark.parametrize(
    "argument, message",
    [
        ("suite=../etc", "'../etc' is no name of a release"),
        ("with=bash,curl", "'bash,curl' is no name of a package"),
        ("with=-x", "'-x' is no name of a package"),
        ("os_release=/etc/hostname", "neither Debian nor Ubuntu"),
        ("etc_apt=/nonexistent", "no entry in /nonexistent is the"),
        ("recipe=/nonexistent", "/nonexistent"),
    ],
)
def test_bad_input_is_refused_before_anything_is_done(builder, argument, message):
    result = builder.run(argument)
    assert result.returncode != 0 and message in result.stderr
    assert builder.left() == []


@pytest.mark.slow
def test_unknown_release_is_named(builder):
    result = builder.run("suite=abxnosuch")
    assert result.returncode != 0 and "abxnosuch" in result.stderr
    assert builder.left() == []


@pytest.mark.slow
def test_two_builders_build_once(builder):
    def start():
        return subprocess.Popen(builder.command(), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    both = [start(), start()]
    outputs = [build.communicate(timeout=280) for build in both]
    assert [build.returncode for build in both] == [0, 0], outputs
    assert len({out for out, _ in outputs}) == 1
    assert sorted("running apt-get update" in err for _, err in outputs) == [False, True]
    assert len(builder.left()) == 1

    again = builder.run()
    assert again.returncode == 0 and again.stdout == outputs[0][0] and again.stderr == ""

    # Another one made since: what is asked for now becomes the newest, which is what the name means.
    own = Path(again.stdout.strip()) / "template.json"
    other = own.parent.parent / "base-other" / "template.json"
    other.parent.mkdir()
    other.write_text("{}")
    os.utime(own, (1000, 1000))
    before = json.loads(own.read_text())
    assert builder.run().stdout == again.stdout
    after = json.loads(own.read_text())
    assert own.stat().st_mtime >= other.stat().st_mtime and after["created"] > before["created"]
    assert {**after, "created": 0} == {**before, "created": 0}


class Proxy(http.server.BaseHTTPRequestHandler):
    """Forwards, and remembers who was asked for."""

    protocol_version = "HTTP/1.0"
    seen = []

    def do_GET(self):
        self.seen.append(self.path)
        url = re.sub(r"//[^/@]*@", "//", self.path)
        headers = {k: v for k, v in self.headers.items() if k in ("Range", "If-Modified-Since")}
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(urllib.request.Request(url, headers=headers), timeout=60) as answer:
                self.send_response(answer.status)
                self.send_header("Content-Length", answer.headers["Content-Length"])
                self.end_headers()
                shutil.copyfileobj(answer, self.wfile)
        except urllib.error.HTTPError as error:
            self.send_response(error.code)
            self.send_header("Content-Length", "0")
            self.end_headers()

    def log_message(self, *args):
        pass


def serve(port, handler):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


@pytest.mark.slow
def test_only_the_own_archive_is_used(builder, tmp_path):
    """The machine's entries, here with credentials and behind a proxy, next to three of other parties."""
    etc = tmp_path / "apt"
    shutil.copytree("/etc/apt", etc)
    entries = 0
    for file in [etc / "sources.list", *(etc / "sources.list.d").glob("*.list"), *(etc / "sources.list.d").glob("*.sources")]:
        if file.exists():
            text, n = re.subn(r"http://(?=[a-z])", "http://tester:s3cret@", file.read_text())
            entries += n
            file.write_text(text)
    if entries == 0:
        pytest.skip("the machine's archive is not reached over http")
    (etc / "apt.conf.d/90test").write_text(f'Acquire::http::Proxy "http://127.0.0.1:{PROXY_PORT}";\n')
    codename = re.search(r"VERSION_CODENAME=(\S+)", Path("/etc/os-release").read_text())[1]
    (etc / "sources.list.d/vendors.list").write_text(
        f"deb [signed-by=/usr/share/keyrings/vendor.gpg] http://127.0.0.1:{VENDOR_PORT}/key {codename} main\n"
        f"deb http://127.0.0.1:{VENDOR_PORT}/component {codename} stable\n"
        f"deb http://127.0.0.1:{VENDOR_PORT}/unsigned {codename} main\n"
    )

    class Vendor(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            text = f"Origin: {codename}\nCodename: {codename}\nDate: Thu, 01 Jan 2026 00:00:00 UTC\n".encode()
            self.send_response(200 if self.path.endswith("/Release") else 404)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *args):
            pass

    Proxy.seen.clear()
    servers = [serve(PROXY_PORT, Proxy), serve(VENDOR_PORT, Vendor)]
    try:
        result = builder.run(
            prefix=["unshare", "--mount", "sh", "-c", 'mount --bind "$1" /etc/apt; shift; exec "$@"', "sh", etc]
        )
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()
    assert result.returncode == 0, result.stderr
    assert any("/dists/" in url for url in Proxy.seen) and any(url.endswith(".deb") for url in Proxy.seen)
    vendor = {url.split("/")[3] for url in Proxy.seen if str(VENDOR_PORT) in url}
    assert vendor <= {"unsigned"}
    assert re.search(r"left out http://127\.0\.0\.1:\d+/unsigned", result.stderr)
    assert "s3cret" not in result.stderr

    tree = Path(result.stdout.strip()) / "rootfs"
    sources = (tree / "etc/apt/sources.list").read_text().splitlines()
    assert sources and all(re.fullmatch(rf"deb \[signed-by=\S+\] http://[^@ ]+ {codename}\S* main( universe)?", s) for s in sources)
    grep = subprocess.run(["grep", "-rlE", f"s3cret|127.0.0.1:({PROXY_PORT}|{VENDOR_PORT})", tree], stdout=subprocess.PIPE, text=True)
    assert grep.stdout == ""
