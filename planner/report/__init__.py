"""Turning a plan into text for people and a document for machines."""
