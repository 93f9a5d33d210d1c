"""homing: a messaging fabric.

A message goes to one worker that can serve it, or to every subscriber whose interest it
satisfies; all of it is journaled, and Spark reads the journal.
"""

__version__ = "0.1.0"
