"""The errors that end a command, apart from defects in carrycast itself."""


class UserError(Exception):
    """Wrong use: input that the user can correct. The message is one line that says what to do; exit status 2.

    >>> import carrycast
    >>> try:
    ...     carrycast.simulate(carrycast.example("quick"), protocol="epidemc")
    ... except carrycast.UserError as error:
    ...     print(error)
    protocol: protocol.name: there is no protocol 'epidemc': did you mean 'epidemic'? ...
    """


class NotAuthorizedError(UserError):
    """The node's certificate does not allow the operation, or has expired."""


class WorkError(Exception):
    """The work failed: a run violated an invariant, a port is in use. The message is one line; exit status 1.

    >>> import carrycast
    >>> try:
    ...     carrycast.connect("no-such.sock")
    ... except carrycast.WorkError as error:
    ...     print(error)
    no node answers at no-such.sock ...
    """


class ConnectionLostError(WorkError):
    """An established connection was lost; the node may have stopped."""
