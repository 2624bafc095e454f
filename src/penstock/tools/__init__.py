"""Tools: commands, pages in the browser, transfers between topics, exporters, the schema registry."""
