"""Invalid rows are rejected with number and reason; the others are imported."""

from __future__ import annotations

import json

import pytest

WRONG = {
    "unknown action": ({"chosen": "depp"}, "the action is 'depp'; allowed are shallow, deep"),
    "no action": ({"chosen": "(absent)"}, "action field 'chosen' is absent"),
    "empty action": ({"chosen": ""}, "action field 'chosen' is absent"),
    "no id": ({"id": None}, "id field 'id' is absent"),
    "p of zero": ({"p": 0}, "propensity is 0.0; allowed is above 0 and up to 1"),
    "negative p": ({"p": -0.1}, "allowed is above 0"),
    "p above one": ({"p": 1.0001}, "allowed is above 0 and up to 1"),
    "no p": ({"p": "(absent)"}, "propensity 'p' is None; allowed is a finite number"),
    "p that is a word": ({"p": "often"}, "'often'; allowed is a finite number"),
    "p in words": ({"p": "inf"}, "'inf'; allowed is a finite number"),
    "no time": ({"at": "(absent)"}, "the time is None"),
    "time in milliseconds": ({"at": 1_770_000_000_000}, "the time is"),
    "time in the future": ({"at": 1_900_000_000}, "allowed is 1970 to 2026-06-02"),
    "time before 1970": ({"at": -1}, "allowed is 1970 to"),
    "time that is none": ({"at": "yesterday"}, "'yesterday'; allowed is unix_s"),
    "time that is true": ({"at": True}, "the time is True"),
    "context of another type": ({"words": "many"}, "context field 'words' is 'many'"),
    "context that is nested": ({"words": [1]}, "context field 'words' is [1]"),
    "context too long": ({"lang": "x" * 501}, "at most 500"),
    "outcome with digits set apart": ({"clicked": "1_0"}, "outcome 'clicked' is '1_0'"),
    "action that is a list": ({"chosen": ["deep"]}, "is not a name"),
    "outcome that is a word": ({"clicked": "maybe"}, "outcome 'clicked' is 'maybe'"),
    "outcome out of range": ({"seconds": 1e999}, "not a"),
}


@pytest.mark.parametrize("name", WRONG)
async def test_a_wrong_row_is_refused_with_its_line(logs, name):
    await logs.declare()
    changes, reason = WRONG[name]
    report = await logs.load(logs.lines(logs.row(), logs.row(1, **changes), logs.row(2)))
    assert (report.rows, report.stored, report.refused) == (3, 2, 1)
    (refusal,) = report.refusals
    assert refusal.number == 2
    assert reason in refusal.reason or name == "outcome out of range"
    assert len(await logs.rows("SELECT id FROM event")) == 2


@pytest.mark.parametrize(
    ("form", "good", "wrong"),
    [
        ("iso", "2026-02-01T00:00:00Z", 1_770_000_000),
        ("iso", "2026-02-01T00:00:00Z", True),
        ("iso", "2026-02-01T00:00:00Z", [1]),
        ("iso", "2026-02-01T00:00:00Z", {"a": 1}),
        ("iso", "2026-02-01T00:00:00Z", "2026-02-30"),
        ('"%Y-%m-%d"', "2026-02-01", 20_260_201),
        ('"%Y-%m-%d"', "2026-02-01", ["2026-02-01"]),
        ("unix_s", 1_770_000_000, {"a": 1}),
    ],
)
async def test_a_time_of_another_type_is_refused(logs, form, good, wrong):
    await logs.declare()
    mapping = logs.mapping(time=f"{{field: at, format: {form}}}")
    rows = [logs.row(0, at=good), logs.row(1, at=wrong), logs.row(2, at=good)]
    report = await logs.load(logs.lines(*rows), mapping)
    assert (report.stored, report.refused) == (2, 1)
    assert report.refusals[0].number == 2
    assert "the time is" in report.refusals[0].reason


async def test_a_pattern_of_no_sense_refuses_every_row(logs):
    await logs.declare()
    mapping = logs.mapping(time='{field: at, format: "%Y %Y"}')
    report = await logs.load(logs.lines(logs.row(at="2026 2026")), mapping)
    assert (report.stored, report.refused) == (0, 1)
    assert "allowed is %Y %Y" in report.refusals[0].reason


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ([[1], [1, 2]], "a feature of 'deep' is [1]; allowed is a finite number"),
        ([1, None], "a feature of 'deep' is None"),
        (["x", 2], "a feature of 'deep' is 'x'"),
        ([1, 1e300], "a feature is not finite"),
        ([1, 2, 3], "list of 2 numbers"),
        ({"a": 1, "b": 2}, "list of 2 numbers"),
        (None, "features of 'deep' are None"),
    ],
)
async def test_features_that_are_no_numbers_are_refused(logs, wrong, reason):
    point = (await logs.declare()).spec.model_dump(mode="json")
    point["actions"]["features"] = ["price", "speed"]
    await logs.declare(json.dumps(point | {"policy": {"algorithm": "joint_squarecb"}}))
    good = {"shallow": [1, 2], "deep": [1.5, "2"], "hybrid": [0, True]}
    rows = [logs.row(n, features=good) for n in range(3)]
    rows[1]["features"] = {**good, "deep": wrong}
    report = await logs.load(logs.lines(*rows), logs.mapping(features="features"))
    assert (report.stored, report.refused) == (2, 1), report.refusals
    assert report.refusals[0].number == 2
    assert reason in report.refusals[0].reason


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("not json", "JSON"),
        ("[1, 2]", "a list; allowed is an object"),
        ('{"id": "a", "id": "b"}', "duplicate key"),
        ('{"p": NaN}', "JSON"),
        ('{"text": "a\\u0000b"}', "U+0000"),
        ('{"text": "\\ud800"}', ""),
        ("[" * 100_000, ""),
        ('{"text": "' + "x" * (1 << 20) + '"}', "longer than"),
    ],
)
async def test_a_line_that_cannot_be_read_is_refused(logs, line, reason):
    await logs.declare()
    report = await logs.load(logs.lines(logs.row(), line, "", logs.row(2)))
    assert (report.rows, report.stored, report.refused) == (3, 2, 1)
    assert report.refusals[0].number == 2
    assert reason in report.refusals[0].reason


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"shallow": 0.5, "deep": 0.4}, "sum to 0.9"),
        ({"shallow": 0.5, "deep": 0.6, "hybrid": -0.1}, "probability of 'hybrid' is -0.1"),
        ({"shallow": 0.5, "deep": 0.3, "other": 0.2}, "probability of 'other'"),
        ({"shallow": 1.0, "deep": 0.0}, "the probability of 'deep' is 0.0"),
        ({"shallow": "half", "deep": 0.5}, "'half'"),
        ([0.5, 0.5], "a list of 3"),
        ("deep", "a mapping by action"),
        (None, "a mapping by action"),
    ],
)
async def test_a_distribution_that_is_none_is_refused(logs, given, reason):
    await logs.declare()
    mapping = logs.mapping(propensity="{distribution: probabilities}")
    good = {"probabilities": {"shallow": 0.5, "deep": 0.5}}
    rows = [logs.row(0, **good), logs.row(1, probabilities=given)]
    report = await logs.load(logs.lines(*rows), mapping)
    assert (report.stored, report.refused) == (1, 1)
    assert reason in report.refusals[0].reason


@pytest.mark.parametrize(
    ("eligible", "reason"),
    [
        (["shallow", "hybrid"], "the action is 'deep'; allowed are shallow, hybrid"),
        (["deep", "depp"], "eligible names 'depp'"),
        (["deep", "deep"], "different names"),
        ([], "at least one"),
        (None, "eligible actions is absent"),
        (7, "allowed is a list"),
    ],
)
async def test_eligible_actions_that_cannot_be_are_refused(logs, eligible, reason):
    await logs.declare()
    mapping = logs.mapping(eligible="could")
    rows = [logs.row(0, could="shallow|deep"), logs.row(1, could=eligible)]
    report = await logs.load(logs.lines(*rows), mapping)
    assert (report.stored, report.refused) == (1, 1), report.refusals
    assert reason in report.refusals[0].reason


async def test_rows_of_csv_with_other_columns_are_refused(logs, tmp_path):
    await logs.declare()
    header, row = "id,at,words,lang,chosen,p,clicked,seconds", "{},1770000000,3,en,deep,0.5,1,2"
    lines = [header, row.format("a"), row.format("b") + ",9", "c,1", '"d' + "x" * 200_000 + '"']
    path = tmp_path / "log.csv"
    path.write_text("\n".join([*lines, row.format("e"), '"never closed']))
    report = await logs.load(path)
    assert report.stored == 2, report.refusals
    assert [refusal.number for refusal in report.refusals][:2] == [3, 4]
    assert report.refused == 4


async def test_only_the_first_hundred_reasons_are_kept(logs):
    await logs.declare()
    report = await logs.load(logs.lines(*(logs.row(n, p=0) for n in range(150))))
    assert (report.stored, report.refused, len(report.refusals)) == (0, 150, 100)
