"""The list of deliveries at a million rows: a page far behind beside the first."""

from statistics import median
from time import monotonic

from bench import history
from bench.house import House
from bench.sizes import Sizes
from bench.stage import Stage
from bench.waiting import Failed
from service.store.views import Page
from service.store.views_deliveries import Sought, page_of

_LIMIT = 50


async def measure(stage: Stage, sizes: Sizes) -> None:
    """Both pages in turns; the deep one by the position at which a client that walked there would go on."""
    _, full = await history.claims(stage, sizes)
    async with stage.house(full) as house:
        [(after,)] = await house.execute(
            "SELECT row FROM tocsin.deliveries ORDER BY row DESC OFFSET :seen LIMIT 1",
            seen=(sizes.page - 1) * _LIMIT - 1,
        )
        first, deep = Page(_LIMIT), Page(_LIMIT, after)
        await _read(house, first)
        await _read(house, deep)
        for _ in range(sizes.rounds):
            taken = [(await _read(house, first), await _read(house, deep)) for _ in range(sizes.looks)]
            stage.note("page-first", median(one for one, _ in taken))
            stage.note("page-deep", median(other for _, other in taken))


async def _read(house: House, page: Page) -> float:
    """The milliseconds that a page took."""
    async with house.db.begin() as tx:
        began = monotonic()
        shown = await page_of(tx, Sought(), page)
        taken = (monotonic() - began) * 1000
    if len(shown) != _LIMIT:
        raise Failed(f"a page of {_LIMIT} showed {len(shown)}")
    return taken
