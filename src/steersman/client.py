"""Names of the distribution ``steersman-client``, re-exported."""

from steersman_client import *  # noqa: F403
from steersman_client import __all__ as __all__  # noqa: PLC0414 - explicit re-export
