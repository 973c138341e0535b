"""One content has one text and one digest, however it was written."""

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles.canonical import canonical, digest, from_canonical
from profiles.checking import parse
from profiles.documents import load
from profiles.problems import ProfileError
from tests.profiles.recipes import recipe, recipes


@given(recipes())
def test_canonical_text_is_read_back_to_the_same_content(raw: dict[str, object]) -> None:
    content = parse(raw)
    text = canonical(content)
    assert from_canonical(text) == content
    assert canonical(from_canonical(text)) == text


@given(recipes(), st.randoms())
def test_the_order_of_keys_and_written_defaults_change_no_digest(
    raw: dict[str, object], random: Random
) -> None:
    text = canonical(parse(raw))
    shuffled = json.loads(
        json.dumps(raw), object_pairs_hook=lambda pairs: dict(random.sample(pairs, len(pairs)))
    )
    assert canonical(parse(shuffled)) == text
    assert canonical(parse(json.loads(text))) == text


@given(recipes())
def test_another_body_is_another_digest(raw: dict[str, object]) -> None:
    changed = json.loads(json.dumps(raw))
    inputs = changed["steps"][0]["with"]
    inputs["check"] = inputs.get("check", "") + "x"
    assert digest(canonical(parse(changed))) != digest(canonical(parse(raw)))


def test_yaml_and_json_of_one_recipe_have_one_digest() -> None:
    yaml = "schema: 1\nsteps:\n- uses: command\n  name: tune\n  with:\n    run: 'true'\n"
    assert canonical(parse(load(yaml))) == canonical(parse(recipe()))


def test_the_text_and_digest_of_a_known_recipe_never_change() -> None:
    text = canonical(parse(recipe(**{"with": {"run": "echo ü 'x'"}})))
    assert text == (
        '{"schema":1,"steps":[{"disruption":"none","name":"tune","onFailure":"fail","phase":"create",'
        '"retry":{"attempts":1,"backoffSeconds":5},"timeoutSeconds":600,"uses":"command",'
        '"with":{"run":"echo ü \'x\'"}}]}'
    )
    assert digest(text) == "sha256:2855e36f2eafb3af87feb9c49a4243cd1bbc50d9176478a0c6486375dbf94f2c"


@pytest.mark.parametrize("text", ["", "{}", "[]", "{", '{"schema": 1}'])
def test_text_that_is_no_content_is_refused(text: str) -> None:
    with pytest.raises(ProfileError, match="not stored content"):
        from_canonical(text)


def test_content_in_another_form_is_not_taken_for_canonical_text() -> None:
    with pytest.raises(ProfileError, match="canonical form"):
        from_canonical(json.dumps(recipe()))
