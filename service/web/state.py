"""What a running API knows: the house behind it, and whether it is being taken out of service."""

import asyncio
from dataclasses import dataclass, field, replace
from typing import Annotated

from fastapi import Depends, FastAPI, Request

from service.flow.flights import Flights
from service.flow.intake import Intake
from service.runtime import Runtime
from service.store.gauges import Gauges
from service.web.keyring import Keyring

LOCK_SECONDS = 3.0
"""How long a request waits for a row or table that another transaction holds."""
DATABASE_SECONDS = 10.0
"""How long one transaction of a request may last, the wait for a connection included."""


@dataclass(slots=True)
class WebState:
    """The typed content of `app.state`; the CLI sets `draining` before it stops listening."""

    runtime: Runtime
    intake: Intake = field(init=False)
    keyring: Keyring = field(default_factory=Keyring)
    draining: bool = False
    check: asyncio.Task[None] | None = None
    """The latest look at the database that a readiness probe asked for."""
    look_again_at: float = 0.0
    """When a scrape of the metrics may ask the database again, by the monotonic clock."""
    looks: Flights[None, None] = field(default_factory=Flights[None, None])
    """The look that scrapes are waiting for."""
    gauges: Gauges | None = None
    """What the last such look found; None where the database had no answer in time."""

    def __post_init__(self) -> None:
        """Behind the API no transaction lasts: somebody waits for it."""
        db = self.runtime.db.bounded(lock_seconds=LOCK_SECONDS, seconds=DATABASE_SECONDS)
        self.runtime = replace(self.runtime, db=db)
        self.intake = Intake(db, self.runtime.doorbell)


def state_of(app: FastAPI) -> WebState:
    """The state of an app that `create_app` made."""
    state: WebState = app.state.web
    return state


# FastAPI takes what is not async into a thread, which costs two changes of thread a request.
async def _of_request(request: Request) -> WebState:
    return state_of(request.app)


async def _runtime(request: Request) -> Runtime:
    return state_of(request.app).runtime


House = Annotated[Runtime, Depends(_runtime)]
State = Annotated[WebState, Depends(_of_request)]
