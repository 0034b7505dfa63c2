"""process_vm_readv refused by seccomp, as in many containers: nobody of the group pulls, and every result is right."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct

import numpy as np
import pytest

from collectives.testing import communicator, run_ranks

NUMBERS = {
    "x86_64": (310, 0xC000003E),
    "aarch64": (270, 0xC00000B7),
}  # of the system call, and what audit calls the machine
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM

pytestmark = pytest.mark.skipif(platform.machine() not in NUMBERS, reason="the system call's number is not known here")


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p)]


def refuse_readv() -> None:
    """From now on process_vm_readv fails with EPERM, in this thread and in those that it starts."""
    number, machine = NUMBERS[platform.machine()]
    load, jump_if_equal, give = 0x20, 0x15, 0x06  # of classic BPF: a word of seccomp_data, a comparison, the verdict
    code = b"".join(
        struct.pack("HBBI", *instruction)
        for instruction in [
            (load, 0, 0, 4),
            (jump_if_equal, 0, 3, machine),
            (load, 0, 0, 0),
            (jump_if_equal, 0, 1, number),
            (give, 0, 0, REFUSE),
            (give, 0, 0, ALLOW),
        ]
    )
    buffer = ctypes.create_string_buffer(code, len(code))
    program = Program(len(code) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in (
        (PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0),
    ):
        if libc.prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def read_myself() -> int:
    """What process_vm_readv of eight bytes of this process gives: 8, or minus the error."""
    here, there = ctypes.create_string_buffer(8), ctypes.create_string_buffer(8)
    local = (ctypes.c_size_t * 2)(ctypes.addressof(here), 8)
    remote = (ctypes.c_size_t * 2)(ctypes.addressof(there), 8)
    libc = ctypes.CDLL(None, use_errno=True)
    got = libc.process_vm_readv(os.getpid(), local, 1, remote, 1, 0)
    return got if got >= 0 else -ctypes.get_errno()


def large_calls(rank: int, world_size: int, refused: tuple[int, ...]) -> tuple[int, str]:
    if rank in refused:
        refuse_readv()
    comm = communicator()
    count = 1 << 18  # 1 MiB, where groups that may pull try it among their first twelve calls
    for call in range(16):
        mine = np.arange(count, dtype=np.float32) % 100 + rank + call
        out = np.empty_like(mine)
        comm.all_reduce(mine, out=out)
        want = world_size * (np.arange(count) % 100 + call) + sum(range(world_size))
        assert np.array_equal(out, want)
        everyone = np.empty(count * world_size, np.float32)
        comm.all_gather(everyone, mine)
        for q in range(world_size):
            assert np.array_equal(everyone[q * count : (q + 1) * count], mine - rank + q)
    return read_myself(), comm.describe()


@pytest.mark.parametrize("refused", [(0,), (1,), (0, 1, 2)], ids=["rank 0", "rank 1", "all"])
def test_a_refused_process_vm_readv_changes_no_result(refused: tuple[int, ...]) -> None:
    for rank, (read, text) in enumerate(run_ranks(large_calls, 3, refused, backend=None, timeout=60)):
        assert read == (-errno.EPERM if rank in refused else 8)  # the filter is really there
        assert "no pulling (the system does not let" in text, text


def test_where_it_is_allowed_groups_pull() -> None:
    for read, text in run_ranks(large_calls, 3, (), backend=None, timeout=60):
        assert read == 8
        assert "are staged or pulled" in text, text
