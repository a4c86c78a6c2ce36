"""Deliveries that are sought by what they are: one page of them, along an index and never far without an answer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Column, ColumnElement, FromClause, Select, any_, bindparam, literal, select, text, union_all

from service.domain.model import DeliveryRow, DeliveryState
from service.store import views_delivery
from service.store.arrays import Flat
from service.store.database import Tx
from service.store.tables import deliveries, events, subscribers
from service.store.views import Page, is_one
from service.store.views_delivery import DeliveryView

MOST: Final = 20_000
"""So many deliveries are looked at for one page; and a type that has no more of them is rare."""


@dataclass(frozen=True, slots=True)
class Sought:
    """Which deliveries; None asks for all. `since` is inclusive, `until` is not; both are about `created_at`.

    Of several `states`, in any of them: those are terminal.
    """

    states: tuple[DeliveryState, ...] = ()
    reason: str | None = None
    subscriber_id: str | None = None
    run: UUID | None = None
    event_id: UUID | None = None
    event_type: str | None = None
    since: datetime | None = None
    until: datetime | None = None


class Leaf(list[DeliveryView]):
    """The deliveries of one page, newest first.

    `looked_to` is where to go on behind a page that is short: the row down to which was looked; None where the page is
    full, or nothing is behind it.
    """

    looked_to: DeliveryRow | None = None


Named = Sequence[tuple[Column[Any], object]]
"""Columns of the deliveries, and the one value that is sought in each."""


async def page_of(tx: Tx, sought: Sought, page: Page) -> Leaf:
    """One page of deliveries; `page.after` is the `row` of the last one seen, or the one down to which was looked.

    Where a type or a reason is sought, at most MOST deliveries are looked at, along the index that promises most of
    them. Where these do not fill the page, a rare type is looked up from the side of its events.
    """
    named = await walk_of(tx, sought)
    walk = _walk(sought, named)
    if sought.event_type is None and sought.reason is None:
        return Leaf(await views_delivery.of(tx, walk.newest(page, page.limit)))
    leaf = await _leaf(tx, walk, sought, named, page)
    if leaf.looked_to is None or (rare := await rare_of(tx, sought)) is None:
        return leaf
    return await _leaf(tx, _Walk([rare]), sought, named, page)


async def _leaf(tx: Tx, walk: "_Walk", sought: Sought, named: Named, page: Page) -> Leaf:
    """What fits among the MOST newest of the walk."""
    most = MOST // len(walk.ways)
    looked = walk.newest(page, most).subquery("looked")
    fitting = (
        select(looked)
        .where(*(looked.c[column.name] == value for column, value in named), *conditions(sought, looked))
        .order_by(*walk.order(looked))
        .limit(page.sql_limit)
    )
    leaf = Leaf(await views_delivery.of(tx, fitting))
    if len(leaf) < page.limit:
        last = select(looked.c.row).order_by(*walk.order(looked)).offset(most - 1)
        leaf.looked_to = (await tx.conn.execute(last)).scalar_one_or_none()
    return leaf


@dataclass(frozen=True, slots=True)
class _Walk:
    """Deliveries in the order of an index, which has the column `by` before their rows.

    With several `ways` it is merged from a walk along each: the indexes of a run's deliveries and of what was not
    delivered have the state before the row. One in the order of the rows alone would be one more for every settle to
    write.
    """

    along: Sequence[ColumnElement[bool]]
    by: Column[Any] | None = None
    ways: Sequence[Sequence[ColumnElement[bool]]] = ((),)

    def order(self, chosen: FromClause) -> list[ColumnElement[Any]]:
        """Newest first, so that the index has the order already."""
        before = [] if self.by is None or len(self.ways) > 1 else [chosen.c[self.by.name].desc()]
        return [*before, chosen.c.row.desc()]

    def newest(self, page: Page, most: int) -> Select[Any]:
        """The newest `most` behind `page.after`."""
        limit = literal(most, literal_execute=True)
        chosen = select(deliveries).where(*self.along).limit(limit)
        if page.after is not None:
            chosen = chosen.where(deliveries.c.row < page.after)
        if len(self.ways) == 1:
            return chosen.where(*self.ways[0]).order_by(*self.order(deliveries))
        by = [] if self.by is None else [self.by.desc()]
        each = union_all(*(chosen.where(*way).order_by(*by, deliveries.c.row.desc()) for way in self.ways)).subquery()
        return select(each).order_by(each.c.row.desc()).limit(limit)


def _walk(sought: Sought, named: Named) -> _Walk:
    """The walk that meets soonest what is sought."""
    if sought.event_id is None and sought.reason is not None:
        return _Walk([is_one(deliveries.c.reason, sought.reason)], deliveries.c.reason)
    by = named[0][0] if named else None
    along = [is_one(column, value) for column, value in named]
    if sought.event_type is None and sought.reason is None:
        along += conditions(replace(sought, states=()), deliveries)
    return _Walk(along, by, _ways(sought, by))


def _ways(sought: Sought, by: Column[Any] | None) -> Sequence[Sequence[ColumnElement[bool]]]:
    """What is to be walked one by one: each state where there are several, and those of a run where none is named."""
    states: Sequence[DeliveryState] = sought.states
    if states or by is not deliveries.c.run_id:
        return [_in_state(state, deliveries) for state in states] or ((),)
    return [[_stored(state, deliveries)] for state in sorted(set(DeliveryState) - {DeliveryState.LEASED})]


# Looked up one by one: a planner that takes a rare type for a frequent one would read the whole table. An event without
# deliveries counts like one.
_RARE = text("""
    SELECT CASE WHEN count(*) <= :most THEN coalesce(array_agg(row) FILTER (WHERE row IS NOT NULL), '{}') END
      FROM (SELECT d.row
              FROM (SELECT id FROM tocsin.events
                     WHERE type = ANY(ARRAY[:type]) ORDER BY type DESC, id DESC LIMIT :most + 1) e
              LEFT JOIN LATERAL (
                   SELECT row FROM tocsin.deliveries WHERE event_id = e.id LIMIT :most + 1) d ON true
             LIMIT :most + 1) few
""")


async def rare_of(tx: Tx, sought: Sought) -> ColumnElement[bool] | None:
    """The condition that holds for every delivery of the sought type, by their rows; None where the type is not rare.

    None as well where no type is sought.
    """
    if sought.event_type is None:
        return None
    rows = (await tx.conn.execute(_RARE, {"type": sought.event_type, "most": MOST})).scalar_one()
    return None if rows is None else deliveries.c.row == any_(literal(rows, Flat("bigint")))


async def walk_of(tx: Tx, sought: Sought) -> Named:
    """What is sought by an index, narrowest first: its column and the value there."""
    walk: list[tuple[Column[Any], object]] = []
    if sought.event_id is not None:
        walk.append((deliveries.c.event_id, sought.event_id))
    if sought.run is not None:
        walk.append((deliveries.c.run_id, sought.run))
    if sought.subscriber_id is not None:
        named = select(subscribers.c.row).where(subscribers.c.id == sought.subscriber_id)
        walk.append((deliveries.c.subscriber, (await tx.conn.execute(named)).scalar_one_or_none()))
    return walk


def conditions(sought: Sought, chosen: FromClause) -> Iterator[ColumnElement[bool]]:
    """What else is sought of the chosen deliveries, which are the table or a part of it."""
    if len(sought.states) == 1:
        yield from _in_state(sought.states[0], chosen)
    elif sought.states:
        yield chosen.c.state.in_(bindparam(None, sought.states, expanding=True, literal_execute=True))
    if sought.reason is not None:
        yield chosen.c.reason == sought.reason
    if sought.since is not None:
        yield chosen.c.created_at >= sought.since
    if sought.until is not None:
        yield chosen.c.created_at < sought.until
    if sought.event_type is not None:
        # A question for each delivery: the walk must stay one over deliveries.
        of_event = select(events.c.type).where(events.c.id == chosen.c.event_id).scalar_subquery()
        yield of_event == sought.event_type


def _in_state(state: DeliveryState, chosen: FromClause) -> list[ColumnElement[bool]]:
    """The state as it is stored; inlined, because a partial index is used only for a state that the planner sees."""
    leased = chosen.c.lease_owner.is_not(None)
    if state is DeliveryState.LEASED:
        return [chosen.c.finished_at.is_(None), _stored(DeliveryState.PENDING, chosen), leased]
    if state is DeliveryState.PENDING:
        return [chosen.c.finished_at.is_(None), _stored(DeliveryState.PENDING, chosen), ~leased]
    return [_stored(state, chosen)]


def _stored(state: DeliveryState, chosen: FromClause) -> ColumnElement[bool]:
    return chosen.c.state == literal(state.value, literal_execute=True)
