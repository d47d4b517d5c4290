"""Parts of small programs that several scenarios share."""
