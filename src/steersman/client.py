"""The Python SDK, re-exported from the distribution ``steersman-client`` name for name."""

from steersman_client import *  # noqa: F403
from steersman_client import __all__ as __all__  # noqa: PLC0414 - explicit re-export
