"""`tocsin resume`: lets go on what `tocsin pause` holds, and what Tocsin disabled."""

from service.cli.api import DEFAULT_URL, Url
from service.cli.options import AsJson, command_app
from service.cli.steering import Job, Reason, Subscriber, steer

app = command_app(no_args_is_help=True)


@app.callback()
def resume() -> None:
    """Let a subscriber, a job or all dispatch go on. What waited starts slowly, the longest due first."""


@app.command()
def subscriber(
    subscriber_id: Subscriber, reason: Reason = None, url: Url = DEFAULT_URL, as_json: AsJson = False
) -> None:
    """Send to a subscriber again that was paused or disabled."""
    steer(url, "subscribers", subscriber_id, "resume", reason, as_json=as_json)


@app.command()
def job(name: Job, reason: Reason = None, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Let a job's held runs start, oldest cutoff first."""
    steer(url, "jobs", name, "resume", reason, as_json=as_json)


@app.command()
def dispatch(reason: Reason = None, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Have deliveries claimed again; a subscriber that is paused itself stays so."""
    steer(url, "dispatch", None, "resume", reason, as_json=as_json)
