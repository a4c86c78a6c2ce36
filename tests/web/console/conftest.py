"""A browser of a kind: keeps cookies, finds a form on a page and sends it as it stands there."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser

import httpx
import pytest_asyncio

from service.domain.model import Scope
from tests.web.conftest import BOOTSTRAP_KEY, Api

VOID = {"input", "meta", "link", "br", "hr", "img"}


@dataclass
class Element:
    """One element with its attributes and all text inside of it."""

    tag: str
    attributes: dict[str, str]
    inside: list["Element"]
    text: str = ""


@dataclass
class Page(HTMLParser):
    """What is on a page; a tag that closes nothing, or is never closed, is a fault."""

    html: str
    elements: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Read it."""
        HTMLParser.__init__(self)
        self._open: list[Element] = []
        self.feed(self.html)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element begins."""
        element = Element(tag, {name: value or "" for name, value in attrs}, list(self._open))
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element without content."""
        self.elements.append(Element(tag, {name: value or "" for name, value in attrs}, list(self._open)))

    def handle_endtag(self, tag: str) -> None:
        """An element ends."""
        assert self._open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        """Text, of every element that is open."""
        for element in self._open:
            element.text += data

    def all(self, tag: str) -> list[Element]:
        """The elements of this kind."""
        return [element for element in self.elements if element.tag == tag]

    def text(self, tag: str = "main") -> str:
        """The text of the first element of this kind, its white space made single spaces."""
        return " ".join(self.all(tag)[0].text.split())

    @property
    def notice(self) -> str:
        """What an action has said."""
        [notices] = [element for element in self.elements if element.attributes.get("id") == "notices"]
        return " ".join(notices.text.split())

    @property
    def actions(self) -> set[str]:
        """Where the forms on the page post to, the one to sign out left aside."""
        posting = [form for form in self.all("form") if form.attributes.get("method") == "post"]
        return {form.attributes["action"] for form in posting} - {"/console/sign-out"}

    def fields(self, action: str) -> dict[str, str]:
        """The fields of the form that posts there, as they stand."""
        [form] = [each for each in self.all("form") if each.attributes.get("action") == action]
        inputs = [each for each in self.all("input") if form in each.inside and "name" in each.attributes]
        return {each.attributes["name"]: each.attributes.get("value", "") for each in inputs}


@dataclass
class Browser:
    """Somebody at the console."""

    http: httpx.AsyncClient

    async def open(self, path: str, status: int = 200) -> Page:
        """The page there."""
        answer = await self.http.get(path)
        assert (answer.status_code, answer.headers["content-type"]) == (status, "text/html; charset=utf-8")
        return Page(answer.text)

    async def send(self, action: str, fields: dict[str, str]) -> Page:
        """Send a form and go to where that leads."""
        answer = await self.http.post(action, data=fields, follow_redirects=True)
        assert answer.status_code == 200
        return Page(answer.text)

    async def fill(self, path: str, action: str, **values: str) -> Page:
        """Fill in the form on that page and send it."""
        return await self.send(action, (await self.open(path)).fields(action) | values)


@asynccontextmanager
async def browsing(api: Api, key: str | None) -> AsyncIterator[Browser]:
    """A browser of its own, signed in with the key if there is one."""
    transport = httpx.ASGITransport(app=api.app)
    async with httpx.AsyncClient(transport=transport, base_url="https://tocsin") as http:
        if key is not None:
            assert (await http.post("/console/sign-in", data={"key": key})).status_code == 303
        yield Browser(http)


@pytest_asyncio.fixture
async def browser(api: Api) -> AsyncIterator[Browser]:
    """Signed in as `bootstrap`, who may do everything."""
    async with browsing(api, BOOTSTRAP_KEY) as browser:
        yield browser


@pytest_asyncio.fixture
async def reader(api: Api) -> AsyncIterator[Browser]:
    """Signed in as `rita`, who may only read."""
    header = await api.key("rita", Scope.READ)
    async with browsing(api, header["authorization"].removeprefix("Bearer ")) as browser:
        yield browser


@pytest_asyncio.fixture
async def stranger(api: Api) -> AsyncIterator[Browser]:
    """Not signed in."""
    async with browsing(api, None) as browser:
        yield browser
