"""`python -m api` as a process of its own, spoken to in raw HTTP."""

import asyncio
import json
import os
import signal
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from cli.dev.ports import free_port
from database.unit_of_work import Database
from tests.api.client import basic
from tests.database.world import World, one_line


@dataclass
class Served:
    """A running API process."""

    process: asyncio.subprocess.Process
    port: int
    log: Path
    tls: ssl.SSLContext | None = None

    async def raw(self, request: bytes) -> tuple[bytes, dict[bytes, bytes], bytes]:
        """Status line, headers and body of what the server answers to exactly these bytes."""
        host = "localhost" if self.tls else None
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=self.tls, server_hostname=host
        )
        writer.write(request)
        await writer.drain()
        answer = await asyncio.wait_for(reader.read(), 20)
        writer.close()
        head, _, body = answer.partition(b"\r\n\r\n")
        status, *lines = head.split(b"\r\n")
        pairs = (line.partition(b": ") for line in lines)
        return status, {name.lower(): value for name, _, value in pairs}, body

    def lines(self) -> list[dict[str, object]]:
        """The log so far."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@asynccontextmanager
async def served(
    database: Database, folder: Path, tls: ssl.SSLContext | None = None, **environment: str
) -> AsyncIterator[Served]:
    """The API over the test's database until the block ends."""
    port, log = free_port(), folder / "api.log"
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "api",
            env={
                **{key: value for key, value in os.environ.items() if not key.startswith("BRINGUP_")},
                "BRINGUP_DATABASE_URL": database.engine.url.render_as_string(hide_password=False),
                "BRINGUP_API_PORT": str(port),
                **environment,
            },
            stdout=out,
            stderr=out,
        )
    server = Served(process, port, log, tls)
    try:
        await answering(server)
        yield server
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def answering(server: Served) -> None:
    """Returns once the server answers its health check."""
    async with asyncio.timeout(30):
        while True:
            try:
                status, _, _ = await server.raw(b"GET /healthz HTTP/1.0\r\nHost: a\r\n\r\n")
            except OSError:
                assert server.process.returncode is None, server.log.read_text()
                await asyncio.sleep(0.05)
            else:
                assert b" 200 " in status
                return


def post(token: str, body: bytes, path: str = "/clusters/demo/nodes/create") -> bytes:
    """What the clients' library sends: neither Content-Type nor Accept."""
    return (
        f"POST {path} HTTP/1.1\r\nHost: ctl.test:8080\r\nConnection: close\r\n"
        f"User-Agent: CycleCloudPythonApi/8.3.1\r\nAuthorization: {basic(token)['Authorization']}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


async def test_c1_3_the_clients_own_bytes_are_answered_as_they_expect(
    world: World, database: Database, tmp_path: Path
) -> None:
    await world.machines(1)
    async with served(database, tmp_path) as server:
        body = b'{"sets": [{"count": 1, "nodearray": "gpu"}]}'
        status, headers, answer = await server.raw(post(world.token, body))
        made = json.loads(answer)
        assert status == b"HTTP/1.1 202 Accepted"
        assert headers[b"location"].decode() == f"http://ctl.test:8080/operations/{made['operationId']}"
        assert headers[b"content-type"] == b"application/json"
        assert made["sets"] == [{"added": 1}]
        status, headers, answer = await server.raw(post("wrong", body))
        assert status == b"HTTP/1.1 401 Unauthorized"
        one_line(answer.decode())
        status, _, answer = await server.raw(post(world.token, b"{", "/clusters/demo/nodes/create"))
        assert status == b"HTTP/1.1 409 Conflict"
        one_line(answer.decode())
        logged = [line for line in server.lines() if line["event"] == "request"]
        assert {"method", "path", "status", "milliseconds", "correlation_id"} <= set(logged[-1])
        assert logged[-1]["status"] == 409


async def test_a_body_without_an_end_is_cut_off_at_its_limit(
    world: World, database: Database, tmp_path: Path
) -> None:
    async with served(database, tmp_path) as server:
        head = post(world.token, b"").replace(b"Content-Length: 0", b"Content-Length: 999999999")
        status, _, _ = await server.raw(head)
        assert status.startswith(b"HTTP/1.1 413 ")


async def test_sigterm_ends_it_within_three_seconds_even_with_a_client_that_hangs(
    world: World, database: Database, tmp_path: Path
) -> None:
    async with served(database, tmp_path) as server:
        _, hanging = await asyncio.open_connection("127.0.0.1", server.port)
        hanging.write(post(world.token, b"")[:-4] + b"\r\nX-Slow: 1\r\n")
        await hanging.drain()
        server.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(3):
            await server.process.wait()
        hanging.close()
        assert "Traceback" not in server.log.read_text()
        server.lines()


def self_signed(folder: Path) -> tuple[Path, Path]:
    """A certificate for localhost and its key, as PEM files."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "cert.pem").write_bytes(certificate.public_bytes(pem))
    (folder / "key.pem").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return folder / "cert.pem", folder / "key.pem"


async def test_c1_2_tls_is_served_and_locations_say_so(
    world: World, database: Database, tmp_path: Path
) -> None:
    certificate, key = self_signed(tmp_path)
    environment = {"BRINGUP_API_TLS_CERT": str(certificate), "BRINGUP_API_TLS_KEY": str(key)}
    trusted = ssl.create_default_context(cafile=str(certificate))
    async with served(database, tmp_path, tls=trusted, **environment) as server:
        body = b'{"sets": [{"count": 1, "nodearray": "gpu"}]}'
        status, headers, _ = await server.raw(post(world.token, body))
        assert status == b"HTTP/1.1 202 Accepted"
        assert headers[b"location"].startswith(b"https://ctl.test:8080/operations/")
