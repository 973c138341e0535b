"""A recipe version's content. A new step kind is a module in `kinds` and one member of `Step`."""

from typing import Annotated

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from profiles.kinds.base import Disruption, OnFailure, Phase, Retry, Strict, described, expects
from profiles.kinds.command import CommandStep
from profiles.kinds.nvml_facts import NvmlFactsStep
from profiles.kinds.reboot import RebootStep
from profiles.kinds.script import ScriptStep

__all__ = ["MAX_STEPS", "STEP_KINDS", "Disruption", "OnFailure", "Phase", "ProfileContent", "Retry", "Step"]

MAX_STEPS = 200

Step = Annotated[CommandStep | ScriptStep | RebootStep | NvmlFactsStep, Field(discriminator="uses")]
STEP_KINDS = {
    "command": CommandStep,
    "script": ScriptStep,
    "reboot": RebootStep,
    "nvml.facts": NvmlFactsStep,
}


def _counted(value: object) -> object:
    # Looked at before the entries: a list of a million mistakes is one problem, not a million.
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= MAX_STEPS:
        found = f"{len(value):,}" if isinstance(value, list | tuple) else described(value)
        context = {"most": MAX_STEPS, "found": found}
        raise PydanticCustomError("expected", "must be a list of 1 to {most} steps, not {found}", context)
    return value


class ProfileContent(Strict):
    """What an author wrote, with defaults filled in; made by `profiles.checking.parse`."""

    schema_version: Annotated[int, Field(strict=True, ge=1, le=1), expects("1, the only schema so far")] = (
        Field(alias="schema")
    )
    steps: Annotated[
        tuple[Step, ...],
        Field(json_schema_extra={"minItems": 1, "maxItems": MAX_STEPS}),
        BeforeValidator(_counted),
    ]
