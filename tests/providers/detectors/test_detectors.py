"""Detectors flag what they name, where it stands; a batch is charged for what any flags."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steersman.errors import InputError
from steersman.providers.detectors.answer_review import Instability
from steersman.providers.detectors.flags import detect_all, violations
from steersman.providers.detectors.national_ids import PersonalData


def test_each_kind_is_flagged_at_its_place():
    text = (
        "Ann <ann@example.org>, +49 30 123456, card 4111 1111 1111 1111, "
        "DE89 3704 0044 0532 0130 00, 192.0.2.7, DNI 12345678Z"
    )
    flags = PersonalData().detect(text)
    assert [flag.kind for flag in flags] == ["email", "phone", "card", "iban", "ip", "es_dni"]
    assert text[flags[0].start : flags[0].end] == "ann@example.org"
    assert text[flags[-1].start : flags[-1].end] == "12345678Z"
    assert PersonalData().masked(text) == (
        "Ann <[email]>, [phone], card [card], [iban], [ip], DNI [es_dni]"
    )


def test_kinds_can_be_chosen_and_unknown_ones_are_refused():
    text = "bob@example.org, 219-09-9999"
    assert [f.kind for f in PersonalData(["email"], national=False).detect(text)] == ["email"]
    assert [flag.kind for flag in PersonalData([]).detect(text)] == ["us_ssn"]
    with pytest.raises(InputError, match="kind 'name' is unknown"):
        PersonalData(["name"])


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("NIR 1 86 08 74 847 513 50 it is", "NIR [fr_nir] it is"),
        ("Steuer-ID: 83 082 016 499", "Steuer-ID: [de_idnr]"),
        ("NHS number 665 570 0507", "NHS number [gb_nhs]"),
        ("SSN 066-99-1803", "SSN [phone]"),
        ("card 4111 1111 1111 1111", "card [card]"),
    ],
)
def test_what_overlaps_is_masked_as_one_and_called_by_its_check_digit(text, masked):
    personal = PersonalData()
    assert len(personal.detect(text)) == 1
    assert personal.masked(text) == masked


@given(st.text(max_size=300))
@settings(max_examples=100, deadline=None)
def test_any_text_is_searched_and_what_is_masked_is_gone(text):
    personal = PersonalData()
    for flag in personal.detect(text):
        assert 0 <= flag.start < flag.end <= len(text)
    assert not personal.detect(personal.masked(text))


@pytest.mark.slow
def test_no_text_makes_it_slow():
    begun = time.process_time()
    for text in ("1" * 100_000, "1 " * 50_000, "a-" * 50_000, "12.345." * 15_000):
        PersonalData().detect(text)
    assert time.process_time() - begun < 10.0


@pytest.mark.parametrize(
    ("answers", "value"),
    [
        (["At nine.", "at NINE"], 0.0),
        (["nine", "ten"], 1.0),
        (["at nine", "at ten"], 0.5),
        (["", ""], 0.0),
        (["", "nine"], 1.0),
        (["a a b", "a b b"], 1 / 3),
    ],
)
def test_instability_is_one_minus_the_overlap_of_words(answers, value):
    assert Instability().value(answers) == pytest.approx(value)


def test_answers_that_differ_too_much_are_flagged():
    (flag,) = Instability(0.4).detect_among(["at nine", "at ten"])
    assert (flag.detector, flag.kind, flag.score) == ("instability", "answers_differ", 0.5)
    assert Instability(0.5).detect_among(["at nine", "at ten"]) == ()
    for wrong in ([], ["once"]):
        with pytest.raises(InputError, match="the same question"):
            Instability().value(wrong)
    with pytest.raises(InputError, match="threshold is 1"):
        Instability(1)


def test_a_batch_is_charged_for_what_any_detector_flags():
    detectors = [PersonalData(["email"], national=False), PersonalData(["ip"], national=False)]
    answers = ["192.0.2.7", "nothing", "bob@example.org"]
    assert violations(detectors, answers).tolist() == [True, False, True]
    assert violations(detectors, []).shape == (0,)
    assert [flag.kind for flag in detect_all(detectors, "a@b.cd 192.0.2.7")] == ["email", "ip"]
