"""What Tocsin tells of itself: the types of its operational events, and the patterns that ask for them."""

from enum import StrEnum
from typing import Final

from service.domain.identifiers import topics


class Operational(StrEnum):
    """An operational event's type; `docs/operational-events.md` says when each is published and what is in it."""

    RUN_SETTLED = "tocsin.run.settled"
    RUN_FAILED = "tocsin.run.failed"
    DELIVERY_DEAD = "tocsin.delivery.dead"
    SUBSCRIBER_DISABLED = "tocsin.subscriber.disabled"


PATTERNS: Final = tuple(sorted({topic for kind in Operational for topic in topics(kind.value)}))
"""Whoever subscribes to one of these listens; an index of the subscribers is made of them, so one more needs another
migration."""
HOUSE_TENANT: Final = "default"
"""Runs belong to no tenant, so what is told of them is this one's: other tenants learn nothing of each other."""
