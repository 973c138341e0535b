"""Content to plan: what one machine gets in one phase."""

from profiles.content import ProfileContent, Step
from profiles.hostnames import HOSTNAME_STEP, hostname_body
from profiles.kinds.base import Disruption, OnFailure, Phase
from profiles.plan import Plan, PlanStep

_HOSTNAME_TIMEOUT_SECONDS = 60


def compile_plan(
    content: ProfileContent, *, profile: str, content_digest: str, phase: Phase, hostname: str | None
) -> Plan:
    """The steps of `phase` in the author's order; the same arguments always make the same plan.

    In the create phase the platform's step that sets `hostname` comes first (None: the name is left alone).
    Raises ProfileError for what cannot be a hostname.
    """
    steps = [_compiled(step) for step in content.steps if step.phase is phase]
    if phase is Phase.CREATE and hostname is not None:
        steps.insert(0, _hostname_step(hostname))
    numbered = tuple(step.model_copy(update={"position": index}) for index, step in enumerate(steps))
    return Plan(schema=1, phase=phase, profile=profile, content_digest=content_digest, steps=numbered)


def _compiled(step: Step) -> PlanStep:
    body = step.body()
    return PlanStep(
        position=0,
        name=step.name,
        uses=step.uses,
        summary=f"{step.uses} {step.name}",
        run=body.run,
        check=body.check,
        interpreter=body.interpreter,
        timeout_seconds=step.timeout_seconds,
        attempts=step.retry.attempts,
        backoff_seconds=step.retry.backoff_seconds,
        on_failure=step.on_failure,
        reboots=True if step.disruption is Disruption.REBOOT else None,
    )


def _hostname_step(hostname: str) -> PlanStep:
    body = hostname_body(hostname)
    return PlanStep(
        position=0,
        name=HOSTNAME_STEP,
        uses="command",
        summary=f"set the hostname to {hostname}",
        run=body.run,
        check=body.check,
        timeout_seconds=_HOSTNAME_TIMEOUT_SECONDS,
        attempts=1,
        backoff_seconds=0,
        on_failure=OnFailure.FAIL,
    )
