"""What `bringup dev` tells the person who watches it."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

from cli.dev.process import ChildError, ChildEvent, EventKind

_COLUMN = 10
_STYLES = {EventKind.DIED: "yellow", EventKind.FAILING: "bold red", EventKind.BACK: "green"}


class Screen:
    """Short lines: a part, what became of it, how long it took."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False, soft_wrap=True)
        self._started = time.monotonic()

    def line(self, part: str, text: str, style: str = "") -> None:
        """One line about one part, in a colour when `style` names one."""
        shown = f"[{style}]{escape(text)}[/{style}]" if style else escape(text)
        self._console.print(f"[dim]{_clock()}[/dim]  [bold]{part:<{_COLUMN}}[/bold] {shown}")

    @contextmanager
    def timed(self, part: str, done: str) -> Iterator[list[str]]:
        """Says `done`, the words that the block put into the list, and the seconds, when it succeeds."""
        began = time.monotonic()
        words: list[str] = []
        yield words
        said = "  ".join([f"{done} in {time.monotonic() - began:.1f} s", *words])
        self.line(part, said, "green")

    def event(self, event: ChildEvent) -> None:
        """Says that a child died, keeps dying, or is back."""
        self.line(event.name, event.text, _STYLES[event.kind])
        self._log_lines(event.lines)

    def error(self, error: Exception) -> None:
        """Says why `bringup dev` gives up."""
        self.line("error", str(error), "bold red")
        if isinstance(error, ChildError):
            self._log_lines(error.lines)

    def addresses(self, rows: Sequence[tuple[str, str]]) -> None:
        """The final summary: what is where."""
        self._console.print()
        for name, value in rows:
            self._console.print(f"  [bold]{name:<{_COLUMN}}[/bold] [cyan]{escape(value)}[/cyan]")
        self._console.print(f"\n  up in {time.monotonic() - self._started:.1f} s; Ctrl-C stops everything\n")

    def _log_lines(self, lines: Sequence[str]) -> None:
        for line in lines:
            self._console.print(f"            [dim]| {escape(line[:300])}[/dim]")


def _clock() -> str:
    return time.strftime("%H:%M:%S")
