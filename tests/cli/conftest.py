"""`bringup` as a user runs it: a process, against the real API over a real database. No worker runs here."""

import asyncio
import contextlib
import io
import json
import os
import signal
import sys
import uuid
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import pytest
import pytest_asyncio

from cli.dev.environment import clean_environment
from cli.dev.ports import LOOPBACK, free_port
from cli.dev.postgres import EmbeddedPostgres
from cli.main import main
from database.schema import upgrade
from database.unit_of_work import Database
from tests.database.world import World, make_world
from tests.fixtures.postgres import postgres_server

__all__ = ["postgres_server"]

WITHIN = 20.0  # seconds that one command may take
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    status: int
    output: bytes
    errors: str

    @property
    def text(self) -> str:
        """Standard output as text."""
        return self.output.decode()

    def json(self) -> Any:
        """Standard output, which must be one JSON document and nothing else."""
        return json.loads(self.output)


@dataclass(frozen=True)
class Cli:
    """Runs `bringup` in a folder of its own, told of one API by the environment."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def told(self, **changes: str) -> "Cli":
        """The same with other BRINGUP_ variables: `api`, `token`, `tenant`; empty ones are left out."""
        renamed = {f"BRINGUP_{name.upper()}": value for name, value in changes.items()}
        merged = {**self.environment, **renamed}
        return Cli(self.folder, {name: value for name, value in merged.items() if value})

    async def run(self, *arguments: str) -> Done:
        """The ended command; in this process, for starting one takes longer than most tests."""
        return await asyncio.wait_for(asyncio.to_thread(self._run, arguments), WITHIN)

    def _run(self, arguments: tuple[str, ...]) -> Done:
        output, errors = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
        environment = clean_environment(**self.environment)
        with (
            patch.dict(os.environ, environment, clear=True),
            contextlib.chdir(self.folder),
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(errors),
            pytest.raises(SystemExit) as ended,
        ):
            main(arguments)
        written = []
        for stream in (output, errors):
            stream.flush()
            assert isinstance(stream.buffer, io.BytesIO)
            written.append(stream.buffer.getvalue())
        return Done(int(ended.value.code or 0), written[0], written[1].decode())

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        """The running command, as a process of its own."""
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "cli.main", *arguments),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            cwd=self.folder,
            env=clean_environment(PYTHONPATH=str(ROOT), **self.environment),
            # As in a terminal, also where the tests themselves run in the background, deaf to Ctrl-C.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )


async def finish(process: asyncio.subprocess.Process) -> Done:
    """What a started command ends with."""
    output, errors = await asyncio.wait_for(process.communicate(), WITHIN)
    return Done(process.returncode or 0, output, errors.decode())


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def database_url(postgres_server: EmbeddedPostgres) -> str:
    """A database with the schema."""
    urls = await postgres_server.create_database(f"cli_{uuid.uuid4().hex[:8]}")
    await upgrade(urls.owner, "bringup_app")
    return urls.app


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def database(database_url: str) -> AsyncIterator[Database]:
    """The database as the application reaches it."""
    database = Database(database_url)
    yield database
    await database.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def api_url(database_url: str) -> AsyncIterator[str]:
    """The API as a process of its own."""
    port = free_port()
    environment = clean_environment(BRINGUP_DATABASE_URL=database_url, BRINGUP_API_PORT=str(port))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "api"), stdin=DEVNULL, stdout=DEVNULL, cwd=ROOT, env=environment
    )
    url = f"http://{LOOPBACK}:{port}"
    try:
        await asyncio.wait_for(_serves(url), WITHIN)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.wait(), WITHIN)


async def _serves(url: str) -> None:
    async with httpx.AsyncClient(base_url=url) as client:
        while True:
            with contextlib.suppress(httpx.TransportError):
                if (await client.get("/healthz")).is_success:
                    return
            await asyncio.sleep(0.05)


@pytest_asyncio.fixture(loop_scope="session")
async def world(database: Database) -> World:
    """A tenant that only this test knows, its token an owner's."""
    return await make_world(database)


@pytest.fixture
def lost(tmp_path: Path) -> Cli:
    """A command that nobody told of an API."""
    return Cli(tmp_path)


@pytest.fixture
def cli(lost: Cli, api_url: str, world: World) -> Cli:
    """A command that knows the API and the world's token."""
    return lost.told(api=api_url, token=world.token, tenant=world.tenant)
