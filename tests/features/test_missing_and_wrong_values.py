"""What is missing means what was declared; what is wrong is refused by name."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from steersman.errors import InputError
from steersman.features import FeatureMap
from steersman.features import feature_map as feature_map_module
from steersman.spec.context import Context

FIELDS = {
    "text": {"type": "text"},
    "intent": {"type": "category"},
    "meaning": {"type": "vector", "size": 3},
    "length": {"type": "number", "mean": 80.0, "sd": 60.0},
    "gap": {"type": "number", "mean": 1.0, "sd": 2.0, "missing": "flag"},
}


def feature_map(**fields):
    return FeatureMap(Context.model_validate({"fields": fields or FIELDS}))


def only(name, value):
    """The vector of one field alone, hashed region and numbers, without the bias."""
    return feature_map(**{name: FIELDS[name]}).encode({name: value})[1:]


@pytest.mark.parametrize("nothing", [None, math.nan, np.float64("nan"), np.float32("nan")])
@pytest.mark.parametrize("name", list(FIELDS))
def test_absent_none_and_nan_are_the_same(name, nothing):
    features = feature_map()
    np.testing.assert_array_equal(features.encode({name: nothing}), features.encode({}))


def test_the_empty_context_obeys_the_declared_meanings():
    vector = feature_map().encode({})
    assert vector[0] == 1.0
    assert vector[1:4].tolist() == [0.0, 1.0, 0.0]  # gap, gap is missing, length
    assert np.count_nonzero(vector[4:]) == 1  # the bucket of a missing intent
    assert feature_map(text=FIELDS["text"]).encode({}).sum() == 1.0


def test_a_missing_category_is_one_no_value_can_be():
    nothing = only("intent", None)
    assert np.linalg.norm(nothing) == 1.0
    for value in ("", "missing", "None", "nan", "\x00missing"):
        assert np.linalg.norm(only("intent", value)) == 1.0
        assert not np.array_equal(nothing, only("intent", value))


def test_a_flag_tells_a_missing_number_from_the_mean():
    features = feature_map(gap=FIELDS["gap"])
    assert features.encode({"gap": 1.0})[1:3].tolist() == [0.0, 0.0]
    assert features.encode({})[1:3].tolist() == [0.0, math.sqrt(2)]


@pytest.mark.parametrize("name", list(FIELDS))
@pytest.mark.parametrize("nothing", [{}, {"it": None}, {"it": math.nan}])
def test_required_fields_are_required(name, nothing):
    features = feature_map(it={**FIELDS[name], "missing": "refuse"})
    with pytest.raises(InputError, match="context field 'it' is missing and declared `missing: re"):
        features.encode(nothing)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("text", 3, r"'text' got int 3; allowed: text \(str\); send str"),
        ("text", b"abc", "'text' got bytes; allowed: text"),
        ("text", ["a"], "'text' got list"),
        ("text", {"a": {"b": "c"}}, "'text' got dict"),
        ("text", "x" * 20_001, "has 20,001 characters; allowed at most 20,000; shorten it"),
        ("intent", True, "'intent' got bool True; allowed: a name"),
        ("intent", 3, "'intent' got int 3"),
        ("intent", ["weather"], "'intent' got list"),
        ("intent", "x" * 501, "has a name of 501 characters; allowed at most 500"),
        ("length", True, "'length' got bool True; allowed: a number"),
        ("length", np.bool_(1), "'length' got bool"),
        ("length", np.timedelta64(5, "ns"), "'length' got timedelta64"),
        ("length", "80", "'length' got str '80'; allowed: a number"),
        ("length", [80], "'length' got list"),
        ("length", {"a": 1}, "'length' got dict"),
        ("length", Decimal(3), "'length' got Decimal"),
        ("length", 1j, "'length' got complex"),
        ("length", math.inf, r"'length' is not finite \(got float inf\); .* send None"),
        ("length", -np.float64("inf"), "'length' is not finite"),
        ("length", 10**400, r"'length' is not finite \(got int\)"),
        pytest.param("length", 10**5000, r"'length' is not finite \(got int\)", id="huge length"),
        pytest.param("intent", 10**5000, "'intent' got int; allowed", id="huge intent"),
        ("meaning", 3, "'meaning' got int 3; allowed: a flat list or array of 3 numbers"),
        ("meaning", "abc", "'meaning' got str 'abc'"),
        ("meaning", [1.0, 2.0], "'meaning' got 2 entries; allowed: a flat list or array of 3"),
        ("meaning", [], "'meaning' got 0 entries"),
        ("meaning", np.zeros(4), "'meaning' got 4 entries"),
        ("meaning", np.zeros((3, 1)), "'meaning' got 3×1 entries"),
        ("meaning", np.float64(3), "'meaning' got float64"),
        ("meaning", np.array(3.0), "'meaning' got no entries"),
        ("meaning", [[1, 2, 3]] * 3, "'meaning' got 3×3 entries"),
        ("meaning", [1, [2], 3], "'meaning' got list"),
        ("meaning", [1, None, 3], "'meaning' got list"),
        ("meaning", ["1", "2", "3"], "'meaning' got list; .* send numbers only"),
        ("meaning", [True, False, True], "'meaning' got list"),
        ("meaning", [True, 1.0, 2], "'meaning' got bool True at entry 0; .* send numbers only"),
        ("meaning", (0.5, 2.0, np.bool_(0)), "'meaning' got bool at entry 2; .* send numbers"),
        ("meaning", bytearray(b"abc"), "'meaning' got bytearray; allowed: a flat list"),
        ("meaning", memoryview(b"abc"), "'meaning' got memoryview; allowed: a flat list"),
        ("meaning", [1, 2, 10**400], "'meaning' got list"),
        ("meaning", np.ma.array([1.0, 2.0, 3.0], mask=[0, 1, 0]), "'meaning' got MaskedArray"),
        ("meaning", [1, math.nan, 3], r"'meaning' is not finite at entry 1 \(got nan\)"),
        ("meaning", [1, 2, math.inf], "'meaning' is not finite at entry 2"),
        ("textt", "a", "'textt' is not declared; allowed: gap, intent, .*did you mean 'text'"),
        ("zzz", "a", "'zzz' is not declared; .*declare it or omit it"),
        (3, "a", "context field 3 is not declared"),
        ("y" * 5000, "a", "is not declared"),
    ],
)
def test_wrong_values_are_refused_by_name(name, value, message):
    features = feature_map()
    before = features.encode({}).tobytes(), features.hash
    with pytest.raises(InputError, match=message) as refused:
        features.encode({"intent": "weather", name: value})
    assert len(str(refused.value)) < 400
    assert (features.encode({}).tobytes(), features.hash) == before
    with pytest.raises(InputError, match=r"^row 1: "):
        features.encode_batch([{}, {name: value}])


def test_numbers_that_cancel_are_refused_one_by_one():
    fields = {name: {"type": "number", "mean": 0, "sd": 1} for name in "ab"}
    two = FeatureMap(Context.model_validate({"dim": 16, "fields": fields}))
    with pytest.raises(InputError, match=r"^row 0: .*'a' is not finite"):
        two.encode_batch([{"a": 10**400, "b": -(10**400)}])


def test_of_many_fields_a_few_are_listed(monkeypatch):
    fields = {f"n{i:04}": {"type": "number", "mean": 0, "sd": 1} for i in range(1200)}
    many = FeatureMap(Context.model_validate({"dim": 4096, "fields": fields}))
    with pytest.raises(InputError, match=r"allowed: n0000, .*, n0019 and 1,180 more; declare"):
        many.encode({"n": 1})
    monkeypatch.setattr(feature_map_module, "get_close_matches", None)  # too dear to be asked
    for features, name in ((many, "n001"), (feature_map(), "x" * 1_000_000)):
        with pytest.raises(InputError, match="declare it or omit it") as refused:
            features.encode({name: 1})
        assert len(str(refused.value)) < 400


@pytest.mark.parametrize("values", [None, [("text", "a")], "text", 3, ["text"]])
def test_a_context_is_a_mapping(values):
    message = rf"mapping of names to values; got {type(values).__name__}.*; send a dict, or {{}} if"
    with pytest.raises(InputError, match=message):
        feature_map().encode(values)


@pytest.mark.parametrize("rows", [None, 3, "text", b"text", {"text": "a"}, object(), np.array(3)])
def test_rows_are_a_list_of_contexts(rows):
    message = rf"rows got {type(rows).__name__}.*; allowed: a list .*; send one context as"
    with pytest.raises(InputError, match=message):
        feature_map().encode_batch(rows)
    with pytest.raises(InputError, match=message):
        feature_map().fit(rows)


def test_a_batch_has_a_length_and_fitting_takes_any_iterable():
    with pytest.raises(InputError, match="rows got generator; allowed: a list of contexts"):
        feature_map().encode_batch(row for row in [{}])
    assert feature_map().encode_batch(np.array([{}, {}])).shape == (2, 64)
    assert feature_map().fit(row for row in [{}]).unfitted == ()


@pytest.mark.parametrize("declared", [None, 3, "text", b"text", [FIELDS], {"fields": FIELDS}])
def test_a_map_needs_a_declaration(declared):
    message = rf"FeatureMap got {type(declared).__name__}.*; allowed: the declared context"
    with pytest.raises(InputError, match=message):
        FeatureMap(declared)
    with pytest.raises(InputError, match=message):
        FeatureMap.from_state(declared, {})


@pytest.mark.parametrize("value", [80, 80.0, np.int32(80), np.float32(80), Fraction(80)])
def test_every_kind_of_number_is_a_number(value):
    assert only("length", value)[0] == only("length", 80.0)[0]


def test_a_text_may_be_declared_to_be_cut():
    cut = feature_map(text={"type": "text", "max_chars": 5, "too_long": "truncate"})
    np.testing.assert_array_equal(
        cut.encode({"text": "hello world"}), cut.encode({"text": "hello"})
    )


@pytest.mark.parametrize("text", ["", "  \n", "?!… — ✨", "\x00"])
def test_a_text_without_words_is_the_empty_text(text):
    np.testing.assert_array_equal(only("text", text), np.zeros(63))


@pytest.mark.parametrize("text", ["\ud800", "𝕳ello", "日本語テキスト", "a\u0301" * 1000, "_"])
def test_any_text_can_be_encoded(text):
    assert np.isfinite(only("text", text)).all()


def test_numbers_are_cut_at_the_declared_ends():
    ends = [only("length", value)[0] for value in (1e300, 80 + 3 * 60, -1e300, 80 - 3 * 60)]
    assert ends == pytest.approx([math.sqrt(2), math.sqrt(2), -math.sqrt(2), -math.sqrt(2)])
    assert only("length", 1.7e308)[0] == ends[0]
