"""The sync files are the ones that `tools.unasync` makes of the async ones."""

import pytest

from tools.unasync import PACKAGE, SOURCES, generated, sync_form


@pytest.mark.parametrize("source", SOURCES)
def test_generated_files_are_current(source):
    assert (PACKAGE / SOURCES[source]).read_text() == generated(source), (
        f"{SOURCES[source]} is out of date; run `python -m tools.unasync`"
    )


def test_texts_and_comments_stay_as_they_are():
    text = 'async with AsyncClient() as one:  # await\n    x = "await AsyncClient"\n'
    assert sync_form(text) == 'with Client() as one:  # await\n    x = "await AsyncClient"\n'


def test_several_changes_in_one_line_keep_their_places():
    text = "async def f():\n    return await g(await h(AsyncClient), __aenter__)\n"
    assert sync_form(text) == "def f():\n    return g(h(Client), __enter__)\n"
