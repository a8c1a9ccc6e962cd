"""Our JSON scanner and writer against CPython's json: same texts accepted, same strings read and written."""

import json
import random
import struct
import subprocess

import pytest

SEED = 20261130
DEPTH_MAX = 64


@pytest.fixture(scope="module")
def ask(build_dir):
    """Runs one batch of (mode, bytes) through json_tool; the answers as (status, bytes)."""

    def run(records):
        data = b"".join(mode + struct.pack(">I", len(text)) + text for mode, text in records)
        out = subprocess.run(
            [build_dir / "tests/tools/json_tool"], input=data, stdout=subprocess.PIPE, check=True, timeout=120
        ).stdout
        answers, at = [], 0
        while at < len(out):
            status, size = struct.unpack_from(">BI", out, at)
            answers.append((status, out[at + 5 : at + 5 + size]))
            at += 5 + size
        assert len(answers) == len(records)
        return answers

    return run


class Refused(Exception):
    pass


def refuse_constant(name):
    raise Refused(name)


def depth_of(value):
    """Levels of objects and lists."""
    deepest, level = 0, [(value, 0)]
    while level:
        value, depth = level.pop()
        if isinstance(value, (list, Pairs)):
            depth += 1
            deepest = max(deepest, depth)
            level += [(child, depth) for child in (value if isinstance(value, list) else value.children)]
    return deepest


class Pairs:
    """An object with all its keys, also those that come twice."""

    def __init__(self, pairs):
        self.children = [value for _, value in pairs]
        self.keys = [key for key, _ in pairs]


def strings_of(value):
    todo = [value]
    while todo:
        value = todo.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, Pairs):
            yield from value.keys
            todo += value.children
        elif isinstance(value, list):
            todo += value


def python_accepts(text):
    """CPython's opinion, with what we refuse on purpose: NaN and Infinity, NUL and lone surrogates, depth."""
    try:
        value = json.loads(
            text.decode("utf-8"),
            parse_constant=refuse_constant,
            parse_int=str,
            parse_float=str,
            object_pairs_hook=Pairs,
        )
    except (ValueError, Refused, RecursionError):
        return False
    if depth_of(value) > DEPTH_MAX:
        return False
    return not any(c == "\0" or "\ud800" <= c <= "\udfff" for s in strings_of(value) for c in s)


def make_string(rng):
    parts = []
    for _ in range(rng.randrange(6)):
        parts.append(
            rng.choice(
                ["a", " ", "\\n", "\\\"", "\\/", "\\u00e4", "\\uD83D\\uDE00", "\\ud83d", "\\u0000", "ä", "€", "😀", "\x7f", "\t", "\\x"]
                + ["abc", "0123456789"] * 4
            )
        )
    return '"' + "".join(parts) + '"'


def make_number(rng):
    return rng.choice(["", "-", "-", "+"][:2]) + rng.choice(["0", "1", "12", "01", "9" * 25, ""]) + rng.choice(
        ["", "", ".0", ".5e1", ".", "e9", "E-3", "e+", "e400"]
    )


def make_text(rng, depth=0):
    space = rng.choice(["", "", "", " ", "\n", "\t\r", "\v"] if rng.random() < 0.2 else [""])
    kind = rng.randrange(8 if depth < 5 else 5)
    if kind == 0:
        text = make_string(rng)
    elif kind == 1:
        text = make_number(rng)
    elif kind < 5:
        text = rng.choice(["true", "false", "null", "NaN", "Infinity", "-Infinity", "nul", "1", "2", '""', "[]", "{}"])
    elif kind == 5:
        text = "[" + ",".join(make_text(rng, depth + 1) for _ in range(rng.randrange(4))) + "]"
    else:
        text = "{" + ",".join(
            make_string(rng) + ":" + make_text(rng, depth + 1) for _ in range(rng.randrange(4))
        ) + "}"
    return space + text + space


def mutate(rng, text):
    """Some bytes changed, dropped or doubled."""
    data = bytearray(text)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(4)
        if kind == 0 and at < len(data):
            data[at] = rng.randrange(256)
        elif kind == 1 and at < len(data):
            del data[at]
        elif kind == 2:
            data[at:at] = rng.choice([b",", b'"', b"}", b"]", b"\\", b"0", b"\xc3", b"\xed\xa0\x80", b"\0"])
        else:
            data[at:at] = data[max(0, at - 3) : at]
    return bytes(data)


def test_same_texts_are_accepted(ask):
    rng = random.Random(SEED)
    texts = []
    for _ in range(15000):
        text = make_text(rng).encode("utf-8")
        texts += [text, mutate(rng, text)]
    for depth in range(60, 70):
        texts.append(b"[" * depth + b"]" * depth)
        texts.append(b'{"a":' * depth + b"1" + b"}" * depth)
    answers = ask([(b"S", text) for text in texts])
    wrong = [
        (text, status, error) for text, (status, error) in zip(texts, answers) if bool(status) != python_accepts(text)
    ]
    assert not wrong[:5]
    accepted = sum(status for status, _ in answers)
    assert 5000 < accepted < len(texts) - 5000, "the texts are no test: nearly all have the same fate"


def test_strings_are_written_as_python_reads_them(ask):
    rng = random.Random(SEED + 1)
    letters = ["a", "b", '"', "\\", "/", "\b", "\f", "\n", "\r", "\t", "\0", "\x1f", "\x7f", "ä", "€", "\uffff", "😀"]
    texts = ["".join(rng.choice(letters) for _ in range(rng.randrange(40))) for _ in range(5000)]
    answers = ask([(b"W", text.encode("utf-8")) for text in texts])
    for text, (_, out) in zip(texts, answers):
        assert json.loads(out.decode("utf-8")) == text


def test_bytes_that_are_no_text_are_written_as_json(ask):
    rng = random.Random(SEED + 2)
    texts = [bytes(rng.randrange(256) for _ in range(rng.randrange(20))) for _ in range(5000)]
    for text, (_, out) in zip(texts, ask([(b"W", text) for text in texts])):
        read = json.loads(out.decode("utf-8"))
        try:
            assert read == text.decode("utf-8")
        except UnicodeDecodeError:
            assert "\ufffd" in read


def test_strings_are_read_as_python_writes_them(ask):
    rng = random.Random(SEED + 3)
    points = [rng.choice([rng.randrange(1, 128), rng.randrange(1, 0xD800), rng.randrange(0xE000, 0x110000)]) for _ in range(50000)]
    texts = ["".join(map(chr, points[i : i + 10])) for i in range(0, len(points), 10)]
    for ascii_only in (True, False):
        inside = [json.dumps(text, ensure_ascii=ascii_only)[1:-1].encode("utf-8") for text in texts]
        for text, (_, out) in zip(texts, ask([(b"U", data) for data in inside])):
            assert out.decode("utf-8") == text
