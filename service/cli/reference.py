"""Writes docs/cli.md from the commands' own help: `python -m service.cli.reference`.

With `--check` it changes nothing and exits with 1 when the page is not what it would write.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from service.cli.main import app

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"

_HEAD = """# The command

Generated from the commands' own help with `python -m service.cli.reference`; do not edit it here.

"""
_WIDTH = 100


def page() -> str:
    """The whole page."""
    return _HEAD + "\n".join(_sections(typer.main.get_command(app), "tocsin", None))


def _sections(command: Any, path: str, parent: Any) -> Iterator[str]:
    context = command.make_context(path, [], parent=parent, resilient_parsing=True)
    context.info_name = path.rsplit(" ", 1)[-1]
    context.max_content_width = context.terminal_width = _WIDTH
    text = "\n".join(line.rstrip() for line in command.get_help(context).strip().splitlines())
    yield f"## `{path}`\n\n```text\n{text}\n```\n"
    if hasattr(command, "list_commands"):
        for name in command.list_commands(context):
            yield from _sections(command.get_command(context, name), f"{path} {name}", context)


def main(arguments: list[str]) -> int:
    """Write the page, or compare it; the exit code."""
    if "--check" not in arguments:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page():
        return 0
    sys.stderr.write("docs/cli.md is out of date: run `python -m service.cli.reference`\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
