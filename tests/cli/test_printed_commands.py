"""Every command that Tocsin prints for somebody to run is one that the command line takes."""

import ast
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from service.cli.demo_cast import CAST
from service.cli.demo_report import Line, how_to_go_on
from service.cli.main import app
from service.settings import Settings
from tests.cli.process import ROOT

_GIVEN = {"STATE": "exhausted", "TICK": "{}"}
"""What stands for a word in capitals that a command does not take as it is."""


def texts(source: str) -> Iterator[str]:
    """The strings of a module, with an X where a value is put in."""
    whole = ast.parse(source)
    inner = {id(part) for node in ast.walk(whole) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(whole):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            yield node.value


def printed() -> list[str]:
    """The commands in the strings and templates of the service; of those between backticks, what is between them."""
    found: set[str] = set()
    for path in (ROOT / "service").rglob("*"):
        if path.suffix in {".py", ".html"}:
            source = path.read_text(encoding="utf-8")
            for text in texts(source) if path.suffix == ".py" else [source]:
                one_line = " ".join(re.sub(r"\{\{?[^{}]*\}?\}", "X", text).split())
                found |= set(re.findall(r"`(tocsin [a-z][^`]*)(?:`|$)", one_line))
                found |= set(re.findall(r": (tocsin [a-z-]+ [^`]+)$", one_line))
    return sorted(found)


def parse(words: list[str]) -> None:
    """Parse a command line to its end without running it; a command's mere name is enough where it takes arguments.

    Raises:
        Exception: the command line does not take it.

    """
    command: Any = typer.main.get_command(app)
    context: Any = None
    while words:
        context = command.make_context(command.name or "tocsin", words, parent=context)
        left = [*context._protected_args, *context.args]
        if not left:
            return
        _, command, words = command.resolve_command(context, left)


@pytest.mark.parametrize("line", printed())
def test_each_command_that_is_printed_runs_as_printed(line: str) -> None:
    parse([_GIVEN.get(word, word) for word in shlex.split(line)[1:]])


def test_what_the_demo_prints_runs_in_a_terminal_and_leaves_it_as_it_was(tmp_path: Path) -> None:
    sample = {"id": "dlv_1", "attempts": []}
    lines = [Line(kind, Counter(), 0, sample) for kind in CAST]
    told = list(how_to_go_on(Settings(data_dir=tmp_path), "http://127.0.0.1:8080", "r1", lines))
    assert not [line for line in told if line.startswith("export")]
    commands = [shlex.split(line) for line in told if "/tocsin " in line]
    assert len(commands) == 2
    for words in commands:
        [at] = [n for n, word in enumerate(words) if word.endswith("/tocsin")]
        assert all(re.match(r"TOCSIN_[A-Z_]+=", word) for word in words[:at])
        parse(words[at + 1 :])
