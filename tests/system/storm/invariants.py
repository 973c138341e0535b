"""What must hold after every storm, from the records and on the machines. Each check names what breaks it."""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from domain.states import RunState, combined_state
from providers.sandbox.layout import SiteLayout
from tests.system.storm.client import PatientClient
from tests.system.storm.groups import command_of, step_groups
from tests.system.storm.recipes import LEDGER, LINES

# What a storm can do to a step; `internal` is none of it.
_CLASSES = {"exit", "signal", "timeout", "cancelled", "superseded", "connect", "lost-machine"}
_CUT_SHORT = {"failed", "canceled", "superseded"}
Steps = list[dict[str, Any]]


def of_an_operation(operation: dict[str, Any], steps: Steps) -> Iterator[str]:
    """Its state is what its runs add up to, and what did not succeed says why."""
    runs = Counter(RunState(run["state"]) for run in operation["progress"])
    expected = combined_state(runs, canceled=operation["canceledBy"] is not None)
    if runs and operation["state"] != expected:
        yield f"is {operation['state']}, its runs are {dict(runs)}"
    for run in operation["progress"]:
        yield from _of_a_run(run, operation["canceledBy"])
    for step in steps:
        where = f"{step['name']}: step {step['step']}, attempt {step['attempt']}"
        if step["endTime"] is None:
            yield f"{where} is {step['state']}, although the operation has ended"
        if step["state"] in _CUT_SHORT and not step["card"]:
            yield f"{where} is {step['state']} and does not say why"


def _of_a_run(run: dict[str, Any], operation_canceled_by: str | None) -> Iterator[str]:
    if run["state"] not in _CUT_SHORT:
        return
    card = run["card"]
    if not card or not run["message"]:
        yield f"{run['name']} is {run['state']} and does not say why"
    elif card["failure_class"] not in _CLASSES or "workflow engine" in card["message"]:
        yield f"{run['name']} is {run['state']}: {run['message']}"
    elif card["failure_class"] == "timeout" and card["step"] is None:
        yield f"{run['name']} is {run['state']} by a timeout that is no step's: {run['message']}"
    elif run["state"] == "canceled" and not (run["canceledBy"] or operation_canceled_by):
        yield f"{run['name']} is canceled, which nobody asked for: {run['message']}"


def of_logs(client: PatientClient, steps: Steps) -> Iterator[str]:
    """No line is missing or doubled; of what was cut short the last ones may be missing."""
    for step in steps:
        if step["step"] not in LINES or step["outcome"] in ("no-change", "skipped"):
            continue
        for stream, word in (("stdout", "out"), ("stderr", "err")):
            said = "".join(f"{word} {n}\n" for n in range(1, LINES[step["step"]] + 1))
            log = client.log(step["stepRunId"], stream)
            # What the supervisor itself says of a check comes after all lines.
            whole = log == said if step["state"] == "succeeded" else said.startswith(log[: len(said)])
            if not whole:
                yield f"{step['name']}: {stream} of step {step['step']} ends with {log[-60:]!r}"


def of_processes(site: SiteLayout, ended_runs: set[str]) -> Iterator[str]:
    """Nothing of a run that has ended is at work on a machine."""
    for group in step_groups(site):
        if group.run_id in ended_runs and (left := [said for pid in group.pids if (said := command_of(pid))]):
            yield f"{group.machine}: {left} of step {group.key}, whose run has ended"


class Ledgers:
    """What the machines say was run on them, as each told it when its node was ended."""

    def __init__(self, client: PatientClient, steps: dict[str, Steps], cleaned: dict[str, list[str]]) -> None:
        """`steps` by operation; `cleaned`: when each machine was wiped."""
        self._steps = steps
        self._cleaned = cleaned
        self._told: dict[str, list[str]] = {}
        self.ran: Counter[str] = Counter()
        self.overlaps: list[str] = []
        for step in (step for listed in steps.values() for step in listed):
            if step["step"] == LEDGER["name"] and step["state"] == "succeeded":
                self._told.setdefault(step["machineId"], []).append(step["endTime"])
                for line in client.log(step["stepRunId"], "stdout").splitlines():
                    word, key = line.split(" ", 1)
                    if word == "ran":
                        self.ran[key] += 1
                    else:
                        self.overlaps.append(key)

    def broken(self) -> Iterator[str]:
        """No attempt ran twice, none beside another, and each that is recorded as done was done."""
        yield from (f"{key} ran beside a process of an earlier step" for key in self.overlaps)
        yield from (f"{key} ran {count} times" for key, count in self.ran.items() if count > 1)
        for operation_id, steps in self._steps.items():
            for step in steps:
                key = f"{operation_id}/{step['name']}/{step['step']}/{step['attempt']}"
                done = (step["state"], step["outcome"]) == ("succeeded", "changed")
                if self._is_told(step) and self.ran[key] != done and (done or step["outcome"] == "no-change"):
                    yield f"{key} is {step['state']} ({step['outcome']}), and ran {self.ran[key]} times"

    def _is_told(self, step: dict[str, Any]) -> bool:
        """Whether the machine told its ledger after the step and before the next wipe."""
        if step["uses"] != "command" or step["step"] in (LEDGER["name"], "hostname"):
            return False
        machine, at = step["machineId"], step["startTime"]
        told = min((when for when in self._told.get(machine, []) if when > at), default=None)
        wiped = min((when for when in self._cleaned.get(machine, []) if when > at), default=None)
        return told is not None and (wiped is None or _moment(told) <= _moment(wiped))


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
