"""A child of clone(CLONE_VM | CLONE_VFORK) sleeps 0.8 s in its parent's memory, as one between vfork and exec."""

import ctypes
import os

b = bytearray(200 << 20)
libc = ctypes.CDLL(None)
CLONE_VM_VFORK = 0x100 | 0x4000 | 17
stack = ctypes.create_string_buffer(1 << 16)
usleep = ctypes.cast(libc.usleep, ctypes.c_void_p)
top = ctypes.c_void_p(ctypes.addressof(stack) + (1 << 16) - 64)
pid = libc.clone(usleep, top, CLONE_VM_VFORK, ctypes.c_void_p(800000))
os.waitpid(pid, 0)
