"""The service plane, in the order a request walks: client, switch, queues, federation, worker."""
