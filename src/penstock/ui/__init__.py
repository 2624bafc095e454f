"""What a running application shows of itself over HTTP: JSON, health and metrics (extra `ui`).

`observer` looks at the application, `answers` turns what it saw into plain data, `routes` says which address answers
what, and `server` runs with the application. Rules: it knows an application by its public methods, never by its host;
a request never waits for a broker; all that is shown is text.
"""
