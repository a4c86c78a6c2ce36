"""`tocsin up`: migrates, then serves the API and works, in one process."""

from functools import partial

from service import logs
from service.cli.lifecycle import api_process, run_process
from service.cli.options import command_app
from service.settings import Settings

app = command_app()


@app.command()
def up() -> None:
    """Migrate, serve the API and run one worker, in this process.

    Without TOCSIN_DATABASE_URL a PostgreSQL of its own runs under TOCSIN_DATA_DIR, for as long as this process does;
    keys that are missing are generated there. SIGTERM or Ctrl-C stops in order: not ready any more, no new claims,
    what is in flight finishes within TOCSIN_DRAIN_SECONDS, then API and database close. A second one stops at once.
    """
    settings = Settings()
    logs.configure(settings.log_format)
    run_process(partial(api_process, settings=settings, migrate=True, work=True))
