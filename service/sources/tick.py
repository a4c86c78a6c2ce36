"""Source `tick`: each run is one event, for receivers that only want to hear the bell."""

import json

from service.domain.errors import ConfigurationError
from service.domain.job import JobConfig
from service.domain.model import Found, LeasedRun
from service.domain.timestamps import format_rfc3339
from service.store.database import Tx


class TickSource:
    """One event per run: subject is the job, version the cutoff in microseconds since 1970."""

    def __init__(self, job: JobConfig) -> None:
        """Raise `ConfigurationError` when the job names no event type."""
        if job.event_type is None:
            message = f'jobs."{job.name}".event_type is missing: a tick source needs the type of its event'
            raise ConfigurationError(message)
        self._type = job.event_type

    async def discover(self, tx: Tx, run: LeasedRun, limit: int) -> list[Found]:  # noqa: ARG002 - the protocol's shape
        """Return the run's one event, and nothing once it is stored."""
        if run.events:
            return []
        data = json.dumps(
            {"job": run.job, "runId": run.run_id, "cutoff": format_rfc3339(run.cutoff)}, ensure_ascii=False
        )
        return [Found(type=self._type, subject=str(run.id), version=1, data=data)]
