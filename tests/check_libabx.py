#!/usr/bin/env python3
"""Checks libabx as others use it: its headers and the names it exports.

usage: check_libabx.py headers INCLUDE_DIR CC...     each header alone compiles as strict C99 and as C++
       check_libabx.py symbols INCLUDE_DIR LIBRARY   exactly the functions declared with ABX_EXPORT are global names
       check_libabx.py --self-test                   checks the reading of declarations
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

COMMENT = re.compile(r"/\*.*?\*/", re.S)
DECLARATION = re.compile(r"\bABX_EXPORT\b[^;{]*?\b(\w+)\s*\(")
C99 = ["-x", "c", "-std=c99", "-pedantic-errors", "-Wall", "-Wextra", "-Wstrict-prototypes", "-Wundef", "-Werror"]
CXX = ["-x", "c++", "-std=c++11", "-pedantic-errors", "-Wall", "-Wextra", "-Werror"]


def declared(text):
    """Names of the functions that a header declares with ABX_EXPORT."""
    lines = [line for line in COMMENT.sub(" ", text).splitlines() if not line.lstrip().startswith("#")]
    return set(DECLARATION.findall("\n".join(lines)))


def declared_in(include):
    return set().union(*(declared(file.read_text(encoding="utf-8")) for file in Path(include, "abx").glob("*.h")))


def exported(library):
    """Global names that a library defines."""
    dynamic = ["--dynamic"] if ".so" in Path(library).name else []
    run = subprocess.run(
        ["nm", *dynamic, "--defined-only", "--extern-only", "--format=posix", library],
        stdout=subprocess.PIPE, text=True, check=True,
    )
    rows = [line.split() for line in run.stdout.splitlines()]
    # A line of a single word names the archive's member; type A is the version itself.
    return {row[0].split("@")[0] for row in rows if len(row) > 1 and row[1] != "A"}


def cxx_of(cc):
    """A C++ compiler: the one beside `cc`, else any that is installed."""
    name = cc[-1]
    tries = [re.sub(r"gcc(?=[^/]*$)", "g++", name), re.sub(r"clang(?=[^/]*$)", "clang++", name)]
    tries += ["c++", "g++", "clang++", "clang++-19", "clang++-18", "clang++-15"]
    for one in tries:
        if one != name and shutil.which(one):
            return [*cc[:-1], one] if one in tries[:2] else [one]
    return None


def check_headers(include, cc):
    cxx, bad = cxx_of(cc), 0
    if not cxx:
        print("no C++ compiler found")
        return 1
    for header in sorted(Path(include, "abx").glob("*.h")):
        source = f'#include "abx/{header.name}"\n#include "abx/{header.name}"\nint main(void) {{ return 0; }}\n'
        for compiler, options in ((cc, C99), (cxx, CXX)):
            command = [*compiler, *options, "-I", include, "-fsyntax-only", "-"]
            run = subprocess.run(command, input=source, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if run.returncode != 0:
                print(f"abx/{header.name}: {' '.join(command)}\n{run.stdout}")
                bad = 1
    return bad


def check_symbols(include, library):
    want, have = declared_in(include), exported(library)
    pending = set((Path(__file__).parent / "libabx_pending.txt").read_text(encoding="utf-8").split())
    for name in sorted(have - want):
        print(f"{library}: {name} is exported and not declared with ABX_EXPORT")
    for name in sorted(want - have - pending):
        print(f"{library}: {name} is declared and not exported")
    if not want & have:
        print(f"{library}: exports nothing of the API")
        return 1
    return 1 if have - want or want - have - pending else 0


def self_test():
    text = """
    #define ABX_EXPORT __attribute__((visibility("default")))
    /* ABX_EXPORT int abx_comment(void); */
    ABX_EXPORT int abx_a(const struct x *y,
                         int z);
    ABX_EXPORT const char *const *abx_b (void); int abx_c(void);
    typedef void (*abx_fn)(void *user);
    ABX_EXPORT void abx_d(int (*fn)(void));
    """
    found = declared(text)
    if found != {"abx_a", "abx_b", "abx_d"}:
        print(f"declared: {sorted(found)}")
        return 1
    return 0


def main():
    args = sys.argv[1:]
    if args == ["--self-test"]:
        return self_test()
    if len(args) >= 3 and args[0] == "headers":
        return check_headers(args[1], args[2:])
    if len(args) == 3 and args[0] == "symbols":
        return check_symbols(*args[1:])
    print(__doc__.strip(), file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
