"""The simulated libnvidia-ml.so.1: compiled from C when it is first needed, kept under its digest."""

import hashlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from providers.sandbox.host import COMMAND_PATH, CommandError, command

NAME = "libnvidia-ml.so.1"
_SOURCE = Path(__file__).with_name("libnvidia_ml.c")
_OPTIONS = ("-shared", "-fPIC", "-O1", "-Wall", f"-Wl,-soname,{NAME}")


def build(cache: Path, without: Sequence[str] = ()) -> Path:
    """Return the compiled library, compiling it unless the cache has it; raises CommandError.

    The functions named in ``without`` are not exported: that is how an old driver's library looks.
    """
    for name in without:
        if f" {name}(" not in _SOURCE.read_text():
            raise ValueError(f"the simulated library never had a function {name}")
    wanted = hashlib.sha256("\0".join([_SOURCE.read_text(), *_OPTIONS, *sorted(without)]).encode())
    built = cache / f"libnvidia-ml-{wanted.hexdigest()[:16]}.so"
    if not built.exists():
        _compile(built, without)
    return built


def folder() -> Path:
    """Return where the dynamic linker of machines looks for it: the host's own folder of libraries."""
    multiarch = command(_compiler(), "-print-multiarch").strip()
    return Path("/usr/lib") / multiarch if multiarch else Path("/usr/lib64")


def _compile(built: Path, without: Sequence[str]) -> None:
    built.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = built.with_name(f"{built.name}.{os.getpid()}")
    exports = draft.with_suffix(".map")
    hidden = "".join(f" {name};" for name in without)
    exports.write_text(f"{{ global: nvml*; local: *;{hidden} }};\n")
    try:
        script = f"-Wl,--version-script={exports}"
        command(_compiler(), *_OPTIONS, script, "-o", str(draft), str(_SOURCE))
        draft.rename(built)
    finally:
        exports.unlink()
        draft.unlink(missing_ok=True)


def _compiler() -> str:
    found = shutil.which("cc", path=COMMAND_PATH)
    if found is None:
        raise CommandError(
            "simulated GPUs are compiled on first use, and cc is missing: apt-get install gcc libc6-dev"
        )
    return found
