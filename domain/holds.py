"""What a person decides about a run that is held."""

from enum import StrEnum


class Verdict(StrEnum):
    """The two ways out of a hold."""

    RESUME = "resume"  # run the failed step again, and go on
    ABORT = "abort"  # give it up: the run ends as failed with the step's card
