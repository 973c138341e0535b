"""The shipped recipes are in order and stay what they were when they were shipped."""

from profiles.builtin import builtin_profiles
from profiles.canonical import canonical, digest

SHIPPED = {
    ("linux-baseline", 1): "sha256:4f7ac36fdb1ea18ec031557ecb17bf77c6c6c007e5b36abc47305a27c636402e",
}


def test_a_shipped_version_never_changes() -> None:
    found = {
        (profile.name, number): digest(canonical(content))
        for profile in builtin_profiles()
        for number, content in profile.versions.items()
    }
    assert found == SHIPPED


def test_each_shipped_recipe_says_what_it_is_for_and_numbers_its_versions_from_1() -> None:
    for profile in builtin_profiles():
        assert len(profile.description) > 40
        assert list(profile.versions) == list(range(1, len(profile.versions) + 1))


def test_each_step_of_a_shipped_recipe_can_tell_that_it_is_done() -> None:
    for profile in builtin_profiles():
        for content in profile.versions.values():
            assert [step.name for step in content.steps if step.body().check is None] == []
