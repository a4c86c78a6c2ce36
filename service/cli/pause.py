"""`tocsin pause`: holds what a subscriber is sent, a job's runs, or all dispatch."""

from service.cli.api import DEFAULT_URL, Url
from service.cli.options import AsJson, command_app
from service.cli.steering import Job, Reason, Subscriber, steer

app = command_app(no_args_is_help=True)


@app.callback()
def pause() -> None:
    """Hold a subscriber's deliveries, a job's runs, or all dispatch. Nothing is lost; `tocsin resume` lets it go on."""


@app.command()
def subscriber(
    subscriber_id: Subscriber, reason: Reason = None, url: Url = DEFAULT_URL, as_json: AsJson = False
) -> None:
    """Hold a subscriber's deliveries; what is in flight finishes, deadlines go on."""
    steer(url, "subscribers", subscriber_id, "pause", reason, as_json=as_json)


@app.command()
def job(name: Job, reason: Reason = None, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Hold a job's runs: ticks are accepted as before, a run that is being worked on finishes."""
    steer(url, "jobs", name, "pause", reason, as_json=as_json)


@app.command()
def dispatch(reason: Reason = None, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Have nothing claimed any more, anywhere; when `leased` is 0, nothing is being sent."""
    steer(url, "dispatch", None, "pause", reason, as_json=as_json)
