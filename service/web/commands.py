"""A request that changes something: who sends it, its body, and its work done once per Idempotency-Key."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Header, Request, Response

from service.domain.model import Scope
from service.web import bodies, idempotency
from service.web.auth import Allow
from service.web.bodies import ModelT
from service.web.fields import In, ReasonText
from service.web.idempotency import Once, Work
from service.web.keyring import Actor
from service.web.state import State

KeyHeader = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description=(
            "1-255 visible ASCII characters, bare or quoted. The same key with the same request gets the stored answer "
            "(`idempotency-replayed: true`) for 24 hours."
        ),
        examples=["3f0c6f0e-retry-nightly"],
    ),
]


class Why(In):
    """Why it is done; it stands in the audit trail."""

    reason: ReasonText | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """What the caller wants changed."""

    actor: str
    raw: bytes
    _once: Once | None

    def parse(self, model: type[ModelT]) -> ModelT:
        """The body as a model; see `bodies.parse`."""
        return bodies.parse(model, self.raw)

    def parse_optional(self, model: type[ModelT]) -> ModelT:
        """The same, where no body at all stands for an empty object."""
        return bodies.parse(model, self.raw or b"{}")

    async def do(self, work: Work) -> Response:
        """The answer of the work; with an Idempotency-Key, of the first time it was done."""
        if self._once is None:
            return (await work()).response()
        kept = await self._once.do(work)
        return kept.answer.response(replayed=kept.replayed)


def commanded(scope: Scope, limit: int = bodies.OTHER_BYTES) -> Callable[..., Awaitable[Command]]:
    """A dependency that lets holders of at least this scope through and reads a body of up to `limit` bytes."""
    allowed = Allow(scope)

    async def command(
        request: Request, state: State, actor: Annotated[Actor, Depends(allowed)], _key: KeyHeader = None
    ) -> Command:
        wanted = idempotency.key_of(request.headers.getlist("idempotency-key"))
        raw = await bodies.read(request, limit)
        if wanted is None:
            return Command(actor.name, raw, None)
        runtime = state.runtime
        target = request.url.path.encode("utf-8", "surrogatepass"), request.url.query.encode()
        sha256 = idempotency.digest(request.method.encode(), *target, raw)
        return Command(actor.name, raw, Once(runtime.db, runtime.vault, actor.name, wanted, sha256))

    return command


Operate = Annotated[Command, Depends(commanded(Scope.OPERATE))]
Administer = Annotated[Command, Depends(commanded(Scope.ADMIN))]
