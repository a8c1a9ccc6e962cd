#!/usr/bin/env python3
"""Checks libabx as others use it: its headers and the names it exports.

usage: check_libabx.py headers INCLUDE_DIR CC...     each header alone compiles as strict C99 and as C++
       check_libabx.py docs ROOT CC...               the pieces of C in docs/c-api.md compile, and with examples/ they
                                                     use every function
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
    installed = set(re.findall(r"'abx/(\w+\.h)'", Path(include, "meson.build").read_text(encoding="utf-8")))
    for name in sorted(installed ^ {p.name for p in Path(include, "abx").glob("*.h")}):
        print(f"abx/{name}: is in the folder or in include/meson.build alone")
        bad = 1
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
    for name in sorted(have - want):
        print(f"{library}: {name} is exported and not declared with ABX_EXPORT")
    for name in sorted(want - have):
        print(f"{library}: {name} is declared and not exported")
    return 0 if want and have == want else 1


PIECE = re.compile(r"^```c\n(.*?)^```$", re.S | re.M)
BEFORE = """
#include <stdio.h>
#include <stdlib.h>
#include <abx/abx.h>

void piece(abx_client *client, abx_config *config, abx_sandbox *sandbox);
void piece(abx_client *client, abx_config *config, abx_sandbox *sandbox)
{
    struct abx_error error = { 0 };
    abx_call *call = NULL;

    (void)client, (void)config, (void)sandbox, (void)error, (void)call;
    {
#line %d "docs/c-api.md"
"""


def check_docs(root, cc):
    page = Path(root, "docs/c-api.md").read_text(encoding="utf-8")
    pieces, bad = list(PIECE.finditer(page)), 0
    for piece in pieces:
        line = page[: piece.start(1)].count("\n") + 1
        command = [*cc, *C99, "-I", str(Path(root, "include")), "-fsyntax-only", "-"]
        run = subprocess.run(command, input=BEFORE % line + piece[1] + "    }\n}\n", stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True)
        if run.returncode != 0:
            print(run.stdout)
            bad = 1
    code = [COMMENT.sub(" ", p[1]) for p in pieces]
    code += [COMMENT.sub(" ", p.read_text(encoding="utf-8")) for p in Path(root, "examples").glob("*.c")]
    used = set(re.findall(r"\b(abx_\w+)\s*\(", "\n".join(code)))
    for name in sorted(declared_in(Path(root, "include")) - used):
        print(f"docs/c-api.md: nothing there or in examples/ shows {name}")
        bad = 1
    return bad if pieces else 1


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
    if len(args) >= 3 and args[0] == "docs":
        return check_docs(args[1], args[2:])
    if len(args) == 3 and args[0] == "symbols":
        return check_symbols(*args[1:])
    print(__doc__.strip(), file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
