#!/usr/bin/env python3
"""Measures pause and resume, forks, snapshots and rollbacks of a service built in this tree.

usage: bench_life.py [--quick] [--only pause,files,plain,xfs]

Prints one table like bench.py, whose client it uses; medians.

pause: `engine` is what control waits for the engine for (stages `freezing` and `waking` of the events: socket, record,
freezer and the note that it is saved), `API` the whole request from a client, which also has the gateways let go and writes
the row to the disk. Sleeping processes, and some that all want the processor.

files: a sandbox with 500 files of 1 MB. Fork: from the request until the first command in the new sandbox has ended. Rollback:
the same, of the running sandbox to its snapshot; `fetching` is the part in which it still runs. The peer is `cp -a` of the
same files beside them, by reflinks as it does there by itself and without, in turns with ours. `synced`: the pool was written
to the disk before each; `dirty`: the files were written anew just before, and nothing was synced. plain and xfs: the same
where the pool is a folder without subvolumes, on $TMPDIR's file system and on an XFS that shares extents, so that each file is
copied or cloned while the sandbox stands still, or, for a rollback, runs. Needs root, the base template, 4 GB in $TMPDIR.
"""

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from bench import ROOT, Client, median, ms, quantile, row, table, timed
from service import Service

FILES = 500
WRITE = f"""mkdir -p /home/user/data && cd /home/user/data &&
head -c {FILES}M /dev/urandom | split -b 1M -a 3 -d - f && ls | wc -l"""
BUSY = "for i in $(seq {n}); do (while :; do :; done) & done"
ASLEEP = "for i in $(seq {n}); do sleep 100000 & done"


def post(client, box, what, body, expect):
    status, answer = client.request("POST", f"/sandboxes/{box['sandboxID']}/{what}", body)
    if status != expect:
        raise RuntimeError(f"{what}: {status} {answer!r}")
    return json.loads(answer) if answer else None


def sh(client, box, script):
    code, out = client.run(box, "/bin/bash", ["-c", script])
    if code != 0:
        raise RuntimeError(f"{script}: {code} {out!r}")
    return out


# --- pause and resume ------------------------------------------------------------------------------------------


def stage_seconds(client, box, event, stage):
    """How long the newest event of a kind spent in one of its stages."""
    status, body = client.request("GET", f"/events/sandboxes/{box['sandboxID']}?limit=1")
    newest = json.loads(body)[0] if status == 200 else {"type": body}
    if newest["type"] != f"sandbox.lifecycle.{event}":
        raise RuntimeError(f"no event {event}: {newest['type']}")
    return next(s["us"] for s in newest["eventData"]["stages"] if s["name"] == stage) / 1e6


def bench_pause(service, what, script, n, target, rounds):
    client = Client(service.port, service.key)
    box = client.create()
    sh(client, box, f"({script.format(n=n)}) </dev/null >/dev/null 2>&1; sleep 0.5")
    times = {"pause": [], "resume": [], "pause API": [], "resume API": []}
    for _ in range(rounds):
        times["pause API"].append(timed(post, client, box, "pause", {}, 204)[0])
        times["pause"].append(stage_seconds(client, box, "paused", "freezing"))
        times["resume API"].append(timed(post, client, box, "connect", {"timeout": 600}, 201)[0])
        times["resume"].append(stage_seconds(client, box, "resumed", "waking"))
    client.kill(box)
    for name in ("pause", "resume"):
        api = times[f"{name} API"]
        row(f"{name} of {what}: engine", ms(median(times[name])), f"API {ms(median(api))}", target,
            f"p95 {ms(quantile(times[name], 0.95))}, API {ms(quantile(api, 0.95))}, best {ms(min(times[name]))}")


# --- files -----------------------------------------------------------------------------------------------------


def pool_of(service):
    pool = service.data_dir / "pool/fs"
    return pool if (pool / "uppers").exists() else service.data_dir / "pool"


def files_of(service, box):
    """The host's path of what `WRITE` has written."""
    for record in (Path("/run/abx") / service.instance() / "sandboxes").iterdir():
        if not record.name.startswith(".") and box["sandboxID"] in record.read_text():
            return pool_of(service) / "uppers" / record.name / "u/home/user/data"
    raise RuntimeError("the sandbox has no record")


def sync(service):
    subprocess.run(["sync", "-f", pool_of(service)], check=True)


def fork(client, box):
    """Until the first command has ended."""
    new = post(client, box, "fork", {"count": 1, "timeout": 600}, 201)[0]
    if "sandbox" not in new:
        raise RuntimeError(f"fork: {new}")
    code, _ = client.run(new["sandbox"], "/bin/true", [])
    if code != 0:
        raise RuntimeError(f"first command: {code}")
    return new["sandbox"]


def rollback(client, box, snapshot):
    """Until the first command has ended; the seconds in which it ran on while the files were copied."""
    answer = post(client, box, "rollback", {"snapshotID": snapshot}, 200)
    code, _ = client.run(box, "/bin/true", [])
    if code != 0:
        raise RuntimeError(f"first command: {code}")
    return next(s["us"] for s in answer["rollback"]["stages"] if s["name"] == "fetching") / 1e6


def cp(files, *options):
    to = files.parents[5] / "bench-copy"
    seconds, _ = timed(subprocess.run, ["cp", "-a", *options, files, to])
    if len(os.listdir(to)) != FILES:
        raise RuntimeError("cp -a did not copy all")
    shutil.rmtree(to)
    return seconds


def bench_files(service, pool, rounds, target="", is_dirty=False):
    client = Client(service.port, service.key)
    box = client.create()
    assert int(sh(client, box, WRITE)) == FILES
    kinds = ("fork", "snapshot", "rollback", "fetching", "cp", "cp without reflinks")
    times = {kind: [] for kind in kinds}

    def ready():
        if is_dirty:
            sh(client, box, WRITE)
        else:
            sync(service)

    for i in range(rounds + 1):  # the first one warms up
        taken = {}
        ready()
        taken["fork"], child = timed(fork, client, box)
        client.kill(child)
        ready()
        taken["snapshot"], made = timed(post, client, box, "snapshots", {}, 201)
        ready()
        taken["rollback"], taken["fetching"] = timed(rollback, client, box, made["snapshotID"])
        client.request("DELETE", f"/templates/{made['snapshotID']}")
        files = files_of(service, box)
        ready()
        taken["cp"] = cp(files)
        ready()
        taken["cp without reflinks"] = cp(files, "--reflink=never")
        for kind in kinds if i > 0 else ():
            times[kind].append(taken[kind])
    client.kill(box)
    state = "dirty" if is_dirty else "synced"
    peer = f"cp -a {ms(median(times['cp']))}, without reflinks {ms(median(times['cp without reflinks']))}"
    notes = {"rollback": f", fetching {ms(median(times['fetching']))}"}
    for kind, what in (("fork", "fork and first command"), ("snapshot", "snapshot"), ("rollback", "rollback and first command")):
        row(f"{pool}, 500 MB {state}: {what}", ms(median(times[kind])), peer, target if kind != "rollback" else "",
            f"worst of {rounds}: {ms(max(times[kind]))}" + notes.get(kind, ""))


@contextlib.contextmanager
def plain_service(build, data_dir=None):
    """One whose pool is a plain folder: it looks as if it had been one before."""
    service = Service(build, data_dir=data_dir)
    for folder in ("pool", "pool/uppers", "pool/uppers/a", "pool/uppers/a/u"):
        (service.data_dir / folder).mkdir(0o700)
    with service:
        shutil.rmtree(service.data_dir / "pool/uppers/a")
        yield service


@contextlib.contextmanager
def xfs_service(build):
    """One with such a pool on an XFS of its own."""
    with tempfile.TemporaryDirectory(prefix="abx-bench-") as folder:
        image, at = Path(folder) / "image", Path(folder) / "mnt"
        at.mkdir()
        with open(image, "wb") as f:
            f.truncate(8 << 30)
        subprocess.run(["mkfs.xfs", "-q", "-m", "reflink=1", image], check=True)
        subprocess.run(["mount", "-o", "loop", image, at], check=True)
        try:
            (at / "data").mkdir(0o711)
            with plain_service(build, at / "data") as service:
                yield service
        finally:
            subprocess.run(["umount", at], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--only", default="pause,files,plain,xfs", help="comma-separated parts")
    args = parser.parse_args()
    only = args.only.split(",")
    build = Path(os.environ.get("ABX_BUILD", ROOT / "build"))
    rounds, copies = (20, 3) if args.quick else (100, 7)
    if {"pause", "files"} & set(only):
        with Service(build, disk="40G") as service:
            if "pause" in only:
                bench_pause(service, "1 process", ASLEEP, 1, "< 2 ms", rounds)
                bench_pause(service, "100 processes", ASLEEP, 100, "< 20 ms", rounds)
                bench_pause(service, "100 busy processes", BUSY, 100, "", rounds // 5)
            if "files" in only:
                bench_files(service, "btrfs", copies, "< 50 ms, under cp -a")
                bench_files(service, "btrfs", copies, is_dirty=True)
    if "xfs" in only:
        with xfs_service(build) as service:
            bench_files(service, "folder on XFS", copies)
    if "plain" in only:
        with plain_service(build) as service:
            bench_files(service, "folder on ext4", copies)
    table()


if __name__ == "__main__":
    main()
