"""How commands answer: tables for people, JSON for programs, errors on standard error."""

import json
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

_WIDE = 4_096
_STYLES = {
    "Ready": "green",
    "ready": "green",
    "succeeded": "green",
    "running": "cyan",
    "Failed": "bold red",
    "Unavailable": "bold red",
    "failed": "bold red",
    "unreachable": "bold red",
    "held": "bold yellow",
    "cancel_unconfirmed": "bold yellow",
    "partially_succeeded": "yellow",
    "canceling": "yellow",
    "canceled": "yellow",
    "superseded": "yellow",
}


class OutputFormat(StrEnum):
    """For people or for programs."""

    TABLE = "table"
    JSON = "json"


def console() -> Console:
    """Standard output for people. Made anew each time, because a test may have replaced the stream.

    Where no terminal has a width, nothing is folded: what is read by programs stays whole.
    """
    return Console(highlight=False, width=None if sys.stdout.isatty() else _WIDE)


def error_line(message: str) -> None:
    """One line on standard error."""
    sys.stderr.write(f"bringup: {one_line(message)}\n")
    sys.stderr.flush()


def note(message: str) -> None:
    """A remark that belongs neither to the table nor to the JSON."""
    sys.stderr.write(f"{one_line(message)}\n")
    sys.stderr.flush()


def print_json(value: object) -> None:
    """The only thing that `-o json` writes to standard output."""
    json.dump(value, sys.stdout, indent=2)
    sys.stdout.write("\n")
    sys.stdout.flush()


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """A plain table whose cells are safe to show whatever a machine has put into them."""
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        made.add_column(column, overflow="fold")
    for row in rows:
        made.add_row(*map(cell, row))
    return made


def cell(value: object) -> Text:
    """One value as a table shows it: nothing as a dash, states in their colour."""
    if isinstance(value, bool):
        value = "yes" if value else "no"
    text = "-" if value is None or value == "" else one_line(str(value))
    return Text(text, style=_STYLES.get(text, ""))


def show_table(columns: Sequence[str], rows: Sequence[Sequence[object]], empty: str) -> None:
    """The table, or the sentence `empty` when there are no rows."""
    if rows:
        console().print(table(columns, rows))
    else:
        console().print(Text(empty))


def one_line(text: str) -> str:
    """The text on one line, with control characters made visible."""
    return neutral(" ".join(text.splitlines()))


def neutral(text: str) -> str:
    """Text that cannot drive a terminal: all but line ends and tabs that is not printable, made visible."""
    return "".join(char if _harmless(char) else _visible(char) for char in text.replace("\r\n", "\n"))


def _harmless(char: str) -> bool:
    # Cc holds ESC, BEL and the C1 controls; Cf the marks that turn the direction of text around.
    return char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cf", "Cs")


def _visible(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")


def moment(value: object) -> str:
    """An ISO time as local clock time, with the date unless it is today's; empty for none."""
    if not isinstance(value, str):
        return ""
    try:
        local = datetime.fromisoformat(value).astimezone()
    except ValueError:
        return value
    today = datetime.now(UTC).astimezone().date()
    return local.strftime("%H:%M:%S" if local.date() == today else "%Y-%m-%d %H:%M:%S")


def duration(start: object, end: object) -> str:
    """The seconds between two ISO times, up to now while there is no end."""
    if not isinstance(start, str):
        return ""
    last = datetime.fromisoformat(end) if isinstance(end, str) else datetime.now(UTC)
    return f"{max(0.0, (last - datetime.fromisoformat(start)).total_seconds()):.1f} s"


def pick(record: Mapping[str, Any], *names: str) -> list[object]:
    """Some fields of a record in order; absent ones as None."""
    return [record.get(name) for name in names]


def few(names: Sequence[str], most: int = 10) -> str:
    """The names in one line, the first of them when there are many."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
