"""What the server takes for each page, as the browser measures it: from the request to the first byte of the answer."""

from collections.abc import Mapping
from statistics import median

from bench.console.browser.seat import Seat, must

MOST_MS = 300
ROUNDS = 5
"""After a first look, which is not counted."""

_TAKEN = "performance.getEntriesByType('navigation').map((it) => it.responseStart - it.requestStart)[0]"


def measure(seat: Seat, places: Mapping[str, str]) -> None:
    """Look at each page, and print the table.

    Raises:
        Unproved: a page takes too long.

    """
    taken = {name: _taken(seat, path) for name, path in places.items()}
    print(f"\n| page | median of {ROUNDS}, ms | longest, ms |\n| --- | ---: | ---: |")
    for name, each in taken.items():
        print(f"| {name} | {median(each):.0f} | {max(each):.0f} |")
    print(flush=True)
    slow = [name for name, each in taken.items() if median(each) > MOST_MS]
    must(not slow, f"these pages take more than {MOST_MS} ms: {', '.join(slow)}")


def _taken(seat: Seat, path: str) -> list[float]:
    seat.open(path)
    found = []
    for _ in range(ROUNDS):
        seat.open(path)
        found.append(float(seat.page.evaluate(_TAKEN)))
    return found
