"""Answers in JSON, encoded by pydantic's own encoder: a large node list is half as long in the making."""

from typing import Any

from pydantic_core import to_json
from starlette.responses import JSONResponse


class Answer(JSONResponse):
    """One JSON value on one line."""

    def render(self, content: Any) -> bytes:
        """The body."""
        return to_json(content)
