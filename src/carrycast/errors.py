"""The two ways in which a command ends badly, apart from a defect in carrycast itself."""


class UserError(Exception):
    """Wrong use: bad input that the user can mend. One line that says what to do; exit status 2."""


class NotAuthorizedError(UserError):
    """What a node's certificate does not allow it, or no longer."""


class WorkError(Exception):
    """The work itself failed: a run that broke a rule, a port already in use. One line; exit status 1."""


class ConnectionLostError(WorkError):
    """A connection that stood is gone, and the node perhaps with it."""
