"""bringup's own processes as `bringup dev` starts them: what they are told, how they are known to serve."""

import os
import sys
from collections.abc import Awaitable, Callable, Mapping

import httpx

from cli.dev.cluster import APP
from cli.dev.data import DataDirectory
from cli.dev.environment import clean_environment
from cli.dev.ports import LOOPBACK
from cli.dev.process import Program
from cli.dev.temporal import NAMESPACE
from cli.dev.tool import CHECKOUT

_STOP_GRACE = 4.0  # seconds; more than BRINGUP_STOP_SECONDS, so that the worker can hand its steps over


def sandbox_environment(data: DataDirectory) -> dict[str, str]:
    """What the sandbox provider needs; the caller's own BRINGUP_ settings pass through."""
    passed = {name: value for name, value in os.environ.items() if name.startswith("BRINGUP_")}
    return clean_environment(
        **{
            **passed,
            "PYTHONUNBUFFERED": "1",
            "BRINGUP_LOG_FORMAT": "json",
            "BRINGUP_SECRETS_DIR": str(data.secrets),
            "BRINGUP_SANDBOX_DIR": str(data.sandbox),
            "BRINGUP_SANDBOX_MASK": f"{data.root}:{CHECKOUT}",
        }
    )


def owner_environment(data: DataDirectory, owner_url: str) -> dict[str, str]:
    """For migrations only: no other process learns the owner's password."""
    return {
        **sandbox_environment(data),
        "BRINGUP_DATABASE_OWNER_URL": owner_url,
        "BRINGUP_DATABASE_APP_ROLE": APP,
    }


def service_environment(
    data: DataDirectory, *, app_url: str, temporal: str, ui: str, api_port: int
) -> dict[str, str]:
    """What api and worker need to find the database, Temporal, secrets and machines."""
    return {
        "BRINGUP_TASK_QUEUE": "bringup",
        "BRINGUP_STOP_SECONDS": "2.5",
        **sandbox_environment(data),
        "BRINGUP_DATABASE_URL": app_url,
        "BRINGUP_DATABASE_APP_ROLE": APP,
        "BRINGUP_TEMPORAL_ADDRESS": temporal,
        "BRINGUP_TEMPORAL_NAMESPACE": NAMESPACE,
        "BRINGUP_TEMPORAL_UI": ui,
        "BRINGUP_API_HOST": LOOPBACK,
        "BRINGUP_API_PORT": str(api_port),
    }


def service(
    name: str,
    data: DataDirectory,
    environment: Mapping[str, str],
    serves: Callable[[], Awaitable[bool]],
) -> Program:
    """`python -m NAME` as a supervised program."""
    return Program(
        name=name,
        argv=[sys.executable, "-m", name],
        environment=environment,
        log=data.logs / f"{name}.log",
        pid_file=data.pids / f"{name}.pid",
        serves=serves,
        stop_grace=_STOP_GRACE,
        directory=CHECKOUT,
    )


async def healthy(api_url: str) -> bool:
    """Whether the API and its database answer."""
    async with httpx.AsyncClient(base_url=api_url, timeout=5.0) as client:
        try:
            return (await client.get("/healthz")).status_code == httpx.codes.OK
        except httpx.TransportError:
            return False
