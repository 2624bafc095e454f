"""The checkpoint of an application: its files, its topology versions, what a changed program means for it, and
savepoints."""
