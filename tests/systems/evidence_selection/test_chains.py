"""Credit goes from who holds the answer to who leads there, and not to who holds it by chance."""

from dataclasses import replace

import numpy as np
import pytest

from steersman_systems.evidence_selection.chains import Chains
from steersman_systems.evidence_selection.collection import Collection
from steersman_systems.evidence_selection.environment import Environment, Limits
from steersman_systems.evidence_selection.question import Question
from steersman_systems.evidence_selection.raft_training import feedback
from steersman_systems.evidence_selection.tasks import EvidenceTask
from steersman_systems.evidence_selection.training.raft import by_task, causes

NAMES = ["Abel", "Bruno", "Carla", "Doris", "Edgar", "Fiona", "Gerda", "Hanna", "Ivana", "Jakob"]
RULES = Environment(Limits(picks=2, may_stop=False, expanding="always"))


@pytest.fixture(scope="module")
def tasks():
    """A work's page names its maker, whose page has the town; so has a page that is about bells."""
    rows = []
    for number, name in enumerate(NAMES):
        rows += [
            (f"work{number}", f"Work {name}", f"The painting Work {name} is by {name} Stone."),
            (f"maker{number}", f"{name} Stone", f"Born in town{number}, lived long."),
            (f"bells{number}", f"Bells {number}", f"Bells of town{number} were born in {name}."),
            (f"more{number}", f"More {number}", f"Born painting work: {name}, a name."),
        ]
    collection = Collection.of_texts(rows)
    found = []
    for number, name in enumerate(NAMES):
        question = Question(
            f"q{number}", f"Where was the maker of Work {name} born?",
            answers=(f"town{number}",), gold=(f"work{number}", f"maker{number}"),
        )  # fmt: skip
        found.append(EvidenceTask(collection.pool(question, size=8), RULES))
    return found


def _known(number, *, told=True):
    holds = {f"maker{number}": 1.0, f"bells{number}": 1.0} if told else {}
    return {f"work{number}": 0.0, f"more{number}": 0.0, f"maker{number}": 0.0,
            f"bells{number}": 0.0, **holds}  # fmt: skip


def test_what_leads_to_the_answer_is_needed_and_what_holds_it_by_chance_is_not(tasks):
    needed = Chains()(tasks, {f"q{number}": _known(number) for number in range(len(NAMES))})
    for number in range(len(NAMES)):
        own = needed[f"q{number}"]
        assert set(sorted(own, key=own.get)[-2:]) == {f"work{number}", f"maker{number}"}
        assert own[f"bells{number}"] < 0.5
        assert sum(own.values()) == pytest.approx(2.0), "one with the answer, one support"


def test_questions_with_feedback_teach_what_others_need(tasks):
    """Of the last question nothing ever came out right, as where the answer is yes."""
    known = {f"q{number}": _known(number, told=number < 9) for number in range(10)}
    own = Chains()(tasks, known)["q9"]
    assert set(sorted(own, key=own.get)[-2:]) == {"work9", "maker9"}


def test_where_nothing_ever_came_out_right_nothing_is_passed_on(tasks):
    mute = {f"q{number}": _known(number, told=False) for number in range(10)}
    assert Chains()(tasks, mute) == {}
    assert Chains()(tasks, {}) == {}
    assert Chains()(tasks[:1], {"q0": {"maker0": 1.0}}) == {}, "one passage is no pair"


def test_of_many_questions_some_teach_and_all_are_told(tasks):
    known = {f"q{number}": _known(number) for number in range(10)}
    needed = Chains(fitted=4)(tasks, known)
    assert needed.keys() == known.keys()
    assert needed != Chains()(tasks, known), "it is another model"
    same = Chains(fitted=4)(tasks, known | {"q1": _known(1, told=False)})
    assert same["q0"] == needed["q0"], "the first, the last and two between are fitted to"
    for number, own in ((number, needed[f"q{number}"]) for number in range(10)):
        assert set(sorted(own, key=own.get)[-2:]) == {f"work{number}", f"maker{number}"}


def test_it_looks_at_no_gold_and_says_the_same_again(tasks):
    blind = [
        replace(task, pool=replace(task.pool, question=replace(task.pool.question, gold=("x",))))
        for task in tasks
    ]
    known = {f"q{number}": _known(number) for number in range(10)}
    assert Chains()(tasks, known) == Chains()(blind, known)


def test_a_question_without_candidates_needs_nothing(tasks):
    """Words alone, and a question that shares none with any passage."""
    pool = tasks[0].pool.collection.pool(Question("none", "Zzyzx?", answers=("q",)), size=8)
    empty = EvidenceTask(pool, RULES)
    assert not pool.candidates
    log = feedback([*tasks, empty], picks=2, each=40)
    alone = {name: causes(of_one) for name, of_one in by_task(log).items()}
    assert alone["none"] == {}
    needed = Chains()([*tasks, empty], alone)
    assert needed.pop("none") == {}
    assert needed == Chains()(tasks, alone)


def test_from_a_log_to_what_is_needed(tasks):
    """Selections that explore, whether an answer stands in them, and nothing else."""
    log = feedback(tasks, picks=2, each=40)
    assert {one.reward for one in log} == {0.0, 1.0}
    alone = {name: causes(of_one) for name, of_one in by_task(log).items()}
    needed = Chains()(tasks, alone)
    found = [set(sorted(own, key=own.get)[-2:]) for own in needed.values()]
    right = [one == set(task.pool.question.gold) for one, task in zip(found, tasks, strict=True)]
    assert np.mean(right) >= 0.9
