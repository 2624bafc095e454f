"""The schemas of the messages that the broker and its clients use, one module an API; `make schemas` writes them."""
