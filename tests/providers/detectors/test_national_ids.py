"""Numbers of states are known by their check digits: a wrong one is none."""

import pytest

from steersman.providers.detectors.national_ids import find_national_ids

# Published examples, of nobody.
RIGHT = {
    "es_dni": ["12345678Z", "X1234567L", "12345678-Z"],
    "it_cf": ["RSSMRA85T10A562S"],
    "fr_nir": ["2 55 08 14 168 025 38", "255081416802538"],
    "br_cpf": ["529.982.247-25"],
    "pl_pesel": ["PESEL 44051401359"],
    "cn_rid": ["11010519491231002X"],
    "se_pnr": ["811228-9874"],
    "nl_bsn": ["BSN: 111222333"],
    "gb_nhs": ["NHS number 943 476 5919"],
    "de_idnr": ["Steuer-ID 86 095 742 719"],
    "in_aadhaar": ["2341 2341 2346"],
    "us_ssn": ["219-09-9999", "SSN 219099999"],
}


@pytest.mark.parametrize(("kind", "text"), [(k, t) for k, texts in RIGHT.items() for t in texts])
def test_a_right_number_is_found_where_it_stands(kind, text):
    inside = f"It was {text}, they said."
    found = [place for place in find_national_ids(inside) if place.kind == kind]
    assert len(found) == 1
    assert inside[found[0].start : found[0].end] in text


@pytest.mark.parametrize(
    ("kind", "text"), [(k, t) for k, texts in RIGHT.items() if k != "us_ssn" for t in texts]
)
def test_a_number_with_another_check_digit_is_none(kind, text):
    # The last digit or letter is the check digit of all but the Spanish and Italian letters.
    last = text[-1]
    others = "0123456789" if last.isdigit() else "ABCDEFGHJKLMNPQRSTVWXYZ"
    wrong = [text[:-1] + one for one in others if one != last]
    caught = [one for one in wrong if any(p.kind == kind for p in find_national_ids(one))]
    assert caught == []


def test_us_numbers_that_were_never_given_are_none():
    for text in ("000-12-3456", "666-12-3456", "900-12-3456", "219-00-9999", "219-09-0000"):
        assert not list(find_national_ids(text))


@pytest.mark.parametrize(
    "text", ["", "call 111222333", "44051401359", "943 476 5919", "1.219-09-9999", "219 09-9999"]
)
def test_bare_digits_are_none_without_a_word_that_names_them(text):
    assert not list(find_national_ids(text))


def test_letters_that_are_no_ascii_are_no_part_of_an_italian_code():
    for one in (
        "\N{KELVIN SIGN}",
        "\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}",
        "\N{LATIN SMALL LETTER LONG S}",
    ):
        for place in range(6):
            text = "RSSMRA"[:place] + one + "RSSMRA"[place + 1 :] + "85T10A562S"
            assert not list(find_national_ids(text))
