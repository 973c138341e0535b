"""From what went wrong in an activity to the error that Temporal carries: a class, and the card."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TypeVar

from sqlalchemy.exc import (
    DataError,
    DBAPIError,
    IntegrityError,
    InterfaceError,
    OperationalError,
    ProgrammingError,
)
from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory, FailureError

from activities.secrets import SecretError
from activities.ssh.errors import SshError
from activities.supervisor.errors import SupervisorError
from database.run_locks import RunCanceledError, SupersededError
from database.runs import MachineClaimedError
from domain.failures import POLICIES, FailureCard, FailureClass, failure_card
from profiles.problems import ProfileError
from providers.base import ProviderError

R = TypeVar("R")
DATABASE_RETRY_SECONDS = 1.0

# Of these a person wants to know how often; a step's activity is tried again for reasons of its own.
_COUNTED = frozenset({FailureClass.CONNECT, FailureClass.PROVIDER})


def card(failure_class: FailureClass, message: str, *, machine: str | None = None) -> FailureCard:
    """A card about the activity that is running now; a retried one says how often it was tried."""
    info = activity.info()
    now = datetime.now(UTC)
    # What is tried again was first seen by an earlier try; a step may have run for hours before it failed.
    first = info.scheduled_time if failure_class in _COUNTED else now
    if failure_class in _COUNTED and info.attempt > 1:
        message = f"{message} (tried {info.attempt} times over {(now - first).total_seconds():.0f} s)"
    return failure_card(failure_class, message, seen=first, machine=machine, workflow_id=info.workflow_id)


def failure(failed: FailureCard, *, retried: bool | None = None) -> ApplicationError:
    """The error for a card. Expected failures stay out of the worker's own error log."""
    again = POLICIES[failed.failure_class].retried if retried is None else retried
    internal = failed.failure_class is FailureClass.INTERNAL
    return ApplicationError(
        failed.text(),
        failed.model_dump(mode="json"),
        type=failed.failure_class,
        non_retryable=not again,
        category=ApplicationErrorCategory.UNSPECIFIED if internal else ApplicationErrorCategory.BENIGN,
    )


async def patiently(work: Callable[[], Awaitable[R]]) -> R:
    """Does database work, waiting with heartbeats while the database is away.

    For activities whose tries are counted: an outage of ours must not be held against a machine.
    """
    while True:
        try:
            return await work()
        except DBAPIError as error:
            if isinstance(error, IntegrityError | DataError | ProgrammingError):
                raise
            reason: Exception = error
        except OSError as error:
            reason = error
        activity.logger.warning("waiting for the database: %s", reason)
        activity.heartbeat()
        await asyncio.sleep(DATABASE_RETRY_SECONDS)


@asynccontextmanager
async def classified(machine: str | None = None) -> AsyncIterator[None]:
    """Turns the typed errors of what an activity calls into failures with cards."""
    try:
        yield
    except (SshError, SupervisorError) as error:
        raise failure(card(FailureClass(error.failure_class), str(error), machine=machine)) from error
    except ProviderError as error:
        raise failure(card(FailureClass.PROVIDER, str(error), machine=machine)) from error
    except (SecretError, ProfileError) as error:
        raise failure(card(FailureClass.VALIDATION, str(error), machine=machine)) from error
    except SupersededError as error:
        raise failure(card(FailureClass.SUPERSEDED, str(error), machine=machine)) from error
    except RunCanceledError as error:
        raise failure(card(FailureClass.CANCELLED, str(error), machine=machine)) from error
    except MachineClaimedError as error:
        raise failure(card(FailureClass.CAPACITY, str(error), machine=machine), retried=True) from error
    except (OperationalError, InterfaceError, OSError) as error:
        raise _database_away(error, machine) from error
    except (IntegrityError, DataError, ProgrammingError) as error:
        raise _bug(error, machine) from error
    except DBAPIError as error:
        # What is left says that the server is starting, stopping, or has dropped the connection.
        raise _database_away(error, machine) from error
    except (FailureError, asyncio.CancelledError):
        raise
    except Exception as error:
        raise _bug(error, machine) from error


def _database_away(error: Exception, machine: str | None) -> ApplicationError:
    """Tried until it is back: giving up would lose what happened."""
    return failure(card(FailureClass.INTERNAL, f"the database: {error}", machine=machine), retried=True)


def _bug(error: Exception, machine: str | None) -> ApplicationError:
    """Trying again would only loop and look like progress."""
    activity.logger.exception("unexpected failure")
    message = f"{type(error).__name__}: {error}"
    return failure(card(FailureClass.INTERNAL, message, machine=machine), retried=False)
