"""The errors that end a command, apart from defects in carrycast itself."""


class UserError(Exception):
    """Wrong use: input that the user can correct. The message is one line that says what to do; exit status 2."""


class NotAuthorizedError(UserError):
    """The node's certificate does not allow the operation, or has expired."""


class WorkError(Exception):
    """The work failed: a run violated an invariant, a port is in use. The message is one line; exit status 1."""


class ConnectionLostError(WorkError):
    """An established connection was lost; the node may have stopped."""
