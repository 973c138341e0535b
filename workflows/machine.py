"""One machine's way to `ready`: `machine/<machine id>`, when it joins and when it is cleaned."""

import asyncio

from temporalio import workflow
from temporalio.exceptions import FailureError

with workflow.unsafe.imports_passed_through():
    from activities.signatures import (
        MachineActivities,
        MachineTask,
        NvmlActivities,
        RecordActivities,
        RunHeader,
        RunRef,
    )
    from workflows import options
    from workflows.calls import call, refuse_cancelled
    from workflows.ending import end_without_success
    from workflows.machine_steps import claim


@workflow.defn(name="MachineRun")
class MachineWorkflow:
    """Join: verify, and read the GPUs of one that should have some. Clean: reset, then the same.

    A machine that fails any of it is `failed`, never `ready`.
    """

    def __init__(self) -> None:
        self._task: MachineTask | None = None

    @workflow.run
    async def run(self, run: RunHeader) -> None:
        """Fails with the machine's failure card, after it has been recorded."""
        try:
            await self._bring_to_ready(run)
        except (FailureError, asyncio.CancelledError) as error:
            await end_without_success(run, self._task, error)

    async def _bring_to_ready(self, run: RunHeader) -> None:
        held = await claim(run)
        self._task = task = held.task
        if run.action == "clean":
            await call(
                MachineActivities.reset_machine, task, options.PROVIDER, f"wipe {run.name} for its next user"
            )
        verified = await call(
            MachineActivities.verify_machine,
            task,
            held.reach,
            f"reach {run.name} over SSH and read its facts",
        )
        # Earlier releases told nothing of GPUs, and a history may hold their answer or their next command.
        if verified is not None and verified.gpus > 0 and workflow.patched("nvml-facts"):
            await call(
                NvmlActivities.nvml_facts,
                task,
                held.reach,
                f"ask the driver of {run.name} for its {verified.gpus} GPUs",
            )
        refuse_cancelled()
        await call(
            RecordActivities.end_machine_run,
            RunRef(run_id=run.run_id),
            options.RECORD,
            f"report {run.name} ready",
        )
