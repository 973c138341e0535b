"""`bringup apply`: objects from files."""

from pathlib import Path
from typing import Annotated

import typer

from cli.commands.options import Api, Output, Tenant, Token, connect
from cli.manifests.applying import Applied, Applier
from cli.manifests.reading import read_documents
from cli.output import OutputFormat, print_json, show_table

APPLY_HELP = """Make the API hold what YAML files say: sites, machine types, pools, profiles, clusters.

Documents may stand in any order and refer to each other by name. Applied a second time, nothing changes, and
it says so. A profile version that nodes have used stays as it is: other content becomes the next version.

Examples:

\b
  bringup apply -f examples/demo                 all *.yaml of a folder
  bringup apply -f site.yaml -f cluster.yaml
  cat cluster.yaml | bringup apply -f -

A file:

\b
  kind: Pool
  name: demo
  site: local
  class: metal-host
  machines: all                  # or a list of names
  ---
  kind: Cluster
  name: demo
  nodeArrays:
    - {name: gpu, pool: demo, profile: builtin/linux-baseline@1}
"""


def apply(
    files: Annotated[
        list[Path], typer.Option("--file", "-f", help="A file, a folder, or - for standard input.")
    ],
    output: Output = OutputFormat.TABLE,
    api: Api = None,
    token: Token = None,
    tenant: Tenant = None,
) -> None:
    documents = read_documents(files)
    applied: list[Applied] = []
    with connect(api, token, tenant) as client:
        try:
            for one in Applier(client).apply(documents):
                applied.append(one)
        finally:
            # Also before an error: what was done is done, and a second apply goes on from there.
            _show(applied, output)


def _show(applied: list[Applied], output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        print_json(
            [
                {
                    "kind": one.kind,
                    "name": one.name,
                    "change": one.change,
                    "reference": one.reference,
                    "detail": one.detail,
                }
                for one in applied
            ]
        )
        return
    rows = [(one.kind, one.name, one.change.value, one.reference, one.detail) for one in applied]
    if rows:
        show_table(("kind", "name", "change", "reference", "detail"), rows, "")
    if rows and all(one.change == "unchanged" for one in applied):
        typer.echo("nothing had to be changed")
