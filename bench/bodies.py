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
    data = {"shipmentId": f"shipment-{number}", "status": "expired", "carrier": "north", "note": ""}
    bare = _composed(number, type_, data)
    return _composed(number, type_, data | {"note": "x" * (BODY_BYTES - len(bare.body))})


def _composed(number: int, type_: str, data: dict[str, str]) -> NewEvent:
    found = Found(type_, f"shipment-{number}", 1, json.dumps(data, separators=(",", ":")))
    return compose(found, EventId(uuid7()), datetime.now(UTC))
