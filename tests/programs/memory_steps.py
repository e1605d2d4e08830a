#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
memory_steps.py FOLDER STEPS [EPOCH:RANK:STEP...]

A worker whose "training" is a hash chain: the state of a rank after a step depends on all steps
before. It saves each step in memory, waits until all ranks have (files in FOLDER), and prints with
which step it begins and with which state it ends. In the epochs named, that rank kills itself
before it saves that step.

If the copies of a step are not safe in time, all ranks go on without saving until they are.
"""
import ctypes
import hashlib
import os
import pathlib
import signal
import sys
import time

BYTES = 300000
RANK, WORLD, EPOCH = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "CRUN_EPOCH"))


class Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("rank", ctypes.c_uint), ("text", ctypes.c_char * 512)]


class Config(ctypes.Structure):
    _fields_ = [("path", ctypes.c_char_p), ("epoch", ctypes.c_uint64), ("rank", ctypes.c_uint32),
                ("local_rank", ctypes.c_uint32), ("local_world", ctypes.c_uint32),
                ("world", ctypes.c_uint32), ("kind", ctypes.c_char_p), ("command", ctypes.c_char_p)]


class Piece(ctypes.Structure):
    _fields_ = [("data", ctypes.c_char_p), ("bytes", ctypes.c_uint64)]


class Save(ctypes.Structure):
    _fields_ = [("step", ctypes.c_uint64), ("own_bytes", ctypes.c_uint64),
                ("shared_bytes", ctypes.c_uint64), ("files_step", ctypes.c_uint64),
                ("has_shared", ctypes.c_uint32)]


class Part(ctypes.Structure):
    _fields_ = [("data", ctypes.POINTER(ctypes.c_uint8)), ("bytes", ctypes.c_uint64),
                ("map", ctypes.c_void_p), ("map_bytes", ctypes.c_uint64)]


class Set(ctypes.Structure):
    _fields_ = [("epoch", ctypes.c_uint64), ("step", ctypes.c_uint64), ("world", ctypes.c_uint32)]


class Memory:
    def __init__(self, command):
        root = pathlib.Path(__file__).resolve().parents[2]
        build = os.environ.get("BUILD", "build")
        self.lib = ctypes.CDLL(root / build / "lib" / "libcrun-worker.so.0")
        self.lib.crun_memory_open.restype = ctypes.c_void_p
        self.lib.crun_memory_restores.restype = ctypes.POINTER(Set)
        self.lib.crun_memory_is_kept.restype = ctypes.c_bool
        self.error = Error()
        config = Config(os.environ["CRUN_MEMORY"].encode(), EPOCH, RANK,
                        int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"]), WORLD,
                        b"steps 1", command)
        self.handle = ctypes.c_void_p(self.lib.crun_memory_open(ctypes.byref(config),
                                                               ctypes.byref(self.error)))
        self.check(0 if self.handle else -1)

    def check(self, rc):
        if rc < 0:
            sys.exit(self.error.text.decode())

    def restore(self):
        """(step, state), or (0, None)."""
        found = self.lib.crun_memory_restores(self.handle).contents
        step, state = 0, None
        if found.world:
            part = Part()
            self.check(self.lib.crun_memory_read(self.handle, RANK, False, ctypes.byref(part),
                                                 ctypes.byref(self.error)))
            step, state = found.step, ctypes.string_at(part.data, part.bytes)
            self.lib.crun_memory_part_free(ctypes.byref(part))
        self.lib.crun_memory_restored(self.handle, ctypes.c_uint64(step))
        return step, state

    def save(self, step, state):
        save = Save(step=step, own_bytes=len(state))
        piece = Piece(state, len(state))
        error = ctypes.byref(self.error)
        self.check(self.lib.crun_memory_begin(self.handle, ctypes.byref(save), error))
        self.check(self.lib.crun_memory_write(self.handle, False, ctypes.byref(piece),
                                              ctypes.c_size_t(1), error))
        self.lib.crun_memory_commit(self.handle)

    def is_kept(self, seconds):
        until = time.monotonic() + seconds
        while not self.lib.crun_memory_is_kept(self.handle) and time.monotonic() < until:
            time.sleep(0.001)
        return self.lib.crun_memory_is_kept(self.handle)


def state_after(step, state):
    seed = hashlib.sha256(state or b"rank %d" % RANK).digest() + step.to_bytes(8, "little")
    return hashlib.shake_256(seed).digest(BYTES)


def agree(folder, step, kept):
    """Each rank tells the others, in files, whether its copies are safe: all of them?"""
    mine = folder / f"{EPOCH}-{step}-{RANK}"
    mine.with_suffix(".new").write_text("kept" if kept else "not yet")
    mine.with_suffix(".new").rename(mine)
    files = [folder / f"{EPOCH}-{step}-{r}" for r in range(WORLD)]
    while not all(f.exists() for f in files):
        time.sleep(0.001)
    return all(f.read_text() == "kept" for f in files)


def main():
    folder, steps = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    kills = [tuple(map(int, word.split(":"))) for word in sys.argv[3:]]
    command = b"sh\0-c\0echo $CRUN_MEMORY_STEP > $1/flushed-$(hostname)\0sh\0" + bytes(folder) + b"\0"
    memory = Memory(command)
    step, state = memory.restore()
    print(f"begins epoch={EPOCH} rank={RANK} step={step}", flush=True)
    kept = True
    while step < steps:
        step += 1
        state = state_after(step, state)
        if (EPOCH, RANK, step) in kills:
            os.kill(os.getpid(), signal.SIGKILL)
        if kept:
            memory.save(step, state)
        kept = agree(folder, step, memory.is_kept(0.1 if (folder / "hasty").exists() else 60))
        if (folder / f"wait-at-{step}").exists():  # for whoever ends this node
            print(f"waits rank={RANK} step={step}", flush=True)
            while (folder / f"wait-at-{step}").exists():
                time.sleep(0.005)
    print(f"ends rank={RANK} {hashlib.sha256(state).hexdigest()}", flush=True)
    if (folder / "fail").exists():
        sys.exit(7)


main()
