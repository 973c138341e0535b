"""The parts of `bringup dev`: each can be started, and all can be stopped, whatever was started."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from cli.dev.data import DataDirectory
from cli.dev.errors import DevError
from cli.dev.machines import Machines
from cli.dev.ports import LOOPBACK, choose_port
from cli.dev.postgres import EmbeddedPostgres
from cli.dev.process import Child, ChildEvent, Program
from cli.dev.services import (
    healthy,
    owner_environment,
    sandbox_environment,
    service,
    service_environment,
)
from cli.dev.site import TENANT
from cli.dev.temporal import EmbeddedTemporal
from cli.dev.tool import run_module

PRINCIPAL, ROLE = "admin", "owner"
_DATABASE_SECONDS = 120.0


@dataclass(frozen=True)
class Ports:
    """Ports asked for; 0 means any free one."""

    api: int
    temporal: int
    ui: int


class Parts:
    """PostgreSQL, Temporal, machines, API and worker on one data directory."""

    def __init__(self, data: DataDirectory, ports: Ports, on_event: Callable[[ChildEvent], None]) -> None:
        """Raises `PortTakenError`, which names the option, when a port that was asked for is in use."""
        self._data = data
        self._on_event = on_event
        self.api_port = choose_port(ports.api, "--api-port")
        choose_port(ports.temporal, "--temporal-port")
        choose_port(ports.ui, "--ui-port")
        asked = [port for port in (ports.api, ports.temporal, ports.ui) if port]
        if len(set(asked)) < len(asked):
            raise DevError("--api-port, --temporal-port and --ui-port must differ")
        self.postgres = EmbeddedPostgres(data.postgres, log=data.logs / "postgres.log", on_event=on_event)
        self.temporal = EmbeddedTemporal(
            data.temporal,
            port=ports.temporal,
            ui_port=ports.ui,
            log=data.logs / "temporal.log",
            on_event=on_event,
        )
        self.machines = Machines(data, sandbox_environment(data))
        self._services: dict[str, Child] = {}

    @property
    def api_url(self) -> str:
        """Where the API listens."""
        return f"http://{LOOPBACK}:{self.api_port}"

    def pids(self) -> dict[str, int | None]:
        """The processes by role; each changes at the moment when a restarted one serves again."""
        services = {name: child.served for name, child in self._services.items()}
        return {**services, "temporal": self.temporal.pid, "postgres": self.postgres.pid}

    async def migrate(self) -> None:
        """Brings the schema up to date, and makes tenant and token unless they are there."""
        owner = owner_environment(self._data, self.postgres.owner_url)
        await self._database("upgrade", environment=owner)
        app = {**sandbox_environment(self._data), "BRINGUP_DATABASE_URL": self.postgres.app_url}
        who = ["--tenant", TENANT, "--principal", PRINCIPAL, "--role", ROLE]
        await self._database("bootstrap", *who, "--token-file", str(self._data.token), environment=app)

    async def start_api(self) -> None:
        """Starts the API and returns when it and its database answer."""
        await self._start(service("api", self._data, self._environment(), lambda: healthy(self.api_url)))

    async def start_worker(self) -> None:
        """Starts the worker and returns when it takes work from Temporal."""
        await self._start(service("worker", self._data, self._environment(), self._worker_polls))

    async def stop(self) -> list[Exception]:
        """Stops what runs, clients before servers; returns what went wrong on the way, and goes on."""
        first = [child.stop() for child in self._services.values()]
        failures = await asyncio.gather(*first, return_exceptions=True)
        second = [self.temporal.stop(), self.postgres.stop()]
        if self.machines.touched:
            second.append(self.machines.down())
        failures += await asyncio.gather(*second, return_exceptions=True)
        return [failure for failure in failures if isinstance(failure, Exception)]

    def kill(self) -> None:
        """SIGKILL to all processes, for a `stop` in progress that takes a person too long."""
        for child in self._services.values():
            child.kill()
        self.temporal.kill()
        self.postgres.kill()

    async def _worker_polls(self) -> bool:
        pid = self._services["worker"].pid
        return pid is not None and await self.temporal.polled_by(
            pid, self._environment()["BRINGUP_TASK_QUEUE"]
        )

    async def _start(self, program: Program) -> None:
        child = Child(program, self._on_event)
        self._services[program.name] = child
        await child.start()

    async def _database(self, *arguments: str, environment: dict[str, str]) -> None:
        log = self._data.logs / "database.log"
        await run_module(
            ["database", *arguments], environment=environment, log=log, seconds=_DATABASE_SECONDS
        )

    def _environment(self) -> dict[str, str]:
        return service_environment(
            self._data,
            app_url=self.postgres.app_url,
            temporal=self.temporal.address,
            ui=self.temporal.ui_url or "",
            api_port=self.api_port,
        )
