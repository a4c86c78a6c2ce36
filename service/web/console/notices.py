"""What an action says on the page after it: carried there by a sealed cookie, shown once."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from fastapi import Request
from fastapi.responses import Response

from service.domain.errors import Invalid, TocsinError
from service.store.vault import Unreadable, Vault
from service.web.console.session import PATH, put_cookie
from service.web.problems import Internal, kind_of

COOKIE = "tocsin_notice"
LIFE_SECONDS = 60
MAX_CHARS = 600

MAX_BYTES = 2600
"""Of all that is carried, so that the sealed cookie stays within the 4,096 that a browser keeps."""

_MARK = "console notice"
_MAX_COOKIE_CHARS = 4096


@dataclass(frozen=True, slots=True)
class Typed:
    """What stood in a form that was refused, by the names of its fields; `action` is where the form posts to."""

    action: str
    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Notice:
    """One sentence or two; `bad` where something was refused, with what was `typed`, so that it can be mended."""

    text: str
    bad: bool = False
    typed: Typed | None = None


def of_error(error: TocsinError) -> Notice:
    """A refusal in words, with each fault in the form; what is our own fault shows nothing of itself."""
    known, kind = kind_of(error)
    if known is Internal:
        return Notice(f"{kind.title}. {kind.mend}", bad=True)
    if isinstance(error, Invalid) and error.problems:
        return Notice("; ".join(f"{_field(each.pointer)} {each.detail}" for each in error.problems), bad=True)
    return Notice(error.detail, bad=True)


def leave(request: Request, response: Response, vault: Vault, notice: Notice, *, csrf: str, path: str) -> None:
    """Have the page at `path` show it, in the session of `csrf` and in no other: it may hold a secret.

    What was typed goes along where there is room for it.
    """
    told = {"is": _MARK, "for": csrf, "at": path, "text": notice.text[:MAX_CHARS], "bad": notice.bad}
    content = _packed(told | {"typed": [notice.typed.action, notice.typed.fields]} if notice.typed else told)
    sealed = vault.seal(content if len(content) <= MAX_BYTES else _packed(told)).decode("ascii")
    put_cookie(request, response, COOKIE, sealed, LIFE_SECONDS)


def waiting(request: Request, vault: Vault, csrf: str) -> Notice | None:
    """The one that waits to be shown on this page, in the session of `csrf`."""
    cookie = request.cookies.get(COOKIE, "")
    if not (0 < len(cookie) <= _MAX_COOKIE_CHARS and cookie.isascii()):
        return None
    try:
        told = json.loads(vault.open(cookie.encode()))
    except (Unreadable, ValueError):
        return None
    if not isinstance(told, dict) or [told.get(key) for key in ("is", "for", "at")] != [_MARK, csrf, request.url.path]:
        return None
    return Notice(told["text"], told["bad"], Typed(*told["typed"]) if "typed" in told else None)


def clear(response: Response) -> None:
    """Show it no second time."""
    response.delete_cookie(COOKIE, path=PATH)


def _packed(told: Mapping[str, object]) -> bytes:
    return json.dumps(told, ensure_ascii=False).encode("utf-8", "replace")


def _field(pointer: str) -> str:
    return pointer.rsplit("/", 1)[-1] or "the form"
