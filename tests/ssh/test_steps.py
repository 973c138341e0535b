"""What a step is run with and what comes back."""

from __future__ import annotations

import statistics
import time

from activities.ssh.connection import Connection
from activities.supervisor.client import Supervisor
from activities.supervisor.spec import StepState
from tests.ssh.helpers import Logs, finish, step


def test_a_step_returns_its_output_and_status(supervisor: Supervisor) -> None:
    logs = Logs()
    outcome = finish(supervisor, step("a.1.1", "printf out; printf err >&2; exit 3"), logs)
    assert (outcome.state, outcome.exit_status, outcome.signal, outcome.outcome) == (
        StepState.EXITED,
        3,
        None,
        "ran",
    )
    assert (bytes(logs.stdout.data), bytes(logs.stderr.data)) == (b"out", b"err")


def test_latency(supervisor: Supervisor, connection: Connection) -> None:
    supervisor.facts()

    def ms(action: object) -> float:
        begun = time.perf_counter()
        action()  # type: ignore[operator]
        return (time.perf_counter() - begun) * 1000

    plain = statistics.median(ms(lambda: connection.exec("true")) for _ in range(30))
    through = statistics.median(
        ms(lambda i=i: finish(supervisor, step(f"l.{i}.1", "true"))) for i in range(30)
    )
    attach = statistics.median(ms(lambda: finish(supervisor, step("l.1.1", "true"))) for _ in range(30))
    print(f"exec {plain:.1f} ms, step {through:.1f} ms, attach to a finished one {attach:.1f} ms")
