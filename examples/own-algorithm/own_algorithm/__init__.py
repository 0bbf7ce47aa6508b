"""Gossip, an algorithm for fbo-flower: `record.py` registers it, `gossip.py` is all of it."""
