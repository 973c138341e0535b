"""A plan holds one phase's steps in order, and is the same whenever it is made again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles.checking import parse
from profiles.compiling import compile_plan
from profiles.content import OnFailure, Phase, ProfileContent
from profiles.plan import Plan
from profiles.problems import ProfileError
from tests.profiles.recipes import recipe, recipes


def _plan(content: ProfileContent, phase: Phase, hostname: str | None = None) -> Plan:
    return compile_plan(
        content, profile="acme/x@1", content_digest="sha256:abc", phase=phase, hostname=hostname
    )


@given(recipes(), st.sampled_from(Phase), st.sampled_from([None, "gpu-1"]))
def test_a_plan_has_the_phases_steps_in_order_and_survives_being_stored(
    raw: dict[str, object], phase: Phase, hostname: str | None
) -> None:
    content = parse(raw)
    plan = _plan(content, phase, hostname)
    platform = ["hostname"] if hostname and phase is Phase.CREATE else []
    assert [step.name for step in plan.steps] == platform + [
        step.name for step in content.steps if step.phase is phase
    ]
    assert [step.position for step in plan.steps] == list(range(len(plan.steps)))
    assert Plan.from_canonical(plan.canonical()) == plan
    assert _plan(parse(raw), phase, hostname).digest() == plan.digest()


def test_a_steps_options_reach_the_plan() -> None:
    content = parse(
        recipe(
            **{"with": {"run": "a", "check": "b"}, "retry": {"attempts": 3, "backoffSeconds": 0}},
            timeoutSeconds=7,
            onFailure="continue",
            phase="terminate",
        )
    )
    (step,) = _plan(content, Phase.TERMINATE, "ignored").steps
    assert (step.run, step.check, step.interpreter, step.summary) == ("a", "b", None, "command tune")
    assert (step.timeout_seconds, step.attempts, step.backoff_seconds) == (7, 3, 0)
    assert step.on_failure is OnFailure.CONTINUE


@pytest.mark.parametrize(
    ("inputs", "interpreter"),
    [
        ({"content": "echo"}, None),
        ({"content": "#!/usr/bin/python3\nprint()"}, "/usr/bin/python3"),
        ({"content": "#! /bin/bash\r\n:"}, "/bin/bash"),
        ({"content": "#!/usr/bin/env python3\n", "interpreter": "/usr/bin/python3"}, "/usr/bin/python3"),
    ],
)
def test_a_script_is_read_by_the_interpreter_it_asks_for(
    inputs: dict[str, str], interpreter: str | None
) -> None:
    (step,) = _plan(parse(recipe(uses="script", **{"with": inputs})), Phase.CREATE).steps
    assert step.interpreter == interpreter
    assert step.run == inputs["content"]


@pytest.mark.parametrize(
    "hostname", ["", "-a", "a-", "a_b", "a b", "$(reboot)", "a;b", "a..b", "a.", "a\n", "ä", "a" * 64]
)
def test_what_cannot_be_a_hostname_is_refused(hostname: str) -> None:
    with pytest.raises(ProfileError, match="cannot be a hostname"):
        _plan(parse(recipe()), Phase.CREATE, hostname)


def test_another_hostname_is_another_plan() -> None:
    content = parse(recipe())
    assert _plan(content, Phase.CREATE, "gpu-1").digest() != _plan(content, Phase.CREATE, "gpu-2").digest()
