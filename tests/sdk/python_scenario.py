"""One scenario through a Python client: prints, as JSON, what every call returned or raised.

usage: python_scenario.py MODULE service     against a running service (environment as the client wants it)
       python_scenario.py MODULE pure        without any server
       python_scenario.py MODULE faults      against a server whose answers depend on the path (see status_server.py)

The same file runs with our agent_sandbox, the published one and e2b; tests/system/test_python_compare.py compares. What
differs from run to run (ids, times, process ids) is left out here.
"""

import asyncio
import dataclasses
import enum
import importlib
import inspect
import io
import json
import re
import sys
from datetime import datetime

m = importlib.import_module(sys.argv[1])
told = {}


def plain(value):
    """A value without what changes from run to run."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [f.name for f in dataclasses.fields(value)]
        return {"class": type(value).__name__, **{n: plain(getattr(value, n)) for n in names if n not in CHANGING}}
    if isinstance(value, enum.Enum):
        if getattr(m, type(value).__name__, None) is not type(value):
            return value.value  # of a generated class: compares like its value
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, (bytes, bytearray)):
        return {"class": type(value).__name__, "text": value.decode("latin-1")}
    if isinstance(value, datetime):
        return "datetime" if value.tzinfo is None else "datetime with zone"
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else type(value).__name__


CHANGING = {"sandbox_id", "template_id", "pid", "sandbox_domain", "mem_used", "mem_cache", "disk_used", "cpu_used_pct", "snapshot_id"}


def failure(error):
    bases = [c.__name__ for c in type(error).__mro__ if c.__name__.endswith("Exception")]
    found = {"raised": type(error).__name__, "is": bases}
    if isinstance(error, m.CommandResult):
        found.update(exit_code=error.exit_code, stdout=error.stdout, stderr=error.stderr, error=error.error)
    return found


def step(name, function):
    try:
        told[name] = plain(function())
    except Exception as error:
        told[name] = failure(error)


async def step_async(name, function):
    try:
        value = function()
        told[name] = plain(await value if inspect.isawaitable(value) else value)
    except Exception as error:
        told[name] = failure(error)


def steps(sb, cls):
    """[(name, function)] that both sides have in the same form."""
    c, f, g = sb.commands, sb.files, sb.git
    pieces = []
    size = m.sandbox.commands.command_handle.PtySize if m.__name__ == "e2b" and not hasattr(m, "PtySize") else m.PtySize
    return [
        ("run", lambda: c.run("echo hello; echo problem >&2")),
        ("run exit code", lambda: c.run("echo out; echo err >&2; exit 3")),
        ("run signal", lambda: c.run("kill -9 $$")),
        ("run envs", lambda: c.run("echo $A-$B", envs={"A": "1", "B": "x y'\""})),
        ("run cwd", lambda: c.run("pwd", cwd="/tmp")),
        ("run user", lambda: c.run("whoami", user="root")),
        ("run default user", lambda: c.run("whoami; pwd")),
        ("run bad cwd", lambda: c.run("pwd", cwd="/no/such/folder")),
        ("run bad user", lambda: c.run("pwd", user="nobody-of-this-name")),
        ("run timeout", lambda: c.run("sleep 30", timeout=1)),
        ("run not UTF-8", lambda: c.run(r"printf 'a\xff\xc3\xa9b\xe2\x82'")),
        ("run multibyte", lambda: c.run("printf 'ä€😀'")),
        ("run big", lambda: len_of(c.run("head -c 3000000 /dev/zero | tr '\\0' x"))),
        ("run callbacks", lambda: c.run("echo a; echo b >&2", on_stdout=pieces.append, on_stderr=pieces.append)),
        ("run callbacks told", lambda: sorted(pieces)),
        ("run empty", lambda: c.run("")),
        ("kill none", lambda: c.kill(999999)),
        ("stdin none", lambda: c.send_stdin(999999, "x")),
        ("connect none", lambda: c.connect(999999)),
        ("write", lambda: f.write("/tmp/a.txt", "content ä")),
        ("write bytes", lambda: f.write("/tmp/b.bin", b"\x00\x01\xff")),
        ("write file object", lambda: f.write("/tmp/c.bin", io.BytesIO(b"z" * 200000))),
        ("write text object", lambda: f.write("/tmp/d.txt", io.StringIO("text"))),
        ("write below", lambda: f.write("/tmp/new/deep/e.txt", "e")),
        ("write relative", lambda: f.write("relative.txt", "r")),
        ("write empty", lambda: f.write("/tmp/empty", "")),
        ("write many", lambda: f.write_files([{"path": "/tmp/m1", "data": "1"}, {"path": "/tmp/m2", "data": b"2"}])),
        ("write none", lambda: f.write_files([])),
        ("write on folder", lambda: f.write("/tmp", "x")),
        ("write forbidden", lambda: f.write("/proc/x", "x")),
        ("write metadata", lambda: f.write("/tmp/meta", "x", metadata={"a": "b"})),
        ("write bad metadata", lambda: f.write("/tmp/meta", "x", metadata={"a b": "ä"})),
        ("write gzip", lambda: f.write("/tmp/gz", "g" * 1000, gzip=True)),
        ("read", lambda: f.read("/tmp/a.txt")),
        ("read bytes", lambda: f.read("/tmp/b.bin", format="bytes")),
        ("read gzip", lambda: f.read("/tmp/gz", gzip=True)),
        ("read missing", lambda: f.read("/tmp/none")),
        ("read folder", lambda: f.read("/tmp")),
        ("read secret", lambda: f.read("/etc/shadow")),
        ("read as root", lambda: len_of_text(f.read("/etc/shadow", user="root"))),
        ("read bad user", lambda: f.read("/tmp/a.txt", user="nobody-of-this-name")),
        ("info", lambda: f.get_info("/tmp/c.bin")),
        ("info folder", lambda: f.get_info("/tmp/new")),
        ("info missing", lambda: f.get_info("/tmp/none")),
        ("info metadata", lambda: f.get_info("/tmp/meta")),
        ("exists", lambda: f.exists("/tmp/a.txt")),
        ("exists not", lambda: f.exists("/tmp/none")),
        ("list", lambda: f.list("/tmp/new", depth=3)),
        ("list missing", lambda: f.list("/tmp/none")),
        ("list file", lambda: f.list("/tmp/a.txt")),
        ("list depth 0", lambda: f.list("/tmp", depth=0)),
        ("make dir", lambda: f.make_dir("/tmp/made/deep")),
        ("make dir again", lambda: f.make_dir("/tmp/made/deep")),
        ("make dir on file", lambda: f.make_dir("/tmp/a.txt")),
        ("rename", lambda: f.rename("/tmp/a.txt", "/tmp/renamed.txt")),
        ("rename missing", lambda: f.rename("/tmp/none", "/tmp/x")),
        ("remove", lambda: f.remove("/tmp/renamed.txt")),
        ("remove missing", lambda: f.remove("/tmp/renamed.txt")),
        ("link", lambda: c.run("ln -s /etc/passwd /tmp/link")),
        ("info link", lambda: f.get_info("/tmp/link")),
        ("git init", lambda: g.init("/tmp/repo", initial_branch="main")),
        ("git user", lambda: g.configure_user("A B", "a@b")),
        ("git config", lambda: g.get_config("user.name")),
        ("git config none", lambda: g.get_config("user.nothing")),
        ("git file", lambda: f.write("/tmp/repo/a b.txt", "1")),
        ("git status", lambda: g.status("/tmp/repo")),
        ("git add", lambda: exit_of(g.add("/tmp/repo"))),
        ("git status staged", lambda: g.status("/tmp/repo")),
        ("git commit", lambda: exit_of(g.commit("/tmp/repo", "it's \"one\""))),
        ("git branch", lambda: exit_of(g.create_branch("/tmp/repo", "next"))),
        ("git branches", lambda: g.branches("/tmp/repo")),
        ("git remote none", lambda: g.remote_get("/tmp/repo", "origin")),
        ("git pull", lambda: g.pull("/tmp/repo")),
        ("git reset mode", lambda: g.reset("/tmp/repo", mode="no")),
        ("git no repository", lambda: g.status("/tmp")),
        ("git half credentials", lambda: g.clone("https://x.test/y.git", password="p")),
        ("git scope", lambda: g.set_config("a.b", "c", scope="no")),
        ("pty resize none", lambda: sb.pty.resize(999999, size(rows=10, cols=20))),
        ("pty kill none", lambda: sb.pty.kill(999999)),
        ("running", lambda: sb.is_running()),
        ("sandbox info", lambda: sb.get_info()),
        ("sandbox info by id", lambda: cls.get_info(sb.sandbox_id)),
        ("set timeout", lambda: sb.set_timeout(300)),
        ("set timeout by id", lambda: cls.set_timeout(sb.sandbox_id, 300)),
        ("set timeout none", lambda: cls.set_timeout("inone0000000000000000", 300)),
        ("info none", lambda: cls.get_info("inone0000000000000000")),
        ("connect none", lambda: cls.connect("inone0000000000000000")),
        ("kill none", lambda: cls.kill("inone0000000000000000")),
        ("create no template", lambda: cls.create("no-such-template")),
        ("create bad lifecycle", lambda: cls.create(lifecycle={"on_timeout": "kill", "auto_resume": True})),
        ("wrong key", lambda: cls.create(api_key="e2b_00000000")),
        ("download url", lambda: re.sub(r"https?://[^/]+|signature=[^&]*|expiration=\d+", "", sb.download_url("/tmp/x y", user="root"))),
        ("upload url", lambda: re.sub(r"https?://[^/]+|signature=[^&]*", "", sb.upload_url("/tmp/x"))),
        ("signature", lambda: m.get_signature("/a", "read", "u", "token")),
    ]  # fmt: skip


def len_of(result):
    async def later():
        return len((await result).stdout)

    return later() if inspect.isawaitable(result) else len(result.stdout)


def len_of_text(text):
    async def later():
        return len(await text) > 0

    return later() if inspect.isawaitable(text) else len(text) > 0


def exit_of(result):
    async def later():
        return (await result).exit_code

    return later() if inspect.isawaitable(result) else result.exit_code


def plain_only(sb):
    handle = sb.commands.run("for i in 1 2 3; do echo $i; done; read x; echo got $x", background=True, stdin=True)
    step("processes", lambda: [[p.cmd, p.args, p.tag, p.cwd] for p in sb.commands.list() if "got" in str(p.args)])
    step("send stdin", lambda: sb.commands.send_stdin(handle.pid, "it\n"))
    step("iterate", lambda: "".join(out or "" for out, _, _ in handle))
    step("wait again", lambda: handle.wait())
    step("kill ended", lambda: handle.kill())
    other = sb.commands.run("sleep 100", background=True)
    step("kill", lambda: other.kill())
    step("wait killed", lambda: other.wait())
    step("stream", lambda: sum(len(piece) for piece in sb.files.read("/etc/passwd", format="stream")) > 100)
    sb.files.make_dir("/tmp/watched/below")
    watch = sb.files.watch_dir("/tmp/watched", recursive=True)
    sb.files.write("/tmp/watched/below/a", "1")
    sb.files.rename("/tmp/watched/below/a", "/tmp/watched/b")
    sb.files.remove("/tmp/watched/b")
    step("watch", lambda: sorted({(e.name, e.type.value) for e in watch.get_new_events()}))
    step("watch again", lambda: watch.get_new_events())
    step("watch stop", lambda: watch.stop())
    step("watch stopped", lambda: watch.get_new_events())
    step("watch missing", lambda: sb.files.watch_dir("/tmp/none"))
    step("watch file", lambda: sb.files.watch_dir("/etc/passwd"))
    pages = m.Sandbox.list()
    step("list pages", lambda: [pages.has_next, len(pages.next_items()), pages.has_next])
    step("list beyond", lambda: pages.next_items())
    query = m.SandboxQuery(metadata={"k &=": "v %20"})
    step("list metadata", lambda: [s.metadata for s in m.Sandbox.list(query=query).next_items()])
    step("list state", lambda: len(m.Sandbox.list(query=m.SandboxQuery(state=[m.SandboxState.PAUSED])).next_items()))


async def async_only(sb):
    pieces = []
    handle = await sb.commands.run("echo 1; read x; echo got $x", background=True, stdin=True, on_stdout=pieces.append)
    await step_async("async send stdin", lambda: handle.send_stdin("it\n"))
    await step_async("async wait", lambda: handle.wait())
    told["async live"] = ["".join(pieces), handle.stdout, handle.stderr, handle.exit_code, handle.error]
    await step_async("async kill ended", lambda: handle.kill())
    seen, ends, removed = set(), [], asyncio.Event()

    def on_event(event):
        seen.add((event.name, event.type.value))
        if event.type.value == "remove":
            removed.set()

    await sb.files.make_dir("/tmp/watched")
    watch = await sb.files.watch_dir("/tmp/watched", on_event, on_exit=ends.append)
    await sb.files.write("/tmp/watched/a", "1")
    await sb.files.remove("/tmp/watched/a")
    await asyncio.wait_for(removed.wait(), 90)
    await step_async("async watch stop", lambda: watch.stop())
    told["async watch"] = [sorted(seen), [type(e).__name__ for e in ends]]
    await step_async("async watch missing", lambda: sb.files.watch_dir("/tmp/none", on_event))
    other = await sb.commands.run("exit 5", background=True)
    await step_async("async wait failed", lambda: other.wait())


def pausing(sb):
    """Not interleaved with others: what is paused answers nothing."""
    by_id = m.Sandbox.pause
    return [
        ("pause", lambda: bool(sb.pause())),
        ("paused running", lambda: sb.is_running()),
        ("paused run", lambda: sb.commands.run("true")),
        ("paused read", lambda: sb.files.read("/tmp/x")),
        ("paused info", lambda: sb.get_info().state),
        ("pause again", lambda: sb.pause()),
        ("paused set timeout", lambda: sb.set_timeout(60)),
        ("resume", lambda: sb.connect().is_running()),
        ("resumed run", lambda: sb.commands.run("echo up").stdout),
        ("pause by id", lambda: bool(by_id(sb.sandbox_id, keep_memory=False))),
        ("resume by id", lambda: m.Sandbox.connect(sb.sandbox_id, timeout=60).commands.run("echo up").stdout),
        ("pause none", lambda: by_id("inone0000000000000000")),
    ]


def service():
    sb = m.Sandbox.create(timeout=300, metadata={"k &=": "v %20"}, envs={"OWN": "env"})
    try:
        for name, function in steps(sb, m.Sandbox):
            step(name, function)
        plain_only(sb)
        for name, function in pausing(sb):
            step(name, function)
    finally:
        step("kill it", lambda: sb.kill())
    step("kill it again", lambda: sb.kill())
    step("dead run", lambda: sb.commands.run("true"))
    step("dead read", lambda: sb.files.read("/tmp/x"))
    step("dead running", lambda: sb.is_running())

    async def main():
        asb = await m.AsyncSandbox.create(timeout=300)
        try:
            for name, function in steps(asb, m.AsyncSandbox):
                await step_async("async " + name, function)
            await async_only(asb)
        finally:
            await step_async("async kill it", lambda: asb.kill())
        await step_async("async dead run", lambda: asb.commands.run("true"))

    asyncio.run(main())


def faults():
    """The control plane's and the sandbox's answers by status: what each call raises."""
    for status in (400, 401, 403, 404, 409, 413, 418, 429, 500, 502, 503, 507):
        api = {"api_key": "k", "api_headers": {"X-Want-Status": str(status)}, "headers": {"X-Want-Status": str(status)}}
        step(f"create {status}", lambda: m.Sandbox.create("x", **api))
        step(f"connect {status}", lambda: m.Sandbox.connect("x", **api))
        step(f"info {status}", lambda: m.Sandbox.get_info("x", **api))
        step(f"kill {status}", lambda: m.Sandbox.kill("x", **api))
        step(f"set timeout {status}", lambda: m.Sandbox.set_timeout("x", 1, **api))
        step(f"list {status}", lambda: m.Sandbox.list(**api).next_items())
    for status in (400, 401, 403, 404, 409, 429, 500, 502, 503, 507):
        sb = m.Sandbox.connect(f"sb{status}", api_key="k")
        step(f"read {status}", lambda: sb.files.read("/x"))
        step(f"write {status}", lambda: sb.files.write("/x", "x"))
        step(f"stat {status}", lambda: sb.files.get_info("/x"))
        step(f"run {status}", lambda: sb.commands.run("x"))
        step(f"processes {status}", lambda: sb.commands.list())
        step(f"running {status}", lambda: sb.is_running())
    for code in (
        "canceled", "unknown", "invalid_argument", "deadline_exceeded", "not_found", "already_exists", "permission_denied",
        "resource_exhausted", "failed_precondition", "aborted", "out_of_range", "unimplemented", "internal", "unavailable",
        "data_loss", "unauthenticated", "no_such_code",
    ):  # fmt: skip
        sb = m.Sandbox.connect(f"code-{code}", api_key="k")
        step(f"stat {code}", lambda: sb.files.get_info("/x"))
        step(f"processes {code}", lambda: sb.commands.list())
        step(f"run {code}", lambda: sb.commands.run("x"))
    step("no key", lambda: m.Sandbox.create("x"))


def template_of(build):
    def made():
        base = m.Template(file_context_path="context")
        text = m.Template.to_json(build(base))
        return json.loads(text)

    return made


def dockerfile_of(build):
    return lambda: m.Template.to_dockerfile(build(m.Template(file_context_path="context"))).split("\n")


def every_step(t):
    return (
        t.from_image("debian:12")
        .set_user("root").set_workdir("/w d").set_envs({"A": "1", "B": "x y"})
        .run_cmd("echo 1").run_cmd(["a", "b"], user="u")
        .make_dir("/x").make_dir(["/y", "/z z"], mode=0o750).make_symlink("/x", "/l", force=True)
        .rename("/y", "/q", force=True).remove("/q", recursive=True, force=True)
        .git_clone("https://x.test/a.git", "/a", branch="b", depth=1)
        .skip_cache().run_cmd("last")
    )  # fmt: skip


def pure():
    """What asks nobody."""
    for name, build in {
        "steps": every_step,
        "images": lambda t: t.from_python_image("3.12").pip_install(["a", "b"]),
        "pip user": lambda t: t.from_base_image().pip_install("a", g=False),
        "pip here": lambda t: t.from_base_image().pip_install(),
        "npm": lambda t: t.from_node_image().npm_install(["a"], g=True).npm_install(dev=True).npm_install(),
        "bun": lambda t: t.from_bun_image().bun_install("a", dev=True),
        "apt": lambda t: t.from_ubuntu_image().apt_install(["a", "b"], no_install_recommends=True),
        "start": lambda t: t.from_debian_image().set_start_cmd("run", m.wait_for_port(80)),
        "ready": lambda t: t.from_debian_image().set_ready_cmd(m.wait_for_timeout(1500)),
        "template": lambda t: t.from_template("other").run_cmd("x"),
        "registry": lambda t: t.from_image("i", username="u", password="p").run_cmd("x"),
        "aws": lambda t: t.from_aws_registry("i", "a", "b", "c").run_cmd("x"),
        "gcp": lambda t: t.from_gcp_registry("i", {"a": 1}).run_cmd("x"),
        "mcp": lambda t: t.from_template("mcp-gateway").add_mcp_server(["a", "b"]),
        "mcp wrong": lambda t: t.from_template("x").add_mcp_server("a"),
        "copy outside": lambda t: t.from_base_image().copy("../x", "/x"),
        "copy absolute": lambda t: t.from_base_image().copy("/x", "/x"),
        "dockerfile": lambda t: t.from_dockerfile(
            "FROM debian:12 AS x\nENV A=1 B=2\nRUN a && \\\n  b\nWORKDIR /w\nUSER u\nCMD [\"run\", \"it\"]\n"
        ),
        "dockerfile bare": lambda t: t.from_dockerfile("FROM x\nRUN y\n"),
        "dockerfile stages": lambda t: t.from_dockerfile("FROM x\nFROM y\n"),
    }.items():
        step(f"template {name}", template_of(build))
    step("dockerfile text", dockerfile_of(lambda t: t.from_image("x").run_cmd("a").set_workdir("/w").set_start_cmd("s", "r")))
    step("dockerfile text template", dockerfile_of(lambda t: t.from_template("x").run_cmd("a")))
    for name, ready in {
        "port": m.wait_for_port(80), "url": m.wait_for_url("http://x/y", 201), "process": m.wait_for_process("p q"),
        "file": m.wait_for_file("/f"), "timeout": m.wait_for_timeout(10),
    }.items():  # fmt: skip
        step(f"wait for {name}", ready.get_cmd)
    step("signature", lambda: m.get_signature("/a", "write", None, "token"))
    step("signature without token", lambda: m.get_signature("/a", "read", None, None))
    error = m.CommandExitException("err", "out", 3, "exit status 3")
    step("exit exception", lambda: [str(error), repr(error), list(error.args), error.exit_code])
    step("reprs", lambda: [repr(m.CommandResult("e", "o", 1, "")), repr(m.SnapshotInfo("x")), str(m.SandboxState.RUNNING)])
    for name, options in {
        "plain": {"domain": "d.test"}, "debug": {"debug": True}, "url": {"sandbox_url": "http://h:1"},
        "known": {"domain": "e2b.app"}, "api url": {"api_url": "https://a.test", "domain": "d.test"},
    }.items():  # fmt: skip
        c = m.ConnectionConfig(api_key="k", **options)
        domain = options.get("domain") or "d.test"
        step(f"config {name}", lambda: [c.get_sandbox_url("id", domain), c.get_sandbox_direct_url("id", domain),
                                        c.get_host("id", domain, 80), c.request_timeout, c.debug, c.api_key])  # fmt: skip
    c = m.ConnectionConfig(api_key="k", request_timeout=5)
    step("config times", lambda: [c.get_request_timeout(), c.get_request_timeout(0), c.get_request_timeout(7)])
    step("config key", lambda: m.ConnectionConfig(api_key="bad", validate_api_key=True).api_key)
    step("debug", lambda: debug(m.Sandbox.create(debug=True, api_key="k")))


def debug(sb):
    return [sb.sandbox_id, sb.get_host(80), sb.get_mcp_url(), sb.kill(), sb.set_timeout(1), sb.get_metrics(), sb.envd_api_url]


{"service": service, "faults": faults, "pure": pure}[sys.argv[2]]()
json.dump(told, sys.stdout)
