"""A step's log as it is read: bytes of one stream from an offset on."""

from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from database.refusals import not_found
from database.tables import LogChunk, Operation, Run, StepRun

STREAMS = {"stdout": 1, "stderr": 2}
# What one answer holds at most, in bytes.
READ_LIMIT = 1_048_576


@dataclass(frozen=True, slots=True)
class LogPart:
    """Bytes from the asked offset on. `ended`: the step is over and nothing lies behind `next_offset`."""

    data: bytes
    next_offset: int
    ended: bool


async def read_log(
    session: AsyncSession, tenant_id: str, step_run_id: int, stream: str, offset: int
) -> LogPart:
    """At most 1 MiB of one stream; Refusal NOT_FOUND for a step run that is not the tenant's.

    A character that the limit or a running step has cut in two is left for the next read.
    """
    step = await session.scalar(
        select(StepRun)
        .join(Run, Run.id == StepRun.run_id)
        .join(Operation, Operation.id == Run.operation_id)
        .where(StepRun.id == step_run_id, Operation.tenant_id == tenant_id)
    )
    if step is None:
        raise not_found(f"there is no step run {step_run_id}")
    data = bytearray()
    chunks = await session.stream(
        select(LogChunk.start, LogChunk.data)
        .where(
            LogChunk.step_run_id == step_run_id,
            LogChunk.stream == STREAMS[stream],
            LogChunk.start + func.length(LogChunk.data) > offset,
        )
        .order_by(LogChunk.start)
    )
    async for start, chunk in chunks:
        place = offset + len(data)
        if start > place or len(data) >= READ_LIMIT:
            break
        data += chunk[place - start :]
    await chunks.close()
    part = bytes(data[:READ_LIMIT])
    size = step.stdout_size if stream == "stdout" else step.stderr_size
    over = step.ended_at is not None and offset + len(part) >= size
    if not over:
        part = part[: len(part) - _cut_character(part)]
    return LogPart(part, offset + len(part), over)


def _cut_character(data: bytes) -> int:
    """How many bytes at the end begin a UTF-8 character that is not whole yet; 0 when none do."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        needed = 2 if byte >> 5 == 0b110 else 3 if byte >> 4 == 0b1110 else 4 if byte >> 3 == 0b11110 else 1
        return back if needed > back else 0
    return 0
