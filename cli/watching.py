"""Follows an operation to its end: as a live table, as lines, or in silence."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live

from cli import progress
from cli.advice import advice
from cli.client import Client, Object
from cli.errors import CliError, ExitCode, UnreachableError
from cli.output import OutputFormat, console, note

_POLL = 0.3  # seconds between two looks
_PATIENCE = 30.0  # seconds for which an API that does not answer is waited for
_MARGIN = 6  # lines of the screen that are not rows: headline, header, rest, message
_ADVICE = 3  # lines of the screen that one piece of advice may take

Show = Callable[[Object], None]


def watch(
    client: Client,
    operation_id: str,
    output: OutputFormat,
    timeout: float | None = None,
    screen: Console | None = None,
) -> Object:
    """Shows the operation until it has ended, and returns it; on `screen` if others print there too.

    Raises CliError: exit status 4 after `timeout` seconds, 130 for Ctrl-C (the operation goes on either
    way), 5 when the API is away for longer than 30 s.
    """
    advice = f"the operation goes on; watch it with: bringup operations watch {operation_id}"
    try:
        with _view(output, screen or console()) as show:
            return _follow(client, operation_id, show, timeout, advice)
    except KeyboardInterrupt:
        raise CliError(f"stopped watching; {advice}", ExitCode.INTERRUPTED) from None


def _follow(client: Client, operation_id: str, show: Show, timeout: float | None, advice: str) -> Object:
    began = time.monotonic()
    answered: float | None = None  # an API that never answered is not waited for
    while True:
        try:
            operation = client.operation(operation_id)
        except UnreachableError as away:
            if answered is None or time.monotonic() - answered > _PATIENCE:
                raise UnreachableError(f"{away}; {advice}") from None
        else:
            answered = time.monotonic()
            show(operation)
            if progress.ended(operation):
                return operation
        if timeout is not None and time.monotonic() - began >= timeout:
            raise CliError(f"not ended after {timeout:g} s; {advice}", ExitCode.TIMED_OUT)
        time.sleep(_POLL)


@contextmanager
def _view(output: OutputFormat, screen: Console) -> Iterator[Show]:
    if output is OutputFormat.JSON:
        yield _Advice().show
    elif sys.stdout.isatty():
        with Live(console=screen, auto_refresh=False) as live:

            def show(operation: Object) -> None:
                # The end is printed whole: it stays, and scrolls if it must.
                said = advice(operation)
                room = max(3, screen.height - _MARGIN - _ADVICE * len(said))
                picture = progress.picture(operation, None if progress.ended(operation) else room, said)
                live.update(picture, refresh=True)

            yield show
    else:
        yield _Lines().show


class _Advice:
    """Says each piece of advice once, beside the output: also a script waits for what a person must do."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def show(self, operation: Object) -> None:
        for line in advice(operation):
            if line not in self._said:
                self._said.add(line)
                note(line)


class _Lines:
    """Prints what changed since the last look."""

    def __init__(self) -> None:
        self._seen: dict[object, str] = {}
        self._advice = _Advice()

    def show(self, operation: Object) -> None:
        for row in progress.node_rows(operation):
            words = progress.line(row)
            if self._seen.get(row[0]) != words:
                self._seen[row[0]] = words
                print(f"{time.strftime('%H:%M:%S')}  {words}", flush=True)
        if progress.ended(operation):
            print(f"{time.strftime('%H:%M:%S')}  {progress.headline(operation)}", flush=True)
            for remark in progress.remarks(operation):
                note(remark)
        self._advice.show(operation)
