"""`python -m worker`: hosts workflows, activities, dispatcher and watchdog until SIGTERM or SIGINT."""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from datetime import timedelta
from typing import Any

import structlog
from temporalio.client import Client
from temporalio.worker import PollerBehaviorAutoscaling, Worker

from activities.registry import activities
from activities.secrets import FileSecrets
from activities.ssh.pool import ConnectionPool
from activities.threads import Threads
from database.operations import OUTBOX_CHANNEL
from database.settings import DatabaseSettings
from database.unit_of_work import Database
from domain.task_queues import reaching
from providers.base import Provider
from providers.sandbox.provider import SandboxProvider
from providers.sandbox.site import SandboxSite
from worker.dispatcher import Dispatcher
from worker.listener import Listener
from worker.logs import configure_logging
from worker.settings import WorkerSettings
from worker.watchdog import Watchdog
from workflows.client import CODE_ERRORS, connect, workflow_runner
from workflows.options import REACH_INTERVAL
from workflows.registry import WORKFLOWS

log = structlog.get_logger(__name__)

# So many machines may be waited for, for each that is worked on: waiting takes no thread.
WAITING_SHARE = 4


def providers(settings: WorkerSettings) -> dict[str, Provider]:
    """The providers that this worker is configured for, by the scheme of their addresses."""
    if settings.sandbox_dir is None:
        return {}
    return {"sandbox": SandboxProvider(SandboxSite(settings.sandbox_dir))}


async def connected(settings: WorkerSettings, stop: asyncio.Event) -> Client | None:
    """A client, as soon as the server answers; None when the worker is to stop before that."""
    while not stop.is_set():
        try:
            return await connect(settings.temporal_address, settings.temporal_namespace)
        except RuntimeError as error:
            log.warning("waiting for Temporal", address=settings.temporal_address, error=str(error))
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), 1)
    return None


async def serve(settings: WorkerSettings, stop: asyncio.Event) -> None:
    """Runs all parts until `stop`, then lets activities hand their steps over."""
    client = await connected(settings, stop)
    if client is None:
        return
    database_settings = DatabaseSettings()
    database = Database(
        database_settings.url, pool_size=database_settings.pool_size, application_name="bringup-worker"
    )
    # Two for each machine: one follows its step while the other cancels it.
    threads = Threads(2 * settings.machine_threads)
    pool = ConnectionPool()
    served = activities(
        database=database,
        client=client,
        pool=pool,
        secrets=FileSecrets(settings.secrets_dir),
        threads=threads,
        providers=providers(settings),
        reach_tries=max(1, round(settings.reach_seconds / REACH_INTERVAL.total_seconds())),
        lost_after=settings.lost_seconds,
        slots=settings.machine_threads,
    )
    worker = Worker(
        client,
        task_queue=settings.task_queue,
        workflows=WORKFLOWS,
        activities=served,
        workflow_runner=workflow_runner(),
        workflow_failure_exception_types=CODE_ERRORS,
        max_concurrent_activities=settings.machine_threads,
        max_concurrent_workflow_tasks=100,
        workflow_task_poller_behavior=PollerBehaviorAutoscaling(),
        activity_task_poller_behavior=PollerBehaviorAutoscaling(),
        max_heartbeat_throttle_interval=timedelta(seconds=1),
        graceful_shutdown_timeout=timedelta(seconds=settings.stop_seconds),
    )
    reacher = Worker(
        client,
        task_queue=reaching(settings.task_queue),
        activities=served,
        max_concurrent_activities=WAITING_SHARE * settings.machine_threads,
        activity_task_poller_behavior=PollerBehaviorAutoscaling(),
        max_heartbeat_throttle_interval=timedelta(seconds=1),
        graceful_shutdown_timeout=timedelta(seconds=settings.stop_seconds),
    )
    dispatcher = Dispatcher(database, client, settings.task_queue)
    listener = Listener(database_settings.url, OUTBOX_CHANNEL, dispatcher.wake)
    watchdog = Watchdog(database, client, round_seconds=settings.watch_seconds)
    background = [
        asyncio.create_task(part.run(), name=type(part).__name__) for part in (dispatcher, listener, watchdog)
    ]
    working = {
        asyncio.create_task(each.run(), name=f"Worker of {each.task_queue}"): each
        for each in (worker, reacher)
    }
    stopping = asyncio.create_task(stop.wait())
    log.info("worker started", task_queue=settings.task_queue)
    parts: set[asyncio.Task[Any]] = {*working, stopping, *background}
    done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
    for task in background:
        task.cancel()
    await asyncio.gather(*background, return_exceptions=True)
    await asyncio.gather(*(each.shutdown() for task, each in working.items() if not task.done()))
    pool.close()
    threads.close()
    await database.close()
    for part in done - {stopping}:
        # A part that ended by itself is a failure: the process ends non-zero and is started again.
        part.result()
        raise RuntimeError(f"{part.get_name()} ended by itself")


async def run() -> None:
    """Serves until a signal."""
    settings = WorkerSettings()
    configure_logging(settings.log_format)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await serve(settings, stop)
    log.info("worker stopped")


def main() -> None:
    """Exits hard once all is closed: native threads of the SDK now and then abort a normal exit."""
    status = 0
    try:
        asyncio.run(run())
    except Exception:
        log.exception("worker failed")
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
