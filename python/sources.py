#!/usr/bin/env python3
"""Prints the files of the package, one on a line, relative to this folder. Read by meson."""

from pathlib import Path

HERE = Path(__file__).resolve().parent
for file in sorted((HERE / "agent_sandbox").rglob("*")):
    if file.suffix in (".py", ".pyi", ".typed") or file.name == "py.typed":
        print(file.relative_to(HERE).as_posix())
