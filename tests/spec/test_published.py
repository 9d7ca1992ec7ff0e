"""What is published about the format is what is checked, and what the policies take."""

import inspect
import json
import math
import re
from pathlib import Path

import pytest

from steersman.points.algorithms import BUILT_IN, policy_class
from steersman.points.policy_factory import build
from steersman.policies import offered
from steersman.spec import actions
from steersman.spec.loader import loads
from steersman.spec.parts import BooleanPart
from steersman.spec.policy import parameters_of
from steersman.spec.reference import refreshed
from steersman.spec.schema import SCHEMA_FILE, json_schema, main, published

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "decision-points.md"
POLICIES = {name: parameters_of(name) for name in BUILT_IN}


def test_the_shipped_schema_is_up_to_date():
    assert SCHEMA_FILE.read_text(encoding="utf-8") == published(), "python -m steersman.spec.schema"
    assert main(["--check"]) == 0
    assert json.loads(published()) == json_schema()


def test_the_schema_is_a_copy():
    json_schema()["properties"].clear()
    assert json_schema()["properties"]


def test_every_field_is_described_and_nothing_else_is_allowed():
    schema = json_schema()
    for part in (schema, *schema["$defs"].values()):
        assert part["additionalProperties"] is False
        for name, field in part["properties"].items():
            assert field.get("description"), f"{part['title']}.{name}"


def test_the_reference_page_is_up_to_date():
    page = PAGE.read_text(encoding="utf-8")
    assert refreshed(page) == page, f"python -m steersman.spec.reference {PAGE.name}"


def test_the_reference_page_has_every_part():
    described = re.findall(r"<!-- fields: (\w+) -->", PAGE.read_text(encoding="utf-8"))
    assert sorted(described) == sorted(["DecisionPoint", *json_schema()["$defs"]])


def test_links_of_the_reference_page_lead_somewhere():
    page = PAGE.read_text(encoding="utf-8")
    headings = {
        title.lower().replace(" ", "-") for title in re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", page)) <= headings


def test_declarations_on_the_reference_page_load():
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    for block in blocks:
        assert loads(block).format == 1


MIXED = actions.Mixed(kind="mixed", parts={"on": BooleanPart(type="boolean")})


def test_columns_of_sequences_are_those_that_policies_keep():
    assert actions.STANDING == offered.STANDING


SEQUENCE = actions.Sequence(kind="sequence", max_steps=2, features=("score",))
REQUIRED = {"fixed": {"action": "a"}, "rules": {"otherwise": "a"}}


@pytest.mark.parametrize("algorithm", sorted(POLICIES))
def test_declared_defaults_are_those_of_the_policies(algorithm):
    declared = POLICIES[algorithm](algorithm=algorithm, **REQUIRED.get(algorithm, {})).model_dump()
    taken = inspect.signature(policy_class(algorithm)).parameters
    for name, value in declared.items():
        if name in {"algorithm", "key", "contextual", "otherwise", *REQUIRED.get(algorithm, ())}:
            continue
        if name == "rules":
            continue
        default = taken[name].default
        assert (value or None if default is None else value) == default, name


@pytest.mark.slow
@pytest.mark.parametrize("end", ["minimum", "exclusiveMinimum", "maximum"])
@pytest.mark.parametrize("algorithm", sorted(POLICIES))
def test_what_may_be_declared_can_be_built(algorithm, end):
    model = POLICIES[algorithm]
    for name, field in model.model_json_schema()["properties"].items():
        if end not in field:
            continue
        value = math.nextafter(field[end], math.inf) if end.startswith("ex") else field[end]
        policy = model(algorithm=algorithm, **REQUIRED.get(algorithm, {}), **{name: value})
        if algorithm == "factored_ts":
            build(policy, MIXED.names, dim=2, floor=0.0, mixed=MIXED)
        elif algorithm.startswith("sequence_"):
            build(policy, (), dim=0, floor=0.0, sequence=SEQUENCE)
        else:
            build(policy, ["a", "b"], dim=2, floor=0.0)
