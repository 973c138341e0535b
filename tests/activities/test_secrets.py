"""References lead to files below the tenant's own folder, and nowhere else."""

from pathlib import Path

import pytest

from activities.secrets import FileSecrets, SecretError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for tenant, text in (("mine", "my key\n"), ("other", "their key\n")):
        (tmp_path / tenant / "ssh").mkdir(parents=True)
        (tmp_path / tenant / "ssh" / "key").write_text(text)
    (tmp_path / "loose").write_text("nobody's\n")
    return tmp_path


def test_the_same_reference_is_another_secret_for_another_tenant(root: Path) -> None:
    secrets = FileSecrets(root)
    assert secrets.resolve("mine", "secret://file/ssh/key") == "my key\n"
    assert secrets.resolve("other", "secret://file/ssh/key") == "their key\n"


@pytest.mark.parametrize(
    ("tenant", "reference", "says"),
    [
        ("mine", "secret://file/../other/ssh/key", "leads out"),
        ("mine", "secret://file//etc/hostname", "leads out"),
        ("..", "secret://file/etc/hostname", "leads out"),
        (".", "secret://file/loose", "leads out"),
        ("mine", "secret://file/link", "leads out"),
        ("mine", "secret://file/missing", "no such file"),
        ("mine", "secret://file/ssh", "no such file"),
        ("mine", "secret://file/empty", "is empty"),
        ("mine", "secret://file/large", "is larger than"),
        ("mine", "secret://file/binary", "cannot be read"),
        ("mine", "secret://vault/ssh/key", "only secret://file/"),
        ("stranger", "secret://file/ssh/key", "no such file"),
    ],
)
def test_what_leads_to_no_secret_of_the_tenant_is_refused(
    root: Path, tenant: str, reference: str, says: str
) -> None:
    (root / "mine" / "link").symlink_to(root / "other" / "ssh" / "key")
    (root / "mine" / "empty").write_text("\n")
    (root / "mine" / "large").write_text("x" * 70_000)
    (root / "mine" / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SecretError, match=says):
        FileSecrets(root).resolve(tenant, reference)
