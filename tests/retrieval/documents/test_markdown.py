"""Markdown stays as it is; its headings become sections."""

import pytest

from steersman.retrieval.documents.markdown import parse_markdown

PAGE = """\
Before all.

# The *cold* [pump](https://example.org) `X1`

```sh
# no heading
```

    # none either

Second
------

> # quoted

- # listed

### Third ###
"""


def test_headings_of_both_kinds_become_sections_without_their_markup():
    found = parse_markdown(PAGE)
    titles = [(level, title) for _, level, title in found.sections]
    assert titles == [(1, "The cold pump X1"), (2, "Second"), (3, "Third")]
    assert found.title == "The cold pump X1"


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_the_text_stays_as_it_is_and_offsets_are_those_of_the_file(newline):
    page = PAGE.replace("\n", newline)
    found = parse_markdown(page)
    assert found.text == page
    for (start, _, _), begin in zip(found.sections, ["# The", "Second", "### T"], strict=True):
        assert page[start:].startswith(begin)


def test_front_matter_is_no_heading_and_gives_the_title():
    page = '---\ntitle: "Cold pumps"\ntags: [a]\n---\n# First\n'
    found = parse_markdown(page)
    assert found.title == "Cold pumps"
    assert [(page[start : start + 7], title) for start, _, title in found.sections] == [
        ("# First", "First")
    ]


@pytest.mark.parametrize(
    "page",
    [
        "---\n\n# Intro\n\nOne: a text.\n\n---\n\n# Next\n",
        "---\n# Intro\n\nOne: a text.\n\n---\n\n# Next\n",
        "---\n# Intro\n- one\n- two\n\n---\n\n# Next\n",
        "---\n---\n# Intro\n\nA text.\n\n---\n\n# Next\n",  # nothing in front
        "---\r\n...\r\n# Intro\r\n\r\n---\r\n\r\n# Next\r\n",
        "---\n\nOne: a text.\n\n# Intro\n\nIt goes on.\n\n---\n\n# Next\n",
        "---\nOne: a text.\n\n# Intro\n\nIt goes on.\n\n---\n\n# Next\n",
    ],
)
def test_a_rule_that_begins_a_text_hides_no_heading(page):
    found = parse_markdown(page)
    assert [title for _, _, title in found.sections] == ["Intro", "Next"]
    assert found.title == "Intro"


@pytest.mark.parametrize(
    "lines",
    [
        "title: Pumps\n",
        "# of the site\ntitle: Pumps\n",
        'tags:\n- a\n  - b\n\n"of": x\ntitle: Pumps\nlist: [\n  a\n]\n',
        "about: |\n  # no heading\n  text\ntitle: 'Pumps'\n",
        "\ntitle: Pumps\n",
        "# of the site\n\ntitle: Pumps\n",
        "title: Pumps\n\n",
        "dc:title: Pumps and valves\ntitle: Pumps\nog:image: pump.png\n",
        "title: Pumps\ntags: [hum,\nbearing]\n",
        'about: "It hums.\nIt is worn."\ntitle: Pumps\n',
        'title: "\nPumps"\n',
        "title: Pumps\nabout: one\u2028two\x85three\n",
    ],
)
def test_names_and_what_belongs_to_them_are_front_matter(lines):
    found = parse_markdown(f"---\n{lines}---\n# First\n")
    assert found.title == "Pumps"
    assert [title for _, _, title in found.sections] == ["First"]


def test_an_empty_heading_is_kept_and_a_long_one_shortened():
    found = parse_markdown("#\n\n# " + "word " * 500)
    assert found.sections[0] == (0, 1, "")
    assert len(found.sections[1][2]) <= 1000


@pytest.mark.parametrize("unit", ["> ", "- ", "[", "*", "`", "#", "<", "1. "])
def test_deep_nesting_ends(unit):
    page = unit * 20_000 + "\n\n# After\n"
    assert parse_markdown(page).text == page
