# SPDX-License-Identifier: MIT
"""The line of the program, and not of a library, that a frame comes from."""
import os
import sys
from types import CodeType, FrameType
from typing import Dict, Optional, Tuple

from . import page

_LIBRARY_FOLDERS = tuple(os.path.join(os.path.dirname(os.path.abspath(path)), "")
                         for path in (os.__file__, __file__))
_LIBRARY_PARTS = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")

# by the id of a code object, because to hash one takes long: the object, to keep it, and
# what `where` says of each of its instructions; None: no code of the program
_codes: Dict[int, Tuple[CodeType, Optional[Dict[int, bytes]]]] = {}


def _is_library(code: CodeType) -> bool:
    path = code.co_filename
    return (path.startswith(_LIBRARY_FOLDERS) or path.startswith("<frozen ") or
            any(part in path for part in _LIBRARY_PARTS))


def _shown_path(path: str) -> str:
    program = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    for file in (os.path.abspath(program), os.path.abspath("file")):
        folder = os.path.join(os.path.dirname(file), "")
        if path.startswith(folder):
            return path[len(folder):]
    return path if path.startswith("<") else os.path.basename(path)


def _describe(frame: FrameType) -> bytes:
    text = f"{_shown_path(frame.f_code.co_filename)}:{frame.f_lineno}"
    if frame.f_code.co_name != "<module>":
        text += f" ({frame.f_code.co_name})"
    return page.where_field(text)


def innermost(frame: Optional[FrameType]) -> bytes:
    """The innermost line of the program in or outside of this frame: "train.py:91 (main)"."""
    outermost = frame
    while frame is not None:
        code = frame.f_code
        known = _codes.get(id(code))
        if known is None:
            known = _codes[id(code)] = (code, None if _is_library(code) else {})
        if known[1] is not None:
            line = known[1].get(frame.f_lasti)
            if line is None:
                line = known[1][frame.f_lasti] = _describe(frame)
            return line
        outermost = frame
        frame = frame.f_back
    return _describe(outermost) if outermost is not None else page.NOWHERE
