"""What becomes of the membership of a group when an application is closed."""

from __future__ import annotations

from enum import Enum


class GroupMembershipOperation(Enum):
    """Whether the application leaves its consumer group at the end (Kafka class:
    CloseOptions.GroupMembershipOperation).

    After leaving, the other instances receive the tasks at once instead of after the session timeout. DEFAULT, that of
    `close`, leaves the group unless the member is static (`group.instance.id`): the tasks of a static member wait for
    its restart until the session times out (KIP-1284). LEAVE_GROUP makes static members leave too.

    On Spark all are the same: there is no membership, only positions for tools that show the lag.
    """

    DEFAULT = "DEFAULT"
    LEAVE_GROUP = "LEAVE_GROUP"
    REMAIN_IN_GROUP = "REMAIN_IN_GROUP"
