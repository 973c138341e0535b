"""`Child` with small real processes."""

import asyncio
import os
import signal
import sys
import textwrap
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from cli.dev.environment import clean_environment
from cli.dev.identity import ProcessIdentity, end
from cli.dev.process import Child, ChildError, EventKind, Program, end_leftover, last_lines
from tests.dev.conftest import Events, eventually


def program(
    folder: Path, script: str, serves: Callable[[], Awaitable[bool]] | None = None, grace: float = 3.0
) -> Program:
    """A shell script as a program; it serves as soon as `folder/serving` exists."""

    async def serving() -> bool:
        return (folder / "serving").exists()

    return Program(
        name="double",
        argv=["/bin/sh", "-c", script],
        environment=clean_environment(),
        log=folder / "double.log",
        pid_file=folder / "double.pid",
        serves=serves or serving,
        serves_within=5.0,
        stop_grace=grace,
        directory=folder,
    )


async def test_a_child_that_dies_is_started_again_and_its_last_words_are_told(
    tmp_path: Path, events: Events
) -> None:
    child = Child(program(tmp_path, "echo hello; touch serving; exec sleep 600"), events)
    await child.start()
    killed = child.pid
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    died = await events.until(EventKind.DIED)
    await events.until(EventKind.BACK)
    again = child.pid
    await child.stop()

    assert "was killed by SIGKILL" in died.text
    assert died.lines == ("hello",)
    assert again not in (None, killed)
    assert again is not None
    assert ProcessIdentity.of(again) is None
    assert child.pid is None


async def test_a_child_that_keeps_dying_is_told_and_still_tried(tmp_path: Path, events: Events) -> None:
    child = Child(program(tmp_path, "touch serving; [ -e broken ] && exit 3; exec sleep 600"), events)
    await child.start()
    assert child.pid is not None
    (tmp_path / "broken").touch()
    os.kill(child.pid, signal.SIGKILL)
    failing = await events.until(EventKind.FAILING)
    await child.stop()

    assert "5 times within 60 s" in failing.text
    assert len(events.of(EventKind.DIED)) >= 4


async def test_a_child_that_does_not_come_up_says_why(tmp_path: Path) -> None:
    child = Child(program(tmp_path, "echo 'no such file' >&2; exit 3"))
    with pytest.raises(ChildError, match="ended with status 3") as failure:
        await child.start()
    assert failure.value.lines == ("no such file",)
    assert child.pid is None


async def test_a_child_that_ignores_sigterm_is_killed_with_its_group(tmp_path: Path) -> None:
    script = "trap '' TERM; sleep 600 & echo $! > helper; touch serving; while :; do wait; done"
    child = Child(program(tmp_path, script, grace=0.2))
    await child.start()
    pid = child.pid
    helper = ProcessIdentity.of(int((tmp_path / "helper").read_text()))
    assert pid is not None
    assert helper is not None
    await child.stop()

    assert ProcessIdentity.of(pid) is None
    await eventually(lambda: not helper.alive())
    assert not (tmp_path / "double.pid").exists()


async def test_a_child_that_is_killed_on_purpose_stays_down(tmp_path: Path, events: Events) -> None:
    child = Child(program(tmp_path, "touch serving; exec sleep 600"), events)
    await child.start()
    child.kill()
    await eventually(lambda: child.pid is None)
    await child.stop()
    assert events.seen == []


async def test_a_start_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    child = Child(program(tmp_path, "echo $$ > started; exec sleep 600"))
    starting = asyncio.create_task(child.start())
    await eventually(lambda: bool(last_lines(tmp_path / "started", 1)))
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert ProcessIdentity.of(int((tmp_path / "started").read_text())) is None


async def test_children_die_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    supervisor = textwrap.dedent(
        """
        import asyncio, sys
        from pathlib import Path
        from tests.dev.test_process import program
        from cli.dev.process import Child

        async def main():
            child = Child(program(Path(sys.argv[1]), "touch serving; exec sleep 600"))
            await child.start()
            print(child.pid, flush=True)
            await asyncio.sleep(600)

        asyncio.run(main())
        """
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", supervisor, str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    child = ProcessIdentity.of(int(await process.stdout.readline()))
    assert child is not None
    process.kill()
    await process.wait()
    await eventually(lambda: not child.alive())


async def test_a_leftover_is_ended_by_its_pid_file_before_the_next_start(tmp_path: Path) -> None:
    leftover = await asyncio.create_subprocess_exec("sleep", "600")
    identity = ProcessIdentity.of(leftover.pid)
    assert identity is not None
    identity.write(tmp_path / "double.pid")
    child = Child(program(tmp_path, "touch serving; exec sleep 600"))
    await child.start()
    await child.stop()
    assert await leftover.wait() == -signal.SIGTERM


async def test_a_process_that_only_has_the_number_of_a_leftover_is_left_alone(tmp_path: Path) -> None:
    innocent = await asyncio.create_subprocess_exec("sleep", "600")
    identity = ProcessIdentity.of(innocent.pid)
    assert identity is not None
    earlier = ProcessIdentity(identity.pid, identity.started - 1, identity.boot)
    earlier.write(tmp_path / "double.pid")
    assert not end_leftover(program(tmp_path, "true"))
    assert identity.alive()
    assert await asyncio.to_thread(end, identity, signal.SIGTERM, 5.0)
    assert await innocent.wait() == -signal.SIGTERM
