"""A file system of network kind: one empty folder over FUSE, mounted on argv[1] and served until stdin ends.

A program of its own, run by tests inside a sandbox's mount namespace; standard library only. See linux/fuse.h.
"""

import ctypes
import os
import struct
import sys
import threading

LOOKUP, FORGET, GETATTR, OPEN, STATFS, RELEASE, INIT, OPENDIR, READDIR, RELEASEDIR, FORGETS = 1, 2, 3, 14, 17, 18, 26, 27, 28, 29, 42
ENOENT, ENOSYS, MNT_DETACH = 2, 38, 2
FOLDER = struct.pack("<6Q10I", 1, 0, 0, 0, 0, 0, 0, 0, 0, 0o40755, 2, 0, 0, 0, 512, 0)
ANSWERS = {
    INIT: struct.pack("<IIIIHHIIHH8I", 7, 31, 0, 0, 1, 1, 65536, 0, 0, 0, *[0] * 8)[:64],
    GETATTR: struct.pack("<QII", 0, 0, 0) + FOLDER,
    OPENDIR: struct.pack("<QII", 1, 0, 0),
    STATFS: struct.pack("<5Q10I", 0, 0, 0, 0, 0, 512, 255, 512, *[0] * 7),
    READDIR: b"",
    RELEASEDIR: b"",
}


def serve(fd):
    while True:
        try:
            request = os.read(fd, 1 << 17)
        except OSError:
            return  # unmounted
        _, op, unique = struct.unpack_from("<IIQ", request)
        if op in (FORGET, FORGETS):
            continue
        out = ANSWERS.get(op)
        error = 0 if out is not None else -ENOENT if op == LOOKUP else -ENOSYS
        out = out or b""
        os.write(fd, struct.pack("<IiQ", 16 + len(out), error, unique) + out)


def main(path):
    fd = os.open("/dev/fuse", os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    os.makedirs(path, exist_ok=True)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    if libc.mount(b"test", path.encode(), b"fuse", 0, options) != 0:
        sys.exit(os.strerror(ctypes.get_errno()))
    threading.Thread(target=serve, args=(fd,), daemon=True).start()
    print("mounted", flush=True)
    sys.stdin.read()
    libc.umount2(path.encode(), MNT_DETACH)


main(sys.argv[1])
