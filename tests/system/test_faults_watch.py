"""Faults that users of other systems reported, watching folders. See docs/faults.md."""

import os
import random
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from remote import Remote, box, usage  # noqa: F401 (fixtures)
from service import Service
from test_faults_process import abort, daemon_has_nothing_left, nothing_left
from waiting import until

from guest import RpcError, Stream


@pytest.fixture(scope="module")
def service(build_dir, base_template):
    with Service(build_dir, disk="4G") as s:
        yield s


class Watch(Stream):
    """WatchDir; events come as (name, type without its prefix)."""

    def __init__(self, box, path, recursive=True, **more):
        super().__init__(box, "/filesystem.Filesystem/WatchDir", {"path": path, "recursive": recursive} | more)
        assert "start" in next(self)

    def events(self, until_name):
        """All up to the creation of a name, which is a mark at the end."""
        got = []
        for message in self:
            if "filesystem" in message:
                event = message["filesystem"]
                got.append((event["name"], event["type"].removeprefix("EVENT_TYPE_")))
                if event["name"] == until_name:
                    return got[:-1]
        raise AssertionError(got)


class Poller:
    """CreateWatcher with the same face."""

    def __init__(self, box, path, recursive=True, **more):
        self.box = box
        self.id = box.rpc("CreateWatcher", {"path": path, "recursive": recursive} | more)["watcherId"]

    def events(self, until_name):
        got = []

        def came():
            for event in self.box.rpc("GetWatcherEvents", {"watcherId": self.id}).get("events", []):
                got.append((event["name"], event["type"].removeprefix("EVENT_TYPE_")))
            return until_name in [name for name, _ in got]

        until(came)
        return got[: [name for name, _ in got].index(until_name)]

    def close(self):
        self.box.rpc("RemoveWatcher", {"watcherId": self.id})


KINDS = pytest.mark.parametrize("kind", [Watch, Poller])


def fresh(box, name):
    box.inside(f"rm -rf /tmp/{name}; mkdir -m 777 /tmp/{name}")
    return f"/tmp/{name}"


@KINDS
def test_nothing_is_missed_in_folders_made_at_once(box, kind):
    """mkdir -p a/b/c/d && touch, again and again, and all of it at once."""
    path = fresh(box, "at-once")
    watch = kind(box, path)
    made = [f"{i}/b/c/d" for i in range(40)]
    script = "; ".join(f"mkdir -p {d} && touch {d}/f && echo x > {d}/../g" for d in made)
    box.inside(f"cd {path}; {script}; touch end")
    events = watch.events("end")
    created = [name for name, what in events if what == "CREATE"]
    wanted = {p for i in range(40) for p in (f"{i}", f"{i}/b", f"{i}/b/c", f"{i}/b/c/d", f"{i}/b/c/d/f", f"{i}/b/c/g")}
    assert sorted(created) == sorted(wanted)  # each once
    for name in created:  # a folder before what is in it
        assert "/" not in name or created.index(name.rpartition("/")[0]) < created.index(name)
    watch.close()


@KINDS
def test_renames_in_and_out(box, kind):
    path, outside = fresh(box, "renames"), fresh(box, "renames-outside")
    box.inside(f"mkdir -p {outside}/tree/sub; touch {outside}/tree/sub/f {outside}/file; mkdir -p {path}/own/sub; touch {path}/own/sub/f")
    watch = kind(box, path)
    box.inside(
        f"cd {path}; mv {outside}/file in; mv {outside}/tree tree; touch tree/sub/new; mv in {outside}/file; "
        f"mv own {outside}/own; touch {outside}/own/sub/unseen; touch end"
    )
    events = watch.events("end")
    created = {name for name, what in events if what == "CREATE"}
    assert {"in", "tree", "tree/sub", "tree/sub/f", "tree/sub/new"} <= created
    assert ("in", "RENAME") in events and ("own", "RENAME") in events
    assert not any("unseen" in name for name, _ in events)
    watch.close()


@pytest.mark.parametrize("command", ["rm -r {0}", "mv {0} {0}-moved", "rm -r /tmp/above", "mv /tmp/above /tmp/above-moved"])
def test_a_watched_folder_that_goes(box, command):
    """Its stream ends in good order, a poller of it says so; other watches go on."""
    box.inside("rm -rf /tmp/above*; mkdir -p /tmp/above/root/sub; chmod -R 777 /tmp/above")
    other_path = fresh(box, "other")
    root, other = Watch(box, "/tmp/above/root"), Watch(box, other_path)
    poller = Poller(box, "/tmp/above/root")
    box.inside(command.format("/tmp/above/root") + f"; touch {other_path}/end")
    assert other.events("end") == []
    if "above-moved" not in command:
        seen = [m["filesystem"] for m in root if "filesystem" in m]
        assert seen[-1]["name"] in ("", ".") or seen[-1]["type"] in ("EVENT_TYPE_REMOVE", "EVENT_TYPE_RENAME")
        assert root.trailer == {}
    answer = box.rpc("GetWatcherEvents", {"watcherId": poller.id})
    assert isinstance(answer.get("events", []), list)
    poller.close()
    other.close()
    root.close()


@KINDS
def test_many_files_at_once(box, kind):
    """Each is told once, whether made in one folder or moved in as a tree."""
    count = 3000
    path, outside = fresh(box, "many"), fresh(box, "many-outside")
    box.inside(f"mkdir {outside}/tree; cd {outside}/tree; seq -f 'm%.0f' {count} | xargs touch")
    watch = kind(box, path)
    box.inside(f"cd {path}; seq -f 'f%.0f' {count} | xargs touch; mv {outside}/tree tree; touch end")
    created = [name for name, what in watch.events("end") if what == "CREATE"]
    wanted = [f"f{i + 1}" for i in range(count)] + ["tree"] + [f"tree/m{i + 1}" for i in range(count)]
    assert sorted(created) == sorted(wanted)
    watch.close()


def test_nothing_comes_after_stop(box):
    path = fresh(box, "stop")
    poller = Poller(box, path)
    box.inside(f"touch {path}/before")
    poller.close()
    for method in ("GetWatcherEvents", "RemoveWatcher"):
        with pytest.raises(RpcError) as e:
            box.rpc(method, {"watcherId": poller.id})
        assert e.value.code == "not_found"
    again = Poller(box, path)
    assert again.id != poller.id
    box.inside(f"touch {path}/end")
    assert again.events("end") == []  # what another watcher missed is not its
    again.close()


def watch_and_stop(box, path, seed):
    """One watch, stopped at any moment, while files come and go."""
    r = random.Random(seed)
    recursive = r.random() < 0.7
    if r.random() < 0.5:
        poller = Poller(box, path, recursive)
        if r.random() < 0.5:
            box.rpc("GetWatcherEvents", {"watcherId": poller.id})
        poller.close()
        return
    watch = Watch(box, path, recursive)
    for _ in range(r.choice((0, 0, 1, 5))):
        next(watch)
    if r.random() < 0.5:
        abort(watch.connection.sock)
        watch.response.close()
    watch.close()


@pytest.mark.parametrize("rounds", [60, pytest.param(1000, marks=pytest.mark.long)])
def test_watches_that_are_stopped(service, box, rounds):
    path = fresh(box, "rounds")
    writer = box.sh_start(
        f"cd {path}; mkdir -p s/t/u; while :; do for i in 1 2 3; do echo x > $i; mkdir -p s/t/$i; echo > s/t/$i/f; rm -r s/t/$i $i; done; sleep 0.01; done",
        user="root",
    )
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda i: watch_and_stop(box, path, i), range(60)))
        until(lambda: box.daemon_state()[2] == 0)
        before, inside = usage(service), box.daemon_state()
        list(pool.map(lambda i: watch_and_stop(box, path, i), range(rounds)))
    until(lambda: box.daemon_state()[2] == 0)
    daemon_has_nothing_left(box, inside)
    box.rpc("SendSignal", {"process": {"pid": writer.pid}, "signal": "SIGNAL_SIGKILL"})
    writer.wait()
    nothing_left(service, before)


SDK_STOP = """
import asyncio, sys, time
from e2b import AsyncSandbox, Sandbox

async def main():
    box = await AsyncSandbox.connect(sys.argv[1])
    await box.files.make_dir("/tmp/sdk")
    late = []
    for i in range(int(sys.argv[2])):
        events, stopped = [], []
        def on_event(e):
            (late if stopped else events).append(e.name)
        handle = await box.files.watch_dir("/tmp/sdk", on_event)
        await box.files.write(f"/tmp/sdk/{i % 5}", str(i))
        if i % 2:
            while not events:
                await asyncio.sleep(0.01)
        await handle.stop()
        stopped.append(1)
        await box.files.write(f"/tmp/sdk/{i % 5}", "after")
    await asyncio.sleep(0.3)
    print("late", late)

asyncio.run(main())
"""


def test_the_official_client_is_not_called_after_stop(service, box, tools_dir, tmp_path):
    env = {k: v for k, v in os.environ.items() if not k.startswith("E2B_")} | service.client_env() | {"HOME": str(tmp_path)}
    run = subprocess.run(
        [tools_dir / "py/bin/python", "-c", SDK_STOP, box.id, "20"], env=env, capture_output=True, text=True, timeout=120
    )
    assert (run.returncode, run.stdout) == (0, "late []\n"), run.stderr
