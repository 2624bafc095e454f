"""The DSL, the API for users' programs: it only creates GraphNodes, and `plan` interprets them."""
