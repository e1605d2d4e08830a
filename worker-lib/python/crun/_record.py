# SPDX-License-Identifier: MIT
"""Error files, which the launcher's report quotes: crun.record."""
import functools
import json
import os
import time
import traceback
from typing import Any, Callable, Optional, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])


def write_error_file(error: BaseException) -> None:
    """Writes TORCHELASTIC_ERROR_FILE as torch.distributed.elastic does. Without the variable,
    or where it cannot be written, nothing happens: the error itself must be seen."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not path:
        return
    stack = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    content = {"message": {"message": f"{type(error).__name__}: {error}",
                           "extraInfo": {"py_callstack": stack,
                                         "timestamp": str(int(time.time()))}}}
    try:
        with open(path, "w") as file:
            json.dump(content, file)
    except OSError:
        pass


class _Recording:
    def __call__(self, function: _Function) -> _Function:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)
        return wrapper  # type: ignore[return-value]

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Optional[BaseException], trace: Any) -> None:
        if isinstance(error, Exception):  # not SystemExit or KeyboardInterrupt
            write_error_file(error)


def record(function: Optional[Callable[..., Any]] = None) -> Any:
    """Records the exception that ends a function, or a with block, in the error file.

        @crun.record
        def main(): ...

        with crun.record():
            ...

    It needs no torch and writes what torch.distributed.elastic's decorator writes.
    """
    return _Recording() if function is None else _Recording()(function)
