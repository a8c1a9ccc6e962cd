"""Looks at processes and signals them, of which any may end at any moment: between two looks, and within one.

A file of /proc that was opened in time still fails with ESRCH, a path with ENOENT; here both mean that the process is
gone, which is a result and no error.
"""

import contextlib
import os
import signal
from pathlib import Path

from waiting import until

GONE = (FileNotFoundError, ProcessLookupError)


def read(pid, name):
    """Text of /proc/<pid>/<name>, None when the process is gone."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace")
    except GONE:
        return None


def stat(pid):
    """Fields of /proc/<pid>/stat behind the name, state first; None when it is gone."""
    text = read(pid, "stat")
    return text.rpartition(")")[2].split() if text else None


def alive(pid):
    """Is there such a process, and no zombie?"""
    fields = stat(pid)
    return fields is not None and fields[0] not in "ZX"


def born(pid):
    """When it started, in ticks since the boot, as text; None when it is gone."""
    fields = stat(pid)
    return fields[19] if fields else None


def every():
    """The pids of the machine."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def named(*names):
    """Pids of the processes of these names (at most 15 bytes, as the kernel keeps them)."""
    return [pid for pid in every() if (read(pid, "comm") or "").rstrip("\n") in names]


def children(pid):
    """Pids of the children of all threads of a process."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except GONE:
        return []
    return [int(child) for thread in threads for child in (read(pid, f"task/{thread}/children") or "").split()]


def files(pid):
    """{number: what it is} of the open descriptors of a process, without those that it closes during the look."""
    found = {}
    try:
        for number in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(*GONE):
                found[int(number)] = os.readlink(f"/proc/{pid}/fd/{number}")
    except GONE:
        pass
    return found


def send(pid, signo=signal.SIGKILL):
    """Sends a signal; False when the process is gone."""
    try:
        os.kill(pid, signo)
    except ProcessLookupError:
        return False
    return True


def wait_gone(pids):
    """Waits until all of them are gone or zombies."""
    until(lambda: not any(alive(pid) for pid in pids), lambda: f"the end of {[pid for pid in pids if alive(pid)]}")
