"""Bytes to messages and back, one file per wire. Pure: no sockets, clocks or threads."""
