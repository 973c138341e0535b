"""What a step leaves for others, over the whole stack."""

from collections.abc import Callable

import pytest

from tests.fixtures.dev_stack import Cluster
from tests.system.conftest import command

pytestmark = pytest.mark.system
Make = Callable[..., Cluster]


def test_outputs_are_kept_with_their_step_and_mistakes_in_them_fail_it(cluster: Make) -> None:
    demo = cluster(
        command("tells", "echo driver=550.54.15 >> $BRINGUP_OUTPUT"),
        command("silent", "true"),
        command("mistaken", "echo half a line >> $BRINGUP_OUTPUT"),
    )
    operation_id = demo.create(1).json()["operationId"]
    assert demo.ended(operation_id)["state"] == "failed"
    steps = {step["step"]: step for step in demo.steps_of(operation_id)}
    assert steps["tells"]["outputs"] == {"driver": "550.54.15"}
    assert steps["silent"]["outputs"] is None
    assert steps["mistaken"]["card"]["failure_class"] == "validation"
    assert "line 1 of BRINGUP_OUTPUT" in demo.nodes()[0]["StatusMessage"]
