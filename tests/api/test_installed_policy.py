"""A faulty or missing policy of another distribution harms neither the log nor other points."""

from __future__ import annotations

import pytest

from steersman.db import points
from steersman.db.declarations import declare
from tests.api.rollouts import DECIDE
from tests.points.test_own_policy import CODE, DECLARED, forget, installed_code

TONE = {"skill": "support", "decision": "tone", "context": {}}
SCORES = "        return means, power / power.sum()\n"


@pytest.mark.parametrize(
    "scores",
    [
        "        return means, np.array([1.6, 0.2, 0.2])\n",
        "        return means, np.array([-0.2, 0.6, 0.6])\n",
        "        return means, np.full(3, np.nan)\n",
        "        raise KeyError('weights')\n",
    ],
    ids=["sum 2", "negative", "nan", "error"],
)
async def test_decide_with_a_faulty_policy_answers_with_the_fallback(
    database, tenant, serving, tmp_path, monkeypatch, scores
) -> None:
    with installed_code(tmp_path, monkeypatch, CODE.replace(SCORES, scores)):
        await declare(database, tenant.id, DECLARED, actor="test")
        async with serving() as s:
            for body in (TONE, {"requests": [TONE, TONE]}):
                answer = await s.ask("POST", "/v1/decide", body)
                assert answer.status == 200
                for decision in answer.body.get("decisions", [answer.body]):
                    assert decision["degraded"] is True
                    assert decision["propensity"] == 1.0


async def test_a_process_without_the_policy_takes_events_of_other_points(
    database, tenant, serving, tmp_path, monkeypatch
) -> None:
    with installed_code(tmp_path, monkeypatch, CODE):
        await declare(database, tenant.id, DECLARED, actor="test")
    points._parsed.cache_clear()
    monkeypatch.undo()
    forget()
    async with serving() as s:
        decided = await s.ask("POST", "/v1/decide", DECIDE)
        event = {
            "event_id": "e-1",
            "decision_id": decided.body["decision_id"],
            "type": "feedback.submit",
            "outcomes": {"clicked": 1.0},
        }
        assert (await s.ask("POST", "/v1/feedback.submit", event)).status == 200
        missing = await s.ask("POST", "/v1/decide", TONE)
        assert missing.status == 503
        assert "boltzmann" in missing.body["detail"]
