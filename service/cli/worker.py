"""`tocsin worker`: one worker alone; any number may run on one database."""

from functools import partial
from typing import Annotated

import typer

from service import logs
from service.cli.lifecycle import run_process, worker_process
from service.cli.options import command_app
from service.settings import Settings

app = command_app()

MetricsPort = Annotated[
    int,
    typer.Option(
        min=0, max=65_535, help="Serve /metrics and /livez of this worker there, on TOCSIN_HOST; 0 serves nothing."
    ),
]


@app.command()
def worker(metrics_port: MetricsPort = 0) -> None:
    """Run one worker. Any number may work on one database.

    SIGTERM or Ctrl-C: no new claims, what is in flight finishes within TOCSIN_DRAIN_SECONDS, the rest is given back.
    """
    settings = Settings()
    logs.configure(settings.log_format)
    run_process(partial(worker_process, settings=settings, metrics_port=metrics_port))
