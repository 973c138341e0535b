"""`bringup init`: the first administrator, and what is said when there can be none."""

from pathlib import Path

from tests.cli.conftest import Cli, finish


async def test_the_first_administrator_serves_the_whole_fleet(
    lost: Cli, cli: Cli, api_url: str, database_url: str, tmp_path: Path
) -> None:
    token = tmp_path / "admin.token"
    words = ("init", "--token-file", str(token), "--tenant", f"platform-{tmp_path.name[-20:]}")
    told = lost.told(database_url=database_url)
    first = await finish(await told.start(*words))
    assert (first.status, first.text.endswith(f"token in {token}\n")) == (0, True), first.errors
    assert token.stat().st_mode & 0o777 == 0o600
    text = token.read_text()
    again = await finish(await told.start(*words))
    assert (again.status, token.read_text()) == (0, text), "a valid token is kept"
    admin = lost.told(api=api_url, token=str(token), tenant=words[-1])
    root = await admin.run("tenants", "create", f"root-{tmp_path.name[-20:]}")
    assert root.status == 0, root.errors


async def test_without_a_database_it_says_what_is_missing(lost: Cli, tmp_path: Path) -> None:
    words = ("init", "--token-file", str(tmp_path / "token"))
    unset = await finish(await lost.start(*words))
    assert unset.status == 2
    assert "BRINGUP_DATABASE_URL is not set" in unset.errors
    nowhere = lost.told(database_url="postgresql+asyncpg://nobody@127.0.0.1:1/none")
    refused = await finish(await nowhere.start(*words))
    assert refused.status == 1
    assert "could not be made: " in refused.errors
    assert "Connect" in refused.errors
    assert not (tmp_path / "token").exists()
