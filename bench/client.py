"""The floor: the product's own client posting signed bodies, with no database behind it.

Prints `ready` when it is warm; for each line on stdin, which says how many posts and how many in flight, it posts them
and prints `done`.
"""

import argparse
import asyncio
import sys
from collections.abc import Iterator
from ipaddress import ip_network
from itertools import count, islice

import uvloop
from uuid_utils.compat import uuid7

from bench.bodies import event
from service.domain.identifiers import delivery_key
from service.domain.model import Outcome
from service.flow.egress import Egress
from service.flow.send import Request, send

_WARM = 500
_WARM_IN_FLIGHT = 64
_TIMEOUT_SECONDS = 15.0


def _requests(urls: list[str]) -> Iterator[Request]:
    """Requests as the wide drain makes them: one body for many subscribers, each signed with a key of its own."""
    run_id = str(uuid7())
    for turn in count():
        made = event(turn)
        for number, url in enumerate(urls):
            yield Request(
                url=url,
                webhook_id=delivery_key(made.id, f"s-{number}"),
                body=made.body,
                secrets=(number.to_bytes(32),),
                generation=1,
                attempt=1,
                timeout_seconds=_TIMEOUT_SECONDS,
                run_id=run_id,
            )


async def _post(egress: Egress, requests: Iterator[Request], posts: int, in_flight: int) -> None:
    """Make so many posts, with so many under way at any time."""
    batch = islice(requests, posts)

    async def one_after_another() -> None:
        for request in batch:
            answer = await send(egress, request)
            if answer.outcome is not Outcome.DELIVERED:
                raise SystemExit(f"a post ended as {answer.outcome}: {answer.detail}")

    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(one_after_another())


async def _run(urls: list[str]) -> None:
    egress = Egress((ip_network("127.0.0.0/8"),))
    requests = _requests(urls)
    await _post(egress, requests, _WARM, _WARM_IN_FLIGHT)
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        posts, in_flight = map(int, line.split())
        await _post(egress, requests, posts, in_flight)
        print("done", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("urls", nargs="+")
    uvloop.run(_run(parser.parse_args().urls))
