"""The interface for asyncio. _sync is made of it by python/make_sync.py: change both by running that."""
