"""Worker processes, which run tasks if `num.stream.threads` is more than one.

`messages` has the messages between processes, `worker` the code of the other process, `worker_process` one of them as
seen from here, `worker_processes` all of them.
"""
