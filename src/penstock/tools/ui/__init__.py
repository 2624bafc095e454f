"""A running application's HTTP interface: JSON, health and metrics (extra `ui`).

`observer` observes the application, `answers` turns the observations into plain data, `routes` maps addresses to
answers, and `server` runs with the application. Rules: this package uses the public methods of an application, never
its host; a request never waits for a broker; everything shown is text.
"""
