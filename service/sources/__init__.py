"""What a run discovers: one file per source, loaded through the entry-point group `tocsin.sources`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Protocol

from service.domain.errors import ConfigurationError
from service.domain.job import JobConfig
from service.domain.model import Found, LeasedRun
from service.store.database import Tx

GROUP = "tocsin.sources"


@dataclass(frozen=True, slots=True)
class Worked:
    """A page that did something and found no fact; there may be more.

    `progress` is JSON of at most 16 KiB. It is stored in the page's transaction, handed back as `run.progress` to the
    next page, and shown with the run. Between such pages discovery rests, and lets runs that wait go first.
    """

    progress: Mapping[str, Any]


class Source(Protocol):
    """One way to discover due work; made once per job with its configuration.

    A source of your own is a class whose constructor takes the `JobConfig`, registered under `tocsin.sources`.
    """

    def __init__(self, job: JobConfig) -> None:
        """Check the job's configuration; raises `ConfigurationError` where it cannot work."""

    async def discover(self, tx: Tx, run: LeasedRun, limit: int) -> list[Found] | Worked:
        """Find up to `limit` facts due at `run.cutoff` and, in the same transaction, mark them as found.

        Called again and again, each time in a new short transaction that also stores the events, until it returns an
        empty list. A source that does work of its own and finds nothing returns `Worked`. A crash between two calls
        loses nothing, because what was found is marked by then. Raises `DiscoveryFailed` with a reason that an operator
        can act on; the transaction is rolled back.
        """
        ...


def load(jobs: Iterable[JobConfig]) -> dict[str, Source]:
    """Make the source of each job, by job name.

    Raises:
        ConfigurationError: a job names a source that is not installed, or its options cannot work.

    """
    known = {entry.name: entry for entry in entry_points(group=GROUP)}
    return {job.name: _make(job, known) for job in jobs}


def _make(job: JobConfig, known: Mapping[str, EntryPoint]) -> Source:
    entry = known.get(job.source)
    if entry is None:
        listed = ", ".join(sorted(known))
        message = f'jobs."{job.name}".source is not installed: use one of {listed}'
        raise ConfigurationError(message)
    source: Source = entry.load()(job)
    return source
