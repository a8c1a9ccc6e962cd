#!/usr/bin/env python3
"""Checks which folder of src/ (and python/_native) includes which (the table in docs/architecture.md).

usage: check_includes.py ROOT          prints `file:line: what` for each violation, exits 1 if there is one
       check_includes.py --self-test   checks the check against a small tree with known violations
"""

import re
import sys
import tempfile
from pathlib import Path

LAYERS = ["transport", "protocol", "api", "declarative", "agent"]
PLATFORM = ["guest", "engine", "control", "gateway", "egress"]

# Folder -> what it may include besides itself and base. `schema` are the generated messages, `abx` the installed API.
TABLE = {
    "base": set(),
    "wire": {"schema"},
    "e2b": {"wire", "schema"},
    "net": {"wire", "schema"},
    "transport": {"wire", "e2b"},
    "store": set(),
    "cli": {"abx"},
}
for i, layer in enumerate(LAYERS[1:], 1):
    TABLE[layer] = set(LAYERS[:i]) | {"e2b", "schema"}
TABLE["protocol"] |= {"wire"}
for folder in LAYERS:
    TABLE[folder] |= {"abx"}
for folder in PLATFORM:
    TABLE[folder] = {"wire", "schema", "e2b", "net"}
TABLE["control"] |= {"store"}

# Single files that may include more than their folder.
FILES = {
    # The installed API's codes and reasons are the tree's.
    re.compile(r"base/err\.h"): {"abx"},
    # Talks to a running service over its admin socket.
    re.compile(r"cli/admin[a-z_]*\.[ch]"): {"net", "schema"},
    # Hands certificates to the gateways.
    re.compile(r"cli/supervisor_tls\.c"): {"net"},
    # Says who has a port that is taken.
    re.compile(r"cli/supervisor_listen\.c"): {"net"},
    # The memory in which roles count.
    re.compile(r"cli/supervisor_counters\.c"): {"net"},
}

# The client is to be ported: these folders do without Linux-only headers.
PORTABLE = {"base", "wire", "e2b", "protocol", "api", "declarative", "agent"}
LINUX_ONLY = re.compile(
    r"(linux|asm|asm-generic)/.*|sys/(epoll|timerfd|eventfd|inotify|fanotify|signalfd|prctl|mount|syscall|capability"
    r"|pidfd|vfs|sysinfo|sendfile|personality|fsuid)\.h|(sched|seccomp|mntent)\.h"
)
# path.h is openat2 and nothing else; the portable client has no guest to defend against and does not link it.
LINUX_ALLOWED = {"base/path.c": {"linux/openat2.h", "sys/syscall.h"}}

INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')


def target_of(name):
    """The folder that a project include names, or None when it is none of ours."""
    if name.startswith("abx/"):
        return "abx"
    if name.startswith("schema/") or name.endswith(".pb-c.h"):
        return "schema"
    return name.split("/", 1)[0] if "/" in name else ""


def check_include(path, folder, bracket, name):
    """What is wrong with one include line of src/<path>, or None."""
    if folder in PORTABLE and LINUX_ONLY.fullmatch(name):
        if name in LINUX_ALLOWED.get(path, ()):
            return None
        return f"<{name}> is Linux-only; {folder} has to be portable"
    target = target_of(name)
    if bracket == "<":
        return f"<{name}> is ours: write it with quotes" if target in TABLE else None
    if target == "":
        return f'"{name}" has no folder: includes start at src/'
    if target not in TABLE and target not in ("schema", "abx"):
        return f'"{name}" is in no folder that the table knows'
    allowed = {folder, "base"} | TABLE[folder]
    for pattern, more in FILES.items():
        if pattern.fullmatch(path):
            allowed |= more
    if target not in allowed:
        return f'"{name}": {folder} may not include {target}'
    return None


def check_tree(root):
    """All violations below root/src and root/python as (file, line, what), and the number of files read."""
    found, count = [], 0
    # The Python extension is a program that uses libabx: its own files and the installed API, nothing of src.
    native = Path(root) / "python" / "_native"
    for file in sorted(native.glob("*.[ch]")):
        count += 1
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            match = INCLUDE.match(line)
            name = match[2] if match and match[1] == '"' else ""
            if name and not name.startswith("abx/") and not ("/" not in name and (native / name).exists()):
                found.append((f"python/_native/{file.name}", number, f'"{name}": python/_native may include abx alone'))
    src = Path(root) / "src"
    for file in sorted(src.rglob("*.[ch]")):
        path = file.relative_to(src).as_posix()
        folder = path.split("/", 1)[0]
        count += 1
        if "/" not in path or folder not in TABLE:
            found.append((f"src/{path}", 1, f"folder '{folder}' is not in the include table"))
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            match = INCLUDE.match(line)
            if match:
                what = check_include(path, folder, match[1], match[2])
                if what:
                    found.append((f"src/{path}", number, what))
    return found, count


def self_test():
    """A tree in which every second line is wrong: exactly those are to be found."""
    good_and_bad = {
        "wire/http1.c": ['"base/buf.h"', '"net/loop.h"', '"wire/http1.h"', "<sys/epoll.h>"],
        "engine/cgroup.c": ["<sys/mount.h>", '"control/driver.h"', '"schema/ipc.pb-c.h"', '"store/store.h"'],
        "control/driver.c": ['"store/store.h"', '"cgroup.h"', '"net/loop.h"', '"engine/cgroup.h"'],
        "agent/mcp.c": ['"api/files.h"', "<linux/types.h>", '"transport/http.h"', '"net/loop.h"'],
        "protocol/process.c": ['"transport/http.h"', '"api/files.h"', '"e2b/ids.h"', "<base/buf.h>"],
        "cli/key.c": ['"abx/key.h"', '"net/loop.h"'],
        "cli/admin.c": ['"net/ipc.h"', '"engine/cgroup.h"'],
        "base/path.c": ["<linux/openat2.h>", "<linux/stat.h>"],
        "other/x.c": ["<stdio.h>"],
    }
    expected = {("src/other/x.c", 1)}
    with tempfile.TemporaryDirectory() as root:
        for path, includes in good_and_bad.items():
            file = Path(root) / "src" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("".join(f"#include {name}\n" for name in includes))
            expected |= {(f"src/{path}", n) for n in range(2, len(includes) + 1, 2)}
        native = Path(root) / "python" / "_native"
        native.mkdir(parents=True)
        (native / "call.c").write_text('#include "call.h"\n#include "transport/call.h"\n#include "abx/abx.h"\n')
        (native / "call.h").write_text('#include "abx/client.h"\n#include "buf.h"\n')
        expected |= {("python/_native/call.c", 2), ("python/_native/call.h", 2)}
        found = {(path, line) for path, line, _ in check_tree(root)[0]}
    for path, line in sorted(expected - found):
        print(f"{path}:{line}: violation not found")
    for path, line in sorted(found - expected):
        print(f"{path}:{line}: reported without reason")
    return 0 if found == expected else 1


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if len(sys.argv) != 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    found, count = check_tree(sys.argv[1])
    for path, line, what in found:
        print(f"{path}:{line}: {what}")
    if count == 0:
        print(f"{sys.argv[1]}: no source file found", file=sys.stderr)
        return 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
