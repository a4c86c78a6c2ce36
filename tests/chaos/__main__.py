"""`python -m tests.chaos`: one run with real processes, a verdict table, exit code 1 where a promise broke."""

import argparse
import logging
import secrets
import shutil
import signal
import tempfile
import time
from pathlib import Path

import uvloop

from service import logs
from tests.chaos.plan import Sizes
from tests.chaos.report import told
from tests.chaos.run import chaos


def main() -> int:
    """Run, print, and keep the folder where something broke."""
    given = _arguments()
    logs.configure("console", level=logging.ERROR)
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)  # that a connection dies is what this is about
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))  # either way nothing is left running
    seed = secrets.randbelow(1_000_000) if given.seed is None else given.seed
    sizes = Sizes(given.deliveries, given.worker_kills, given.api_kills, given.postgres_kills)
    folder = Path(tempfile.mkdtemp(prefix="tocsin-chaos-"))
    _say(f"seed {seed}")
    outcome = uvloop.run(chaos(folder, seed, sizes, _say))
    print(told(outcome))  # noqa: T201
    if outcome.held:
        shutil.rmtree(folder)
        return 0
    _say(f"what the processes said, and the database, is kept in {folder}")
    return 1


def _say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", flush=True)  # noqa: T201


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, help="of the plan; a new one where none is given")
    parser.add_argument("--deliveries", type=int, default=50_000)
    parser.add_argument("--worker-kills", type=int, default=200)
    parser.add_argument("--api-kills", type=int, default=20)
    parser.add_argument("--postgres-kills", type=int, default=10)
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
