"""The HTTP API as the commands see it: one client, its refusals as one line each."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Self

import httpx
import typer

from service import __version__
from service.cli.output import with_faults
from service.domain.errors import ConfigurationError, TocsinError, Unavailable
from service.keyfiles import BOOTSTRAP_KEY_FILE
from service.settings import read_secret

DEFAULT_URL = "http://127.0.0.1:8080"
_PAGE = 500

Url = Annotated[
    str, typer.Option("--url", envvar="TOCSIN_URL", help="Where Tocsin's API answers.", show_default=DEFAULT_URL)
]
"""The option that every command with a call in it has."""


class ApiRefused(TocsinError):
    """The API refused the request; `faults` are the places in it and what is wrong there, `said` the rest."""

    def __init__(self, status: int, said: str, faults: Sequence[tuple[str, str]] = ()) -> None:
        self.status = status
        self.said = said
        self.faults = tuple(faults)
        super().__init__(with_faults(said, faults))


class NobodyAnswers(Unavailable):
    """No Tocsin answers at this address."""


class Api:
    """A client for one Tocsin. It takes no proxy from the environment and follows no redirect."""

    def __init__(self, url: str, key: str | None = None) -> None:
        """Nothing is sent yet; `key` is an API key.

        Raises:
            TocsinError: the address is no http or https URL.
            ConfigurationError: the key cannot stand in a header.

        """
        self.url = url.rstrip("/")
        headers = {"user-agent": f"tocsin-cli/{__version__}"}
        if key:
            headers["authorization"] = f"Bearer {_checked(key)}"
        try:
            self._client = httpx.AsyncClient(base_url=self.url, headers=headers, timeout=30, trust_env=False)
        except (httpx.InvalidURL, ValueError):
            raise TocsinError(_NO_URL) from None
        if self._client.base_url.scheme not in ("http", "https") or not self._client.base_url.host:
            raise TocsinError(_NO_URL)

    async def __aenter__(self) -> Self:
        """Open the pool of connections."""
        await self._client.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the pool of connections."""
        await self._client.__aexit__(kind, error, trace)

    async def call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | int | None] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        """Send one request and give back the JSON of its answer (None where it has none).

        Raises:
            ApiRefused: the answer is a problem; its detail is the message.
            Unavailable: the database behind the API is away.
            NobodyAnswers: there is no API; it is `Unavailable` too.

        """
        query = {name: value for name, value in (params or {}).items() if value is not None}
        try:
            answer = await self._client.request(method, path, params=query, json=body)
        except httpx.RequestError as error:
            detail = (
                f"no Tocsin answers at {self._shown()} ({type(error).__name__}): start one with `tocsin up`, "
                "or name its address with --url or TOCSIN_URL."
            )
            raise NobodyAnswers(detail) from None
        if not answer.is_success:
            raise _refusal(answer)
        try:
            return answer.json() if answer.content else None
        except ValueError:
            raise _not_ours(answer) from None

    async def items(self, path: str, limit: int, params: Mapping[str, str | int | None]) -> list[dict[str, Any]]:
        """The newest `limit` items of a list, page by page."""
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        while len(found) < limit:
            page = {**params, "limit": min(_PAGE, limit - len(found)), "cursor": cursor}
            answer = await self.call("GET", path, params=page)
            if not isinstance(answer, dict) or "items" not in answer:
                raise TocsinError(f"what answers at {self._shown()} is not Tocsin.")
            found += answer["items"]
            cursor = answer["nextCursor"]
            if cursor is None:
                break
        return found

    def _shown(self) -> str:
        """The address without user, password and path."""
        base = self._client.base_url
        return f"{base.scheme}://{base.netloc.decode('ascii', 'replace')}"


_NO_URL = "--url is no address: say http://HOST:PORT or https://HOST."


def _refusal(answer: httpx.Response) -> TocsinError:
    """The problem behind an answer as an error with one line of text."""
    try:
        problem = answer.json()
        detail = str(problem.get("detail") or problem.get("title"))
        faults = [(str(fault["pointer"]), str(fault["detail"])) for fault in problem.get("errors", [])]
    except (ValueError, AttributeError, KeyError, TypeError):
        return _not_ours(answer)
    if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
        return Unavailable(with_faults(detail, faults))
    if answer.status_code == httpx.codes.UNAUTHORIZED and "/ticks" not in answer.url.path:
        detail += " Set TOCSIN_API_KEY to a key made with `tocsin keys create`."
    return ApiRefused(answer.status_code, detail, faults)


def _not_ours(answer: httpx.Response) -> ApiRefused:
    return ApiRefused(answer.status_code, f"the answer was HTTP {answer.status_code}, and not one of Tocsin's.")


def _checked(key: str) -> str:
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigurationError("the API key is none: look at TOCSIN_API_KEY and TOCSIN_BOOTSTRAP_KEY.")
    return key


def api_key() -> str | None:
    """The key that commands send: TOCSIN_API_KEY, else TOCSIN_BOOTSTRAP_KEY, else the one `tocsin up` made here.

    Raises:
        ConfigurationError: the setting refers to a variable or a file (env:NAME, file:PATH) that cannot be read.

    """
    for name in ("TOCSIN_API_KEY", "TOCSIN_BOOTSTRAP_KEY"):
        if key := os.environ.get(name, "").strip():
            return read_secret(key).decode("ascii", "replace") if key.startswith(("env:", "file:")) else key
    path = Path(os.environ.get("TOCSIN_DATA_DIR") or ".tocsin") / BOOTSTRAP_KEY_FILE
    try:
        return path.read_text(encoding="ascii").strip() or None
    except (OSError, ValueError):
        return None  # the API then says 401, and `_refusal` how to get a key
