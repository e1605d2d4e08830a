# SPDX-License-Identifier: MIT
"""
The command and the environment that this process was started with, and the way to a template.

crun starts a template as [python, -c, REFUSAL, python, -u, train.py, ...]: a program that says
that the bootstrap is missing, and ends. Only the bootstrap leads from there to the command of
the workers, which it executes in the same process. So an interpreter that ignores the bootstrap
or cannot load it never runs the program.
"""
from __future__ import annotations

import os
import sys
from typing import NoReturn

Environment = dict[bytes, bytes]

CHECKED = b"CRUN_TEMPLATE_CHECKED"  # the bootstrap can be loaded; its value is REFUSAL


def original() -> list[str]:
    if sys.version_info >= (3, 10):
        return sys.orig_argv
    with open("/proc/self/cmdline", "rb") as file:
        return [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]


def environment_of(entries: list[bytes]) -> Environment:
    """Of each name the first entry counts, as for os.environ."""
    env: Environment = {}
    for entry in entries:
        name, equals, value = entry.partition(b"=")
        if equals:
            env.setdefault(name, value)
    return env


def initial_environment() -> Environment:
    """As it was before the interpreter's start changed it, as it does for LC_CTYPE."""
    with open("/proc/self/environ", "rb") as file:
        return environment_of(file.read().split(b"\0"))


def execute_workers_command() -> NoReturn:
    _, _, refusal, *command = original()
    env = initial_environment()
    env[CHECKED] = os.fsencode(refusal)
    os.execve(command[0], command, env)


def execute_again(env: Environment) -> NoReturn:
    """The template begins anew, with the files of the bootstrap as they are now."""
    command = original()
    refusal = os.fsdecode(env.pop(CHECKED))
    os.execve(command[0], [command[0], "-c", refusal, *command], env)
