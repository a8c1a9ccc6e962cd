"""libabx for tests, through ctypes: the same calls and results as the C API (include/abx), nothing added.

    abx = Library(build_dir)
    with abx.client() as client:
        config = abx.config(api_url=..., api_key=...)
        call = client.call("abx_sandbox_create", config, None)
        call.wait()                      # raises abx's Error
"""

import ctypes
import os
from pathlib import Path

from cheaders import Headers
from waiting import BUSY_S

ROOT = Path(__file__).resolve().parents[2]


class Error(Exception):
    """A failed call: `code` and `reason` are names ("NOT_FOUND", "SANDBOX_GONE"), `message` is its text."""

    def __init__(self, library, error):
        self.code = library.code_name(error.code)
        self.reason = library.reason_name(error.reason)
        self.http_status = error.http_status
        self.error_code = error.error_code.decode()
        self.message = error.message.decode()
        super().__init__(f"{self.code} {self.reason} {self.http_status}: {self.message}")


def encode(value):
    return value.encode() if isinstance(value, str) else value


class Library:
    def __init__(self, build_dir):
        self.headers = Headers(ROOT / "include/abx")
        # ABX_LIBABX: a library of another build (script/test has one with sanitizers).
        self.c = ctypes.CDLL(os.environ.get("ABX_LIBABX") or str(Path(build_dir) / "src/libabx/libabx.so.0"))
        self.headers.bind(self.c)
        self.constants = self.headers.constants
        names = {v: k for k, v in self.constants.items() if v <= -1001 and v >= -1016}
        self._codes = {v: k.removeprefix("ABX_") for v, k in names.items()}
        self._reasons = {
            v: k.removeprefix("ABX_REASON_") for k, v in self.constants.items() if k.startswith("ABX_REASON_")
        }
        self._kept = []

    def code_name(self, code):
        return self._codes.get(code, str(code))

    def reason_name(self, reason):
        return self._reasons.get(reason, str(reason))

    def struct(self, name, **values):
        """Options: str is encoded, dicts become arrays of abx_pair (`envs` sets env_count too), lists of str argv."""
        made = self.headers.new(name)
        fields = dict(made._fields_)
        for field, value in values.items():
            if isinstance(value, dict):
                pairs = [self.headers.structs["abx_pair"](encode(k), encode(v)) for k, v in value.items()]
                array = (self.headers.structs["abx_pair"] * max(len(pairs), 1))(*pairs)
                setattr(made, field, array)
                count = next(f for f in (field[:-1] + "_count", field + "_count") if f in fields)
                setattr(made, count, len(pairs))
            elif isinstance(value, list):
                setattr(made, field, (ctypes.c_char_p * (len(value) + 1))(*map(encode, value)))
                made.argc = len(value)
            else:
                setattr(made, field, encode(value))
        return made

    def config(self, **values):
        """abx_config_load; free it with config_unref. Only from options: a test sets the environment itself."""
        config, error = ctypes.c_void_p(), self.headers.structs["abx_error"]()
        options = self.struct("abx_config_opts", **values)
        if self.c.abx_config_load(ctypes.byref(options), ctypes.byref(config), ctypes.byref(error)):
            raise Error(self, error)
        return config

    def sandbox(self, config, **parts):
        """abx_sandbox_new."""
        sandbox, error = ctypes.c_void_p(), self.headers.structs["abx_error"]()
        given = self.struct("abx_sandbox_parts", **parts)
        if self.c.abx_sandbox_new(config, ctypes.byref(given), ctypes.byref(sandbox), ctypes.byref(error)):
            raise Error(self, error)
        return sandbox

    def client(self):
        return Client(self)


class Client:
    def __init__(self, library):
        self.library, self.c = library, library.c
        self.handle, error = ctypes.c_void_p(), library.headers.structs["abx_error"]()
        if self.c.abx_client_new(None, ctypes.byref(self.handle), ctypes.byref(error)):
            raise Error(library, error)
        self.calls = []

    def call(self, function, *args):
        """Starts a call: str is encoded, structs go by reference."""
        sent = [ctypes.byref(a) if isinstance(a, ctypes.Structure) and not is_by_value(a) else encode(a) for a in args]
        made = Call(self, getattr(self.c, function)(self.handle, *sent), args)
        self.calls.append(made)
        return made

    def run(self, function, *args, timeout=BUSY_S):
        """call, wait, and the call."""
        return self.call(function, *args).wait(timeout)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for call in self.calls:
            call.free()
        self.c.abx_client_free(self.handle)


def is_by_value(struct):
    return type(struct).__name__ == "abx_process_ref"


class Call:
    def __init__(self, client, handle, args):
        assert handle, "out of memory"
        self.client, self.c, self.library = client, client.c, client.library
        self.handle, self.args = ctypes.c_void_p(handle), args  # args: what is borrowed lives as long

    def free(self):
        if self.handle:
            self.c.abx_call_free(self.handle)
        self.handle = None

    def cancel(self):
        self.c.abx_call_cancel(self.handle)

    def is_done(self):
        return bool(self.c.abx_call_is_done(self.handle))

    def error(self):
        error = self.c.abx_call_error(self.handle).contents
        return Error(self.library, error) if error.code else None

    def wait(self, timeout=BUSY_S):
        """Drives the client until the call is done; its events are left to `events`. Raises Error."""
        error = self.library.headers.structs["abx_error"]()
        if self.c.abx_call_wait(self.handle, int(timeout * 1000), ctypes.byref(error)):
            raise Error(self.library, error)
        return self

    def next(self, timeout=BUSY_S):
        """The next event (struct abx_event, pointers valid until the next one), None at the end; raises Error."""
        event = self.library.headers.structs["abx_event"]()
        while not self.c.abx_call_next(self.handle, ctypes.byref(event)):
            if self.is_done():
                error = self.error()
                if error:
                    raise error
                return None
            if self.c.abx_client_wait(self.client.handle, int(timeout * 1000)) < 0:
                raise InterruptedError
        return event

    def events(self, timeout=BUSY_S):
        while (event := self.next(timeout)) is not None:
            yield event

    def bool(self):
        return bool(self.c.abx_call_bool(self.handle))

    def bytes(self):
        size = ctypes.c_size_t()
        data = self.c.abx_call_bytes(self.handle, ctypes.byref(size))
        return ctypes.string_at(data, size.value)

    def items(self, function):
        """Array results: items("abx_call_entries")."""
        count = ctypes.c_size_t()
        array = getattr(self.c, function)(self.handle, ctypes.byref(count))
        return [array[i] for i in range(count.value)]

    def take_sandbox(self):
        return ctypes.c_void_p(self.c.abx_call_take_sandbox(self.handle))

    def command(self):
        """struct abx_command_result, with `stdout` and `stderr` as bytes."""
        result = self.library.headers.structs["abx_command_result"]()
        self.c.abx_call_command(self.handle, ctypes.byref(result))
        result.stdout = ctypes.string_at(result.out, result.out_size)
        result.stderr = ctypes.string_at(result.err, result.err_size)
        return result
