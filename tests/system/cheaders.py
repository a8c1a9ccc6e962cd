"""Makes a ctypes binding out of the headers in include/abx, so that it cannot differ from them.

Understands what those headers consist of: enums, structs of scalars, pointers and arrays, opaque handles, callback
types, functions marked ABX_EXPORT, #define with a number, and the _INIT macros of options structs.
"""

import ctypes
import re
from pathlib import Path

SCALARS = {
    "int": ctypes.c_int,
    "unsigned": ctypes.c_uint,
    "double": ctypes.c_double,
    "size_t": ctypes.c_size_t,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "uint8_t": ctypes.c_uint8,
    "uint16_t": ctypes.c_uint16,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
}


class Headers:
    """`constants`, `structs`, `callbacks` and `inits` by name; bind() gives the functions their types."""

    def __init__(self, folder):
        text = "\n".join(p.read_text() for p in sorted(Path(folder).glob("*.h")))
        text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S).replace("\\\n", " ")
        text = re.sub(r"#ifdef __cplusplus.*?#endif", "", text, flags=re.S)
        self.constants, self.structs, self.callbacks, self.inits, self.functions = {}, {}, {}, {}, {}
        for name, value in re.findall(r"^#define (\w+) (.+)$", text, flags=re.M):
            if value.strip().startswith("{"):
                self.inits[name] = [v.strip() for v in value.strip()[1:-1].split(",")]
            elif re.fullmatch(r"[\s()\d<ux-]+", value):
                self.constants[name] = eval(re.sub(r"(\d)u", r"\1", value), {})  # our own header's number
        text = re.sub(r"^\s*#.*$", "", text, flags=re.M)
        for body in re.findall(r"enum\s*\w*\s*{([^}]*)}", text):
            self._enum(body)
        bodies = dict(re.findall(r"struct (\w+)\s*{([^}]*)}\s*;", text))
        for name in bodies:
            self.structs[name] = type(name, (ctypes.Structure,), {})
        for ret, name, args in re.findall(r"typedef ([\w ]+\*?) ?\(\*(\w+)\)\(([^)]*)\);", text):
            self.callbacks[name] = ctypes.CFUNCTYPE(self._type(ret), *self._arguments(args))
        for name, body in bodies.items():
            self.structs[name]._fields_ = [f for line in body.split(";") if line.strip() for f in self._fields(line)]
        for ret, name, args in re.findall(r"ABX_EXPORT\s+([\w\s]+?[\s*]+)(\w+)\(([^;]*)\);", text):
            self.functions[name] = (self._type(ret), self._arguments(args))

    def _enum(self, body):
        value = -1
        for item in body.split(","):
            if item.strip():
                name, _, given = (x.strip() for x in item.partition("="))
                value = int(given) if given else value + 1
                self.constants[name] = value

    def _type(self, text, is_field=False):
        """The ctypes type of "const struct abx_pair *" and the like."""
        stars = text.count("*")
        words = [w for w in text.replace("*", " ").split() if w != "const"]
        if words[:1] == ["enum"]:
            base = ctypes.c_int
        elif words[:1] == ["struct"]:
            base = self.structs.get(words[1])
        elif words == ["char"]:
            # A pointer that is not const is memory to be freed: keep it as it is.
            base, stars = (ctypes.c_char_p if "const" in text else ctypes.c_void_p), max(stars - 1, 0)
        elif words == ["void"]:
            base, stars = (ctypes.c_void_p, stars - 1) if stars else (None, 0)
        elif words[0] in self.callbacks:
            base = self.callbacks[words[0]]
        else:
            base = SCALARS.get(words[0])
            if base is None:  # an opaque handle
                base, stars = ctypes.c_void_p, stars - 1
        for _ in range(stars):
            base = ctypes.POINTER(base)
        return base

    def _arguments(self, text):
        out = []
        for argument in text.split(","):
            argument = argument.strip()
            if argument and argument != "void":
                out.append(self._type(re.sub(r"\b\w+$", "", argument)))
        return out

    def _fields(self, line):
        first, *others = (d.strip() for d in line.split(","))
        base = re.match(r"((?:const |enum |struct )*\w+)", first)[1]
        for declarator in [first[len(base) :], *others]:
            match = re.match(r"([\s*]*(?:const)?[\s*]*)(\w+)(?:\[(\w+)\])?$", declarator.strip())
            if match[3] and base == "char":
                size = self.constants.get(match[3]) or int(match[3])
                yield match[2], ctypes.c_char * size
            else:
                yield match[2], self._type(base + match[1], True)

    def bind(self, library):
        for name, (ret, args) in self.functions.items():
            try:
                function = getattr(library, name)
            except AttributeError:
                continue  # of a layer that is not built yet; who calls it gets ctypes' error
            function.restype, function.argtypes = ret, args

    def new(self, name, **values):
        """A struct with its _INIT defaults and these values on top."""
        made = self.structs[name]()
        init = self.inits.get(name.upper() + "_INIT")
        for (field, _), value in zip(made._fields_, init or []):
            if value.startswith("sizeof"):
                setattr(made, field, ctypes.sizeof(made))
            elif value not in ("NULL", "0"):
                setattr(made, field, self.constants[value] if value in self.constants else int(value))
        if not init and made._fields_[0][0] == "size":
            made.size = ctypes.sizeof(made)
        for field, value in values.items():
            setattr(made, field, value)
        return made
