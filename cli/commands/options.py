"""The options that every command has, and the client that they describe."""

from typing import Annotated

import typer

from cli.client import Client
from cli.connection import find_connection
from cli.output import OutputFormat

Api = Annotated[
    str | None,
    typer.Option(
        envvar="BRINGUP_API",
        help="Address of the API. Default: this directory's `bringup dev`, else port 8080.",
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        envvar="BRINGUP_TOKEN", help="The token, or a file that holds it. Default: that of `bringup dev`."
    ),
]
Tenant = Annotated[
    str | None, typer.Option(envvar="BRINGUP_TENANT", help="The tenant that the token belongs to.")
]
Output = Annotated[OutputFormat, typer.Option("--output", "-o", help="table or json")]
Wait = Annotated[bool, typer.Option("--wait", help="Show progress and end when the operation has ended.")]
Timeout = Annotated[
    float | None, typer.Option(min=0, help="With --wait: seconds to wait at most; then exit status 4.")
]


def connect(api: str | None, token: str | None, tenant: str | None) -> Client:
    """The client that these options describe; to be used as a context manager."""
    return Client(find_connection(api, token, tenant))
