"""The sandbox machines of `bringup dev`, through the provider's own command."""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cli.dev.data import DataDirectory
from cli.dev.errors import DevError
from cli.dev.site import SITE, TENANT, SandboxMachine
from cli.dev.tool import run_module

_UP_SECONDS, _DOWN_SECONDS = 120.0, 5.0


class Machines:
    """Powers the sandbox machines of one data directory on and off."""

    def __init__(self, data: DataDirectory, environment: Mapping[str, str]) -> None:
        self._data = data
        self._environment = environment
        self.touched = False  # whether there may be machines to power off

    async def up(self, count: int, gpus: int | None = None) -> list[SandboxMachine]:
        """Powers on `count` machines, made if need be, and puts their SSH key where secrets are read.

        New ones get `gpus` GPUs, None: as many as the others have. Raises `DevError` when there are machines
        with another number, for a machine keeps what it was made with.
        """
        self.touched = True
        with_gpus = [] if gpus is None else ["--gpus", str(gpus)]
        words = ["--machines", str(count), *with_gpus, "--names-from", SITE]
        output = await self._sandbox("up", *words, seconds=_UP_SECONDS)
        try:
            found = json.loads(output)["machines"]
            machines = [_machine(one) for one in found]
            keys = {str(one["keyFile"]) for one in found}
        except (ValueError, KeyError, TypeError) as error:
            raise DevError(
                f"the sandbox provider's answer is not understood ({error!r}): {output}"
            ) from error
        if len(keys) != 1:
            raise DevError(f"the sandbox machines should share one SSH key; found {sorted(keys)}")
        install_secret(Path(keys.pop()), self._data.secrets / TENANT / "ssh" / SITE)
        return machines

    async def down(self) -> None:
        """Powers all machines off; their disks stay. Harmless when none runs."""
        await self._sandbox("down", seconds=_DOWN_SECONDS)
        self.touched = False

    async def _sandbox(self, *arguments: str, seconds: float) -> str:
        return await run_module(
            ["providers.sandbox", str(self._data.sandbox), *arguments],
            environment=self._environment,
            log=self._data.logs / "sandbox.log",
            seconds=seconds,
        )


def _machine(record: Mapping[str, Any]) -> SandboxMachine:
    model = record["gpuModel"]
    return SandboxMachine(
        name=str(record["name"]),
        address=str(record["address"]),
        port=int(record["port"]),
        user=str(record["user"]),
        gpus=int(record["gpus"]),
        gpu_model=None if model is None else str(model),
    )


def install_secret(source: Path, target: Path) -> None:
    """Copies a key to where only its reader may see it, by rename."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = target.with_name(target.name + ".new")
    temporary.touch(mode=0o600)
    os.chmod(temporary, 0o600)
    shutil.copyfile(source, temporary)
    temporary.replace(target)
