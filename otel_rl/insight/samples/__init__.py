"""Recorded texts as samples: those worth reading, and phrases that earn a reward."""
