"""The async side; see agent_sandbox/_async."""
