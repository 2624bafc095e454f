"""Worker processes, which run tasks when `num.stream.threads` is more than one: `messages` is what crosses, `worker` is
the other process, `worker_process` one of them as seen from here, `worker_processes` all of them."""
