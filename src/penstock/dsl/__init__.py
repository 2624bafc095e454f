"""What users write: the DSL. It only makes GraphNodes; `plan` gives them their meaning."""
