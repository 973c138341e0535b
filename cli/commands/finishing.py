"""How commands end that have asked for an operation: what they print, and their exit status."""

from cli import progress
from cli.client import Client, Object
from cli.errors import ExitCode
from cli.output import OutputFormat, console, one_line, print_json
from cli.watching import watch


def print_started(operation_id: str, what: str, *, wait: bool) -> None:
    """What was asked for, and how to watch it unless it is watched anyway."""
    # Line ends are kept whole: an id that is folded cannot be copied.
    console().print(f"operation {operation_id}: {one_line(what)}", soft_wrap=True, markup=False)
    if not wait:
        command = f"bringup operations watch {operation_id}"
        console().print(f"watch it with: {command}", soft_wrap=True, markup=False)


def finish(
    client: Client,
    operation_id: str,
    answer: Object,
    accepted: ExitCode,
    output: OutputFormat,
    timeout: float | None,
    *,
    wait: bool,
) -> ExitCode:
    """Waits if asked, prints the JSON if asked, and returns the worse of both exit statuses."""
    ended: Object | None = None
    try:
        if wait:
            ended = watch(client, operation_id, output, timeout)
    finally:
        # Also when the wait was given up: the operation goes on, and a script needs its id.
        if output is OutputFormat.JSON:
            print_json(answer if ended is None else {**answer, "operation": ended})
    code = progress.exit_code(ended) if ended is not None else ExitCode.OK
    return code or accepted
