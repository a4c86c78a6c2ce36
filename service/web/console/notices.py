"""What an action says on the page after it: carried there by a sealed cookie, shown once."""

import json
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

_MARK = "console notice"
_MAX_COOKIE_CHARS = 4096


@dataclass(frozen=True, slots=True)
class Notice:
    """One sentence or two; `bad` where something was refused."""

    text: str
    bad: bool = False


def of_error(error: TocsinError) -> Notice:
    """A refusal in words, with each fault in the form; what is our own fault shows nothing of itself."""
    known, kind = kind_of(error)
    if known is Internal:
        return Notice(f"{kind.title}. {kind.mend}", bad=True)
    if isinstance(error, Invalid) and error.problems:
        return Notice("; ".join(f"{_field(each.pointer)} {each.detail}" for each in error.problems), bad=True)
    return Notice(error.detail, bad=True)


def leave(request: Request, response: Response, vault: Vault, notice: Notice) -> None:
    """Have the next page show it."""
    text = json.dumps({"is": _MARK, "text": notice.text[:MAX_CHARS], "bad": notice.bad}, ensure_ascii=False)
    sealed = vault.seal(text.encode("utf-8", "replace")).decode("ascii")
    put_cookie(request, response, COOKIE, sealed, LIFE_SECONDS)


def waiting(request: Request, vault: Vault) -> Notice | None:
    """The one that waits to be shown."""
    cookie = request.cookies.get(COOKIE, "")
    if not (0 < len(cookie) <= _MAX_COOKIE_CHARS and cookie.isascii()):
        return None
    try:
        told = json.loads(vault.open(cookie.encode()))
    except (Unreadable, ValueError):
        return None
    return Notice(told["text"], told["bad"]) if isinstance(told, dict) and told.get("is") == _MARK else None


def clear(response: Response) -> None:
    """Show it no second time."""
    response.delete_cookie(COOKIE, path=PATH)


def _field(pointer: str) -> str:
    return pointer.rsplit("/", 1)[-1] or "the form"
