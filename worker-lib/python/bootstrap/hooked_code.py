# SPDX-License-Identifier: MIT
"""Replaces the code of a function by the same code between two calls.

The function stays the same object, and its frames, lines and names stay as they were: the new
code is compiled from the function's source. If the compiler does not make the function's own
code of that source, or the hook would change more than the body, LookupError is raised.
"""
from types import CodeType, FunctionType, ModuleType
from typing import Any, List, NamedTuple, Optional, Set

NAME = "_crun_watch"  # of the module with the hooks, among the globals of a hooked function


class Hook(NamedTuple):
    """A function, the call before its body and the one after it, if any."""
    function: str
    before: str
    after: Optional[str] = None


class Source:
    """The lines of a module, to compile its functions from."""

    def __init__(self, module: ModuleType) -> None:
        import tokenize
        with tokenize.open(module.__file__ or "") as file:
            self.lines = file.readlines()

    def compile(self, function: FunctionType, hook: Optional[Hook]) -> CodeType:
        """The code of the function; with the hook's calls around its body, if given."""
        import ast
        import inspect
        old = function.__code__
        first = old.co_firstlineno
        text = "".join(inspect.getblock(self.lines[first - 1:]))
        classes = function.__qualname__.split(".")[:-1]
        head = "".join(f"{' ' * depth}class {name}:\n" for depth, name in enumerate(classes))
        tree = ast.parse(head + text)
        ast.increment_lineno(tree, first - 1 - len(classes))
        imports = [ast.alias(name) for name in _imported_names(function)]
        if imports:
            tree.body.insert(0, ast.fix_missing_locations(ast.Import(imports)))
        if hook:
            _put_calls_around(_find_definition(tree, old.co_name), hook)
        code = compile(tree, old.co_filename, "exec", dont_inherit=True,
                       flags=old.co_flags & _compiler_flags())
        return _find_code(code, old)


def _imported_names(function: FunctionType) -> List[str]:
    """The names that its module has most likely imported. The compiler makes other code for
    calls of their attributes."""
    found = []
    for name in function.__code__.co_names:
        value = function.__globals__.get(name)
        home = getattr(value, "__module__", None)
        if type(value) is ModuleType or home not in (None, function.__module__):
            found.append(name)
    return found


def _compiler_flags() -> int:
    import __future__
    flags = 0
    for name in __future__.all_feature_names:
        flags |= getattr(__future__, name).compiler_flag
    return flags & ~0x10  # "nested", whose flag means another thing in code


def _find_definition(tree: Any, name: str) -> Any:
    import ast
    return next(node for node in ast.walk(tree)
                if isinstance(node, ast.FunctionDef) and node.name == name)


def _find_code(code: CodeType, like: CodeType) -> CodeType:
    for const in code.co_consts:
        if isinstance(const, CodeType):
            if (const.co_name, const.co_firstlineno) == (like.co_name, like.co_firstlineno):
                return const
            try:
                return _find_code(const, like)
            except LookupError:
                pass
    raise LookupError(like.co_name)


def _parse_call(text: str) -> Any:
    import ast
    return ast.parse(f"{NAME}.{text.format(NAME)}").body[0]


def _arguments(hook: Hook) -> Set[str]:
    """The names that the hook's calls take from the function."""
    import ast
    nodes = [node for text in (hook.before, hook.after) if text
             for node in ast.walk(_parse_call(text))]
    return {node.id for node in nodes if isinstance(node, ast.Name)} - {NAME}


def _parameters(code: CodeType) -> Set[str]:
    return set(code.co_varnames[:code.co_argcount + code.co_kwonlyargcount])


def _put_calls_around(definition: Any, hook: Hook) -> None:
    import ast
    body = definition.body
    doc = body[:1] if ast.get_docstring(definition, clean=False) is not None else []
    rest = body[len(doc):]

    def call(text: str) -> Any:
        statement = _parse_call(text)
        for node in ast.walk(statement):
            if hasattr(node, "lineno"):
                ast.copy_location(node, rest[0])
        return statement

    if hook.after:
        guarded = ast.Try(body=rest, handlers=[], orelse=[], finalbody=[call(hook.after)])
        rest = [ast.copy_location(guarded, rest[0])]
    definition.body = [*doc, call(hook.before), *rest]


def _same(a: CodeType, b: CodeType, *names: str) -> bool:
    return all(getattr(a, name) == getattr(b, name) for name in names)


def _find_function(module: ModuleType, name: str) -> FunctionType:
    import inspect
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part)
    function: FunctionType = inspect.unwrap(found)
    return function


def hook_function(module: ModuleType, source: Source, hook: Hook, hooks: ModuleType) -> None:
    function = _find_function(module, hook.function)
    if function.__globals__ is not module.__dict__:
        raise LookupError(f"{hook.function} is defined elsewhere")
    old = function.__code__
    if not _arguments(hook) <= _parameters(old):
        raise LookupError(f"{hook.function} has other parameters")
    if not _same(old, source.compile(function, None), "co_code", "co_names", "co_varnames"):
        raise LookupError(f"{hook.function} is not what its source says")
    new = source.compile(function, hook)
    if not _same(old, new, "co_varnames", "co_freevars", "co_cellvars", "co_argcount",
                 "co_posonlyargcount", "co_kwonlyargcount", "co_flags", "co_firstlineno"):
        raise LookupError(f"{hook.function} would change")
    if hasattr(old, "co_qualname"):
        new = new.replace(co_qualname=old.co_qualname)
    module.__dict__[NAME] = hooks
    function.__code__ = new
