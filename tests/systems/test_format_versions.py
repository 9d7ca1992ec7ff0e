"""The version of a file's format is a number in every file that declares one."""

from typing import Literal

import pytest
from pydantic import ValidationError

from steersman.db.imports import mapping
from steersman.rollouts.pipeline import config
from steersman.spec.base import Declared
from steersman_systems.interrogator import gate, questions
from steersman_systems.rag_tuner import policy_config

_DECLARED = {
    f"{module.__name__}.{name}": found
    for module in (config, gate, mapping, policy_config, questions)
    for name, found in vars(module).items()
    if isinstance(found, type) and issubclass(found, Declared)
    if "format" in found.model_fields and found.model_fields["format"].annotation == Literal[1]
}


def test_every_module_has_one():
    assert len(_DECLARED) == 5


@pytest.mark.parametrize("name", _DECLARED)
@pytest.mark.parametrize(("value", "refused"), [(1, False), (True, True), (2, True)])
def test_true_is_no_version(name, value, refused):
    with pytest.raises(ValidationError) as raised:
        _DECLARED[name].model_validate({"format": value, "no such field": 0})
    assert (("format",) in {error["loc"] for error in raised.value.errors()}) is refused
