"""`bringup apply`: objects from files, once and again."""

from pathlib import Path
from typing import Any

import pytest

from cli.errors import CliError
from cli.manifests.applying import differences
from cli.manifests.profiles import filled
from cli.manifests.reading import load_yaml
from profiles.canonical import canonical
from profiles.checking import parse
from tests.cli.conftest import Cli
from tests.database.world import World

EXAMPLES = Path(__file__).parents[2] / "examples" / "demo"
OBJECTS = """
kind: Cluster
name: lab
nodeArrays:
  - {name: gpu, pool: lab, profile: node, machineTypes: [small]}
---
kind: Profile
name: node
content:
  schema: 1
  steps:
    - {name: hello, uses: command, with: {run: "echo hello"}}
---
kind: Pool
name: lab
site: lab
class: metal-host
machines: all
---
{kind: MachineType, name: small, vcpu: 4, memoryGb: 16}
---
{kind: Site, name: lab, region: north}
"""


def changes(applied: list[dict[str, Any]]) -> dict[str, str]:
    """What was done, by kind."""
    return {one["kind"]: one["change"] for one in applied}


async def applied(cli: Cli, text: str) -> dict[str, str]:
    """Applies a file that must be accepted."""
    (cli.folder / "objects.yaml").write_text(text)
    done = await cli.run("apply", "-f", "objects.yaml", "-o", "json")
    assert done.status == 0, done.errors
    return changes(done.json())


async def refused(cli: Cli, text: str) -> str:
    """Applies a file that must be refused; returns why."""
    (cli.folder / "refused.yaml").write_text(text)
    done = await cli.run("apply", "-f", "refused.yaml")
    assert done.status == 2, done.text
    return done.errors


async def test_objects_are_made_in_their_order_and_a_second_apply_changes_nothing(cli: Cli) -> None:
    first = await applied(cli, OBJECTS)
    assert list(first) == ["Site", "MachineType", "Pool", "Profile", "Cluster"]
    assert set(first.values()) == {"created"}
    assert set((await applied(cli, OBJECTS)).values()) == {"unchanged"}
    again = await cli.run("apply", "-f", "objects.yaml")
    assert again.text.endswith("nothing had to be changed\n")
    arrays = (await cli.run("clusters", "list", "-o", "json")).json()[1]["nodeArrays"]
    assert [array["profile"].partition("/")[2] for array in arrays] == ["node@1"]


async def test_machines_that_joined_later_are_assigned_by_the_next_apply(cli: Cli, world: World) -> None:
    text = "{kind: Pool, name: cpus, site: here, class: metal-host, machines: all}"
    assert await applied(cli, text) == {"Pool": "created"}
    await world.machines(2, "cpu")  # in another pool: left there
    assert await applied(cli, text) == {"Pool": "unchanged"}
    found = (await cli.run("machines", "list", "-o", "json")).json()
    names = ", ".join(one["name"] for one in found)
    by_name = text.replace("all", f"[{names}]")
    assert await applied(cli, by_name) == {"Pool": "updated"}
    assert await applied(cli, by_name) == {"Pool": "unchanged"}
    assert "machines must be" in await refused(cli, text.replace("all", "{}"))
    assert "has no machine nobody" in await refused(cli, text.replace("all", "[nobody]"))


async def test_a_new_pool_that_gets_no_machine_says_so(cli: Cli, world: World) -> None:
    await world.machines(2, "cpu")  # in another pool: left there
    (cli.folder / "pool.yaml").write_text(
        "{kind: Pool, name: late, site: here, class: metal-host, machines: all}"
    )
    done = await cli.run("apply", "-f", "pool.yaml", "-o", "json")
    assert done.json()[0]["detail"] == "no machines: none is without a pool"


async def test_a_draft_is_replaced_and_a_used_version_gets_a_successor(cli: Cli, world: World) -> None:
    profile = "{kind: Profile, name: base, content: {schema: 1, steps: [%s]}}"
    step = '{name: hello, uses: command, with: {run: "echo %s"}}'
    assert await applied(cli, profile % (step % "one")) == {"Profile": "updated"}
    assert await applied(cli, profile % (step % "one")) == {"Profile": "unchanged"}
    await world.machines(1)
    assert (await cli.run("nodes", "create", "demo", "--array", "gpu")).status == 0
    assert await applied(cli, profile % (step % "one")) == {"Profile": "unchanged"}
    assert await applied(cli, profile % (step % "two")) == {"Profile": "updated"}
    versions = (await cli.run("profiles", "list", "-o", "json")).json()
    own = next(one for one in versions if one["tenantId"] == world.tenant)
    assert [(one["number"], one["usedAt"] is not None) for one in own["versions"]] == [(1, True), (2, False)]


async def test_a_recipe_in_a_file_of_its_own_has_its_problems_by_line(cli: Cli) -> None:
    (cli.folder / "recipe.yaml").write_text(
        "schema: 1\nsteps:\n  - name: x\n    uses: command\n    with: {}\n"
    )
    said = await refused(cli, "{kind: Profile, name: filed, file: recipe.yaml}")
    assert "content.steps[0].with.run: line 5: is missing" in said
    assert "refused.yaml (Profile filed)" in said


async def test_what_differs_and_cannot_be_changed_is_refused(cli: Cli) -> None:
    await applied(cli, OBJECTS)
    assert "region is 'north', the file says 'south'" in await refused(
        cli, "{kind: Site, name: lab, region: south}"
    )
    assert "vcpu is 4, the file says 8" in await refused(
        cli, "{kind: MachineType, name: small, vcpu: 8, memoryGb: 16}"
    )
    other = OBJECTS.replace("machineTypes: [small]", "machineTypes: [small], maxCount: 7")
    assert "nodeArrays[0].maxCount is None, the file says 7" in await refused(cli, other)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "kind: Sight\nname: x",
            "kind must be one of Site, MachineType, Pool, Profile, Cluster, not 'Sight'",
        ),
        ("kind: Site", "Site must have a name"),
        ("- 1", "must be a mapping with kind and name"),
        ("", "holds no document"),
        ("a: [", "refused.yaml:1: not valid YAML"),
        ("{kind: Site, name: x}\n---\n{kind: Site, name: x}", "stands in refused.yaml document 1"),
        ("{kind: Site, name: x, region: r, regoin: r}", "did you mean region?"),
        ("{kind: Pool, name: x, site: nowhere, class: metal-host}", "there is no site nowhere"),
        ("{kind: Cluster, name: x, nodeArrays: 3}", "nodeArrays must be a list of mappings"),
        ("{kind: Cluster, name: x, nodeArrays: [{pool: y}]}", "pool y is not among the applied documents"),
        ("{kind: Profile, name: x}", "give either content or file"),
        ("{kind: Profile, name: x, file: absent.yaml}", "absent.yaml: No such file"),
    ],
)
async def test_a_mistake_in_a_file_is_named_with_its_document(cli: Cli, text: str, said: str) -> None:
    errors = await refused(cli, text)
    assert said in errors
    assert len(errors.splitlines()) == 1


async def test_files_that_cannot_be_read_are_named(cli: Cli) -> None:
    done = await cli.run("apply", "-f", "absent.yaml")
    assert done.status == 2
    assert "absent.yaml: No such file or directory" in done.errors
    (cli.folder / "empty").mkdir()
    assert "no *.yaml in this folder" in (await cli.run("apply", "-f", "empty")).errors


def test_plain_scalars_have_the_types_of_yaml_1_2_and_dates_and_modes_stay_text() -> None:
    text = "[on, no, 0644, 2024-01-01, 12:30, .nan, ~, null, true, 12, -1.5, 1e3, '7', !!str 8]"
    assert load_yaml(text, "x") == [
        [
            *("on", "no", "0644", "2024-01-01", "12:30", ".nan", None, None, True, 12, -1.5, 1000.0),
            *("7", "8"),
        ]
    ]


@pytest.mark.parametrize(
    "text", ["a: 1\na: 2", "a: !x 1", "&a [*a]", "a: !!binary aGk=", "a: !!set {x}", "? [1]\n: 2", "{" * 1500]
)
def test_yaml_that_is_more_than_plain_values_is_refused(text: str) -> None:
    with pytest.raises(CliError, match=r"^x"):
        load_yaml(text, "x")


def test_the_demos_profile_is_stored_as_the_apply_compares_it() -> None:
    document = load_yaml((EXAMPLES / "2-profile.yaml").read_text(), "x")[0]
    stored = load_yaml(canonical(parse(document["content"])), "x")[0]
    assert list(differences(filled(document["content"]), stored)) == []
    assert filled(document["content"]) == stored
