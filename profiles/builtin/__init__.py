"""The recipes that are shipped, under the tenant `builtin`.

`<name>/about.yaml` says what a recipe is for and `<name>/<number>.yaml` is one version. A version that has
been shipped never changes: what is better becomes the next number.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

from profiles.checking import parse
from profiles.content import ProfileContent
from profiles.documents import load
from profiles.problems import Problem, ProfileError

TENANT = "builtin"


@dataclass(frozen=True)
class BuiltinProfile:
    """One shipped recipe with all its versions by number."""

    name: str
    description: str
    versions: Mapping[int, ProfileContent]


def builtin_profiles() -> list[BuiltinProfile]:
    """Reads the shipped recipes, sorted by name; raises ProfileError for a file that is not in order."""
    folders = [folder for folder in files(__name__).iterdir() if (folder / "about.yaml").is_file()]
    return [_read(folder) for folder in sorted(folders, key=lambda folder: folder.name)]


def _read(folder: Traversable) -> BuiltinProfile:
    about = load((folder / "about.yaml").read_bytes())
    description = about.get("description") if isinstance(about, dict) else None
    if not isinstance(description, str):
        raise ProfileError([Problem(f"{folder.name}/about.yaml", "has no description")])
    numbers = (entry.name.removesuffix(".yaml") for entry in folder.iterdir())
    versions = {
        int(number): parse(load((folder / f"{number}.yaml").read_bytes()))
        for number in sorted(numbers)
        if number.isdecimal()
    }
    return BuiltinProfile(folder.name, description, versions)
