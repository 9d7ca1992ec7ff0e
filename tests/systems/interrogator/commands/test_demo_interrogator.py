"""The interrogator's demo: as a person runs it, and over a real service that learns."""

import json
from contextlib import ExitStack, contextmanager
from itertools import pairwise

import click
import numpy as np
import pytest
from click.testing import CliRunner

from steersman.cli import main
from steersman.cli.options import run
from steersman.client import Client
from steersman.errors import DataError, InputError
from steersman.errors.install_hint import how_to_install
from steersman.platform.postgres.database import as_tenant
from steersman.retrieval.dense import MiniLM
from steersman_systems.interrogator.answer_cache import MemoryCache
from steersman_systems.interrogator.answers import OptionAnswerer
from steersman_systems.interrogator.choosers import Learned, worth
from steersman_systems.interrogator.demo.command import _sets, read_embedding
from steersman_systems.interrogator.demo.http_choosers import ServiceChooser, serving
from steersman_systems.interrogator.demo.tables import _is_told
from steersman_systems.interrogator.investigation import investigate
from steersman_systems.interrogator.point import load_point
from steersman_systems.interrogator.questions import load_questions
from steersman_systems.interrogator.state import Situation
from steersman_systems.interrogator.step_log import record_steps
from steersman_systems.interrogator.targets import Target

SIZE = 384


class Letters:
    """An embedder that needs no extra: texts by the counts of their pairs of letters."""

    name, size = "letters", SIZE

    def encode(self, texts):
        rows = np.full((len(texts), SIZE), 0.01, np.float32)
        for row, text in zip(rows, texts, strict=True):
            for one, other in pairwise(text):
                row[(ord(one) * 31 + ord(other)) % SIZE] += 1.0
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def target(self, text):
        return Target.of_vector(self.encode([text])[0].astype(np.float16), name=text, text=text)


TEXTS = ("book a flight to rome", "what is the weather", "play some music", "my blood pressure")
QUESTIONS = load_questions()


@pytest.fixture(scope="module")
def targets():
    return tuple(Letters().target(text) for text in TEXTS)


@pytest.fixture(scope="module")
def log(targets):
    answerer = OptionAnswerer(Letters(), MemoryCache())
    rng = np.random.default_rng(0)
    return record_steps(targets, answerer, questions=QUESTIONS, rng=rng, steps=60)


@contextmanager
def _served(database, home, log, targets):
    vectors = np.array([target.vector for target in targets])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATABASE_URL", database.url)
        with serving(home, log, vectors, say=lambda _: None) as running:
            yield running


@pytest.fixture(scope="module")
def running(database, home, log, targets):
    with _served(database, home, log, targets) as serving_it:
        yield serving_it


def _investigated(target, chooser, limit=6):
    answerer = OptionAnswerer(Letters(), MemoryCache())
    rng = np.random.default_rng(1)
    return investigate(target, questions=QUESTIONS, chooser=chooser, answerer=answerer, rng=rng,
                       limit=limit)  # fmt: skip


async def _rows(running, statement):
    connection = await running.service.database.connect("app")
    try:
        async with as_tenant(connection, running.service.tenant.id):
            return [tuple(row) for row in await connection.fetch(statement)]
    finally:
        await connection.close()


def _learned_from(log, targets):
    """Return the chooser of this process after the log, step by step as the service learns it."""
    point = load_point(QUESTIONS)
    learned = Learned.declared(point)
    vectors = np.array([target.vector for target in targets])
    rewards = log.rewards(point.reward)
    rows = log.encoded(vectors, learned.encoder)
    for x, action, reward in zip(rows, log.actions, rewards, strict=True):
        learned.policy.learn(x, action, reward)
    return point, learned


@pytest.mark.slow
def test_service_and_process_decide_alike_from_the_same_state(running, log, targets):
    point, learned = _learned_from(log, targets)
    asking = ServiceChooser(running.client, point)
    drawn = set()
    for target in targets * 4:
        opening = OptionAnswerer(Letters(), MemoryCache()).open(QUESTIONS.opening, target.vector)
        situation = Situation.at_start(QUESTIONS, target.vector, opening)
        served = asking.choose(situation, np.random.default_rng(0))
        assert served.by == "lin_ts"
        alone = learned.choose(situation, np.random.default_rng(0)).distribution
        place = QUESTIONS.names.index(served.action)
        assert served.propensity == alone[place]
        # The whole distribution is told in 32 bits, what was drawn in 64.
        np.testing.assert_allclose(served.distribution, alone, rtol=2**-24, atol=1e-12)
        drawn.add(served.action)
    assert len(drawn) > 3
    assert {one.update_seq for one in asking.asked} == {len(log)}
    told = running.client.explain(asking.asked[0], recompute=True, timeout_ms=30_000)
    assert told["recomputed"]["same"] is True


@pytest.mark.slow
def test_what_each_question_brought_is_learned_and_the_log_is_evidence(running, log, targets):
    asking = ServiceChooser(running.client, load_point(QUESTIONS))
    done = _investigated(targets[1], asking)
    running.learned()
    assert [step.drawn.action for step in done.steps] == [one.action for one in asking.asked]
    assert len({step.situation.step for step in done.steps}) == len(done.steps) > 3
    kinds = dict(run(_rows(running, "SELECT p_kind, count(*) FROM decision GROUP BY 1")))
    assert kinds["imported"] == len(log)
    propensities = run(
        _rows(running, "SELECT p FROM decision WHERE p_kind = 'imported' ORDER BY at")
    )
    assert [p for (p,) in propensities] == log.propensity.tolist()
    earned = dict(run(_rows(running, "SELECT decision, value FROM reward")))
    reward = load_point(QUESTIONS).reward
    for step, decision in zip(done.steps, asking.asked, strict=True):
        assert decision.propensity == step.drawn.propensity
        assert earned[decision.decision_id] == pytest.approx(worth(reward, step.outcomes), abs=1e-9)
    episodes = run(_rows(running, "SELECT DISTINCT episode FROM decision WHERE p_kind = 'exact'"))
    assert any(name.startswith("investigation-") for (name,) in episodes)


@pytest.mark.slow
def test_two_tenants_learn_apart(running, database, home, log, targets):
    other = home / "other"
    other.mkdir(exist_ok=True)
    with _served(database, other, None, targets) as second:
        asking = ServiceChooser(second.client, load_point(QUESTIONS))
        _investigated(targets[0], asking, limit=2)
        second.learned()
        assert asking.asked[0].update_seq == 0  # nothing of the first one's log
        mine = run(_rows(second, "SELECT count(*) FROM decision"))
        assert mine == [(2,)]
        theirs = {row[0] for row in run(_rows(running, "SELECT id FROM decision"))}
        assert not theirs & {one.decision_id for one in asking.asked}


class _Stopping(ServiceChooser):
    """Asks a service that is gone from its third question on."""

    stop = None

    def choose(self, situation, rng):
        if situation.step == 2:
            self.stop()
        return super().choose(situation, rng)


@pytest.mark.slow
def test_the_heuristic_goes_on_when_the_service_is_gone(database, home, targets):
    folder = home / "gone"
    folder.mkdir(exist_ok=True)
    with ExitStack() as service:
        dying = service.enter_context(_served(database, folder, None, targets))
        url, key = dying.service.urls[0], dying.service.key
        with Client(url, key, queue_dir=folder / "own", retries=0) as client:
            chooser = _Stopping(client, load_point(QUESTIONS))
            chooser.stop = service.close
            done = _investigated(targets[2], chooser, limit=5)
            assert [step.drawn.by for step in done.steps] == ["lin_ts"] * 2 + ["heuristic"] * 3
            assert all(step.drawn.propensity == 1.0 for step in done.steps[2:])
            assert chooser.unanswered == 3
            # What it decided itself waits on disk, so that the service learns of it one day.
            assert client.backlog().records == 3


# -- the command -----------------------------------------------------------------------------------


def _demo(*arguments):
    return CliRunner().invoke(main, ["demo", "interrogator", *map(str, arguments)])


@pytest.fixture
def model():
    pytest.importorskip("onnxruntime")
    try:
        return MiniLM()
    except DataError as missing:
        pytest.skip(str(missing))


@pytest.mark.usefixtures("model")
def test_an_investigation_is_shown_step_by_step(tmp_path):
    file = tmp_path / "one.json"
    ran = _demo("--text", "what is the weather in Paris", "--targets", 0, "--json", file)
    assert ran.exit_code == 0, ran.output
    told = json.loads(file.read_text())
    assert told["rl"] is False
    steps = told["investigation"]["steps"]
    assert steps[0]["question"] == "field"
    assert all(step["by"] == "heuristic" and step["propensity"] == 1.0 for step in steps)
    reached = [told["investigation"]["opening"]["similarity"]]
    for step in steps:
        assert step["similarity"] == pytest.approx(reached[-1] + step["gain"], abs=1e-12)
        reached.append(step["similarity"])
        assert step["question"] in ran.output
    assert told["investigation"]["similarity"] == reached[-1] > reached[0]


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.usefixtures("model")
def test_the_comparison_measures_all_that_the_gate_wants(tmp_path):
    file = tmp_path / "compared.json"
    ran = _demo("--text", "rain", "--targets", 2, "--json", file)
    assert ran.exit_code == 0, ran.output
    report = json.loads(file.read_text())["comparison"]
    found = report["sets"]["bfcl"]
    assert found["searched"] == 2
    states = {one["measure"]: one["state"] for one in found["gate"]["measures"]}
    assert "not_measured" not in states.values()
    assert len(states) == 6
    for words in (
        "bfcl: 2 targets, 1 seed ",
        "reached 90 %",
        "calls saved",
        "questions to .90",
    ):
        assert words in ran.output
    for state, words in (("failed", "failed: "), ("unknown", "cannot be known")):
        assert (words in ran.output) == (state in states.values())


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize(
    ("vector", "words"),
    [
        (np.zeros(SIZE), "zero vector"),
        (np.ones(10), r"shape \(10,\)"),
        (np.full(SIZE, np.nan), "nan"),
        (np.ones((2, SIZE)), "shape"),
    ],
)
def test_what_is_no_embedding_is_told(tmp_path, vector, words):
    file = tmp_path / "vector.npy"
    np.save(file, vector)
    with pytest.raises(InputError, match=words):
        read_embedding(file, SIZE)
    ran = _demo("--embedding", file, "--targets", 0)
    assert ran.exit_code == 1
    assert "Error: " in ran.output


def test_an_embedding_is_read_and_a_damaged_one_told(tmp_path):
    file = tmp_path / "vector.npy"
    np.save(file, np.arange(SIZE, dtype=np.float32))
    assert read_embedding(file, SIZE).vector @ read_embedding(file, SIZE).vector == pytest.approx(1)
    for content in (b"", b"no array", file.read_bytes()[:200]):
        (tmp_path / "broken.npy").write_bytes(content)
        with pytest.raises(DataError, match=r"not a readable \.npy file"):
            read_embedding(tmp_path / "broken.npy", SIZE)
    np.savez(tmp_path / "several.npz", one=np.ones(SIZE))
    archive = (tmp_path / "several.npz").read_bytes()
    for content in (archive, archive[:60]):
        (tmp_path / "zip.npy").write_bytes(content)
        with pytest.raises(DataError, match=r"not a readable \.npy file"):
            read_embedding(tmp_path / "zip.npy", SIZE)
    np.save(tmp_path / "complex.npy", np.full(SIZE, 1 + 1j))
    with pytest.raises(InputError, match="real numbers"):
        read_embedding(tmp_path / "complex.npy", SIZE)
    with pytest.raises(DataError, match=r"not a readable \.npy file"):
        read_embedding(tmp_path / "missing.npy", SIZE)
    np.save(tmp_path / "object.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(DataError, match=r"not a readable \.npy file"):
        read_embedding(tmp_path / "object.npy", SIZE)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--text", "a", "--target", "1"], "give one of them"),
        (["--answerer", "llm"], "--llm-url"),
        (["--html", "x.html", "--targets", "0"], "--html"),
        (["--target", "0"], "--target"),
        (["--targets", "1"], "2 or more"),
        (["--text", "a", "--sets", "bfcl,nosuch", "--targets", "0"], "unknown set: nosuch"),
        (["--text", "a", "--sets", ","], "no set given"),
        (["--targets", "-1"], "--targets"),
        (["--metrics", "counts.txt"], "must end in .prom"),
        (["--answerer", "oracle"], "--answerer"),
    ],
)
def test_bad_usage(arguments, words):
    ran = _demo(*arguments)
    assert ran.exit_code == 2
    assert words in ran.output


def test_any_folder_of_the_data_can_be_named(tmp_path):
    (tmp_path / "mine").mkdir()
    assert _sets({"sets": "mine, bfcl", "data": tmp_path}) == ["mine", "bfcl"]
    with pytest.raises(click.BadParameter, match=r"unknown set: yours; .* and folders of --data"):
        _sets({"sets": "yours", "data": tmp_path})


def test_that_a_page_cannot_be_drawn_is_told_before_anything_is_compared(monkeypatch):
    monkeypatch.setattr("steersman_systems.interrogator.demo.command.find_spec", lambda _: None)
    ran = _demo("--text", "a", "--html", "x.html")
    assert ran.exit_code == 1
    advice = how_to_install("demo")
    assert ran.output == f"Error: --html needs matplotlib; install it with: {advice}\n"


def test_a_difference_that_nobody_can_have_is_not_shown_as_none():
    reached, never = {"solved": 0.5}, {"solved": 0.0}
    arms = {"heuristic": {"steps_to_090": never}, "warm": {"steps_to_090": never}}
    assert not _is_told(arms, "warm", "steps_to_090")
    assert _is_told(arms, "warm", "similarity")
    assert _is_told(arms | {"heuristic": {"steps_to_090": reached}}, "warm", "steps_to_090")
