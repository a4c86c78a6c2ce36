"""Things by the ids that people type: what cannot be an id is refused first, what is not there is named."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus

from service.cli.api import ApiRefused
from service.domain.errors import TocsinError
from service.domain.identifiers import parse_delivery_id

_WHERE = {
    "delivery": "`tocsin deliveries` lists them",
    "bulk replay": "`tocsin replays list` shows them",
    "subscriber": "`tocsin subscribers list` shows them",
    "run": "`tocsin runs` lists them",
    "job": "the tocsin.toml of that Tocsin declares none of this name",
}


def check_delivery_ids(given: Iterable[str]) -> None:
    """Let ids pass that may be some delivery's.

    Raises:
        TocsinError: one cannot be; nothing was done yet.

    """
    for each in given:
        if parse_delivery_id(each) is None:
            raise TocsinError(no_delivery_id(each))


def no_delivery_id(given: str) -> str:
    """What is said of a text that is no delivery's id."""
    return f"{given} is no delivery's id: one is dlv_ and 32 of 0-9 and a-v, as `tocsin deliveries` lists it."


@contextmanager
def named(kind: str, given: str) -> Iterator[None]:
    """Have a 404 from inside say which thing is not there."""
    try:
        yield
    except ApiRefused as refusal:
        if refusal.status != HTTPStatus.NOT_FOUND:
            raise
        no_id = kind == "delivery" and parse_delivery_id(given) is None
        said = no_delivery_id(given) if no_id else f"there is no {kind} {given}: {_WHERE[kind]}."
        raise ApiRefused(refusal.status, said) from None


@contextmanager
def in_options(options: Mapping[str, str]) -> Iterator[None]:
    """Have a refusal from inside speak of a command's options where the API speaks of places in the body."""
    try:
        yield
    except ApiRefused as refusal:
        faults = [(options.get(pointer, pointer), detail) for pointer, detail in refusal.faults]
        raise ApiRefused(refusal.status, refusal.said, faults) from None
