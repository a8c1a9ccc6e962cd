"""docs/compatibility.md: which clients have a column there, how a column is run, and how the page is written.

A column is one release of a client; its programs (tests/sdk/compat) print what became of each row. The expected table
(tests/sdk/compat/expected.txt) says what may be something else than `ok`. tests/system/test_compatibility.py compares the
three: run, table, page.
"""

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMPAT = ROOT / "tests/sdk/compat"
PAGE = ROOT / "docs/compatibility.md"
NOT_THERE = "n/a"
OWN = "ours"


@dataclass(frozen=True)
class Column:
    """`runs` are the command lines of its programs; {tools} is the folder of the pinned tools. `path` goes into PYTHONPATH."""

    section: str
    title: str
    runs: tuple
    path: str = ""
    is_long: bool = False


def python(title, env, module="e2b", **more):
    programs = tuple((f"{{tools}}/{env}/bin/python", str(COMPAT / "python_rows.py"), module, kind) for kind in ("sync", "async"))
    return Column("sdk", title, programs, **more)


def javascript(version, package, **more):
    program = ("{tools}/bin/node", str(COMPAT / "js_rows.mjs"), "{tools}/node/node_modules", package)
    return Column("sdk", f"npm e2b {version}", (program,), **more)


COLUMNS = [
    python("PyPI e2b 2.63.0", "py"),
    python("2.46.0", "py", path="{tools}/e2b-2.46.0", is_long=True),
    python("2.37.1", "py", path="{tools}/e2b-2.37.1", is_long=True),
    python("2.29.5", "e2b-2.26.0", path="{tools}/e2b-2.29.5", is_long=True),
    python("2.26.0", "e2b-2.26.0", is_long=True),
    python("2.21.0", "e2b-2.26.0", path="{tools}/e2b-2.21.0", is_long=True),
    javascript("2.51.0", "e2b"),
    javascript("2.8.4", "e2b-2.8.4", is_long=True),
    python("agent-sandbox-client 0.4.0a6", "agent-sandbox-client-0.4.0a6", "agent_sandbox"),
    python("agent_sandbox of this repository", "py", "agent_sandbox", path=OWN),
    Column("provider", "ProviderSandbox of agent-sandbox-client 0.4.0a6",
           (("{tools}/agent-sandbox-client-0.4.0a6/bin/python", str(COMPAT / "provider_rows.py")),)),
    Column("cli", "@e2b/cli 2.19.0",
           (("{tools}/py/bin/python", str(COMPAT / "cli_rows.py"), "{tools}/bin/node", "{tools}/node/node_modules/.bin/e2b"),),
           is_long=True),
]  # fmt: skip
SECTIONS = {
    "sdk": "SDKs",
    "provider": "ProviderSandbox",
    "cli": "Command line",
}

NOTES = {
    "provider": "Its `_sync` methods are these in `asyncio.run()` and have no rows: the client keeps connections whose loop is over, so\n"
                "that with any server that lets a connection live the second call of an object can end with \"Event loop is closed\".\n",
    "cli": "`auth` asks the vendor's own login page; `template init` and `template migrate` only write files.\n",
}  # fmt: skip

INTRO = """\
# Compatibility

<!-- Written by script/compatibility from a run of the tests. Do not edit. -->

Every method of the unmodified clients that asks a server was called once, against a running service; `tests/sdk/compat`
has the calls. A cell says what came back:

- `ok`: it did what it promises.
- `501 SandboxException`: the client's own error, with HTTP's status; what is missing is listed below the table. An error
  number like `E8004` is the client's, which refuses the call itself.
- `n/a`: this release of the client does not have the method, option or form.

No call hangs: each has a deadline of 120 s. Rows have Python's names; in JavaScript `files.make_dir` is `files.makeDir`.
`(metadata=)` is a parameter or option, `(bytes)` a way to use the method. A Python cell stands for the synchronous and the
asynchronous client, or names both. Releases of PyPI's e2b and of npm's without a name are older ones of the same package.
"""


def run_program(argv, tools, env, home):
    """{row: outcome} of one program, and the methods that it has no row for."""
    argv = [a.format(tools=tools) for a in argv]
    done = subprocess.run(argv, env=env, cwd=home, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=560)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    rows = {x["row"]: x for x in lines if "row" in x}
    assert done.returncode == 0, f"exit code {done.returncode} after {list(rows)[-1:]}:\n{done.stderr[-3000:]}"
    return rows, lines[-1]["uncovered"]


def word(outcome):
    """An outcome as a cell says it."""
    if "error" in outcome:
        return f"{outcome['status']} {outcome['error']}"
    return "ok" if outcome.get("ok") else NOT_THERE if outcome.get("na") else f"failed: {outcome['failed']}"


def merged(programs):
    """{row: cell} of a column whose programs told `programs`, a list of {row: cell}."""
    cells = {}
    for row in dict.fromkeys(r for told in programs for r in told):
        told = [cells_of.get(row, NOT_THERE) for cells_of in programs]
        cells[row] = told[0] if len(set(told)) == 1 else f"sync {told[0]}, async {told[1]}"
    return cells


def kinds(cell):
    """What the synchronous and the asynchronous client told, of a cell."""
    return [word.removeprefix("sync ").removeprefix("async ") for word in cell.split(", ")]


def expected():
    """{section: {row: (status, why)}} of the table."""
    found, section = {}, None
    for line in (COMPAT / "expected.txt").read_text().splitlines():
        if line.startswith("["):
            section = found.setdefault(line.strip("[]"), {})
        elif line and not line.startswith("#"):
            row, status, why = re.split(r"  +", line, maxsplit=2)
            assert row not in section, row
            section[row] = (status, why)
    return found


def page(found):
    """The page from {title: {row: cell}}."""
    parts = [INTRO]
    wanted = expected()
    for section, heading in SECTIONS.items():
        columns = [c for c in COLUMNS if c.section == section]
        rows = dict.fromkeys(r for c in columns for r in found[c.title])
        rows = sorted(rows, key=lambda r: (list(dict.fromkeys(owner(x) for x in rows)).index(owner(r))))
        note = NOTES.get(section, "")
        parts.append(f"\n## {heading}\n\n{note}" + ("\n" if note else "") + "| | " + " | ".join(c.title for c in columns) + " |\n" + "|---" * (len(columns) + 1) + "|\n")
        for row in rows:
            cells = [found[c.title].get(row, NOT_THERE) for c in columns]
            parts.append(f"| `{row}` | " + " | ".join(cells) + " |\n")
        reasons = {}
        for row, (status, why) in wanted[section].items():
            reasons.setdefault((status, why), []).append(row)
        parts.append("\nNot `ok`, and why:\n\n" if reasons else "")
        parts += [f"- {status}, {why}: {', '.join(f'`{r}`' for r in names)}\n" for (status, why), names in reasons.items()]
    return "".join(parts)


def owner(row):
    return row.split(".")[0]


def read_page():
    """{title: {row: cell}} of the page as it is."""
    found, titles = {}, []
    for line in PAGE.read_text().splitlines():
        if not line.startswith("|") or line.startswith("|---"):
            continue
        first, *cells = (c.strip() for c in line.strip("|").split("|"))
        if not first:
            titles = cells
            found.update({t: {} for t in titles})
        else:
            assert len(cells) == len(titles) and all(cells), f"an empty cell: {line}"
            for title, cell in zip(titles, cells):
                found[title][first.strip("`")] = cell
    return found


def environment(service, column, tools, home, own):
    """What a column's programs see: as on a user's machine, address and key and nothing else of ours."""
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("E2B_", "ABX_", "SANDBOX_", "PYTHON"))}
    ours = {
        "E2B_VOLUME_API_URL": service.origin,
        "ABX_SANDBOX_API_KEY": service.key,
        "ABX_SANDBOX_BASE_URL": service.origin,
        "ABX_SANDBOX_DOMAIN": f"localhost:{service.port}",
        "NODE_COMPILE_CACHE": str(home / "node-cache"),
        "HOME": str(home),
        "PYTHONDONTWRITEBYTECODE": "1",
        "NO_COLOR": "1",
    }
    if column.path:
        ours["PYTHONPATH"] = str(own) if column.path == OWN else column.path.format(tools=tools)
    return {**keep, **service.client_env(), **ours}
