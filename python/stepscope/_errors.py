"""What this package raises."""


class StepscopeError(RuntimeError):
    """Something went wrong; the other classes say what kind."""


class Refused(StepscopeError, ValueError):
    """A tensor, a setting or a variant that an op cannot take. Nothing was computed."""


class MachineError(StepscopeError):
    """This machine cannot do it: no library, no device, no cuDNN, no memory."""


class CheckFailed(StepscopeError):
    """An op is worse than it may be. `rows` holds the table, `str()` prints it."""

    def __init__(self, message, rows):
        super().__init__(message)
        self.rows = rows
