"""OpenLineage: datasets of an application (`datasets`), events of a run (`events`), and their `emitter`.

Only this package imports `openlineage`, and only its client: the client's configuration chooses the transport. It is
imported if `penstock.openlineage.enabled` is true.
"""
