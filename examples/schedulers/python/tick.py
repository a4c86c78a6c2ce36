#!/usr/bin/env python3
"""Rings a job as a scheduler does, with nothing but Python's own library; also to be imported: `ring`, `tick`.

    TICK_SECRET_FILE=/etc/tocsin/shipments-tick TOCSIN_URL=https://tocsin.example.com python3 tick.py shipments.expire

Every try of one call has the same run id and the same cutoff, and so has another call within the same minute: all of
them are one run.
"""

import hmac
import json
import os
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

USAGE = "usage: TICK_SECRET_FILE=FILE [TOCSIN_URL=http://HOST:PORT] python3 tick.py JOB [CUTOFF]"
TIMEOUT_SECONDS = 30
MAX_NUMBER = 99_999
AGAIN = {408, 425, 429, *range(500, 600)}
"""Answers that say "not now"; every other one would be the same the next time."""


class NotTaken(Exception):
    """Tocsin refused the tick, or nobody answered; the message says which."""


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """Follow nothing: a POST that is redirected would arrive as a GET, and look as if it had been taken."""


_opener = build_opener(_NoRedirect)


def tick(secret: bytes, run_id: str, cutoff: str) -> bytes:
    """The signed body. `cutoff` is RFC 3339 with an offset; what is signed and what is sent are the same characters."""
    signature = hmac.new(secret, f"{run_id}.{cutoff}".encode(), "sha256").hexdigest()
    return json.dumps({"runId": run_id, "cutoffIso": cutoff, "signature": signature}).encode()


def ring(url: str, job: str, body: bytes, *, tries: int = 6, pause: float = 1.0) -> dict[str, object]:
    """Post the same body until it is taken, with pauses of 1, 2, 4 … seconds; the answer, with `duplicate` and `run`.

    Raises:
        NotTaken: the tick was refused, nobody took it in all the tries, or `url` can be nobody's address.

    """
    address = _address(url, job)
    answer = "there was no try"
    for wait in _pauses(tries, pause):
        time.sleep(wait)
        status, answer = _post(address, body)
        if status in {200, 202}:
            return _taken(answer)
        if status not in AGAIN:
            raise NotTaken(f"refused, HTTP {status}: {answer}")
    raise NotTaken(f"not taken in {tries} tries: {answer}")


def _address(url: str, job: str) -> str:
    """Where the job is rung; what no number of tries would mend is said before the first one."""
    try:
        parts = urlsplit(url)
        fits = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:  # of a port that is no number
        fits = False
    if not fits or not url.isprintable() or " " in url:
        raise NotTaken("TOCSIN_URL must be Tocsin's address with its scheme, like https://tocsin.example.com")
    return f"{url.rstrip('/')}/v1/jobs/{quote(job, safe='')}/ticks"


def _pauses(tries: int, pause: float) -> Iterator[float]:
    """How long to wait before each try: not at all before the first one."""
    for number in range(tries):
        yield pause * 2 ** (number - 1) if number else 0


def _post(address: str, body: bytes) -> tuple[int, str]:
    """The status and the text of the answer; where nobody answers, 503 and what went wrong."""
    request = Request(address, body, {"content-type": "application/json"})  # noqa: S310 -- the operator's own address
    try:
        with _opener.open(request, timeout=TIMEOUT_SECONDS) as answer:
            return answer.status, answer.read(65_536).decode(errors="replace")
    except HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.read(65_536).decode(errors="replace")
    except (OSError, HTTPException) as fault:
        return 503, str(fault)


def _taken(answer: str) -> dict[str, object]:
    try:
        found = json.loads(answer)
    except ValueError:
        found = None
    if not isinstance(found, dict) or "duplicate" not in found:
        raise NotTaken("the answer is not from Tocsin: is TOCSIN_URL its address?")
    return found


def secret_in(file: str) -> bytes:
    """The secret in a file, without the line ends behind it; Tocsin trims its own copy in the same way."""
    secret = Path(file).read_bytes().rstrip(b"\r\n")
    if not secret:
        raise NotTaken(f"{file} is empty")
    return secret


def _number(name: str, usual: int, *, least: int) -> int:
    """The whole number that the variable holds."""
    given = os.environ.get(name, "") or str(usual)
    if not (given.isascii() and given.isdigit()) or not least <= int(given[:9]) <= MAX_NUMBER:
        raise NotTaken(f"{name} must be a whole number from {least} to {MAX_NUMBER}")
    return int(given)


def main(arguments: list[str]) -> int:
    """Ring the job that the arguments name; 0 when it was taken, 1 when it was not, 2 for a wrong call."""
    file = os.environ.get("TICK_SECRET_FILE")
    if not file or len(arguments) not in {1, 2} or arguments[0].startswith("-"):
        sys.stderr.write(f"{USAGE}\n")
        return 2
    job, *given = arguments
    cutoff = given[0] if given else datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:00Z")  # noqa: UP017 -- 3.9
    try:
        answer = ring(
            os.environ.get("TOCSIN_URL", "http://127.0.0.1:8080"),
            job,
            tick(secret_in(file), f"{job}@{cutoff}", cutoff),
            tries=_number("TICK_TRIES", 6, least=1),
            pause=_number("TICK_PAUSE", 1, least=0),
        )
    except (NotTaken, OSError) as fault:
        sys.stderr.write(f"tick.py: {fault}\n")
        return 1
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
