"""Reconciliation: the report of everything that no healthy system would show."""

from fastapi import APIRouter, Response
from pydantic import Field

from service.domain import errors
from service.flow.reconciling import reconcile
from service.store.reconciliation import MOST, Kind
from service.web.answers import ok
from service.web.auth import Reader
from service.web.described import KEYED, answers, refusals
from service.web.fields import Instant, NoQuery, Out
from service.web.state import House

router = APIRouter(tags=["reconciliation"])


class Finding(Out):
    """One kind of record that should not be there."""

    kind: Kind
    count: int = Field(description=f"How many; {MOST:,} stands for that many or more.", examples=[3])
    examples: list[str] = Field(
        description="Ids of up to 20 of them: deliveries, events, runs, replays or subscribers, as the kind has it.",
        examples=[["dlv_06dd7h3t21t5533nbce9s3af4800000o"]],
    )
    detail: str = Field(examples=["deliveries whose lease ran out more than a minute ago, and nobody took them over"])
    mend: str = Field(examples=["Start a worker: it records the dead owner's attempt as in_doubt and goes on."])


class Reconciliation(Out):
    """What was found; without findings the records agree."""

    at: Instant
    findings: list[Finding]
    unchecked: list[Kind] = Field(description="Kinds whose look was cut short after 2 seconds.", examples=[[]])


@router.get(
    "/v1/reconciliation",
    summary="Reconcile",
    description=(
        "Every record that no healthy system would show, each with its mend: leases that nobody takes over, events "
        "that were not fanned out, runs and lanes that stand still, counts that disagree. Nothing is changed. What is "
        "young is left alone, so that a busy system shows nothing."
    ),
    responses={**answers(Reconciliation, {200: "The report as of now."}), **refusals(*KEYED, errors.Invalid)},
)
async def get_reconciliation(_: Reader, __: NoQuery, house: House) -> Response:
    """The report."""
    return ok(Reconciliation.model_validate(await reconcile(house.db)))
