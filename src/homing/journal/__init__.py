"""The append-only record of what one node did.

events.py     what can be recorded, and its bytes          (pure)
segment.py    segment files: headers, blocks, checksums    (pure)
"""
