"""`tocsin openapi`: prints, writes or checks the description of the HTTP API."""

import json
from pathlib import Path
from typing import Annotated

import typer

from service.cli.options import command_app
from service.domain.errors import TocsinError
from service.web.app import openapi_document

app = command_app()


@app.command()
def openapi(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", dir_okay=False, help="The file that --write and --check mean.")
    ] = Path("openapi/openapi.json"),
    write: Annotated[bool, typer.Option("--write", help="Write the document to PATH.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Exit with 1 where PATH says otherwise.")] = False,
) -> None:
    """Print the API's OpenAPI 3.1 document as sorted JSON."""
    document = json.dumps(openapi_document(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    if check:
        _compare(path, document)
    elif write:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(document, encoding="utf-8")
    else:
        typer.echo(document, nl=False)


def _compare(path: Path, document: str) -> None:
    try:
        committed = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        committed = ""
    if committed != document:
        detail = f"{path} is not what the code says: run `tocsin openapi --write {path}` and commit it."
        raise TocsinError(detail)
