"""The command `tocsin`: finds the file of a command and turns every expected failure into one line and an exit code."""

import importlib
import logging
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from service import __version__, logs
from service.cli.options import command_app
from service.cli.output import complain, with_faults
from service.domain.errors import Invalid, TocsinError, Unavailable

COMMANDS = (
    "up",
    "demo",
    "serve",
    "worker",
    "migrate",
    "doctor",
    "tick",
    "sign",
    "runs",
    "run",
    "events",
    "deliveries",
    "explain",
    "dead-letters",
    "replay",
    "replays",
    "resolve",
    "cancel",
    "subscribers",
    "pause",
    "resume",
    "dispatch",
    "audit",
    "backlog",
    "reconcile",
    "keys",
    "reseal",
    "receiver",
    "drill",
    "openapi",
)
"""Each is a module of this folder; it is imported when it is called, so that `tocsin sign` does not wait for a web
framework."""

EXIT_FAILED = 1

_DATABASE_AWAY = "the database cannot be reached: look at TOCSIN_DATABASE_URL, and whether its server runs."


class Commands(TyperGroup):
    """Looks commands up by module and answers refusals without a traceback."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """Every command, in the order in which a newcomer meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """Import the command's module; None where there is no such command."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"service.cli.{cmd_name.replace('-', '_')}")
        command = typer.main.get_command(module.app)
        command.name = cmd_name
        return command

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse what is no UTF-8 here, once for every command."""
        if any(not _is_utf8(argument) for argument in args):
            ctx.fail("The arguments have to be UTF-8.")
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; a refusal is one line on stderr and exit code 1."""
        try:
            return super().invoke(ctx)
        except TocsinError as refusal:
            complain(_told(refusal))
        except KeyboardInterrupt:
            complain("stopped before it was done.")
        raise typer.Exit(EXIT_FAILED)


def _told(refusal: TocsinError) -> str:
    """The refusal in one line, with what is wrong where."""
    if refusal.detail == Unavailable().detail:
        return _DATABASE_AWAY
    faults = [(each.pointer, each.detail) for each in refusal.problems] if isinstance(refusal, Invalid) else []
    return with_faults(refusal.detail, faults)


def _is_utf8(argument: str) -> bool:
    """Whether it has no lone surrogate, which is how Python passes on bytes that are no UTF-8."""
    return not any("\ud800" <= char <= "\udfff" for char in argument)


app = command_app(cls=Commands, no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]})


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tocsin {__version__}")
        raise typer.Exit


@app.callback()
def tocsin(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Turn one signed tick into delivered webhooks: nothing lost, everything provable.

    Exit codes: 0 done, 1 refused or failed, 2 bad usage. Settings are environment variables (TOCSIN_...), jobs stand in
    tocsin.toml. A secret is never an argument: name it as env:NAME or file:PATH, or pass - and write it to stdin.
    """
    logs.configure("console", level=logging.ERROR)  # `up`, `serve` and `worker` say more


if __name__ == "__main__":
    app()
