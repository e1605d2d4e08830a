# SPDX-License-Identifier: MIT
"""
The first code of Python processes below `crun as-torchrun`: see ../crun/as_torchrun.py. The
folder stays in PYTHONPATH, so that the processes that this one starts have it, too.
"""
import os
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))


def load_hidden():
    """The sitecustomize that this one hides. Without one, `site` expects the ImportError."""
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != FOLDER]
    sys.path_importer_cache.pop(FOLDER, None)
    sys.modules.pop("sitecustomize", None)
    import sitecustomize  # noqa: F401


def install():
    sys.path.insert(0, os.path.dirname(FOLDER))
    try:
        from crun import as_torchrun
        as_torchrun.install()
    finally:
        sys.path.remove(os.path.dirname(FOLDER))


install()
load_hidden()
