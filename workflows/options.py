"""The one table of activity options, by what the activity waits for."""

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.workflow import ActivityCancellationType, ActivityConfig

from domain.task_queues import reaching

# A record is written within milliseconds. When the database is down it is tried until it is back: giving up
# would lose what happened. Short, since a task handed out by a dying server is lost until this has passed.
RECORD = ActivityConfig(
    start_to_close_timeout=timedelta(seconds=20),
    retry_policy=RetryPolicy(
        initial_interval=timedelta(milliseconds=200),
        backoff_coefficient=2,
        maximum_interval=timedelta(seconds=5),
    ),
)

# Looks whether something else has ended, as often as that takes.
LOOK = ActivityConfig(
    start_to_close_timeout=timedelta(seconds=30),
    heartbeat_timeout=timedelta(seconds=30),
    retry_policy=RetryPolicy(
        initial_interval=timedelta(milliseconds=200),
        backoff_coefficient=1.5,
        maximum_interval=timedelta(seconds=2),
    ),
)


# Between two tries to reach a machine, once it has failed a few times.
REACH_INTERVAL = timedelta(milliseconds=2500)


def reach(tries: int) -> ActivityConfig:
    """Short tries to reach a machine, at most REACH_INTERVAL apart.

    Tries are counted, not time: while no worker runs none is used up, so that a control plane that was
    down over night does not find its machines given up. They have a queue of their own: however many
    machines are away, the steps of the others find their places.
    """
    return ActivityConfig(
        task_queue=reaching(workflow.info().task_queue),
        # One try may have to wait for the database; its heartbeats say that it lives.
        start_to_close_timeout=timedelta(hours=4),
        heartbeat_timeout=timedelta(seconds=15),
        cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        retry_policy=RetryPolicy(
            initial_interval=timedelta(milliseconds=200),
            backoff_coefficient=1.5,
            maximum_interval=REACH_INTERVAL,
            maximum_attempts=tries,
        ),
    )


# A machine that is being given back is not waited for long.
LEAVING_TRIES = 12

# Through the provider: power, reimage.
PROVIDER = ActivityConfig(
    start_to_close_timeout=timedelta(hours=4),
    heartbeat_timeout=timedelta(seconds=30),
    cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    retry_policy=RetryPolicy(
        initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=20), maximum_attempts=5
    ),
)


def step(timeout_seconds: int) -> ActivityConfig:
    """A step: its own timeout is kept by the machine's supervisor; Temporal only notices a dead worker."""
    return ActivityConfig(
        start_to_close_timeout=timedelta(seconds=2 * timeout_seconds + 3600),
        heartbeat_timeout=timedelta(seconds=10),
        cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        retry_policy=RetryPolicy(
            initial_interval=timedelta(milliseconds=200),
            backoff_coefficient=2,
            maximum_interval=timedelta(seconds=5),
        ),
    )


def confirm() -> ActivityConfig:
    """The proof that a cancelled step has ended: until its machine answers or is given to another run."""
    return ActivityConfig(
        task_queue=reaching(workflow.info().task_queue),
        start_to_close_timeout=timedelta(hours=4),
        heartbeat_timeout=timedelta(seconds=15),
        cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        retry_policy=RetryPolicy(
            initial_interval=timedelta(milliseconds=500),
            backoff_coefficient=1.5,
            maximum_interval=timedelta(seconds=5),
        ),
    )
