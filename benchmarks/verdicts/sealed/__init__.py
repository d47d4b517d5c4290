"""Sealed scenarios: nobody runs or reads them before the end, when they judge what was made with the open ones."""
