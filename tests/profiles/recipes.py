"""Recipes as hypothesis makes them, and the smallest one for tests that change a single thing."""

from hypothesis import strategies as st

_text = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=60
).filter(lambda text: text.strip() != "" and not text.startswith("#!"))
_command = st.fixed_dictionaries(
    {"uses": st.just("command"), "with": st.fixed_dictionaries({"run": _text}, optional={"check": _text})}
)
_script = st.fixed_dictionaries(
    {
        "uses": st.just("script"),
        "with": st.fixed_dictionaries(
            {"content": _text},
            optional={"check": _text, "interpreter": st.sampled_from(["/bin/bash", "/usr/bin/python3"])},
        ),
    }
)
_options = st.fixed_dictionaries(
    {},
    optional={
        "phase": st.sampled_from(["create", "start", "deallocate", "terminate"]),
        "timeoutSeconds": st.integers(1, 86_400),
        "retry": st.fixed_dictionaries(
            {}, optional={"attempts": st.integers(1, 10), "backoffSeconds": st.integers(0, 3_600)}
        ),
        "disruption": st.just("none"),
        "onFailure": st.sampled_from(["fail", "continue"]),
    },
)
_names = st.lists(
    st.from_regex(r"[a-z0-9][a-z0-9-]{0,20}", fullmatch=True).filter(lambda name: name != "hostname"),
    min_size=1,
    max_size=8,
    unique=True,
)


@st.composite
def recipes(draw: st.DrawFn) -> dict[str, object]:
    """Any recipe that this release accepts, as plain values."""
    steps = [{"name": name, **draw(st.one_of(_command, _script)), **draw(_options)} for name in draw(_names)]
    return {"schema": 1, "steps": steps}


def recipe(**changes: object) -> dict[str, object]:
    """A recipe of one step `tune` with some of its keys changed."""
    step: dict[str, object] = {"name": "tune", "uses": "command", "with": {"run": "true"}}
    return {"schema": 1, "steps": [{**step, **changes}]}
