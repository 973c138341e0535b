"""What a step of kind `nvml.facts` wrote to BRINGUP_OUTPUT, stored as the machine's hardware."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from sqlalchemy.ext.asyncio import AsyncSession

from activities.nvml.client import NvmlFacts
from activities.nvml.errors import CLASSES
from database.hardware import store_hardware
from domain.failures import FailureClass

# Not what the profile expects: the driver itself answered.
_READ = frozenset({FailureClass.HEALTH})


async def store_reading(session: AsyncSession, machine_id: str, outputs: Mapping[str, Any]) -> None:
    """Stores driver, GPUs and problem; what is not the probe's own answer is left where it is."""
    try:
        facts = NvmlFacts.model_validate(outputs)
        problem = _problem(outputs.get("problem"))
    except (ValidationError, ValueError):
        return
    await store_hardware(session, machine_id, facts.model_dump(mode="json", by_alias=True), problem)


def _problem(said: object) -> tuple[str, str] | None:
    """Class and message; ValueError for a class that is none of the probe's."""
    if not isinstance(said, Mapping):
        return None
    failed = FailureClass(str(said.get("class")))
    if failed not in CLASSES.values():
        raise ValueError(failed)
    return None if failed in _READ else (str(failed), str(said.get("message"))[:2000])
