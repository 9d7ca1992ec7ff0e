"""A program that spreads work over the cluster at an address, and prints what came of it."""

import json
import sys
import time
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path

import numpy as np

from steersman.errors import ClusterError, InputError
from steersman.training.parallel_map import spread

ITEMS = 6


def product(marks, item, rng):
    """Leave a mark that says where it runs, take a while, and return a digest of some numbers."""
    import ray  # noqa: PLC0415 (on the node that it runs on)

    node = ray.get_runtime_context().get_node_id()
    with (marks / f"{item}-{node}").open("x"):
        pass
    time.sleep(0.5)
    return (rng.normal(size=(40, 40)) @ rng.normal(size=(40, 40))).tobytes().hex()


def refused(item):
    """Raise an error of ours."""
    message = f"item {item} is refused"
    raise InputError(message)


def last(_item):
    """End the process that it runs in."""
    import os  # noqa: PLC0415

    os._exit(1)


def _said(function, address):
    try:
        list(spread(function, [1], address=address))
    except (InputError, ClusterError) as error:
        return [type(error).__name__, str(error)]
    return None


if __name__ == "__main__":
    where, what = sys.argv[1:]
    with redirect_stdout(sys.stderr):  # where Ray tells of lost nodes
        if what == "errors":
            found = [_said(refused, where), _said(last, where)]
        else:
            function = partial(product, Path(what))
            found = list(spread(function, np.arange(ITEMS), address=where, seed=3))
    sys.stdout.write(json.dumps(found))
