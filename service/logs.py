"""Logging: one line for each finished thing, on stderr, for people or for machines; whatever is in it, it stays a line.

Lines hold ids and our own words. What others wrote is made harmless on its way out: control characters, URLs beyond
their origin, credentials, and the messages of exceptions, which may hold a row, a payload or a secret.
"""

import json
import logging
import re
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal

import orjson
import structlog
from structlog.typing import EventDict, ExcInfo, Processor, WrappedLogger

from service.domain.errors import TocsinError
from service.domain.redaction import redacted
from service.domain.unseen import Rewriting, is_clear

FRAMES: Final = 25
"""Innermost calls of a traceback that are shown."""
CAUSES: Final = 8
"""Exceptions behind an exception that are shown."""

_QUIET = ("httpx", "httpcore", "uvicorn.access", "asyncio", "sqlalchemy.engine", "alembic")
"""What others log below a warning: it repeats our own lines, and some of it holds URLs."""

_ESCAPED = Rewriting(lambda char: char if is_clear(char) else char.encode("unicode_escape").decode())
"""On the console: what begins a line, steers a terminal, is invisible, or turns the direction of writing."""
_LEFT_BY_REPR = Rewriting(lambda char: _ESCAPED[ord(char)] if char.isprintable() else char)
_SPACED = Rewriting(lambda char: char if is_clear(char) else " ")


def configure(log_format: Literal["console", "json"], *, level: int = logging.INFO) -> None:
    """Send every log line, ours and the libraries', to stderr in one format; may be called again."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.ExceptionRenderer(_traced),
    ]
    structlog.configure(
        processors=[*shared, *_rendered(log_format)],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    _adopt_standard_logging(log_format, shared, level)


def json_lines(told: Sequence[Mapping[str, object]]) -> None:
    """Log many finished things at once in the JSON format, each `event` on a line of its own, at level info.

    They share one time stamp and one write: a worker logs thousands a second, and lines that go one by one cost it a
    fifth of its time. They hold ids and our own words alone, and so are not scrubbed.
    """
    common = {"level": "info", "timestamp": datetime.now(UTC).isoformat().replace("+00:00", "Z")}
    sys.stderr.write("".join([_json_line({**line, **common}) for line in told]))
    sys.stderr.flush()


def _json_line(line: Mapping[str, object]) -> str:
    """One line of ASCII: what is beyond it may be a control character, which orjson leaves as it is."""
    try:
        if (fast := orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)).isascii() and b"\x7f" not in fast:
            return fast.decode()
    except TypeError:  # a lone surrogate
        pass
    return json.dumps(line, default=repr) + "\n"


def _adopt_standard_logging(log_format: str, shared: list[Processor], level: int) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_rendered(log_format)],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


def _rendered(log_format: str) -> list[Processor]:
    if log_format == "json":
        return [_harmless, structlog.processors.JSONRenderer()]
    return [_harmless, _one_line, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=30)]


def _harmless(_logger: WrappedLogger, _name: str, event: EventDict) -> EventDict:
    """Nothing in the line is secret, or longer than a line should be."""
    return {key: value if key == "exception" else _scrubbed(value) for key, value in event.items()}


def _scrubbed(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): _scrubbed(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_scrubbed(inner) for inner in value]
    return redacted(str(value) if isinstance(value, str) else repr(value))


def _one_line(_logger: WrappedLogger, _name: str, event: EventDict) -> EventDict:
    """On the console a value cannot begin a line or steer the terminal."""
    return {key: value if key == "exception" else _escaped(value) for key, value in event.items()}


def _escaped(value: Any) -> Any:
    """The renderer puts quotes around what has blanks in it, and shows lists by `repr`, which itself escapes most."""
    if isinstance(value, str):
        return value if is_clear(value) else value.translate(_ESCAPED)
    return _within(value)


def _within(value: Any) -> Any:
    """What `repr` would leave as it is, such as fillers, escaped in all that is in a list or a mapping."""
    if isinstance(value, str):
        return value.translate(_LEFT_BY_REPR)
    if isinstance(value, list):
        return [_within(each) for each in value]
    if isinstance(value, dict):
        return {_within(name): _within(each) for name, each in value.items()}
    return value


def _traced(exc_info: ExcInfo) -> str:
    """Where an exception and those behind it came from, without their messages, and without the values of variables."""
    shown = [_one(error) for error in _behind(exc_info[1])]
    return "\nwhich led to:\n".join(reversed(shown))


def _behind(error: BaseException | None) -> Iterator[BaseException]:
    for _ in range(CAUSES):
        if error is None:
            return
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _one(error: BaseException) -> str:
    frames = "".join(traceback.format_tb(error.__traceback__, limit=-FRAMES))
    return f"{frames}{type(error).__module__}.{type(error).__qualname__}{_known(error)}"


def _known(error: BaseException) -> str:
    """What can be said of an exception: our own words, or a code of the system's or the database's."""
    if isinstance(error, TocsinError):
        return f": {redacted(error.detail).translate(_SPACED)}"
    if isinstance(error, OSError) and error.strerror:
        return f": {error.strerror}"
    if isinstance(error, BaseExceptionGroup):
        return f": {', '.join(type(each).__qualname__ for each in error.exceptions[:CAUSES])}"
    sqlstate = getattr(error, "sqlstate", None) or getattr(getattr(error, "orig", None), "sqlstate", None)
    return f": SQLSTATE {sqlstate}" if isinstance(sqlstate, str) and re.fullmatch("[0-9A-Z]{5}", sqlstate) else ""
