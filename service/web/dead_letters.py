"""Dead letters: what has not arrived and will not by itself, by cause."""

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import Field

from service.domain import errors
from service.store import dead_letters
from service.web.answers import ok
from service.web.auth import Reader
from service.web.described import KEYED, answers, refusals
from service.web.fields import Asked, NameText
from service.web.replay_schemas import DeadLetters
from service.web.state import House

router = APIRouter(tags=["deliveries"])


class DeadLettersQuery(Asked):
    """Of whom, and how finely."""

    subscriber_id: NameText | None = Field(None, description="Of this subscriber only.", examples=["billing"])
    by_subscriber: Annotated[bool, Field(description="Each subscriber by itself.")] = False


@router.get(
    "/v1/dead-letters",
    summary="Count the dead letters",
    description="By state, reason, last outcome and status, each with an example. To list them, ask for deliveries.",
    responses={**answers(DeadLetters, {200: "As it is now."}), **refusals(*KEYED, errors.Invalid)},
)
async def get_dead_letters(_: Reader, house: House, query: Annotated[DeadLettersQuery, Query()]) -> Response:
    """The kinds of dead letters."""
    async with house.db.begin() as tx:
        found = await dead_letters.dead_letters(
            tx, subscriber_id=query.subscriber_id, by_subscriber=query.by_subscriber
        )
    return ok(DeadLetters.model_validate(found))
