"""The parts of the sandbox that need no machine."""

import os
import stat
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from providers.base import ProviderError
from providers.sandbox import SandboxSite, checks
from providers.sandbox.disk import hide
from providers.sandbox.layout import SiteLayout, is_name
from providers.sandbox.network import choose_subnet, networks_in_use

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="overlay's marks can only be set by root")


@pytest.mark.parametrize("name", ["a", "local-1", "0", "a" * 32])
def test_good_names_are_accepted(name: str) -> None:
    assert is_name(name)


@pytest.mark.parametrize("name", ["", "-a", "A", "a.new", "a/b", "..", "a\n", "a" * 33, "ä"])
def test_bad_names_are_refused(name: str, tmp_path: Path) -> None:
    assert not is_name(name)
    with pytest.raises(ProviderError, match="name must match"):
        SandboxSite(tmp_path).create(name)


def test_the_range_depends_on_the_seed_only_as_long_as_it_is_free() -> None:
    first = choose_subnet("one", [])
    assert first is not None
    assert first == choose_subnet("one", [IPv4Network("192.168.0.0/16")])
    assert first != choose_subnet("two", [])
    second = choose_subnet("one", [IPv4Network(f"{first[77]}/32")])
    assert second is not None
    assert not second.overlaps(first)


def test_no_range_is_chosen_where_all_are_taken() -> None:
    assert choose_subnet("one", [IPv4Network("10.0.0.0/8")]) is None


def test_the_networks_of_this_host_are_seen() -> None:
    assert IPv4Network("127.0.0.0/8") in networks_in_use(except_device="none")
    assert IPv4Network("127.0.0.0/8") not in networks_in_use(except_device="lo")


def test_names_on_the_host_differ_between_directories_and_fit(tmp_path: Path) -> None:
    one, two = SiteLayout(tmp_path / "one"), SiteLayout(tmp_path / "two")
    names = {one.bridge, two.bridge, one.port("a"), one.port("b"), two.port("a")}
    assert len(names) == 5
    assert all(len(name) <= 15 for name in names)


def test_machines_are_listed_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for name in ("m-10", "m-9", "m-2.new", "b"):
        (tmp_path / "machines" / name).mkdir(parents=True)
    assert SiteLayout(tmp_path).names() == ["b", "m-9", "m-10"]


def test_a_site_that_was_never_opened_says_so(tmp_path: Path) -> None:
    with pytest.raises(ProviderError, match="open it first"):
        SandboxSite(tmp_path).create("alpha")


def test_without_root_the_check_says_only_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    (sentence,) = checks.missing(tmp_path)
    assert "root" in sentence


@pytest.mark.parametrize("mask", ["relative", "/", "/etc/.."])
def test_a_mask_that_could_hide_nothing_or_everything_is_refused(
    mask: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRINGUP_SANDBOX_MASK", mask)
    with pytest.raises(ProviderError, match="BRINGUP_SANDBOX_MASK"):
        SandboxSite(tmp_path / "site").open()


@needs_root
def test_hiding_makes_a_whiteout_below_copies_of_the_hosts_folders(tmp_path: Path) -> None:
    private = tmp_path / "host/private"
    private.mkdir(parents=True)
    private.parent.chmod(0o751)
    upper = tmp_path / "upper"
    upper.mkdir()
    hide(upper, private)
    hide(upper, private)
    hide(upper, private / "absent")
    found = upper / private.relative_to("/")
    assert stat.S_ISCHR(found.lstat().st_mode)
    assert found.lstat().st_rdev == 0
    assert stat.S_IMODE(found.parent.stat().st_mode) == 0o751


@needs_root
def test_hiding_cuts_an_existing_folder_off_from_the_hosts(tmp_path: Path) -> None:
    private = tmp_path / "host/private"
    private.mkdir(parents=True)
    upper = tmp_path / "upper"
    own = upper / private.relative_to("/")
    own.mkdir(parents=True)
    (own / "file").touch()
    hide(upper, private)
    assert os.getxattr(own, "trusted.overlay.opaque") == b"y"
    assert (own / "file").exists()


@needs_root
def test_hiding_never_follows_a_link_that_a_machine_left(tmp_path: Path) -> None:
    private = tmp_path / "host/private"
    private.mkdir(parents=True)
    upper, elsewhere = tmp_path / "upper", tmp_path / "elsewhere"
    elsewhere.mkdir()
    link = upper / private.parent.relative_to("/")
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    hide(upper, private)
    assert list(elsewhere.iterdir()) == []
