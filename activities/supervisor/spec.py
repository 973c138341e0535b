"""What a step is and how it can end."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

Outcome = Literal["changed", "no-change", "skipped", "verify-failed"]
Containment = Literal["cgroup", "perl", "python3", "none"]

_KEY = re.compile(r"[A-Za-z0-9.-]{1,100}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAX_TOKEN = 2**63 - 1


@dataclass(frozen=True, slots=True)
class StepSpec:
    """One attempt of one step.

    `key` names the attempt for ever (`<run id>.<position>.<attempt>`): a second start with the same key
    attaches to the first. `token` is the claim token of the run. `timeout_s` bounds check, body and second
    check together and is kept by the machine itself. `interpreter` is a path with at most one argument, as in
    a `#!` line; None takes the body's own `#!` line, else /bin/sh. A check is run by its own `#!` line, else
    /bin/sh; status 0 says that all is as it should be, and, before the body, 77 that the step does not apply
    to this machine. The body may leave up to 64 KiB in the file that its BRINGUP_OUTPUT names. Raises
    ValueError for what cannot be carried.
    """

    key: str
    token: int
    run: bytes = field(repr=False)
    check: bytes | None = field(default=None, repr=False)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_s: int = 600
    interpreter: str | None = None

    def __post_init__(self) -> None:
        validate_key(self.key)
        validate_token(self.token)
        if not 1 <= self.timeout_s <= 7 * 86_400:
            raise ValueError(f"step timeout of {self.timeout_s} s is not within 1 s and 7 days")
        for name, value in self.environment.items():
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name!r} cannot be the name of an environment variable")
            if "\0" in value:
                raise ValueError(f"the value of {name} holds a NUL character, which no environment can carry")

    @property
    def body_interpreter(self) -> tuple[str, str]:
        """Program and its one argument (or '') that run the body."""
        if self.interpreter is not None:
            return _program(self.interpreter)
        return shebang(self.run)

    @property
    def checker(self) -> tuple[str, str]:
        """Program and its one argument (or '') that run the check."""
        return shebang(self.check or b"")

    def environment_file(self) -> bytes:
        """The variables as shell assignments: the only place where values become shell text."""
        lines = (f"export {name}={shlex.quote(value)}\n" for name, value in self.environment.items())
        return "".join(lines).encode("utf-8", "surrogateescape")


def validate_key(key: str) -> None:
    """Raise ValueError unless `key` can name files and a cgroup."""
    if not _KEY.fullmatch(key):
        raise ValueError(f"{key!r} is no step key: 1 to 100 of A-Z a-z 0-9 . -")


def validate_token(token: int) -> None:
    """Raise ValueError unless a shell can compare it."""
    if not 0 <= token <= _MAX_TOKEN:
        raise ValueError(f"claim token {token} is not within 0 and 2^63 - 1")


def shebang(script: bytes) -> tuple[str, str]:
    """What the kernel would run a script with; /bin/sh for one without a `#!` line.

    Naming it instead of executing the file works on a noexec file system, and spares the execute bit.
    """
    first, _, _ = script.partition(b"\n")
    if not first.startswith(b"#!") or not first[2:].strip():
        return "/bin/sh", ""
    return _program(first[2:].decode("utf-8", "surrogateescape"))


def _program(line: str) -> tuple[str, str]:
    program, _, argument = line.strip().replace("\t", " ").partition(" ")
    if not program or "\0" in line:
        raise ValueError(f"{line!r} names no interpreter")
    return program, argument.strip()


class StepState(StrEnum):
    """How a step ended."""

    EXITED = "exited"
    TIMED_OUT = "timed_out"
    CANCELED = "canceled"
    #: Its runner died while the machine did not reboot: its processes may still run until it is canceled.
    LOST = "lost"
    #: The machine rebooted under it.
    REBOOTED = "rebooted"


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """The stored result of a step; asking again gives the same.

    `exit_status` is set for EXITED only. `signal` is set when it is 128 + a signal's number, as a shell
    reports a killed body; a body that ends with such a status itself, as shells do whose own child was
    killed, looks the same. `outcome` is set when the body ended with 0 or was not needed: verify-failed when
    the check failed after it, changed when there is no check to say otherwise. `output_size` is of what the
    body left in its BRINGUP_OUTPUT file, in bytes. `rebooted`: the machine has rebooted since the step began,
    be it before or after its end. `started_at` and `ended_at` are seconds since the epoch by the machine's
    clock as it stood when the supervisor first ran in that boot, so their difference is exact. `clean` is
    proof that no process of the step is left, for TIMED_OUT, CANCELED and REBOOTED.
    """

    state: StepState
    exit_status: int | None
    signal: int | None
    outcome: Outcome | None
    stdout_size: int
    stderr_size: int
    output_size: int
    rebooted: bool
    started_at: float | None
    ended_at: float | None
    clean: bool


@dataclass(frozen=True, slots=True)
class CancelProof:
    """What a cancel found. `state` None: still running after all.

    EXITED means it had ended before, and services it left on purpose stay. `clean` False: not proven, and the
    machine must not be given to another before it is (or before it has rebooted).
    """

    state: StepState | None
    clean: bool


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """The little that is asked of every machine. `python3` is a path or None; memory in kB."""

    hostname: str
    boot_id: str
    os_id: str
    os_version: str
    kernel: str
    architecture: str
    cpus: int
    memory_kb: int
    python3: str | None
    containment: Containment
