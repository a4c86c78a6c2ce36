"""Forms: read within bounds, known to come from our own pages, and their work done once."""

import asyncio
import hmac
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from urllib.parse import parse_qs, urlsplit

from fastapi import Request
from fastapi.responses import RedirectResponse, Response
from pydantic import TypeAdapter, ValidationError

from service.domain.errors import Forbidden, IdempotencyInFlight, IdempotencyMismatch, Invalid, Problem, TocsinError
from service.domain.model import Scope
from service.web import bodies, idempotency
from service.web.answers import Answer
from service.web.console import notices
from service.web.console.notices import Notice, Typed
from service.web.console.session import Session
from service.web.fields import ReasonText
from service.web.idempotency import Kept, Once, Work
from service.web.problems import Malformed
from service.web.state import WebState

MAX_FIELDS = 2000
WAITS = 50
WAIT_SECONDS = 0.1
"""A second click waits so often and so long for what the first one does."""

_ONCE = re.compile(r"[A-Za-z0-9_-]{22,64}")
_REASON: TypeAdapter[str] = TypeAdapter(ReasonText)


class FormExpired(Forbidden):
    """This form is no longer good: go back, reload the page and send it again. Nothing was done."""


class FormUsed(IdempotencyMismatch):
    """This form was sent before with other values, and that was done. Here is a fresh one."""


@dataclass(frozen=True, slots=True)
class Form:
    """What was filled in; `once` names this one form for ever."""

    once: str
    sha256: bytes
    fields: Mapping[str, Sequence[str]]

    def get(self, name: str) -> str:
        """The field's value without space around it; empty where it was left out."""
        return self.fields.get(name, ("",))[0].strip()

    def all(self, name: str) -> list[str]:
        """The values of a field that may stand there many times, such as ticked boxes."""
        return list(self.fields.get(name, ()))

    @property
    def typed(self) -> dict[str, str]:
        """What may stand there again: the fields that a person filled in."""
        ours = {"csrf", "once"}
        return {name: each[0] for name, each in self.fields.items() if name not in ours and len(each) == 1}

    def reason(self, *, required: bool = False) -> str | None:
        """The field `reason`; None where it may be left out and was.

        Raises:
            Invalid: it is missing, too long or cannot be seen.

        """
        given = self.get("reason")
        if not given and not required:
            return None
        try:
            return _REASON.validate_python(given)
        except ValidationError as error:
            raise Invalid(*(Problem("/reason", str(each["ctx"]["error"])) for each in error.errors())) from None


@dataclass(frozen=True, slots=True)
class Done:
    """What came of the work: the sentence to show, and the page to show it on where it is not the form's own."""

    notice: str
    back: str | None = None


def require(session: Session, needed: Scope) -> None:
    """Let holders of this scope through.

    Raises:
        Forbidden: the holder of the session may not do that.

    """
    if not session.actor.scope.includes(needed):
        raise Forbidden(f"Your key has the scope {session.actor.scope.value}; this needs {needed.value}.")


async def posted(request: Request, session: Session, needed: Scope) -> Form:
    """The form in the request.

    Raises:
        Forbidden: the holder of the session may not do that.
        FormExpired: it is not from a page of this session.
        Malformed, TooLarge, TooSlow, Invalid: it cannot be read.

    """
    fields, raw = await read(request)
    form = Form(fields.get("once", [""])[0], idempotency.digest(request.url.path.encode(), raw), fields)
    if not hmac.compare_digest(fields.get("csrf", [""])[0].encode(), session.csrf.encode()):
        raise FormExpired
    if not _ONCE.fullmatch(form.once):
        raise FormExpired
    require(session, needed)
    return form


async def read(request: Request) -> tuple[dict[str, list[str]], bytes]:
    """The fields of an urlencoded form, and the bytes that they were read from.

    Raises:
        Malformed, TooLarge, TooSlow, Invalid: it cannot be read.

    """
    if request.headers.get("content-type", "").split(";")[0].strip().lower() != "application/x-www-form-urlencoded":
        raise Malformed("Send the form as a browser does: application/x-www-form-urlencoded.")
    raw = await bodies.read(request, bodies.OTHER_BYTES)
    try:
        fields = parse_qs(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS)
    except ValueError:
        raise Malformed("The form is not percent-encoded UTF-8, or has too many fields.") from None
    if any("\0" in value for values in fields.values() for value in values):
        raise Invalid(Problem("", "must not contain U+0000"))
    return fields, raw


async def act(
    request: Request, session: Session, form: Form, work: Callable[[], Awaitable[str | Done]], back: str
) -> Response:
    """Do the work, once however often this form is sent; then to the page `back`, which shows what came of it.

    A refusal is shown there too, with what was typed. `work` may answer `Done` to lead to a page that is known only
    afterwards.
    """
    state: WebState = request.app.state.web
    house = state.runtime
    once = Once(house.db, house.vault, session.actor.name, f"console:{form.once}", form.sha256)
    try:
        notice, where = _told((await _once(once, _answering(work))).answer)
    except TocsinError as error:
        notice, where = notices.of_error(FormUsed() if isinstance(error, IdempotencyMismatch) else error), None
    if notice.bad:
        notice = replace(notice, typed=Typed(request.url.path, form.typed))
    target = where or back
    response = RedirectResponse(target, HTTPStatus.SEE_OTHER)
    notices.leave(request, response, house.vault, notice, csrf=session.csrf, path=urlsplit(target).path)
    return response


def _answering(work: Callable[[], Awaitable[str | Done]]) -> Work:
    async def answer() -> Answer:
        done = await work()
        told = done if isinstance(done, Done) else Done(done)
        return Answer.raw(json.dumps({"notice": told.notice, "back": told.back}).encode())

    return answer


async def _once(once: Once, work: Work) -> Kept:
    """The browser shows only the answer to the last click; so that one waits for the first."""
    for _ in range(WAITS):
        try:
            return await once.do(work)
        except IdempotencyInFlight:
            await asyncio.sleep(WAIT_SECONDS)
    raise IdempotencyInFlight


def _told(answer: Answer) -> tuple[Notice, str | None]:
    told = json.loads(answer.body)
    if answer.status >= HTTPStatus.BAD_REQUEST:
        return Notice(told["detail"], bad=True), None
    return Notice(told["notice"]), told["back"]
