"""Authorized operations, which some APIs report on request.

All operations are authorized, because the broker has no access control. Matches Kafka's answer without an authorizer
(KIP-430): one bit for each operation that makes sense for the resource.
"""

from __future__ import annotations

from typing import Final

_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _CLUSTER_ACTION = (1 << code for code in range(3, 10))
_DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = (1 << code for code in range(10, 13))
_CONFIGS: Final = _DESCRIBE_CONFIGS | _ALTER_CONFIGS

ON_TOPIC: Final = _READ | _WRITE | _CREATE | _DELETE | _ALTER | _DESCRIBE | _CONFIGS
"""Operations on a topic."""
ON_GROUP: Final = _READ | _DELETE | _DESCRIBE | _CONFIGS
"""Operations on a group."""
ON_CLUSTER: Final = _CREATE | _ALTER | _DESCRIBE | _CLUSTER_ACTION | _IDEMPOTENT_WRITE | _CONFIGS
"""Operations on the cluster."""
