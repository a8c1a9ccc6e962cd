"""Every step of create, pause, resume, snapshot, fork, rollback and kill fails, or its process dies in it, or hangs: there is an answer
that names the step, the sandbox is what it was or what was asked for, a kill ends it, and nothing is left that no one owns.

The steps are the points of src/base/fault.h. `OPERATIONS` has all of them, which a test compares with the source.
"""

import re
import sqlite3
import threading
from pathlib import Path

import processes
import pytest
from envd import Envd, EnvdError
from faults import Faults
from service import Service
from waiting import BUSY_S, until

ROOT = Path(__file__).resolve().parents[2]
REST = {"running", "paused"}  # rows of what nothing is under way with


class Point:
    """One step of an operation: what comes of it when it fails, and what the message says then (its name, unless told)."""

    def __init__(self, name, says=None, ends="refused", actions=("fail", "kill"), count="1", also=()):
        self.name, self.ends, self.actions, self.count, self.also = name, ends, actions, count, also
        self.says = says or f"{name}: injected fault"


def points(*names, **more):
    return [Point(name, **more) for name in names]


# The engine tries such a thing again, or can do without it.
def absorbed(*names, **more):
    return points(*names, ends="done", **more)


# Where nothing is left to fail.
def deadly(*names):
    return points(*names, ends="done", actions=("kill",))


START = points(
    "start.identity", "start.record", "start.groups", "start.layers", "start.overlay", "start.mounts", "start.clone", "start.maps", "start.running",
    "start.exec")
# Others may pass there meanwhile, for the stock.
PREPARE = points("prepare.uids", "prepare.network", "prepare.record", "prepare.upper", "prepare.groups", count="*")
COPY = [
    Point("copy.files", "cannot be copied: injected fault"),
    *points("engine.clone", "clone.record", "clone.freeze", "clone.files", "clone.thaw", "clone.note"),
    *deadly("engine.cloned"),
]
REMOVE = absorbed("remove.processes", "remove.groups", "remove.record")

OPERATIONS = {
    "create": [
        *points("create.row", "store.create", says="Failed to create sandbox while writing: injected fault"),
        Point("create.start", "Failed to create sandbox while starting: injected fault"),
        *points("engine.create", "start.resize"),
        *START,
        *deadly("engine.created"),
        *points("create.commit", "store.run", says="Failed to create sandbox while committing: injected fault"),
        *deadly("create.answer"),
    ],
    "create-without-stock": PREPARE,
    "claim": points("claim.resize", "claim.record", "claim.name", "claim.identity"),
    "pause": [
        *absorbed("pause.drain"),
        Point("pause.freeze", "while freezing: injected fault"),
        *points("engine.freeze", "freeze.processes", "freeze.note"),
        *deadly("engine.frozen"),
        *points("pause.save", "store.pause", says="while saving: injected fault"),
        Point("pause.undo", "while saving: injected fault", also=("pause.save 1 fail",)),
        *deadly("pause.answer"),
    ],
    "pause-healthy": points("pause.check", says="its guest is not healthy: injected fault"),
    "pause-files": [
        *points("save.sync", count="*"),
        *absorbed("pause.stop", "engine.stop", "remove.groups"),
        *deadly("remove.processes", "remove.record", "engine.stopped"),
    ],
    "resume": [
        Point("resume.thaw", "while waking: injected fault"),
        *points("engine.thaw", "thaw.processes"),
        *deadly("engine.frozen"),
        *absorbed("resume.row", "store.run"),
        *deadly("resume.answer"),
    ],
    "resume-files": [
        Point("resume.start", "while waking: injected fault"),
        *points("engine.create"),
        *PREPARE,
        *START,
        *deadly("engine.created"),
        *absorbed("resume.row"),
    ],
    "resume-dropping": [Point("resume.stop", "while waking: injected fault"), *points("engine.stop")],
    "snapshot": [
        *COPY,
        *points("snapshot.row", "store.snapshot", says="cannot be written down: injected fault"),
    ],
    "fork": [
        *COPY,
        *points("create.row", says="Failed to create sandbox while writing: injected fault"),
        Point("fork.files", "Failed to create sandbox while starting: injected fault"),
        *points("start.mounts"),
        *points("create.commit", says="Failed to create sandbox while committing: injected fault"),
    ],
    "rollback": [
        Point("rollback.fetch", "while fetching: injected fault"),
        *points("engine.clone", "clone.files", "clone.note"),
        *absorbed("rollback.clear"),
        Point("rollback.halt", "while halting: injected fault"),
        *points("engine.freeze"),
        *points("rollback.note", "store.rollback", says="while noting: injected fault"),
        *points("engine.exchange", "exchange.uppers"),
        *absorbed("rollback.exchange", "rollback.end", "engine.stop"),
        *deadly("exchange.done", "engine.exchanged", "engine.stopped", "start.mounts", "engine.created"),
        *absorbed("rollback.settle", "store.run"),
        *deadly("rollback.answer"),
    ],
    "rollback-without-start": [
        *points("rollback.start", says="could not be started: injected fault", actions=("fail",)),
        *points("engine.create", "start.mounts", "start.running", actions=("fail",)),
        *points("prepare.upper", actions=("fail",), count="*"),
        *points("rollback.park", "store.pause", says="could not be started: injected fault", also=("rollback.start 1 fail",)),
    ],
    "rollback-paused": [
        Point("rollback.fetch", "while fetching-paused: injected fault"),
        *points("rollback.note", "store.rollback", says="while noting-paused: injected fault"),
        *points("engine.exchange", "exchange.uppers"),
        *absorbed("rollback.exchange", "rollback.end", "rollback.park", "store.pause"),
        *absorbed("save.sync", count="*"),
        *deadly("exchange.done", "engine.exchanged", "engine.stopped", "rollback.answer"),
    ],
    "kill": [
        *absorbed("kill.note", "store.killing", "kill.processes", "engine.kill"),
        *REMOVE,
        *absorbed("remove.upper"),
        *deadly("engine.killed"),
        *absorbed("kill.row", "store.remove"),
        *deadly("kill.answer"),
    ],
    "kill-paused": [*absorbed("kill.processes", "remove.note", "remove.processes", "remove.upper"), *deadly("engine.killed")],
}

# States of src/control/machine.c with a call or a timer under way -> the steps that they stand for.
STATES = {
    "writing": ["create.row", "store.create"],
    "starting": ["create.start", "fork.files"],
    "committing": ["create.commit", "store.run"],
    "copying": ["copy.files"],
    "checking": ["pause.check"],
    "draining": ["pause.drain"],
    "freezing": ["pause.freeze"],
    "saving": ["pause.save", "store.pause"],
    "stopping": ["pause.stop"],
    "waking": ["resume.thaw", "resume.start", "resume.stop"],
    "resuming": ["resume.row", "store.run"],
    "thawing": ["pause.undo"],
    "fetching": ["rollback.fetch"],
    "clearing": ["rollback.clear"],
    "halting": ["rollback.halt"],
    "noting": ["rollback.note", "store.rollback"],
    "exchanging": ["rollback.exchange"],
    "ending": ["rollback.end"],
    "restarting": ["rollback.start"],
    "settling": ["rollback.settle", "store.run"],
    "fetching-paused": ["rollback.fetch"],
    "noting-paused": ["rollback.note", "store.rollback"],
    "exchanging-paused": ["rollback.exchange"],
    "ending-paused": ["rollback.end"],
    "parking": ["rollback.park", "store.pause"],
    "killing": ["kill.processes"],
    "removing": ["kill.row", "store.remove"],
}


# --- the list is whole ------------------------------------------------------------------------------


def test_each_state_with_something_under_way_has_a_point():
    text = (ROOT / "src/control/machine.c").read_text()
    rows = dict(re.findall(r'\[SANDBOX_[A-Z_]+\] = \{ "([a-z-]+)",.*?(EXIT_[A-Z]+) \}', text))
    assert {name for name, ends in rows.items() if ends in ("EXIT_CALL", "EXIT_TIMER")} == set(STATES) and len(rows) > len(STATES)
    tested = {point.name for list_ in OPERATIONS.values() for point in list_}
    assert {name for names in STATES.values() for name in names} <= tested


def test_each_point_of_the_source_is_tested():
    found = set()
    for path in (ROOT / "src").rglob("*.c"):
        text = path.read_text()
        if '#include "base/fault.h"' in text:
            found |= set(re.findall(r'"([a-z]+\.[a-z]+)"', text))
    assert found - {"resolv.conf"} == {point.name for list_ in OPERATIONS.values() for point in list_}


# --- a service whose steps fail ---------------------------------------------------------------------


class Broken(Service):
    """A service with points of failure, and what a test asks it."""

    def __init__(self, build_dir, folder, *args):
        self.faults = Faults(folder / "faults")
        super().__init__(build_dir, *args, env=self.faults.env)

    def start(self, timeout=60):
        super().start(timeout)
        (self.saved,) = self.data_dir.glob("pool/**/saved")
        return self

    def ask(self, method, path, body=None):
        status, _, answer = self.request(method, path, body, timeout=90)
        if status >= 400:  # typed, whoever gave it
            assert set(answer) == {"code", "message"} and answer["code"] == status and answer["message"], (status, answer)
        return status, answer

    def hits(self, point):
        """How often a point has done something so far."""
        text = (self.data_dir / "serve.log").read_text(errors="replace")
        return len(re.findall(rf"injected fault.*{re.escape(point)}\b", text))

    def rows(self):
        """{id: state} of the database; None while it cannot be read."""
        try:
            db = sqlite3.connect(f"file:{self.data_dir}/control/abx.db?mode=ro", uri=True, timeout=BUSY_S)
            try:
                return dict(db.execute("SELECT id, state FROM sandboxes UNION ALL SELECT id, 'snapshot' FROM snapshots").fetchall())
            finally:
                db.close()
        except sqlite3.OperationalError:
            return None

    def kept(self):
        """Ids of what has files that are kept, and of what the engine has a record of."""
        found = {path.name.partition(".")[2] for path in self.saved.iterdir()}
        for record in Path("/run/abx", self.instance(), "sandboxes").iterdir():
            try:
                found |= set(re.findall(r"^sandbox_id=(.+)$", record.read_text(), re.M))
            except FileNotFoundError:
                pass
        return found

    def left(self):
        """What would be nobody's once all sandboxes and snapshots are gone."""
        rows = self.rows()
        return ["the database"] if rows is None else [*rows, *self.kept()] or self.audit()

    def settle(self):
        """Waits until nothing is under way any more; {id: state}."""
        def is_quiet():
            rows = self.rows()
            return rows is not None and set(rows.values()) <= {*REST, "snapshot"} and self.request("GET", "/v2/sandboxes")[0] == 200

        until(is_quiet, lambda: f"something is under way: {self.rows()}")
        return self.rows()

    def state(self, box_id):
        status, answer = self.ask("GET", f"/sandboxes/{box_id}")
        return answer["state"] if status == 200 else status

    def listed(self, case):
        return [box["sandboxID"] for box in self.ask("GET", f"/v2/sandboxes?metadata=case%3D{case}")[1]]

    def use(self, box_id, command):
        """Output of a command in a sandbox, which is resumed if need be. None: not now."""
        try:
            status, box = self.ask("POST", f"/sandboxes/{box_id}/connect", {"timeout": 300})
            return Envd(self, box).sh(command) if status in (200, 201) else None
        except (EnvdError, OSError):
            return None

    def end_all(self):
        """Each kill works, and then nothing is left."""
        for box in self.ask("GET", "/v2/sandboxes")[1]:
            assert self.kill(box["sandboxID"]) in (204, 404), box  # 404: it was ending by itself
        for snapshot in self.ask("GET", "/snapshots")[1]:
            assert self.ask("DELETE", f"/templates/{snapshot['snapshotID']}")[0] == 204
        until(lambda: not self.left(), lambda: f"left behind: {self.left()}")


@pytest.fixture(scope="module")
def service(build_dir, base_template, tmp_path_factory):
    with Broken(build_dir, tmp_path_factory.mktemp("faults")) as s:
        yield s
        s.faults.close()


@pytest.fixture(scope="module")
def warm_service(build_dir, base_template, tmp_path_factory):
    with Broken(build_dir, tmp_path_factory.mktemp("faults"), "--pool", "base=1") as s:
        yield s
        s.faults.close()


# --- operations ------------------------------------------------------------------------------------


class Operation:
    """`begin` makes what it is done to, `ask` does it; `check` looks at what has come of it: `done` or `refused`, or,
    when a process died in it, either of them.
    """

    paused = None  # how it is paused before

    def __init__(self, service, case):
        self.service, self.case = service, case
        self.box = None

    def begin(self):
        self.box = self.service.create(timeout=300, metadata={"case": self.case})["sandboxID"]
        assert self.service.use(self.box, "echo mine > /home/user/f; nohup sleep 1000 >&- 2>&- & until grep -qx sleep /proc/$!/comm; do :; done; sync /home/user/f") is not None
        if self.paused is not None:
            self.post("pause", self.paused, 204)

    def post(self, what, body, expect=None):
        status, answer = self.service.ask("POST", f"/sandboxes/{self.box}/{what}", body)
        assert expect in (None, status), answer
        return status, answer

    def expect_whole(self, has_memory):
        """Its files are there, and its processes where they are to be."""
        command = "cat /home/user/f; pgrep -c sleep || true"
        out = until(lambda: self.service.use(self.box, command), lambda: f"it cannot be used: {self.service.ask('GET', f'/sandboxes/{self.box}')}")
        assert out in ([f"mine\n{n}\n" for n in ("0", "1")] if has_memory is None else [f"mine\n{int(has_memory)}\n"])

    def expect_state(self, *states):
        until(lambda: self.service.state(self.box) in states, lambda: f"it is {self.service.state(self.box)}, not {states}")


class Create(Operation):
    options = {"memoryMB": 512}

    def begin(self):
        pass

    def ask(self):
        return self.service.ask("POST", "/v2/sandboxes", {"templateID": "base", "timeout": 300, "metadata": {"case": self.case}, **self.options})

    def check(self, done, status, answer):
        found = self.service.listed(self.case)
        if done is not None:
            assert len(found) == int(done), found
        for box in found:
            assert status != 201 or box == answer["sandboxID"]
            assert until(lambda b=box: self.service.use(b, "echo up"), "it cannot be used") == "up\n"


class CreateWithoutStock(Create):
    """Those that are prepared are used up first; what fails is the next one."""

    options = {}

    def ask(self):
        for _ in range(60):
            status, answer = super().ask()
            if status != 201:
                for box in self.service.listed(self.case):
                    assert self.service.kill(box) == 204
                return status, answer
        raise AssertionError("60 sandboxes without one being prepared")


class Claim(Create):
    """Of one that stands ready."""

    def begin(self):
        def is_ready():
            text = self.service.request("GET", "/abx/v1/metrics")[2].decode()
            return re.search(r"^abx_engine_pool_ready ([1-9])", text, re.M)

        until(is_ready, "none stands ready")


class Pause(Operation):
    body = {}
    memory = {True: True, False: True, None: True}

    def ask(self):
        return self.post("pause", self.body)

    def check(self, done, status, answer):
        self.expect_state(*(REST if done is None else ["paused" if done else "running"]))
        self.expect_whole(self.memory[done])


class PauseHealthy(Pause):
    body = {"requireHealthyGuest": True}


class PauseFiles(Pause):
    body = {"memory": False}
    memory = {True: False, False: True, None: None}


class Resume(Operation):
    paused = {}
    body = {"timeout": 300}
    has_memory = True

    def ask(self):
        return self.post("connect", self.body)

    def check(self, done, status, answer):
        self.expect_state(*(REST if done is None else ["running" if done else "paused"]))
        self.expect_whole(self.has_memory)


class ResumeFiles(Resume):
    paused = {"memory": False}
    has_memory = False


class ResumeDropping(Resume):
    body = {"timeout": 300, "memory": False}
    has_memory = None  # it is given up when it fails behind the end of the processes


class Snapshot(Operation):
    def ask(self):
        return self.post("snapshots", {})

    def check(self, done, status, answer):
        self.expect_state("running")
        self.expect_whole(has_memory=True)
        found = [x["snapshotID"] for x in self.service.ask("GET", f"/snapshots?sandboxID={self.box}")[1]]
        if done is not None:
            assert len(found) == int(done), found
        for snapshot in found:
            copy = self.service.create(template=snapshot, timeout=300)["sandboxID"]
            assert until(lambda c=copy: self.service.use(c, "cat /home/user/f"), "it cannot be used") == "mine\n"


class Fork(Operation):
    def ask(self):
        status, answer = self.post("fork", {"timeout": 300})
        if status == 201 and "error" in answer[0]:
            return answer[0]["error"]["code"], answer[0]["error"]
        return status, answer

    def check(self, done, status, answer):
        self.expect_state("running")
        self.expect_whole(has_memory=True)
        found = [box for box in self.service.listed(self.case) if box != self.box]
        if done is not None:
            assert len(found) == int(done), found
        for box in found:
            assert until(lambda b=box: self.service.use(b, "cat /home/user/f"), "it cannot be used") == "mine\n"


class Rollback(Operation):
    state = "running"

    def begin(self):
        super().begin()
        self.snapshot = self.post("snapshots", {}, 201)[1]["snapshotID"]
        assert self.service.use(self.box, "echo spoiled > /home/user/f; sync /home/user/f") is not None
        if self.state == "paused":
            self.post("pause", {}, 204)

    def ask(self):
        return self.post("rollback", {"snapshotID": self.snapshot})

    def check(self, done, status, answer):
        self.expect_state(self.state)
        out = until(lambda: self.service.use(self.box, "cat /home/user/f; pgrep -c sleep || true"), "it cannot be used")
        old, new = "spoiled\n1\n", "mine\n0\n"
        assert out in {True: [new], False: [old], None: [old, new]}[done], out


class RollbackPaused(Rollback):
    state = "paused"


class RollbackWithoutStart(Rollback):
    """It has the new files, and waits for a better time."""

    def check(self, done, status, answer):
        if done is False:
            assert "and is paused" in answer["message"]
            self.expect_state("paused")
        else:  # a process died: what is under way goes on
            self.expect_state(*REST)
        command = "cat /home/user/f; pgrep -c sleep || true"
        assert until(lambda: self.service.use(self.box, command), "it cannot be used") == "mine\n0\n"


class Kill(Operation):
    def ask(self):
        return self.service.ask("DELETE", f"/sandboxes/{self.box}")

    def check(self, done, status, answer):
        if status == 204 or done:
            assert (status, self.service.state(self.box)) == (204, 404)
            return
        # Who died has forgotten it, or goes on with it.
        assert until(lambda: self.service.kill(self.box) in (204, 404), "it cannot be killed")
        until(lambda: self.service.state(self.box) == 404, "it is still there")


class KillPaused(Kill):
    paused = {}


CLASSES = {
    "create": Create, "create-without-stock": CreateWithoutStock, "claim": Claim, "pause": Pause, "pause-healthy": PauseHealthy,
    "pause-files": PauseFiles, "resume": Resume, "resume-files": ResumeFiles, "resume-dropping": ResumeDropping, "snapshot": Snapshot,
    "fork": Fork, "rollback": Rollback, "rollback-without-start": RollbackWithoutStart, "rollback-paused": RollbackPaused, "kill": Kill, "kill-paused": KillPaused,
}


def is_workers(point):
    return point != "start.identity" and point.split(".")[0] in ("prepare", "start", "clone", "remove", "freeze", "thaw", "save")


def cases(action):
    """All points with that action; those that an operation before has, too, are `long`, but for deaths of engine and control,
    of which something is under way elsewhere.
    """
    seen = set()
    for name, list_ in OPERATIONS.items():
        for point in list_:
            if action in point.actions:
                is_again = point.name in seen and (action == "fail" or is_workers(point.name))
                seen.add(point.name)
                yield pytest.param(name, point, id=f"{name}-{point.name}", marks=[pytest.mark.long] if is_again else [])


def make(request, name):
    service = request.getfixturevalue("warm_service" if name == "claim" else "service")
    return CLASSES[name](service, re.sub("[^a-z0-9]", "-", request.node.name.lower()))


def ask_amid(operation, point, action):
    """The answer to a request whose step `point` fails, or has its process killed; it has come there."""
    service = operation.service
    operation.begin()
    before = service.hits(point.name)
    service.faults.set(f"{point.name} {point.count} {action}", *point.also)
    answer = operation.ask()
    until(lambda: service.hits(point.name) > before, "it did not come there")
    service.faults.clear()
    return answer


@pytest.mark.parametrize("name, point", cases("fail"))
def test_a_step_that_fails(request, name, point):
    operation = make(request, name)
    service = operation.service
    status, answer = ask_amid(operation, point, "fail")
    if point.ends == "refused":
        assert status >= 500 and point.says in answer["message"], (status, answer)
    else:
        assert status < 300, (status, answer)
    if point.name == "store.remove":  # its row goes with the next comparison, which comes when there is another engine
        for pid in service.roles()["abx-engine"]:
            processes.send(pid)
    service.settle()
    operation.check(point.ends == "done", status, answer)
    service.end_all()


@pytest.mark.parametrize("name, point", cases("kill"))
def test_a_step_in_which_its_process_dies(request, name, point):
    operation = make(request, name)
    service = operation.service
    status, answer = ask_amid(operation, point, "kill")
    assert status < 300 or status in (404, 409) or status >= 500, (status, answer)
    service.settle()
    operation.check(True if status < 300 else None, status, answer)
    service.end_all()


@pytest.mark.parametrize("name", ["rollback", "rollback-paused"])
def test_files_that_may_be_exchanged_are_not_given_back(request, name):
    """The worker dies behind the rename, and those after it cannot look: that it fails does not mean that it was not done."""
    operation = make(request, name)
    service, faults = operation.service, operation.service.faults
    operation.begin()
    done, uppers = service.hits("exchange.done"), service.hits("exchange.uppers")
    faults.set("exchange.done 1 stall")
    answers = []
    asked = threading.Thread(target=lambda: answers.append(operation.ask()))
    asked.start()
    try:
        until(lambda: service.hits("exchange.done") > done, "it did not come there")
        faults.set("exchange.done 0 stall", "exchange.uppers 3 fail")  # that one goes on to stand there
        words = {"--worker", "control", service.instance()}
        for pid in processes.every():
            if words <= set((processes.read(pid, "cmdline") or "").split("\0")):
                processes.send(pid)
        until(lambda: service.hits("exchange.uppers") == uppers + 3, "it was not asked again")
        asked.join(60)
    finally:
        faults.clear()
        asked.join(60)
    assert answers[0][0] == 200, answers
    service.settle()
    operation.check(True, *answers[0])
    service.end_all()


def test_no_files_are_written_for_a_rollback(request):
    """Neither the old ones, for which nobody comes back, nor the whole pool: a pause does that, as `pause-files` shows."""
    operation = make(request, "rollback")
    service = operation.service
    operation.begin()
    before = service.hits("save.sync")
    service.faults.set("save.sync * fail")
    status, answer = operation.ask()
    service.settle()
    service.faults.clear()
    assert (status, service.hits("save.sync")) == (200, before), answer
    operation.check(True, status, answer)
    service.end_all()


# Of each class of workers one, so that they hang at the same time; the answer's status and words.
HANGING = [
    ("create", "start.mounts", 504, "Failed to create sandbox while starting: the engine's worker did not finish within 20 s"),
    ("resume", "thaw.processes", 504, "while waking: the engine's worker did not finish within 10 s"),
    ("snapshot", "clone.files", 504, "cannot be copied: the engine's worker did not finish within 25 s"),
    ("kill", "remove.groups", 503, "is being killed, the engine does not answer yet"),
]


def hang(service, list_):
    """Does all of them at once, in one of whose steps each hangs, and a sandbox beside them; then looks at each."""
    operations = [CLASSES[name](service, f"hanging-{name}") for name, *_ in list_]
    answers = {}
    for operation in operations:
        operation.begin()
    before = [service.hits(point) for _, point, *_ in list_]
    service.faults.set(*(f"{point} 1 stall" for _, point, *_ in list_))
    threads = [threading.Thread(target=lambda o=o: answers.__setitem__(o, o.ask())) for o in operations]
    try:
        for thread in threads:
            thread.start()
        for (_, point, *_), n in zip(list_, before):
            until(lambda p=point, n=n: service.hits(p) > n, f"{point} was not reached")
        other = service.create(timeout=300)["sandboxID"]
        assert service.use(other, "echo up") == "up\n" and service.kill(other) == 204
        for thread in threads:
            thread.join(90)
    finally:
        service.faults.clear()
    for operation, (name, point, status, says) in zip(operations, list_):
        assert answers[operation][0] == status and says in answers[operation][1]["message"], (name, point, answers[operation])
    service.settle()
    for operation in operations:
        operation.check(False, *answers[operation])
    service.end_all()


@pytest.mark.slow
def test_a_step_that_hangs_has_a_deadline(service):
    hang(service, [("pause", "freeze.processes", 504, "while freezing: the engine's worker did not finish within 10 s")])


@pytest.mark.long
def test_steps_that_hang_have_deadlines(service):
    hang(service, HANGING)


@pytest.mark.long
@pytest.mark.parametrize("point", ["pause.save", "engine.freeze"])
def test_a_role_that_hangs_in_a_step_dies_of_it(service, point):
    operation = Pause(service, "hanging-role")
    operation.begin()
    before = service.hits(point)
    service.faults.set(f"{point} 1 stall")
    status, answer = operation.ask()
    service.faults.clear()
    assert service.hits(point) > before and status >= 500, (status, answer)
    service.settle()
    operation.check(None, status, answer)
    service.end_all()
