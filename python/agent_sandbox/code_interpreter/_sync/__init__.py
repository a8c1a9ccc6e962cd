"""The plain side; see agent_sandbox/_sync."""
