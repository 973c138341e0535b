"""Records histories for the replay test, on purpose: `python -m tests.workflows.record`.

Run it only when a change of the workflows is meant to break running ones; otherwise use `workflow.patched`.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

from temporalio.client import WorkflowFailureError

from activities.signatures import HoldRef
from domain.failures import FailureClass
from profiles.kinds.base import OnFailure
from tests.fixtures.temporal import time_skipping_server
from tests.workflows.conftest import Lab
from tests.workflows.fakes import World, fails, step
from workflows.node import NodeWorkflow

HISTORIES = Path(__file__).parents[1] / "histories"


def shapes() -> dict[str, World]:
    """One World for each way that a history can go."""
    return {
        "create": World(names=["gpu-1", "gpu-2"]),
        "create-step-retried-then-failed": World(
            steps=[step(0, "one", attempts=2)],
            trouble={
                "step gpu-1 0.1": lambda _: fails(FailureClass.EXIT),
                "step gpu-1 0.2": lambda _: fails(FailureClass.EXIT),
            },
        ),
        "create-lost-step-run-again": World(
            steps=[step(0, "one", has_check=True)],
            trouble={"step gpu-1 0.1": lambda _: fails(FailureClass.LOST_MACHINE)},
        ),
        "create-held-then-resumed": World(
            steps=[step(0, "one", on_failure=OnFailure.HOLD)],
            trouble={"step gpu-1 0.1": lambda _: fails(FailureClass.EXIT)},
        ),
        "create-cancelled": World(block={"step gpu-1 0.1": asyncio.Event()}),
        "terminate": World(action="terminate", steps=[step(0, "wipe")]),
        "terminate-unreachable": World(
            action="terminate", trouble={"ssh gpu-1": lambda _: fails(FailureClass.AUTH)}
        ),
        "join": World(names=["local-1"], kind="machine", action="join"),
        "join-gpus": World(names=["local-1"], kind="machine", action="join", gpus=8),
        "clean-failed": World(
            names=["local-1"],
            kind="machine",
            action="clean",
            trouble={"reset_machine": lambda _: fails(FailureClass.PRIVILEGE)},
        ),
    }


def anonymous(value: Any) -> Any:
    """Without what says where it was recorded: stack traces and identities decide nothing on replay."""
    if isinstance(value, dict):
        dropped = ("stackTrace", "identity")
        return {key: anonymous(held) for key, held in value.items() if key not in dropped}
    if isinstance(value, list):
        return [anonymous(held) for held in value]
    return value


async def _run(lab: Lab, world: World) -> None:
    async with lab.worker(world):
        handle = await lab.start(world)
        if world.block:
            await world.reached(*world.block)
            await handle.cancel()
        if any(one.on_failure is OnFailure.HOLD for one in world.steps):
            await world.reached("hold gpu-1 1")
            node = lab.environment.client.get_workflow_handle(f"node/{world.subjects['gpu-1']}")
            await node.signal(NodeWorkflow.resume, HoldRef(run_id=world.run_ids["gpu-1"], number=1))
        try:
            await handle.result()
        except WorkflowFailureError:
            return


async def _save(lab: Lab, name: str, world: World) -> None:
    ids = {
        "operation": f"operation/{world.operation_id}",
        "batch": f"batch/{world.operation_id}/0",
        "run": f"{world.kind}/{world.subjects[world.names[0]]}",
    }
    for level, workflow_id in ids.items():
        history = await lab.environment.client.get_workflow_handle(workflow_id).fetch_history()
        text = json.dumps({"workflowId": workflow_id, "history": anonymous(history.to_json_dict())}, indent=1)
        await asyncio.to_thread((HISTORIES / f"{name}.{level}.json").write_text, text + "\n")


async def main() -> None:
    """Writes one file per shape and level."""
    async with time_skipping_server() as environment:
        for name, world in shapes().items():
            lab = Lab(environment)
            await _run(lab, world)
            await _save(lab, name, world)


if __name__ == "__main__":
    asyncio.run(main())
