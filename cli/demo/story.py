"""What the demo tells: chapters, remarks, tables, checks."""

from collections.abc import Sequence

from rich.text import Text

from cli.output import console, neutral, one_line, table


class Story:
    """Prints to one console, also from the thread that relays what `bringup dev` says."""

    def __init__(self) -> None:
        self.console = console()

    def chapter(self, title: str) -> None:
        """Begins a part of the demo."""
        self.console.print(Text(f"\n== {title}", style="bold"))

    def say(self, text: str, style: str = "") -> None:
        """One remark, on one line however long: addresses and commands stay whole."""
        self.console.print(Text(one_line(text), style=style), soft_wrap=True)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """A table."""
        self.console.print(table(columns, rows))

    def text(self, text: str) -> None:
        """Several lines from a machine."""
        for line in neutral(text).splitlines():
            self.console.print(Text(f"  | {line}", style="cyan"), soft_wrap=True)

    def checked(self, what: str) -> None:
        """Something that the demo has verified."""
        self.console.print(Text(f"  ok  {what}", style="green"))
