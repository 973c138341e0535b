"""A program that runs once, says something, and ends."""

import asyncio
import contextlib
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping, Sequence
from pathlib import Path

from cli.dev.process import ChildError, describe_exit, last_lines, tied

CHECKOUT = Path(__file__).resolve().parents[2]


async def run_module(
    arguments: Sequence[str], *, environment: Mapping[str, str], log: Path, seconds: float
) -> str:
    """Runs `python -m ARGUMENTS` and returns its standard output; its standard error goes to `log`.

    Raises `ChildError` with the last lines when it fails or takes longer than `seconds`; ends it
    when cancelled.
    """
    name = " ".join(arguments[:1])
    with log.open("ab") as stream:
        start = stream.tell()
        process = await asyncio.create_subprocess_exec(
            *tied([sys.executable, "-m", *arguments], signal.SIGKILL),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=stream,
            env=dict(environment),
            cwd=CHECKOUT,
            start_new_session=True,
        )
    try:
        async with asyncio.timeout(seconds):
            output, _ = await process.communicate()
    except TimeoutError:
        reason = f"did not finish within {seconds:g} s"
        raise ChildError(name, reason, last_lines(log, 5, start), log) from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode != 0:
        raise ChildError(name, describe_exit(process.returncode or 0), last_lines(log, 5, start), log)
    return output.decode()
