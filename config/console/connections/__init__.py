"""Connections: accounts at providers that agents and sources act for."""
