"""Nothing may be due, and no rollout under way, that other tests left."""

from tests.learn.conftest import _no_work_of_others  # noqa: F401
