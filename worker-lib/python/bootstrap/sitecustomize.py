# SPDX-License-Identifier: MIT
"""The first code of crun's Python workers: the `site` module imports it before the program.

crun puts this folder in front of PYTHONPATH. This module removes its traces and imports the
sitecustomize that Python would have imported without it, if there is one.
"""
import os
import sys

_OWN_VARIABLES = ("CRUN_BOOTSTRAP", "CRUN_NOTE_MODULES", "CRUN_STACKS")


def _restore_environment():
    folder, _, rest = os.environ.get("PYTHONPATH", "").partition(os.pathsep)
    if os.path.dirname(os.path.abspath(__file__)) == os.path.abspath(folder):
        if rest:
            os.environ["PYTHONPATH"] = rest
        else:
            del os.environ["PYTHONPATH"]
        if folder in sys.path:
            sys.path.remove(folder)
    for name in _OWN_VARIABLES:
        os.environ.pop(name, None)


def _import_hidden_sitecustomize():
    own = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # noqa: F401 (the other one: this folder is not on the path now)
    except ImportError as e:
        if e.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = own  # the import of this module looks for it


_restore_environment()
_import_hidden_sitecustomize()
