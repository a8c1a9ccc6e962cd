#!/usr/bin/env python3
"""Checks what the compiler and clang-format do not: banned functions and exit() outside main in src, and in every folder
of code the length of files. The README fits a terminal.

usage: check_style.py ROOT          prints `file:line: what` for each violation, exits 1 if there is one
       check_style.py --self-test   checks the check against known good and bad lines
"""

import re
import sys
import tempfile
from pathlib import Path

BANNED = (
    "strcpy strcat sprintf vsprintf gets strtok alloca atoi atol atoll strtol strtoll strtoul strtoull strtod scanf "
    "sscanf fscanf vsscanf system popen signal usleep"
).split()
CALL = re.compile(r"(?<![\w.>])(%s)\s*\(" % "|".join(BANNED))
PRODUCT = re.compile(r"\bmalloc\s*\([^()]*(?:\([^()]*\))?[^()]*\*[^()]*")
EXIT = re.compile(r"(?<![\w.>])exit\s*\(")
MAX_LINES = 800
MAX_COLUMNS = 80
C_FOLDERS = ("src", "include", "python")
CODE_FOLDERS = (*C_FOLDERS, "bench", "libexec", "schema", "script", "share", "tests")

# Comments, strings and character constants; replaced by blanks so that lines keep their numbers.
NOT_CODE = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)


def blank(match):
    return re.sub(r"[^\n]", " ", match[0])


def check_text(name, text):
    """Violations in one file as (line, what)."""
    found = []
    code = NOT_CODE.sub(blank, text)
    lines = code.split("\n")
    is_main = name == "main.c" or name.endswith("_main.c")
    for number, line in enumerate(lines, 1):
        for match in CALL.finditer(line):
            found.append((number, f"{match[1]}() is banned"))
        if PRODUCT.search(line):
            found.append((number, "malloc of a product: use calloc or reallocarray"))
        if not is_main and EXIT.search(line):
            found.append((number, "exit() outside main"))
    return found


def check_length(text):
    """The same for the length alone: what is read as a whole has to stay readable."""
    count = text.count("\n") + (not text.endswith("\n"))
    return [(MAX_LINES, f"{count} lines, at most {MAX_LINES}: split it by theme")] if count > MAX_LINES else []


def check_width(text):
    """The same for what is read in a terminal."""
    wide = [(number, len(line)) for number, line in enumerate(text.split("\n"), 1) if len(line) > MAX_COLUMNS]
    return [(number, f"{n} columns, a terminal has {MAX_COLUMNS}") for number, n in wide]


def code_files(root):
    """Every file of the folders above that people write: no corpora, no caches."""
    for folder in CODE_FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            parts = file.relative_to(root).parts
            is_cache = any(part in ("corpus", "__pycache__", "node_modules") or part.startswith(".") for part in parts[:-1])
            if file.is_file() and not is_cache:
                yield file


def self_test():
    bad = [
        "    strcpy(a, b);",
        "    n = atoi (s);",
        "    p = malloc(n * size);",
        "    p = malloc(n * sizeof(*p));",
        "    exit(1);",
        "    if (x) system(cmd);",
        '    a = "x"; sprintf(b, "y");',
    ]
    good = [
        "    /* strcpy(a, b) is banned */",
        '    puts("system(x)");',
        "    obj->signal(obj, 9);",
        "    my_strcpy(a, b);",
        "    p = malloc(sizeof(*p));",
        "    _exit(1);",
        "    kill_signal(pid);",
        "    c = '\"'; /* \" */ d = strlen(e);",
    ]
    failed = [line for line in bad if not check_text("a.c", line)]
    failed += [line for line in good if check_text("a.c", line)]
    failed += [] if check_length("\n" * (MAX_LINES + 1)) and check_length("\n" * MAX_LINES + "x") else ["801 lines"]
    failed += ["800 lines"] if check_length("\n" * MAX_LINES) or check_length("\n" * (MAX_LINES - 1) + "x") else []
    failed += [] if check_width("x\n" + "ü" * 80) == [] and [n for n, _ in check_width("x\n" + "y" * 81)] == [2] else ["81 columns"]
    with tempfile.TemporaryDirectory() as folder:
        for name in ("src/base/a.c", "tests/system/test_a.py", "tests/fuzz/corpus/x/a", "script/check"):
            path = Path(folder, name)
            path.parent.mkdir(parents=True)
            path.write_text("\n" * (MAX_LINES + 1))
        found = [str(file.relative_to(folder)) for file in code_files(Path(folder))]
        failed += [] if found == ["src/base/a.c", "script/check", "tests/system/test_a.py"] else [f"found {found}"]
    failed += ["exit in main.c"] if check_text("main.c", "    exit(1);") else []
    for line in failed:
        print(f"judged wrongly: {line}")
    return 1 if failed else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if len(sys.argv) != 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    root, bad, count = Path(sys.argv[1]), 0, 0
    for file in code_files(root):
        text = file.read_text(encoding="utf-8")
        found = check_length(text)
        if file.suffix in (".c", ".h") and file.relative_to(root).parts[0] in C_FOLDERS:
            count += 1
            found += check_text(file.name, text)
        for number, what in found:
            print(f"{file.relative_to(root)}:{number}: {what}")
            bad += 1
    for number, what in check_width((root / "README.md").read_text(encoding="utf-8")):
        print(f"README.md:{number}: {what}")
        bad += 1
    if count == 0:
        print(f"{root}: no source file found", file=sys.stderr)
        return 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
