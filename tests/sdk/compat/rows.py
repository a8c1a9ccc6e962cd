"""Runs one row of docs/compatibility.md after the other and prints what became of each, one JSON object per line.

A row's name says what it calls: `files.write` a method, `files.write(metadata=)` one of its parameters, `files.read
(bytes)` a way to use it. A row whose method or parameter the client does not have is `n/a`. The last line tells
`uncovered`: public methods of the client that no row calls. A call that does not come back within DEADLINE seconds
ends the process with a stack trace, and the row is named by its absence.
"""

import asyncio
import faulthandler
import inspect
import json
import re
import traceback

DEADLINE = 120
STATUS = re.compile(r"\b([45]\d\d)\b")


async def value_of(result):
    """What a method of either kind of client returned."""
    return await result if inspect.isawaitable(result) else result


class Rows:
    def __init__(self):
        self.functions = {}
        self.local = set()

    def __call__(self, *names):
        def add(function):
            for name in names:
                assert name not in self.functions, name
                self.functions[name] = function
            return function

        return add

    def without_wire(self, *names):
        """Public methods that ask no server."""
        self.local.update(names)


def method_of(name):
    return re.match(r"[\w.]+", name).group()


def is_there(name, classes):
    """Does the client have what the row needs?"""
    owner, method = method_of(name).rsplit(".", 1)
    function = getattr(classes.get(owner), method, None)
    if function is None:
        return False
    parameter = re.search(r"\((\w+)=\)", name)
    return not parameter or parameter.group(1) in inspect.signature(function).parameters


def told_by(error, package):
    """{"error": class, "status"} of an exception of the client's own; anything else is the test's failure. The
    status is HTTP's, or the client's own code of a call that it refuses itself."""
    own = type(error).__module__.split(".")[0] == package
    found = STATUS.search(str(error))
    code = getattr(error, "code", None)
    if own and "not available on this server" in str(error):
        return {"error": type(error).__name__, "status": 501}
    if own and isinstance(code, str) and re.fullmatch(r"E\d{4}", code):
        return {"error": type(error).__name__, "status": code}
    status = getattr(error, "http_status", None) or (found and int(found.group(1)))
    if own and status:
        return {"error": type(error).__name__, "status": status}
    lines = traceback.format_exception(error)
    return {"failed": f"{type(error).__name__}: {error}"[:500], "where": "".join(lines)[-1500:]}


def public(cls):
    return {n for n, v in inspect.getmembers(cls) if not n.startswith("_") and callable(v)}


async def run(rows, classes, package, context, only=None):
    """Runs all rows (or those of the list `only`) in the order of their definition; a function of several rows once."""
    results = {}
    for name, function in rows.functions.items():
        if only and name not in only:
            continue
        told = {"na": True} if not is_there(name, classes) else results.get(function)
        if told is None:
            faulthandler.dump_traceback_later(DEADLINE, exit=True)
            try:
                await function(context)
                told = {"ok": True}
            except (Exception, asyncio.CancelledError) as error:
                told = told_by(error, package)
            faulthandler.cancel_dump_traceback_later()
            results[function] = told
        print(json.dumps({"row": name, **told}), flush=True)
    covered = {method_of(name) for name in rows.functions} | rows.local
    every = {f"{owner}.{method}" for owner, cls in classes.items() for method in public(cls)}
    print(json.dumps({"uncovered": sorted(every - covered)}), flush=True)
