"""Prints, as JSON, the public face of the agent_sandbox that is installed: signatures, fields, members, ancestors.

Runs with our package and with the published one; tests/system/test_python_interface.py compares.
"""

import dataclasses
import enum
import inspect
import json
import sys
import typing

import agent_sandbox
import agent_sandbox.code_interpreter as code_interpreter
import agent_sandbox.exceptions as exceptions


def parameters(function):
    """[[name, kind, default]] without the object or class."""
    found = []
    for p in inspect.signature(function).parameters.values():
        if p.name in ("self", "cls") and not found:
            continue
        default = None if p.default is p.empty else repr(p.default)
        found.append([p.name, p.kind.name, default])
    return found


def member(cls, name):
    static = inspect.getattr_static(cls, name)
    if isinstance(static, property):
        return "property"
    bound = getattr(static, "_bound", None)  # ours: the form for objects
    value = bound if bound is not None else getattr(cls, name)
    return parameters(value) if callable(value) else repr(value)


def describe(value):
    if isinstance(value, str):
        return {"value": value}
    if not inspect.isclass(value):
        return {"parameters": parameters(value)} if inspect.isfunction(value) else {"kind": "other"}
    told = {"ancestors": [c.__name__ for c in value.__mro__[1:] if c.__module__.startswith("agent_sandbox")]}
    if issubclass(value, enum.Enum):
        return {"members": {m.name: m.value for m in value}}
    if typing.is_typeddict(value):
        return {"required": sorted(value.__required_keys__), "optional": sorted(value.__optional_keys__)}
    if dataclasses.is_dataclass(value):
        told["fields"] = [f.name for f in dataclasses.fields(value)]
    if issubclass(value, BaseException) or issubclass(value, (str, bytes)):
        return told
    told["methods"] = {}
    for name in dir(value):
        if not name.startswith("_"):
            try:
                told["methods"][name] = member(value, name)
            except (TypeError, ValueError):
                told["methods"][name] = "?"
    return told


def main():
    told = {}
    for home, module in (("", agent_sandbox), ("code_interpreter.", code_interpreter), ("exceptions.", exceptions)):
        names = getattr(module, "__all__", None) or [name for name in dir(module) if not name.startswith("_")]
        for name in names:
            told[home + name] = describe(getattr(module, name))
    for side in ("Sandbox", "AsyncSandbox"):
        for part in ("files", "commands", "pty", "git"):
            hint = inspect.getattr_static(getattr(agent_sandbox, side), part).fget
            module = sys.modules[hint.__module__]
            hints = {**vars(module), **extra(module, part)}
            cls = typing.get_type_hints(hint, hints)["return"]
            told[f"{side}.{part}"] = describe(cls)
    json.dump(told, sys.stdout)


def extra(module, part):
    """Git of the module's side, which it imports only when it is used."""
    if part != "git" or hasattr(module, "Git"):
        return {}
    return {"Git": __import__(module.__name__.rsplit(".", 1)[0] + ".git", fromlist=["Git"]).Git}


main()
