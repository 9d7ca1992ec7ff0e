"""Pages become text, with headings as sections and without what is no content."""

import pytest

from steersman.retrieval.documents.html import as_html, parse_html

PAGE = """<!doctype html><html><head><title> The
 manual </title><style>p{}</style><script>var a = "<p>no</p>";</script></head><body>
<header role="banner">Company</header><nav><a href=/>Home</a></nav>
<h1>Pumps &amp; valves</h1>
<p>They <b>hum</b>, <i>loud</i>ly.<br>When cold.</p><p>Second   one.</p>
<h2>Tools<br>to use</h2><ul><li>Wrench<li>Oil</ul>
<table><tr><th>Part<th>Price<tr><td>Seal<td>3 €</table>
<pre>if a:
    b</pre><div hidden>secret</div><span aria-hidden="true">x</span>
<form><label>Search</label><select><option>All</select><button>Go</button></form>
<article>Note.<footer>Its own source.</footer></article>
<svg><title>icon</title><text>drawn</text></svg><noscript>Enable scripts</noscript>
<footer>All rights reserved</footer><script>track()</script></body></html>"""
TEXT = """Pumps & valves

They hum, loudly.
When cold.

Second one.

Tools to use

Wrench
Oil

Part | Price
Seal | 3 €

if a:
    b

Search

Note.

Its own source."""


def test_content_is_read_and_boilerplate_is_not():
    found = parse_html(PAGE)
    assert found.text == TEXT
    assert found.title == "The manual"


def test_sections_begin_where_their_headings_stand_in_the_text():
    found = parse_html(PAGE)
    assert [(level, title) for _, level, title in found.sections] == [
        (1, "Pumps & valves"),
        (2, "Tools to use"),
    ]
    for start, _, title in found.sections:
        assert found.text[start:].startswith(title)


def test_of_a_page_with_one_main_only_that_is_read():
    page = "<h1>Site</h1><div>Menu</div><main><h1>Pumps</h1><p>Hum.</p></main><div>More</div>"
    assert parse_html(page).text == "Pumps\n\nHum."
    assert parse_html(page.replace("Pumps", "").replace("Hum.", "")).text == "Site\n\nMenu\n\nMore"
    assert "Site" in parse_html(page + "<main>Two</main>").text


@pytest.mark.parametrize(
    "page", ["", "<html></html>", "<html><head><title>T</title></head></html>", "<!-- a -->"]
)
def test_without_a_body_there_is_no_text(page):
    assert parse_html(page).text == ""


@pytest.mark.parametrize(
    "page", ["<p>a", "a", "<td>a</td>", "<body><p>a</p></body></body>x</html>", "<frameset><p>a"]
)
def test_broken_pages_are_read_as_browsers_do(page):
    assert parse_html(page).text.startswith("a") or "frameset" in page


def test_spaces_between_inline_elements_stay_and_none_are_made_up():
    page = "<p>a<b>b</b> <i>c</i>d <em> e</em></p><p>\n</p><h2> </h2><p>f</p>"
    assert parse_html(page).text == "ab cd e\n\nf"
    assert parse_html(page).sections == []


def test_a_page_without_title_is_named_by_its_first_heading():
    assert parse_html("<h2>b</h2><h1>a</h1>").title == "a"


def test_a_few_thousand_levels_are_no_trouble():
    assert parse_html("<div>" * 3000 + "deep").text == "deep"


def test_characters_that_cannot_be_stored_do_not_come_out_of_references():
    assert parse_html("<p>a&#0;b&#xD800;c</p>").text == "a\ufffdb\ufffdc"


XHTML = """<html xmlns="http://www.w3.org/1999/xhtml"><head><title/></head><body><p>First.</p>
<script src="a.js"/><p>Second,<br/>in two lines.</p><textarea name="a > b"/><nav/><div id="x" />
<p>Third.</p></body></html>"""


def test_what_is_empty_in_xhtml_ends_where_it_begins():
    found = parse_html(as_html(XHTML))
    assert (found.text, found.title) == ("First.\n\nSecond,\nin two lines.\n\nThird.", "")


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["<", "<a", "a", "<a ", "<a/", "/", '<a b="', "'", "<a/>"])
def test_a_monotonous_page_is_made_html_in_time_that_grows_with_it(unit):
    text = (unit * 400_000)[:400_000]
    assert len(as_html(f"<{text}")) >= 400_000
