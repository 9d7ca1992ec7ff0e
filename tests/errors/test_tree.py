"""The tree in the docstring is the tree of the classes."""

import builtins
import re

from steersman import errors

LINE = re.compile(r"(?P<indent>[ │]*)[├└]── (?P<name>\w+)(?: \((?P<builtin>\w+)\))?(?: |$)")


def drawn():
    """Yield (class, parent, built-in base or None) of every line of the drawing."""
    above = ["SteersmanError"]
    for line in errors.__doc__.splitlines():
        found = LINE.match(line.removeprefix("    "))
        if found:
            depth = 1 + len(found["indent"]) // 4
            above[depth:] = [found["name"]]
            yield found["name"], above[depth - 1], found["builtin"]


def test_every_error_is_drawn_under_its_parent():
    tree = list(drawn())
    assert sorted(name for name, _, _ in tree) == sorted(set(errors.__all__) - {"SteersmanError"})
    for name, parent, builtin in tree:
        bases = getattr(errors, name).__bases__
        assert getattr(errors, parent) in bases, name
        assert (builtin is None) == (len(bases) == 1), name
        assert builtin is None or getattr(builtins, builtin) in bases, name


def test_what_is_exported_is_all_there_is():
    classes = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    assert classes == set(errors.__all__)
    assert errors.__all__ == sorted(errors.__all__)
