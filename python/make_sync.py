#!/usr/bin/env python3
"""Makes the modules of agent_sandbox/_sync of those in agent_sandbox/_async.

usage: make_sync.py           writes them
       make_sync.py --check   says which would change, exits 1 if one would

`await`, `async` and the names of async classes go. What stands between `# <async>` and `# </async>` goes too; what
stands between `# <sync>` and `# </sync>`, commented, comes in. ruff formats both sides; a `# fmt: skip` keeps a line.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent / "agent_sandbox"
FOLDERS = [(ROOT / "_async", ROOT / "_sync"), (ROOT / "code_interpreter" / "_async", ROOT / "code_interpreter" / "_sync")]
BY_HAND = {"__init__.py", "run.py", "handle.py", "watch.py"}

WORDS = [
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bAsync([A-Z][A-Za-z]*)\b", r"\1"),
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (r"\b__a(iter|next|enter|exit)__", r"__\1__"),
    (r"\baclose\b", "close"),
    (r"Coroutine\[Any, Any, (\w+)\]", r"\1"),
    (r"\b_async\b", "_sync"),
    (r"`async with`", "`with`"),
]


def convert(text, source):
    """The sync form of a module."""
    lines, kind = [], None
    for line in text.splitlines():
        mark = re.fullmatch(r"\s*# <(/?)(async|sync)>", line)
        if mark:
            kind = None if mark[1] else mark[2]
        elif kind == "sync":
            lines.append(re.sub(r"^(\s*)#( |$)", r"\1", line))
        elif kind is None:
            for pattern, to in WORDS:
                line = re.sub(pattern, to, line)
            lines.append(line)
    body = "\n".join(line.rstrip() for line in lines) + "\n"
    return f"# Made by python/make_sync.py of {source}; never edited.\n" + body


def main():
    changed = []
    for source, target in FOLDERS:
        for file in sorted(source.glob("*.py")):
            if file.name in BY_HAND:
                continue
            made = convert(file.read_text(encoding="utf-8"), file.relative_to(ROOT.parent).as_posix())
            to = target / file.name
            if not to.exists() or to.read_text(encoding="utf-8") != made:
                changed.append(str(to))
                if sys.argv[1:] != ["--check"]:
                    to.write_text(made, encoding="utf-8")
    if sys.argv[1:] == ["--check"] and changed:
        print("not what make_sync.py makes: " + ", ".join(changed))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
