"""What several commands share: how their help looks, and options that are spelt and explained alike."""

import sys
from typing import Annotated, Any

import typer

from service.domain.identifiers import MAX_RUN_ID_BYTES
from service.domain.jsontext import text_fault
from service.settings import read_secret


def command_app(**how: Any) -> typer.Typer:
    """A command or a group of them: plain help, no completion options, and no local variables in a traceback."""
    return typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, **how)


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else on stdout.")]

Limit = Annotated[int, typer.Option(min=1, max=100_000, help="How many to list, newest first.")]

_MAX_SECRET_BYTES = 65_536


def secret_from(reference: str) -> bytes:
    """The secret behind `env:NAME`, `file:PATH` or `-` (stdin), without the line ends behind it.

    Raises:
        ConfigurationError: the variable is not set, the file cannot be read, or the reference is neither (it is not
            shown then, because it may be the secret itself).

    """
    if reference == "-":
        return sys.stdin.buffer.read(_MAX_SECRET_BYTES).rstrip(b"\r\n")
    return read_secret(reference)


def acceptable_run_id(value: str | None) -> str | None:
    """The run id, if it is given and the API would take it: what is signed here must not be refused there.

    Raises:
        typer.BadParameter: it would not.

    """
    fault = None if value is None else text_fault(value, max_bytes=MAX_RUN_ID_BYTES)
    if fault:
        raise typer.BadParameter(fault)
    return value
