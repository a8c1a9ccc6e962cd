"""The interface for plain code. Made of _async by python/make_sync.py, except run.py and handle.py."""
