"""Follows what steps print until nothing more of it can come."""

import itertools
import time
from collections.abc import Sequence

from cli.client import Client, Object
from cli.errors import CliError, ExitCode
from cli.output import few, note
from cli.progress import FINAL_STATES
from cli.step_logs import Choice, Reader, end_line, ending, heading, write

_POLL = 0.3  # seconds between two looks
_LOOKS_AT_NODE = 10  # looks at a log for each one at whether its node has ended


def follow(client: Client, choice: Choice, streams: Sequence[str]) -> bool:
    """Prints the chosen step runs one after the other, both streams as they come; whether there were any.

    Ends when the node has ended, or of a chosen step when that is done and will not be tried again. Raises
    CliError with exit status 130 for Ctrl-C; the operation goes on.
    """
    printed: set[int] = set()
    try:
        while True:
            # In this order: what began before the end is among the step runs.
            nodes = _nodes(client, choice)
            runs = choice.of_node(client)
            waiting = [run for run in runs if choice.fits(run) and run["stepRunId"] not in printed]
            if waiting:
                printed.add(waiting[0]["stepRunId"])
                _follow_one(client, choice, waiting[0], streams)
            elif all(_over(node, runs, choice) for node in nodes):
                return bool(printed)
            else:
                time.sleep(_POLL)
    except KeyboardInterrupt:
        raise CliError("stopped following; the operation goes on", ExitCode.INTERRUPTED) from None


def _follow_one(client: Client, choice: Choice, run: Object, streams: Sequence[str]) -> None:
    heading(run)
    readers = [Reader(run["stepRunId"], stream) for stream in streams]
    last, given_up = b"", False
    for look in itertools.count(1):
        for reader in readers:
            for last in reader.parts(client):
                write(last)
        if given_up or all(reader.ended for reader in readers):
            break
        # A node may end while nobody can tell how its step did: then that has no end of its own.
        if look % _LOOKS_AT_NODE == 0:
            nodes = client.operation(choice.operation_id)["progress"]
            given_up = any(n["runId"] == run["runId"] and n["state"] in FINAL_STATES for n in nodes)
        time.sleep(_POLL)
    end_line(last)
    if run.get("endTime") is None:
        now = next(one for one in choice.of_node(client) if one["stepRunId"] == run["stepRunId"])
        note(f"-- {ending(now)}")


def _nodes(client: Client, choice: Choice) -> list[Object]:
    """The chosen nodes of the operation; a CliError when it has none of that name."""
    runs: list[Object] = client.operation(choice.operation_id)["progress"]
    chosen = [run for run in runs if choice.node in (None, run["name"])]
    if choice.node is not None and not chosen:
        there = few([str(run["name"]) for run in runs])
        raise CliError(
            f"operation {choice.operation_id} has no node {choice.node}; there are {there or 'none'}"
        )
    return chosen


def _over(node: Object, runs: Sequence[Object], choice: Choice) -> bool:
    """Whether nothing more of what was chosen can come from a node."""
    if node["state"] in FINAL_STATES:
        return True
    mine = [run for run in runs if run["runId"] == node["runId"]]
    meant = [run for run in mine if choice.fits(run)]
    if choice.step is None or not meant:
        return False
    # It was printed up to its end before this was asked. Another attempt comes only after a failed one.
    done = choice.attempt is not None or meant[-1]["state"] == "succeeded"
    return done or any(run["position"] > meant[-1]["position"] for run in mine)
