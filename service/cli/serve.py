"""`tocsin serve`: the API alone; workers run elsewhere."""

from functools import partial

from service import logs
from service.cli.lifecycle import api_process, run_process
from service.cli.options import command_app
from service.settings import Settings

app = command_app()


@app.command()
def serve() -> None:
    """Serve the API alone. Run `tocsin migrate` before, and `tocsin worker` beside it."""
    settings = Settings()
    logs.configure(settings.log_format)
    run_process(partial(api_process, settings=settings, migrate=False, work=False))
