"""A reference names one version for good, and says what is wrong with one that does not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles.problems import ProfileError
from profiles.references import ProfileRef


@given(
    st.from_regex(r"[A-Za-z0-9._:-]{1,128}", fullmatch=True),
    st.from_regex(r"[a-z0-9][a-z0-9-]{0,62}", fullmatch=True),
    st.integers(1, 999_999_999),
)
def test_a_reference_is_read_back_from_its_text(tenant: str, name: str, number: int) -> None:
    ref = ProfileRef(tenant, name, number)
    assert ProfileRef.parse(str(ref)) == ref


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "tenant is missing"),
        ("baseline@1", "tenant is missing"),
        ("acme/baseline", "version is missing"),
        ("acme/baseline@latest", "another recipe tomorrow"),
        ("acme/baseline@0", "whole number from 1"),
        ("acme/baseline@01", "leading zeros"),
        ("acme/baseline@-1", "whole number"),
        ("acme/baseline@1\n", "whole number"),
        ("acme/baseline@²", "whole number"),
        ("acme/baseline@" + "9" * 5000, "whole number"),
        ("acme/Baseline@1", "lower-case letters"),
        ("acme/a/b@1", "lower-case letters"),
        ("ac me/baseline@1", "the tenant must be"),
        ("/baseline@1", "the tenant must be"),
        ("a" * 129 + "/baseline@1", "1 to 128"),
    ],
)
def test_what_is_no_reference_is_refused_with_the_reason(text: str, says: str) -> None:
    with pytest.raises(ProfileError, match=says):
        ProfileRef.parse(text)
