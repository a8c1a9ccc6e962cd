"""The file of ABX_FAULTS (src/base/fault.h): what the named points of a service's roles do from now on."""

import os

BYTES = 4096


class Faults:
    """Makes the file; `env` is what a Service gets."""

    def __init__(self, path):
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.env = {"ABX_FAULTS": str(path)}
        self.clear()

    def set(self, *lines):
        """Lines `POINT COUNT ACTION`."""
        text = "".join(f"{line}\n" for line in lines).encode()
        assert len(text) <= BYTES
        os.pwrite(self.fd, text.ljust(BYTES, b"\n"), 0)

    def clear(self):
        self.set()

    def left(self, point):
        """How often a point of the file will yet do something, as it stands there."""
        for line in os.pread(self.fd, BYTES, 0).decode().splitlines():
            name, _, rest = line.partition(" ")
            if name == point:
                return rest[0]
        raise KeyError(point)

    def close(self):
        os.close(self.fd)
