"""`script`: a file run by an interpreter of the author's choice."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from profiles.kinds.base import Body, StepBody, StepHeader, Strict, expects

_PATH = r"^/[A-Za-z0-9._+-]+(/[A-Za-z0-9._+-]+)*$"


def _first_line(content: str) -> str | None:
    """The interpreter that a `#!` line names, with whatever follows it."""
    return content.splitlines()[0][2:].strip() if content.startswith("#!") else None


class ScriptInput(Strict):
    """`content` is the file; `interpreter` wins over its `#!` line, and without either /bin/sh runs it."""

    content: Body
    interpreter: (
        Annotated[
            str, Field(pattern=_PATH), expects("an absolute path such as /usr/bin/python3, without options")
        ]
        | None
    ) = None
    check: Body | None = None


def _interpreter_known(value: ScriptInput) -> ScriptInput:
    # The file is handed to its interpreter as an argument, so options in a `#!` line would silently be lost.
    line = _first_line(value.content)
    if value.interpreter is None and line is not None and not re.match(_PATH, line):
        message = "content begins with '#!{line}', which is more than one path: give `interpreter` beside it"
        raise PydanticCustomError("interpreter", message, {"line": line[:60]})
    return value


class ScriptStep(StepHeader):
    """A step whose text is a program of its own."""

    uses: Literal["script"]
    with_: Annotated[ScriptInput, AfterValidator(_interpreter_known)]

    def body(self) -> StepBody:
        """The text with the interpreter that will read it (None: /bin/sh)."""
        chosen = self.with_.interpreter or _first_line(self.with_.content)
        return StepBody(run=self.with_.content, check=self.with_.check, interpreter=chosen)
