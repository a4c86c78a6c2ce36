"""A house with a past: 200 subscribers, a dozen runs, 100,000 deliveries, and receivers that fail in every way.

The past is written by the server itself; what is due at the end is really sent, by the worker, to real receivers.
"""

from bench.bodies import BODY_BYTES, MEASURED
from bench.console.receivers import SCRIPT
from bench.house import House
from service.domain.model import RunId
from service.flow.doorbell import Doorbell

SUBSCRIBERS = 200
RUNS = 12
EVENTS = 492
FRESH_EVENTS = 8
"""Found last, and sent to everyone: with the past, 500 events to 200 subscribers each."""
JOB = "shipments.expire"

MENDED = "mail"
HOSTILE = "billing"
PAUSED = "warehouse"
_ODD: dict[str, tuple[str, dict[str, object]]] = {
    MENDED: ("ok", {}),
    HOSTILE: ("script", {}),
    PAUSED: ("ok", {}),
    "search": ("down", {"max_attempts": 2, "backoff_base_seconds": 0.05}),
    "ledger": ("hang", {"idempotent": False, "timeout_seconds": 0.5}),
    "archive": ("gone", {}),
    "partner-eu": ("busy", {}),
    "mobile": ("ok", {"mode": "shadow"}),
    "reports": ("ok", {"rate_per_second": 0.1, "max_concurrency": 1}),
}
"""By id: how its receiver answers, and what it wants otherwise than the many do."""

_RUNS = """
    INSERT INTO tocsin.runs (id, job, run_id, cutoff, source, state, discovered, events, claimed_at, started_at,
                             completed_at, settled_at)
    SELECT uuidv7(-at.ago), :job, to_char(now() - at.ago, 'YYYY-MM-DD"T"HH24"Z"'),
           date_trunc('hour', now() - at.ago), 'hmac', 'completed', true, CAST(:events AS int) / CAST(:runs AS int),
           now() - at.ago, now() - at.ago, now() - at.ago + interval '2 s', now() - at.ago + interval '40 s'
      FROM generate_series(1, CAST(:runs AS int)) n CROSS JOIN LATERAL (SELECT make_interval(hours => n) AS ago) at
     ORDER BY n DESC
"""
_FAILED_RUN = """
    UPDATE tocsin.runs SET state = 'failed', settled_at = NULL, completed_at = NULL,
           error = 'the source failed: column "expires_at" does not exist <script>alert(3)</script>'
     WHERE id = (SELECT id FROM tocsin.runs ORDER BY id DESC OFFSET 2 LIMIT 1)
"""
_LATEST = "UPDATE tocsin.runs SET job = :job, run_id = 'latest', events = :events WHERE id = :run"
_EVENTS = """
    INSERT INTO tocsin.events (id, tenant_id, type, subject, version, topics, run_id, body, body_sha256, data_sha256,
                               created_at, fanned_out_at)
    SELECT uuidv7(r.claimed_at - now()), 'default', :type, 'shipment-' || 10000 + n, 2,
           ARRAY['*', 'shipment.*', :type], r.id, b.body, sha256(b.body), sha256(b.body), r.claimed_at, r.claimed_at
      FROM generate_series(0, CAST(:events AS int) - 1) n
      JOIN (SELECT id, claimed_at, row_number() OVER (ORDER BY id) - 1 AS k FROM tocsin.runs) r
        ON r.k = n / (CAST(:events AS int) / CAST(:runs AS int))
     CROSS JOIN LATERAL (
        SELECT convert_to(rpad(format('{"n":%s,"note":"', n), :bytes - 2, 'x') || '"}', 'UTF8') AS body) b
     ORDER BY n
"""
_DELIVERIES = """
    INSERT INTO tocsin.deliveries (event_id, subscriber, run_id, state, reason, attempt_count, generation_attempts,
                                   next_attempt_at, deadline_at, created_at, finished_at)
    SELECT e.id, s.row, e.run_id, became.state, became.reason, became.attempts, became.attempts,
           e.created_at, e.created_at + interval '3 days', e.created_at,
           CASE WHEN became.state <> 'pending' THEN e.created_at + interval '20 s' END
      FROM tocsin.events e CROSS JOIN tocsin.subscribers s
     CROSS JOIN LATERAL (SELECT * FROM (VALUES
            (:mended, 'exhausted', 'attempts', 8), ('search', 'exhausted', 'attempts', 2),
            (:hostile, 'rejected', 'rejected-by-receiver', 1),
            ('ledger', 'ambiguous', 'timeout-may-have-been-applied', 1),
            ('archive', 'exhausted', 'deadline', 0), ('mobile', 'delivered', 'shadow', 1),
            (:paused, 'pending', NULL, 0)) fate (id, state, reason, attempts)
         WHERE fate.id = s.id UNION ALL SELECT NULL, 'delivered', NULL, 1 LIMIT 1) became
     ORDER BY e.id, s.row
"""
_ATTEMPTS = """
    INSERT INTO tocsin.attempts (delivery, number, generation, lease_seq, outcome, counted, status, started_at,
                                 duration_ms, worker, excerpt)
    SELECT d.row, n, 1, n, became.outcome, true, became.status, d.created_at + make_interval(secs => n),
           40 + d.row % 90, 'history', became.said
      FROM tocsin.deliveries d CROSS JOIN generate_series(1, d.attempt_count) n
     CROSS JOIN LATERAL (SELECT * FROM (VALUES
            ('exhausted', 'server_error', 503, 'no healthy hosts'), ('rejected', 'rejected', 400, :script),
            ('ambiguous', 'timeout', NULL, NULL), ('delivered', 'delivered', 200, 'ok'))
            fate (state, outcome, status, said) WHERE fate.state = d.state) became
     ORDER BY d.row, n
"""
_OPEN = """
    UPDATE tocsin.lanes l SET next_due_at = now(), state = CASE s.id WHEN :paused THEN 'paused' ELSE 'active' END,
           state_reason = CASE s.id WHEN :paused THEN 'they move to another hall' END
      FROM tocsin.subscribers s WHERE s.row = l.subscriber
"""
_PULSE = """
    INSERT INTO tocsin.pulse (minute, what, n)
    SELECT date_trunc('minute', now()) - make_interval(mins => m), w.what, 1 + (w.most * (1.1 + sin(m / 7.0)))::int
      FROM generate_series(2, 59) m
     CROSS JOIN (VALUES ('arrived', 400), ('attempt.delivered', 380), ('attempt.server_error', 25),
                        ('attempt.rejected', 6), ('attempt.timeout', 3), ('ended.delivered', 380)) w (what, most)
     ORDER BY 1, 2
"""


async def fill(house: House, receivers: str) -> RunId:
    """Put it all there, with what is due still held; `begin` lets it go. Gives a run that is being worked on."""
    many: dict[str, tuple[str, dict[str, object]]] = {
        f"store-{number:03}": ("ok", {}) for number in range(SUBSCRIBERS - len(_ODD))
    }
    for slug, (answer, wanted) in (many | _ODD).items():
        await house.subscribe(slug, f"{receivers}/{answer}/{slug}", **wanted)
    await house.execute(_RUNS, job=JOB, runs=RUNS, events=EVENTS)
    await house.execute(_EVENTS, type=MEASURED, runs=RUNS, events=EVENTS, bytes=BODY_BYTES)
    await house.outside("ANALYZE tocsin.events")
    await house.execute(_DELIVERIES, mended=MENDED, hostile=HOSTILE, paused=PAUSED)
    await house.execute(_ATTEMPTS, script=SCRIPT.decode())
    await house.execute(_FAILED_RUN)
    await house.execute(_PULSE)
    fresh = await house.backlog(FRESH_EVENTS)
    await house.execute(_LATEST, job=JOB, run=fresh, events=FRESH_EVENTS)
    await house.outside("VACUUM ANALYZE")
    return fresh


async def begin(house: House) -> None:
    """Let all but one go, and wait until whatever can arrive has: what is left is throttled, probed, slow or held."""
    await house.execute(_OPEN, paused=PAUSED)
    await Doorbell(house.db).ring()
    await house.until(
        "SELECT NOT EXISTS (SELECT FROM tocsin.deliveries d JOIN tocsin.subscribers s ON s.row = d.subscriber "
        "WHERE d.finished_at IS NULL AND starts_with(s.id, 'store-'))"
    )
