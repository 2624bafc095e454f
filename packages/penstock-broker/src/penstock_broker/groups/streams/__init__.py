"""Groups of Kafka Streams, with assignment of tasks by the broker (KIP-1071; Kafka class: StreamsGroup).

The first member brings the topology, and the group keeps it. The broker creates the internal topics of the topology,
and assigns its tasks once all topics exist. What consumer groups and streams groups have in common is in `modern`.

| module | contents |
|---|---|
| `tasks` | the tasks of a member, in memory and in messages |
| `task_offsets` | the offsets of tasks that members report |
| `heartbeat` | the request of a member |
| `member` | a member's process and tasks |
| `topology` | the topology, and its topics and tasks on this broker |
| `assignor`, `target` | the sticky assignor; the target assignment |
| `state` | the states of the group, and its transitions |
| `records` | the group in `__consumer_offsets` |
| `description` | the group in the form of StreamsGroupDescribe, and the endpoints of its members |
| `group` | the group |

Left out: standby tasks and warm-up tasks. All tasks are active.
"""
