"""The same work written with several client libraries: a worker that echoes, a client that asks.

    python FILE.py worker ENDPOINT          prints `ready`, then serves until its input ends
    python FILE.py client ENDPOINT          asks; prints `end {json}`

The client keeps IN_FLIGHT requests under way for SECONDS, after a warm-up.
"""
