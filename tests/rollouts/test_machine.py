"""Only legal actions, from any status, in any order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from steersman.errors import ActionNotAllowedError, RolloutError
from steersman.rollouts.state_machine import ACTIONS, STATUSES, UNDER_WAY, legal_actions, next_of

LEGAL = {
    None: {"start"},
    "running": {"pause", "promote", "rollback", "freeze"},
    "paused": {"resume", "rollback", "freeze"},
    "promoted": {"rollback", "freeze"},
    "rolled_back": {"freeze"},
    "aborted": set(),
}


@pytest.mark.parametrize("status", [None, *STATUSES])
def test_the_table_of_legal_actions(status):
    assert set(legal_actions(status)) == LEGAL[status]
    for action in ACTIONS:
        if action in LEGAL[status]:
            assert next_of(status, action) in STATUSES
        else:
            with pytest.raises(ActionNotAllowedError) as caught:
                next_of(status, action)
            for legal in LEGAL[status]:
                assert legal in str(caught.value)
    assert issubclass(ActionNotAllowedError, RolloutError)


def test_where_actions_lead():
    assert next_of(None, "start") == "running"
    assert next_of("running", "pause") == "paused"
    assert next_of("paused", "resume") == "running"
    assert next_of("running", "promote") == "running"
    assert next_of("running", "promote", last=True) == "promoted"
    assert next_of("running", "rollback") == "rolled_back"
    assert next_of("running", "rollback", served=False) == "aborted"
    assert next_of("promoted", "rollback") == "rolled_back"
    assert next_of("running", "freeze") == "paused"
    assert next_of("promoted", "freeze") == "promoted"


def test_a_frozen_point_is_frozen_once_and_resumed():
    assert "freeze" not in legal_actions("promoted", frozen=True)
    assert next_of("promoted", "resume", frozen=True) == "promoted"
    assert next_of("rolled_back", "resume", frozen=True) == "rolled_back"
    assert next_of("aborted", "resume", frozen=True) == "aborted"  # or it stayed so for ever
    with pytest.raises(ActionNotAllowedError, match="resume is not allowed"):
        next_of("promoted", "resume")


def test_nothing_is_said_of_nothing():
    with pytest.raises(ActionNotAllowedError, match="was not started; allowed now: start"):
        next_of(None, "pause")
    with pytest.raises(ActionNotAllowedError, match="start another rollout"):
        next_of("aborted", "resume")


@given(st.sampled_from([None, *STATUSES]), st.sampled_from(ACTIONS), st.booleans())
def test_legal_is_what_does_not_raise(status, action, frozen):
    legal = action in legal_actions(status, frozen=frozen)
    try:
        next_of(status, action, frozen=frozen)
    except ActionNotAllowedError:
        assert not legal
    else:
        assert legal


class Rollouts(RuleBasedStateMachine):
    """People press buttons in any order."""

    status = None
    frozen = False
    ended = False

    @rule(action=st.sampled_from(ACTIONS), last=st.booleans(), served=st.booleans())
    def press(self, action, last, served):
        before = self.status
        try:
            after = next_of(before, action, last=last, served=served, frozen=self.frozen)
        except ActionNotAllowedError:
            return
        assert action in legal_actions(before, frozen=self.frozen)
        self.status = after
        self.frozen = (self.frozen or action == "freeze") and action != "resume"
        self.ended = self.ended or after not in UNDER_WAY

    @precondition(lambda self: self.ended)
    @invariant()
    def what_ended_never_serves_again(self):
        assert self.status not in UNDER_WAY

    @precondition(lambda self: self.status == "aborted")
    @invariant()
    def nothing_follows_an_abort_but_what_it_froze_goes_on(self):
        assert legal_actions(self.status, frozen=self.frozen) == ("resume",) * self.frozen


TestRollouts = Rollouts.TestCase
