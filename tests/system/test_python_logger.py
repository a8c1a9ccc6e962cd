"""`logger=` of the Python package: which requests became lines of which level, and that no secret is in them."""

import json

import pytest
from service import Service
from test_python_program import clean_env, ours, run_program

BEGIN = """
import asyncio, json, logging, sys
from agent_sandbox import {names}
lines = []
class Keep(logging.Handler):
    def emit(self, record):
        lines.append((record.levelname, record.getMessage()))
log = logging.getLogger("mine")
log.addHandler(Keep())
log.setLevel(logging.DEBUG)
log.propagate = False
def at():
    return len(lines)
secrets = []
"""

SYNC = BEGIN.format(names="NotFoundException, Sandbox, SandboxException") + """
box = Sandbox.create(logger=log, timeout=300)
created = at()
secrets += [box._address.access_token, box.connection_config.api_key]
box.commands.run("echo hidden-output", envs={"NAME": "hidden-value"})
ran = at()
box.files.write("/tmp/a", "hidden-content")
box.files.read("/tmp/a")
try:
    box.files.read("/tmp/none")
except NotFoundException:
    pass
read = at()
handle = box.commands.run("sleep 100", background=True)
started = at()
handle.disconnect()
handle.kill()
left = at()
# Other sandboxes and calls without one say nothing.
Sandbox.connect(box.sandbox_id).commands.run("true")
Sandbox.get_info(box.sandbox_id)
assert at() == left
assert box.download_url("/tmp/a", use_signature_expiration=60).split("signature=")[1]
box.get_info()
box.set_timeout(200)
box.kill()
box.kill()
killed = at()
try:
    Sandbox.create(logger=log, api_url="http://127.0.0.1:9", request_timeout=5)
except SandboxException:
    pass
failed = at()
def broken(record):
    raise RuntimeError("a handler that fails")
log.handlers[0].emit = broken
logging.raiseExceptions = False
other = Sandbox.create(logger=log, timeout=60)  # is no reason for a request to fail
other.kill()
"""

ASYNC = BEGIN.format(names="AsyncSandbox, NotFoundException, SandboxException") + """
async def main():
    global created, ran, read, started, left, killed, failed
    box = await AsyncSandbox.create(logger=log, timeout=300)
    created = at()
    secrets.extend([box._address.access_token, box.connection_config.api_key])
    await box.commands.run("echo hidden-output", envs={"NAME": "hidden-value"})
    ran = at()
    await box.files.write("/tmp/a", "hidden-content")
    await box.files.read("/tmp/a")
    try:
        await box.files.read("/tmp/none")
    except NotFoundException:
        pass
    read = at()
    handle = await box.commands.run("sleep 100", background=True)
    started = at()
    await handle.disconnect()
    await handle.kill()
    left = at()
    other = await AsyncSandbox.connect(box.sandbox_id)
    await other.commands.run("true")
    await AsyncSandbox.get_info(box.sandbox_id)
    assert at() == left
    await box.get_info()
    await box.set_timeout(200)
    await box.kill()
    await box.kill()
    killed = at()
    try:
        await AsyncSandbox.create(logger=log, api_url="http://127.0.0.1:9", request_timeout=5)
    except SandboxException:
        pass
    failed = at()
asyncio.run(main())
"""

END = """
print(json.dumps({"created": lines[:created], "ran": lines[created:ran], "read": lines[ran:read], "started": lines[read:started],
                  "left": lines[started:left], "killed": lines[left:killed], "failed": lines[killed:failed], "secrets": secrets}))
"""


@pytest.fixture(scope="module")
def service(build_dir, base_template):
    with Service(build_dir) as service:
        yield service


def shape(lines):
    """Lines without what differs from run to run."""
    return [(level, " ".join(w for w in text.split(" (")[0].replace("http://", "").split())) for level, text in lines]


@pytest.mark.parametrize("text", [SYNC, ASYNC], ids=["sync", "async"])
def test_requests_are_lines_of_the_logger(service, python_dir, tmp_path, text):
    run = run_program(text + END, tmp_path, clean_env(tmp_path, python_dir, **ours(service)))
    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout)
    secrets = [s for s in told.pop("secrets") if s]
    assert len(secrets) == 2
    everything = json.dumps(told)
    assert not any(s in everything for s in secrets) and "hidden" not in everything and "?" not in everything, everything

    api = f"127.0.0.1:{service.port}"
    ways = shape(told["created"])
    assert ways[0] == ("INFO", f"Request POST {api}/sandboxes") and ways[1] == ("INFO", f"Response 201 POST {api}/sandboxes")
    envd = shape(told["ran"])[0][1].split()[2].removesuffix("/process.Process/Start")
    start = f"POST {envd}/process.Process/Start"
    assert shape(told["ran"]) == [("INFO", f"Request {start}"), ("INFO", f"Response stream 200 {start}"),
                                  ("DEBUG", f"Response stream ended {start}")]
    assert shape(told["read"]) == [
        ("INFO", f"Request POST {envd}/files"), ("INFO", f"Response 200 POST {envd}/files"),
        ("INFO", f"Request GET {envd}/files"), ("INFO", f"Response 200 GET {envd}/files"),
        ("INFO", f"Request GET {envd}/files"), ("ERROR", f"Response 404 GET {envd}/files"),
    ]  # fmt: skip
    assert shape(told["started"]) == [("INFO", f"Request {start}"), ("INFO", f"Response stream 200 {start}")]
    signal = f"POST {envd}/process.Process/SendSignal"
    assert shape(told["left"]) == [("DEBUG", f"Response stream ended {start}"), ("INFO", f"Request {signal}"),
                                   ("INFO", f"Response 200 {signal}")]
    statuses = [(level, text.split()[:3]) for level, text in shape(told["killed"]) if text.startswith("Response")]
    assert statuses == [("INFO", ["Response", "200", "GET"]), ("INFO", ["Response", "204", "POST"]),
                        ("INFO", ["Response", "204", "DELETE"]), ("ERROR", ["Response", "404", "DELETE"])]
    level, last = told["failed"][-1]
    assert level == "ERROR" and last.startswith("Request failed POST http://127.0.0.1:9/sandboxes (") and "connect" in last
