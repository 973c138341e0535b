"""An operation's progress as rows for people, and what its end means for the exit status."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.text import Text

from cli.client import Object
from cli.errors import ExitCode
from cli.output import duration, moment, one_line, pick, table

FINAL_STATES = frozenset({"succeeded", "partially_succeeded", "failed", "canceled", "superseded"})
_DONE = {"changed": "changed", "no-change": "no change", "skipped": "skipped"}
_COLUMNS = ("node", "state", "step", "time", "message")
# What a person wants to see first when not all fits on the screen.
_ORDER = (
    "failed",
    "unreachable",
    "held",
    "cancel_unconfirmed",
    "running",
    "canceling",
    "canceled",
    "superseded",
    "pending",
)


def ended(operation: Object) -> bool:
    """Whether nothing of the operation will change any more."""
    return operation["state"] in FINAL_STATES


def exit_code(operation: Object) -> ExitCode:
    """What an ended operation means for a script."""
    if operation["state"] == "succeeded":
        return ExitCode.OK
    return ExitCode.PARTIAL if operation["state"] == "partially_succeeded" else ExitCode.FAILED


def node_rows(operation: Object) -> list[list[object]]:
    """One row for each node or machine that the operation is about."""
    return [
        [
            run["name"],
            # A machine that was lost says nothing about the work; it is not shown as the work's failure.
            "unreachable" if run.get("unreachable") else run["state"],
            run.get("step"),
            duration(run.get("startTime"), run.get("endTime")),
            run.get("message") or run.get("waiting"),
        ]
        for run in operation.get("progress", [])
    ]


def headline(operation: Object) -> str:
    """`create 1f0c…: running, 2 of 3 done, 4.1 s, 9 steps: 3 changed, 6 no change`."""
    counts = Counter(str(run["state"]) for run in operation.get("progress", []))
    done = sum(count for state, count in counts.items() if state in FINAL_STATES)
    words = [
        f"{operation['action']} {operation['id']}: {operation['state']}",
        f"{done} of {sum(counts.values())} done",
        duration(operation.get("startTime"), operation.get("endTime")),
        changes(operation.get("changes") or {}),
    ]
    return ", ".join(word for word in words if word)


def changes(counted: Mapping[str, int]) -> str:
    """What the steps did, such as `9 steps: nothing changed`; empty before one has ended."""
    steps = sum(counted.values())
    if not steps:
        return ""
    words = [f"{count} {_DONE[name]}" for name, count in counted.items() if count and name in _DONE]
    if not counted.get("changed"):
        skipped = f", {counted['skipped']} skipped" if counted.get("skipped") else ""
        words = [f"nothing changed{skipped}"]
    return f"{steps} step{'s' if steps > 1 else ''}: {', '.join(words)}"


def picture(operation: Object, most: int | None = None, advice: Sequence[str] = ()) -> Group:
    """Headline and table; the most interesting rows and a count of the rest when `most` is smaller."""
    rows = node_rows(operation)
    shown, rest = rows, Counter[str]()
    if most is not None and len(rows) > most:
        ranked = sorted(rows, key=lambda row: _rank(row[1]))
        shown, rest = ranked[:most], Counter(str(row[1]) for row in ranked[most:])
    parts: list[Any] = [Text(headline(operation), style="bold"), table(_COLUMNS, shown)]
    if rest:
        parts.append(Text("and " + ", ".join(f"{count} {state}" for state, count in rest.items())))
    parts += [Text(one_line(line), style="yellow") for line in (*remarks(operation), *advice)]
    return Group(*parts)


def remarks(operation: Object) -> list[str]:
    """What is to be said of the operation as a whole: its message, and why it did not succeed.

    A reason that one of its nodes already shows is left out, and a message that the reason repeats.
    """
    message, reason = str(operation.get("message") or ""), str(operation.get("reason") or "")
    if any(run.get("message") == reason for run in operation.get("progress", [])):
        reason = ""
    return [text for text in (message if message not in reason else "", reason) if text]


def line(row: Sequence[object]) -> str:
    """One row as a plain line."""
    name, state, step, _, message = row
    words = f"{name!s:<16} {state!s:<10}"
    words += f" step {step}" if step else ""
    return one_line(words + (f"  {message}" if message else "")).rstrip()


def summary_rows(operations: Sequence[Object]) -> list[list[object]]:
    """Rows for a list: id, action, state, its cluster or machine, how its nodes fare, times, message."""
    return [
        [
            *pick(one, "id", "action", "state"),
            one.get("machine") or one.get("cluster"),
            ", ".join(f"{count} {state}" for state, count in one.get("counts", {}).items()),
            moment(one.get("startTime")),
            duration(one.get("startTime"), one.get("endTime")),
            "; ".join(remarks(one)),
        ]
        for one in operations
    ]


def _rank(state: object) -> int:
    return _ORDER.index(str(state)) if state in _ORDER else len(_ORDER)
