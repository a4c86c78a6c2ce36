"""Read-only questions about runs and jobs, and what a keyset page is; deliveries and events have files of their own."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    Column,
    ColumnElement,
    Row,
    Select,
    Text,
    Uuid,
    any_,
    bindparam,
    cast,
    literal,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import array
from sqlalchemy.sql.elements import BindParameter

from service.domain.model import DeliveryState, RunId, RunSource, RunState
from service.store.database import Tx
from service.store.tables import runs as table


@dataclass(frozen=True, slots=True)
class Page:
    """Which part of a list: at most `limit` items that come after `after`, the position of the last one seen."""

    limit: int
    after: UUID | int | str | None = None

    @property
    def sql_limit(self) -> BindParameter[int]:
        """The limit as a number in the statement: a plan made without it would prepare for a tenth of the table."""
        return literal(self.limit, literal_execute=True)


def is_one(column: Column[Any], value: object) -> ColumnElement[bool]:
    """`column = value`, in a form that lets `ORDER BY column, position` mean the index over the two.

    With a plain `=` the planner sees that the column does not matter for the order and may walk another index, which
    has the positions of everyone, in the hope of meeting the value soon: for a value that is rare, through all of it.
    The array is written out, because for a parameter that is one the planner reckons with ten values.
    """
    return column == any_(array([cast(value, column.type)]))


@dataclass(frozen=True, slots=True)
class Counts:
    """How a run's deliveries stand. `oldest` is when the oldest unfinished one was made."""

    deliveries: Mapping[DeliveryState, int]
    oldest: datetime | None = None

    @property
    def unfinished(self) -> int:
        """Deliveries that are not terminal."""
        return self.deliveries[DeliveryState.PENDING] + self.deliveries[DeliveryState.LEASED]


@dataclass(frozen=True, slots=True)
class RunView:
    """A run as the outside sees it. `deliveries` counts by state, and has `total`."""

    id: RunId
    job: str
    run_id: str
    cutoff: datetime
    source: RunSource
    state: RunState
    settled: bool
    events: int
    deliveries: Mapping[str, int]
    oldest_pending_age_seconds: float | None
    claimed_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    settled_at: datetime | None
    error: str | None
    progress: Mapping[str, Any] | None
    """What a source that does work of its own says of how far it is."""


@dataclass(frozen=True, slots=True)
class JobView:
    """What the database knows of a job; its configuration is in tocsin.toml."""

    name: str
    paused: bool
    paused_reason: str | None
    last_tick_at: datetime | None
    frozen_since: datetime | None
    last_run: RunView | None


_QUERY: Select[Any] = select(
    table.c.id,
    table.c.job,
    table.c.run_id,
    table.c.cutoff,
    table.c.source,
    table.c.state,
    table.c.events,
    table.c.claimed_at,
    table.c.started_at,
    table.c.completed_at,
    table.c.settled_at,
    table.c.error,
    table.c.progress,
)


async def run(tx: Tx, id: UUID) -> RunView | None:  # noqa: A002 - the column's name
    """One run with the counts of its deliveries."""
    rows = (await tx.conn.execute(_QUERY.where(table.c.id == id))).all()
    return next(iter(await _with_counts(tx, rows)), None)


async def runs(tx: Tx, *, job: str | None, state: RunState | None, page: Page) -> list[RunView]:
    """One page of runs, newest first; `page.after` is the id of the last one seen."""
    query = _QUERY.order_by(table.c.id.desc()).limit(page.sql_limit)
    if job is not None:
        query = query.where(is_one(table.c.job, job)).order_by(None).order_by(table.c.job.desc(), table.c.id.desc())
    if state is not None:
        # Inlined, because a partial index is used only for a state that the planner can see.
        query = query.where(table.c.state == literal(state.value, literal_execute=True))
    if page.after is not None:
        query = query.where(table.c.id < page.after)
    return await _with_counts(tx, (await tx.conn.execute(query)).all())


_JOBS = text("""
    SELECT n.name, coalesce(j.paused, false) AS paused, j.paused_reason, j.last_tick_at, j.frozen_since,
           r.id AS last_run
      FROM unnest(:names) WITH ORDINALITY AS n (name, position)
      LEFT JOIN tocsin.jobs j ON j.name = n.name
      LEFT JOIN LATERAL (
          SELECT id FROM tocsin.runs WHERE job = ANY(ARRAY[n.name]) ORDER BY job DESC, id DESC LIMIT 1) r ON true
     ORDER BY n.position
""").bindparams(bindparam("names", type_=ARRAY(Text)))


async def jobs(tx: Tx, names: Sequence[str]) -> list[JobView]:
    """How these jobs stand, in the order of their names as given; one that was never ticked stands idle."""
    standings = (await tx.conn.execute(_JOBS, {"names": list(names)})).all()
    last = [row.last_run for row in standings if row.last_run is not None]
    rows = (await tx.conn.execute(_QUERY.where(table.c.id.in_(last)))).all() if last else []
    by_id = {view.id: view for view in await _with_counts(tx, rows)}
    return [
        JobView(row.name, row.paused, row.paused_reason, row.last_tick_at, row.frozen_since, by_id.get(row.last_run))
        for row in standings
    ]


# One statement, so that both halves see the same moment. Terminal states are counted in the index alone; only what is
# pending is looked up in the table.
_COUNTS = text("""
    SELECT run_id, state, count(*) AS n, 0 AS leased, NULL::timestamptz AS oldest
      FROM tocsin.deliveries WHERE run_id = ANY(:ids) AND state <> 'pending' GROUP BY run_id, state
    UNION ALL
    SELECT run_id, state, count(*), count(lease_owner), min(created_at)
      FROM tocsin.deliveries WHERE run_id = ANY(:ids) AND state = 'pending' GROUP BY run_id, state
""").bindparams(bindparam("ids", type_=ARRAY(Uuid)))


async def counts(tx: Tx, ids: Iterable[UUID]) -> dict[UUID, Counts]:
    """How the deliveries of these runs stand."""
    result = {id: Counts(dict.fromkeys(DeliveryState, 0)) for id in ids}  # noqa: A001 - the column's name
    for row in await tx.conn.execute(_COUNTS, {"ids": list(result)}):
        tally = dict(result[row.run_id].deliveries)
        tally[DeliveryState(row.state)] = row.n - row.leased
        tally[DeliveryState.LEASED] += row.leased
        result[row.run_id] = Counts(tally, row.oldest or result[row.run_id].oldest)
    return result


async def _with_counts(tx: Tx, rows: Sequence[Row[Any]]) -> list[RunView]:
    if not rows:
        return []
    tallies = await counts(tx, [row.id for row in rows])
    return [_view(row, tallies[row.id], tx.now) for row in rows]


def _view(row: Row[Any], tally: Counts, now: datetime) -> RunView:
    settled = row.state == RunState.COMPLETED and tally.unfinished == 0
    age = max((now - tally.oldest).total_seconds(), 0.0) if tally.oldest else None
    view = RunView(
        id=row.id,
        job=row.job,
        run_id=row.run_id,
        cutoff=row.cutoff,
        source=RunSource(row.source),
        state=RunState(row.state),
        settled=settled,
        events=row.events,
        deliveries={"total": sum(tally.deliveries.values())}
        | {state.value: n for state, n in tally.deliveries.items()},
        oldest_pending_age_seconds=age,
        claimed_at=row.claimed_at,
        started_at=row.started_at,
        completed_at=row.completed_at,
        settled_at=row.settled_at,
        error=row.error,
        progress=row.progress,
    )
    # A replay may have opened a run again that was settled before.
    return view if settled else replace(view, settled_at=None)


async def schema_revision(tx: Tx) -> str | None:
    """The migration that the database is at; None where it was never migrated."""
    exists = (await tx.conn.execute(text("SELECT to_regclass('tocsin.alembic_version')"))).scalar_one()
    if exists is None:
        return None
    return (await tx.conn.execute(text("SELECT version_num FROM tocsin.alembic_version"))).scalar_one_or_none()


async def is_read_only(tx: Tx) -> bool:
    """Whether the database takes no changes: it is a replica, or was made read-only."""
    return str((await tx.conn.execute(text("SHOW transaction_read_only"))).scalar_one()) != "off"
