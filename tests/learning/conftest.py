"""Fixtures of the learner tests."""

import pytest

from tests.learning.shipping_world import registry_of


@pytest.fixture
def signer(tmp_path):
    return lambda tenant: registry_of(tmp_path, tenant)
