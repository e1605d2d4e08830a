# SPDX-License-Identifier: MIT
"""
The first code of a Python worker that is neither watched nor warm, as ../bootstrap is of others.
It hides itself, and waits for an import of jax or tensorflow. Each worker pays for each line of it.
"""
import os
import sys

FOLDER = os.path.dirname(__file__)


class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name not in ("jax", "tensorflow"):
            return None
        sys.meta_path.remove(Finder)
        package = sys.modules["_crun"] = type(sys)("_crun")
        package.__path__ = [os.path.join(os.path.dirname(FOLDER), name) for name in ("bootstrap", "crun")]
        from _crun import jax_cluster, tf_config
        jax_cluster.start()
        tf_config.start()
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(name, None, None) if find else None
            if spec is not None:
                return spec
        return None


paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
if FOLDER in paths:
    paths.remove(FOLDER)
    if paths or os.environ.pop("CRUN_EMPTY_PYTHONPATH", None):
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    else:
        del os.environ["PYTHONPATH"]
    sys.path.remove(FOLDER)
    sys.path_importer_cache.pop(FOLDER, None)
    if sys.version_info >= (3, 9):
        sys.meta_path.insert(0, Finder)
    del sys.modules["sitecustomize"]
    import sitecustomize  # noqa: F401  the one that was hidden, or the error that `site` expects
