"""Recorded histories still replay: a change that would break running workflows fails here.

The files are made by `python -m tests.workflows.record`, once for each shape that a history can take.
"""

import asyncio
import json
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from workflows.client import CODE_ERRORS, DATA_CONVERTER, workflow_runner
from workflows.registry import WORKFLOWS

HISTORIES = sorted((Path(__file__).parents[1] / "histories").glob("*.json"))


def test_histories_are_there() -> None:
    assert len(HISTORIES) >= 24


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
async def test_a_recorded_history_replays(path: Path) -> None:
    recorded = json.loads(await asyncio.to_thread(path.read_text))
    replayer = Replayer(
        workflows=WORKFLOWS,
        data_converter=DATA_CONVERTER,
        workflow_runner=workflow_runner(),
        workflow_failure_exception_types=CODE_ERRORS,
    )
    await replayer.replay_workflow(WorkflowHistory.from_json(recorded["workflowId"], recorded["history"]))
