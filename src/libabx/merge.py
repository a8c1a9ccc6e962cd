#!/usr/bin/env python3
"""Makes libabx.a: one relocatable object whose only global names are those of the installed API, so that a program's
own buf_append is not ours.

usage: merge.py OUTPUT FOLDER COMPILER... -- WHOLE.a... -- PART.a|LINKER_OPTION...

FOLDER is for files on the way. Of the parts only what the others need goes in.
"""

import os
import subprocess
import sys


def main():
    output, folder, *rest = sys.argv[1:]
    first = rest.index("--")
    second = rest.index("--", first + 1)
    compiler, whole, parts = rest[:first], rest[first + 1 : second], rest[second + 1 :]
    os.makedirs(folder, exist_ok=True)
    merged = os.path.join(folder, "libabx.o")
    linked = ["-Wl,--whole-archive", *whole, "-Wl,--no-whole-archive", "-Wl,--start-group", *parts, "-Wl,--end-group"]
    subprocess.run([*compiler, "-r", "-nostdlib", "-Wl,--build-id=none", *linked, "-o", merged], check=True)
    # The names that are hidden, then those of others (protobuf-c's), which are not.
    subprocess.run(["objcopy", "--localize-hidden", merged], check=True)
    subprocess.run(["objcopy", "--wildcard", "--keep-global-symbol=abx_*", merged], check=True)
    if os.path.exists(output):
        os.remove(output)
    subprocess.run(["ar", "rcsD", output, merged], check=True)


if __name__ == "__main__":
    main()
