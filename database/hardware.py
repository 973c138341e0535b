"""What a machine's GPUs are, as its driver says, and whether they are what its machine type promises."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession

from database.tables import Machine, MachineType

#: The class of a problem that is no failure of NVML's: the machine has other GPUs than its type says.
MISMATCH = "mismatch"


async def promised_gpus(session: AsyncSession, machine_id: str) -> int:
    """How many GPUs the machine's type says it has."""
    found = await session.scalar(
        select(MachineType.gpu_count)
        .join(
            Machine,
            (Machine.machine_type == MachineType.name) & (Machine.tenant_id == MachineType.tenant_id),
        )
        .where(Machine.id == machine_id)
    )
    return found or 0


async def store_hardware(
    session: AsyncSession, machine_id: str, facts: Mapping[str, Any], problem: tuple[str, str] | None
) -> str | None:
    """Stores `{driver, gpus, problem, readAt}`; returns what is wrong with it, in words, or None.

    `problem` is the class and message of what could not be read. Where all was read, a machine whose GPUs
    are not as many as its type's is marked `mismatched` and never booked, until it has as many again.
    """
    promised = await promised_gpus(session, machine_id)
    found = len(facts["gpus"])
    mismatched = problem is None and found != promised
    if mismatched:
        problem = (MISMATCH, f"its machine type has {promised} GPUs, its driver sees {found}")
    hardware = {
        **facts,
        "problem": {"class": problem[0], "message": problem[1]} if problem else None,
        "readAt": datetime.now(UTC).isoformat(),
    }
    await session.execute(
        update(Machine)
        .where(Machine.id == machine_id)
        .values(hardware=hardware, mismatched=mismatched, version=Machine.version + 1)
    )
    return problem_text(hardware)


def problem_text(hardware: Mapping[str, Any]) -> str | None:
    """The problem as a machine's message says it; None without one, or where nothing was read yet."""
    problem = hardware.get("problem")
    return f"{problem['class']}: {problem['message']}" if problem else None
