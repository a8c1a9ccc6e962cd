"""`abx serve` itself: options, start, restart, stop. What the roles do is tested elsewhere."""

import json
import os
import re
import resource
import shutil
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import processes
import pytest
from envd import Envd
from limits import own_groups
from service import OWNER, Service, clean_up, left_behind
from waiting import BUSY_S, until


def abx(build_dir, *args, **kwargs):
    return subprocess.run([build_dir / "abx", *args], capture_output=True, text=True, timeout=BUSY_S, **kwargs)


@pytest.mark.parametrize(
    "args, word",
    [
        (["--listen", "example.com:80"], "--listen"),
        (["--listen", "127.0.0.1:70000"], "--listen"),
        (["--pool", "base"], "--pool"),
        (["--pool", "=3"], "--pool"),
        (["--on-exit", "maybe"], "--on-exit"),
        (["--sandbox-cpu", "0"], "--sandbox-cpu"),
        (["--sandbox-memory", "1M"], "--sandbox-memory"),
        (["--sandbox-memory", "900000G"], "--sandbox-memory"),
        (["--max-timeout", "never"], "--max-timeout"),
        (["--run-as", "root"], "--run-as"),
        (["--run-as", "nobody-of-that-name"], "--run-as"),
        (["--domain", "a b"], "--domain"),
        (["--gateways", "0"], "--gateways"),
        (["--data-dir", ""], "--data-dir is empty"),
        (["--disk", "255M"], "--disk '255M' is not within 256M to "),
        (["--max-disk", "1GB"], "--max-disk '1GB' is not a size"),
        (["--sandbox-memory", "16777215"], "--sandbox-memory '16777215' is not within 16M to 4095T"),
        (["what"], "what"),
        (["--no-such"], "abx serve: unrecognized option '--no-such'\nTry 'abx serve --help'"),
    ],
)
def test_bad_option_is_named(build_dir, args, word):
    run = abx(build_dir, "serve", *args)
    assert run.returncode == 2
    assert word in run.stderr
    assert run.stdout == ""


@pytest.mark.parametrize("command", ["serve", "key", "template", "doctor"])
def test_help_of_each_command(build_dir, command):
    run = abx(build_dir, command, "--help")
    assert run.returncode == 0 and run.stdout.startswith("usage: abx " + command)


def test_unknown_command(build_dir):
    run = abx(build_dir, "servé")
    assert run.returncode == 2 and "servé" in run.stderr


def test_help_knows_the_commands(build_dir):
    assert abx(build_dir, "help", "serve").stdout == abx(build_dir, "serve", "--help").stdout != ""
    assert abx(build_dir, "help", "config").stdout.startswith("usage: abx config")
    # Nothing of what stands behind the command: a sandbox would run it.
    for words in (["run"], ["exec"], ["sandbox", "run"], ["sandbox", "exec"], ["ls"]):
        found, wanted = abx(build_dir, "help", *words, "more", "words"), abx(build_dir, *words, "--help")
        assert (found.returncode, found.stdout, found.stderr) == (0, wanted.stdout, "") and wanted.stdout != ""
    for args in (["help", "servé"], ["version", "x"]):
        run = abx(build_dir, *args)
        assert run.returncode == 2 and f"'{args[-1]}'" in run.stderr and run.stdout == "", args


def test_commands_about_a_service_that_is_not_there(build_dir, tmp_path):
    for args in (["key", "list"], ["key", "create"], ["doctor", "--audit"]):
        run = abx(build_dir, *args, "--data-dir", tmp_path)
        assert run.returncode == 4 and f"'{tmp_path}' is no data dir" in run.stderr, args
    for folder in (tmp_path, tmp_path / "nowhere"):
        for json_too in ([], ["--json"]):
            run = abx(build_dir, "template", "list", "--data-dir", folder, *json_too)
            assert run.returncode == 4 and f"'{folder}'" in run.stderr and run.stdout == "", run
    (tmp_path / "format").write_text("version 1\ninstance 0123456789ab\n")
    run = abx(build_dir, "doctor", "--audit", "--data-dir", tmp_path)
    assert run.returncode == 1 and "no service with data dir" in run.stderr


def test_templates_are_roots(open_dir, base_template):
    """A list that may not be read is no empty list."""
    for verb in ("list", "build-base"):
        run = abx(open_dir, "template", verb, user=65534, cwd="/")
        assert run.returncode == 3 and run.stdout == "", (verb, run.stderr)


@pytest.fixture
def open_dir(build_dir):
    """The program where everybody may run it: the tree itself may lie in a folder of root's."""
    with tempfile.TemporaryDirectory(prefix="abx-open-") as folder:
        os.chmod(folder, 0o755)
        shutil.copy(build_dir / "abx", folder)
        shutil.copytree(build_dir / "libexec", Path(folder) / "libexec", ignore=shutil.ignore_patterns("*.p"))
        yield Path(folder)


def test_serve_needs_root(open_dir):
    run = abx(open_dir, "serve", "--data-dir", "/tmp/abx-never", user=65534, cwd="/")
    assert run.returncode == 3 and "root" in run.stderr


def test_print_unit_keeps_the_options(build_dir):
    run = abx(build_dir, "serve", "--pool", "base=4", "--domain", "sbx.test", "--print-unit")
    assert run.returncode == 0
    for line in ("Type=notify", "Delegate=yes", "KillMode=process", "OOMPolicy=continue", "WatchdogSec=60"):
        assert line in run.stdout.splitlines()
    assert '"--pool" "base=4" "--domain" "sbx.test"' in run.stdout and "print-unit" not in run.stdout


def test_a_role_that_fails_ends_the_start(build_dir, tmp_path):
    """The reason is on standard error, and nothing stays."""
    libexec = tmp_path / "libexec"
    libexec.mkdir()
    for name in ("abx-engine", "abx-control", "abx-gateway", "abx-egress", "abx-guest"):
        (libexec / name).write_text("#!/bin/sh\nexec sleep 600\n" if name != "abx-engine" else "#!/bin/sh\necho broken >&2\nexit 3\n")
        (libexec / name).chmod(0o755)
    run = abx(
        build_dir, "serve", "--listen", "127.0.0.1:0", "--data-dir", tmp_path / "d",
        env={**os.environ, "ABX_LIBEXEC_DIR": str(libexec)},
    )
    assert run.returncode == 1
    assert "broken" in run.stderr and "abx-engine ended while the service was starting (exit 3)" in run.stderr


def test_the_last_line_of_a_failed_start_is_the_reason(build_dir, tmp_path):
    """In the words of the role that failed; the others end in silence."""
    (tmp_path / "d").mkdir()
    script = f'mount -t tmpfs -o size=200M none {tmp_path}/d && "$0" "$@"; code=$?; cat {tmp_path}/d/format; exit $code'
    command = ["unshare", "-m", "sh", "-c", script, build_dir / "abx"]
    run = subprocess.run([*command, "serve", "--listen", "127.0.0.1:0", "--data-dir", tmp_path / "d"], capture_output=True, text=True, timeout=60)
    *lines, last = run.stderr.splitlines()
    assert run.returncode == 1
    assert re.fullmatch(r"abx: abx-engine does not start: pool '.*': the disk image would have \d+ MiB, 256 are needed: make room .*", last), last
    assert len([x for x in lines if " error " in x]) == 1 and not [x for x in lines if " warn " in x or "stopping" in x], lines
    at = next(i for i, x in enumerate(lines) if " error " in x)
    assert [x for x in lines[at + 1 :] if " info " not in x] == [], lines  # another role may be coming up at that moment
    assert own_groups(re.search("^instance (.+)$", run.stdout, re.M)[1]) == []


def test_a_soft_limit_of_descriptors_is_raised(build_dir, base_template):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    s = Service(build_dir)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        s.start()
        for pid in (s.process.pid, *[pid for pids in s.roles().values() for pid in pids]):
            [line] = [x for x in open(f"/proc/{pid}/limits") if x.startswith("Max open files")]
            assert line.split()[3:5] == [str(hard), str(hard)], pid
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        s.stop()
        s.remove()


@pytest.fixture(scope="module")
def service(build_dir, base_template):
    with Service(build_dir, "--gateways", "2") as s:
        yield s


def test_prints_what_a_client_needs(service):
    assert service.printed[0] == f"export E2B_API_KEY=\"$(cat '{service.data_dir}/admin.key')\""
    assert service.printed[1:] == [
        f"export E2B_API_URL={service.origin}",
        f"export E2B_SANDBOX_URL={service.origin}",
        f"ready {service.origin}",
    ]
    mode = (service.data_dir / "admin.key").stat()
    assert stat.S_IMODE(mode.st_mode) == 0o600 and mode.st_uid == 0
    assert service.key.startswith("e2b_") and len(service.key) == 44


def test_taken_port_names_the_holder(service, build_dir, tmp_path):
    run = abx(build_dir, "serve", "--listen", f"127.0.0.1:{service.port}", "--data-dir", tmp_path / "d")
    assert run.returncode == 1
    assert str(service.process.pid) in run.stderr and "abx" in run.stderr


def test_data_dir_in_use_names_the_holder(service, build_dir):
    run = abx(build_dir, "serve", "--listen", "127.0.0.1:0", "--data-dir", service.data_dir)
    assert run.returncode == 1 and str(service.process.pid) in run.stderr


@pytest.mark.parametrize("role", ["abx-gateway", "abx-control", "abx-engine"])
def test_killed_role_comes_back_and_no_request_is_lost(service, role):
    box = service.create()
    for pid in service.roles()[role]:
        os.kill(pid, signal.SIGKILL)
    status, _, _ = service.request("GET", f"/sandboxes/{box['sandboxID']}")
    assert status == 200
    until(lambda: service.roles().get(role), f"another {role}")
    assert service.kill(box["sandboxID"]) == 204
    assert service.kill(box["sandboxID"]) == 404


def test_connection_waits_while_every_gateway_is_dead(service):
    pids = service.roles()["abx-gateway"]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    conns = [socket.create_connection(("127.0.0.1", service.port), BUSY_S) for _ in range(20)]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    for c in conns:
        c.settimeout(BUSY_S)
        c.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert all(c.recv(64).startswith(b"HTTP/1.1 200") for c in conns)
    for c in conns:
        c.close()


def test_an_environment_of_many_small_variables(service):
    """It ended the connection of control and engine, on which all sandboxes depend."""
    for n in (1100, 3000):
        wanted = {f"A{i}": "x" for i in range(n)}
        box = service.create(timeout=60, envVars=wanted)
        assert service.request("GET", "/envs", headers=Envd(service, box).headers)[2].items() >= wanted.items()
        assert Envd(service, box).sh("env | grep -c '^A[0-9]*=x$'") == f"{n}\n"
        assert service.kill(box["sandboxID"]) == 204
    status, _, answer = service.request("POST", "/v2/sandboxes", {"templateID": "base", "envVars": {f"A{i}": "" for i in range(9000)}})
    assert status == 400 and "envVars is too large" in answer["message"]
    assert "cannot be read" not in (service.data_dir / "serve.log").read_text()


def test_keys(service):
    made = service.run_abx("key", "create", "--name", "ci", "--expires", "1h", "--json")
    key = json.loads(made.stdout)
    assert made.returncode == 0 and key["key"].startswith("e2b_")
    listed = json.loads(service.run_abx("key", "list", "--json").stdout)
    assert key["id"] in [k["id"] for k in listed]
    assert key["key"] not in json.dumps(listed)
    assert service.request("GET", "/v2/sandboxes", headers={"X-API-Key": key["key"]})[0] == 200
    assert service.run_abx("key", "revoke", key["id"]).returncode == 0
    assert service.request("GET", "/v2/sandboxes", headers={"X-API-Key": key["key"]})[0] == 401
    assert service.run_abx("key", "revoke", "no-such-key").returncode == 4
    brief = json.loads(service.run_abx("key", "create", "--expires", "1s", "--json").stdout)["id"]
    line = lambda: next(n for n in service.run_abx("key", "list").stdout.splitlines() if n.startswith(brief))
    until(lambda: "expired" in line(), line)


def test_template_list_has_the_ids_that_clients_see(service, build_dir):
    seen = service.create()["templateID"]
    assert len(seen) == 20

    def check(data_dir):
        as_json = json.loads(abx(build_dir, "template", "list", "--json", "--data-dir", data_dir).stdout)
        assert {t["id"] for t in as_json if t["name"] == "base"} == {seen}, as_json
        head, *lines = abx(build_dir, "template", "list", "--data-dir", data_dir).stdout.splitlines()
        assert head.split()[:2] == ["NAME", "ID"] and {tuple(x.split()[:2]) for x in lines} >= {("base", seen)}, lines

    check(service.data_dir)
    # Without the service its database says them; a service that never ran knows none.
    other = Path(tempfile.mkdtemp(prefix="abx-test-"))
    try:
        subprocess.run(["cp", "-a", *service.data_dir.glob("control"), service.data_dir / "format", other], check=True)
        (other / "format").write_text((other / "format").read_text().replace(service.instance(), "0123456789ab"))
        check(other)
        shutil.rmtree(other / "control")
        fresh = abx(build_dir, "template", "list", "--json", "--data-dir", other)
        assert fresh.returncode == 0 and {t["id"] for t in json.loads(fresh.stdout)} == {None}, fresh
    finally:
        shutil.rmtree(other)


def test_template_list_marks_the_one_that_a_create_takes(service, build_dir):
    """Of two templates of one name, the newer first; a folder without a tree is none."""
    of = {"old": "2026-01-01T00:00:00.000Z", "new": "2026-02-02T00:00:00.000Z", "bare": "2026-03-03T00:00:00.000Z"}
    folders = service.data_dir / "templates"
    try:
        for digest, created in of.items():
            (folders / digest / ("rootfs" if digest != "bare" else "other")).mkdir(parents=True)
            about = {"name": "twice", "digest": digest, "created": created, "suite": "x", "size_bytes": 1}
            (folders / digest / "template.json").write_text(json.dumps(about))
        as_json = json.loads(service.run_abx("template", "list", "--json").stdout)
        assert [(t["digest"], t["current"]) for t in as_json if t["name"] == "twice"] == [("new", True), ("old", False)]
        assert [t["current"] for t in as_json if t["name"] == "base"].count(True) == 1
        lines = [line.split() for line in service.run_abx("template", "list").stdout.splitlines()]
        assert lines[0][2] == "CURRENT"
        assert [(line[2], Path(line[-1]).name) for line in lines if line[0] == "twice"] == [("yes", "new"), ("no", "old")]
        # Each is had by its digest.
        assert service.create(next(t["digest"] for t in as_json if t["name"] == "base"))["sandboxID"]
        # The service was asked too, and has written down the same one.
        db = sqlite3.connect(f"file:{service.data_dir}/control/abx.db?mode=ro", uri=True, timeout=BUSY_S)
        taken = """SELECT b.digest FROM template_names n JOIN template_tags t ON t.template_id = n.template_id
                   JOIN template_builds b ON b.id = t.build_id WHERE n.name = 'twice'"""
        rows = until(lambda: db.execute(taken).fetchall(), "its row")
        db.close()
        assert rows == [("new",)]
    finally:
        for digest in of:
            shutil.rmtree(folders / digest)


def left_of(service):
    """What the machine has of a service that is over: its run folder, its cgroups, its mount."""
    instance = service.instance()
    mounts = Path("/proc/self/mountinfo").read_text()
    return [
        *map(str, Path("/run/abx").glob(instance)),
        *own_groups(instance),
        *(line for line in mounts.splitlines() if str(service.data_dir) in line),
    ]


def test_a_stop_that_keeps_nothing_leaves_nothing(build_dir, base_template):
    """Prepared slots are stock; what is left of a start that failed is of no use to anyone."""
    with Service(build_dir, disk="20gi") as service:  # each form of a size reaches the engine
        assert service.kill(service.create()["sandboxID"]) == 204
        service.stop(signal.SIGTERM)
        assert left_of(service) == []
        paused = service.start().create(timeout=600)["sandboxID"]
        assert service.request("POST", f"/sandboxes/{paused}/pause", {"memory": False})[0] == 204
        service.stop(signal.SIGTERM)
        assert left_of(service) == []
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port, service.port = service.port, taken.getsockname()[1]
            with pytest.raises(RuntimeError, match="is taken by process"):
                service.start()
            assert left_of(service) == []
        service.port = port
        assert service.start().request("POST", f"/sandboxes/{paused}/resume", {})[0] == 201


def test_only_a_template_is_not_found(build_dir, base_template):
    """A create that lacks some other file is the service's failure, and says which step it was."""
    with Service(build_dir) as service:
        service.kill(service.create()["sandboxID"])
        [uppers] = [p for p in (service.data_dir / "pool/fs/uppers", service.data_dir / "pool/uppers") if p.exists()]

        def refused():
            # What is being made meanwhile may stay, and one may be made in a slot that was not there yet: the next round has them.
            subprocess.run(["rm", "-rf", *uppers.iterdir()], stderr=subprocess.DEVNULL, check=False, timeout=BUSY_S)
            status, _, answer = service.request("POST", "/v2/sandboxes", {"templateID": "base"})
            return status != 201 and (status, answer)

        status, answer = until(refused, "a create that fails")
        assert status == 500 and re.search(r"while starting: .*: No such file", answer["message"]), (status, answer)
        status, _, answer = service.request("POST", "/v2/sandboxes", {"templateID": "bass"})
        assert status == 404 and "template 'bass' not found" in answer["message"], (status, answer)

        def is_made():
            status = service.request("POST", "/v2/sandboxes", {"templateID": "base"})[0]
            assert status in (201, 500)
            return status == 201

        until(is_made, "a create that succeeds again")


def empty(service):
    """`rm -rf` of what is in a data dir: what is mounted stays, with the folders above it."""
    owner = (service.data_dir / OWNER).read_text()
    subprocess.run(["rm", "-rf", *service.data_dir.iterdir()], stderr=subprocess.DEVNULL, timeout=60, check=False)
    (service.data_dir / OWNER).write_text(owner)  # of the test kit


def replace(service):
    """Deletes a data dir wholly; the one in its place is another folder."""
    new = service.data_dir.with_suffix(".new")
    new.mkdir()
    shutil.copy(service.data_dir / OWNER, new)
    subprocess.run(["umount", service.data_dir / "pool/fs"], stderr=subprocess.DEVNULL, timeout=60, check=False)
    shutil.rmtree(service.data_dir)
    new.rename(service.data_dir)


@pytest.mark.parametrize("sig, delete", [(signal.SIGTERM, empty), (signal.SIGKILL, empty), (signal.SIGTERM, replace)])
def test_a_data_dir_that_was_deleted_under_its_sandboxes(build_dir, base_template, sig, delete):
    """The next service ends what is left of them, and works."""
    with Service(build_dir) as service:
        instance = service.instance()
        old = service.create(timeout=600)["sandboxID"]
        service.stop(sig)
        inits = first_processes(service)
        assert inits
        delete(service)
        service.start()
        is_image = (service.data_dir / "pool/disk.img").exists()
        assert service.instance() == instance
        assert "the data dir was emptied" in service.logged()
        assert ("the pool's image was deleted while it was mounted" in service.logged()) == (is_image and delete is empty)
        processes.wait_gone(inits)
        new = service.create(timeout=600)["sandboxID"]
        assert [box["sandboxID"] for box in service.request("GET", "/v2/sandboxes")[2]] == [new] != [old]
        service.until_clean(may_repair=True)  # their rows are gone, and a log in which a service ended
        assert "could not be prepared" not in service.logged()
        mounts = Path("/proc/self/mountinfo").read_text()
        assert mounts.count(str(service.data_dir)) == is_image
        service.stop()
        assert left_of(service) == []


def test_a_data_dir_that_was_emptied_or_copied_while_it_is_served(build_dir, base_template, tmp_path):
    """There is no second service of its instance."""
    with Service(build_dir) as service:
        instance = service.instance()
        shutil.copytree(service.data_dir, tmp_path / "copy", ignore=shutil.ignore_patterns("pool", "*.sock", "local-clients"))
        (service.data_dir / "lock").unlink()  # as the deletion of all of it does
        (service.data_dir / "format").unlink()
        for folder in (tmp_path / "copy", service.data_dir):
            run = abx(build_dir, "serve", "--listen", "127.0.0.1:0", "--data-dir", folder)
            assert run.returncode == 1 and f"process {service.process.pid} has its instance {instance}" in run.stderr, run
        assert service.kill(service.create()["sandboxID"]) == 204


@pytest.mark.parametrize("dies", ["test", "service"])
def test_what_a_test_that_was_cut_off_leaves_is_removed(build_dir, base_template, dies):
    """The test kit itself: service.left_behind, service.clean_up."""
    program = f"""
import os, signal, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from service import Service
service = Service({str(build_dir)!r}).start()
service.create(timeout=600)
if {dies == "service"}:
    service.process.kill()
    service.process.wait()
print(service.data_dir, service.process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    # Its output goes on being open in what it leaves.
    with tempfile.TemporaryFile("w+") as out:
        assert subprocess.run([sys.executable, "-c", program], stdout=out, timeout=120).returncode == -signal.SIGKILL
        out.seek(0)
        folder, pid = out.read().split()
    rest = Service(build_dir, data_dir=folder)
    assert Path(folder) in left_behind() and len(left_of(rest)) >= 3
    instance = rest.instance()
    clean_up(build_dir, Path(folder))
    assert not Path(folder).exists() and not processes.alive(int(pid))
    assert [*Path("/run/abx").glob(instance), *own_groups(instance)] == []


def test_sigterm_keeps_and_sigint_kills(build_dir, base_template):
    service = Service(build_dir)
    try:
        service.start()
        box = service.create(timeout=600)
        service.stop(signal.SIGTERM)
        service.start()
        status, _, info = service.request("GET", f"/sandboxes/{box['sandboxID']}")
        assert status == 200 and info["state"] == "running"
        assert service.request(
            "GET", "/health", headers={"E2b-Sandbox-Id": box["sandboxID"], "E2b-Sandbox-Port": "49983"}
        )[0] == 204
        service.stop(signal.SIGINT)
        # Ended on purpose: nothing looks lost, neither now nor at the next start.
        ended = f'msg="sandbox ended" id="{box["sandboxID"]}" reason='
        assert ended + '"stopped"' in service.logged(), service.logged()
        service.start()
        assert service.logged().count(ended) == 1, service.logged()
        assert service.request("GET", f"/sandboxes/{box['sandboxID']}")[0] == 404
        service.until_clean()
        run_dir = Path("/run/abx") / service.instance()
        assert run_dir.is_dir()
        # Without a service the same commands work on the database.
        service.stop()
        assert not run_dir.exists()
        assert not str(service.data_dir) in Path("/proc/self/mounts").read_text()
        if Path("/sys/fs/cgroup/memory").is_dir():
            group = f"abx-{service.instance()}"  # os.walk passes over those of others that go meanwhile
            assert [at for at, names, _ in os.walk("/sys/fs/cgroup") if group in names] == []
        made = service.run_abx("key", "create", "--json")
        assert made.returncode == 0, made.stderr
        key = json.loads(made.stdout)["key"]
        service.start()
        assert service.request("GET", "/v2/sandboxes", headers={"X-API-Key": key})[0] == 200
    finally:
        service.stop()
        service.remove()


def test_supervisor_killed_leaves_sandboxes_and_no_role(build_dir, base_template):
    service = Service(build_dir)
    try:
        service.start()
        box = service.create(timeout=600)
        roles = [pid for pids in service.roles().values() for pid in pids]
        service.stop(signal.SIGKILL)
        processes.wait_gone(roles)
        service.start()
        assert service.request("GET", f"/sandboxes/{box['sandboxID']}")[2]["state"] == "running"
    finally:
        service.stop()
        service.remove()


@pytest.mark.slow
def test_a_pool_of_no_template_is_told(build_dir, base_template):
    with Service(build_dir, "--pool", "no-such=1", "--pool", "base=1") as service:
        told = [line for line in service.logged().splitlines() if "pool waits for a template that is not there" in line]
        assert len(told) == 1 and 'template="no-such"' in told[0]


def test_pool_stays_writable_through_many_sandboxes(build_dir, base_template):
    """Quota groups removed too early once aborted a transaction: the pool turned read-only."""
    with Service(build_dir, "--pool", "base=4") as service:
        for i in range(300):
            assert service.kill(service.create()["sandboxID"]) == 204, i
        mounts = [line.split() for line in open("/proc/self/mounts") if str(service.data_dir) in line]
        assert mounts and all(m[3].startswith("rw") for m in mounts)


@pytest.mark.alone  # looks at all guests of the machine
def test_the_service_cgroup_can_be_killed(build_dir, base_template):
    """systemd kills what is in a unit's own group (KillMode=process: the main process only): sandboxes live elsewhere."""
    service = Service(build_dir)
    try:
        service.start()
        box = service.create(timeout=600)
        roles = {service.process.pid, *[pid for pids in service.roles().values() for pid in pids]}
        own = {Path(f"/proc/{pid}/cgroup").read_text() for pid in roles}
        guests = processes.named("abx-guest", "abx-supervisor")
        assert guests and not any(processes.read(pid, "cgroup") in own for pid in guests)
        # Everything that runs in the service's own groups dies at once, as on `systemctl kill`.
        for pid in [*roles, *[p for p in engine_children(service) if p not in guests]]:
            processes.send(pid)
        service.stop()
        service.start()
        health = service.request("GET", "/health", headers={"E2b-Sandbox-Id": box["sandboxID"], "E2b-Sandbox-Port": "49983"})
        assert health[0] == 204
        assert service.kill(box["sandboxID"]) == 204
    finally:
        service.stop()
        service.remove()


def engine_children(service):
    """Workers of the engine."""
    return [pid for engine in service.roles().get("abx-engine", []) for pid in processes.children(engine)]


def first_processes(service):
    """PID 1 of each of the service's sandboxes."""
    found = []
    for pid in processes.every():
        ids = next((x.split()[1:] for x in (processes.read(pid, "status") or "").splitlines() if x.startswith("NSpid:")), [])
        if len(ids) > 1 and ids[-1] == "1" and service.instance() in (processes.read(pid, "cgroup") or ""):
            found.append(pid)
    return found


def test_the_audit_sees_what_a_gateway_still_holds(build_dir, base_template):
    """A sandbox that died while the gateways could not notice: its network namespace lives in their sockets."""
    with Service(build_dir, "--gateways", "2") as s:
        box = s.create(timeout=600)
        headers = {"E2b-Sandbox-Id": box["sandboxID"], "E2b-Sandbox-Port": "49983"}
        assert s.request("GET", "/health", headers=headers)[0] == 204
        (init,) = first_processes(s)
        namespace = os.stat(f"/proc/{init}/ns/net").st_ino
        gateways = s.roles()["abx-gateway"]
        s.until_clean()
        for pid in gateways:
            os.kill(pid, signal.SIGSTOP)
        try:
            os.kill(init, signal.SIGKILL)
            holder = f"network namespace {namespace} without sandbox, held by descriptor"
            found = until(lambda: [f for f in s.audit() if f.startswith(holder)], lambda: f"{holder} in {s.audit()}")
            assert {int(f.rsplit(" ", 1)[1]) for f in found} <= set(gateways)
        finally:
            for pid in gateways:
                processes.send(pid, signal.SIGCONT)
        s.until_clean()


@pytest.mark.slow
def test_what_has_no_row_is_ended_and_the_tests_hear_of_it(build_dir, base_template):
    with Service(build_dir) as s:
        box = s.create(timeout=600)["sandboxID"]
        s.until_clean()
        sockets = (s.data_dir / "control/engine.sock", f"/run/abx/{s.instance()}/gateway/engine.sock")
        tool = subprocess.run([Path(build_dir) / "tests/tools/engine_tool", *sockets], input="create stranger base\n", capture_output=True, text=True, timeout=BUSY_S)
        assert tool.stdout.startswith("ok "), tool
        until(s.repairs, "the end of the stranger")
        with pytest.raises(AssertionError, match="killing a sandbox without a row.*stranger"):
            s.until_clean()
        assert s.kill(box) == 204


def test_two_services_share_a_machine(build_dir, base_template):
    """One is audited, killed and audited again; the other does not notice."""
    with Service(build_dir) as other, Service(build_dir) as one:
        kept, lost = other.create(timeout=600), one.create(timeout=600)
        one.stop(signal.SIGKILL)
        other.until_clean()
        one.start()
        one.until_clean()
        run = one.run_abx("doctor", "--audit", "--repair", "--json")
        assert json.loads(run.stdout)["findings"] == []
        for service, box in ((other, kept), (one, lost)):
            health = service.request(
                "GET", "/health", headers={"E2b-Sandbox-Id": box["sandboxID"], "E2b-Sandbox-Port": "49983"})
            assert health[0] == 204
        assert one.kill(kept["sandboxID"]) == 404
        one.stop()
        assert other.kill(kept["sandboxID"]) == 204
        other.until_clean()


def status_of(pid, field):
    return next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(field)).split()[1:]


def test_roles_have_only_what_they_need(service):
    """Own uids, no capability, no way to new privileges, a filter, and nothing to read them by."""
    roles = service.roles()
    assert set(roles) == {"abx-engine", "abx-control", "abx-gateway", "abx-egress"} and len(roles["abx-gateway"]) == 2
    uids = set()
    for name in ("abx-control", "abx-gateway", "abx-egress"):
        for pid in roles[name]:
            uid = {int(u) for u in status_of(pid, "Uid:")}
            assert len(uid) == 1 and 0 not in uid
            uids |= uid
            assert status_of(pid, "CapEff:") == ["0000000000000000"] == status_of(pid, "CapPrm:")
            assert status_of(pid, "NoNewPrivs:") == ["1"]
            assert status_of(pid, "Seccomp:") == ["2"]
            assert os.stat(f"/proc/{pid}/mem").st_uid == 0, "dumpable"
    assert len(uids) == 3
    assert not [line for line in Path("/etc/passwd").read_text().splitlines() if int(line.split(":")[2]) in uids]


def test_run_as(build_dir, base_template):
    with Service(build_dir, "--run-as", "nobody", "--gateways", "1") as service:
        roles = service.roles()
        for name in ("abx-control", "abx-gateway", "abx-egress"):
            assert {int(u) for pid in roles[name] for u in status_of(pid, "Uid:")} == {65534}
        assert service.kill(service.create()["sandboxID"]) == 204


def test_socket_and_notification_of_the_service_manager(build_dir, tmp_path):
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notify.bind(str(tmp_path / "notify"))
    notify.settimeout(60)
    command = f"exec 3<&{listener.fileno()}; export LISTEN_FDS=1 LISTEN_PID=$$; exec {build_dir}/abx serve --data-dir {tmp_path}/d --disk 10G"
    process = subprocess.Popen(
        ["/bin/bash", "-c", command], pass_fds=[listener.fileno()], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "2000000"})
    try:
        assert notify.recv(100) == b"READY=1"
        assert [notify.recv(100) for _ in range(3)] == [b"WATCHDOG=1"] * 3
        with socket.create_connection(listener.getsockname(), BUSY_S) as c:
            c.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert c.recv(100).startswith(b"HTTP/1.1 200")
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        listener.close()
        notify.close()


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_is_no_reason_to_warn(build_dir, base_template, sig):
    with Service(build_dir) as s:
        s.create(timeout=600)
        begun = (s.data_dir / "serve.log").stat().st_size
        s.stop(sig)
        lines = (s.data_dir / "serve.log").read_bytes()[begun:].decode().splitlines()
        assert any('msg="stopping"' in line for line in lines)
        assert [line for line in lines if line.split()[1] not in ("info", "debug")] == []
        if sig == signal.SIGTERM:  # end what it kept
            s.start()


def test_doctor_knows_this_machine(build_dir, open_dir):
    run = abx(build_dir, "doctor", "--json")
    probe = json.loads(run.stdout)
    assert run.returncode == 0 and probe["can_run"] is True
    checks = {c["name"]: c["status"] for c in probe["checks"]}
    assert len(checks) > 15 and set(checks.values()) <= {"ok", "degraded", "info"}
    run = abx(build_dir, "doctor")
    assert "Sandboxes can run" in run.stdout


def test_doctor_of_a_user_says_once_that_it_needs_root(build_dir, open_dir):
    """What fails for want of root is no finding: the machine may well have it."""
    run = abx(open_dir, "doctor", user=65534, cwd="/")
    assert run.returncode == 1 and "sudo abx doctor" in run.stdout.splitlines()[-1]
    assert [line.split()[1] for line in run.stdout.splitlines() if line.startswith("missing ")] == ["root"], run.stdout
    assert "ermission denied" not in run.stdout and "not permitted" not in run.stdout, run.stdout
    probe = json.loads(abx(open_dir, "doctor", "--json", user=65534, cwd="/").stdout)
    assert probe["can_run"] is False and {"root", "kernel", "memory"} <= {c["name"] for c in probe["checks"]}
