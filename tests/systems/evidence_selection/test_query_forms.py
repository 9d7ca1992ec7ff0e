"""Five forms of a query; which one a turn needs is learned from the reward of what was drawn."""

import numpy as np
import pytest

from steersman.errors import InputError
from steersman.providers.judges.judge import Judge, Retry
from steersman_systems.evidence_selection.form_trial import (
    FormTable,
    compare_forms,
    load_form_point,
    tabulate,
)
from steersman_systems.evidence_selection.query_forms import (
    BackendRewrite,
    KeywordRewrite,
    query_forms,
    rewriting_prompt,
    whole_history,
)
from steersman_systems.evidence_selection.question import Question, Turn
from steersman_systems.evidence_selection.turn_features import turn_features
from tests.providers.chat_server import chat_server
from tests.providers.scripted import judge_at
from tests.systems.evidence_selection.bands import bands

TALK = Question(
    "q",
    "Where was she born?",
    (
        Turn("user", "Who was Marie Curie?"),
        Turn("agent", "Marie Curie was a chemist. Curie found radium. Curie won."),
    ),
)
RARITY = {"curi": 5.0, "mari": 4.0, "radium": 9.0, "chemist": 3.0, "born": 2.0}


@pytest.fixture(scope="module")
def server():
    with chat_server() as running:
        yield running


def test_keywords_are_weighed_by_rarity_age_and_speaker():
    # curie: 5 + .3 · 3 · 5; marie: 4 + .3 · 4; radium: .3 · 9; chemist: .3 · 3.
    assert KeywordRewrite(RARITY.get, most=4)(TALK) == (
        "Where was she born? curie marie radium chemist"
    )
    assert KeywordRewrite(RARITY.get, most=1)(TALK) == "Where was she born? curie"


def test_keywords_that_the_question_has_or_nobody_knows_are_not_added():
    question = Question("q", "Is radium rare?", TALK.history)
    assert KeywordRewrite({"radium": 9.0}.get)(question) == "Is radium rare?"
    with pytest.raises(InputError, match="most is 0; allowed: 1 to 20"):
        KeywordRewrite(RARITY.get, most=0)


def test_a_turn_said_longer_ago_counts_less():
    history = (Turn("user", "Of chemist X"), Turn("agent", ""), Turn("user", "Of radium?"))
    rewrite = KeywordRewrite({"chemist": 1.3, "radium": 1.0}.get, most=1)
    assert rewrite(Question("q", "Why?", history)) == "Why? radium"


def test_a_long_history_is_cut_at_its_beginning():
    long = Question("q", "last words", (Turn("user", "x" * 30_000),))
    assert len(whole_history(long)) == 20_000
    assert whole_history(long).endswith("last words")


def test_without_a_model_there_is_no_form_rewrite():
    collection = bands().collection
    assert list(query_forms(collection)) == ["last", "last_two", "history", "keywords"]


@pytest.mark.parametrize(
    ("said", "query"),
    [
        ("Where was Marie Curie born?", "Where was Marie Curie born?"),
        ('\nRewritten question: "Where was Curie born?"\nI hope', "Where was Curie born?"),
    ],
)
def test_a_model_rewrites(server, said, query):
    server.asked.clear()
    server.answer, server.mode = said, None
    rewrite = BackendRewrite(judge_at(server), whole_history)
    assert rewrite(TALK) == query
    assert rewrite.failures == 0
    assert server.asked[0][2]["messages"][0]["content"] == rewriting_prompt(TALK)
    assert rewrite(Question("q", "alone")) == "alone"
    assert len(server.asked) == 1


@pytest.mark.parametrize("said", ["", " \n ", "x" * 401])
def test_what_is_no_question_is_counted_and_keywords_stand_in(server, said):
    server.answer, server.mode = said, None
    rewrite = BackendRewrite(judge_at(server), lambda _: "instead")
    assert (rewrite(TALK), rewrite(TALK), rewrite.failures) == ("instead", "instead", 2)


def test_a_server_that_fails_is_counted(server):
    server.answer, server.mode = "unused", None
    judge = judge_at(server, "broken", retry=Retry(tries=1))
    rewrite = BackendRewrite(judge, lambda _: "instead")
    assert isinstance(judge, Judge)
    assert (rewrite(TALK), rewrite.failures) == ("instead", 1)


def test_the_point_reads_every_feature_of_a_turn():
    prepared = bands(history=True)
    told = turn_features(prepared.questions[0], prepared.pools[0])
    assert set(told) == set(load_form_point().context.fields)
    alone = turn_features(prepared.questions[0])
    assert set(alone) < set(told)
    assert (told["turns"], told["told_before"] > 0, told["opening"]) == (1, True, "other")


def test_every_form_is_searched_for_every_turn():
    prepared = bands(history=True)
    table = tabulate(
        prepared.questions, prepared.collection, prepared.forms, groups=prepared.groups
    )
    assert table.names == ("last", "last_two", "history", "keywords")
    assert table.found.shape == (6, 4)
    assert (table.found >= 0.5).all()
    with pytest.raises(InputError, match="`last` is required"):
        tabulate(prepared.questions, prepared.collection, {"history": whole_history}, groups={})


def made(turns, rng):
    """A world in which turns that point back need keywords, and all others the last turn."""
    pointing = rng.random(turns) < 0.5
    last = np.where(pointing, 0.2, 0.9)
    keywords = np.where(pointing, 0.9, 0.4)
    found = np.stack([last, np.full(turns, 0.3), keywords], axis=1)
    noisy = (rng.random(found.shape) < found).astype(float)
    contexts = tuple({"pointing": 0.2 if one else 0.0, "opening": "other"} for one in pointing)
    groups = tuple(f"c{place // 4}" for place in range(turns))
    return FormTable(("last", "history", "keywords"), noisy, contexts, groups)


@pytest.mark.parametrize("orders", [0, -1])
def test_no_order_is_no_comparison(orders):
    with pytest.raises(InputError, match=f"orders is {orders}; allowed: 1 or more"):
        compare_forms(made(40, np.random.default_rng(0)), orders=orders)


@pytest.mark.slow
def test_the_learned_form_beats_every_single_one_where_turns_differ():
    found = compare_forms(made(800, np.random.default_rng(0)), orders=3)
    assert found.ahead.low > 0.1
    assert found.learned.value > max(one.value for one in found.forms.values()) + 0.1
    assert found.history_costs.value > 0.1
    assert found.shares["history"] < 0.1
    assert sum(found.shares.values()) == pytest.approx(1.0)


@pytest.mark.slow
def test_where_one_form_is_best_for_all_the_learned_one_comes_near_it():
    table = made(800, np.random.default_rng(1))
    rng = np.random.default_rng(2)
    same = (rng.random(table.found.shape) < np.array([0.5, 0.3, 0.8])).astype(float)
    alike = FormTable(table.names, same, table.contexts, table.groups)
    found = compare_forms(alike, orders=3)
    assert found.best == "keywords"
    assert found.ahead.value > -0.03
