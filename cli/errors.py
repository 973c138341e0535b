"""What a command ends with when it does not succeed: an exit status, and one line that says why."""

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit statuses of `bringup`, for scripts."""

    OK = 0
    FAILED = 1
    REFUSED = 2  # also what a wrong command line ends with
    PARTIAL = 3
    TIMED_OUT = 4
    UNREACHABLE = 5
    INTERRUPTED = 130


class CliError(Exception):
    """Ends the command: `str()` goes to standard error as one line, `exit_code` to the shell."""

    def __init__(self, message: str, exit_code: ExitCode = ExitCode.REFUSED) -> None:
        self.exit_code = exit_code
        super().__init__(message)


class UnreachableError(CliError):
    """No API answers, or it says that it cannot serve now."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ExitCode.UNREACHABLE)


class RefusedError(CliError):
    """The API refused a request. `code` is its own word for the reason, such as CONFLICT."""

    def __init__(self, status: int, code: str, message: str) -> None:
        self.status = status
        self.code = code
        super().__init__(message, ExitCode.FAILED if status >= 500 else ExitCode.REFUSED)
