"""What can go wrong, one exception for each failure. All are :class:`ThcError`."""

from collections.abc import Sequence as _Sequence


class ThcError(Exception):
    """Any failure of THC. Its text is one line that says what is wrong and what to do."""


class ConfigError(ThcError, ValueError):
    """An option, a file or an environment variable is wrong."""


class ClosedError(ThcError):
    """The group or server has been closed, or was made before a fork."""


class ReplicasError(ThcError):
    """Ranks that should have the same parameters do not. ``ranks`` differ from the most, in the parameters ``names``."""

    def __init__(self, ranks: list[int], names: list[str], when: str = "") -> None:
        self.ranks = ranks
        self.names = names
        which = f"rank {ranks[0]} differ" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))} differ"
        where = f" in {names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else "") if names else ""
        super().__init__(
            f"the parameters of {which} from those of the others{where}{when}: "
            "load one checkpoint on all ranks, or call thc.torch.sync_parameters"
        )


class ServerError(ThcError):
    """The embedded parameter server cannot start, or has stopped."""


class JoinError(ThcError):
    """The group could not be joined."""


class JoinRefusedError(JoinError):
    """The parameter server says no: unknown job, wrong cookie, worker number taken or out of range."""

    reason: str = ""
    """Why, in its words."""


class JoinSilentError(JoinError):
    """No parameter server answers."""

    waited: float = 0.0
    """Seconds."""


class JoinMissingError(JoinError):
    """The parameter server is there, but not all workers came."""

    missing: _Sequence[int] = ()
    """The workers that did not."""
    waited: float = 0.0
    """Seconds."""


class ControllerError(JoinError):
    """The controller refuses, or is not there."""

    url: str = ""
    """The job at the controller."""


class NonFiniteError(ThcError):
    """A worker's array holds a NaN or an infinity. The call failed on all workers alike, the array is
    unchanged, and the group goes on."""

    worker: int = 0
    """The worker whose array it is, the highest number if there are several."""


class NormError(ThcError):
    """The largest norm of an array's part is none that a worker may send, so a packet was damaged on the way. The call
    failed on all workers alike, the array is unchanged, and the group goes on."""

    partition: int = 0
    """Which part."""
    value: int = 0
    """The bits that came."""


class PanickedError(ThcError):
    """A fault in this library ended the group: close it and join with a new one."""


class SessionError(ThcError):
    """The session is over: all workers must :meth:`thc.Group.rejoin`. The array may be partly overwritten."""


class MismatchError(SessionError):
    """The workers called different all-reduces: another length, mode, key or order."""

    worker: int = 0
    """The worker whose call differed from that of the others."""


class MissingError(SessionError):
    """The parameter server answers, but some workers do not send."""

    missing: _Sequence[int] = ()
    """The workers that do not."""
    waited: float = 0.0
    """Seconds without progress."""


class SilentError(SessionError):
    """The parameter server does not answer any more."""

    waited: float = 0.0
    """Seconds without an answer."""


class GivenUpError(SessionError):
    """:meth:`thc.Group.give_up` was called."""


class LeftBehindError(SessionError):
    """This rank lacks what the others have discarded already, and cannot follow."""


class ChangedError(SessionError):
    """The parameter server was restarted with another configuration of the job."""


class NormLostError(SessionError):
    """The largest norm came back below this worker's own, so a packet was damaged on the way."""

    partition: int = 0
    """Which part of the array."""


class CodecError(SessionError):
    """The transform or the quantizer refuses its numbers."""


class ReformingError(SessionError):
    """A worker has restarted, so the session has ended."""

    worker: int | None
    """The worker, if it is known."""


class EmptyError(ThcError, ValueError):
    """The array has no coordinates."""


class PlanError(ThcError, ValueError):
    """The plan is none for this array, or names a table that the job does not have."""


class TooLongError(ThcError, ValueError):
    """The array has 2^32 coordinates or more."""

    length: int = 0


class FeedbackError(ThcError, ValueError):
    """Something about a key of error feedback."""

    key: int = 0


class FeedbackLengthError(FeedbackError):
    """An array under this key had another length before."""

    before: int = 0
    now: int = 0


class FeedbackBusyError(FeedbackError):
    """An array under this key is still being reduced: wait for its handle before its error feedback is used, saved,
    restored or reset."""


class FeedbackStateError(FeedbackError):
    """Saved error feedback does not fit, or is damaged."""


class UnusableJobError(ThcError):
    """The parameter server offers a job that this worker cannot use."""


class NetworkError(ThcError, OSError):
    """The operating system refuses a socket or a packet."""


class ModelError(ThcError):
    """Asynchronous training: the model server or a connection to it failed."""


class ModelEmptyError(ModelError):
    """Nobody has given the model its first value, or its server has restarted and keeps no state."""


class ModelRefusedError(ModelError):
    """The model server says no: wrong secret, a model configured otherwise, above a limit."""


class ModelSilentError(ModelError):
    """The model server does not answer."""
