"""Fuzz targets, one per codec."""
