"""What the demo tells at its end: what happened to each kind of subscriber and why, and how to go on."""

import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from service.cli.api import Api
from service.cli.demo_cast import CAST, Kind, Seen, kind_of
from service.cli.demo_stage import HEADER_FILE, JOB
from service.cli.output import console, table
from service.settings import Settings

_EVERYTHING = 100_000

Delivery = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Line:
    """What became of the deliveries to one kind of subscriber; `sample` is the one of them that was tried most."""

    kind: Kind
    ends: Mapping[str, int]
    attempts: int
    sample: Delivery


async def collect(api: Api, run_id: str) -> list[Line]:
    """Read the run's deliveries over the API and sum them up by kind."""
    deliveries = await api.items("/v1/deliveries", _EVERYTHING, {"runId": run_id})
    by_kind: dict[str, list[Delivery]] = {}
    for delivery in deliveries:
        by_kind.setdefault(kind_of(delivery["subscriberId"]).slug, []).append(delivery)
    return [await _line(api, kind, by_kind[kind.slug]) for kind in CAST if kind.slug in by_kind]


async def _line(api: Api, kind: Kind, deliveries: Sequence[Delivery]) -> Line:
    ends = Counter(_end(delivery) for delivery in deliveries)
    attempts = sum(int(delivery["attemptCount"]) for delivery in deliveries)
    most_tried = max(deliveries, key=lambda delivery: int(delivery["attemptCount"]))
    sample = await api.call("GET", f"/v1/deliveries/{quote(most_tried['id'], safe='')}")
    return Line(kind, ends, attempts, sample)


def show(lines: Sequence[Line], seen: Seen) -> None:
    """Print the table, and what the receivers saw."""
    rows = [
        (line.kind.count, line.kind.words, _ends(line), f"{line.attempts:,}", _story(line.sample)) for line in lines
    ]
    out = console()
    out.print(table(("", "RECEIVERS THAT", "DELIVERIES", "ATTEMPTS", "HOW THE ONE TRIED MOST WENT"), rows))
    verified = "every signature was right" if not seen.faults else f"{seen.faults:,} SIGNATURES WERE WRONG"
    out.print(
        f"\nThe receivers saw {seen.requests:,} requests; {verified}; {seen.duplicates:,} repeated a key that had been "
        "applied, and were not applied again.\nWho failed ten times in a row is only probed from then on: the rest of "
        "those deliveries waited for their deadline, untried."
    )


def _end(delivery: Delivery) -> str:
    return f"{delivery['state']} ({delivery['reason']})" if delivery["reason"] else str(delivery["state"])


def _ends(line: Line) -> str:
    """`11 ambiguous (timeout-may-have-been-applied), 189 exhausted (deadline)`: how many ended how, and why."""
    return ", ".join(f"{count:,} {end}" for end, count in sorted(line.ends.items()))


def _story(delivery: Delivery) -> str:
    """The attempts of one delivery: `429 throttled, 200 delivered`."""
    attempts = [f"{attempt['status'] or ''} {attempt['outcome']}".strip() for attempt in delivery["attempts"]]
    return ", ".join(attempts) or "never tried: its subscriber's circuit was open"


def how_to_go_on(settings: Settings, url: str, run_id: str, lines: Sequence[Line]) -> Iterator[str]:
    """Lines that can be pasted into any shell on this machine."""
    home = settings.data_dir
    curl = f"curl -sS -H @{shlex.quote(str(home / HEADER_FILE))}"
    pretty = "| python3 -m json.tool"
    yield f"{curl} {url}/v1/runs/{run_id} {pretty}"
    yield f"{curl} '{url}/v1/deliveries?state=exhausted&limit=2' {pretty}"
    for line in lines:
        if line.kind.slug == "lossy":
            yield f"{curl} {url}/v1/deliveries/{line.sample['id']} {pretty}"
    yield ""
    # Set for each command alone: what a terminal exports would lead the next Tocsin in it to the demo's database.
    command = shlex.quote(str(Path(sys.executable).parent / "tocsin"))
    there = f"TOCSIN_URL={url} TOCSIN_DATA_DIR={shlex.quote(str(home))}"
    yield f"{there} TOCSIN_CONFIG={shlex.quote(str(settings.config))} {command} tick {JOB} --wait"
    yield f"{there} {command} deliveries --state ambiguous --limit 5"
