"""The requests and the catalogue are what the documents say."""

import json

import pytest

from steersman.errors import DataError
from steersman_systems.assistant.requests import WHEEL, load_catalogue


def test_the_catalogue_holds_1311_requests_and_729_tools(world):
    requests, tools = world.catalogue.requests, world.catalogue.tools
    assert (len(requests), len(tools)) == (1311, 729)
    assert len({request.id for request in requests}) == 1311
    assert len({tool.name for tool in tools}) == 729


def test_every_right_answer_is_a_tool_of_the_catalogue(world):
    for request in world.catalogue.requests:
        (name,) = json.loads(request.answer)
        assert world.catalogue.tools[request.tool].name == name


def test_a_tool_text_holds_name_description_parameters_and_allowed_values(world):
    (tool,) = [tool for tool in world.catalogue.tools if tool.name == "ChaFod"]
    assert tool.text.startswith("cha fod. Changes the selection of food")
    assert "TheFod The name of the food" in tool.text
    assert "PIZZA BURGER SALAD" in tool.text


def test_requests_hold_only_what_the_user_said(world):
    assert all(request.text.strip() for request in world.catalogue.requests)


def test_without_the_wheel_and_without_fetching_the_error_says_what_to_do(tmp_path):
    with pytest.raises(DataError, match="steersman data fetch SYSTEM"):
        load_catalogue(tmp_path, fetch=False)


def test_a_damaged_wheel_is_refused(world, tmp_path):
    content = WHEEL.path().read_bytes()
    damaged = WHEEL.path(tmp_path)
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(content[:1000] + b"\x00" + content[1001:])
    with pytest.raises(DataError, match="delete it and fetch it again"):
        load_catalogue(tmp_path)
