"""Source `sql`: a statement of the operator's that marks due rows and returns one event for each."""

from collections.abc import Mapping

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from service.domain.errors import ConfigurationError, DiscoveryFailed
from service.domain.identifiers import MAX_SUBJECT_BYTES, MAX_VERSION, is_event_type
from service.domain.job import JobConfig
from service.domain.jsontext import text_fault
from service.domain.model import Found, LeasedRun
from service.store.database import Tx, is_contended, is_lost, sqlstate

_REQUIRED = ("subject", "version", "data")
_OPTIONAL = ("tenant_id", "type")
_QUERY_CANCELED = "57014"


class SqlSource:
    """Runs the job's `statement` page by page; its state change and the events of a page commit together."""

    def __init__(self, job: JobConfig) -> None:
        """Raise `ConfigurationError` when the job has no statement, or one that takes no `:cutoff` and `:limit`."""
        self._job = job
        self._statement = text(job.statement or "")
        binds = set(self._statement.compile().params)
        if not binds or not binds <= {"cutoff", "limit", "run_id"} or not binds >= {"cutoff", "limit"}:
            message = (
                f'jobs."{job.name}".statement must use :cutoff and :limit (and may use :run_id), and no other '
                "parameter; write a literal colon as \\:"
            )
            raise ConfigurationError(message)
        self._binds = binds

    async def discover(self, tx: Tx, run: LeasedRun, limit: int) -> list[Found]:
        """Run the statement once; raises `DiscoveryFailed` with the database's reason or the wrong column."""
        values = {"cutoff": run.cutoff, "limit": limit, "run_id": run.run_id}
        try:
            milliseconds = int(self._job.statement_timeout_seconds * 1000)
            await tx.conn.execute(text(f"SET LOCAL statement_timeout = {milliseconds}"))
            result = await tx.conn.execute(self._statement, {name: values[name] for name in self._binds})
            rows = result.mappings().all() if result.returns_rows else None
            await tx.conn.execute(text("SET LOCAL statement_timeout = DEFAULT"))
        except SQLAlchemyError as error:
            if sqlstate(error) != _QUERY_CANCELED and (is_lost(error) or is_contended(error)):
                raise  # the run goes on later, nothing is wrong with the job
            raise self._explained(error) from error
        if rows is None:
            message = "the statement returns no rows: end it with RETURNING subject, version, data"
            raise DiscoveryFailed(message)
        if len(rows) > limit:
            message = "the statement returned more rows than :limit; use LIMIT :limit where it picks its rows"
            raise DiscoveryFailed(message)
        return [self._found(dict(row)) for row in rows]

    def _explained(self, error: SQLAlchemyError) -> DiscoveryFailed:
        state = sqlstate(error)
        if state == _QUERY_CANCELED:
            seconds = self._job.statement_timeout_seconds
            return DiscoveryFailed(
                f"the statement ran longer than statement_timeout_seconds ({seconds:g}); "
                "lower page_size or add an index that it can use"
            )
        # The class of the database's error, never its text: that may carry values of the rows.
        origin = error.orig if isinstance(error, DBAPIError) else error
        cause = type(getattr(origin, "__cause__", None) or origin).__name__
        return DiscoveryFailed(f"the database refused the statement: {cause} (SQLSTATE {state or 'unknown'})")

    def _found(self, row: Mapping[str, object]) -> Found:
        names = set(row)
        missing = [name for name in _REQUIRED if name not in names]
        unknown = sorted(names - {*_REQUIRED, *_OPTIONAL})
        if missing or unknown:
            wanted = "subject, version, data and optionally tenant_id, type"
            faults = [f"lacks {name}" for name in missing] + [f"has an unknown column {name[:63]}" for name in unknown]
            message = f"the statement's result {'; '.join(faults)} (wanted: {wanted})"
            raise DiscoveryFailed(message)
        return Found(
            type=self._type(row),
            subject=_subject(row["subject"]),
            version=_version(row["version"]),
            data=_data(row["data"]),
            tenant_id=str(row.get("tenant_id", "default")),
        )

    def _type(self, row: Mapping[str, object]) -> str:
        kind = row.get("type", self._job.event_type)
        if not isinstance(kind, str) or not is_event_type(kind):
            message = "the event type is missing or malformed: set event_type, or return a column type"
            raise DiscoveryFailed(message)
        return kind


def _subject(value: object) -> str:
    subject = "" if value is None else str(value)
    fault = text_fault(subject, max_bytes=MAX_SUBJECT_BYTES)
    if fault:
        message = f"column subject {fault}"
        raise DiscoveryFailed(message)
    return subject


def _version(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_VERSION:
        message = "column version must be a whole number from 0 to 2^63-1"
        raise DiscoveryFailed(message)
    return value


def _data(value: object) -> str:
    if not isinstance(value, str):
        message = "column data must be json or jsonb"
        raise DiscoveryFailed(message)
    return value
