"""While the database is away an activity waits and says that it lives; its tries are not used up."""

import pytest
from sqlalchemy.exc import IntegrityError, OperationalError
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities import failures
from activities.failures import classified, patiently
from domain.failures import FailureClass


@pytest.fixture
def beats(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    monkeypatch.setattr(failures, "DATABASE_RETRY_SECONDS", 0.01)
    return []


async def test_an_outage_is_waited_out_with_heartbeats(beats: list[object]) -> None:
    answers: list[Exception | str] = [
        OperationalError("SELECT", {}, Exception("the server is starting")),
        ConnectionRefusedError(111, "refused"),
        "stored",
    ]

    async def work() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    environment = ActivityEnvironment()
    environment.on_heartbeat = lambda *details: beats.append(details)
    assert await environment.run(patiently, work) == "stored"
    assert len(beats) == 2


async def test_a_statement_that_the_database_refuses_is_not_tried_again(beats: list[object]) -> None:
    tries = []

    async def work() -> None:
        tries.append(1)
        raise IntegrityError("INSERT", {}, Exception("duplicate"))

    async def activity() -> None:
        async with classified():
            await patiently(work)

    with pytest.raises(ApplicationError) as failed:
        await ActivityEnvironment().run(activity)
    assert failed.value.type == FailureClass.INTERNAL
    assert failed.value.non_retryable
    assert len(tries) == 1
