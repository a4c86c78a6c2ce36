"""The short form of chaos: real processes are killed and stopped while deliveries flow, and every promise is kept.

`make chaos` is the long form; docs/chaos.md says what is done and what is looked at.
"""

import tempfile
from pathlib import Path

import pytest

from tests.chaos import plan
from tests.chaos.plan import Blow, Sizes
from tests.chaos.report import told
from tests.chaos.run import chaos

SHORT = Sizes(deliveries=1500, worker_kills=6, api_kills=1, postgres_kills=1)
SEED = 1


@pytest.mark.timeout(240)
async def test_every_promise_is_kept_while_everything_is_killed() -> None:
    # Not pytest's own folder: each pytest of this user that starts closes it to the account of PostgreSQL.
    with tempfile.TemporaryDirectory(prefix="tocsin-chaos-") as folder:
        outcome = await chaos(Path(folder), SEED, SHORT, print)
    assert outcome.held, told(outcome)
    assert len(outcome.record.deliveries) >= SHORT.deliveries
    done = [trouble.what for trouble in outcome.record.troubles]
    assert (done.count(Blow.WORKER_KILL), done.count(Blow.API_KILL), done.count(Blow.POSTGRES_KILL)) == (6, 1, 1)


def test_the_seed_decides_the_plan() -> None:
    assert plan.steps(SEED, SHORT) == plan.steps(SEED, SHORT) != plan.steps(SEED + 1, SHORT)
    assert plan.events(SEED, SHORT) == plan.events(SEED, SHORT) != plan.events(SEED + 1, SHORT)
