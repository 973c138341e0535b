"""What every step has, whatever its kind, and the field types that say what they accept."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

MAX_BODY_BYTES = 65_536


class Phase(StrEnum):
    """When in a node's life a step runs."""

    CREATE = "create"
    START = "start"
    DEALLOCATE = "deallocate"
    TERMINATE = "terminate"


class Disruption(StrEnum):
    """What applying a step does to work that runs on the machine."""

    NONE = "none"
    RELOAD = "reload"
    DRAIN = "drain"
    REBOOT = "reboot"


class OnFailure(StrEnum):
    """What the node's run does when a step has used up its attempts."""

    FAIL = "fail"
    CONTINUE = "continue"
    HOLD = "hold"


RUNNABLE_DISRUPTION = frozenset({Disruption.NONE, Disruption.REBOOT})


def described(value: object) -> str:
    """How a problem speaks of a value: short ones as they are, the rest by type and size."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)[:40]
    if isinstance(value, str):
        short = len(value) <= 40 and value.isprintable()
        return repr(value) if short else f"a text of {len(value.encode('utf-8', 'replace')):,} bytes"
    return "a list" if isinstance(value, list | tuple) else "a mapping" if isinstance(value, dict) else "that"


def expects(accepted: str) -> WrapValidator:
    """Turns whatever a field refuses into one sentence that says what it accepts and what it got."""

    def explain(value: object, accept: ValidatorFunctionWrapHandler) -> object:
        try:
            return accept(value)
        except ValidationError:
            context = {"accepted": accepted, "found": described(value)}
            raise PydanticCustomError("expected", "must be {accepted}, not {found}", context) from None

    return WrapValidator(explain)


def _runnable(field: str, values: frozenset[StrEnum]) -> AfterValidator:
    accepted = " or ".join(sorted(values))

    def refuse(value: StrEnum) -> StrEnum:
        if value not in values:
            context = {"field": field, "value": value.value, "accepted": accepted}
            message = "this release does not run steps with {field}: {value} yet; it runs {accepted}"
            raise PydanticCustomError("not_runnable", message, context)
        return value

    return AfterValidator(refuse)


def _body(value: str) -> str:
    if "\0" in value or not value.strip() or len(value.encode()) > MAX_BODY_BYTES:
        raise ValueError("not a body")
    return value


StepName = Annotated[
    str,
    Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$"),
    expects("1 to 63 lower-case letters, digits and dashes, not beginning with a dash"),
]
Body = Annotated[
    str,
    AfterValidator(_body),
    expects(f"shell text of 1 to {MAX_BODY_BYTES:,} bytes of UTF-8 without NUL characters"),
]
Seconds = Annotated[
    int, Field(strict=True, ge=1, le=86_400), expects("a whole number of seconds from 1 to 86400")
]
Backoff = Annotated[
    int, Field(strict=True, ge=0, le=3_600), expects("a whole number of seconds from 0 to 3600")
]
Attempts = Annotated[int, Field(strict=True, ge=1, le=10), expects("a whole number from 1 to 10")]


def _written(field: str) -> str:
    """The key an author writes for a field: `with` for `with_`, `timeoutSeconds` for `timeout_seconds`."""
    return to_camel(field.rstrip("_"))


class Strict(BaseModel):
    """Unknown keys are mistakes, and nothing changes once it has been read."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=_written)


class Retry(Strict):
    """How often a step is attempted in all, and how many seconds lie between two attempts."""

    attempts: Attempts = 1
    backoff_seconds: Backoff = 5


class StepHeader(Strict):
    """The keys that steps of every kind share. A kind narrows `uses` and `with_` and adds `body()`."""

    name: StepName
    uses: Annotated[str, expects("the name of a step kind")]
    with_: object
    phase: Annotated[Phase, expects(f"one of {', '.join(Phase)}")] = Phase.CREATE
    timeout_seconds: Seconds = 600
    retry: Retry = Retry()
    disruption: Annotated[
        Disruption, expects(f"one of {', '.join(Disruption)}"), _runnable("disruption", RUNNABLE_DISRUPTION)
    ] = Disruption.NONE
    on_failure: Annotated[OnFailure, expects(f"one of {', '.join(OnFailure)}")] = OnFailure.FAIL


@dataclass(frozen=True)
class StepBody:
    """What runs on the machine. `check` exits 0 when nothing is left to do; it always runs under /bin/sh."""

    run: str
    check: str | None = None
    interpreter: str | None = None
