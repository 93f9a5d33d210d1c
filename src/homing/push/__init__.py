"""The push plane, in the order a publication walks."""
