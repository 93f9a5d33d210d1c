"""The process: listeners, links, timers, signals, children; runs a role on real sockets."""
