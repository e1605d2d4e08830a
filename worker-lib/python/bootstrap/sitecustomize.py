# SPDX-License-Identifier: MIT
"""
The first code of a Python worker: the interpreter's own `site` imports it, before the program.

crun puts this folder in front of PYTHONPATH. This module takes all of crun's settings out of
the process and imports the sitecustomize that was hidden by it, if there is one. Then
 - in a worker, it installs what follows the program (watch, stacks), and ends;
 - in a template, it imports modules and waits. It ends in forks only, which are workers.
Either way the interpreter goes on and runs the program as if nothing had been here.

A module `_crun` stands for this folder and ../crun: `from _crun import watch`. Its `settings`
are the variables that were taken out, its `take_settings` takes them out again in a fork.
Each follower may have: prepare(), called once in a template that has
imported its modules, and start(), called in each worker.

This file must be readable by any Python 3: in one before 3.9 only the traces are undone.
"""
import os
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
VARIABLES = ("CRUN_BOOTSTRAP", "CRUN_STACKS", "CRUN_NOTE_MODULES", "CRUN_TEMPLATE_FD",
             "CRUN_TEMPLATE_MODULES", "CRUN_TEMPLATE_PARENT", "CRUN_TEMPLATE_LIMIT",
             "CRUN_TEMPLATE_LEFT_OUT", "CRUN_TEMPLATE_CHECKED", "CRUN_EMPTY_PYTHONPATH")
FOLLOWERS = ("stacks", "watch", "jax_cluster", "tf_config")


def take_settings():
    """Removes crun's variables from os.environ and returns them."""
    first, _, rest = os.environ.get("PYTHONPATH", "").partition(os.pathsep)
    if first == FOLDER and (rest or "CRUN_EMPTY_PYTHONPATH" in os.environ):
        os.environ["PYTHONPATH"] = rest
    elif first == FOLDER:
        del os.environ["PYTHONPATH"]
    return {name: os.environ.pop(name) for name in VARIABLES if name in os.environ}


def complain(doing_what):
    """One line for an error of crun's own code; the program runs nevertheless."""
    error = sys.exc_info()[1]
    try:
        os.write(2, ("crun: cannot %s: %s: %s\n" % (doing_what, type(error).__name__, error))
                 .encode(errors="replace"))
    except OSError:
        pass


def make_package(settings):
    package = type(sys)("_crun")
    package.argv, package.folder = list(sys.argv), os.getcwd()  # a program may change both
    package.__path__ = [FOLDER, os.path.join(os.path.dirname(FOLDER), "crun")]
    package.settings = settings
    package.take_settings = take_settings
    sys.modules["_crun"] = package
    return package


def call_followers(step):
    """Calls prepare or start of each follower that is installed."""
    for name in FOLLOWERS:
        try:
            __import__("_crun." + name)
            getattr(sys.modules["_crun." + name], step, lambda: None)()
        except ModuleNotFoundError as error:
            if error.name != "_crun." + name:
                complain("follow the program (%s)" % name)
        except Exception:
            complain("follow the program (%s)" % name)


def note_modules(package):
    """
    The program's modules are noted when it ends, or before by package.note(), which watch.py
    calls after the first step.
    """
    import atexit
    pid = os.getpid()

    def note(step):
        try:
            if os.getpid() == pid:
                from _crun import notes
                getattr(notes, step)()
        except Exception:
            complain("note the modules of the program")

    package.note = lambda: note("note")
    atexit.register(note, "note_at_exit")


def start_worker(package):
    call_followers("start")
    if package.settings.get("CRUN_NOTE_MODULES"):
        try:
            note_modules(package)
        except Exception:
            complain("note the modules of the program")


def run_template(package, import_hidden):
    """Returns in a worker. A template must never run the program, whatever fails."""
    try:
        package.first_modules = set(sys.modules)
        if "CRUN_TEMPLATE_CHECKED" not in package.settings:
            from _crun import command
            command.execute_workers_command()
        from _crun import template
        template.run(import_hidden, lambda: call_followers("prepare"))
    except BaseException:
        complain("start programs warm")
        os._exit(1)


def remove_from_path():
    if FOLDER in sys.path:
        sys.path.remove(FOLDER)
    sys.path_importer_cache.pop(FOLDER, None)
    sys.path_importer_cache.pop(os.path.join(os.path.dirname(FOLDER), "crun"), None)


class Hidden:
    """The sitecustomize that is hidden by this one."""

    def __init__(self):
        self.error = None

    def load(self):
        sys.modules.pop("sitecustomize", None)
        try:
            import sitecustomize  # noqa: F401
        except BaseException as error:
            self.error = error

    def raise_error(self):
        """
        If there is no such module, `site` expects this ImportError: it removes this module
        from sys.modules then, and says nothing.
        """
        if self.error is not None:
            raise self.error


def prepare(hidden):
    settings = take_settings()
    remove_from_path()
    is_template = "CRUN_TEMPLATE_FD" in settings
    if not is_template:
        hidden.load()
    if sys.version_info >= (3, 9) and settings:
        package = make_package(settings)
        if is_template:
            run_template(package, hidden.load)
        start_worker(package)
        remove_from_path()
    elif is_template:
        os.write(2, b"warm starts need Python 3.9 or newer\n")
        os._exit(1)


def main():
    hidden = Hidden()
    is_template = "CRUN_TEMPLATE_FD" in os.environ
    try:
        prepare(hidden)
    except BaseException:
        if not is_template:
            raise
        complain("start programs warm")
        os._exit(1)  # `site` would report the error and let the program run
    hidden.raise_error()


main()
