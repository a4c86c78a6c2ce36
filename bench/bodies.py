"""The events of the benchmark: some 450 bytes each, as a small business event has."""

import json
from datetime import UTC, datetime

from uuid_utils.compat import uuid7

from service.domain.eventbody import compose
from service.domain.model import EventId, Found, NewEvent

BODY_BYTES = 450
MEASURED = "shipment.expired"
"""The type of the events that are measured; what warms up has another."""


def event(number: int, type_: str = MEASURED) -> NewEvent:
    """A new event about the subject of this number."""
    return _composed(fact(number, type_))


def fact(number: int, type_: str = MEASURED) -> Found:
    """What such an event says, for whoever publishes it."""
    bare = _composed(_found(number, type_, ""))
    return _found(number, type_, "x" * (BODY_BYTES - len(bare.body)))


def _found(number: int, type_: str, note: str) -> Found:
    data = {"shipmentId": f"shipment-{number}", "status": "expired", "carrier": "north", "note": note}
    return Found(type_, f"shipment-{number}", 1, json.dumps(data, separators=(",", ":")))


def _composed(found: Found) -> NewEvent:
    return compose(found, EventId(uuid7()), datetime.now(UTC))
