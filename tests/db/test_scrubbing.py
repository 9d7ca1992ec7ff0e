"""Scrubbing: findings, false positives and linear run time."""

from __future__ import annotations

from time import process_time
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.errors import InputError
from steersman.privacy.declared_scrub import Scrubbing, scrubbing_of, scrubbing_of_events
from steersman.privacy.scrub import UNSCRUBBABLE, scrub, scrub_key
from steersman.spec.loader import loads
from steersman.spec.privacy import KINDS

SECRET = b"s" * 32
TENANT, OTHER = UUID(int=1), UUID(int=2)
POINT = """
format: 1
skill: support
decision: route
context:
  fields:
    text: {type: text}
    subject: {type: text}
    intent: {type: category}
    length: {type: number, mean: 10, sd: 5}
    embedding: {type: vector, size: 2}
actions: {kind: choice, names: [micro, planner]}
policy: {algorithm: lin_ucb}
floor: 0.02
fallback: {otherwise: planner}
reward: {terms: {success: {weight: 1.0}}}
"""
FOUND = {
    "email": [
        "bob@example.org",
        "Bob.O'Ray+news@mail.example.co.uk",
        "jürgen@bücher.example",
        "用户@例子.公司",
        "a@xn--bcher-kva.xn--p1ai",
        "x_1%y@sub-domain.example.museum",
        "a" * 64 + "@example.org",
    ],
    "phone": [
        "+49 30 123456",
        "+49 (0)30 / 123 45-67",
        "+1 (555) 123-4567",
        "+442079460958",
        "+354 123 4567",
        "0049 30 1234567",
        "(555) 123-4567",
        "555-123-4567",
        "555.123.4567",
        "1-800-555-0199",
        "555-123-4567 ext. 12",
        "020 7946 0958",
        "07700 900123",
        "030/1234567",
        "0171 / 123 45 67",
        "06 12 34 56 78",
        "01.02.20.24.10",
        "(11) 91234-5678",
        "090-1234-5678",
    ],
    "card": [
        "4111111111111111",
        "4242 4242 4242 4242",
        "4012-8888-8888-1881",
        "5555555555554444",
        "2223003122003222",
        "3782 822463 10005",
        "6011111111111117",
        "30569309025904",
        "3530111333300000",
        "6200000000000005",
        "4222222222222",
        "４１１１１１１１１１１１１１１１",
    ],
    "iban": [
        "DE89370400440532013000",
        "DE89 3704 0044 0532 0130 00",
        "gb82 west 1234 5698 7654 32",
        "NO93-8601-1117-947",
        "MT84MALT011000012345MTLCAST001S",
        "FR14 2004 1010 0505 0001 3M02 606",
    ],
    "ip": [
        "192.168.1.20",
        "255.255.255.255",
        "2001:db8::8a2e:370:7334",
        "2001:0DB8:0000:0000:0000:ff00:0042:8329",
        "::ffff:192.0.2.128",
        "fe80::1ff:fe23:4567:890a",
    ],
}
LEFT = {
    "email": ["@bob", "a@b", "me@localhost", "5 @ 3.50", "@app.route", "x@1.2.3", "user(at)x.org"],
    "phone": [
        "2024-01-02",
        "01.02.2024",
        "01-02-2024 10:30",
        "2024-01-02 10:30:15",
        "$1,234,567.89",
        "1 234 567,89",
        "+15000000",
        "order 5551234567",
        "Order no. 0123-456-789",
        "invoice 020 7946 0958",
        "5551234567",
        "1732192800",
        "1732192800123",
        "3.14159265358979",
        "550e8400-e29b-41d4-a716-446655440000",
        "10.0.0.1",
        "0.99 or 0.5",
        "12:30 - 13:45",
        "pages 100-200",
        "555-1234",
        "1 2 3 4 5 6 7 8 9 10",
        "phone on 2024-01-02",
        "T cell 5551234567",
        "My phone is fine. 5551234567",
        "my phone\n5551234567",
    ],
    "card": [
        "4111111111111112",
        "1234567890123452",
        "1732192800123456789",
        "0.4111111111111111",
        "a4111111111111111",
        "41111111111111111111",
        "4111 1111",
        "000000000000000000",
        "36704-37207-0-503",
        "4111 11111111 1111",
    ],
    "iban": [
        "DE88370400440532013000",
        "DE8937040044053201300",
        "XX89370400440532013000",
        "BE12 is no account of anybody here",
        "rs646776 both explained about",
        "rs646776 both explained a",
        "xDE89370400440532013000",
    ],
    "ip": [
        "256.1.1.1",
        "1.2.3",
        "1.2.3.4.5",
        "v1.2.3.4",
        "Version 1.2.3.4",
        "12:30:45",
        "std::vector",
        "a::b",
        "std::fade",
        "x-1.2.3.4",
        "::",
        "0.0.0.0/0",
        "127.0.0.1",
        "::1",
    ],
}


@pytest.mark.parametrize(("kind", "text"), [(k, text) for k in FOUND for text in FOUND[k]])
def test_what_is_found(kind, text):
    around = ["{}", "see {}.", "({})", '"{}",', "at: {} b", "<{}>\n", "\t{}; and {}"]
    for frame in around:
        framed = frame.replace("{}", text)
        expected = frame.replace("{}", f"[{kind}]")
        assert scrub(framed, [kind])[0] == expected
        assert scrub(framed, [kind])[1] == {kind: frame.count("{}")}


@pytest.mark.parametrize(("kind", "text"), [(k, text) for k in LEFT for text in LEFT[k]])
def test_what_is_left_alone(kind, text):
    assert scrub(text, [kind]) == (text, {})


@pytest.mark.parametrize(
    "word", ["phone", "Tel.:", "call me at", "Mobil:", "teléfono", "Fax:\n", "cell phone"]
)
def test_a_word_tells_that_digits_are_a_phone_number(word):
    assert scrub(f"{word} 5551234567", ["phone"])[0] == f"{word} [phone]"


def test_a_word_tells_that_digits_are_a_card():
    assert scrub("maestro 501864667909 of order 501864667909", ["card"])[0] == (
        "maestro [card] of order 501864667909"
    )


def test_what_stands_beside_a_card_stays():
    assert scrub("4111 1111 1111 1111 12/27 123", ["card"])[0] == "[card] 12/27 123"
    assert scrub("21 4111 1111 1111 1111", ["card"])[0] == "21 [card]"


def test_an_address_may_stand_right_after_its_name():
    assert scrub("ip:2001:db8::1, ip=10.0.0.1:80", ["ip"])[0] == "ip:[ip], ip=[ip]:80"


def test_an_iban_is_not_also_a_card_or_a_phone_number():
    text = "DE89 3704 0044 0532 0130 00 and bob@192.168.1.20.example.org"
    assert scrub(text, KINDS)[0] == "[iban] and [email]"


def test_one_spelling_one_hash():
    key = scrub_key(SECRET, TENANT.bytes)

    def hashes(kind, *texts):
        return {scrub(text, [kind], how="hash", key=key)[0] for text in texts}

    assert len(hashes("email", "Bob@Example.org", "bob@example.org")) == 1
    assert len(hashes("phone", "+49 30 123456", "+4930123456", "+49 (30) 123-456")) == 1
    assert len(hashes("card", "4111111111111111", "4111-1111-1111-1111")) == 1
    assert len(hashes("iban", "DE89370400440532013000", "de89 3704 0044 0532 0130 00")) == 1
    assert len(hashes("ip", "2001:DB8::1", "2001:db8:0:0:0:0:0:1")) == 1
    assert len(hashes("ip", "10.0.0.1", "10.0.0.2")) == 2


def test_hashes_of_tenants_cannot_be_compared():
    texts = {
        scrub("bob@example.org", ["email"], how="hash", key=scrub_key(secret, tenant.bytes))[0]
        for secret in (SECRET, b"t" * 32)
        for tenant in (TENANT, OTHER)
    }
    assert len(texts) == 4


def test_a_hash_needs_a_key_and_kinds_are_known():
    with pytest.raises(InputError, match="needs a key"):
        scrub("", ["email"], how="hash")
    with pytest.raises(InputError, match=r"'mail' is unknown; allowed are email, phone, "):
        scrub("", ["mail"])


PIECES = st.one_of(
    st.sampled_from([text for kind in KINDS for text in FOUND[kind] + LEFT[kind]]),
    st.text(alphabet="0123456789 .-+()/:@", max_size=12),
    st.text(alphabet="aA1.@-:[]x ", max_size=8),
    st.text(max_size=6),
)


@given(
    pieces=st.lists(PIECES, max_size=8),
    kinds=st.lists(st.sampled_from(KINDS), unique=True, min_size=1),
    how=st.sampled_from(["mask", "hash"]),
)
def test_scrubbing_again_changes_nothing(pieces, kinds, how):
    once, _ = scrub("".join(pieces), kinds, how=how, key=b"k")
    again, counts = scrub(once, kinds, how=how, key=b"k")
    assert again == once
    assert counts == ({"unscrubbable": 1} if once == UNSCRUBBABLE and counts else {})


@given(st.text(alphabet="ab@.0123456789+-() :", max_size=200))
def test_what_is_found_is_gone(text):
    scrubbed, _ = scrub(text, KINDS)
    for kind in KINDS:
        assert scrub(scrubbed, [kind])[1] == {}


ADVERSARIES = [
    "a",
    "1",
    "a.",
    "@",
    "a@",
    "a@a.",
    "@a.",
    "1 ",
    "1-",
    "0 1",
    "+1",
    "+1 ",
    "1.",
    "(1)",
    "00 1 ",
    "12 ",
    "4",
    "4 ",
    "44 ",
    "4444 ",
    "4111 ",
    "card 44 ",
    "5105 1051 0510 5100 ",
    ":",
    "a:",
    "::",
    "1.1.1.",
    "DE89 ",
    "DE89",
    "de1 ",
    "phone ",
    "phone 1",
    "card 4 ",
    "555-",
    "(555) ",
    "a@b.c ",
    "bob@example.org4111111111111111",
    "[email]",
    " ",
    "\u00a0",
]


@pytest.mark.slow
@pytest.mark.parametrize("piece", ADVERSARIES)
def test_time_grows_no_faster_than_the_text(piece):
    """Eight times the text may take 24 times as long, for noise."""

    def seconds(length):
        text = (piece * length)[:length]
        best = float("inf")
        for _ in range(2):
            begun = process_time()
            scrub(text, KINDS)
            best = min(best, process_time() - begun)
        return best

    assert seconds(40_000) <= 24 * max(seconds(5_000), 0.001)


def test_long_parts_are_cut_as_the_standard_says():
    assert scrub("a" * 70 + "@example.org", ["email"])[0] == "a" * 6 + "[email]"


def test_nothing_is_done_where_nothing_is_declared():
    point = loads(POINT)
    assert scrubbing_of(point) is None
    assert scrubbing_of_events([point.privacy]) is None
    assert scrubbing_of_events([]) is None


CONTEXT = {
    "text": "from bob@example.org",
    "subject": "call +49 30 123456",
    "intent": "carl@example.org",
    "length": 4111111111111111.0,
    "embedding": [1.0, 2.0],
}


def context_of(declared: str, context) -> dict:
    scrubbing = scrubbing_of(loads(f"{POINT}privacy: {declared}\n"))
    return scrubbing.context(context, SECRET, TENANT)


def test_all_texts_of_a_context_and_nothing_else():
    got, counts = context_of("{scrub: [email, phone, card]}", CONTEXT)
    assert got == {**CONTEXT, "text": "from [email]", "subject": "call [phone]"}
    assert list(got) == list(CONTEXT)
    assert counts == {"email": 1, "phone": 1}


def test_only_the_fields_that_are_named():
    got, _ = context_of("{scrub: [email, phone], fields: [text]}", CONTEXT)
    assert got == {**CONTEXT, "text": "from [email]"}
    got, _ = context_of("{scrub: [email, phone], fields: []}", CONTEXT)
    assert got == CONTEXT


def test_what_is_not_as_declared_is_scrubbed_wherever_it_holds_a_text():
    wrong = {
        "intent": ["bob@example.org"],
        "length": "bob@example.org",
        "embedding": ["bob@example.org"],
        "subject": {"from": "bob@example.org"},
        "other": {"bob@example.org": [None, True, 7, "bob@example.org"]},
        "carl@example.org": 1,
    }
    got, counts = context_of("{scrub: [email], fields: [text]}", wrong)
    assert got == {
        "intent": ["[email]"],
        "length": "[email]",
        "embedding": ["[email]"],
        "subject": {"from": "[email]"},
        "other": {"[email]": [None, True, 7, "[email]"]},
        "[email]": 1,
    }
    assert counts == {"email": 7}


def test_bodies_are_scrubbed_all_through_and_keep_all_their_entries():
    body = {"to": {"a@b.org": 1, "c@d.org": 2, "[email] 2": 3, "[email]": 4}, "n": [["a@b.org"]]}
    got, counts = Scrubbing(["email"], "mask").body(body, SECRET, TENANT)
    assert got["n"] == [["[email]"]]
    assert sorted(got["to"].values()) == [1, 2, 3, 4]
    assert counts == {"email": 3}
    assert body["to"]["a@b.org"] == 1
    assert Scrubbing(["email"], "mask").body(got, SECRET, TENANT) == (got, {})


def test_events_are_scrubbed_of_what_any_point_declares():
    points = [
        loads(POINT).privacy,
        loads(f"{POINT}privacy: {{scrub: [email], with: hash, fields: []}}\n").privacy,
        loads(f"{POINT}privacy: {{scrub: [ip], with: hash}}\n").privacy,
    ]
    text = "a@b.org 10.0.0.1 +49 30 123456"
    hashed, _ = scrubbing_of_events(points).body(text, SECRET, TENANT)
    key = scrub_key(SECRET, TENANT.bytes)
    assert hashed == scrub(text, ["email", "ip"], how="hash", key=key)[0]
    masking = loads(f"{POINT}privacy: {{scrub: [phone]}}\n").privacy
    masked, _ = scrubbing_of_events([*points, masking]).body(text, SECRET, TENANT)
    assert masked == "[email] [ip] [phone]"
