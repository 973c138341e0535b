"""`nvml.facts`: what GPUs the machine has, read through its driver, and compared with what is expected."""

from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from profiles.kinds.base import Seconds, StepBody, StepHeader, Strict, expects

#: Python that neither the caller's environment nor the user's own packages can change.
PYTHON = "/usr/bin/python3 -I"


@cache
def probe() -> str:
    """The probe's functions, without a call of its `main`."""
    return Path(__file__).with_name("nvml_probe.py").read_text()


def probe_text(*, report: Literal["text", "json"], gpus: int | None = None, driver: str | None = None) -> str:
    """The probe as a program: its source, then the call with its arguments as Python literals."""
    return f"{probe()}\n\nsys.exit(main(report={report!r}, gpus={gpus!r}, driver={driver!r}))\n"


class NvmlFactsInput(Strict):
    """How many GPUs there must be, and which driver: whole, as 550.54.15, or its first parts, as 550."""

    gpus: Annotated[int, Field(strict=True, ge=0, le=64), expects("a whole number from 0 to 64")] | None = (
        None
    )
    driver: (
        Annotated[
            str,
            Field(pattern=r"^[0-9]{1,5}(\.[0-9]{1,5}){0,3}$"),
            expects("a version such as 550.54.15 or 550"),
        ]
        | None
    ) = None


class NvmlFactsStep(StepHeader):
    """A step that changes nothing."""

    uses: Literal["nvml.facts"]
    with_: NvmlFactsInput = NvmlFactsInput()
    timeout_seconds: Seconds = 180

    def body(self) -> StepBody:
        """The probe; the nvidia-ml-py that it imports is put on the machine when the step starts."""
        text = probe_text(report="text", gpus=self.with_.gpus, driver=self.with_.driver)
        return StepBody(run=text, interpreter=PYTHON)
