"""Rollbacks on a real service: what goes back and what stays, refusals, kills and crashes amid them, and that nothing is left."""

import http.client
import random
import shutil
import signal
import sqlite3
import threading
import time

import processes
import pytest
from envd import Envd, EnvdError
from service import Service
from waiting import again, until


@pytest.fixture(scope="module")
def service(build_dir, base_template):
    with Service(build_dir) as s:
        yield s
        end(s)


def until_nothing_is_left(service):
    """What a crash left is found by the next comparison, half a minute later."""
    until(lambda: not left_over(service), lambda: f"nothing left over: {left_over(service)}", timeout=180)


def left_over(service):
    """What an audit finds, and what is noted as kept."""
    return service.audit() + [str(p) for p in (service.data_dir / "pool").glob("**/saved/*")]


def end(service):
    """Removes everything; nothing may be left."""
    for box in service.request("GET", "/v2/sandboxes")[2]:
        service.kill(box["sandboxID"])
    for made in service.request("GET", "/snapshots")[2]:
        service.request("DELETE", f"/templates/{made['snapshotID']}")
    until_nothing_is_left(service)


def snapshot(service, box, **body):
    status, _, answer = service.request("POST", f"/sandboxes/{box['sandboxID']}/snapshots", body, timeout=60)
    assert status == 201, answer
    return answer["snapshotID"]


def rollback(service, box, to, expect=200):
    status, _, answer = service.request("POST", f"/sandboxes/{box['sandboxID']}/rollback", {"snapshotID": to}, timeout=90)
    assert status == expect, (status, answer)
    return answer


def forget(service, *snapshots):
    for made in snapshots:
        assert service.request("DELETE", f"/templates/{made}")[0] == 204


def post(service, box, what, body, expect):
    status, _, answer = service.request("POST", f"/sandboxes/{box['sandboxID']}/{what}", body, timeout=60)
    assert status == expect, (status, answer)
    return answer


def detail(service, box):
    status, _, answer = service.request("GET", f"/sandboxes/{box['sandboxID']}")
    assert status == 200, answer
    return answer


def count(service, state):
    """Sandboxes in a state of the table, as the metrics have it."""
    text = service.request("GET", "/abx/v1/metrics")[2].decode()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith(f'abx_sandboxes{{state="{state}"}}'))


# Names, modes, owners, links, times and contents of what a rollback has to bring back.
MANIFEST = """
cd / && find home opt srv usr/share/doc var/lib etc -xdev -not -path 'etc/mtab' -printf '%p %y %m %U:%G %n %l %T@ ' \\
  \\( -type f -printf '%s' -o -true \\) -printf '\\n' | sort
find home opt srv etc -xdev -type f -print0 | sort -z | xargs -0 sha256sum
"""
BOOT = "cat /proc/sys/kernel/random/boot_id"
FILL = """
mkdir -p /home/user/a/b /opt/deep/er /srv/x && cd /home/user
head -c 3M /dev/urandom > blob && echo kept > a/b/file && ln a/b/file hard && ln -s a/b/file soft
chmod 4711 hard && printf '#!/bin/sh\\n' > /opt/deep/er/run && chmod 755 /opt/deep/er/run
rm -r /usr/share/doc && mkdir /usr/share/doc && echo mine > /usr/share/doc/mine
rm /etc/issue && echo one > /etc/added && mv /srv/x /srv/y && touch -d 2001-02-03 a
"""
SPOIL = """
cd /home/user && rm blob hard && echo other >> a/b/file && rm soft && mkdir soft && echo new > soft/new && chmod 700 a
rm -r /opt/deep && echo file > /opt/deep && rmdir /usr/share/doc/* 2>/dev/null; rm -r /usr/share/doc/mine
echo back > /etc/issue && rm /etc/added && rmdir /srv/y && head -c 20M /dev/zero > /var/lib/big && touch a
"""


def scenario(service):
    """A sandbox that runs goes back, twice; everything but its files and processes stays."""
    network = {"denyOut": ["192.0.2.0/24"]}
    box = service.create(timeout=300, envVars={"KEPT": "yes"}, metadata={"kind": "back"}, network=network)
    envd, root = Envd(service, box), Envd(service, box, "root")
    root.sh(FILL)
    manifest, boot = root.sh(MANIFEST), envd.sh(BOOT)
    first = snapshot(service, box, name="before")
    before = detail(service, box)
    for to in (first, "before"):
        root.sh(SPOIL)
        envd.sh("nohup sleep 1000 >&- 2>&- & until grep -qx sleep /proc/$!/comm; do :; done; nohup sh -c 'while :; do echo x >> ~/log; sleep 0.02; done' >&- 2>&- &")
        stream = envd.stream("process.Process/Start", {"process": {"cmd": "/bin/sleep", "args": ["1000"]}, "stdin": False}, 120)
        assert "start" in next(stream)["event"]
        assert root.sh(MANIFEST) != manifest
        answer = rollback(service, box, to)
        with pytest.raises((ConnectionError, OSError, http.client.HTTPException)):
            next(stream)
        assert answer["rollback"]["snapshotID"] == first and answer["rollback"]["mode"] == "filesystem"
        names = [s["name"] for s in answer["rollback"]["stages"]]
        assert names == ["fetching", "clearing", "halting", "noting", "exchanging", "ending", "restarting", "settling"]
        assert all(s["us"] >= 0 for s in answer["rollback"]["stages"])
        del answer["rollback"]
        assert answer == before == detail(service, box)
        assert root.sh(MANIFEST) == manifest
        assert envd.sh("pgrep -c -x sleep || true; echo $KEPT; hostname").split() == ["0", "yes", box["sandboxID"]]
        assert envd.run("ls ~/log")[0] == 2
        now = envd.sh(BOOT)
        assert now != boot
        boot = now
    # It has its own disk limit and a life like any other: pause, fork, snapshot, and back from there.
    envd.sh("echo third > ~/third")
    second = snapshot(service, box)
    post(service, box, "pause", {"memory": False}, 204)
    post(service, box, "connect", {"timeout": 300}, 201)
    assert envd.sh("cat ~/third") == "third\n"
    rollback(service, box, first)
    assert root.sh(MANIFEST) == manifest
    forget(service, first)
    rollback(service, box, second)
    assert envd.sh("cat ~/third") == "third\n"
    events = service.request("GET", f"/events/sandboxes/{box['sandboxID']}?orderAsc=true")[2]
    types = [e["type"].rsplit(".", 1)[1] for e in events]
    assert types == ["created", "rolled_back", "rolled_back", "paused", "resumed", "rolled_back", "rolled_back"]
    data = events[-1]["eventData"]
    assert (data["snapshotID"], data["mode"]) == (second, "filesystem")
    assert {s["name"] for s in data["stages"]} >= {"fetching", "halting", "exchanging", "restarting"}
    assert len({e["sandboxExecutionId"] for e in events[1:3]}) == 2
    lines = service.request("GET", f"/v2/sandboxes/{box['sandboxID']}/logs")[2]["logs"]
    assert "Sandbox rolled back" in [x["message"] for x in lines]
    forget(service, second)
    assert service.kill(box["sandboxID"]) == 204


def test_files_go_back_exactly_and_the_rest_stays(service):
    scenario(service)
    service.until_clean()


def test_files_go_back_where_the_pool_has_no_snapshots(build_dir, base_template):
    s = Service(build_dir)
    for folder in ("pool", "pool/uppers", "pool/uppers/a", "pool/uppers/a/u"):  # was used as a plain folder before
        (s.data_dir / folder).mkdir(0o700)
    with s:
        shutil.rmtree(s.data_dir / "pool/uppers/a")
        scenario(s)
        end(s)


@pytest.mark.parametrize("memory", [True, False])
def test_a_paused_one_stays_paused(service, memory):
    box = service.create(timeout=300, autoPause=True, autoResume={"enabled": True})
    envd = Envd(service, box)
    boot = envd.sh("echo one > ~/f; " + BOOT)
    first = snapshot(service, box)
    envd.sh("echo two > ~/f; nohup sleep 1000 >&- 2>&- & until grep -qx sleep /proc/$!/comm; do :; done")
    post(service, box, "pause", {"memory": memory}, 204)
    since = detail(service, box)["endAt"]
    answer = rollback(service, box, first)
    assert [s["name"] for s in answer["rollback"]["stages"]] == [
        "fetching-paused", "noting-paused", "exchanging-paused", "ending-paused", "parking"]
    del answer["rollback"]
    assert answer == detail(service, box)
    assert (answer["state"], answer["pauseMode"], answer["endAt"]) == ("paused", "filesystem", since)
    # Traffic wakes what has its memory, and that is gone.
    with pytest.raises(EnvdError) as e:
        envd.read("/home/user/f")
    assert e.value.status == 502 and detail(service, box)["state"] == "paused"
    rollback(service, box, first)
    post(service, box, "connect", {"timeout": 60}, 201)
    assert envd.sh("cat ~/f; pgrep -c sleep || true") == "one\n0\n" and envd.sh(BOOT) != boot
    types = [e["type"].rsplit(".", 1)[1] for e in service.request("GET", f"/events/sandboxes/{box['sandboxID']}?orderAsc=true")[2]]
    assert types == ["created", "paused", "rolled_back", "rolled_back", "resumed"]
    forget(service, first)
    assert service.kill(box["sandboxID"]) == 204
    service.until_clean()


def test_its_time_goes_on(service):
    box = service.create(timeout=30)
    first = snapshot(service, box)
    end_at = detail(service, box)["endAt"]
    assert rollback(service, box, first)["endAt"] == end_at
    events = f"/events/sandboxes/{box['sandboxID']}"
    until(lambda: service.request("GET", events)[2][0]["type"].endswith(".killed"))
    event = service.request("GET", events)[2][0]
    assert event["eventData"]["reason"] == "timeout" and event["timestamp"] >= end_at[:19]
    forget(service, first)


def test_a_fork_shows_the_way(service):
    box = service.create(timeout=300)
    Envd(service, box).sh("echo base > ~/f")
    status, _, made = service.request("POST", f"/sandboxes/{box['sandboxID']}/fork", {"timeout": 300}, timeout=60)
    assert status == 201
    fork = made[0]["sandbox"]
    Envd(service, fork).sh("echo better > ~/f")
    good = snapshot(service, fork)
    Envd(service, box).sh("echo worse > ~/f")
    rollback(service, box, good)
    assert Envd(service, box).sh("cat ~/f; hostname") == f"better\n{box['sandboxID']}\n"
    assert Envd(service, fork).sh("cat ~/f") == "better\n"
    # What one writes the other does not have.
    Envd(service, box).sh("echo apart > ~/f")
    assert Envd(service, fork).sh("cat ~/f") == "better\n"
    rollback(service, fork, good)
    assert Envd(service, fork).sh("cat ~/f") == "better\n"
    forget(service, good)
    for b in (box, fork):
        assert service.kill(b["sandboxID"]) == 204


def test_refusals(build_dir, base_template):
    nothing = "i" + "0" * 20
    with Service(build_dir) as s:
        box, large = s.create(timeout=600), s.create(timeout=600, diskSizeMB=12000)
        Envd(s, box).sh("echo here > ~/f; nohup sleep 1000 >&- 2>&- & until grep -qx sleep /proc/$!/comm; do :; done")
        first, too_large = snapshot(s, box), snapshot(s, large)
        path = f"/sandboxes/{box['sandboxID']}/rollback"
        for body in ({}, {"snapshotID": None}, {"snapshotID": 1}, {"snapshotID": ""}):
            status, _, answer = s.request("POST", path, body)
            assert status == 400 and "'snapshotID'" in answer["message"], answer
        for to in (nothing, "base", "no-such-name", box["sandboxID"], first + "x", "x" * 4000):
            assert "not found" in rollback(s, box, to, 404)["message"]
        answer = rollback(s, box, too_large, 400)["message"]
        assert "snapshotID" in answer and "12000 MiB" in answer
        assert rollback(s, {"sandboxID": nothing}, first, 404)["message"].startswith(f'Sandbox "{nothing}"')
        assert s.request("POST", "/sandboxes/!!/rollback", {"snapshotID": first})[0] == 400
        assert s.request("GET", path)[0] == 405
        reader = s.run_abx("key", "create", "--scope", "sandbox:read").stdout.strip()
        assert s.request("POST", path, {"snapshotID": first}, {"X-API-Key": reader})[0] == 403
        # Of another team, and of another template: nobody sees the one, the other does not fit.
        other, strange = snapshot(s, box), snapshot(s, box)
        s.stop(signal.SIGTERM)
        with sqlite3.connect(next(s.data_dir.glob("**/abx.db"))) as db:
            db.execute("UPDATE snapshots SET team_id = 'other' WHERE id = ?", [other.split(":")[0]])
            db.execute("UPDATE snapshots SET digest = 'other' WHERE id = ?", [strange.split(":")[0]])
            db.execute("UPDATE sandboxes SET team_id = 'other' WHERE id = ?", [large["sandboxID"]])
        db.close()
        s.start()
        until(lambda: s.request("GET", f"/sandboxes/{box['sandboxID']}")[0] == 200)
        assert "not found" in rollback(s, box, other, 404)["message"]
        assert "not of the template" in rollback(s, box, strange, 400)["message"]
        rollback(s, large, first, 404)
        assert Envd(s, box).sh("cat ~/f; pgrep -c sleep") == "here\n1\n"  # nothing has happened to it
        # Files of the snapshot that are gone: it goes on, and who asked hears of it.
        pool = next(s.data_dir.glob("pool/**/saved")).parent
        name = next(p.name.split(".")[0] for p in (pool / "saved").iterdir() if p.name.endswith("." + first.split(":")[0]))
        (pool / "uppers" / name / "u").rename(pool / "uppers" / name / "away")
        status, _, answer = s.request("POST", path, {"snapshotID": first}, timeout=60)
        assert status == 500 and "while fetching" in answer["message"], answer
        assert Envd(s, box).sh("cat ~/f; pgrep -c sleep") == "here\n1\n"
        s.until_clean()


def workers(service, name):
    """Pids of the engine's workers of a class."""
    words = {"--worker", name, service.instance()}
    return [pid for pid in processes.every() if words <= set((processes.read(pid, "cmdline") or "").split("\0"))]


class Held:
    """The engine's workers of a class do nothing; who still lives goes on at the end."""

    def __init__(self, service, name):
        self.pids = until(lambda: workers(service, name))

    def __enter__(self):
        for pid in self.pids:
            processes.send(pid, signal.SIGSTOP)
        return self

    def __exit__(self, *_):
        for pid in self.pids:
            processes.send(pid, signal.SIGCONT)


class Asked:
    """A rollback in a thread; `status` is None until it is answered, 0 when the connection ended."""

    def __init__(self, service, box, to):
        self.status = self.answer = None
        self.thread = threading.Thread(target=self._ask, args=(service, box, to))
        self.thread.start()

    def _ask(self, service, box, to):
        try:
            body = {"snapshotID": to}
            self.status, _, self.answer = service.request("POST", f"/sandboxes/{box['sandboxID']}/rollback", body, timeout=90)
        except (OSError, http.client.HTTPException):
            self.status = 0

    def wait(self):
        self.thread.join(100)
        assert not self.thread.is_alive()
        return self.status


# What the engine is at, by the class of its worker, and the state of the table meanwhile.
STEPS = {"save": "fetching", "control": "halting", "remove": "ending", "create": "restarting"}


@pytest.mark.parametrize("step", STEPS)
def test_a_kill_wins(service, step):
    box = service.create(timeout=300)
    Envd(service, box).sh("echo one > ~/f")
    first = snapshot(service, box)
    killed = []
    with Held(service, step):
        asked = Asked(service, box, first)
        until(lambda: count(service, STEPS[step]) == 1)
        killer = threading.Thread(target=lambda: killed.append(service.kill(box["sandboxID"])))
        killer.start()
        until(lambda: killed or service.request("GET", f"/sandboxes/{box['sandboxID']}")[0] == 404)
    killer.join(60)
    assert killed == [204] and asked.wait() == 409, (killed, asked.status, asked.answer)
    assert service.kill(box["sandboxID"]) == 404
    forget(service, first)
    until_nothing_is_left(service)


def through(function):
    """Through roles that are started again."""
    return again(function, (OSError, http.client.HTTPException, EnvdError, AssertionError))


def kill_role(service, role):
    before = service.roles().get(role, [])
    for pid in before:
        processes.send(pid)
    until(lambda: (now := service.roles().get(role, [])) and not set(now) & set(before))


class Victim:
    """A sandbox that is either as it was or as its snapshot has it."""

    def __init__(self, service):
        self.service = service
        self.box = service.create(timeout=600)
        self.envd = Envd(service, self.box)
        self.envd.sh("mkdir ~/d && for i in $(seq 200); do echo one $i > ~/d/$i; done; head -c 1M /dev/urandom > ~/blob")
        self.snapshot = snapshot(service, self.box)
        self.new = self.sum()
        self.spoil()

    def sum(self):
        return self.envd.sh("find ~ -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum")

    def spoil(self):
        self.envd.sh("rm -r ~/d/1*; echo two > ~/d/2; head -c 2M /dev/urandom > ~/blob; pkill sleep; nohup sleep 1000 >&- 2>&- & until grep -qx sleep /proc/$!/comm; do :; done")
        self.old, self.boot = self.sum(), self.envd.sh(BOOT)

    def judge(self):
        """"old" or "new": wholly the one or the other, and running; `spoil` begins anew."""

        def look():
            assert detail(self.service, self.box)["state"] == "running"
            return self.sum(), self.envd.sh(BOOT), self.envd.sh("pgrep -c sleep || true")

        until(lambda: all(count(self.service, state) == 0 for state in
                          ("fetching", "clearing", "halting", "noting", "exchanging", "ending", "restarting", "settling", "thawing")))
        found, boot, sleepers = through(look)
        if found == self.old:
            assert (boot, sleepers) == (self.boot, "1\n")
            return "old"
        assert found == self.new
        assert boot != self.boot and sleepers == "0\n"
        return "new"


# A freeze that nobody waits for any more is found by the next comparison, half a minute later.
@pytest.mark.parametrize("role, steps", [
    pytest.param("abx-engine", list(STEPS), id="engine"),
    pytest.param("abx-control", ["save", "remove", "create"], id="control"),
    pytest.param("abx-control", ["control"], id="control-frozen", marks=pytest.mark.long),
])
def test_a_role_that_is_killed_in_a_step(build_dir, base_template, role, steps):
    with Service(build_dir) as s:
        victim = Victim(s)
        for step in steps:
            state = STEPS[step]
            with Held(s, step):
                asked = Asked(s, victim.box, victim.snapshot)
                until(lambda state=state: count(s, state) == 1)
                kill_role(s, role)
            status = asked.wait()
            result = victim.judge()
            # Up to the row the old state, from there on the new one.
            assert result == ("old" if step in ("save", "control") else "new"), (step, status, asked.answer)
            assert result == "new" if status == 200 else status in (0, 500, 502, 503, 504), (step, status, asked.answer)
            through(victim.spoil)
        assert rollback(s, victim.box, victim.snapshot) and victim.judge() == "new"
        end(s)


@pytest.mark.parametrize("rounds", [6, pytest.param(60, marks=pytest.mark.long)])
def test_roles_that_are_killed_at_any_moment(build_dir, base_template, rounds):
    rng = random.Random(rounds)
    with Service(build_dir) as s:
        victim = Victim(s)
        results = []
        for i in range(rounds):
            asked = Asked(s, victim.box, victim.snapshot)
            time.sleep(rng.uniform(0, 0.12))
            kill_role(s, ["abx-engine", "abx-control", "abx-gateway"][i % 3])
            status = asked.wait()
            results.append((status, victim.judge()))
            assert status in (200, 0, 409, 500, 502, 503, 504) and (status != 200 or results[-1][1] == "new"), (results, asked.answer)
            through(victim.spoil)
        end(s)


def test_a_paused_one_amid_crashes(build_dir, base_template):
    """The row is durable and the files are changed once: it is paused in the end, with the one or the other."""
    with Service(build_dir) as s:
        victim = Victim(s)
        for role in ("abx-engine", "abx-control"):
            for step, state in (("save", "fetching-paused"), ("control", "exchanging-paused"), ("remove", "ending-paused")):
                post(s, victim.box, "pause", {}, 204)
                with Held(s, step):
                    asked = Asked(s, victim.box, victim.snapshot)
                    until(lambda state=state: count(s, state) == 1)
                    kill_role(s, role)
                status = asked.wait()
                until(lambda: sum(count(s, x) for x in ("noting-paused", "exchanging-paused", "ending-paused", "parking")) == 0)
                found = through(lambda: detail(s, victim.box))
                assert found["state"] == "paused"
                through(lambda: post(s, victim.box, "connect", {"timeout": 600}, 201))
                want = "old" if step == "save" else "new"
                assert victim.judge() == want and (status == 200) <= (want == "new"), (role, step, status, asked.answer)
                through(victim.spoil)
        end(s)


def test_it_waits_for_its_turn_and_others_for_it(service):
    """Everything at once: each call is answered, and the sandbox is whole in the end."""
    box = service.create(timeout=300)
    Envd(service, box).sh("echo one > ~/f")
    first = snapshot(service, box)
    statuses, lock = [], threading.Lock()

    def ask(what, body):
        status = service.request("POST", f"/sandboxes/{box['sandboxID']}/{what}", body, timeout=90)[0]
        with lock:
            statuses.append((what, status))

    asked = [("rollback", {"snapshotID": first}), ("pause", {}), ("connect", {"timeout": 300}), ("rollback", {"snapshotID": first}),
             ("snapshots", {}), ("timeout", {"timeout": 300}), ("pause", {"memory": False}), ("rollback", {"snapshotID": first}),
             ("fork", {"timeout": 60}), ("resume", {"timeout": 300})]
    for _ in range(2):
        threads = [threading.Thread(target=ask, args=a) for a in asked]
        for t in threads:
            t.start()
        for t in threads:
            t.join(120)
            assert not t.is_alive()
    assert len(statuses) == 2 * len(asked)
    assert {s for w, s in statuses if w == "rollback"} == {200}, statuses
    assert {s for _, s in statuses} <= {200, 201, 204, 404, 409}, statuses
    post(service, box, "connect", {"timeout": 300}, 201 if detail(service, box)["state"] == "paused" else 200)
    assert Envd(service, box).sh("cat ~/f") == "one\n"
    end(service)
