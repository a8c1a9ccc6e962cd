"""Has one thread of a process wait for ever, as one would that runs into a lock nobody lets go of: ptrace puts a system call without
end (a futex that nobody wakes) in the place of the one that it waits in, and lets go of it."""

import ctypes
import os
import time
from pathlib import Path

from waiting import BUSY_S

NAMES = ("r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss fs_base gs_base ds es fs gs").split()


class Registers(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in NAMES]


libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.restype = ctypes.c_long
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
PEEKDATA, CONT, GETREGS, SETREGS, DETACH, SEIZE, INTERRUPT = 2, 7, 12, 13, 17, 0x4206, 0x4207
WALL = 0x40000000
SYS_FUTEX, FUTEX_WAIT_PRIVATE = 202, 128
NO_CALL = 2**64 - 1


def ptrace(request, tid, address=None, data=None):
    ctypes.set_errno(0)
    result = libc.ptrace(request, tid, address, data)
    if ctypes.get_errno():
        raise OSError(ctypes.get_errno(), f"ptrace {request:#x} of {tid}")
    return result


def thread_of(pid, name):
    """Number of the thread called `name`."""
    (tid,) = [int(t.name) for t in Path(f"/proc/{pid}/task").iterdir() if (t / "comm").read_text().strip() == name]
    return tid


def hang_thread(pid, name):
    """On x86-64, and as root."""
    assert os.uname().machine == "x86_64"
    tid, registers = thread_of(pid, name), Registers()
    ptrace(SEIZE, tid)
    deadline = time.monotonic() + BUSY_S
    while True:
        ptrace(INTERRUPT, tid)
        os.waitpid(tid, WALL)
        ptrace(GETREGS, tid, None, ctypes.addressof(registers))
        if registers.orig_rax != NO_CALL:
            break
        assert time.monotonic() < deadline, "it is in no system call"
        ptrace(CONT, tid)
        time.sleep(0.01)
    word = registers.rsp & ~7
    registers.rdx = ptrace(PEEKDATA, tid, word) & 0xFFFFFFFF
    registers.rdi, registers.rsi, registers.r10 = word, FUTEX_WAIT_PRIVATE, 0
    registers.rip -= 2  # once more the instruction that the call was made with
    registers.rax, registers.orig_rax = SYS_FUTEX, NO_CALL
    ptrace(SETREGS, tid, None, ctypes.addressof(registers))
    ptrace(DETACH, tid)
