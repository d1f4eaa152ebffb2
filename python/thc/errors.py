"""What can go wrong: an exception for each kind of failure that a program may treat in its own way. All are :class:`ThcError`."""

from collections.abc import Sequence as _Sequence


class ThcError(Exception):
    """Any failure of THC. Its text is one line that says what is wrong and what to do."""


class ConfigError(ThcError, ValueError):
    """An option, a file, an environment variable, a plan or an array is wrong."""


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
    """The group could not be joined: no server or controller answers, it refuses, its job cannot be used, or workers are missing."""

    reason: str = ""
    """Why the server refuses, in its words."""
    missing: _Sequence[int] = ()
    """The workers that did not come."""
    waited: float = 0.0
    """Seconds."""


class NonFiniteError(ThcError):
    """A worker's array holds a NaN or an infinity, or a packet with its norm was damaged. The call failed on all workers alike, the array is
    unchanged, and the group goes on."""

    worker: int | None = None
    """The worker whose array it is, the highest number if there are several."""


class PanickedError(ThcError):
    """A fault in this library ended the group: close it and join with a new one."""


class SessionError(ThcError):
    """The session is over: all workers must :meth:`thc.Group.rejoin`. The array may be partly overwritten."""

    worker: int | None = None
    """The worker that ended it, if it is known."""


class MismatchError(SessionError):
    """The workers called different all-reduces: another length, mode, key or order. ``worker`` is the one whose call differed."""


class LostError(SessionError):
    """The session with the parameter server is lost: the server was configured anew, a worker has restarted or does not send, the server does not answer,
    this worker has fallen behind, or :meth:`thc.Group.give_up` was called."""

    missing: _Sequence[int] = ()
    """The workers that do not send."""
    waited: float = 0.0
    """Seconds without progress."""


class MissingError(LostError):
    """The parameter server answers, but some workers do not send."""


class SilentError(LostError):
    """The parameter server does not answer any more."""


class FeedbackError(ThcError, ValueError):
    """An array under a key of error feedback had another length before, or is still being reduced; or saved error feedback is damaged or does not fit."""

    key: int = 0


class NetworkError(ThcError, OSError):
    """The operating system refuses a socket or a packet, or a process group fails."""


class ModelError(ThcError):
    """Asynchronous training: the model server or a connection to it failed."""


class ModelEmptyError(ModelError):
    """No worker has given the model its first value, or its server has restarted and keeps no state."""


class ModelRefusedError(ModelError):
    """The model server says no: wrong secret, a model configured otherwise, above a limit."""


class ModelSilentError(ModelError):
    """The model server does not answer."""
