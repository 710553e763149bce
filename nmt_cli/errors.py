"""The one exception that a user sees, as one line on stderr."""


class NmtError(Exception):
    """Bad usage or bad input: shown as ``error: message`` with exit code 2.

    The message says what is wrong, where (file and line), and what to do.
    """

    exit_code = 2


class WorkFailed(NmtError):
    """The input was good but the work failed (diverged, disk full): exit code 1."""

    exit_code = 1
