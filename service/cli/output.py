"""What the commands print: tables for people, JSON for programs, complaints on stderr."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

_PIPED_WIDTH = 240
"""Columns of a table that goes into a file or a pipe: wide enough that no id is cut."""


def console(*, stderr: bool = False) -> Console:
    """A console that never reads markup out of data and never cuts an id when its output is piped."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _PIPED_WIDTH
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False)


def plain(value: object) -> str:
    """Text from elsewhere (receivers, the API) without anything that a terminal would obey."""
    text = "" if value is None else str(value)
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


def complain(message: str) -> None:
    """One line on stderr: what went wrong and how to mend it."""
    sys.stderr.write(f"tocsin: {plain(message)}\n")


def with_faults(detail: str, faults: Iterable[tuple[str, str]]) -> str:
    """A refusal in one line: `detail (/name: what is wrong; …)`."""
    told = "; ".join(f"{pointer or '/'}: {fault}" for pointer, fault in faults)
    return f"{detail} ({told})" if told else detail


def print_json(value: object) -> None:
    """The value as JSON and nothing else on stdout."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def print_json_line(value: object) -> None:
    """The value as one line of JSON, at once: for output that goes on."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str = "Nothing found.") -> None:
    """A table without frames, its cells made safe; where there are no rows, the sentence that says so."""
    out = console()
    if not rows:
        out.print(empty)
        return
    out.print(table(columns, rows))


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """Build the table that `print_table` prints."""
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        drawn.add_column(column, overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(plain(cell)) for cell in row))
    return drawn


def print_fields(fields: Mapping[str, Any]) -> None:
    """One thing as two columns: the field's name and its value; what is null or empty is left out."""
    shown = [(name, value) for name, value in fields.items() if value not in (None, "", {}, [])]
    out = console()
    grid = Table(box=None, pad_edge=False, show_header=False)
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in shown:
        grid.add_row(name, Text(plain(_inline(value))))
    out.print(grid)


def _inline(value: object) -> str:
    """A nested value on one line, as `a 1, b 2`."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_inline(inner)}" for name, inner in value.items() if inner is not None)
    if isinstance(value, list):
        return ", ".join(_inline(inner) for inner in value)
    return str(value)
