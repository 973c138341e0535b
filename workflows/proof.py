"""The proof for a run whose own workflow can no longer bring it: `proof/<run id>`."""

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.signatures import MachineTask, StepActivities
    from workflows import options
    from workflows.calls import call


@workflow.defn(name="Proof")
class ProofWorkflow:
    """Ends what a run that was terminated by hand, or lost, may have left running on its machine."""

    @workflow.run
    async def run(self, task: MachineTask) -> None:
        """Ends when the machine has said that nothing is left, or has passed to another run."""
        await call(
            StepActivities.confirm_cancel, task, options.confirm(), "prove that no step of the run is left"
        )
