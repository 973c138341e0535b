"""`python -m cli.demo`, which scripts/demo calls once everything is installed."""

import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer

from cli.client import Client, Object
from cli.demo.child import DevChild
from cli.demo.job import CLUSTER, Job
from cli.demo.story import Story
from cli.dev.ports import is_free
from cli.errors import CliError, ExitCode
from cli.output import error_line

_READY_SECONDS = 300.0
_API_PORT, _TEMPORAL_PORT, _UI_PORT = 8080, 7233, 8233

DEMO_HELP = """Bring three nodes up on sandbox machines of this host, and show all that belongs to it.

Without --once it then stays until Ctrl-C, with everything running to be looked at and used.

Examples:

\b
  scripts/demo
  scripts/demo --once                    do it, check it, stop everything; the exit status says how it went
  scripts/demo --data-dir /tmp/demo --machines 8
"""

Port = Annotated[
    int | None,
    typer.Option(min=0, max=65535, help="0 picks a free one. Default: the usual port, or a free one."),
]


def demo(
    once: Annotated[bool, typer.Option("--once", help="Check the result, stop everything, exit.")] = False,
    data_dir: Annotated[Path, typer.Option(file_okay=False, help="Where all state is kept.")] = Path(
        ".bringup"
    ),
    api_port: Port = None,
    temporal_port: Port = None,
    ui_port: Port = None,
    machines: Annotated[int, typer.Option(min=3, max=250, help="How many sandbox machines.")] = 4,
) -> None:
    signal.signal(signal.SIGTERM, _as_interrupt)
    signal.signal(signal.SIGHUP, _as_interrupt)
    story = Story()
    options = ["--machines", str(machines)]
    options += ["--api-port", _port(api_port, _API_PORT)]
    options += ["--temporal-port", _port(temporal_port, _TEMPORAL_PORT)]
    options += ["--ui-port", _port(ui_port, _UI_PORT)]
    story.chapter("Starting PostgreSQL, Temporal, API, worker and machines: bringup dev")
    child = DevChild(data_dir, options, story.say)
    code = ExitCode.OK
    try:
        code = _tell(child, story, data_dir, once=once)
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    finally:
        story.chapter("Stopping everything")
        if child.stop() != 0 and code is ExitCode.OK:
            error_line("bringup dev did not stop cleanly; see above")
            code = ExitCode.FAILED
    if once and code is ExitCode.OK:
        story.say("the demo did what it should", "bold green")
    raise typer.Exit(code)


def _tell(child: DevChild, story: Story, data_dir: Path, *, once: bool) -> ExitCode:
    """The job, then the addresses and the wait, unless it is done once and for all."""
    code = ExitCode.OK
    try:
        ready = child.wait_until_ready(_READY_SECONDS)
    except CliError as failed:
        error_line(str(failed))
        return failed.exit_code
    with Client(child.connection(ready)) as client:
        operations: list[Object] = []
        try:
            operations = Job(client, ready["site"], story).run()
        except CliError as failed:
            if failed.exit_code is ExitCode.INTERRUPTED:
                return failed.exit_code
            error_line(f"{failed}; the logs are in {data_dir.resolve() / 'logs'}")
            code = ExitCode.FAILED
    _say_histories(story, operations)
    if once:
        return code
    _say_addresses(story, ready, data_dir)
    try:
        child.wait()
    except KeyboardInterrupt:
        return code
    error_line("bringup dev has ended")
    return ExitCode.FAILED


def _say_histories(story: Story, operations: list[Object]) -> None:
    for operation in operations:
        if operation.get("workflowUrl"):
            story.say(f"history of the {operation['action']}: {operation['workflowUrl']}")


def _say_addresses(story: Story, ready: dict[str, str], data_dir: Path) -> None:
    story.chapter("Everything is running; Ctrl-C stops it, and the next start goes on from here")
    story.say(
        f"API              {ready['api']}  (tenant {ready['tenant']}; OpenAPI page: {ready['api']}/docs)"
    )
    story.say(f"Temporal Web UI  {ready['ui']}")
    story.say(f"token            {ready['token']}")
    story.say(f"logs             {data_dir.resolve() / 'logs'}")
    bringup = Path(sys.executable).with_name("bringup")
    story.say("In another terminal:")
    if data_dir.resolve() == Path(".bringup").resolve():
        story.say(f"  cd {Path.cwd()}")
    else:
        story.say(f"  export BRINGUP_API={ready['api']} BRINGUP_TOKEN={data_dir.resolve() / 'token'}")
    if str(bringup.parent) not in os.environ.get("PATH", "").split(os.pathsep):
        story.say(f"  export PATH={bringup.parent}:$PATH")
    story.say(f"  bringup nodes create {CLUSTER} --array gpu --count 2 --wait")
    story.say(f"  bringup nodes list {CLUSTER}")
    story.say("  bringup operations list")
    story.say("  bringup --help")


def _port(asked: int | None, usual: int) -> str:
    return str(asked if asked is not None else usual if is_free(usual) else 0)


def _as_interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def main() -> None:
    """Entry point of `python -m cli.demo`."""
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
    app.command(help=DEMO_HELP)(demo)
    app(prog_name="scripts/demo")


if __name__ == "__main__":
    main()
