"""The root of every exception that holonomix raises on purpose."""


class HolonomixError(Exception):
    """Something that the caller can act on: the message says what is wrong, with numbers, and what to try."""
