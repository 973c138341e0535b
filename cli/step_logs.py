"""What steps printed: which step runs are meant, and their bytes."""

import base64
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from cli.client import Client, Object
from cli.output import neutral, note

STREAMS = ("stdout", "stderr")


@dataclass(frozen=True, slots=True)
class Choice:
    """Step runs of one operation, of all nodes or one, of all steps or one, of all attempts or one."""

    operation_id: str
    node: str | None = None
    step: str | None = None
    attempt: int | None = None

    def of_node(self, client: Client) -> list[Object]:
        """The step runs that have begun on the chosen node, or on all of them, in that order."""
        body = {"operationId": self.operation_id}
        return client.fleet_list("operations/steps", {**body, "name": self.node} if self.node else body)

    def fits(self, run: Object) -> bool:
        """Whether a step run of a chosen node is meant."""
        given = ((self.step, run["step"]), (self.attempt, run["attempt"]))
        return all(asked is None or asked == has for asked, has in given)


def heading(run: Object) -> None:
    """Names a step run on standard error, so that a redirected log holds the machine's bytes only."""
    note(f"== {run['name']}, step {run['step']}, attempt {run['attempt']}: {ending(run)}")


def ending(run: Object) -> str:
    """How a step run stands, or how it has ended."""
    return run["state"] if run.get("exitStatus") is None else f"{run['state']}, exit {run['exitStatus']}"


@dataclass(slots=True)
class Reader:
    """One stream of one step run, read on from where it was left."""

    step_run_id: int
    stream: str
    offset: int = 0
    ended: bool = False

    def parts(self, client: Client) -> Iterator[bytes]:
        """What is stored and was not read yet, part after part."""
        while not self.ended:
            asked = {"stepRunId": self.step_run_id, "stream": self.stream, "offset": self.offset}
            part = client.fleet("operations/logs", asked)
            before, self.offset = self.offset, int(part["nextOffset"])
            self.ended = bool(part["ended"])
            if self.offset <= before:
                return
            yield base64.b64decode(part["dataBase64"])


def read_log(client: Client, run: Object, stream: str) -> Iterator[bytes]:
    """One stream of one step run as far as it is stored now, part after part."""
    return Reader(run["stepRunId"], stream).parts(client)


def write(data: bytes) -> None:
    """Prints a machine's bytes as they are, or on a terminal such that they cannot drive it."""
    if sys.stdout.isatty():
        sys.stdout.write(neutral(data.decode(errors="backslashreplace")))
    else:
        sys.stdout.buffer.write(data)
    sys.stdout.flush()


def end_line(last: bytes) -> None:
    """On a terminal, what comes next begins on a line of its own."""
    if last and not last.endswith(b"\n") and sys.stdout.isatty():
        sys.stdout.write("\n")
        sys.stdout.flush()
