"""Whether tests of the nightly run, such as training and long soaks, take part."""

import os


def nightly() -> bool:
    """Return whether `make nightly` runs the tests."""
    return bool(os.environ.get("STEERSMAN_NIGHTLY"))
