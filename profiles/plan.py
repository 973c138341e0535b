"""A plan: the steps that one machine gets in one phase, compiled, frozen and stored under its digest."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from profiles.canonical import digest, read_stable, stable_json
from profiles.kinds.base import OnFailure, Phase


class PlanStep(BaseModel):
    """One step as a machine runs it.

    `run` is read by `interpreter` (None: /bin/sh), `check` always by /bin/sh; a check that exits 0 means that
    there is nothing to do. `timeout_seconds` bounds each attempt; `backoff_seconds` lie between two of them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    position: int = Field(ge=0)
    name: str
    uses: str
    summary: str
    run: str
    check: str | None = None
    interpreter: str | None = None
    timeout_seconds: int
    attempts: int
    backoff_seconds: int
    on_failure: OnFailure
    # The step reboots the machine, and ends with a new boot id. Absent where it does not.
    reboots: bool | None = None


class Plan(BaseModel):
    """All steps of one phase in order; `profile` is the reference and `content_digest` what it meant."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = Field(default=1, alias="schema")
    phase: Phase
    profile: str
    content_digest: str
    steps: tuple[PlanStep, ...]

    def canonical(self) -> str:
        """The text under whose digest the plan is stored."""
        return stable_json(self)

    def digest(self) -> str:
        """`sha256:` and 64 hexadecimal digits of `canonical()`."""
        return digest(self.canonical())

    @classmethod
    def from_canonical(cls, text: str) -> "Plan":
        """Reads `canonical()`'s text back; raises ProfileError when it is anything else."""
        return read_stable(cls, text)
