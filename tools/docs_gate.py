"""The documentation gate: what a package exports is documented.

Every name in the ``__all__`` of a package of ``steersman`` has a docstring. Functions, classes and
public methods have ``Args:``, ``Returns:`` and ``Raises:`` where they apply (a method may say what
it returns in its first line alone). Functions of ``stats`` and ``ope`` and classes of ``policies``
that estimate something have ``Source:``.

A package that needs an extra which is not installed is left out and named; where ``CI`` is
``true``, it fails the gate.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import os
import pkgutil
import sys
import textwrap
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING

import steersman
from steersman.errors import DataError
from steersman.spec.base import Declared
from steersman.spec.schema import meanings

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCED_FUNCTIONS = frozenset({"steersman.stats", "steersman.ope"})
SOURCED_CLASSES = frozenset({"steersman.policies"})
# They are not estimators, so they have no source.
UNSOURCED = frozenset({"Fixed", "Rules"})


def main() -> int:
    """Print every gap and how many names are covered; return the exit status."""
    packages, absent = _packages()
    for place, why in absent.items():
        print(f"DOCS {place} is left out: {why}")
    names = [(package, name) for package in packages for name in getattr(package, "__all__", ())]
    gaps = {f"{package.__name__}.{name}": list(_gaps(package, name)) for package, name in names}
    for place, missing in gaps.items():
        for gap in missing:
            print(f"DOCS {place}: {gap}")
    covered = sum(not missing for missing in gaps.values())
    print(f"docs: {covered} of {len(gaps)} public names are covered")
    missed = bool(absent) and os.environ.get("CI") == "true"
    return 0 if covered == len(gaps) and not missed else 1


def _packages() -> tuple[list[ModuleType], dict[str, str]]:
    """Return the packages, and by name the missing library of those that cannot be imported."""
    packages, absent = [steersman], {}
    # A failed import was already reported for its package.
    walk = pkgutil.walk_packages(steersman.__path__, "steersman.", onerror=lambda _: None)
    for found in walk:
        if found.ispkg:
            try:
                packages.append(importlib.import_module(found.name))
            except DataError as missing:
                absent[found.name] = str(missing)
    return packages, absent


def _gaps(package: ModuleType, name: str) -> Iterator[str]:
    thing = getattr(package, name, None)
    if thing is None:
        yield "is in __all__ but does not exist"
    elif inspect.isclass(thing) and issubclass(thing, BaseException):
        yield from _missing(thing.__doc__, "a docstring", thing.__doc__)
    elif inspect.isclass(thing):
        yield from _class_gaps(thing, sourced=package.__name__ in SOURCED_CLASSES)
    elif isinstance(thing, FunctionType):
        yield from _function_gaps(thing)
        if package.__name__ in SOURCED_FUNCTIONS:
            yield from _missing("Source:" in (thing.__doc__ or ""), "Source:", thing.__doc__)


def _missing(there: object, what: str, docstring: str | None) -> Iterator[str]:
    # Without a docstring one complaint is enough.
    if not there and (docstring or what == "a docstring"):
        yield f"has no {what}"


def _class_gaps(thing: type, *, sourced: bool) -> Iterator[str]:
    docstring = vars(thing).get("__doc__") or ""
    if not docstring or docstring.startswith(f"{thing.__name__}("):
        yield "has no docstring"
        return
    methods = {
        name: value
        for name, value in vars(thing).items()
        if not name.startswith("_") and _is_own_method(value, thing)
    }
    if _takes_arguments(thing) and not any(word in docstring for word in ("Args:", "Attributes:")):
        yield "has no Args:"
    if sourced and _needs_source(thing) and "Source:" not in docstring:
        yield "has no Source:"
    for name, value in methods.items():
        for gap in _function_gaps(_function(value), method=True):
            # A method that fulfils a documented protocol need not repeat it.
            if not _documented_above(thing, name):
                yield f".{name} {gap}"


def _is_own_method(value: object, owner: type) -> bool:
    function = _function(value)
    return isinstance(function, FunctionType) and function.__module__ == owner.__module__


def _function(value: object) -> object:
    return getattr(value, "__func__", value)


def _needs_source(thing: type) -> bool:
    if getattr(thing, "_is_protocol", False) or inspect.isabstract(thing):
        return False
    return hasattr(thing, "decide") and thing.__name__ not in UNSOURCED


def _documented_above(thing: type, name: str) -> bool:
    own = _function(vars(thing)[name]).__doc__
    return own is None and any(
        getattr(_function(vars(parent).get(name)), "__doc__", None) for parent in thing.__mro__[1:]
    )


def _takes_arguments(thing: type) -> bool:
    if getattr(thing, "_is_protocol", False):
        return False
    if issubclass(thing, Declared):
        return not thing.model_fields.keys() <= meanings(thing).keys()
    if dataclasses.is_dataclass(thing):
        return bool(dataclasses.fields(thing))
    initialiser = vars(thing).get("__init__")
    return isinstance(initialiser, FunctionType) and bool(_arguments(initialiser))


def _arguments(function: FunctionType) -> list[str]:
    names = inspect.signature(function).parameters
    return [name for name in names if name not in {"self", "cls"}]


def _function_gaps(function: object, *, method: bool = False) -> Iterator[str]:
    if not isinstance(function, FunctionType):
        return
    docstring = function.__doc__
    yield from _missing(docstring, "a docstring", docstring)
    if docstring is None:
        return
    returned = function.__annotations__.get("return")
    if _arguments(function) and "Args:" not in docstring:
        yield "has no Args:"
    if returned not in {None, "None", "NoReturn"} and not _says_return(docstring, method=method):
        yield "has no Returns:"
    if _raises(function) and "Raises:" not in docstring:
        yield "has no Raises:"


def _says_return(docstring: str, *, method: bool) -> bool:
    if method and docstring.startswith(("Return ", "Yield ")):
        return True
    return any(word in docstring for word in ("Returns:", "Yields:"))


def _raises(function: FunctionType) -> bool:
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return any(isinstance(node, ast.Raise) and node.exc is not None for node in ast.walk(tree))


if __name__ == "__main__":
    sys.exit(main())
