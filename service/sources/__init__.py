"""What a run discovers: one file per source, loaded through the entry-point group `tocsin.sources`."""

from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol

from service.domain.errors import ConfigurationError
from service.domain.job import JobConfig
from service.domain.model import Found, LeasedRun
from service.store.database import Tx

GROUP = "tocsin.sources"


class Source(Protocol):
    """One way to discover due work; made once per job with its configuration.

    A source of your own is a class whose constructor takes the `JobConfig`, registered under `tocsin.sources`.
    """

    def __init__(self, job: JobConfig) -> None:
        """Check the job's configuration; raises `ConfigurationError` where it cannot work."""

    async def discover(self, tx: Tx, run: LeasedRun, limit: int) -> list[Found]:
        """Find up to `limit` facts due at `run.cutoff` and, in the same transaction, mark them as found.

        Called again and again, each time in a new short transaction that also stores the events, until it returns
        none. A crash between two calls loses nothing, because what was found is marked by then. Raises
        `DiscoveryFailed` with a reason that an operator can act on; the transaction is rolled back.
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
