"""The checkpoint of an application: files, topology versions, evolution of state, and savepoints."""
