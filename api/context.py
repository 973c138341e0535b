"""What every request can reach: the database, the settings, its own correlation id."""

from dataclasses import dataclass

from fastapi import Request

from api.settings import ApiSettings
from database.unit_of_work import Database


@dataclass(frozen=True, slots=True)
class Context:
    """One per application."""

    database: Database
    settings: ApiSettings


def context_of(request: Request) -> Context:
    """The application's context."""
    context: Context = request.app.state.context
    return context


def correlation_id(request: Request) -> str:
    """The id under which this request is logged."""
    found: str = request.scope.get("state", {}).get("correlation_id", "")
    return found
