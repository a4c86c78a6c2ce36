"""How much is measured: the full run, and a smoke that only shows that every part works."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """Everything that a part may choose; a shape is (subscribers, events), whose product is its deliveries."""

    drain_rounds: int = 5
    """Of the drains and the client alone: they are the shortest, and move the most with the machine."""
    posts: int = 30_000
    """Of the client alone, with many in flight: as many seconds as a drain takes."""
    rounds: int = 3
    """Samples of each figure; compared figures take turns within a round."""
    workers: tuple[int, ...] = (1, 2)
    """Processes of a drain."""
    wide: tuple[int, int] = (500, 20)
    narrow: tuple[int, int] = (5, 2_000)
    strict: tuple[int, int] = (1, 2_000)
    fan_out: tuple[int, int] = (500, 200)
    others: tuple[int, int] = (99, 200)
    """The subscribers beside the hanging one."""
    swept: tuple[int, int] = (500, 160)
    """A backlog that takes some ten seconds, while old deliveries are swept that take a minute."""
    old: int = 500_000
    ticked: tuple[int, int] = (500, 700)
    """A backlog that outlasts the ticks during it."""
    ticks: int = 100
    claims: int = 60
    due: int = 50_000
    """On 100 lanes, for the claims of all rounds and the warm-up."""
    finished: int = 1_000_000
    future: int = 200_000
    held: int = 200_000
    page: int = 1_000
    looks: int = 50
    """How often each page is read in a round."""
    backlog: int = 1_000_000
    short_backlog: int = 1_000
    crowd: tuple[int, int] = (2_000, 500)
    """A million deliveries; one sample of it takes minutes."""
    crowd_short: int = 10
    """Events for the same subscribers, before and after."""
    away: tuple[int, int] = (100, 1_000)
    """Those who come back from an outage, and what waits for each: it outlasts the events during their return."""
    well: tuple[int, int] = (20, 200)
    """Those who were never away, and the events for them in each half of a sample."""
    storm_rate: int = 1_000
    """Ticks a second."""
    storm_seconds: int = 10
    work_seconds: float = 12.0
    """How long a worker works before its memory is read."""


FULL = Sizes()
QUICK = Sizes(
    drain_rounds=1,
    posts=1_000,
    rounds=1,
    workers=(2,),
    wide=(50, 20),
    narrow=(5, 200),
    strict=(1, 200),
    fan_out=(100, 50),
    others=(99, 10),
    swept=(50, 40),
    old=20_000,
    ticked=(20, 500),
    ticks=20,
    claims=10,
    due=5_000,
    finished=20_000,
    future=4_000,
    held=4_000,
    page=100,
    looks=10,
    backlog=20_000,
    short_backlog=1_000,
    crowd=(40, 50),
    crowd_short=10,
    away=(20, 400),
    well=(5, 10),
    storm_rate=100,
    storm_seconds=1,
    work_seconds=2.0,
)
