# SPDX-License-Identifier: MIT
"""With CRUN_AS_TORCHRUN=1, what starts torchrun starts crun, with the same arguments.

Many programs never look for a command `torchrun`: they run `python -m torch.distributed.run`,
or call its `main` or `run` in their own process, as `accelerate launch` and Lightning Fabric
do. Each of these ways ends here in an exec of crun. `install` is called at the start of a
Python process: by crun-launcher's .pth file if pip has installed it, and by ../shim, which
`crun as-torchrun` puts in front of PYTHONPATH.
"""
import os
import sys
from types import ModuleType
from typing import Any, List, NoReturn, Optional, Tuple

MODULE = "torch.distributed.run"
VARIABLE = "CRUN_AS_TORCHRUN"


def _die(error: BaseException) -> NoReturn:
    """Also while `site` runs, which would print a traceback."""
    os.write(2, f"{VARIABLE}: {error}\n".encode(errors="replace"))
    os._exit(1)


def _is_shim(folder: str) -> bool:
    """It is beside crun's other folders, and not always beside this file: a wheel has it elsewhere."""
    return os.path.basename(folder) == "shim" and os.path.isdir(os.path.join(folder, "../for_jax"))


def _forget_shim() -> None:
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    others = os.pathsep.join(folder for folder in folders if not _is_shim(folder))
    if others:
        os.environ["PYTHONPATH"] = others
    else:
        os.environ.pop("PYTHONPATH", None)


def _execute(arguments: List[str]) -> NoReturn:
    """The workers are programs like any other: they see nothing of this module."""
    path = os.environ.pop(VARIABLE)
    _forget_shim()
    os.environ.setdefault("PYTHON_EXEC", sys.executable)  # which torchrun takes for scripts
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        if path == "1":
            from crun.__main__ import find_launcher
            path = find_launcher()
        os.execv(path, [path, *arguments])
    except (OSError, SystemExit) as error:
        _die(error)


# -- the command of this process --------------------------------------------------------------


def _own_command() -> List[str]:
    if sys.version_info >= (3, 10):
        return sys.orig_argv
    with open("/proc/self/cmdline", "rb") as file:
        return [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]


def _program_of(command: List[str]) -> Tuple[str, List[str]]:
    """What an interpreter runs, and with which arguments: "-m NAME", "-c", or a file."""
    words = command[1:]
    while words:
        word = words.pop(0)
        if word == "--check-hash-based-pycs":
            words = words[1:]
        elif word == "-" or not word.startswith("-"):
            return word, words
        elif not word.startswith("--"):
            for place, letter in enumerate(word[1:], 2):
                if letter in "cmWX":
                    value = word[place:] or (words.pop(0) if words else "")
                    if letter in "cm":
                        return ("-m " + value if letter == "m" else "-c"), words
                    break
    return "", []


# -- torch.distributed.run in this process -------------------------------------------------------


def _flags_of(settings: Any, parser: Any) -> List[str]:
    """The command line that would be parsed into these settings."""
    flags: List[str] = []
    for action in parser._actions:
        value = getattr(settings, action.dest, None)
        if not action.option_strings or action.dest == "help":
            continue
        if value is None or value == action.default or str(value) == str(action.default):
            continue
        name = max(action.option_strings, key=len)
        flags.append(name if action.nargs == 0 else f"{name}={value}")
    return [*flags, "--", settings.training_script, *settings.training_script_args]


def _replace_entries(module: ModuleType) -> None:
    def main(args: Optional[List[str]] = None) -> NoReturn:
        _execute(sys.argv[1:] if args is None else list(args))

    def run(args: Any) -> NoReturn:
        # torch.distributed.launch passes on --local-rank, which torchrun has no flag for
        compat = [] if getattr(args, "use_env", True) else ["--launch-compat"]
        _execute([*compat, *_flags_of(args, module.get_args_parser())])  # type: ignore[attr-defined]

    module.main, module.run = main, run  # type: ignore[attr-defined]


class _Finder:
    """Has the other finders look for the module, and replaces its entries after its import."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        if name != MODULE:
            return None
        for finder in sys.meta_path:
            find = None if finder is _Finder else getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find else None
            if spec is None or spec.loader is None:
                continue
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                _replace_entries(module)

            spec.loader.exec_module = exec_module
            return spec
        return None


def install() -> None:
    if not os.environ.get(VARIABLE) or _Finder in sys.meta_path:
        return
    program, arguments = _program_of(_own_command())
    if program == "-m " + MODULE or os.path.basename(program) == "torchrun":
        _execute(arguments)
    sys.meta_path.insert(0, _Finder)  # type: ignore[arg-type]
