"""Our readers of .env files and of config.toml against python-dotenv and CPython's tomllib."""

import json
import random
import struct
import subprocess
import tomllib

import pytest

SEED = 20261130

# Prints what python-dotenv reads from each of a JSON list of texts: a list of [key, value] each.
DOTENV_PEER = """
import io, json, sys
from dotenv.main import DotEnv
from dotenv.parser import parse_stream
texts = json.load(sys.stdin)
raw = [[[b.key, b.value] for b in parse_stream(io.StringIO(t, newline="")) if b.key is not None] for t in texts]
expanded = [dict(DotEnv(None, stream=io.StringIO(t, newline=""), interpolate=True).dict()) for t in texts]
json.dump([raw, expanded], sys.stdout)
"""

DOTENV_CASES = [
    "A=1\nB = two words  \nexport C=3\n export\tD=4",
    "A='single \\' quote'\nB=\"double \\\" \\n \\t \\\\ \\q\"\n",
    "A=\"over\ntwo lines\" # comment\nB='three\n\nlines'\n",
    "A=b#c\nB=b #c\nC=\t# none\nD=#x\nE=\"x\"#y\nF='x' # y\n",
    "# comment\n  # another\nA\nB=\n=x\nC D=1\n'quoted key'=v\n'' = 1\n",
    "A=\"not closed\nB=2\nC='no\nD=4",
    'A="ends with backslash\\"\nB="x"\n',
    'A="ends with backslash\\"\nB=2\n',
    "A='b\\'\n",
    "A='b\\\\'\nB=\"c\\\\\"\n",
    "A=\r\nB=1\r\nC=2\rD=3\n",
    "A=${HOME_OF_TEST}/x\nB=${A}${NOPE}${NOPE:-default}\nC=${A:-no}\nD=$A\nE=${A:x}\nF='${A}'\nG=${A\n",
    "A=1\nA=2\nB=${A}\nA=3\n",
    "A\nB=${A:-unset}\n",
    "\ufeffA=1\nB=2",
    "export=1\nexport A\nexportB=2\nexport  =3",
    "A=\x0bx\x0c\nB\x0b=\x1f1\n",
    'A="a" b\nC=1\n',
]

PIECES = ["A", "B", "KEY", "=", "=", "=", "'", '"', "\\", "\\n", "#", " #", " ", "\t", "\n", "\n", "\r\n", "\r", "export ",
          "${A}", "${B:-x}", "${", "}", "value", "é", "$", ":-", "\x0b"]  # fmt: skip


def ask(build_dir, mode, texts, env=None):
    """The answers of config_tool: a list of (path, name, value) triples each, or None where it refused."""
    data = b"".join(struct.pack(">I", len(t)) + t for t in (x.encode() for x in texts))
    out = subprocess.run(
        [build_dir / "tests/tools/config_tool", mode], input=data, stdout=subprocess.PIPE, check=True, timeout=120, env=env
    ).stdout.decode()
    lines, answers = iter(out.splitlines()), []
    for line in lines:
        word, _, rest = line.partition(" ")
        if word == "error":
            answers.append(None)
            continue
        rows = [next(lines).split(" ") for _ in range(int(rest))]
        answers.append([(bytes.fromhex(p).decode(), bytes.fromhex(n).decode(), v) for p, n, v in rows])
    assert len(answers) == len(texts)
    return answers


def test_dotenv(build_dir, tools_dir):
    draw = random.Random(SEED)
    texts = DOTENV_CASES + ["".join(draw.choices(PIECES, k=draw.randrange(1, 24))) for _ in range(20000)]
    env = {"HOME_OF_TEST": "/home/of/test"}
    peer = subprocess.run(
        [tools_dir / "agent-sandbox-client-0.4.0a6/bin/python", "-c", DOTENV_PEER],
        input=json.dumps(texts).encode(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, timeout=300, env=env,
    )  # fmt: skip
    raw, expanded = json.loads(peer.stdout)

    def text_of(value):
        return None if value == "-" else bytes.fromhex(value).decode()

    for text, theirs, ours in zip(texts, raw, ask(build_dir, "dotenv", texts, env), strict=True):
        assert [[n, text_of(v)] for _, n, v in ours] == theirs, text
    for text, theirs, ours in zip(texts, expanded, ask(build_dir, "dotenv-expand", texts, env), strict=True):
        assert {n: text_of(v) for _, n, v in ours} == theirs, text


TOML_CASES = [
    'a = 1\n[transport]\nsandbox_domain = "x" # c\nhttp2=false\nhttp_timeout = 1.5\n',
    "a = '''\none\\\ntwo'''\nb = \"\"\"\\\n   folded \\\n   text\"\"\"\nc = 'raw\\n'\n",
    'a = "\\u00e9\\U0001F600\\t\\"\\\\"\n',
    'a = """quotes "" inside"""""\nb = \'\'\'x\'\'\'\'\'\n',
    "a = 0x1F\nb = 0o17\nc = 0b11\nd = 1_000\ne = -0\nf = +7\ng=9223372036854775807\nh=-9223372036854775808\n",
    "a = 1e3\nb = -1.5E-3\nc = 6.02_2e+23\nd = inf\ne = -nan\n",
    "a = ['x', \"y\",\n # comment\n 'z',\n]\nb = []\n",
    '[a]\n[a.b]\n[a."c d"]\nx=1\n"y.z"=2\n[e . f]\ng . h = true\n',
    "[a.b]\nx=1\n[a]\ny=2\n",
    # refused by both
    "a=1\na=2\n", "[a]\n[a]\n", "a=1\n[a]\n", "[a.b]\n[a]\nb=1\n", "a.b=1\n[a]\n", "[a.b]\n[a]\nb.c=1\n", "a=\n", "=1\n",
    "a\n", "a=1 b=2\n", "a='x\n", 'a="\\x"\n', "a=01\n", "a=1__0\n", "a=_1\n", "a=1.\n", "a=.5\n", "a=1e\n", "a=tru\n",
    "[a\n", "[]\n", "a='\x01'\n", "# \x01\n", "a=1\rb=2\n", "a=['x' 'y']\n", "a=[,]\n", "a=['x',,]\n", "a=\"\\ud800\"\n",
    "a=99999999999999999999999\n", "a=0x\n", "a='''x''''''\n", "a=1\n[b]x=1\n", 'a=["x"', "a.=1\n", "é=1\n",
    "a=1\na.b=2\n", "[[a]]\n[a]\n",
]  # fmt: skip

TOML_PIECES = ["a", "b", "a", "=", "=", " = ", ".", "[", "]", "[a]\n", "[a.b]\n", "[b]\n", "\n", "\n", "\r\n", "#x", " ", '"', "'", '"""',
               "'''", "\\", "\\n", "\\u00e9", "1", "0", "_", "-", "+", "e", "true", "false", "0x", "1.5", "'v'", '"w"', ",", "['x']", "é"]  # fmt: skip


def flatten(table, path=""):
    """What config_tool says about a table of tomllib, sorted; "unsupported" where ours leaves something out on purpose."""
    rows = []
    for name, value in table.items():
        if any(ord(c) < 32 or ord(c) == 127 for c in name):
            raise ValueError("unsupported")
        if isinstance(value, dict):
            rows += flatten(value, f"{path}\x1f{name}" if path else name)
        elif isinstance(value, bool):
            rows.append((path, name, "b", "true" if value else "false"))
        elif isinstance(value, (int, float)):
            rows.append((path, name, "i" if isinstance(value, int) else "f", value))
        elif isinstance(value, str):
            rows.append((path, name, "s", value))
        elif isinstance(value, list) and all(isinstance(x, str) for x in value):
            # Ours leaves no comma in front of an item when all before are empty.
            joined = ""
            for item in value:
                joined += ("," if joined else "") + item
            rows.append((path, name, "a", joined))
        else:
            raise ValueError("unsupported")
    return rows


def unfold(rows):
    values = []
    for path, name, v in rows:
        text = bytes.fromhex(v[1:]).decode()
        values.append((path, name, v[0], int(text) if v[0] == "i" else float(text) if v[0] == "f" else text))
    return values


def same(a, b):
    return sorted(map(repr, a)) == sorted(map(repr, b))


def test_toml(build_dir):
    draw = random.Random(SEED)
    texts = TOML_CASES + ["".join(draw.choices(TOML_PIECES, k=draw.randrange(1, 20))) for _ in range(60000)]
    accepted = 0
    for text, ours in zip(texts, ask(build_dir, "toml", texts), strict=True):
        try:
            theirs = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError):
            assert ours is None, text
            continue
        try:
            rows = flatten(theirs)
        except ValueError:
            assert ours is None, text
            continue
        if ours is None:
            # Inline tables, and integers beyond 64 bits, are valid there.
            assert "{" in text or any(isinstance(r[3], int) and abs(r[3]) >= 2**63 for r in rows), text
            continue
        accepted += 1
        assert same(unfold(ours), rows), text
    assert accepted > 500


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = 1\nb = 2026-01-02\n", "line 2: '2026-01-02' is neither string nor bool nor number (dates are not supported)"),
        ("a = {b = 1}", "line 1: inline tables ({...}) are not supported"),
        ("\n\n[[a]]", "line 3: arrays of tables ([[...]]) are not supported"),
        ("a = [1]", "line 1: an array of anything but strings is not supported"),
    ],
)
def test_toml_says_what_it_leaves_out(build_dir, text, message):
    data = struct.pack(">I", len(text)) + text.encode()
    out = subprocess.run([build_dir / "tests/tools/config_tool", "toml"], input=data, stdout=subprocess.PIPE, check=True)
    assert out.stdout.decode() == f"error {message}\n"
