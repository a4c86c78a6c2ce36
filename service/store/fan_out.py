"""Fan-out: a delivery for each subscriber that matches an event, made inside the server in bounded chunks."""

from dataclasses import dataclass

from sqlalchemy import text

from service.domain.model import EventId, RunId, SubscriberRow
from service.store import chains
from service.store.chains import Link
from service.store.database import Tx
from service.store.lanes import Wake, wake

MAX_ROWS = 20_000
"""A fan-out transaction writes at most about this many rows."""

_TURN = 0x746F6373_696E0001
"""The advisory lock that fan-outs share, and that whoever must not be overtaken by one takes alone."""

_FROZEN_SECONDS = 5
"""A worker that is stopped between two statements of a fan-out holds up the others for so long."""

_LIVE_SUBSCRIBERS = text(f"""
    SELECT count(*), pg_advisory_xact_lock_shared({_TURN}),
           set_config('idle_in_transaction_session_timeout', '{_FROZEN_SECONDS}s', true)
      FROM tocsin.subscribers WHERE deleted_at IS NULL
""")

# No pair is met twice: an event is locked while it is fanned out, and goes on behind the last subscriber that it has;
# the unique constraint watches over that. Published events that somebody fans out just then are waited for and not
# passed over: what was published after them must not come before them. One event's subscribers are fixed by the
# snapshot of the statement that fans it out; an event with more of them than fit one transaction remembers how far it
# came (`fan_out_after`) and goes on in the next. Deliveries that may have a predecessor are made parked;
# `chains.promote` lets go of the heads behind the lanes' locks.
_FAN_OUT = """
    WITH batch AS MATERIALIZED (
        SELECT id, run_id, tenant_id, subject, topics, fan_out_after FROM tocsin.events
         WHERE fanned_out_at IS NULL AND {which} ORDER BY id LIMIT :events FOR UPDATE),
    kind AS MATERIALIZED (SELECT DISTINCT tenant_id, topics FROM batch),
    matching AS MATERIALIZED (
        SELECT k.tenant_id, k.topics, s.row, s.ordering, make_interval(secs => s.deadline_seconds) AS deadline
          FROM kind k JOIN tocsin.subscribers s
            ON s.tenant_id = k.tenant_id AND s.deleted_at IS NULL AND s.event_types && k.topics),
    pair AS MATERIALIZED (
        SELECT b.id, b.run_id, p.row, p.deadline,
               CASE p.ordering WHEN 'strict' THEN 0 WHEN 'subject' THEN hashtextextended(b.subject, 0) END AS order_key
          FROM batch b CROSS JOIN LATERAL (
            SELECT m.row, m.ordering, m.deadline FROM matching m
             WHERE m.tenant_id = b.tenant_id AND m.topics = b.topics AND m.row > b.fan_out_after
             ORDER BY m.row LIMIT :per_event) p),
    added AS (
        INSERT INTO tocsin.deliveries (event_id, subscriber, run_id, deadline_at, order_key, next_attempt_at)
        SELECT id, row, run_id, now() + deadline, order_key,
               CASE WHEN order_key IS NULL THEN now() ELSE 'infinity' END
          FROM pair ORDER BY id, row),
    marked AS (
        UPDATE tocsin.events e
           SET fan_out_after = coalesce(p.last, e.fan_out_after),
               fanned_out_at = CASE WHEN coalesce(p.n, 0) < :per_event THEN clock_timestamp() END
          FROM batch b LEFT JOIN (SELECT id, count(*) AS n, max(row) AS last FROM pair GROUP BY id) p USING (id)
         WHERE e.id = b.id)
    SELECT (SELECT count(*) FROM batch) AS events, (SELECT count(*) FROM pair) AS deliveries,
           ARRAY(SELECT DISTINCT row FROM pair ORDER BY row) AS subscribers,
           ARRAY(SELECT DISTINCT row || ' ' || order_key FROM pair WHERE order_key IS NOT NULL) AS links
"""
_FAN_OUT_RUN = text(_FAN_OUT.format(which="run_id = :run_id"))
_FAN_OUT_DIRECT = text(_FAN_OUT.format(which="run_id IS NULL AND due_at IS NULL"))


@dataclass(frozen=True, slots=True)
class FannedOut:
    """What one chunk of fan-out did; no events means that nothing is left to fan out."""

    events: int
    deliveries: int


async def fan_out(tx: Tx, run_id: RunId | None) -> FannedOut:
    """Make the deliveries of the next events of a run (None: of events published directly), at most `MAX_ROWS`."""
    subscribers = (await tx.conn.execute(_LIVE_SUBSCRIBERS)).scalar_one()
    # One more than there are, so that an event shows at once that it has no subscribers left.
    events = min(max(MAX_ROWS // (subscribers + 1), 1), 1_000)
    params: dict[str, object] = {"events": events, "per_event": MAX_ROWS // events}
    if run_id is None:
        row = (await tx.conn.execute(_FAN_OUT_DIRECT, params)).one()
    else:
        row = (await tx.conn.execute(_FAN_OUT_RUN, params | {"run_id": run_id})).one()
    if row.subscribers:
        await wake(tx, {SubscriberRow(subscriber): Wake() for subscriber in row.subscribers})
        await chains.promote(tx, [_link(link) for link in row.links])
    return FannedOut(row.events, row.deliveries)


def _link(written: str) -> Link:
    subscriber, order_key = written.split(" ")
    return SubscriberRow(int(subscriber)), int(order_key)


_ALONE = text(f"SELECT pg_advisory_xact_lock({_TURN})")
_REACHED = text("SELECT EXISTS (SELECT FROM tocsin.deliveries WHERE subscriber = :subscriber)")


async def has_reached(tx: Tx, subscriber: SubscriberRow) -> bool:
    """Whether any delivery of this subscriber is on record, finished ones too; no fan-out adds one meanwhile.

    Looking is a second statement: it has to see what the fan-outs that were waited for have written.
    """
    await tx.conn.execute(_ALONE)
    return bool((await tx.conn.execute(_REACHED, {"subscriber": subscriber})).scalar_one())


_ENQUEUE = text("""
    INSERT INTO tocsin.deliveries (event_id, subscriber, deadline_at)
    SELECT :event_id, s.row, now() + make_interval(secs => s.deadline_seconds)
      FROM tocsin.subscribers s WHERE s.row = :subscriber
    ON CONFLICT (event_id, subscriber) DO NOTHING
""")
_FANNED_OUT = text("UPDATE tocsin.events SET fanned_out_at = now() WHERE id = :event_id")


async def enqueue(tx: Tx, event_id: EventId, subscriber: SubscriberRow) -> None:
    """Deliver an event to this one subscriber only, whatever it subscribes to, and out of any order.

    The event counts as fanned out.
    """
    await tx.conn.execute(_FANNED_OUT, {"event_id": event_id})
    await tx.conn.execute(_ENQUEUE, {"event_id": event_id, "subscriber": subscriber})
    await wake(tx, {subscriber: Wake()})
