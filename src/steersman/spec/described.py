"""JSON Schema in which the text below a field is its description.

It is read from the source when a schema is asked for. pydantic can do so itself
(`use_attribute_docstrings`), but does it for every class whenever one is imported, so that every
command would pay for what few ask for.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

if TYPE_CHECKING:
    from collections.abc import Iterator


class Described(GenerateJsonSchema):
    """Adds to every field of a model what is written below it.

    >>> from steersman.spec.reward import Reward
    >>> schema = Reward.model_json_schema(schema_generator=Described)
    >>> schema["properties"]["window_s"]["description"]
    'How long after the decision outcomes count, in seconds, up to a year.'
    """

    def model_schema(self, schema: Any) -> dict[str, Any]:
        """Return the schema of a model; called by pydantic.

        Args:
            schema: pydantic's own of the model.
        """
        found = super().model_schema(schema)
        model = schema["cls"]
        for name, text in meanings(model).items():
            found["properties"][model.model_fields[name].alias or name]["description"] = text
        return found


def meanings(model: type[BaseModel]) -> dict[str, str]:
    """Return what is written below the fields of a model, by their names in Python.

    Args:
        model: whose source is there.

    Raises:
        OSError: its source is not there.

    >>> from steersman.spec.reward import Reward
    >>> sorted(set(Reward.model_fields) - set(meanings(Reward)))
    []
    """
    classes = [one for one in reversed(model.__mro__) if issubclass(one, BaseModel)]
    return {
        name: text for one in classes if one is not BaseModel for name, text in _below_fields(one)
    }


def _below_fields(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    (defined,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(defined, ast.ClassDef)  # noqa: S101 (what else is the source of a class)
    for field, below in pairwise(defined.body):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                yield name, inspect.cleandoc(text)
