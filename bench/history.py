"""Tables as years leave them behind, written by the server itself: a million rows in seconds."""

from bench.bodies import BODY_BYTES
from bench.house import House
from bench.sizes import Sizes
from bench.stage import Stage
from service.domain.model import RunId

LANES = 100
HELD_LANES = 20

_EVENTS = """
    INSERT INTO tocsin.events (id, tenant_id, type, subject, version, topics, run_id, body, body_sha256, data_sha256,
                               fanned_out_at)
    SELECT uuidv7(), 'default', 'shipment.expired', 'shipment-' || n, 2, '{*,shipment.*,shipment.expired}', :run,
           b.body, sha256(b.body), sha256(b.body), now()
      FROM generate_series(1, CAST(:count AS int)) n
     CROSS JOIN LATERAL (
        SELECT convert_to(rpad(format('{"n":%s,"note":"', n), :bytes - 2, 'x') || '"}', 'UTF8') AS body) b
"""

# Lane k has the events from `first` + k × `stride` on, round the circle.
_DELIVERIES = """
    INSERT INTO tocsin.deliveries (event_id, subscriber, run_id, state, attempt_count, generation_attempts,
                                   next_attempt_at, deadline_at, finished_at)
    SELECT e.id, s.row, e.run_id, CAST(:state AS text), CAST(:attempts AS int), CAST(:attempts AS int),
           now() + make_interval(secs => :ahead), now() + interval '3 days',
           CASE WHEN CAST(:state AS text) <> 'pending' THEN now() END
      FROM (SELECT row, row_number() OVER (ORDER BY row) - 1 AS k
              FROM tocsin.subscribers WHERE starts_with(id, :lanes)) s
     CROSS JOIN generate_series(0, CAST(:count AS int) - 1) j
      JOIN (SELECT id, run_id, row_number() OVER (ORDER BY id) - 1 AS n FROM tocsin.events WHERE version = 2) e
        ON e.n = (CAST(:first AS int) + s.k * CAST(:stride AS int) + j)
               % (SELECT count(*) FROM tocsin.events WHERE version = 2)
     ORDER BY j, s.row
"""

_ATTEMPTS = """
    INSERT INTO tocsin.attempts (delivery, number, generation, lease_seq, outcome, counted, status, started_at,
                                 duration_ms, worker, excerpt)
    SELECT row, 1, 1, 1, 'delivered', true, 200, now(), 5, 'history', 'ok'
      FROM tocsin.deliveries WHERE state = 'delivered' ORDER BY row
"""


async def claims(stage: Stage, sizes: Sizes) -> tuple[str, str]:
    """The names of two databases with as much due on 100 lanes: one else empty, one with a past and a future."""

    async def empty(house: House) -> None:
        await _lanes(stage, house, "s-", LANES)
        run = await house.discovered(0)
        await _events(house, run, sizes.due // LANES)
        await due(house, sizes.due // LANES)

    async def full(house: House) -> None:
        await _lanes(stage, house, "s-", LANES)
        await _lanes(stage, house, "held-", HELD_LANES)
        run = await house.discovered(0)
        finished, future, ready = sizes.finished // LANES, sizes.future // LANES, sizes.due // LANES
        await _events(house, run, finished + future + ready)
        await _deliveries(house, "held-", sizes.held // HELD_LANES)
        await _deliveries(house, "s-", future, first=finished, ahead=3600.0)
        await due(house, ready, first=finished + future)
        # Last, so that the newest rows are all alike: they are what the list pages show.
        await _deliveries(house, "s-", finished, state="delivered", attempts=1)
        await house.execute(_ATTEMPTS)

    await stage.template("claims_empty", empty)
    await stage.template("claims_full", full)
    return "claims_empty", "claims_full"


async def backlog(stage: Stage, name: str, deliveries: int) -> None:
    """A database in which so many deliveries are due; those at the front of each lane are of events of their own."""

    async def build(house: House) -> None:
        await _lanes(stage, house, "s-", LANES)
        per_lane = deliveries // LANES
        own = max(per_lane // 5, 1)
        await _events(house, await house.discovered(0), max(own * LANES, per_lane))
        await _deliveries(house, "s-", per_lane, stride=own)

    await stage.template(name, build)


async def due(house: House, per_lane: int, first: int = 0) -> None:
    """Make so many due on every lane, and the lanes open."""
    await _deliveries(house, "s-", per_lane, first=first)
    await house.release("s-")


async def _lanes(stage: Stage, house: House, prefix: str, count: int) -> None:
    for number in range(count):
        await house.subscribe(f"{prefix}{number}", stage.receiver.url(number))


async def _events(house: House, run: RunId, count: int) -> None:
    await house.execute(_EVENTS, run=run, count=count, bytes=BODY_BYTES)
    # Without statistics of these, their deliveries are sometimes planned as a loop over all pairs.
    await house.outside("ANALYZE tocsin.events")


async def _deliveries(
    house: House,
    lanes: str,
    per_lane: int,
    *,
    first: int = 0,
    stride: int = 0,
    ahead: float = 0.0,
    state: str = "pending",
    attempts: int = 0,
) -> None:
    await house.execute(
        _DELIVERIES,
        lanes=lanes,
        count=per_lane,
        first=first,
        stride=stride,
        ahead=ahead,
        state=state,
        attempts=attempts,
    )
