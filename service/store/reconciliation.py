"""Questions that no healthy database answers with a row: what is overdue, forgotten, or counted two ways.

Each is bounded by an index, a limit and a time limit of its own, and leaves what is young alone (`GRACE_SECONDS` and
the like), so that it may be asked of a busy system at any time. What is counted two ways is read in one statement, and
so in one moment. That moment is later than `now()`, when the transaction began: what must not lie in the future of
what is read is compared with `statement_timestamp()`, which is later than both.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import TextClause, text

from service.domain.identifiers import delivery_id
from service.store.database import Tx

GRACE_SECONDS = 60
"""What upkeep and workers mend by themselves is left to them for this long."""
PATIENCE_SECONDS = 300
"""So long may work wait for a worker before it counts as waiting for none."""
MOST = 1_000
"""Nothing is counted beyond this."""
EXAMPLES = 20
NEWEST = 2_000
"""Where a whole table would have to be read, so many of its newest rows are."""
HEAD = 5_000
"""So many due deliveries of each queue of a lane are looked at for leased ones, which stand at its head."""
SECONDS = 2.0
"""How long one question may take."""


class Kind(StrEnum):
    """What can be wrong."""

    OVERDUE_LEASE = "overdue-lease"
    UNFANNED_EVENT = "unfanned-event"
    STUCK_RUN = "stuck-run"
    DUE_NOT_CLAIMED = "due-not-claimed"
    LANE_ASLEEP = "lane-asleep"
    LANE_COUNT = "lane-count"
    RUN_COUNT = "run-count"
    ATTEMPT_COUNT = "attempt-count"
    GENERATION_COUNT = "generation-count"
    ORPHAN = "orphan"
    PAYLOAD_MISSING = "payload-missing"
    RUNNING_REPLAY_STUCK = "running-replay-stuck"


@dataclass(frozen=True, slots=True)
class Seen:
    """How many records there are of a kind, MOST at the most, and the outside ids of some."""

    count: int
    examples: tuple[str, ...]


_QUEUES = "(VALUES (0), (1), (2)) AS kind (queue)"

_OVERDUE_LEASE = f"""
    SELECT d.event_id, d.subscriber FROM tocsin.lanes l CROSS JOIN {_QUEUES} CROSS JOIN LATERAL (
        SELECT event_id, subscriber, lease_owner, lease_expires_at FROM tocsin.deliveries
         WHERE subscriber = l.subscriber AND finished_at IS NULL AND queue = kind.queue AND next_attempt_at <= now()
         ORDER BY next_attempt_at, row LIMIT {HEAD}) d
     WHERE l.leased > 0 AND d.lease_owner IS NOT NULL
       AND d.lease_expires_at < now() - interval '{GRACE_SECONDS} seconds'
"""

# Of each run that is completed, and of what was published directly. The first walks from run to run in the index.
_UNFANNED_EVENT = f"""
    WITH RECURSIVE open AS (
        (SELECT run_id FROM tocsin.events WHERE fanned_out_at IS NULL AND run_id IS NOT NULL
          ORDER BY run_id, id LIMIT 1)
        UNION ALL
        SELECT (SELECT e.run_id FROM tocsin.events e
                 WHERE e.fanned_out_at IS NULL AND e.run_id IS NOT NULL AND e.run_id > open.run_id
                 ORDER BY e.run_id, e.id LIMIT 1)
          FROM open WHERE open.run_id IS NOT NULL)
    SELECT e.id::text AS name FROM open JOIN tocsin.runs r ON r.id = open.run_id AND r.state = 'completed'
     CROSS JOIN LATERAL (
        SELECT id FROM tocsin.events WHERE run_id = r.id AND fanned_out_at IS NULL ORDER BY id LIMIT {MOST}) e
    UNION ALL
    (SELECT id::text FROM tocsin.events
      WHERE fanned_out_at IS NULL AND run_id IS NULL AND due_at IS NULL
        AND created_at < now() - interval '{PATIENCE_SECONDS} seconds'
      ORDER BY id LIMIT {MOST})
"""

# Workers take runs one by one, the oldest cutoff first: who waits behind them is not stuck, who was passed over is.
# A run is held only while its job is paused.
_STUCK_RUN = f"""
    WITH waiting AS MATERIALIZED (
        SELECT id, state, cutoff, claimed_at, coalesce(lease_expires_at, claimed_at) AS since FROM tocsin.runs r
         WHERE state IN ('claimed', 'running')
           AND coalesce(lease_expires_at, claimed_at) < now() - interval '{PATIENCE_SECONDS} seconds'
           AND NOT EXISTS (SELECT FROM tocsin.jobs j WHERE j.name = r.job AND j.paused AND r.state = 'claimed')
         ORDER BY cutoff, id LIMIT {MOST}),
    working AS MATERIALIZED (
        SELECT cutoff, id, started_at FROM tocsin.runs
         WHERE state IN ('claimed', 'running') AND lease_expires_at > now())
    SELECT id::text AS name FROM waiting w
     WHERE NOT EXISTS (SELECT FROM working)
        OR EXISTS (SELECT FROM working k WHERE w.state = 'claimed' AND (k.cutoff, k.id) > (w.cutoff, w.id)
                                           AND k.started_at > w.since)
    UNION ALL
    (SELECT r.id::text FROM tocsin.jobs j CROSS JOIN LATERAL (
        SELECT id, state FROM tocsin.runs WHERE job = ANY(ARRAY[j.name]) ORDER BY job DESC, id DESC LIMIT 200) r
      WHERE NOT j.paused AND r.state = 'held' LIMIT {MOST})
"""

_DUE = f"""
    SELECT d.event_id, d.subscriber FROM tocsin.lanes l CROSS JOIN LATERAL (
        SELECT d.event_id, d.subscriber FROM {_QUEUES} CROSS JOIN LATERAL (
            SELECT event_id, subscriber FROM tocsin.deliveries
             WHERE subscriber = l.subscriber AND finished_at IS NULL AND queue = kind.queue AND lease_owner IS NULL
               AND next_attempt_at < now() - make_interval(secs => {{seconds}})
             ORDER BY next_attempt_at, row LIMIT 1) d LIMIT 1) d
     WHERE l.state = 'active' AND NOT (SELECT paused FROM tocsin.dispatch) AND {{lane}}
"""
_DUE_NOT_CLAIMED = _DUE.format(
    seconds=PATIENCE_SECONDS,
    lane=f"greatest(l.next_due_at, l.throttled_until, l.open_until, l.claimed_at) "
    f"< now() - interval '{PATIENCE_SECONDS} seconds'",
)
# A lane with a rate sleeps until its next token; any other one that has something due and nothing in flight is awake.
_LANE_ASLEEP = _DUE.format(
    seconds=GRACE_SECONDS,
    lane="l.leased = 0 AND l.next_due_at - make_interval(secs => coalesce(1 / l.rate_per_second, 0)) "
    "> statement_timestamp()",
)

# Fewer than the lane says is judged only where all that is due was looked at.
_LANE_COUNT = f"""
    SELECT s.id AS name FROM tocsin.lanes l JOIN tocsin.subscribers s ON s.row = l.subscriber
     CROSS JOIN LATERAL (
        SELECT count(h.lease_owner) AS leased, count(h.lease_owner) FILTER (WHERE kind.queue > 0) AS late,
               bool_or(h.nth = {HEAD}) AS cut
          FROM {_QUEUES} LEFT JOIN LATERAL (
            SELECT lease_owner, row_number() OVER () AS nth FROM (
                SELECT lease_owner FROM tocsin.deliveries
                 WHERE subscriber = l.subscriber AND finished_at IS NULL AND queue = kind.queue
                   AND next_attempt_at <= statement_timestamp()
                 ORDER BY next_attempt_at, row LIMIT {HEAD}) due) h ON true) a
     WHERE a.leased > l.leased OR a.late > l.leased_late
        OR (NOT coalesce(a.cut, false) AND (a.leased <> l.leased OR a.late <> l.leased_late))
"""

_RUN_COUNT = f"""
    SELECT id::text AS name FROM (SELECT id, settled_at FROM tocsin.runs ORDER BY id DESC LIMIT {NEWEST}) r
     WHERE settled_at IS NOT NULL
       AND EXISTS (SELECT FROM tocsin.deliveries d WHERE d.run_id = r.id AND d.state = 'pending')
    UNION ALL
    SELECT id::text FROM (
        SELECT id FROM tocsin.runs WHERE settled_at IS NULL AND state = 'completed'
           AND completed_at < now() - interval '{GRACE_SECONDS} seconds' ORDER BY id LIMIT {NEWEST}) r
     WHERE NOT EXISTS (SELECT FROM tocsin.deliveries d WHERE d.run_id = r.id AND d.state = 'pending')
       AND NOT EXISTS (SELECT FROM tocsin.deliveries d
                        WHERE d.run_id = r.id AND d.finished_at > now() - interval '{GRACE_SECONDS} seconds')
"""

_ATTEMPT_COUNT = f"""
    SELECT event_id, subscriber FROM (SELECT * FROM tocsin.deliveries ORDER BY row DESC LIMIT {NEWEST}) d
     WHERE attempt_count <> (SELECT count(*) FROM tocsin.attempts a WHERE a.delivery = d.row AND a.counted)
"""

_GENERATION_COUNT = f"""
    WITH replayed AS MATERIALIZED (
        SELECT DISTINCT delivery FROM (
            SELECT delivery FROM tocsin.generations ORDER BY delivery DESC, generation DESC LIMIT {NEWEST}) g),
    looked_at AS MATERIALIZED (
        SELECT row FROM (SELECT row FROM tocsin.deliveries ORDER BY row DESC LIMIT {NEWEST}) newest
         UNION SELECT delivery FROM replayed)
    SELECT d.event_id, d.subscriber FROM looked_at JOIN tocsin.deliveries d USING (row)
     WHERE d.generation <> 1 + (SELECT count(*) FROM tocsin.generations g WHERE g.delivery = d.row)
"""

_ORPHAN = f"""
    SELECT d.event_id, d.subscriber FROM tocsin.subscribers s CROSS JOIN LATERAL (
        SELECT event_id, subscriber FROM tocsin.deliveries
         WHERE subscriber = s.row AND finished_at IS NULL ORDER BY queue, next_attempt_at, row LIMIT {MOST}) d
     WHERE s.deleted_at < now() - interval '{PATIENCE_SECONDS} seconds'
"""

# Those whose deadline is nearest: payloads are purged by their age.
_PAYLOAD_MISSING = f"""
    SELECT d.event_id, d.subscriber FROM (
        SELECT event_id, subscriber FROM tocsin.deliveries WHERE finished_at IS NULL
         ORDER BY deadline_at LIMIT {NEWEST}) d
      LEFT JOIN tocsin.events e ON e.id = d.event_id WHERE e.body IS NULL
"""

_RUNNING_REPLAY_STUCK = f"""
    SELECT id::text AS name FROM tocsin.replays
     WHERE state = 'running' AND next_at < now() - interval '{PATIENCE_SECONDS} seconds' ORDER BY next_at
"""

_QUESTIONS: Mapping[Kind, TextClause] = {
    kind: text(f"SELECT * FROM ({question}) AS found LIMIT {MOST}")
    for kind, question in {
        Kind.OVERDUE_LEASE: _OVERDUE_LEASE,
        Kind.UNFANNED_EVENT: _UNFANNED_EVENT,
        Kind.STUCK_RUN: _STUCK_RUN,
        Kind.DUE_NOT_CLAIMED: _DUE_NOT_CLAIMED,
        Kind.LANE_ASLEEP: _LANE_ASLEEP,
        Kind.LANE_COUNT: _LANE_COUNT,
        Kind.RUN_COUNT: _RUN_COUNT,
        Kind.ATTEMPT_COUNT: _ATTEMPT_COUNT,
        Kind.GENERATION_COUNT: _GENERATION_COUNT,
        Kind.ORPHAN: _ORPHAN,
        Kind.PAYLOAD_MISSING: _PAYLOAD_MISSING,
        Kind.RUNNING_REPLAY_STUCK: _RUNNING_REPLAY_STUCK,
    }.items()
}

# Leased rows stand at the head of a lane, which no statistics tell: without this the planner would fetch and sort all
# that is due.
_BOUND = text("""
    SELECT set_config('statement_timeout', :timeout, true), set_config('enable_bitmapscan', 'off', true),
           set_config('enable_sort', 'off', true)
""")


async def bound(tx: Tx) -> None:
    """Let no later statement of this transaction last longer than SECONDS."""
    await tx.conn.execute(_BOUND, {"timeout": f"{SECONDS * 1000:.0f}ms"})


async def look(tx: Tx, kind: Kind) -> Seen:
    """What there is of this kind now."""
    rows = (await tx.conn.execute(_QUESTIONS[kind])).all()
    examples = [row.name if len(row) == 1 else delivery_id(row.event_id, row.subscriber) for row in rows[:EXAMPLES]]
    return Seen(len(rows), tuple(examples))
