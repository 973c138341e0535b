"""The base of what `bringup dev` tells a person in one line, without a traceback."""


class DevError(Exception):
    """Something that the person who started `bringup dev` can understand and act on."""
